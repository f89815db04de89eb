"""Predictions against what was held out: feature by feature, and context by context."""

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from latentdag.data.moments import Moments
from latentdag.pl.canvas import LINE, NEGATIVE, NEUTRAL, POSITIVE, axes, bare_rows, name_ticks, name_width, short
from latentdag.uncertainty.held_out import same_features
from latentdag.uncertainty.prediction import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    _line_and_words(ax, seen, said, quantity)
    worst = np.argsort(-np.abs(said - seen) / np.where(error > 0, error, 1.0))[:n_names]
    _name_points(ax, seen, said, [j for j in worst if apart[j]], list(model.feature_names))
    ax.set_title(title or short(m.contexts[k], 40), fontsize=10, parse_math=False)
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
    ax = axes(ax, 4.4 + name_width(names, 8), 1.3 + LINE * 1.2 * max(len(names), 2))
    best = np.where(np.isfinite(gains["saturated"]), gains["saturated"], np.nan)
    at = np.arange(len(names))
    ax.hlines(at, 0, best, color="#dddddd", linewidth=5, label="the samples' own law", zorder=1)
    ax.plot(gains["additive"], at, "o", markersize=5, markerfacecolor="white", color=NEUTRAL, label="sum of shifts")
    wins = gains["model"] >= np.nan_to_num(gains["additive"], nan=-np.inf)
    for chosen, colour, word in ((wins, POSITIVE, "model"), (~wins, NEGATIVE, "model, behind the sum")):
        if chosen.any():
            ax.plot(gains["model"][chosen], at[chosen], "o", markersize=4.5, color=colour, label=word, zorder=3)
    name_ticks(ax, names, along="y")
    bare_rows(ax, len(names), 0.0)
    ax.set_xlabel("log-likelihood per sample\nabove that of the control's law (nats)", fontsize=9)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, fontsize=8, frameon=False)
    if title:
        ax.set_title(title, fontsize=10, pad=40)
    return ax


def _only_unknown(m: Moments, known: tuple[Hashable, ...]) -> Hashable:
    new = [context for context in m.contexts if context not in known]
    if len(new) != 1:
        raise ValueError(f"say which context was predicted: context=…, one of {list(m.contexts)}")
    return new[0]


def _line_and_words(ax: "Axes", seen: np.ndarray, said: np.ndarray, quantity: str) -> None:
    low, high = min(seen.min(), said.min()), max(seen.max(), said.max())
    room = 0.06 * (high - low) or 1.0
    ends = (low - room, high + room)
    ax.plot(ends, ends, color="#999999", linewidth=0.8, zorder=0)
    ax.set_xlim(ends)
    ax.set_ylim(ends)
    ax.set_aspect("equal", adjustable="box")
    ax.locator_params(nbins=5)
    unit = "s.d." if quantity == "mean" else "control's variance"
    ax.set_xlabel(f"observed change of the {quantity} ({unit})")
    ax.set_ylabel(f"predicted change ({unit})")
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
