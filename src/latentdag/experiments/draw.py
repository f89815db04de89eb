"""Figures of experiments: curves with bands against a logarithmic axis, one panel per measure.

Figures are made without pyplot, so that nothing global changes and nothing needs closing.
"""

import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.data.store import packaged
from latentdag.optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Figures by name.
Figures = dict[str, "Figure"]

#: What figures and pages show in the same words every time, by experiment.
WORDS: dict[str, dict[str, Any]] = tomllib.loads(packaged("experiments/words.toml"))

#: How each method is drawn: its label and what matplotlib calls the look of a line, where it is not :data:`LINE`.
Curves = Mapping[str, Mapping[str, Any]]

LINE = {"marker": "o", "ls": "-", "ms": 5, "lw": 1.5}

#: The measure that is yes or no.
FRACTION = "order_correct"


def figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches."""
    optional("matplotlib", "plot", "a figure")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panels(
    rows: pd.DataFrame,
    measures: Mapping[str, str],
    curves: Curves,
    *,
    centre: str = "median",
    marks: Mapping[str, Mapping[int, float]] | None = None,
    marked: str = "published",
    title: str = "",
) -> "Figure":
    """Draw accuracy against the number of samples: one panel per measure, one curve per method.

    Parameters
    ----------
    rows : DataFrame
        With columns ``method`` and ``n``, and one per measure. ``order_correct`` is yes or no: its mean is drawn with a
        band of two standard errors.
    measures : mapping of column to axis label
    curves : mapping of method to how it is drawn
    centre : "median" (with a band from quartile to quartile) or "mean"
    marks : points to show beside the curves, as y by x by column
    marked : what they are
    title : str
    """
    made = figure(4.2 * len(measures), 4.0)
    axes = made.subplots(1, len(measures), squeeze=False)[0]
    for ax, (column, label) in zip(axes, measures.items(), strict=True):
        for method, curve in curves.items():
            part = rows[rows["method"] == method].dropna(subset=[column])
            if len(part):
                _curve(ax, part, column, curve, "fraction" if column == FRACTION else centre)
        for i, point in enumerate((marks or {}).get(column, {}).items()):
            ax.plot(*point, marker="*", ms=11, mfc="none", mec="black", ls="none", label="" if i else marked)
        ax.set(xscale="log", xlabel="samples per context", title=label)
        number_ticks(ax, sorted(rows["n"].unique()))
        if column == FRACTION:
            ax.set_ylim(-0.03, 1.03)
        else:
            ax.set_yscale("log")
        tidy(ax)
    share_legend(made, axes)
    made.suptitle(title, fontsize=11)
    return made


def _curve(ax: "Axes", part: pd.DataFrame, column: str, look: Mapping[str, Any], kind: str) -> None:
    groups = part[column].astype(float).groupby(part["n"])
    middle = groups.median() if kind == "median" else groups.mean()
    ax.plot(middle.index, middle, **{**LINE, **look})
    if "ls" in look or kind == "mean":
        return  # dashed is a reference, whose band would hide those of the methods; a mean of few large errors has none
    low, high = groups.quantile(0.25), groups.quantile(0.75)
    if kind == "fraction":
        error = 2 * np.sqrt(middle * (1 - middle) / groups.count())
        low, high = (middle - error).clip(lower=0), (middle + error).clip(upper=1)
    ax.fill_between(middle.index, low, high, color=look["color"], alpha=0.12, lw=0)


def number_ticks(ax: "Axes", values: Sequence[float], fontsize: float | None = 8) -> None:
    """Set ticks of a logarithmic x axis at the values that were run, and nowhere else; 2500 is written 2.5k."""
    from matplotlib.ticker import EngFormatter

    short = EngFormatter(sep="")
    ax.set_xticks(values, [short(value) for value in values], fontsize=fontsize)
    ax.minorticks_off()


def tidy(ax: "Axes") -> None:
    """Give a panel the look that all panels share."""
    ax.grid(True, which="major", color="#e2e2e2", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.title.set_fontsize(10)


def share_legend(made: "Figure", axes: Sequence["Axes"], columns: int = 6) -> None:
    """Draw one legend for all panels, below them."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(found), columns), "frameon": False}
    made.legend(found.values(), found.keys(), **place)
