"""The latent graph in layers, with a box for each context: the paper's figure."""

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.methods.orientation import signs_mean
from latentdag.methods.result import Fit, named_graph
from latentdag.model.model import LatentModel
from latentdag.pl.canvas import BOX, NEGATIVE, NEUTRAL, NODE, NODE_EDGE, POSITIVE, axes, drawn, name_width, short
from latentdag.pl.layout import Edge, Layout, Point, layered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

#: Font sizes of names and of contexts, in points, in a figure of full size.
NAME_SIZE, CONTEXT_SIZE = 9.0, 7.0

#: Characters of a list of contexts that are shown.
LONGEST_LIST = 22

#: Inches between two names, and that the legend takes across.
GAP, LEGEND_WIDTH = 0.22, 5.6

#: Inches between rows, and more where names carry boxes; around it all; below, for a legend.
ROW, BOX_ROW, MARGIN, BELOW = 0.75, 0.15, 0.3, 0.5

#: Inches that a bend takes across, at least and at most, and those that all bends of a row may take together.
BEND = (0.13, 0.3, 3.0)

#: Inches from the middle of a name to its lower side, to its upper side, and to that of its box of contexts.
BELOW_NAME, ABOVE_NAME, ABOVE_BOX = 0.13, 0.13, 0.29

#: Inches between edges that meet at a name, where there is room.
PORT = 0.13

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
    not significant; below, what the latents' signs mean (``fit.orientation``). Latents without any edge have no place
    in the order: they are at the bottom, grey if idle.

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
    model, fit = drawn(source, key)
    graph, idle = _standardized(model, fit, min_weight), set(fit.idle_latents if fit else ())
    shown = {name: short((names or {}).get(name, name)) for name in model.latents}
    boxes = _boxes(model) if contexts else {}
    widths = {name: name_width([text], NAME_SIZE) + 0.12 for name, text in shown.items()}
    room = {name: max(width, name_width([boxes.get(name, "")], CONTEXT_SIZE) + 0.08) for name, width in widths.items()}
    shape = graph if like is None else _standardized(*drawn(like, key), 0.0)
    if set(shape) != set(graph):
        raise ValueError(f"like= has other latents: {sorted(set(shape) ^ set(graph))[:5]}; rename them first")
    layout = arranged(shape, {name: room[name] + GAP for name in shape}, BOX_ROW if boxes else 0.0)
    if ax is None:
        extra = 0.35 if title else 0.0
        ax = axes(ax, layout.width, layout.height + extra, "none")
        ax.set_position((0.0, 0.0, 1.0, layout.height / (layout.height + extra)))
    ax.set(xlim=(0, layout.width), ylim=(-layout.height, 0), aspect="equal", title=title or "")
    ax.set_axis_off()
    scale = _scale(ax, layout)
    doubtful = set() if level is None or fit is None else _doubtful(source, fit, key, level, table)
    edges = sorted(graph.edges(data="weight"), key=lambda edge: abs(edge[2]))
    reach = {name: (BELOW_NAME, ABOVE_BOX if name in boxes else ABOVE_NAME) for name in shown}
    routes = layout.routes([edge[:2] for edge in edges], widths, reach, PORT)
    for (cause, effect, weight), route in zip(edges, routes, strict=True):
        _draw_edge(ax, route, weight, scale, dashed=(cause, effect) in doubtful)
    for name, text in shown.items():
        x, y = layout.place[name]
        if name in boxes:
            _write(ax, x, y + 0.2, boxes[name], CONTEXT_SIZE * scale, "square,pad=0.2", BOX, "#999999", linewidth=0.6)
        face, border = (BOX, NEUTRAL) if name in idle else (NODE, NODE_EDGE)
        made = _write(ax, x, y, text, NAME_SIZE * scale, "round,pad=0.3,rounding_size=0.7", face, border)
        made.set_color(NEUTRAL if name in idle else "black")
    if legend and (graph.number_of_edges() or idle):
        _legend(ax, graph, bool(doubtful & set(graph.edges)), bool(idle), level, scale, signs_mean(fit) if fit else "")
    return ax


def arranged(graph: nx.DiGraph, room: dict[str, float], above: float = 0.0) -> Layout:
    """Lay out a graph in inches, with room ``above`` every name; y is negative."""
    layout, step, top = layered(graph, room, BEND), ROW + above, MARGIN + 0.1 + above
    width = max(layout.width + 2 * MARGIN, LEGEND_WIDTH)
    height = top + step * layout.height + MARGIN + BELOW
    return layout.moved(0.5 * (width - layout.width), -top, -step, width, height)


def _scale(ax: "Axes", layout: Layout) -> float:
    """Return the share of its full size that the figure has on these axes."""
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    return max(min(box.width / dpi / layout.width, box.height / dpi / layout.height, 1.0), 0.2)


def _standardized(model: LatentModel, fit: Fit | None, min_weight: float) -> nx.DiGraph:
    """Return the latent graph with effects between latents of unit variance."""
    graph = named_graph(model.rescaled("unit-variance"), (fit or model).graph.edges)
    graph.remove_edges_from([edge[:2] for edge in graph.edges(data="weight") if abs(edge[2]) < min_weight])
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


def _doubtful(source: Any, fit: Fit, key: str, level: float, table: pd.DataFrame | None) -> set[Edge]:
    """Return the edges that the data do not support at this level; none where there are no tests."""
    if table is None:
        table = pd.DataFrame(source.uns[key]["edges"]) if hasattr(source, "uns") else fit.edges()
    weak = table[table["q_value"] > level]  # nan, where there is no test, is not larger
    return set(zip(weak["source"], weak["target"], strict=True))


def _draw_edge(ax: "Axes", route: list[Point], weight: float, scale: float, dashed: bool) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    ax.add_patch(
        FancyArrowPatch(
            path=Path(route, [Path.MOVETO, *[Path.CURVE4] * (len(route) - 1)]),
            arrowstyle=f"-|>,head_length={4 * scale:.3f},head_width={2 * scale:.3f}",
            mutation_scale=1,
            color=POSITIVE if weight > 0 else NEGATIVE,
            linewidth=(0.5 + 2.6 * min(abs(weight), 1.0)) * scale,
            linestyle=DASHES if dashed else "solid",
            alpha=0.8,
            zorder=1,
        )
    )


def _write(
    ax: "Axes", x: float, y: float, text: str, size: float, style: str, face: str, border: str, **look: Any
) -> "Text":
    """Write text in a box; a "$" in a name is no formula."""
    box = {"boxstyle": style, "facecolor": face, "edgecolor": border, **look}
    return ax.text(x, y, text, ha="center", va="center", fontsize=size, zorder=3, parse_math=False, bbox=box)


def _legend(
    ax: "Axes", graph: nx.DiGraph, any_dashed: bool, any_idle: bool, level: float | None, scale: float, signs: str
) -> None:
    from matplotlib.lines import Line2D

    present = {np.sign(weight) for *_, weight in graph.edges(data="weight")}
    handles = [
        Line2D([], [], color=colour, linewidth=(0.5 + 2.6 * 0.5) * scale, label=word)
        for sign, colour, word in ((1, POSITIVE, "effect +0.5 s.d."), (-1, NEGATIVE, "effect −0.5 s.d."))
        if sign in present
    ]
    if any_dashed:
        handles.append(Line2D([], [], color="#555555", linestyle=DASHES, label=f"not significant (q > {level:g})"))
    if any_idle:
        look = {"linestyle": "none", "markerfacecolor": BOX, "markeredgecolor": NEUTRAL}
        handles.append(Line2D([], [], marker="s", markersize=7 * scale, label="idle", **look))  # type: ignore[arg-type]
    ax.legend(
        handles=handles, loc="lower center", ncol=4, frameon=False, fontsize=8 * scale, borderaxespad=0.2,
        handlelength=2.5, columnspacing=1.2, title=signs or None, title_fontsize=8 * scale,
    )  # fmt: skip
