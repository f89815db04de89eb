"""The power of every edge against the cells of a screen."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.design import power_curve as powers_of
from latentdag.optional import optional
from latentdag.pl.canvas import NEUTRAL, arrow, axes, drawn, labelled, legend_beside, name_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Edges that are named, those found first on top; of more, colours would say nothing.
MOST_NAMED = 12


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
    if isinstance(source, pd.DataFrame):
        table = source
    else:
        model, fit = drawn(source, key)
        table = powers_of(fit or model, **options)
    totals = table.drop_duplicates("cells")
    edges = sorted(table.groupby(["source", "target"]), key=lambda edge: -edge[1]["power"].sum())
    names = [arrow(*pair) for pair, _ in edges]
    ax = axes(ax, 4.2 + name_width(names, 8), 3.2)
    colours = optional("matplotlib", "plot", "a figure").colormaps["viridis"](np.linspace(0.0, 0.85, len(names)))
    for name, colour, (_, mine) in zip(names, colours, edges, strict=True):
        ax.plot(mine["cells"], mine["power"], color=colour, linewidth=1.2, label=name)
    if totals["p_order"].notna().any():
        ax.plot(totals["cells"], totals["p_order"], color=NEUTRAL, linewidth=1.4, linestyle="--", label="order right")
    ax.set(xscale="log", ylim=(-0.02, 1.03))
    labelled(ax, "cells, all contexts together", "probability", title or "will a screen find the edge?")
    if len(names) <= MOST_NAMED:
        legend_beside(ax)
    return ax
