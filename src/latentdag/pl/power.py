"""The power of every edge against the cells of a screen."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.design import power_curve as powers_of
from latentdag.pl.canvas import NEUTRAL, POSITIVE, axes, fit_in, name_width, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Edges that are named; more names would cover each other.
MOST_NAMED = 12

#: Share of the axis that a name needs for itself.
APART = 0.055


def power_curve(
    source: Any, ax: "Axes | None" = None, *, key: str = "latentdag", title: str | None = None, **options: Any
) -> "Axes":
    """Draw how likely a screen is to find each edge, against its cells, and to get the order right.

    Parameters
    ----------
    source : Fit, LatentModel, fitted LatentDAG, AnnData, or what :func:`latentdag.design.power_curve` returned
    ax : matplotlib axes, optional
    key : str
        For AnnData: the ``key_added`` of :func:`latentdag.tl.latentdag`.
    title : optional
    **options
        totals, alpha, shares, searched: see :func:`latentdag.design.power_curve`.
    """
    table = source if isinstance(source, pd.DataFrame) else powers_of(fit_in(source, key), **options)
    edges = list(table.groupby(["source", "target"], sort=False))
    names = [f"{short(a)} → {short(b)}" for (a, b), _ in edges] + ["order right"]
    ax = axes(ax, 4.2 + name_width(names, 8), 3.2)
    ends = []
    for name, (_, mine) in zip(names, edges, strict=False):
        ax.plot(mine["cells"], mine["power"], color=POSITIVE, linewidth=1.1, alpha=0.8)
        ends.append((mine["power"].to_numpy(), name, POSITIVE))
    order = table.drop_duplicates("cells")
    if order["p_order"].notna().any():
        ax.plot(order["cells"], order["p_order"], color=NEUTRAL, linewidth=1.4, linestyle="--")
        ends.append((order["p_order"].to_numpy(), names[-1], NEUTRAL))
    cells = order["cells"].to_numpy()
    ax.set_xscale("log")
    ax.set_ylim(-0.02, 1.03)
    ax.set_xlabel("cells, all contexts together", fontsize=9)
    ax.set_ylabel("probability", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    if len(ends) <= MOST_NAMED:
        _name(ax, ends, cells)
    ax.set_title(title or "an edge is found, a line each" + (" (dashed: the order is right)" if len(ends) > MOST_NAMED else ""), fontsize=10)
    return ax


def _name(ax: "Axes", ends: list[tuple[np.ndarray, str, str]], cells: np.ndarray) -> None:
    """Write names beside the right end, those of the curves that rise late below, none over another.

    Curves that all end at one are told apart by where they rise.
    """
    ends = sorted(ends, key=lambda end: -float(end[0].sum()))
    place = 1.0 + APART
    for curve, name, colour in ends:
        place = min(place - APART, float(curve[-1]))
        ax.annotate(
            name, (cells[-1], curve[-1]), (1.06, place), xycoords="data", textcoords=("axes fraction", "data"),
            fontsize=8, color=colour, va="center", parse_math=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6},
        )  # fmt: skip
