"""``latentdag moments``, ``test``, ``fit``, ``report``, ``design``: from data to a fit, its page and the next plan."""

from pathlib import Path
from typing import Any

import pandas as pd
import typer

from latentdag import design as plans
from latentdag.cli.files import tell, write_csv
from latentdag.cli.place import reserved
from latentdag.cli.results import fit_folder, read_result, said_of_fit, write_result
from latentdag.cli.source import CHOOSE, listed_names, read_data
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.errors import FileError
from latentdag.inference.bootstrap import bootstrap as resample
from latentdag.inference.membership import membership_test
from latentdag.methods.fitting import fit as fit_moments
from latentdag.methods.options import Options, check_method
from latentdag.methods.result import Fit
from latentdag.model.metrics import compare
from latentdag.model.model import LatentModel
from latentdag.report import Results, moments_hash, write

#: Exit code of ``latentdag test`` where the data speak against the model.
AGAINST = 3

#: What of a plan's ``attrs`` is printed beside the table.
TOLD = ("p_order", "p_graph", "least_power", "least_power_equal", "saved", "counts", "note")

#: Options that say how data are read; ``parameters.json`` has them as "source".
READING = ("context_column", "control", "layer", "adjust", "robust", "counts", "depth", *CHOOSE, "contexts")


def moments(*, data: Path, out: Path, scale: str, progress: bool | None, as_json: bool, **source: Any) -> None:
    """Compute moments in one pass, save them, and say what they are of."""
    if out.suffix != ".npz":
        raise ValueError(f"{out}: moments are written as .npz")
    if scale not in ("linear", "log") or (scale == "log" and not source["counts"]):
        raise ValueError(f"--scale is linear or, of --counts, log; got {scale!r}")
    with reserved(out, "moments", file=True) as place:
        found = read_data(data, source, place=place, progress=progress)[0]
        found = found.log_rates() if scale == "log" else found
        found.save(out)
    names = lb.text_names(found.contexts)
    said = {
        "control": str(found.control),
        "features": found.n_features,
        "counts": dict(zip(names, found.counts, strict=True)),
        **({} if found.outliers is None else {"outliers": dict(zip(names, found.outliers, strict=True))}),
    }
    tell(repr(found), said, as_json, out)


def fit(
    *,
    data: Path,
    out: Path,
    method: str,
    bootstrap: int,
    jobs: int,
    seed: int,
    truth: Path | None,
    progress: bool | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read data, fit them, resample, write the folder of results, compare with the truth.

    What is not named here are the options of all methods, each of which takes its own, and those of reading.
    """
    known = None if truth is None else LatentModel.load(truth)
    check_method(method)
    if data.is_dir() and data.resolve() == out.resolve():
        raise ValueError(f"{out} holds the data: choose another folder for the results with --out")
    source = {name: options.pop(name) for name in READING}
    with fit_folder(out) as place:
        m, samples, options["targets"] = read_data(data, source, options["targets"], place, progress)
        chosen, stability = _chosen(method, options, m), None
        found = fit_moments(m, **chosen, n_jobs=jobs, progress=progress, data=samples)
        if bootstrap:
            kept = place.unfinished("bootstrap", [moments_hash(m), chosen.to_json(), seed])
            stability = resample(m, bootstrap, fit=found, rng=seed, n_jobs=jobs, checkpoint=kept, progress=progress)
        told = {"data": str(data), "options": chosen.to_json(), "source": source, "bootstrap": bootstrap}
        results = Results(found, m, bootstrap=stability, seed=seed)
        with place.replaced() as new:
            files = write_result(new, results, {**told, **place.times()})
    text, said = results.summary, {**said_of_fit(results), "out": str(out)}
    if known is not None:
        scores = compare(known, found)
        text = f"against the given model\n{scores.round(4).to_string()}\n\n{text}"  # the verdict comes last
        said["against_truth"] = scores.to_dict()
    first = f"; start with {out}/report.html" if "report.html" in files else ""
    tell(text, said, as_json, f"{out}/: {', '.join(files)}{first}")


def _chosen(method: str, told: dict[str, Any], m: Moments) -> Options:
    """Return the options of a method as the command line gives them, with the labels of contexts that texts mean."""
    labels = dict(zip(lb.text_names(m.contexts), m.contexts, strict=True))
    parts = [text.rpartition("=") for text in told["strength"] or ()]
    strength = {labels.get(c, c): [_number(end) for end in value.split(":")] for c, _, value in parts}
    read = {"strength": strength or None, "penalty": _number(told["penalty"]), "n_latents": told["n_latents"] or None}
    return Options.among(method, told | read | {name: _edges(name, told[name]) for name in ("required", "forbidden")})


def _edges(option: str, text: str) -> list[tuple[str, str]] | None:
    """Return the edges in a list ``CAUSE:EFFECT,…`` of latents, or None if there are none."""
    pairs = [tuple(part.strip() for part in pair.split(":")) for pair in listed_names(text)]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"--{option} takes CAUSE:EFFECT, names of latents, separated by commas; got {text!r}")
    return [(cause, effect) for cause, effect in pairs] or None


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def check(*, data: Path, alpha: float, progress: bool | None, as_json: bool, **source: Any) -> None:
    """Test whether data fit the model, and end with an exit code that says so."""
    found = membership_test(read_data(data, source, progress=progress)[0], alpha=alpha)
    said = {
        **{name: getattr(found, name) for name in ("in_model", "verdict", "p_value", "size")},
        "p_omnibus": found.omnibus.p_value,
        "unexplained": found.omnibus.unexplained,
        "largest_misfit": max(found.omnibus.misfit.values(), default=float("nan")),
        "contexts": found.summary.reset_index().to_dict("records"),
        "drop": [str(c) for c in found.drop],
    }
    tell(str(found), said, as_json)
    raise typer.Exit(0 if found.in_model else AGAINST)


def report(*, result: Path, out: Path | None, **options: Any) -> None:
    """Write the report of a folder of results once more."""
    found, m, bootstrap, parameters = read_result(result)
    path = write(found, out or result / "report.html", m, bootstrap=bootstrap, seed=parameters.get("seed"), **options)
    typer.echo(f"wrote {path}", err=True)


def design(*, source: Path, out: Path, alpha: float, searched: bool, as_json: bool, **asked: Any) -> None:
    """Answer the one question that is asked, write the table, and say it."""
    questions = {name: value for name, value in asked.items() if value is not None}
    if len(questions) != 1:
        raise ValueError("ask one question: --power CELLS, --needed POWER, --budget CELLS or --next edges")
    fit, ((name, value),) = read_source(source), questions.items()
    if name == "power":
        table = plans.power(fit, value, alpha=alpha, searched=searched)
    elif name == "needed":
        table = plans.samples_needed(fit, value, alpha=alpha, searched=searched)
    elif name == "budget":
        counts = plans.allocate(fit, value, alpha=alpha)
        table = pd.DataFrame({"context": counts.index, "cells": counts.to_numpy()})
        table.attrs = counts.attrs
    else:
        table = plans.next_context(fit, for_=value)
        table["targets"] = [" + ".join(targets) for targets in table["targets"]]
    write_csv(out, table)
    told = {name: table.attrs[name] for name in TOLD if table.attrs.get(name)}
    lines = [f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}" for name, value in told.items()]
    text = "\n".join([table.round(3).to_string(index=False), *lines])
    tell(text, {"table": table.to_dict("records"), **told}, as_json, out)


def read_source(path: Path) -> Fit | LatentModel:
    """Return the fit in a folder that ``latentdag fit`` wrote, or the fit or model in a file."""
    if path.suffix != ".npz":
        return read_result(path)[0]
    try:
        return Fit.load(path)
    except FileError:
        return LatentModel.load(path)
