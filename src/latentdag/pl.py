"""Figures. Every function takes ``ax=None``, draws on it and returns it."""

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from latentdag.model import LatentModel
from latentdag.result import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODE, NODE_EDGE, BOX = "#cfe3f7", "#2b6cb0", "#f4f4f4"
POSITIVE, NEGATIVE = "#2b6cb0", "#c05621"


def latent_graph(
    model: LatentModel | Fit,
    ax: "Axes | None" = None,
    *,
    contexts: bool = True,
    min_weight: float = 0.0,
    names: dict[str, str] | None = None,
    like: LatentModel | Fit | None = None,
    title: str | None = None,
) -> "Axes":
    """The latent graph in layers, sources on top, with a box for each context (the paper's figure).

    Edges are as wide as the effect between latents of unit variance, blue if positive and orange if negative.

    Parameters
    ----------
    model : LatentModel or Fit
    ax : matplotlib axes, optional
    contexts : bool
        Draw a box for every context, linked to its targets.
    min_weight : float
        Leave out edges with a smaller effect, between latents of unit variance (the paper's figure: 0.2).
    names : mapping, optional
        Other names to show for latents.
    like : LatentModel or Fit, optional
        Put latents where this model's are, to compare two graphs side by side.
    title : optional
    """
    plt = _pyplot()
    graph = _standardized(model, min_weight)
    layers = _layers(graph if like is None else _standardized(like, 0.0))
    depth = {name: i for i, layer in enumerate(layers) for name in layer}
    position = _positions(layers)
    widest = max(len(layer) for layer in layers)
    if ax is None:
        _, ax = plt.subplots(figsize=(min(max(6.0, 2.0 + 1.5 * widest), 24), min(1.5 + 1.3 * len(layers), 30)))
    for source, target, weight in graph.edges(data="weight"):
        skips = abs(depth[target] - depth[source]) != 1
        ax.annotate(
            "",
            xy=position[target],
            xytext=position[source],
            arrowprops={
                "arrowstyle": "-|>",
                "color": POSITIVE if weight > 0 else NEGATIVE,
                "linewidth": 0.6 + 2.6 * min(abs(weight), 1.0),
                "alpha": 0.85,
                "shrinkA": 15,
                "shrinkB": 15,
                # an edge past a layer bends, so as not to run through the nodes in between
                "connectionstyle": "arc3,rad=0.25" if skips else "arc3,rad=0.0",
            },
        )
    for name, (x, y) in position.items():
        ax.text(
            x, y, (names or {}).get(name, name), ha="center", va="center", fontsize=9, zorder=3,
            bbox={"boxstyle": "round,pad=0.45,rounding_size=0.9", "facecolor": NODE, "edgecolor": NODE_EDGE},
        )  # fmt: skip
    if contexts:
        _draw_contexts(ax, _model_of(model), position)
    xs, ys = zip(*position.values(), strict=True)
    ax.set_xlim(min(xs) - 0.9, max(xs) + 0.9)
    ax.set_ylim(min(ys) - 0.6, max(ys) + (0.9 if contexts else 0.6))
    ax.set_axis_off()
    if title:
        ax.set_title(title)
    return ax


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'latentdag[plot]'") from None
    return plt


def _model_of(model: LatentModel | Fit) -> LatentModel:
    return model.model if isinstance(model, Fit) else model


def _standardized(model: LatentModel | Fit, min_weight: float) -> nx.DiGraph:
    """The latent graph with effects between latents of unit variance."""
    scaled = _model_of(model).rescaled("unit-variance")
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(scaled.latents)
    for source, target in model.graph.edges:
        weight = scaled.weights[scaled.latents.index(target), scaled.latents.index(source)]
        if abs(weight) >= min_weight:
            graph.add_edge(source, target, weight=float(weight))
    return graph


def _layers(graph: nx.DiGraph) -> list[list[str]]:
    """Each latent as high as its longest path from a source allows, neighbours near each other."""
    layers = [sorted(layer) for layer in nx.topological_generations(graph)]
    place = {name: i for layer in layers for i, name in enumerate(layer)}
    for _ in range(4):  # a few barycentre sweeps take out most crossings
        for layer in layers:
            middle = {
                name: np.mean([place[n] for n in nx.all_neighbors(graph, name)] or [place[name]]) for name in layer
            }
            layer.sort(key=lambda name: (middle[name], name))
            place.update({name: i - (len(layer) - 1) / 2 for i, name in enumerate(layer)})
    return layers


def _positions(layers: list[list[str]]) -> dict[str, tuple[float, float]]:
    longest = max(len(name) for layer in layers for name in layer)
    step = 1.4 + 0.08 * longest
    # layers of one node would put a whole chain on one line, and its edges on top of each other
    return {
        name: (step * (i - (len(layer) - 1) / 2) + 0.35 * (-1) ** depth, -1.3 * depth)
        for depth, layer in enumerate(layers)
        for i, name in enumerate(layer)
    }


def _draw_contexts(ax: "Axes", model: LatentModel, position: dict[str, tuple[float, float]]) -> None:
    """A small box above right of each latent that a context targets."""
    for name, (x, y) in position.items():
        hits = [str(c) for c, value in model.interventions.items() if name in value.targets]
        if hits and hits != [name]:
            text = ", ".join(hits)
            ax.annotate(
                text if len(text) <= 24 else text[:23] + "…",
                xy=(x, y), xytext=(x + 0.45, y + 0.5), fontsize=7, ha="left", va="center", zorder=2,
                bbox={"boxstyle": "square,pad=0.25", "facecolor": BOX, "edgecolor": "#999999"},
                arrowprops={"arrowstyle": "-", "color": "#999999", "shrinkB": 12},
            )  # fmt: skip
