"""The paper's synthetic experiment, on both readings of its numbers, with ours beside it.

500 random models with d = 5 and p = 10, seven sample sizes, the order, H and B_0. The published panels are means over
100 models in the convention "figures"; see :mod:`latentdag.simulate` for what the two conventions are. All methods see
the same draws, and the Cramér–Rao bound of each model says how well any of them could do.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from latentdag.core.search import search
from latentdag.data.moments import Moments
from latentdag.experiments.base import Cell, Experiment, Outcome, Row, Settings
from latentdag.experiments.bound import cramer_rao
from latentdag.experiments.draw import Curve, panels
from latentdag.experiments.fits import attempt, error_row
from latentdag.methods.assembly import finish
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.options import DEFAULT
from latentdag.methods.result import Fit
from latentdag.methods.starts import given_start
from latentdag.model import simulate
from latentdag.model.model import LatentModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONVENTIONS = ("figures", "text")
SIZES = (2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000)
QUICK_SIZES = (2_500, 25_000)

#: The published panels: means over 100 models, convention "figures", by sample size.
PUBLISHED = {
    "order_correct": (0.53, 0.56, 0.77, 0.84, 0.92, 0.98, 0.98),
    "unmixing_error": (2.96, 2.34, 1.40, 0.86, 0.55, 0.22, 0.098),
    "structural_error": (4.63, 3.64, 2.24, 1.35, 0.90, 0.36, 0.165),
}
PUBLISHED_MODELS = 100

FROM_TRUTH, BOUND = "likelihood from the truth", "Cramér–Rao bound"
METHODS = ("projection", "closed-form", "likelihood", FROM_TRUTH, BOUND)

CURVES = {
    "projection": Curve("the paper's algorithm", "#c05621", "o"),
    "closed-form": Curve("closed form", "#2f855a", "s"),
    "likelihood": Curve("likelihood", "#2b6cb0", "^"),
    FROM_TRUTH: Curve("likelihood, started at the truth", "#1a202c", "x", dashed=True),
    BOUND: Curve("Cramér–Rao bound", "#8a8a8a", "", dashed=True),
}
PANELS = {
    "order_correct": "all targets right (fraction of models, ± 2 s.e.)",
    "unmixing_error": "‖Ĥ − H‖",
    "structural_error": "‖B̂₀ − B₀‖",
}


def cells(settings: Settings) -> list[dict[str, Any]]:
    sizes = QUICK_SIZES if settings.quick else SIZES
    return [
        {"convention": convention, "n": n, "model": s, "seed": settings.seed}
        for convention in CONVENTIONS
        for n in sizes
        for s in range(settings.models)
    ]


def run(cell: Cell, shared: None) -> list[Row]:
    """Every method on one draw; a model is the same at every sample size."""
    truth = simulate.random_model(convention=cell["convention"], rng=[cell["seed"], cell["model"]])
    m = simulate.sample_moments(truth, cell["n"], rng=[cell["seed"], cell["model"], cell["n"]])
    rows = []
    for method in ("projection", "closed-form", "likelihood"):
        rows.append({**cell, "method": method, **error_row(truth, *attempt(m, method))})
    rows.append({**cell, "method": FROM_TRUTH, **error_row(truth, from_the_truth(truth, m))})
    least = cramer_rao(truth, cell["n"])
    floor = {"unmixing_error": least["unmixing"], "structural_error": least["structural"]}
    fixed = {f"{name}_fixed": value for name, value in floor.items()}
    rows.append({**cell, "method": BOUND, **error_row(truth, None), **floor, **fixed})
    return rows


def from_the_truth(truth: LatentModel, m: Moments) -> Fit:
    """The search started at the truth and nowhere else: what is wrong here is the data's fault, not the search's."""
    prepared = prepare(m)
    rules = edge_rules(prepared, 0.5 * float(np.log(prepared.design.N)))
    found = search(prepared.design, [given_start(prepared, truth)], rules)
    if found is None:
        raise ValueError("the likelihood is not finite at the truth")
    return finish(m, prepared, found, DEFAULT, rules.penalty, {})


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    table = []
    for (convention, method, n), part in rows.groupby(["convention", "method", "n"], sort=False):
        line: dict[str, Any] = {"convention": convention, "method": method, "n": int(n), "models": len(part)}
        line["order correct"] = None if method == BOUND else float(part["order_correct"].mean())
        for name, short in (("unmixing_error", "H"), ("structural_error", "B"), ("unmixing_error_fixed", "H, fixed")):
            values = part[name].dropna()
            line |= {f"{short} median": float(values.median()), f"{short} mean": float(values.mean())}
        line["failed"] = int((part["failure"] != "").sum())
        table.append(line)
    compared = against_published(rows)
    return Outcome(_findings(rows, compared), {"Against the published panels": compared, "All methods": table})


def against_published(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The paper's algorithm beside the published means.

    For fractions also how many standard errors lie between, those of the published 100 models included. Distances have
    none: a few models with a wrong order make up most of their mean, and whether a run has any decides its spread.
    """
    made = []
    ours = rows[(rows["convention"] == "figures") & (rows["method"] == "projection")]
    for name, values in PUBLISHED.items():
        for n, published in zip(SIZES, values, strict=True):
            part = ours.loc[ours["n"] == n, name].dropna().astype(float)
            if part.empty:
                continue
            mean, z = float(part.mean()), None
            if name == "order_correct":
                pooled = (mean * len(part) + published * PUBLISHED_MODELS) / (len(part) + PUBLISHED_MODELS)
                error = np.sqrt(pooled * (1 - pooled) * (1 / len(part) + 1 / PUBLISHED_MODELS))
                z = float((mean - published) / error) if error > 0 else 0.0
            made.append({"panel": name, "n": n, "published": published, "mean": mean, "z": z})
    return made


def _findings(rows: pd.DataFrame, compared: list[dict[str, Any]]) -> list[str]:
    z = np.array([line["z"] for line in compared if line["panel"] == "order_correct"])
    p = stats.chi2.sf(np.sum(z**2), len(z))
    said = [
        f"The paper's algorithm, in the convention of the published figures, against the {len(z)} published fractions: "
        f"χ² = {np.sum(z**2):.1f} on {len(z)} degrees of freedom (p = {p:.2g}), the largest difference "
        f"{np.abs(z).max():.1f} standard errors, at n = {compared[int(np.argmax(np.abs(z)))]['n']:,}."
    ]
    smallest = rows["n"].min()
    for convention in CONVENTIONS:
        part = rows[(rows["convention"] == convention) & (rows["n"] == smallest)]
        right = {m: float(part.loc[part["method"] == m, "order_correct"].astype(float).mean()) for m in METHODS[:4]}
        medians = {m: float(part.loc[part["method"] == m, "unmixing_error"].median()) for m in METHODS}
        said.append(
            f"At n = {smallest:,} in the convention of the {convention}, all targets are right in "
            f"{right['projection']:.0%} (the paper's algorithm), {right['closed-form']:.0%} (closed form), "
            f"{right['likelihood']:.0%} (likelihood) and {right[FROM_TRUTH]:.0%} (started at the truth) of the models; "
            f"the median ‖Ĥ − H‖ is {medians['projection']:.2g}, {medians['closed-form']:.2g}, "
            f"{medians['likelihood']:.2g} and {medians[FROM_TRUTH]:.2g}, and the bound {medians[BOUND]:.2g}."
        )
    return said


def draw(rows: pd.DataFrame, settings: Settings) -> "dict[str, Figure]":
    """Per convention three panels with medians and quartiles, and three with means as published."""
    figures = {}
    for convention in CONVENTIONS:
        part = rows[rows["convention"] == convention]
        for centre in ("median", "mean"):
            marks = {}
            if convention == "figures":
                shown = PUBLISHED if centre == "mean" else {"order_correct": PUBLISHED["order_correct"]}
                marks = {name: [*zip(SIZES, values, strict=True)] for name, values in shown.items()}
            figures[f"{convention}-{centre}"] = panels(
                part,
                PANELS,
                CURVES,
                x=("n", "samples per context"),
                fractions=("order_correct",),
                centre=centre,
                marks=marks,
                title=f"convention of the {convention}: "
                + ("medians and quartiles" if centre == "median" else "means")
                + f" of {settings.models} models",
            )
    return figures


EXPERIMENT = Experiment(
    name="synthetic",
    title="Synthetic models",
    question=(
        "Random models with 5 latents and 10 features, as in the paper, at seven sample sizes. The paper's text and "
        "its published panels read the same numbers differently (variances in the text, structural scales in the "
        "figures), so both are run. Every method sees the same draws. “All targets right” and both distances are "
        "the paper's: after the relabelling in S(G) that makes most targets agree, rows scaled by their largest entry. "
        "Columns “fixed” scale by the entry that is largest in the *true* row instead, which does not jump; the "
        "Cramér–Rao bound is for that scaling, as a root mean square. Published values are means of 100 models."
    ),
    models=500,
    quick_models=5,
    cells=cells,
    run=run,
    summarize=summarize,
    draw=draw,
    chunk=4,
)
