"""The figures of the workflow: the latent graph with its contexts and survival, and hazard ratios with intervals."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.pl import LINE, NEUTRAL, axes, draw_rows, latent_graph, name_width, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from latentdag.workflow.steps import Workflow

#: The paper marks latents that go with survival in red.
RED, PALE_RED = "#b42318", "#fbdcd8"

#: Hazard ratios that may have a tick.
TICKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5, 3.3, 5.0)


def survival_graph(found: "Workflow", ax: "Axes | None" = None, *, min_weight: float = 0.0) -> "Axes":
    """Draw the latent graph with a box for each context; latents that go with survival are red.

    Parameters
    ----------
    found : Workflow
    ax : matplotlib axes, optional
    min_weight : float
        Leave out edges with a smaller effect, between latents of unit variance (the paper: 0.2).
    """
    marked = found.significant
    word = "red: associated with survival" if marked else "no latent is associated with survival"
    title = f"{word} in {found.cohort}\n(false-discovery rate {found.alpha:g})"
    ax = latent_graph(found.fit, ax, min_weight=min_weight, title=title)
    ax.title.set_fontsize(9)
    nodes = {short(name) for name in marked}
    for text in ax.texts:
        if text.get_text() in nodes:
            box: Any = text.get_bbox_patch()
            box.set(facecolor=PALE_RED, edgecolor=RED, linewidth=1.8)
    return ax


def hazard_forest(
    table: pd.DataFrame, ax: "Axes | None" = None, *, n: int | None = 40, title: str | None = None
) -> "Axes":  # fmt: skip
    """Draw hazard ratios per standard deviation with their intervals, the smallest p-value on top.

    Filled and red where the false-discovery rate is below the table's alpha.

    Parameters
    ----------
    table : DataFrame of :func:`latentdag.workflow.survival.cox_table`
    ax : matplotlib axes, optional
    n : int or None
        At most so many rows; None draws all.
    title : optional
    """
    tested = table[table["p_value"].notna()].sort_values("p_value", kind="stable")
    shown = tested.iloc[:n]
    names = [short(name) for name in shown.index]
    ax = axes(ax, 3.8 + name_width(names, 8), 1.3 + LINE * max(len(names), 3))
    marked = shown["significant"]
    drawn = shown.assign(sure=marked, colour=np.where(marked, RED, NEUTRAL))
    draw_rows(ax, names, drawn, "hazard_ratio", origin=1.0)
    _ratio_axis(ax, shown)
    alpha, level = table.attrs.get("alpha", 0.1), table.attrs.get("level", 0.95)
    ax.set_xlabel(
        f"hazard ratio per s.d., {100 * level:g} % interval\nred: false-discovery rate below {alpha:g}", fontsize=9
    )
    cut = f"the {len(shown)} smallest p-values of {len(tested)}" if len(shown) < len(tested) else None
    ax.set_title("\n".join(text for text in (title, cut) if text), fontsize=10)
    return ax


def _ratio_axis(ax: "Axes", shown: pd.DataFrame) -> None:
    """Set a logarithmic axis with 1 in its middle, so that risk and protection look alike."""
    ends = np.abs(np.log(shown[["lower", "upper"]].to_numpy(dtype=float)))
    reach = 1.08 * float(np.nanmax(ends, initial=0.15))
    ax.set_xscale("log")
    ax.set_xlim(np.exp(-reach), np.exp(reach))
    marks = [tick for tick in TICKS if abs(np.log(tick)) <= reach]
    while len(marks) > 9:
        centre = marks.index(1.0)
        marks = [tick for i, tick in enumerate(marks) if (i - centre) % 2 == 0]
    ax.set_xticks(marks, [f"{tick:g}" for tick in marks], fontsize=8)
    ax.minorticks_off()
