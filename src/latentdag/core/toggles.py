"""Add and drop single edges of a fitted DAG, each judged after a refit (docs/math.md, The search)."""

from collections.abc import Sequence

import numpy as np

from latentdag.core.edge_gains import edge_gains
from latentdag.core.effort import ALL_ADAPT_UP_TO, GAIN_OF_A_MOVE, GAIN_OF_EDGES, TRY_IF_ALL_ADAPT, TRY_IF_ONE_ADAPTS
from latentdag.core.graphs import FittedGraph, Rules, TwoRegressions, fit_graph
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.orders import Order


def toggle_edges(design: Design, best: FittedGraph, rules: Rules) -> FittedGraph:
    """Add or drop edges near the border of significance, most promising first, while the score grows.

    An edge may be added against the order if that closes no cycle; the order then follows.
    """
    sure, changed, tried = _all_adapt(design), True, set[tuple[int, int]]()
    while changed:
        changed = False
        for i, j in _borderline(design, best, rules):
            if (i, j) in tried and not sure:  # there are too many to try them again
                continue
            parents = list(best.parents)
            parents[i] = np.setxor1d(parents[i], [j]).astype(np.intp)
            order = best.order if j in best.parents[i] else order_with_edge(best.order, best.parents, i, j)
            if order is None:  # an edge that was added before it has come in the way
                continue
            found = fit_graph(
                design, best.optimum.H, parents, order, rules, gain_tol=GAIN_OF_EDGES, at_least=best.score
            )
            tried.add((i, j))
            if found is not None and found.score > best.score + GAIN_OF_A_MOVE:
                best, changed = found, True
                if not sure:  # what the others are worth has changed too much
                    break
    return best


def _all_adapt(design: Design) -> bool:
    """Return True if edge gains can be computed with every row of H free to adapt."""
    return design.d <= ALL_ADAPT_UP_TO and not any(design.soft)


def order_with_edge(order: Order, parents: Sequence[IntArray], i: int, j: int) -> Order | None:
    """Return an order of the graph with j → i added, near the present one; None if the edge closes a cycle."""
    first, last = order.index(i), order.index(j)
    if last < first:
        return order
    behind = {i}
    for x in order[first : last + 1]:
        if behind.intersection(parents[x].tolist()):
            behind.add(x)
    if j in behind:
        return None
    stretch = order[first : last + 1]
    moved = (*(x for x in stretch if x not in behind), *(x for x in stretch if x in behind))
    return (*order[:first], *moved, *order[last + 1 :])


def _borderline(design: Design, best: FittedGraph, rules: Rules) -> list[tuple[int, int]]:
    """Return the pairs (child, parent) whose edge may be better dropped or added, most promising first."""
    d = design.d
    present, ancestors = np.zeros((d, d), dtype=bool), np.zeros((d, d), dtype=bool)
    for i in best.order:
        present[i, best.parents[i]] = True
        ancestors[i] = present[i] | ancestors[best.parents[i]].any(axis=0)
    absent = rules.allowed & ~present & ~ancestors.T & ~np.eye(d, dtype=bool)
    if _all_adapt(design):
        worth, (drop, add) = edge_gains(design, best.optimum, best.parents, absent), TRY_IF_ALL_ADAPT
    else:
        worth, (drop, add) = _gains_in_order(design, best, present), TRY_IF_ONE_ADAPTS
    ratio = np.maximum(worth, 1e-12) / max(rules.penalty, 1e-12)
    loss = np.where(present, ratio / drop, add / ratio)
    near = (loss < 1) & (present | absent) & ~rules.required
    return [(int(i), int(j)) for _, i, j in sorted((loss[i, j], i, j) for i, j in np.argwhere(near))]


def _gains_in_order(design: Design, best: FittedGraph, present: BoolArray) -> Array:
    """Return the gain (d, d) in nats of edges forward in the order, with only the child's row free to adapt."""
    regress, worth = TwoRegressions(design, best.optimum.H, best.order), np.zeros((design.d, design.d))
    for t, i in enumerate(best.order[1:], start=1):
        before = list(best.order[:t])
        worth[i, before] = _costs(*regress.weights(t), present[i, before])
    return worth


def _costs(delta: Array, V: Array, kept: BoolArray) -> Array:
    """Return the nats that each entry gains, given that those not kept are gone."""
    cost, gone = np.empty(len(delta)), ~kept
    W = np.linalg.inv(V[np.ix_(gone, gone)])
    pull = W @ delta[gone]
    cost[gone] = 0.5 * pull**2 / np.diagonal(W)
    V_kg = V[np.ix_(kept, gone)]
    left = delta[kept] - V_kg @ pull
    cost[kept] = 0.5 * left**2 / (np.diagonal(V)[kept] - np.einsum("ij,jk,ik->i", V_kg, W, V_kg))
    return cost
