"""Small graphs side by side: two models with equal moments, the second one's latents where the first one's are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.experiments.draw import figure
from latentdag.identification.counterexamples import Counterexample
from latentdag.model.model import LatentModel
from latentdag.pl.canvas import NODE, NODE_EDGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Where latents 1, 2, 3 are: effects at the bottom, and no edge through a node.
PLACES = ((0.5, 0.12), (0.82, 0.5), (0.5, 0.88))

#: Inches of one pair.
WIDTH, HEIGHT = 4.4, 2.0


def draw_pairs(pairs: Mapping[str, Counterexample]) -> "Figure":
    """Both graphs of every pair, two pairs in a line; latents that a context targets are filled."""
    lines = (len(pairs) + 1) // 2
    made = figure(2 * WIDTH, lines * HEIGHT + 0.3)
    parts = made.subfigures(lines, 2, squeeze=False).ravel()
    for part, (name, pair) in zip(parts, pairs.items(), strict=False):
        part.suptitle(f"{name}: {differs(pair)}", fontsize=10)
        for ax, model in zip(part.subplots(1, 2), (pair.first, pair.second), strict=True):
            draw_graph(ax, model)
    said = "Filled: targeted by some context. The two models of a pair have the same moments in every context."
    made.text(0.5, -0.01, said, ha="center", va="top", fontsize=9)
    return made


def differs(pair: Counterexample) -> str:
    """What the two models disagree about, besides H."""
    if set(pair.first.graph.edges) != set(pair.second.graph.edges):
        return "other graph"
    return "only H differs" if np.allclose(pair.first.weights, pair.second.weights) else "other weights"


def draw_graph(ax: Any, model: LatentModel) -> None:
    """Up to three latents, with the weight on every edge."""
    hit = {name for value in model.interventions.values() for name in value.targets}
    places = dict(zip(model.latents, PLACES, strict=False))
    for source, target, weight in model.graph.edges(data="weight"):
        start, end = places[source], places[target]
        arrow = {"arrowstyle": "-|>", "color": NODE_EDGE, "shrinkA": 13, "shrinkB": 13, "lw": 1.4}
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        ax.text(*middle, f"{weight:.2g}", fontsize=8, ha="center", va="center", bbox=box)
    for name, place in places.items():
        style = {"facecolor": NODE if name in hit else "white", "edgecolor": NODE_EDGE, "linewidth": 1.4}
        ax.scatter(*place, s=420, zorder=3, **style)
        ax.text(*place, name, ha="center", va="center", fontsize=9, zorder=4)
    ax.set(xlim=(0.1, 1.1), ylim=(-0.1, 1.1))
    ax.set_axis_off()
