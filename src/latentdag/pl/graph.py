"""The latent graph in layers, with a box for each context: the paper's figure."""

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.pl.canvas import BOX, NEGATIVE, NEUTRAL, NODE, NODE_EDGE, POSITIVE, axes, fit_in, name_width, short
from latentdag.pl.layout import Edge, Layout, layered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Font sizes of names and of contexts, in points, in a figure of full size.
NAME_SIZE, CONTEXT_SIZE = 9.0, 7.0

#: Characters of a list of contexts that are shown.
LONGEST_LIST = 22

#: Inches between two names, and that the legend takes across.
GAP, LEGEND_WIDTH = 0.22, 5.6

#: Inches between rows, and more where names carry boxes; around it all; below, for a legend.
ROW, BOX_ROW, MARGIN, BELOW = 0.75, 0.15, 0.3, 0.4

#: Inches that a bend takes across, at least and at most, and those that all bends of a row may take together.
BEND = (0.13, 0.3, 3.0)

DASHES = (0, (4, 2.5))


def latent_graph(
    source: Any,
    ax: "Axes | None" = None,
    *,
    key: str = "latentdag",
    contexts: bool = True,
    level: float | None = 0.05,
    min_weight: float = 0.0,
    names: dict[str, str] | None = None,
    like: Any = None,
    title: str | None = None,
    legend: bool = True,
    table: pd.DataFrame | None = None,
) -> "Axes":
    """Draw the latent graph in layers, sources on top, with a box for each context (the paper's figure).

    Edges are as wide as the effect between latents of unit variance, blue if positive and orange if negative, dashed if
    not significant. Latents without any edge have no place in the order: they are at the bottom, grey if idle.

    Parameters
    ----------
    source : Fit, LatentModel, fitted LatentDAG, or AnnData
    ax : matplotlib axes, optional
        By default a figure as large as readable names need.
    key : str
        For AnnData: the ``key_added`` of :func:`latentdag.tl.latentdag`.
    contexts : bool
        A box on every latent with the contexts that target it, where they are not its name.
    level : float or None
        Edges with a larger ``q_value`` in :meth:`latentdag.Fit.edges` are dashed. The first call of that takes a while
        with very many latents (minutes at 100); None skips it and draws all edges alike.
    min_weight : float
        Leave out edges with a smaller effect, between latents of unit variance (the paper's figure: 0.2).
    names : mapping, optional
        Other names to show for latents.
    like : optional
        Put latents where this source's are, to compare two graphs side by side.
    title : optional
    legend : bool
    table : DataFrame, optional
        Of :meth:`latentdag.Fit.edges`, where it was made before: then it is not computed again.
    """
    found = fit_in(source, key)
    model = found.model if isinstance(found, Fit) else found
    idle = set(found.idle_latents) if isinstance(found, Fit) else set()
    graph = _standardized(found, min_weight)
    shown = {name: short((names or {}).get(name, name)) for name in model.latents}
    boxes = _boxes(model) if contexts else {}
    half = {name: _half_size(text, boxes.get(name)) for name, text in shown.items()}
    shape = graph if like is None else _standardized(fit_in(like, key), 0.0)
    if set(shape) != set(graph):
        raise ValueError(f"like= has other latents: {sorted(set(shape) ^ set(graph))[:5]}; rename them first")
    layout = arranged(shape, {name: 2 * max(half[name][:2]) + GAP for name in shape}, BOX_ROW if boxes else 0.0)
    if ax is None:
        extra = 0.35 if title else 0.0
        ax = axes(ax, layout.width, layout.height + extra, "none")
        ax.set_position((0.0, 0.0, 1.0, layout.height / (layout.height + extra)))
    ax.set_xlim(0, layout.width)
    ax.set_ylim(-layout.height, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    scale = _scale(ax, layout)
    doubtful = _doubtful(source, found, key, level, table)
    for edge in sorted(graph.edges(data="weight"), key=lambda e: abs(e[2])):
        _draw_edge(ax, edge, layout, half, scale, dashed=edge[:2] in doubtful)
    for name, text in shown.items():
        x, y = layout.place[name]
        if name in boxes:
            ax.text(
                x, y + 0.2, boxes[name], ha="center", va="center", fontsize=CONTEXT_SIZE * scale, zorder=3,
                parse_math=False,
                bbox={"boxstyle": "square,pad=0.2", "facecolor": BOX, "edgecolor": "#999999", "linewidth": 0.6},
            )  # fmt: skip
        ax.text(
            x, y, text, ha="center", va="center", fontsize=NAME_SIZE * scale, zorder=4,
            parse_math=False,  # a "$" in a name is no formula
            color=NEUTRAL if name in idle else "black",
            bbox={"boxstyle": "round,pad=0.3,rounding_size=0.7", "facecolor": BOX if name in idle else NODE,
                  "edgecolor": NEUTRAL if name in idle else NODE_EDGE},
        )  # fmt: skip
    if legend and (graph.number_of_edges() or idle):
        _legend(ax, graph, bool(doubtful & set(graph.edges)), bool(idle), level, scale)
    if title:
        ax.set_title(title)
    return ax


def arranged(graph: nx.DiGraph, room: dict[str, float], above: float = 0.0) -> Layout:
    """Lay out a graph in inches, with room ``above`` every name; y is negative."""
    layout, step, top = layered(graph, room, BEND), ROW + above, MARGIN + 0.1 + above
    width = max(layout.width + 2 * MARGIN, LEGEND_WIDTH)
    height = top + step * layout.height + MARGIN + BELOW
    return layout.moved(0.5 * (width - layout.width), -top, -step, width, height)


def _half_size(name: str, contexts: str | None) -> tuple[float, float, float, float]:
    """Return half the width of a name below and (with its box) above, and how far it reaches down and up, in inches."""
    across = 0.5 * name_width([name], NAME_SIZE) + 0.06
    if contexts is None:
        return across, across, 0.13, 0.13
    return across, max(across, 0.5 * name_width([contexts], CONTEXT_SIZE) + 0.04), 0.13, 0.29


def _scale(ax: "Axes", layout: Layout) -> float:
    """Return the share of its full size that the figure has on these axes."""
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    return max(min(box.width / dpi / layout.width, box.height / dpi / layout.height, 1.0), 0.2)


def _standardized(source: Fit | LatentModel, min_weight: float) -> nx.DiGraph:
    """Return the latent graph with effects between latents of unit variance."""
    scaled = (source.model if isinstance(source, Fit) else source).rescaled("unit-variance")
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(scaled.latents)
    for cause, effect in source.graph.edges:
        weight = scaled.weights[scaled.latents.index(effect), scaled.latents.index(cause)]
        if abs(weight) >= min_weight:
            graph.add_edge(cause, effect, weight=float(weight))
    return graph


def _boxes(model: LatentModel) -> dict[str, str]:
    """Return the contexts of each latent as text, unless the only one is the name of the latent."""
    found = {}
    for name in model.latents:
        hits = [str(c) for c, value in model.interventions.items() if name in value.targets]
        if hits and hits != [name]:
            kept = hits[:1]
            while len(kept) < len(hits) and len(", ".join([*kept, hits[len(kept)]])) <= LONGEST_LIST:
                kept.append(hits[len(kept)])
            more = f" +{len(hits) - len(kept)}" if len(kept) < len(hits) else ""
            found[name] = short(", ".join(kept), LONGEST_LIST) + more
    return found


def _doubtful(
    source: Any, found: Fit | LatentModel, key: str, level: float | None, table: pd.DataFrame | None
) -> set[Edge]:
    """Return the edges that the data do not support at this level; none where there are no tests."""
    if level is None or not isinstance(found, Fit):
        return set()
    if table is None:
        table = pd.DataFrame(source.uns[key]["edges"]) if hasattr(source, "uns") else found.edges()
    weak = table[table["q_value"] > level]  # nan, where there is no test, is not larger
    return set(zip(weak["source"], weak["target"], strict=True))


def _draw_edge(
    ax: "Axes",
    edge: tuple[str, str, float],
    layout: Layout,
    half: dict[str, tuple[float, float, float, float]],
    scale: float,
    dashed: bool,
) -> None:
    from matplotlib.patches import FancyArrowPatch

    cause, effect, weight = edge
    # an edge that the graph laid out (like=) has not, has no bends either
    points = np.array([layout.place[cause], *layout.bends.get((cause, effect), ()), layout.place[effect]])
    points[0] = _border(points[0], points[1] - points[0], half[cause])
    points[-1] = _border(points[-1], points[-2] - points[-1], half[effect])
    ax.add_patch(
        FancyArrowPatch(
            path=_smooth(points),
            arrowstyle=f"-|>,head_length={4 * scale:.3f},head_width={2 * scale:.3f}",
            mutation_scale=1,
            color=POSITIVE if weight > 0 else NEGATIVE,
            linewidth=(0.5 + 2.6 * min(abs(weight), 1.0)) * scale,
            linestyle=DASHES if dashed else "solid",
            alpha=0.8,
            zorder=1,
        )
    )


def _border(centre: np.ndarray, direction: np.ndarray, half: tuple[float, float, float, float]) -> np.ndarray:
    """Return the point where a line from the centre of a name leaves its box."""
    across, up = np.abs(direction)
    above = int(direction[1] > 0)
    step = min(half[above] / across if across else np.inf, half[2 + above] / up if up else np.inf, 0.9)
    return np.asarray(centre + step * direction)


def _smooth(points: np.ndarray) -> Any:
    """Return a curve through the points that is upright at every bend, so that it passes between names."""
    from matplotlib.path import Path

    vertices, codes = [points[0]], [Path.MOVETO]
    for i in range(1, len(points)):
        a, b = points[i - 1], points[i]
        drop = np.array([0.0, 0.4 * (b[1] - a[1])])
        # the ends are straight, so that heads point at their names
        first = a + drop if i > 1 else a + (b - a) / 3
        last = b - drop if i < len(points) - 1 else b - (b - a) / 3
        vertices += [first, last, b]
        codes += [Path.CURVE4] * 3
    return Path(np.array(vertices), codes)


def _legend(ax: "Axes", graph: nx.DiGraph, any_dashed: bool, any_idle: bool, level: float | None, scale: float) -> None:
    from matplotlib.lines import Line2D

    signs = {np.sign(weight) for *_, weight in graph.edges(data="weight")}
    handles = [
        Line2D([], [], color=colour, linewidth=(0.5 + 2.6 * 0.5) * scale, label=word)
        for sign, colour, word in ((1, POSITIVE, "effect +0.5 s.d."), (-1, NEGATIVE, "effect −0.5 s.d."))
        if sign in signs
    ]
    if any_dashed:
        handles.append(Line2D([], [], color="#555555", linestyle=DASHES, label=f"not significant (q > {level:g})"))
    if any_idle:
        look = {"linestyle": "none", "markerfacecolor": BOX, "markeredgecolor": NEUTRAL}
        handles.append(Line2D([], [], marker="s", markersize=7 * scale, label="idle", **look))  # type: ignore[arg-type]
    ax.legend(
        handles=handles, loc="lower center", ncol=4, frameon=False, fontsize=8 * scale, borderaxespad=0.2,
        handlelength=2.5, columnspacing=1.2,
    )  # fmt: skip
