"""Figures of the light tunnel: how near every method comes, and the graph that is found beside the known one."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.datasets.chamber import known_graph
from latentdag.experiments import Settings, figure, tidy
from studies.light_tunnel.machine import COLOURS, MAIN, SETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {
    "likelihood": ("likelihood", "#2b6cb0"),
    "closed-form": ("closed form", "#2f855a"),
    "projection": ("paper's algorithm", "#c05621"),
    "projection, about the control": ("… with second moments", "#dd8a4f"),
    "PCA": ("PCA", "#718096"),
    "FactorAnalysis": ("factor analysis", "#718096"),
    "FastICA": ("FastICA", "#718096"),
}
FILLS = {"red": "#e04f4f", "green": "#4caf6d", "blue": "#4f7fe0"}
TRUE, FALSE = "#2d3748", "#dd6b20"


def draw(rows: pd.DataFrame, settings: Settings) -> "dict[str, Figure]":
    return {"rows": draw_rows(rows), "graph": draw_graphs(rows)}


def draw_rows(rows: pd.DataFrame) -> "Figure":
    """Draw one dot per draw and method: how far the worst row is from its equation."""
    runs = rows[rows["method"].isin(list(METHODS))]
    panels = list(dict.fromkeys(zip(runs["part"], runs["set"], runs["share"], strict=True)))
    made = figure(2.3 * len(panels) + 1.5, 3.9)
    axes = made.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
    for ax, (part, name, share) in zip(axes, panels, strict=True):
        here = runs[(runs["part"] == part) & (runs["set"] == name) & (runs["share"] == share)]
        for y, (method, (_, colour)) in enumerate(METHODS.items()):
            far = 1 - here.loc[here["method"] == method, "cosine"].dropna().to_numpy(float)
            # evenly across the strip in the order of the draws: the same picture every time
            spread = np.linspace(-0.28, 0.28, len(far)) if len(far) > 1 else np.zeros(len(far))
            ax.plot(far, y + spread, "o", ms=3, alpha=0.6, mew=0, color=colour)
        ax.axvline(0.02, color="#8a8a8a", ls=":", lw=1)
        what = "all rows, other maps" if part == "maps" else f"{share:.0%} of the rows"
        ax.set(xscale="log", title=f"{name}\n{what}")
        tidy(ax)
    axes[0].set_yticks(range(len(METHODS)), [label for label, _ in METHODS.values()])
    axes[0].invert_yaxis()
    made.supxlabel("1 − cosine of the worst row with its structural equation (dotted: cosine 0.98)", fontsize=10)
    return made


def draw_graphs(rows: pd.DataFrame) -> "Figure":
    """Draw the known graph of the first set, and how often each edge is found; false edges are orange."""
    latents = SETS[MAIN]
    known = sorted(known_graph().subgraph(latents).edges)
    found = rows[(rows["method"] == "edges") & (rows["set"] == MAIN) & (rows["part"] == "rows")]
    found = found[found["share"] == found["share"].max()]
    panels: list[tuple[str, dict[tuple[str, str], float]]] = [("known", dict.fromkeys(known, 1.0))]
    for knowledge, group in found.groupby("knowledge", sort=False):
        edges = [tuple(edge.split(">")) for text in group["edges"].fillna("") for edge in text.split()]
        panels.append((f"found, knowing {knowledge}", {e: edges.count(e) / len(group) for e in dict.fromkeys(edges)}))
    made = figure(3.6 * len(panels), 3.6)
    for ax, (title, shares) in zip(made.subplots(1, len(panels)), panels, strict=True):
        draw_graph(ax, latents, shares, known)
        ax.set_title(title, fontsize=10)
    said = "line width: share of the draws in which the edge is found (q < 0.05); orange: not in the machine"
    made.supxlabel(said, fontsize=9)
    return made


def draw_graph(ax: "Axes", latents: Any, shares: dict[tuple[str, str], float], known: list[tuple[str, str]]) -> None:
    """Draw one graph, colours above and sensors below."""
    above = [name for name in latents if name in COLOURS]
    below = [name for name in latents if name not in COLOURS]
    place = {name: (i, y) for names, y in ((above, 1.0), (below, 0.0)) for i, name in enumerate(names)}
    for (source, target), share in shares.items():
        (x, y), (to_x, to_y) = place[source], place[target]
        bow = 0.0 if y != to_y else 0.45 if x < to_x else -0.45  # below, whichever way it goes
        ax.annotate(
            "", (to_x, to_y), (x, y),
            arrowprops={
                "arrowstyle": "-|>", "lw": 0.3 + 2.2 * share, "color": TRUE if (source, target) in known else FALSE,
                "shrinkA": 17, "shrinkB": 17, "connectionstyle": f"arc3,rad={bow}",
            },
        )  # fmt: skip
    false = sorted(((share, edge) for edge, share in shares.items() if edge not in known), reverse=True)
    said = [f"{source} → {target} {share:.0%}" for share, (source, target) in false]
    lines = [",  ".join(said[i : i + 2]) for i in range(0, len(said), 2)]
    ax.text(1, -0.62, "\n".join(lines), color=FALSE, fontsize=8, ha="center", va="top")
    for name, (x, y) in place.items():
        ax.plot(x, y, "o", ms=34, mfc=FILLS.get(name, "#edf2f7"), mec="#4a5568", mew=0.8)
        ax.text(x, y, name, ha="center", va="center", fontsize=8, color="white" if name in FILLS else "#1a202c")
    ax.set(xlim=(-0.5, 2.5), ylim=(-1.1, 1.3))
    ax.axis("off")
