"""Where to draw a directed acyclic graph: layers of causes above effects, with few crossings.

Sugiyama's recipe. Every node is as low as its longest path from a source makes it; an edge that passes layers gets a
bend in each of them, so that it runs between nodes and not through them; sweeps of barycentres take out crossings;
then positions follow those of the neighbours as closely as the widths of the nodes allow, which is isotonic regression.
The same graph gives the same drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from sklearn.isotonic import isotonic_regression

HEIGHT, MARGIN, GAP = 30.0, 24.0, 16.0
BEND = 4.0  # room that a passing edge takes
SWEEPS = 10
MOST_BENDS = 2500  # beyond, edges run straight: no drawing of so many is read edge by edge


@dataclass(frozen=True)
class Layout:
    """A drawing, in pixels.

    Attributes
    ----------
    x, y : (d,) middle of each node
    layer : (d,) int
    paths : one list of (x, y) per edge, from the lower side of its cause to the upper side of its effect
    width, height : float
    """

    x: np.ndarray
    y: np.ndarray
    layer: np.ndarray
    paths: list[list[tuple[float, float]]]
    width: float
    height: float


@dataclass
class _Rows:
    """Nodes and bends, layer by layer, and who is joined to whom in the layer above and below."""

    rows: list[list[int]]
    above: dict[int, list[int]] = field(default_factory=dict)
    below: dict[int, list[int]] = field(default_factory=dict)
    chains: list[list[int]] = field(default_factory=list)


def layered(n: int, edges: Sequence[tuple[int, int]], widths: Sequence[float]) -> Layout:
    """Lay out nodes 0 … n − 1, numbered causes first.

    Parameters
    ----------
    n : int
    edges : (cause, effect) pairs with cause < effect
    widths : (n,) of the nodes' boxes

    Examples
    --------
    >>> drawing = layered(3, [(0, 1), (0, 2)], [40, 40, 40])
    >>> drawing.layer.tolist(), bool(drawing.x[0] == (drawing.x[1] + drawing.x[2]) / 2)
    ([0, 1, 1], True)
    """
    wide = np.asarray(widths, dtype=float)
    joined = sorted({i for edge in edges for i in edge})
    layer = _layers(n, edges)
    graph = _with_bends(layer, joined, edges)
    _untangle(graph)
    x = _across(graph, wide)
    step = HEIGHT + min(36.0 + 2.2 * len(edges) / max(len(graph.rows), 1), 90.0)
    y = {i: MARGIN + HEIGHT / 2 + step * depth for depth, row in enumerate(graph.rows) for i in row}
    width = max((x[i] + (wide[i] if i < n else BEND) / 2 for i in x), default=0.0)
    bottom = max(y.values(), default=MARGIN - HEIGHT / 2 - 20)
    alone = [i for i in range(n) if i not in set(joined)]
    bottom = _place_alone(alone, wide, max(width, 600.0), bottom, x, y)
    width = max([width, *(x[i] + wide[i] / 2 for i in alone)]) + MARGIN
    for i in alone:
        layer[i] = len(graph.rows)
    paths = _paths(graph.chains, wide, x, y)
    at = [np.array([place[i] for i in range(n)]) for place in (x, y)]
    return Layout(at[0], at[1], layer, paths, float(width), float(bottom + HEIGHT / 2 + MARGIN))


def _layers(n: int, edges: Sequence[tuple[int, int]]) -> np.ndarray:
    """Longest path from a source; sources come down to just above their first effect."""
    layer = np.zeros(n, dtype=int)
    for cause, effect in sorted(edges):
        layer[effect] = max(layer[effect], layer[cause] + 1)
    effects = {cause: [v for u, v in edges if u == cause] for cause, _ in edges}
    for source in set(effects) - {v for _, v in edges}:
        layer[source] = min(layer[v] for v in effects[source]) - 1
    return layer


def _with_bends(layer: np.ndarray, joined: Sequence[int], edges: Sequence[tuple[int, int]]) -> _Rows:
    rows: list[list[int]] = [[] for _ in range(int(layer[list(joined)].max()) + 1 if joined else 0)]
    for i in joined:
        rows[layer[i]].append(i)
    graph = _Rows(rows)
    bends = sum(int(layer[v] - layer[u]) - 1 for u, v in edges) <= MOST_BENDS
    new = len(layer)
    for u, v in edges:
        chain = [u]
        for depth in range(layer[u] + 1, layer[v]) if bends else ():
            rows[depth].append(new)
            chain.append(new)
            new += 1
        chain.append(v)
        graph.chains.append(chain)
        for a, b in pairwise(chain):
            graph.below.setdefault(a, []).append(b)
            graph.above.setdefault(b, []).append(a)
    return graph


def _untangle(graph: _Rows) -> None:
    """Sort each layer by the mean place of its neighbours, down and up, and keep the best."""
    best, fewest = [list(row) for row in graph.rows], _crossings(graph)
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        place = {i: k - len(row) / 2 for row in graph.rows for k, i in enumerate(row)}
        for row in graph.rows if down else reversed(graph.rows):
            near = graph.above if down else graph.below
            row.sort(key=lambda i: (float(np.mean([place[j] for j in near.get(i, [i])])), place[i]))
            place.update({i: k - len(row) / 2 for k, i in enumerate(row)})
        found = _crossings(graph)
        if found < fewest:
            best, fewest = [list(row) for row in graph.rows], found
    graph.rows[:] = best


def _crossings(graph: _Rows) -> int:
    total = 0
    place = {i: k for row in graph.rows for k, i in enumerate(row)}
    for row in graph.rows:
        ends = np.array([(place[i], place[j]) for i in row for j in graph.below.get(i, [])]).reshape(-1, 2)
        before = ends[:, 0][:, None] < ends[:, 0]
        total += int(np.count_nonzero(before & (ends[:, 1][:, None] > ends[:, 1])))
    return total


def _across(graph: _Rows, wide: np.ndarray) -> dict[int, float]:
    """Each layer as near to the middle of its neighbours as its order and widths allow."""
    n = len(wide)
    half = {i: (wide[i] / 2 if i < n else BEND / 2) for row in graph.rows for i in row}
    # edges that pass side by side may come closer than nodes
    gap = {i: GAP / 2 if i < n else GAP / 6 for i in half}
    offsets = [np.cumsum([0.0, *(half[a] + half[b] + gap[a] + gap[b] for a, b in pairwise(row))]) for row in graph.rows]
    x: dict[int, float] = {}
    for row, offset in zip(graph.rows, offsets, strict=True):
        x.update(zip(row, (offset - offset[-1] / 2).tolist(), strict=True))
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for k in range(len(graph.rows)) if down else reversed(range(len(graph.rows))):
            row = graph.rows[k]
            last = sweep >= 2 * SWEEPS - 2  # at the end, between causes and effects
            wish = np.array([_wish(i, graph, x, n, down, last) for i in row])
            # bends hold their line more firmly than nodes
            weight = np.array([1.0 if i < n else 3.0 for i in row])
            free = isotonic_regression(wish - offsets[k], sample_weight=weight)
            x.update(zip(row, (free + offsets[k]).tolist(), strict=True))
    left = min((x[i] - half[i] for i in x), default=0.0) - MARGIN
    return {i: float(value - left) for i, value in x.items()}


def _wish(i: int, graph: _Rows, x: dict[int, float], n: int, down: bool, both: bool) -> float:
    near = graph.above.get(i, []) if down else graph.below.get(i, [])
    if both or not near:
        near = graph.above.get(i, []) + graph.below.get(i, [])
    return float(np.mean([x[j] for j in near]))


def _place_alone(
    alone: Sequence[int], wide: np.ndarray, width: float, bottom: float, x: dict[int, float], y: dict[int, float]
) -> float:
    """Nodes without edges, in lines below the others; the new bottom."""
    left, line = MARGIN, bottom + (HEIGHT + 20 if alone else 0)
    for i in alone:
        if left > MARGIN and left + wide[i] > width:
            left, line = MARGIN, line + HEIGHT + 10
        x[i], y[i] = left + wide[i] / 2, line
        left += wide[i] + GAP
    return line


def _paths(
    chains: Sequence[Sequence[int]], wide: np.ndarray, x: dict[int, float], y: dict[int, float]
) -> list[list[tuple[float, float]]]:
    """Points of each edge; where several leave or enter a node, side by side."""
    out = _ports(chains, wide, x, leaving=True)
    into = _ports(chains, wide, x, leaving=False)
    paths = []
    for e, chain in enumerate(chains):
        u, v = chain[0], chain[-1]
        points = [(x[u] + out[e], y[u] + HEIGHT / 2)]
        points += [(x[i], y[i]) for i in chain[1:-1]]
        points.append((x[v] + into[e], y[v] - HEIGHT / 2 - 2))
        paths.append([(round(a, 1), round(b, 1)) for a, b in points])
    return paths


def _ports(chains: Sequence[Sequence[int]], wide: np.ndarray, x: dict[int, float], leaving: bool) -> dict[int, float]:
    at: dict[int, list[int]] = {}
    for e, chain in enumerate(chains):
        at.setdefault(chain[0] if leaving else chain[-1], []).append(e)
    offset = {}
    for i, meeting in at.items():
        meeting.sort(key=lambda e: (x[chains[e][1] if leaving else chains[e][-2]], e))
        step = min(10.0, (wide[i] - 14) / len(meeting))
        for k, e in enumerate(meeting):
            offset[e] = step * (k - (len(meeting) - 1) / 2)
    return offset
