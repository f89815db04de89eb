"""The latent graph as boxes and curves, ready to be drawn as SVG. Units are pixels."""

import networkx as nx
import numpy as np

from latentdag.pl import Layout, layered, short, text_width
from latentdag.report.records import Record

Edge = tuple[str, str]
Point = tuple[float, float]

#: Height of a node, room around the drawing, and room between two nodes.
HEIGHT, MARGIN, GAP = 30.0, 24.0, 16.0

#: Room that a bend takes across: at least, at most, and all those of a row together.
BEND = (10.0, 22.0, 220.0)

#: Latents that a row may hold: the page is wide, and scrolls.
ROW_LENGTH = 12

#: Characters of a name that a node shows; the full name is in its details.
LABEL = 14

#: Edges per latent up to which a graph is first shown whole.
MOST_PER_LATENT = 3


def graph_drawing(latents: list[Record], edges: list[Record]) -> Record:
    """Return size, nodes and paths of the latent graph; one path per edge, in the order of ``edges``."""
    labels = {record["latent"]: short(record["latent"], LABEL) for record in latents}
    widths = {name: max(44.0, round(20 + 8.6 * text_width(text), 1)) for name, text in labels.items()}
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(labels)
    pairs = [(edge["source"], edge["target"]) for edge in edges]
    graph.add_edges_from(pairs)
    layout = layered(graph, {name: width + GAP for name, width in widths.items()}, BEND, ROW_LENGTH)
    step = HEIGHT + min(36.0 + 2.2 * len(edges) / (layout.height + 1), 90.0)
    width, height = layout.width + 2 * MARGIN, step * layout.height + HEIGHT + 2 * MARGIN
    drawn = layout.moved(MARGIN, MARGIN + HEIGHT / 2, step, round(width, 1), round(height, 1))
    nodes = [
        {"latent": name, "label": labels[name], "x": round(drawn.place[name][0], 1),
         "y": round(drawn.place[name][1], 1), "width": widths[name], "layer": layout.place[name][1]}
        for name in labels
    ]  # fmt: skip
    return {
        "width": drawn.width,
        "height": drawn.height,
        "threshold": _first_threshold(edges, len(labels)),
        "nodes": nodes,
        "paths": [_curve(points) for points in _points(drawn, pairs, widths)],
    }


def _points(drawn: Layout, pairs: list[Edge], widths: dict[str, float]) -> list[list[Point]]:
    """Return the points of each edge, from the lower side of its cause to the upper side of its effect."""
    chains = [[drawn.place[cause], *drawn.bends[cause, effect], drawn.place[effect]] for cause, effect in pairs]
    leaving = _ports([cause for cause, _ in pairs], [chain[1][0] for chain in chains], widths)
    entering = _ports([effect for _, effect in pairs], [chain[-2][0] for chain in chains], widths)
    paths = []
    for (start, *bends, end), out, into in zip(chains, leaving, entering, strict=True):
        points = [(start[0] + out, start[1] + HEIGHT / 2), *bends, (end[0] + into, end[1] - HEIGHT / 2 - 2)]
        paths.append([(round(x, 1), round(y, 1)) for x, y in points])
    return paths


def _ports(names: list[str], towards: list[float], widths: dict[str, float]) -> list[float]:
    """Return the offset of each edge from the middle of its node, so that edges that meet there stand side by side."""
    offset = [0.0] * len(names)
    for name in set(names):
        meeting = sorted((k for k, other in enumerate(names) if other == name), key=lambda k: (towards[k], k))
        space = min(10.0, (widths[name] - 14) / len(meeting))
        for place, k in enumerate(meeting):
            offset[k] = space * (place - (len(meeting) - 1) / 2)
    return offset


def _first_threshold(edges: list[Record], n: int) -> float:
    """Return where the slider starts: at zero, unless there are more edges than an eye can follow."""
    if len(edges) <= MOST_PER_LATENT * n:
        return 0.0
    strength = sorted((abs(edge["standardized_weight"]) for edge in edges), reverse=True)
    return float(np.floor(100 * strength[2 * n]) / 100)


def _curve(points: list[tuple[float, float]]) -> str:
    """Return a smooth SVG path that leaves and enters vertically."""
    (x, y), *rest = points
    text = f"M{x:g},{y:g}"
    for a, b in rest:
        middle = round((y + b) / 2, 1)
        text += f"C{x:g},{middle:g} {a:g},{middle:g} {a:g},{b:g}"
        x, y = a, b
    return text
