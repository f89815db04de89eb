"""The search for order and graph, from starts to the answer (docs/math.md, The search).

Two questions: which order has most evidence (:mod:`latentdag.core.evidence`), and which of its edges are worth their
penalty? Many latents make the evidence too noisy; there the penalised score of the order's graph stands in for it. All
other matters of size are matters of effort.

1. *Climb.* From every start, walk each latent to its best place in the order with the rows adapting
   (:mod:`latentdag.core.orders`). Then look around: with few latents, move one latent at a time and refit the full
   order; with many, prune, refit and turn single edges round, because sparse graphs are cheaper and less noisy
   (:mod:`latentdag.core.graphs`).
2. *Compare.* Of all orders that came near the best, take the one with most evidence, or of the highest score.
3. *Edges.* Prune its edges, then add and drop single ones, each judged after a refit (:mod:`latentdag.core.toggles`).

Every step only ever accepts a higher value. How hard each tries is in :mod:`latentdag.core.effort`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.effort import (
    EVIDENCE_UP_TO,
    INSERT_UP_TO,
    LEAST_PATIENCE,
    MOST_ORDERS,
    NEAR,
    NEAR_ORDERS,
    ORDERS_BY_SIZE,
    PATIENCE,
    SWEEPS,
    WITHIN_REACH,
)
from latentdag.core.evidence import order_evidence
from latentdag.core.graphs import FittedGraph, Rules, climb_graphs, fit_graph, fit_pruned, perfect_rows, reverse_edges
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array
from latentdag.core.orders import Flag, Order, climb, climb_by_refits, fit_flag
from latentdag.core.toggles import toggle_edges


@dataclass(frozen=True)
class Found:
    """What a search returns.

    Attributes
    ----------
    best : FittedGraph
    values : tuple of float
        What each start led to, in nats: the value of its best rival.
    runner_up : (order, gap in nats) or None
        The next best order that was fitted and contradicts the graph. The gap is one of evidence where both orders were
        compared by evidence.
    """

    best: FittedGraph
    values: tuple[float, ...]
    runner_up: tuple[Order, float] | None


@dataclass(frozen=True)
class Rival:
    """An order that the search fitted on its way.

    Attributes
    ----------
    value : float
        How good it looked: the likelihood of the full order, or the score of a graph with that order. All rivals of one
        search have the same kind of value.
    H : (d, r) rows
    order : Order
    graph : the graph, where one was fitted
    """

    value: float
    H: Array
    order: Order
    graph: FittedGraph | None = None

    @classmethod
    def of_graph(cls, graph: FittedGraph) -> "Rival":
        """Return the rival whose value is the score of a graph."""
        return cls(graph.score, graph.optimum.H, graph.order, graph)


#: Where one start led: all orders that were fitted on the way, the best first.
End = list[Rival]


def linear_order(E: Array, permit: Callable[[Order], bool] = lambda order: True) -> Order:
    """Return the order that puts most of E forward: ``E[i, j] ≥ 0`` speaks for j before i.

    Repeated best insertion of one element, from a greedy start (least evidence of ancestors first).
    """
    ancestors, order = E.sum(axis=1) - np.diagonal(E), []
    for _ in range(len(E)):
        order.append(int(np.argmin(ancestors)))
        ancestors -= E[:, order[-1]]
        ancestors[order[-1]] = np.inf
    forward, columns = E - E.T, np.array(order)
    gain = np.zeros(len(E) + 1)  # of putting an element before each other one, and last
    for _ in range(100):
        before = tuple(order)
        for x in before:
            a = order.index(x)
            forward[x].take(columns).cumsum(out=gain[1:])
            best = int(gain.argmax())
            if gain[best] > gain[a] + 1e-12 * (1 + abs(gain[a])):
                del order[a]
                order.insert(best - (best > a), x)
                columns = np.array(order)
        if tuple(order) == before:
            break
    return tuple(order)


def search(design: Design, starts: Sequence[tuple[Array, Order]], rules: Rules) -> Found | None:
    """Return the best order and graph over all starts; None if no start has a likelihood."""
    return conclude(design, [climb_from(design, start, rules) for start in starts], rules)


@np.errstate(all="ignore")  # other processes have settings of their own
def climb_from(design: Design, start: tuple[Array, Order], rules: Rules) -> End:
    """Return the orders that a climb from one start has fitted; none if the start has no likelihood."""
    climbed = _by_insertions if design.d <= INSERT_UP_TO else _by_reversals
    return sorted(climbed(design, *start, rules), key=lambda rival: -rival.value)


def _by_insertions(design: Design, H: Array, order: Order, rules: Rules) -> list[Rival]:
    """Climb over full orders, every insertion of one latent judged after a refit."""
    walked = climb(design, H, order, rules.permit)
    start = fit_flag(design, walked.H, walked.order)
    if start is None:
        return []
    fitted: list[Flag] = [start]
    climb_by_refits(design, start, rules.permit, fitted.append)
    return [Rival(flag.value, flag.H, flag.order) for flag in fitted]


def _by_reversals(design: Design, H: Array, order: Order, rules: Rules) -> list[Rival]:
    """Climb over sparse graphs: prune, refit and walk, then turn single edges round."""
    walked = climb(design, H, order, rules.permit, sweeps=max(2, SWEEPS // design.d))
    start = climb_graphs(design, walked.H, walked.order, rules)
    if start is None:
        return []
    fitted: list[FittedGraph] = []
    best = reverse_edges(design, start, rules, max(LEAST_PATIENCE, PATIENCE // design.d), fitted.append)
    return [Rival.of_graph(graph) for graph in (best, *fitted)]


def conclude(design: Design, ends: Sequence[End], rules: Rules) -> Found | None:
    """Compare the orders that all starts led to, and fit the graph of the best to the last digit."""
    ends = _with_edges(design, [end for end in ends if end], rules)
    if not ends:
        return None
    rivals = _best_of_each_order(rival for end in ends for rival in end)
    chosen, gaps = _most_evidence(design, rivals, rules)
    graph = chosen.graph or fit_pruned(design, perfect_rows(design, chosen.H, chosen.order), chosen.order, rules)
    if graph is None:
        return None
    graph = toggle_edges(design, graph, rules)
    best = fit_graph(design, graph.optimum.H, graph.parents, graph.order, rules) or graph
    against = sorted((gap, order) for order, gap in gaps.items() if _contradicts(order, best))
    return Found(best, tuple(end[0].value for end in ends), (against[0][1], against[0][0]) if against else None)


def _with_edges(design: Design, ends: Sequence[End], rules: Rules) -> list[End]:
    """Add and drop single edges of each end's best graph, if it is near the best; starts often lead to the same one."""
    top, done = max((end[0].value for end in ends), default=0.0), {}
    toggled: list[End] = []
    for best, *others in ends:
        if best.graph is not None and best.value > top - WITHIN_REACH:
            key = tuple(tuple(parents.tolist()) for parents in best.graph.parents)
            if key not in done:
                done[key] = Rival.of_graph(toggle_edges(design, best.graph, rules))
            best = done[key]
        toggled.append([best, *others])
    return toggled


def _best_of_each_order(rivals: Iterable[Rival]) -> list[Rival]:
    best: dict[Order, Rival] = {}
    for rival in rivals:
        if rival.order not in best or rival.value > best[rival.order].value:
            best[rival.order] = rival
    return sorted(best.values(), key=lambda rival: -rival.value)


def _most_evidence(design: Design, ranked: Sequence[Rival], rules: Rules) -> tuple[Rival, dict[Order, float]]:
    """Return the rival with most evidence, and by how many nats every order is behind."""
    gaps = {rival.order: ranked[0].value - rival.value for rival in ranked}
    reach = NEAR_ORDERS if ranked[0].graph is None else NEAR  # scores of rivals that were fitted in passing are rough
    most = min(MOST_ORDERS, ORDERS_BY_SIZE // design.d) if design.d <= EVIDENCE_UP_TO else 1
    near = [rival for rival in ranked[:most] if gaps[rival.order] < reach]
    if len(near) < 2 or any(design.soft):  # soft interventions leave edges within the order open
        return ranked[0], gaps
    evidence = {}
    for rival in near:
        full = fit_flag(design, rival.H, rival.order) if rival.graph else Flag(rival.value, rival.H, rival.order)
        evidence[rival.order] = -np.inf if full is None else order_evidence(design, full, rules)
    chosen = max(near, key=lambda rival: evidence[rival.order])
    return chosen, gaps | {order: evidence[chosen.order] - value for order, value in evidence.items()}


def _contradicts(order: Order, best: FittedGraph) -> bool:
    """Tell whether an order turns some edge of the graph round; other orders say the same as the best."""
    position = np.argsort(order)
    return any(position[j] > position[i] for i, parents in enumerate(best.parents) for j in parents)
