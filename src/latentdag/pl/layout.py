"""Where to draw the latents of a graph: rows of causes above rows of effects, with few crossings.

This is Sugiyama's method, for figures and for the page of a report. Every latent stands as high as its longest path
from a source allows. An edge that passes a row gets a bend in it, so that the edge runs between names and not through
them. Sweeps up and down sort each row by its neighbours, which removes crossings. Then each item moves as near to its
neighbours as the room of the others allows, which is an isotonic regression. The same graph gives the same drawing.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np
from scipy.optimize import isotonic_regression

#: Sweeps over all rows: to remove crossings, and to place items across.
SWEEPS = 24

#: Bends beyond which edges run straight: nobody follows single edges in such a drawing.
MOST_BENDS = 2500

#: Latents that a row may hold; more in graphs of so many latents that they would give very many rows.
ROW_LENGTH = 8

#: How firmly a bend keeps its line, compared with a name: straight edges are easy to follow.
FIRMNESS = 3.0

Edge = tuple[str, str]
Point = tuple[float, float]
Row = list[Hashable]


class Layout(NamedTuple):
    """A drawing: across in the unit of the names' room, from 0 to ``width``; down in rows, from 0 to ``height``.

    Attributes
    ----------
    width, height : float
    place : mapping of latent to its middle
    bends : mapping of edge to its bend in each row that it passes, from cause to effect
    """

    width: float
    height: float
    place: dict[str, Point]
    bends: dict[Edge, list[Point]]

    def moved(self, left: float, top: float, step: float, width: float, height: float) -> "Layout":
        """Return the drawing within a sheet of this size: the first row at ``top``, each ``step`` further."""
        place = {name: (left + x, top + step * row) for name, (x, row) in self.place.items()}
        bends = {edge: [(left + x, top + step * row) for x, row in points] for edge, points in self.bends.items()}
        return Layout(width, height, place, bends)

    def routes(
        self, edges: Sequence[Edge], widths: Mapping[str, float], reach: Mapping[str, tuple[float, float]], gap: float
    ) -> list[list[Point]]:
        """Return each edge as a Bézier curve: its first point, then three for each stretch.

        Edges leave and enter names upright, those that meet on one side of a name side by side.

        Parameters
        ----------
        edges : (cause, effect) pairs; one that was not laid out has no bends
        widths : mapping of latent to the width in which edges may meet
        reach : mapping of latent to how far it reaches from its middle towards smaller and towards larger y
        gap : between edges that meet, where there is room
        """
        chains = [[self.place[a], *self.bends.get((a, b), ()), self.place[b]] for a, b in edges]
        starts = [(cause, chain[1]) for (cause, _), chain in zip(edges, chains, strict=True)]
        ends = [(effect, chain[-2]) for (_, effect), chain in zip(edges, chains, strict=True)]
        meets = self._ports([*starts, *ends], widths, reach, gap)
        for chain, start, end in zip(chains, meets, meets[len(edges) :], strict=False):
            chain[0], chain[-1] = start, end
        return [_upright(chain) for chain in chains]

    def _ports(
        self,
        ends: list[tuple[str, Point]],
        widths: Mapping[str, float],
        reach: Mapping[str, tuple[float, float]],
        gap: float,
    ) -> list[Point]:
        """Return where edges meet names, by the name and the point that an edge comes from or goes to."""
        meeting: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for number, (name, (_, y)) in enumerate(ends):
            meeting[name, y > self.place[name][1]].append(number)
        found = [(0.0, 0.0)] * len(ends)
        for (name, larger), numbers in meeting.items():
            (x, y), space = self.place[name], min(gap, 0.7 * widths[name] / len(numbers))
            at = y + (reach[name][1] if larger else -reach[name][0])
            for place, number in enumerate(sorted(numbers, key=lambda number: ends[number][1][0])):
                found[number] = (x + space * (place - (len(numbers) - 1) / 2), at)
        return found


def _upright(points: list[Point]) -> list[Point]:
    """Return a Bézier curve through the points that is upright at each, so that it passes between names."""
    curve = points[:1]
    for (x, y), (a, b) in pairwise(points):
        curve += [(x, (y + b) / 2), (a, (y + b) / 2), (a, b)]
    return curve


def layered(graph: nx.DiGraph, room: Mapping[str, float], bend: tuple[float, float, float]) -> Layout:
    """Lay out an acyclic graph in rows; latents without any edge come last.

    Parameters
    ----------
    graph : DiGraph over names
    room : mapping of name to the room that it takes across
    bend : (least, most, together)
        Room that a bend takes across, at least and at most, and that all bends of a row may take together.

    Examples
    --------
    >>> import networkx as nx
    >>> drawing = layered(nx.DiGraph([("a", "b"), ("a", "c")]), {"a": 2, "b": 2, "c": 2}, (1, 1, 1))
    >>> drawing.place
    {'a': (2.0, 0), 'b': (1.0, 1), 'c': (3.0, 1)}
    """
    loners = sorted(nx.isolates(graph))
    linked = graph.subgraph(set(graph) - set(loners))
    rows, chains = _with_bends(linked, _bounded(_layers(linked)))
    links: nx.Graph = nx.Graph()
    for (cause, effect), bends in chains.items():
        nx.add_path(links, [cause, *bends, effect])
    rows = _uncrossed(rows, links)
    crowd = max((sum(not isinstance(item, str) for item in row) for row in rows), default=0)
    least, most, together = bend
    size: dict[Hashable, float] = dict.fromkeys(links, min(max(together / max(crowd, 1), least), most)) | dict(room)
    x = _coordinates(rows, links, size)
    middle = 0.5 * (min(x.values(), default=0.0) + max(x.values(), default=0.0))
    for row in _bounded([loners]):
        room_of_row = np.array([room[name] for name in row])
        start = np.cumsum(room_of_row) - 0.5 * room_of_row
        x.update(zip(row, (start - start.mean() + middle).tolist(), strict=True))
        rows.append(list(row))
    left = min(x[item] - 0.5 * size[item] for item in x)
    width = max(x[item] + 0.5 * size[item] for item in x) - left
    points: dict[Hashable, Point] = {item: (x[item] - left, number) for number, row in enumerate(rows) for item in row}
    place = {item: point for item, point in points.items() if isinstance(item, str)}
    return Layout(
        width, len(rows) - 1, place, {edge: [points[item] for item in chain] for edge, chain in chains.items()}
    )


def _layers(graph: nx.DiGraph) -> list[list[str]]:
    """Return latents by their longest path from a source; sources come down to just above their first effect."""
    depth = {name: number for number, layer in enumerate(nx.topological_generations(graph)) for name in layer}
    depth |= {name: min(depth[effect] for effect in graph[name]) - 1 for name in graph if not graph.in_degree(name)}
    return [sorted(name for name in graph if depth[name] == number) for number in sorted(set(depth.values()))]


def _bounded(layers: list[list[str]]) -> list[list[str]]:
    """Return the layers as rows of bounded length; a layer without latents gives no row."""
    longest = max(ROW_LENGTH, int(np.ceil(1.2 * np.sqrt(sum(map(len, layers))))))
    rows = []
    for layer in layers:
        n_rows = -(-len(layer) // longest)
        rows += [layer[start::n_rows] for start in range(n_rows)]
    return rows


def _with_bends(graph: nx.DiGraph, rows: list[list[str]]) -> tuple[list[Row], dict[Edge, Row]]:
    """Return rows with a bend for every edge that passes them, and the bends of each edge."""
    depth = {name: number for number, row in enumerate(rows) for name in row}
    passed = {(u, v): range(depth[u] + 1, depth[v]) for u, v in graph.edges}
    if sum(map(len, passed.values())) > MOST_BENDS:
        passed = dict.fromkeys(passed, range(0))
    full: list[Row] = [list(row) for row in rows]
    for edge, numbers in passed.items():
        for number in numbers:
            full[number].append((*edge, number))
    return full, {edge: [(*edge, number) for number in numbers] for edge, numbers in passed.items()}


def _uncrossed(rows: list[Row], links: nx.Graph) -> list[Row]:
    """Sort each row by the mean place of its neighbours above, then below, in turns; return the best rows seen."""
    number = {item: k for k, row in enumerate(rows) for item in row}
    place = {item: k - len(row) / 2 for row in rows for k, item in enumerate(row)}
    below = {item: [other for other in links[item] if number[other] > number[item]] for item in number}
    above = {item: [other for other in links[item] if number[other] < number[item]] for item in number}
    best, fewest = [list(row) for row in rows], _crossings(rows, below, place)
    for sweep in range(SWEEPS):
        near, step = (above, 1) if sweep % 2 == 0 else (below, -1)
        for row in rows[::step]:
            row.sort(key=lambda item: (_mean(place, near[item] or [item]), place[item]))
            place.update({item: k - len(row) / 2 for k, item in enumerate(row)})
        found = _crossings(rows, below, place)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _crossings(rows: list[Row], below: Mapping[Hashable, Row], place: Mapping[Hashable, float]) -> int:
    """Return the number of pairs of edges that cross between neighbouring rows."""
    total = 0
    for row in rows:
        ends = np.array([(place[item], place[other]) for item in row for other in below[item]]).reshape(-1, 2)
        left_of = ends[:, 0][:, None] < ends[:, 0]
        total += int(np.count_nonzero(left_of & (ends[:, 1][:, None] > ends[:, 1])))
    return total


def _coordinates(rows: list[Row], links: nx.Graph, size: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Place each item near the mean of its neighbours, as far as the room of the others in its row allows."""
    x: dict[Hashable, float] = {}
    starts = []
    for row in rows:
        room = np.array([size[item] for item in row])
        starts.append(np.cumsum(room) - 0.5 * room)  # the closest that items can stand
        x.update(zip(row, (starts[-1] - 0.5 * room.sum()).tolist(), strict=True))
    for _ in range(SWEEPS):
        for row, start in zip(rows, starts, strict=True):
            wanted = np.array([_mean(x, list(links[item])) for item in row])
            weight = [1.0 if isinstance(item, str) else FIRMNESS for item in row]
            x.update(zip(row, (isotonic_regression(wanted - start, weights=weight).x + start).tolist(), strict=True))
    return x


def _mean(values: Mapping[Hashable, float], items: Row) -> float:
    return sum(values[item] for item in items) / len(items)
