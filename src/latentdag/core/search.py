"""The search for order and graph, from starts to the answer (docs/math.md, The search).

One question: which graph has most evidence (:mod:`latentdag.core.evidence`)? Size is a matter of effort only.

1. *Climb.* From every start, walk each latent to its best place in the order with the rows adapting
   (:mod:`latentdag.core.orders`). Then look around: with few latents, move one latent at a time and refit the full
   order; with many, prune, refit and turn single edges round, because sparse graphs are cheaper and less noisy
   (:mod:`latentdag.core.graphs`). Here the likelihood of full orders and the penalised score of graphs show the way.
2. *Weigh.* The graphs of all orders that came near the best, and what single edges more, fewer or turned round lead to,
   are compared by their evidence (:mod:`latentdag.core.posterior`), from which the probabilities of edges follow, too.

How hard each tries is in :mod:`latentdag.core.effort`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.edge_estimates import all_adapt
from latentdag.core.effort import (
    INSERT_UP_TO,
    KICKS_BY_SIZE,
    LEAST_PATIENCE,
    NEAR,
    NOISY_COSTS,
    PATIENCE,
    SEARCH_KICKS,
    SEEDS,
    SWEEPS,
)
from latentdag.core.graphs import FittedGraph, Rules, climb_graphs, fit_graph, reverse_edges
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array
from latentdag.core.orders import Flag, Order, climb, climb_by_refits, fit_flag
from latentdag.core.posterior import Explorer, Posterior


@dataclass(frozen=True)
class Found:
    """What a search returns.

    Attributes
    ----------
    best : FittedGraph
    values : tuple of float
        What each start led to, in nats: the evidence of its best graph.
    posterior : Posterior or None
        The graphs that were weighed; None where there was nothing to choose.
    """

    best: FittedGraph
    values: tuple[float, ...]
    posterior: Posterior | None = None


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
def climb_from(design: Design, start: tuple[Array, Order], rules: Rules, warm: bool = False) -> End:
    """Return the orders that a climb from one start has fitted; none if the start has no likelihood.

    A ``warm`` start has the rows of a graph for data like these.
    """
    few = design.d <= INSERT_UP_TO
    found = _by_insertions(design, *start, rules) if few else _by_reversals(design, *start, rules, warm)
    return sorted(found, key=lambda rival: -rival.value)


def _by_insertions(design: Design, H: Array, order: Order, rules: Rules) -> list[Rival]:
    """Climb over full orders, every insertion of one latent judged after a refit."""
    walked = climb(design, H, order, rules.permit)
    start = fit_flag(design, walked.H, walked.order)
    if start is None:
        return []
    fitted: list[Flag] = [start]
    climb_by_refits(design, start, rules.permit, fitted.append)
    return [Rival(flag.value, flag.H, flag.order) for flag in fitted]


def _by_reversals(design: Design, H: Array, order: Order, rules: Rules, warm: bool) -> list[Rival]:
    """Climb over sparse graphs: prune, refit and walk, then turn single edges round."""
    if not warm:  # a walk over the full order would lose what the graph knew
        walked = climb(design, H, order, rules.permit, sweeps=max(2, SWEEPS // design.d))
        H, order = walked.H, walked.order
    start = climb_graphs(design, H, order, rules)
    if start is None:
        return []
    fitted: list[FittedGraph] = []
    best = reverse_edges(design, start, rules, max(LEAST_PATIENCE, PATIENCE // design.d), fitted.append)
    return [Rival.of_graph(graph) for graph in (best, *fitted)]


def conclude(design: Design, ends: Sequence[End], rules: Rules, turn: bool = True) -> Found | None:
    """Weigh the graphs of all orders that came near the best, and fit the most probable one to the last digit.

    Parameters
    ----------
    turn : bool
        Whether to look for further graphs that the data leave open, without which probabilities are too sure.
    """
    ends = [end for end in ends if end]
    explorer = Explorer(design, rules)
    values = [_enter(explorer, end[0]) for end in ends]
    if not explorer.known:
        return None
    ranked = sorted((rival for end in ends for rival in end), key=lambda rival: -rival.value)
    for rival in ranked:
        if len(explorer.known) >= SEEDS * explorer.most or rival.value < ranked[0].value - NEAR:
            break
        _enter(explorer, rival)
    # what shows the way beneath noise is an estimate, and full orders of it can lead into wrong maxima
    if turn and (design.d > INSERT_UP_TO or design.noisy is not None):
        kicks = min(SEARCH_KICKS // design.d, KICKS_BY_SIZE // design.d**3)
        explorer.kick(kicks // (1 if design.noisy is None else NOISY_COSTS))
    if not all_adapt(design):
        explorer.climb(explorer.best)
    posterior = explorer.explored() if turn else explorer.posterior(False)
    graph = posterior.best.graph
    best = fit_graph(design, graph.optimum.H, graph.parents, graph.order, rules) or graph
    return Found(best, tuple(value for value in values if value is not None), posterior)


def _enter(explorer: Explorer, rival: Rival) -> float | None:
    """Return the evidence of what a rival leads to; None if it has none, or is far behind."""
    if rival.graph is None:
        found = explorer.enter_order(rival.H, rival.order)
    elif explorer.known and rival.graph.score < explorer.best.graph.score - NEAR:
        return None
    else:
        found = explorer.enter(rival.graph)
    return None if found is None else found.evidence
