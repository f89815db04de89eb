"""``latentdag fit`` and ``latentdag test``: from data to results, and what they tell the terminal."""

import json
from pathlib import Path
from typing import Any

from latentdag.cli.files import read_moments, read_samples
from latentdag.cli.place import reserved
from latentdag.cli.results import FIGURES, FILES, MARKS, TABLES, file_names, write_result
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.store import to_plain
from latentdag.inference.bootstrap import bootstrap as resample
from latentdag.inference.membership import membership_test
from latentdag.methods.fitting import fit
from latentdag.methods.options import Options, check_method
from latentdag.model.metrics import compare
from latentdag.model.model import LatentModel
from latentdag.report import Results, moments_hash

#: What a command tells the terminal, for people and for programs, and which files it wrote.
Said = tuple[str, dict[str, Any], list[str]]


def run_fit(
    data: Path,
    out: Path,
    source: dict[str, Any],
    method: str,
    options: dict[str, Any],
    *,
    replicates: int,
    jobs: int,
    seed: int,
    truth: Path | None,
    progress: bool | None,
) -> Said:
    """Read data, fit them, resample, compare with the truth, and write the folder of results.

    Parameters
    ----------
    data, out : paths
    source : how to read the data
    method, options : of all methods; each takes its own
    replicates : of the bootstrap; 0 for none
    jobs : processes
    seed : of the bootstrap
    truth : a model to compare with
    progress : whether to show it; by default in a terminal
    """
    known = None if truth is None else LatentModel.load(truth)
    check_method(method)
    if data.is_dir() and data.resolve() == out.resolve():
        raise ValueError(f"{out} holds the data: choose another folder for the results with --out")
    with reserved(out, "fit", file_names(FILES, TABLES, FIGURES), MARKS) as place:
        sums = place.unfinished("moments", [str(data.resolve()), source])
        m = read_moments(data, source, checkpoint=sums, progress=progress)
        chosen = Options.among(method, options | {"penalty": _penalty(options["penalty"])})
        samples, stability = read_samples(data, source), None
        found = fit(m, **chosen, n_jobs=jobs, progress=progress, data=samples)
        if replicates:
            kept = place.unfinished("bootstrap", [moments_hash(m), chosen.to_json(), seed])
            stability = resample(m, replicates, fit=found, rng=seed, n_jobs=jobs, checkpoint=kept, progress=progress)
        told = {"data": str(data), "options": chosen.to_json(), "source": source, "bootstrap": replicates}
        results = Results(found, m, bootstrap=stability, seed=seed)
        with place.replaced() as new:
            files = write_result(new, results, {**told, **place.times()})
    text, said = results.summary, _as_json(results)
    if known is not None:
        scores = compare(known, found)
        text += "\n\nagainst the given model\n" + scores.round(4).to_string()
        said["against_truth"] = to_plain(scores.to_dict())
    return text, {**said, "out": str(out)}, files


def _penalty(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _as_json(results: Results) -> dict[str, Any]:
    found = results.fit
    texts = lb.text_names(found.model.contexts)[1:]
    return to_plain(
        {
            "method": found.method,
            "verdict": results.report["verdict"]["text"],
            "idle": lb.text_names(found.idle),
            "order": list(found.order),
            "targets": dict(zip(texts, (list(v.targets) for v in found.model.interventions.values()), strict=True)),
            "edges": results.edges.drop(columns=["lower", "upper"]).to_dict("records"),
            "loglik": found.loglik,
            "bic": found.bic,
            "converged": bool(found.converged),
        }
    )


def test_result(m: Moments, alpha: float, as_json: bool) -> tuple[str, bool]:
    """Return the membership test as text or JSON, and whether the data fit the model."""
    found = membership_test(m, alpha=alpha)
    if not as_json:
        return str(found), found.in_model
    said = {
        "in_model": bool(found.in_model),
        "verdict": found.verdict,
        "p_value": found.p_value,
        "p_omnibus": found.omnibus.p_value,
        "size": found.size,
        "unexplained": found.omnibus.unexplained,
        "largest_misfit": max(found.omnibus.misfit.values(), default=float("nan")),
        "contexts": found.summary.reset_index().to_dict("records"),
        "drop": [str(c) for c in found.drop],
    }
    return json.dumps(to_plain(said)), found.in_model
