"""The paper's synthetic experiment, on both readings of its numbers, with ours beside it.

Random models with 5 latents and 10 features, as in the paper, at seven sample sizes. The paper's text and its published
panels read the same numbers differently (variances in the text, structural scales in the figures), so both are run.
Every method sees the same draws. “All targets right” and both distances are the paper's: after the relabelling in S(G)
that makes most targets agree, rows scaled by their largest entry. Columns “fixed” scale by the entry that is largest in
the *true* row instead, which does not jump; the Cramér–Rao bound is for that scaling, as a root mean square. Published
values are means of 100 models.

See :mod:`latentdag.simulate` for the two conventions.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from latentdag.data.moments import Moments
from latentdag.experiments.base import CONVENTIONS, Cell, Column, Experiment, Outcome, Row, Settings, Table, table_by
from latentdag.experiments.draw import WORDS, Figures, panels
from latentdag.experiments.fits import BOUND, error_rows, failures
from latentdag.methods.likelihood import fit_likelihood
from latentdag.methods.result import Fit
from latentdag.model import simulate
from latentdag.model.model import LatentModel

SAID = WORDS["synthetic"]
SIZES = tuple(SAID["sizes"])
QUICK_SIZES = (2_500, 25_000)

#: The published panels: means over 100 models, convention "figures", by sample size.
PUBLISHED = {name: dict(zip(SIZES, values, strict=True)) for name, values in SAID["published"].items()}
PUBLISHED_MODELS = 100

FROM_TRUTH = "likelihood from the truth"
CURVES, PANELS = SAID["curves"], SAID["panels"]
#: What the curves of a figure can be, and how its title says so.
CENTRES = {"median": "medians and quartiles of", "mean": "means of"}


def cells(settings: Settings) -> list[dict[str, Any]]:
    return settings.grid(convention=CONVENTIONS, n=QUICK_SIZES if settings.quick else SIZES)


def run(cell: Cell, shared: None) -> list[Row]:
    """Run every method on one draw; a model is the same at every sample size."""
    truth = simulate.random_model(convention=cell["convention"], rng=[cell["seed"], cell["model"]])
    m = simulate.sample_moments(truth, cell["n"], rng=[cell["seed"], cell["model"], cell["n"]])
    rows = error_rows(truth, m, cell["n"], [(FROM_TRUTH, from_the_truth(truth, m))])
    return [{**cell, **row} for row in rows]


def from_the_truth(truth: LatentModel, m: Moments) -> Fit:
    """Search from the truth and from nowhere else: what is wrong here is the data's fault, not the search's."""
    return fit_likelihood(m, start=truth, only_start=True, progress=False)


def fraction_right(rows: pd.DataFrame) -> float | None:
    """Return the fraction of fits with all targets right; the bound has none."""
    return None if rows["method"].iloc[0] == BOUND else float(rows["order_correct"].astype(float).mean())


def error_columns(measure: str, short: str) -> dict[str, Column]:
    """Return columns of a table with the median and the mean of a measure, and its short name in their titles."""
    return {
        f"{short} median": lambda rows: float(rows[measure].astype(float).median()),
        f"{short} mean": lambda rows: float(rows[measure].astype(float).mean()),
    }


def accuracy(unit: str, **beside: Column) -> dict[str, Column]:
    """Return columns of a table: how many were run, how many are right, what is beside that, and the paper's errors."""
    errors = {**error_columns("unmixing_error", "H"), **error_columns("structural_error", "B")}
    return {unit: len, "order correct": fraction_right, **beside, **errors}


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    columns = {**accuracy("models"), **error_columns("unmixing_error_fixed", "H, fixed"), "failed": failures}
    table = table_by(rows, ["convention", "method", "n"], columns)
    compared = against_published(rows)
    return Outcome(_findings(rows, compared), {"Against the published panels": compared, "All methods": table})


def against_published(rows: pd.DataFrame) -> Table:
    """Compare the paper's algorithm with the published means.

    For fractions also by how many standard errors they differ, those of the published 100 models included. Distances
    have none: a few models with a wrong order make up most of their mean, and whether a run has any decides its spread.
    """
    made = []
    ours = rows[(rows["convention"] == "figures") & (rows["method"] == "projection")]
    for name, values in PUBLISHED.items():
        for n, published in values.items():
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


def _findings(rows: pd.DataFrame, compared: Table) -> list[str]:
    z = np.array([line["z"] for line in compared if line["panel"] == "order_correct"])
    chi2, worst = np.sum(z**2), int(np.abs(z).argmax())
    values = {"fractions": len(z), "chi2": chi2, "largest": abs(z[worst]), "n": compared[worst]["n"]}
    said = [SAID["against"].format(**values, p=stats.chi2.sf(chi2, len(z)))]
    smallest = rows["n"].min()
    for convention in CONVENTIONS:
        fits = rows[(rows["convention"] == convention) & (rows["n"] == smallest)].groupby("method")
        right = {method: fraction_right(part) for method, part in fits}
        medians = fits["unmixing_error"].median()
        said.append(SAID["smallest"].format(n=smallest, convention=convention, right=right, medians=medians))
    return said


def draw(rows: pd.DataFrame, settings: Settings) -> Figures:
    """Draw three panels per convention with medians and quartiles, and three with means as published."""
    figures = {}
    for convention in CONVENTIONS:
        for centre, words in CENTRES.items():
            shown = PUBLISHED if centre == "mean" else {"order_correct": PUBLISHED["order_correct"]}
            figures[f"{convention}-{centre}"] = panels(
                rows[rows["convention"] == convention],
                PANELS,
                CURVES,
                centre=centre,
                marks=shown if convention == "figures" else {},
                title=f"convention of the {convention}: {words} {settings.models} models",
            )
    return figures


EXPERIMENT = Experiment.of(__name__, "Synthetic models", models=500, quick_models=5, chunk=4)
