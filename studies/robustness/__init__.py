"""What happens off the model, since users will be: accuracy, and whether the tests say so.

One assumption broken at a time, d = 5, p = 10, 2,500 samples per context; and on the model, 50 to 5,000 samples. Noise:
latents' noises of other laws. Curved effects: causes act with a quadratic part. Curved mixing: features bend.
Measurement noise: added to every feature, in its standard deviations. Off-target: every context also multiplies the
noise variance of another latent by one plus the level. Weak: an intervention goes only this share of the way.
Unintervened: no context targets a source, or the last effect; there the likelihood is also fitted with
`unintervened="upstream"`. Latents are scored by the contexts that target them. A run is flagged where the membership
test rejects at 5 %.

What breaks is in :mod:`.off_model`. Because latents are scored by their contexts, fits with more
or fewer latents than the truth can be compared too.
"""

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag import Fit, LatentModel, Moments, membership_test, off_targets, simulate
from latentdag.errors import OutlierWarning
from latentdag.experiments import (
    Cell,
    Column,
    Experiment,
    Outcome,
    Row,
    Settings,
    Table,
    attempt,
    failures,
    figure,
    share_legend,
    table_by,
    tidy,
)
from latentdag.experiments.base import CONVENTIONS
from latentdag.experiments.draw import Figures, number_ticks
from latentdag.experiments.fits import METHODS
from studies.means import mean_of
from studies.robustness.off_model import BREAKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 2_500
COUNTS = (50, 100, 200, 500, 1_000, 5_000)
UPSTREAM = "likelihood, upstream"
COLOURS = {"projection": "#c05621", "closed-form": "#2f855a", "likelihood": "#2b6cb0", UPSTREAM: "#1a202c"}
#: Below this fraction of right orders, or this correlation of true and fitted latents, a break counts as harmful.
BAD_ORDER, BAD_LATENTS = 0.8, 0.98

QUICK = (("none", "0"), ("measurement noise", "0.1"), ("off-target", "1"), ("unintervened", "a source"))


def cells(settings: Settings) -> list[dict[str, Any]]:
    every = QUICK if settings.quick else [(name, level) for name, levels in BREAKS.items() for level in levels]
    kinds = [{"break": name, "level": level, "n": SAMPLES} for name, level in every]
    kinds += [{"break": "none", "level": "0", "n": n} for n in (COUNTS[:1] if settings.quick else COUNTS)]
    made = settings.grid(convention=CONVENTIONS[: 1 if settings.quick else 2], kind=kinds)
    return [{"convention": cell["convention"], **cell.pop("kind"), **cell} for cell in made]


def run(cell: Cell, shared: None) -> list[Row]:
    """Run every method on one draw; the verdicts belong to the draw and stand with the likelihood."""
    truth = simulate.random_model(convention=cell["convention"], rng=[cell["seed"], cell["model"]])
    rng = np.random.default_rng([cell["seed"], cell["model"], cell["n"]])
    data = BREAKS[cell["break"]][cell["level"]](truth, cell["n"], rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutlierWarning)  # heavy tails are among what is tried
        m = Moments.from_samples(*data, control=truth.control)
    rows = []
    for method in (*METHODS, *([UPSTREAM] if cell["break"] == "unintervened" else [])):
        options = {"unintervened": "upstream"} if method == UPSTREAM else {}
        found, failure = attempt(m, method.split(",")[0], **options)
        row = {**cell, "method": method, "failure": failure, **scores(truth, found)}
        rows.append(row | (_verdicts(found, m, data) if method == "likelihood" else dict.fromkeys(VERDICTS)))
    return rows


def scores(truth: LatentModel, found: Fit | None) -> Row:
    """Score order, latents and edges of a fit. Latents are matched by their contexts; the others are left out."""
    row: Row = dict.fromkeys(("order_correct", "correlation", "edges_correct", "converged"))
    if found is None:
        return row
    pairs = {name: found.targets[c] for c, name in truth.targets.items() if isinstance(found.targets.get(c), str)}
    position = {name: i for i, name in enumerate(found.order)}
    ancestors = {name: nx.ancestors(truth.graph, name) & set(pairs) for name in pairs}
    right = all(position[pairs[a]] < position[pairs[b]] for b in pairs for a in ancestors[b])
    Sigma, sizes = truth.covariance(), []
    for ours, theirs in pairs.items():
        h, g = truth.unmixing[truth.latents.index(ours)], found.model.unmixing[found.latents.index(theirs)]
        sizes.append(abs(h @ Sigma @ g) / np.sqrt((h @ Sigma @ h) * (g @ Sigma @ g)))
    edges = {(pairs[a], pairs[b]) for a, b in truth.graph.subgraph(pairs).edges}
    return {
        "order_correct": bool(right),
        "correlation": float(np.mean(sizes)),
        "edges_correct": edges == set(found.graph.subgraph(pairs.values()).edges),
        "converged": bool(found.converged),
    }


VERDICTS = ("flagged", "flagged_robust", "rank_rejects", "omnibus_p", "off_targets")


def _verdicts(found: Fit | None, m: Moments, data: Any) -> Row:
    """Run the membership test for Gaussian samples and for any noise, and the test for effects on wrong latents."""
    said: Row = dict.fromkeys(VERDICTS)
    if found is None:
        return said
    test = membership_test(m, fit=found)
    said |= {"flagged": not test.in_model, "rank_rejects": bool(test.drop), "omnibus_p": float(test.omnibus.p_value)}
    said["flagged_robust"] = not membership_test(m, data=data, fit=found).in_model
    with suppress(ValueError):  # too few samples for standard errors
        said["off_targets"] = bool(off_targets(found, m, data=data).table["is_target"].any())
    return said


ACCURACY: dict[str, Column] = {
    "order right": mean_of("order_correct"),
    "edges right": mean_of("edges_correct"),
    "correlation of latents, median": lambda rows: float(rows["correlation"].astype(float).median()),
    "failed": failures,
}
FLAGS: dict[str, Column] = {
    "membership rejects": mean_of("flagged"),
    "the same, any noise": mean_of("flagged_robust"),
    "rank rejects": mean_of("rank_rejects"),
    "off-target effects found": mean_of("off_targets"),
}


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    key = ["convention", "break", "level", "n"]
    accuracy = table_by(rows, [*key, "method"], ACCURACY)
    flags = table_by(rows[rows["method"] == "likelihood"], key, FLAGS)
    return Outcome(_findings(accuracy, flags), {"Do the tests say so": flags, "Accuracy": accuracy})


def _findings(accuracy: Table, flags: Table) -> list[str]:
    """Say per convention how many false alarms there are on the model, and what harms without an alarm."""
    said = []
    for convention in dict.fromkeys(line["convention"] for line in flags):
        here = [line for line in flags if line["convention"] == convention and line["n"] == SAMPLES]
        fits = {
            (line["break"], line["level"]): line
            for line in accuracy
            if line["convention"] == convention and line["method"] == "likelihood" and line["n"] == SAMPLES
        }
        none = next(line for line in here if line["break"] == "none")
        said.append(
            f"Convention of the {convention}: on the model the test for any noise rejects "
            f"{none['the same, any noise']:.0%} at a level of 5 %, and the likelihood's order is right in "
            f"{fits['none', '0']['order right']:.0%}."
        )
        silent = []
        for line in here:
            found = fits[line["break"], line["level"]]
            order, same = found["order right"] or 0.0, found["correlation of latents, median"]
            if (order < BAD_ORDER or same < BAD_LATENTS) and (line["the same, any noise"] or 0.0) < 0.5:
                silent.append(
                    f"{line['break']} {line['level']} (order right in {order:.0%}, latents correlate by {same:.2f}, "
                    f"{line['the same, any noise']:.0%} flagged)"
                )
        said.append(
            f"Convention of the {convention}: the likelihood suffers and the test is mostly silent for "
            + ("; ".join(silent) if silent else "none of the breaks")
            + "."
        )
    return said


def draw(rows: pd.DataFrame, settings: Settings) -> Figures:
    figures = {}
    for convention, part in rows.groupby("convention", sort=False):
        figures[f"breaks-{convention}"] = _draw_breaks(part[part["n"] == SAMPLES], convention)
    figures["counts"] = _draw_counts(rows[rows["break"] == "none"])
    return figures


def _draw_breaks(part: pd.DataFrame, convention: str) -> "Figure":
    """Draw one line per break and level: order, latents, and the share flagged."""
    keys = list(dict.fromkeys(zip(part["break"], part["level"], strict=True)))
    made = figure(10.5, 0.38 * len(keys) + 1.9)
    axes = made.subplots(1, 3, sharey=True)
    for (method, colour), shift in zip(COLOURS.items(), (-0.24, -0.08, 0.08, 0.24), strict=True):
        fits = part[part["method"] == method].set_index(["break", "level"])
        style = {"color": colour, "ms": 5, "ls": "none", "marker": "o", "label": method}
        _dots(axes[0], keys, _grouped(fits["order_correct"]).mean(), shift, style)
        # correlations of 1 up to rounding would have no place on a logarithmic axis
        _dots(axes[1], keys, _grouped(1 - fits["correlation"].astype(float)).median().clip(lower=1e-8), shift, style)
    tested = part[part["method"] == "likelihood"].set_index(["break", "level"])
    for column, label, marker, shift in (
        ("flagged", "membership test, Gaussian", "o", -0.2),
        ("flagged_robust", "membership test, any noise", "D", 0.0),
        ("off_targets", "off-target test", "x", 0.2),
    ):
        style = {"color": "#6b46c1", "ms": 5, "ls": "none", "marker": marker, "label": label}
        _dots(axes[2], keys, _grouped(tested[column]).mean(), shift, style)
    axes[2].axvline(0.05, color="#8a8a8a", ls=":", lw=1)
    labels = [name if name == "none" else f"{name}: {level}" for name, level in keys]
    axes[0].set_yticks(range(len(keys)), labels)
    axes[0].invert_yaxis()
    axes[0].set(title="order right (fraction)", xlim=(-0.03, 1.03))
    axes[1].set(title="1 − correlation of latents (median)", xscale="log")
    axes[2].set(title="flagged (fraction; dotted: 5 %)", xlim=(-0.03, 1.03))
    for ax in axes:
        tidy(ax)
    share_legend(made, list(axes), columns=4)
    made.suptitle(f"One assumption broken at a time, n = {SAMPLES:,}, convention of the {convention}", fontsize=11)
    return made


def _grouped(values: pd.Series) -> Any:
    """Return the known values, grouped by break and level."""
    return values.dropna().astype(float).groupby(level=[0, 1])


def _dots(ax: Any, keys: list[tuple[str, str]], values: pd.Series, shift: float, style: dict[str, Any]) -> None:
    """Draw one dot per line, a little above or below it so that equal values do not hide each other."""
    known = [(values[key], y + shift) for y, key in enumerate(keys) if key in values.index]
    if known:
        ax.plot(*np.array(known).T, **style)


def _draw_counts(part: pd.DataFrame) -> "Figure":
    """Draw accuracy on the model against the number of samples."""
    conventions = list(dict.fromkeys(part["convention"]))
    made = figure(4.6 * len(conventions), 3.8)
    axes = made.subplots(1, len(conventions), squeeze=False)[0]
    for ax, convention in zip(axes, conventions, strict=True):
        here = part[part["convention"] == convention]
        for method in METHODS:
            fits = here[here["method"] == method]
            right = fits["order_correct"].astype(float).fillna(0.0).groupby(fits["n"]).mean()
            ax.plot(right.index, right, "o-", color=COLOURS[method], label=f"{method}: order right")
        tested = here[here["method"] == "likelihood"]
        flagged = tested["flagged_robust"].dropna().astype(float)
        share = flagged.groupby(tested["n"].reindex(flagged.index)).mean()
        ax.plot(share.index, share, "D--", color="#6b46c1", ms=5, label="membership test, any noise: false alarms")
        sizes = sorted(here["n"].unique())
        ax.set(xscale="log", xlabel="samples per context", ylabel="fraction of models", ylim=(-0.03, 1.03))
        number_ticks(ax, sizes, fontsize=None)
        ax.set_title(f"on the model, convention of the {convention}")
        tidy(ax)
    share_legend(made, list(axes), columns=2)
    return made


STUDY = Experiment.of(__name__, "Off the model", models=50, quick_models=3, chunk=4, command="python -m studies")
