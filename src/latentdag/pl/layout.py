"""Where the latents of a graph go: rows from sources down, edges led between the names. Units are inches.

Sugiyama's method: every latent is as high as its longest path from a source allows; an edge that passes rows gets a
bend in each of them; bends and names are ordered together so that few edges cross, and pulled towards what they are
linked with as far as room allows.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import networkx as nx
import numpy as np

#: Inches between rows, and more where names carry boxes; around it all; below, for a legend.
ROW, BOX_ROW, MARGIN, BELOW = 0.75, 0.15, 0.3, 0.4

#: Inches that a bend takes across, at least and at most, and those that all bends of a row may take if they can.
BEND, WIDE_BEND, ALL_BENDS = 0.13, 0.3, 3.0

Edge = tuple[str, str]
Point = tuple[float, float]


class Layout(NamedTuple):
    """Size of the figure, position of each latent, and the bends of each edge from cause to effect; y is negative."""

    width: float
    height: float
    place: dict[str, Point]
    bends: dict[Edge, list[Point]]


def arrange(graph: nx.DiGraph, room: Mapping[str, float], boxes: bool, min_width: float = 0.0) -> Layout:
    """Lay out a latent graph.

    Parameters
    ----------
    graph : DiGraph
    room : mapping of latent to the inches that its name takes across
    boxes : bool
        Whether names carry boxes above them.
    min_width : float
        Inches.
    """
    loners = sorted(nx.isolates(graph))
    linked = graph.subgraph([name for name in graph if name not in set(loners)])
    rows, chains = _with_bends(linked, _split([sorted(layer) for layer in nx.topological_generations(linked)]))
    links: nx.Graph = nx.Graph()
    for (cause, effect), bends in chains.items():
        nx.add_path(links, [cause, *bends, effect])
    _uncross(rows, links)
    most = max((sum(not isinstance(item, str) for item in row) for row in rows), default=0)
    bend = min(max(ALL_BENDS / max(most, 1), BEND), WIDE_BEND)
    size: dict[Hashable, float] = {item: bend for chain in chains.values() for item in chain} | dict(room)
    x = _coordinates(rows, links, size)
    named = [[item for item in row if isinstance(item, str)] for row in rows]
    for row in _split([loners]) if loners else []:  # they have no place in the order, so they come last
        at = np.cumsum([room[name] for name in row]) - 0.5 * np.array([room[name] for name in row])
        middle = 0.5 * (min(x.values(), default=0.0) + max(x.values(), default=0.0))
        x.update(dict(zip(row, at - at.mean() + middle, strict=True)))
        named.append(row)
    step, top = ROW + (BOX_ROW if boxes else 0.0), MARGIN + 0.1 + (BOX_ROW if boxes else 0.0)
    left = min(x[item] - 0.5 * size[item] for item in x)
    right = max(x[item] + 0.5 * size[item] for item in x)
    width = max(right - left + 2 * MARGIN, min_width)
    shift = 0.5 * (width - right - left)
    depth = {name: number for number, row in enumerate(named) for name in row}
    place = {name: (x[name] + shift, -top - step * number) for name, number in depth.items()}
    points = {
        edge: [(x[b] + shift, -top - step * (depth[edge[0]] + 1 + i)) for i, b in enumerate(chain)]
        for edge, chain in chains.items()
    }
    return Layout(width, top + step * (len(named) - 1) + MARGIN + BELOW, place, points)


def _split(layers: list[list[str]]) -> list[list[str]]:
    """Layers in rows of bounded length."""
    longest = max(6, int(np.ceil(1.2 * np.sqrt(sum(map(len, layers))))))
    rows = []
    for layer in layers:
        n_rows = -(-len(layer) // longest)
        rows += [layer[start::n_rows] for start in range(n_rows)]
    return rows


def _with_bends(graph: nx.DiGraph, rows: list[list[str]]) -> tuple[list[list[Hashable]], dict[Edge, list[Hashable]]]:
    """Rows with a bend for every edge that passes them, and the bends of each edge."""
    depth = {name: number for number, row in enumerate(rows) for name in row}
    full: list[list[Hashable]] = [list(row) for row in rows]
    chains: dict[Edge, list[Hashable]] = {}
    for cause, effect in graph.edges:
        chains[cause, effect] = [(cause, effect, number) for number in range(depth[cause] + 1, depth[effect])]
        for bend, number in zip(chains[cause, effect], range(depth[cause] + 1, depth[effect]), strict=True):
            full[number].append(bend)
    return full, chains


def _uncross(rows: list[list[Hashable]], links: nx.Graph) -> None:
    """Order each row by where its neighbours in the row above, then below, stand: few crossings after some sweeps."""
    number = {item: r for r, row in enumerate(rows) for item in row}
    rank = {item: float(i) for row in rows for i, item in enumerate(row)}
    for sweep in range(24):
        step = 1 if sweep % 2 == 0 else -1
        for row in rows[::step]:
            middle = {}
            for item in row:
                near = [rank[other] for other in links[item] if (number[item] - number[other]) * step > 0]
                middle[item] = float(np.mean(near)) if near else rank[item]
            row.sort(key=lambda item: (middle[item], str(item)))
            rank.update({item: i - (len(row) - 1) / 2 for i, item in enumerate(row)})


def _coordinates(rows: list[list[Hashable]], links: nx.Graph, room: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Each item near the mean of its neighbours, as far as the room of the others in its row allows."""
    x: dict[Hashable, float] = {}
    starts = []
    for row in rows:
        size = np.array([room[item] for item in row])
        starts.append(np.cumsum(size) - 0.5 * size)  # the closest that items can stand
        x.update(dict(zip(row, starts[-1] - 0.5 * size.sum(), strict=True)))
    for _ in range(20):
        for row, start in zip(rows, starts, strict=True):
            wanted = np.array([np.mean([x[other] for other in links[item]] or [x[item]]) for item in row])
            # bends want to be straight more than names want to be near: that is what makes edges easy to follow
            weight = np.array([1.0 if isinstance(item, str) else 3.0 for item in row])
            x.update(dict(zip(row, _increasing(wanted - start, weight) + start, strict=True)))
    return x


def _increasing(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Nearest values that do not decrease, in weighted least squares (pool adjacent violators)."""
    pools: list[list[float]] = []
    for value, w in zip(values, weight, strict=True):
        pools.append([float(value), float(w), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            v, u, n = pools.pop()
            last = pools[-1]
            last[0] = (last[0] * last[1] + v * u) / (last[1] + u)
            last[1] += u
            last[2] += n
    return np.concatenate([np.full(int(n), v) for v, _, n in pools]) if pools else values
