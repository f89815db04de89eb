"""The paper's semi-synthetic experiment: new data from a model that was fitted on data, and the fit of those.

Where the model comes from: :mod:`latentdag.experiments.generative`. Its structural entries are smaller than those of
the synthetic models, so samples go from a million to a hundred million; moments of that many cost no more than of few.
"""

from typing import TYPE_CHECKING, Any

import pandas as pd

from latentdag.experiments.base import Cell, Experiment, Outcome, Row, Settings
from latentdag.experiments.bound import cramer_rao
from latentdag.experiments.draw import panels
from latentdag.experiments.fits import attempt, error_row
from latentdag.experiments.generative import default_model, fitted_model, truncated
from latentdag.experiments.synthetic import BOUND, CURVES, PANELS
from latentdag.model import simulate
from latentdag.model.model import LatentModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (10**6, 5 * 10**6, 10**7, 5 * 10**7, 10**8)

#: Fraction of 50 datasets with all targets right, from the paper's data.
PUBLISHED = (0.26, 0.72, 0.92, 1.0, 1.0)
METHODS = ("projection", "closed-form", "likelihood")


def cells(settings: Settings) -> list[dict[str, Any]]:
    sizes = SIZES[::4] if settings.quick else SIZES
    return [{"n": n, "dataset": s, "seed": settings.seed} for n in sizes for s in range(settings.models)]


def generative_model(settings: Settings) -> LatentModel:
    fitted = default_model(settings.seed, settings.quick) if settings.fit is None else fitted_model(settings.fit)
    return truncated(fitted).rescaled("paper")


def run(cell: Cell, truth: LatentModel) -> list[Row]:
    m = simulate.sample_moments(truth, cell["n"], rng=[cell["seed"], cell["dataset"], cell["n"]])
    size = {"latents": truth.n_latents, "features": truth.n_features, "edges": truth.graph.number_of_edges()}
    rows = []
    for method in METHODS:
        rows.append({**cell, **size, "method": method, **error_row(truth, *attempt(m, method))})
    least = cramer_rao(truth, cell["n"])
    floor = {"unmixing_error": least["unmixing"], "structural_error": least["structural"]}
    fixed = {f"{name}_fixed": value for name, value in floor.items()}
    rows.append({**cell, **size, "method": BOUND, **error_row(truth, None), **floor, **fixed})
    return rows


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    published = dict(zip(SIZES, PUBLISHED, strict=True))
    table = []
    for (method, n), part in rows.groupby(["method", "n"], sort=False):
        line: dict[str, Any] = {"method": method, "n": int(n), "datasets": len(part)}
        line["order correct"] = None if method == BOUND else float(part["order_correct"].astype(float).mean())
        line["published"] = published[int(n)] if method == "projection" else None
        for name, short in (("unmixing_error", "H"), ("structural_error", "B")):
            values = part[name].astype(float)
            line |= {f"{short} median": float(values.median()), f"{short} mean": float(values.mean())}
        line["failed"] = int((part["failure"] != "").sum())
        table.append(line)
    return Outcome(_findings(rows, table, settings), {"All methods": table})


def _findings(rows: pd.DataFrame, table: list[dict[str, Any]], settings: Settings) -> list[str]:
    first = rows.iloc[0]
    source = "simulated counts" if settings.fit is None else settings.fit.name
    said = [
        f"The generative model, from {source}, has {first['latents']} latents, {first['features']} features and "
        f"{first['edges']} edges after truncation."
    ]
    for n in (rows["n"].min(), rows["n"].max()):
        right = {line["method"]: line["order correct"] for line in table if line["n"] == n}
        said.append(
            f"At n = {n:,} all targets are right in {right['projection']:.0%} (the paper's algorithm), "
            f"{right['closed-form']:.0%} (closed form) and {right['likelihood']:.0%} (likelihood) of the datasets."
        )
    return said


def draw(rows: pd.DataFrame, settings: Settings) -> "dict[str, Figure]":
    curves = {name: CURVES[name] for name in (*METHODS, BOUND)}
    marks = {"order_correct": [*zip(SIZES, PUBLISHED, strict=True)]} if settings.fit is None else {}
    return {
        f"semisynthetic-{centre}": panels(
            rows,
            {**PANELS, "order_correct": "all targets right (fraction of datasets, ± 2 s.e.)"},
            curves,
            x=("n", "samples per context"),
            fractions=("order_correct",),
            centre=centre,
            marks=marks,
            marked="published, of another model",
            title=("medians and quartiles" if centre == "median" else "means") + f" of {settings.models} datasets",
        )
        for centre in ("median", "mean")
    }


EXPERIMENT = Experiment(
    name="semisynthetic",
    title="Semi-synthetic data",
    question=(
        "New data from a model that was fitted on data: by default the paper's algorithm on simulated counts of the "
        "paper's size (10 contexts, 100 genes, 1,000 cells each, log-normalised), with `--fit` any saved fit. "
        "Structural entries up to 0.04 are cut. The published fractions (stars) are for the paper's own data, so they "
        "are for orientation only: the model behind them is another one."
    ),
    models=50,
    quick_models=3,
    cells=cells,
    run=run,
    summarize=summarize,
    draw=draw,
    chunk=4,
    shared=generative_model,
    unit="dataset",
)
