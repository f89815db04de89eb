"""What ``latentdag fit`` and ``latentdag test`` do, between reading and writing."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentdag import __version__
from latentdag.cli.files import read_moments
from latentdag.cli.place import Place, reserved
from latentdag.cli.results import FIGURES, FILES, MARKS, TABLES, file_names, write_result
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.inference.bootstrap import bootstrap as resample
from latentdag.inference.membership import membership_test
from latentdag.methods.fitting import fit
from latentdag.methods.options import Options, check_method
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.report.about import moments_hash, versions


@dataclass(frozen=True)
class Said:
    """What a fit tells the terminal, for people and for programs, and which files it wrote."""

    text: str
    as_json: dict[str, Any]
    files: list[str]


@dataclass(frozen=True)
class Job:
    """What ``latentdag fit`` was asked to do.

    Attributes
    ----------
    options : of all methods; each takes its own
    source : how to read the data
    replicates : of the bootstrap
    """

    data: Path
    out: Path
    method: str
    options: dict[str, Any]
    source: dict[str, Any]
    replicates: int
    jobs: int
    seed: int
    truth: Path | None
    progress: bool | None


def run_fit(job: Job) -> Said:
    """Read, fit, resample, compare, write."""
    known = None if job.truth is None else LatentModel.load(job.truth)
    check_method(job.method)
    if job.data.is_dir() and job.data.resolve() == job.out.resolve():
        raise ValueError(f"{job.out} holds the data: choose another folder for the results with --out")
    with reserved(job.out, "fit", file_names(FILES, TABLES, FIGURES), MARKS) as place:
        return _fit_and_write(job, known, place)


def _fit_and_write(job: Job, known: LatentModel | None, place: Place) -> Said:
    began, method, seed = datetime.now(UTC), job.method, job.seed
    kept = unfinished_moments(place, job.data, job.source)
    m = read_moments(job.data, **job.source, checkpoint=kept, progress=job.progress)
    chosen = Options.among(method, job.options | {"penalty": _penalty(job.options["penalty"])})
    found = fit(m, **chosen, n_jobs=job.jobs, progress=job.progress)
    stability = None
    if job.replicates:
        stability = resample(
            m,
            job.replicates,
            fit=found,
            rng=seed,
            n_jobs=job.jobs,
            checkpoint=place.unfinished("bootstrap", [__version__, moments_hash(m), chosen.to_json(), seed]),
            progress=job.progress,
        )
    parameters = {
        "data": str(job.data),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - began).total_seconds(), 1),
        "method": method,
        "options": chosen.to_json(),
        "source": job.source,
        "bootstrap": job.replicates,
        "seed": seed,
        "versions": versions(),
        "moments": moments_hash(m),
    }
    with place.replaced() as new:
        files = write_result(new, found, m, parameters, stability)
    text, compared = found.summary(), {}
    if known is not None:
        from latentdag.model.metrics import compare

        scores = compare(known, found)
        text += "\n\nagainst the given model\n" + scores.round(4).to_string()
        compared = {"against_truth": {str(k): _plain(v) for k, v in scores.items()}}
    return Said(text, {**_as_json(found), **compared, "out": str(job.out)}, files)


def unfinished_moments(place: Place, data: Path, source: dict[str, Any]) -> Path:
    """Where the sums so far are kept: a rerun of the same work goes on."""
    return place.unfinished("moments", [__version__, str(data.resolve()), source])


def _penalty(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _as_json(found: Fit) -> dict[str, Any]:
    texts = lb.text_names(found.model.contexts)[1:]
    return {
        "method": found.method,
        "order": list(found.order),
        "targets": dict(zip(texts, (list(v.targets) for v in found.model.interventions.values()), strict=True)),
        "edges": records(found.edges()),
        "loglik": _plain(found.loglik),
        "bic": _plain(found.bic),
        "converged": bool(found.converged),
    }


def test_result(m: Moments, alpha: float, as_json: bool) -> tuple[str, bool]:
    """The membership test as text or JSON, and whether the data fit the model."""
    found = membership_test(m, alpha=alpha)
    if not as_json:
        return str(found), found.in_model
    said = {
        "in_model": bool(found.in_model),
        "verdict": found.verdict,
        "contexts": records(found.summary.reset_index()),
        "drop": [str(c) for c in found.drop],
    }
    return json.dumps(said), found.in_model


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as plain types; ``null`` for what is not a number."""
    return [{str(k): _plain(v) for k, v in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)
