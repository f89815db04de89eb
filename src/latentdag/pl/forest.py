"""Edges with their intervals, as a forest plot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.inference.stability import Bootstrap
from latentdag.model.model import LatentModel
from latentdag.pl.canvas import LINE, NEGATIVE, POSITIVE, axes, bare_rows, fit_in, name_width, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def edges(
    source: Any,
    ax: "Axes | None" = None,
    *,
    key: str = "latentdag",
    level: float = 0.95,
    n: int | None = 60,
    data: Any = None,
    title: str | None = None,
    table: pd.DataFrame | None = None,
) -> "Axes":
    """Draw the effects between latents of unit variance, with intervals, the surest first.

    Filled points are significant: the ``q_value`` is at most ``1 − level``, or a bootstrap found the edge in at least
    this share (``level``) of its replicates.

    Parameters
    ----------
    source : Fit, fitted LatentDAG, AnnData, or Bootstrap
        With a fit, intervals are Wald's; the deviations of the latents are taken as known. With a bootstrap they are
        percentiles, of the standardized weights themselves.
    ax : matplotlib axes, optional
    key : str
        For AnnData: the ``key_added`` of :func:`latentdag.tl.latentdag`.
    level : float
    n : int or None
        Draw at most this many edges; None draws all.
    data : (X, contexts), optional
        For a fit: samples, for intervals that hold for any noise.
    title : optional
    table : DataFrame, optional
        For a fit: what :meth:`latentdag.Fit.edges` gave at this level, where it was made before.
    """
    if isinstance(source, Bootstrap):
        every = _of_bootstrap(source, level)
    else:
        found = fit_in(source, key)
        if isinstance(found, LatentModel):
            raise TypeError("a LatentModel has no uncertainty: pass the Fit, or a Bootstrap")
        every = _of_fit(found.edges(level=level, data=data) if table is None else table, level)
    shown = every.iloc[:n]
    names = [
        f"{short(cause)} → {short(effect)}" for cause, effect in zip(shown["source"], shown["target"], strict=True)
    ]
    ax = axes(ax, 3.6 + name_width(names, 8), 1.1 + LINE * max(len(names), 2))
    draw_rows(ax, names, shown.assign(colour=np.where(shown["weight"] > 0, POSITIVE, NEGATIVE)), "weight", origin=0.0)
    if np.isfinite(shown["lower"]).any():
        words = f"effect in s.d., {100 * level:g} % interval\nfilled: significant"
    else:
        words = "effect in s.d.\n(this method has no intervals)"
    left_out = f"{len(names)} of {len(every)} edges, the surest" if len(names) < len(every) else None
    ax.set_xlabel(words, fontsize=9)
    ax.set_title("\n".join(text for text in (title, left_out) if text), fontsize=10)
    return ax


def draw_rows(ax: "Axes", names: Sequence[str], table: pd.DataFrame, value: str, *, origin: float) -> None:
    """Draw one row per name, the first on top: a point with its interval, and a line where nothing happens.

    Parameters
    ----------
    ax : matplotlib axes
    names : one for each row of the table
    table : DataFrame
        With the column ``value``, the ends of its interval ``lower`` and ``upper``, ``sure`` (points that are filled)
        and ``colour``.
    value : name of a column
    origin : where nothing happens
    """
    columns = (table[name] for name in (value, "lower", "upper", "sure", "colour"))
    for row, (at, low, high, sure, colour) in enumerate(zip(*columns, strict=True)):
        if np.isfinite([low, high]).all():
            ax.plot([low, high], [row, row], color=colour, linewidth=1.2, solid_capstyle="butt")
        ax.plot(at, row, "o", color=colour, markersize=4, markerfacecolor=colour if sure else "white")
    ax.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    bare_rows(ax, len(names), origin)


def _of_fit(table: pd.DataFrame, level: float) -> pd.DataFrame:
    # deviations of the latents as known: intervals scale with their weight
    factor = table["standardized_weight"] / table["weight"]
    ends = np.sort(np.array([table["lower"] * factor, table["upper"] * factor]), axis=0)
    made = table[["source", "target"]].assign(weight=table["standardized_weight"], lower=ends[0], upper=ends[1])
    made["sure"] = (table["q_value"] <= 1 - level).to_numpy()
    rank = table["z"].abs() if table["z"].notna().any() else made["weight"].abs()
    return made.iloc[np.argsort(-rank.to_numpy(), kind="stable")]


def _of_bootstrap(bootstrap: Bootstrap, level: float) -> pd.DataFrame:
    table = bootstrap.intervals(level, standardized=True).rename(columns={"low": "lower", "high": "upper"})
    counted = bootstrap.edges.set_index(["source", "target"])["frequency"]
    share = [counted[pair] for pair in zip(table["source"], table["target"], strict=True)]
    table = table.assign(sure=np.array(share) >= level, share=share)
    return table.sort_values("share", ascending=False, kind="stable")
