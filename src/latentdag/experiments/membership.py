"""Can a test tell data of the model from data in which every context has two targets (the paper's appendix)?

Models with one target per context against models with two, d = 5 and p = 10, as in the paper's appendix. Scores are
those of a model's worst context. The published curve took the rate of false positives over all runs, those of the class
included; both ways are shown. “Rank and omnibus tests together” also asks whether one model fits all contexts at once.

The paper thresholds ρ₂ of every context. Beside it are the calibrated rank test, its version for any noise, and the
whole membership test. The hypothesis is about all contexts, so the worst of them decides.

There are two ways to draw the curve. Right: true positives among models of the class, false positives among the others.
As published: false positives over all runs. That pulls every curve towards the diagonal, ``(FPR + TPR) / 2`` instead of
``FPR``, and hides how good or bad a test is.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.integrate import trapezoid

from latentdag.data.moments import Moments
from latentdag.experiments.base import CONVENTIONS, Cell, Experiment, Outcome, Row, Settings, Table
from latentdag.experiments.draw import WORDS, Figures, figure, share_legend, tidy
from latentdag.experiments.fits import attempt
from latentdag.inference.omnibus import omnibus_test
from latentdag.inference.ranks import rank_test
from latentdag.model import simulate

SIZES = (500, 2_500)

#: The thresholds of the published curve.
PUBLISHED_THRESHOLDS = np.linspace(0.97, 0.999, 20)

#: Scores by column: the higher, the more like the model.
SCORES = WORDS["membership"]["curves"]
DECISIONS = {"rank": "rank_keeps", "rank, any noise": "robust_keeps", "both": "membership_keeps"}
LEVEL = 0.05


def cells(settings: Settings) -> list[dict[str, Any]]:
    return settings.grid(convention=CONVENTIONS, n=SIZES[-1:] if settings.quick else SIZES, targets=(1, 2))


def run(cell: Cell, shared: None) -> list[Row]:
    """Compute all scores of one model, as logarithms of p-values (those of rejected models would underflow)."""
    rng = np.random.default_rng([cell["seed"], cell["model"], cell["targets"]])
    truth = simulate.random_model(convention=cell["convention"], n_targets=cell["targets"], rng=rng)
    X, contexts = simulate.sample(truth, cell["n"], rng)
    m = Moments.from_samples(X, contexts, control=truth.control)
    table = rank_test(m, data=(X, contexts))
    gaussian = stats.chi2.logsf(table["statistic"], table["dof"]).min()
    robust = stats.chi2.logsf(table["robust_statistic"], table["robust_dof"]).min()
    found, failure = attempt(m, "likelihood")
    test = None if found is None else omnibus_test(found, m)
    omnibus = -np.inf if test is None else stats.chi2.logsf(test.statistic, test.dof)
    # Bonferroni: over contexts for the rank tests, and over the two kinds of test
    ranks, ranks_robust = gaussian + np.log(len(table)), robust + np.log(len(table))
    both = min(ranks, omnibus) + np.log(2)
    scores = {"rank": gaussian, "rank_robust": robust, "omnibus": omnibus, "membership": both}
    decisions = zip(DECISIONS.values(), (ranks, ranks_robust, both), strict=True)
    kept = {name: bool(log_p > np.log(LEVEL)) for name, log_p in decisions}
    scores = {name: float(value) for name, value in {"rho": table["rho"].min(), **scores}.items()}
    return [{**cell, **scores, **kept, "failure": failure}]


def roc(inside: np.ndarray, outside: np.ndarray, pooling: str = "right") -> tuple[np.ndarray, np.ndarray]:
    """Return false and true positive rates as the threshold falls; "as published", the first is over all models.

    Examples
    --------
    >>> roc(np.array([2.0, 3.0]), np.array([0.0, 1.0]))[0].tolist()
    [0.0, 0.0, 0.0, 0.5, 1.0]
    >>> roc(np.array([2.0, 3.0]), np.array([0.0, 1.0]), "as published")[0].tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    negatives = outside if pooling == "right" else np.concatenate([inside, outside])
    false = [0.0, *((negatives >= t).mean() for t in thresholds)]
    true = [0.0, *((inside >= t).mean() for t in thresholds)]
    return np.array(false), np.array(true)


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    areas: Table = []
    decisions: Table = []
    for (convention, n), part in rows.groupby(["convention", "n"], sort=False):
        key = {"convention": convention, "n": n}
        inside, outside = (part[part["targets"] == k] for k in (1, 2))
        for score, curve in SCORES.items():
            line = {**key, "test": curve["label"]}
            for pooling in ("right", "as published"):
                false, true = roc(inside[score].to_numpy(), outside[score].to_numpy(), pooling)
                line[f"AUC, {pooling}"] = trapezoid(true, false)
            areas.append(line)
        for name, column in DECISIONS.items():
            kept = {"one target: kept": inside[column].mean(), "two targets: rejected": 1 - outside[column].mean()}
            decisions.append({**key, "test at 5 %": name, **kept})
    return Outcome(_findings(areas), {"Area under the curve": areas, "Decisions": decisions})


def _findings(areas: Table) -> list[str]:
    largest = max(line["n"] for line in areas)
    value = {(line["convention"], line["test"]): line for line in areas if line["n"] == largest}
    said = []
    for convention in CONVENTIONS:
        rho, tests = (value[convention, SCORES[score]["label"]] for score in ("rho", "membership"))
        said.append(WORDS["membership"]["area"].format(n=largest, convention=convention, rho=rho, tests=tests))
    return said


def draw(rows: pd.DataFrame, settings: Settings) -> Figures:
    """Draw one curve per test, one panel per convention and n; the published pooling dotted."""
    sizes = sorted(rows["n"].unique())
    made = figure(4.0 * len(CONVENTIONS), 3.8 * len(sizes) + 0.6)
    axes = made.subplots(len(sizes), len(CONVENTIONS), squeeze=False)
    for ax, (n, convention) in zip(axes.flat, [(n, c) for n in sizes for c in CONVENTIONS], strict=True):
        part = rows[(rows["n"] == n) & (rows["convention"] == convention)]
        ax.set(title=f"convention of the {convention}, n = {n:,}", aspect="equal")
        ax.set(xlabel="two-target models accepted", ylabel="one-target models accepted")
        _panel(ax, part)
    share_legend(made, list(axes.flat), columns=2)
    return {"roc": made}


def _panel(ax: Any, part: pd.DataFrame) -> None:
    ax.plot([0, 1], [0, 1], color="#cccccc", lw=1)
    inside, outside = (part[part["targets"] == k] for k in (1, 2))
    for (score, curve), width in zip(SCORES.items(), (1.7, 2.5, 1.5, 6.0), strict=True):
        # good tests share one corner: wide ones lie below narrow ones, so that all of them show
        false, true = roc(inside[score].to_numpy(), outside[score].to_numpy())
        ax.plot(false, true, lw=width, zorder=3 - width / 10, alpha=0.4 if width > 5 else 1.0, **curve)
    # the published curve: ρ₂ at its twenty thresholds, the false-positive rate taken over all runs
    points = [((part["rho"] > t).mean(), (inside["rho"] > t).mean()) for t in PUBLISHED_THRESHOLDS]
    style = {"color": SCORES["rho"]["color"], "marker": ".", "ls": ":", "lw": 1, "ms": 5}
    ax.plot(*np.array(points).T, label="ρ₂, pooled as published (across: all models accepted)", **style)
    tidy(ax)


EXPERIMENT = Experiment.of(__name__, "Membership", models=500, quick_models=10, chunk=10)
