"""What was estimated, and how well: edges as a forest plot, predictions and scores of held-out data, power."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from latentdag.data.moments import Moments
from latentdag.design import power_curve as powers_of
from latentdag.inference.stability import Bootstrap
from latentdag.optional import optional
from latentdag.pl.canvas import NEGATIVE, NEUTRAL, POSITIVE, arrow, axes, drawn, labelled, legend_beside, rows, short
from latentdag.uncertainty.held_out import same_features
from latentdag.uncertainty.prediction import Prediction
from latentdag.uncertainty.strength import Sensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Edges whose power is named, those found first on top; of more, colours would say nothing.
MOST_NAMED = 12


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
        _, fit = drawn(source, key)
        if fit is None:
            raise TypeError("a LatentModel has no uncertainty: pass the Fit, or a Bootstrap")
        every = _of_fit(fit.edges(level=level, data=data) if table is None else table, level)
    every["name"] = [arrow(*pair) for pair in zip(every["source"], every["target"], strict=True)]
    every["colour"] = np.where(every["weight"] > 0, POSITIVE, NEGATIVE)
    if np.isfinite(every["lower"]).any():
        words = f"effect in s.d., {100 * level:g} % interval\nfilled: significant"
    else:
        words = "effect in s.d.\n(this method has no intervals)"
    ax = forest(ax, every.iloc[:n], "weight", 0.0)
    cut = f"{n} of {len(every)} edges, the surest" if len(every.iloc[:n]) < len(every) else None
    labelled(ax, words, title="\n".join(text for text in (title, cut) if text))
    return ax


def forest(ax: "Axes | None", table: pd.DataFrame, value: str, origin: float) -> "Axes":
    """Draw one row per line of a table, the first on top: a point with its interval, and a line where nothing happens.

    Parameters
    ----------
    ax : matplotlib axes, optional
    table : DataFrame
        With the column ``value``, the ends of its interval ``lower`` and ``upper``, ``sure`` (points that are filled),
        ``colour`` and ``name``.
    value : name of a column
    origin : where nothing happens
    """
    ax = rows(ax, list(table["name"]), origin, 3.7)
    columns = (table[name] for name in (value, "lower", "upper", "sure", "colour"))
    for row, (at, low, high, sure, colour) in enumerate(zip(*columns, strict=True)):
        if np.isfinite([low, high]).all():
            ax.plot([low, high], [row, row], color=colour, linewidth=1.2, solid_capstyle="butt")
        ax.plot(at, row, "o", color=colour, markersize=4, markerfacecolor=colour if sure else "white")
    return ax


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


def predicted(
    prediction: Prediction,
    m: Moments,
    context: Hashable | None = None,
    ax: "Axes | None" = None,
    *,
    quantity: str = "mean",
    n_names: int = 5,
    title: str | None = None,
) -> "Axes":
    """Draw the predicted against the observed change of every feature, in units of its deviation in the control.

    Vertical bars are the prediction's intervals, horizontal ones the sampling error of what was observed, at the same
    level. Points are blue where the two agree within their errors, orange where they do not; the worst have names.

    Parameters
    ----------
    prediction : Prediction
        Of :meth:`latentdag.Fit.predict`.
    m : Moments
        With the context that was held out.
    context : label, optional
        Which one; needless where there is only one that the fit does not know.
    ax : matplotlib axes, optional
    quantity : "mean" or "variance"
    n_names : int
        Features to name.
    title : optional
    """
    if quantity not in ("mean", "variance"):
        raise ValueError(f"quantity must be 'mean' or 'variance', got {quantity!r}")
    model = prediction.law.model
    m = same_features(m, model.feature_names, "held-out moments")
    k = m.index(_only_unknown(m, model.contexts) if context is None else context)
    z = stats.norm.ppf(0.5 + prediction.level / 2)
    control = np.diagonal(model.covariance())
    sd = np.sqrt(np.where(control > 0, control, 1.0))
    n, variance = int(m.counts[k]), np.diagonal(m.covariances[k])
    if quantity == "mean":
        seen, said, unit = m.means[k] - model.offset, prediction.mean - model.offset, sd
        seen_error, said_error = np.sqrt(variance / n), prediction.mean_std_error
    else:
        seen, said, unit = variance - control, np.diagonal(prediction.covariance) - control, sd**2
        seen_error, said_error = variance * np.sqrt(2 / max(n - 1, 1)), prediction.variance_std_error
    seen, said, seen_error, said_error = (value / unit for value in (seen, said, seen_error, said_error))
    ax = axes(ax, 4.6, 4.6)
    error = np.hypot(seen_error, np.where(np.isfinite(said_error), said_error, 0.0))
    apart = np.abs(said - seen) > z * error
    for chosen, colour in ((~apart, POSITIVE), (apart, NEGATIVE)):
        ax.errorbar(
            seen[chosen], said[chosen],
            xerr=z * seen_error[chosen],
            yerr=z * said_error[chosen] if np.isfinite(said_error).all() else None,
            fmt="o", markersize=3.5, color=colour, elinewidth=0.6, alpha=0.8,
        )  # fmt: skip
    _line_of_agreement(ax, seen, said)
    unit_name = "s.d." if quantity == "mean" else "control's variance"
    words = f"observed change of the {quantity} ({unit_name})", f"predicted change ({unit_name})"
    labelled(ax, *words, title or short(m.contexts[k], 40))
    worst = np.argsort(-np.abs(said - seen) / np.where(error > 0, error, 1.0))[:n_names]
    _name_points(ax, seen, said, [j for j in worst if apart[j]], list(model.feature_names))
    return ax


def sensitivity(
    found: Sensitivity, ax: "Axes | None" = None, *, n: int | None = 12, title: str | None = None
) -> "Axes":
    """Draw the weights of edges against the strength of interventions, with bands.

    A full line where the weight keeps its sign for all strengths from there to 1, a dotted one below.

    Parameters
    ----------
    found : Sensitivity
        Of :meth:`latentdag.Fit.sensitivity`. The curves have one strength for all latents; its table, and where a line
        is full, allow each its own.
    ax : matplotlib axes, optional
    n : int or None
        Draw at most this many edges, those with the most fragile first; None draws all.
    title : optional
    """
    table = found.table[found.table["reading"].str.startswith("direct")]
    shown = table.sort_values("breakdown", ascending=False, kind="stable").iloc[:n]
    ax = axes(ax, 6.0, 3.6)
    z = stats.norm.ppf(0.5 + found.level / 2)
    for number, row in enumerate(shown.itertuples()):
        line = found.curves[(found.curves["source"] == row.source) & (found.curves["target"] == row.target)]
        s, weight, error = (line[name].to_numpy() for name in ("strength", "weight", "std_error"))
        safe, colour = s >= row.breakdown, f"C{number % 10}"
        name = arrow(row.source, row.target)
        ax.fill_between(s, weight - z * error, weight + z * error, color=colour, alpha=0.12, linewidth=0)
        ax.plot(np.where(safe, s, np.nan), weight, color=colour, label=name)
        ax.plot(s, weight, color=colour, linewidth=1.0, linestyle=":")
    ax.axhline(0.0, color="#999999", linewidth=0.8, zorder=0)
    words = "strength of the interventions (1: cut off from all parents)", f"weight, {100 * found.level:g} % band"
    labelled(ax, *words, title)
    if len(shown):
        legend_beside(ax)
    return ax


def scores(table: pd.DataFrame, ax: "Axes | None" = None, *, title: str | None = None) -> "Axes":
    """Draw how much better than "nothing happened" each held-out context is predicted, in nats per sample.

    The law that fits the held-out samples themselves best is a bar: no prediction can pass its end, and with few
    samples in many dimensions none comes near. The sum of single shifts is a ring, the model a point: blue where it
    beats that sum, orange where it does not.

    Parameters
    ----------
    table : DataFrame
        Of :func:`latentdag.uncertainty.held_out.score`.
    ax : matplotlib axes, optional
    title : optional
    """
    names = [str(context) for context in table.index]
    gains = {name: (table[name] - table["control"]).to_numpy() for name in ("model", "additive", "saturated")}
    ax = rows(ax, names, 0.0, 4.4)
    best = np.where(np.isfinite(gains["saturated"]), gains["saturated"], np.nan)
    at = np.arange(len(names))
    ax.hlines(at, 0, best, color="#dddddd", linewidth=5, label="the samples' own law", zorder=1)
    ax.plot(gains["additive"], at, "o", markersize=5, markerfacecolor="white", color=NEUTRAL, label="sum of shifts")
    wins = gains["model"] >= np.nan_to_num(gains["additive"], nan=-np.inf)
    for chosen, colour, word in ((wins, POSITIVE, "model"), (~wins, NEGATIVE, "model, behind the sum")):
        if chosen.any():
            ax.plot(gains["model"][chosen], at[chosen], "o", markersize=4.5, color=colour, label=word, zorder=3)
    labelled(ax, "log-likelihood per sample\nabove that of the control's law (nats)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, fontsize=8, frameon=False)
    if title:
        ax.set_title(title, fontsize=10, pad=40)
    return ax


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
    ax = axes(ax, 6.0, 3.2)
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


def _only_unknown(m: Moments, known: tuple[Hashable, ...]) -> Hashable:
    new = [context for context in m.contexts if context not in known]
    if len(new) != 1:
        raise ValueError(f"say which context was predicted: context=…, one of {list(m.contexts)}")
    return new[0]


def _line_of_agreement(ax: "Axes", seen: np.ndarray, said: np.ndarray) -> None:
    low, high = min(seen.min(), said.min()), max(seen.max(), said.max())
    room = 0.06 * (high - low) or 1.0
    ends = (low - room, high + room)
    ax.plot(ends, ends, color="#999999", linewidth=0.8, zorder=0)
    ax.set(xlim=ends, ylim=ends)
    ax.set_aspect("equal", adjustable="box")
    ax.locator_params(nbins=5)
    if len(seen) > 2 and seen.std() > 0 and said.std() > 0:
        r = np.corrcoef(seen, said)[0, 1]
        ax.text(0.03, 0.97, f"correlation {r:.3f}\n{len(seen)} features", transform=ax.transAxes, va="top", fontsize=8)


def _name_points(ax: "Axes", x: np.ndarray, y: np.ndarray, chosen: list[int], names: list[str]) -> None:
    middle = float(np.mean(ax.get_xlim()))
    for j in chosen:
        right = x[j] < middle  # away from the nearer border
        ax.annotate(
            short(names[j]), (x[j], y[j]), xytext=(5 if right else -5, 3), textcoords="offset points", fontsize=7,
            ha="left" if right else "right", parse_math=False,
        )  # fmt: skip
