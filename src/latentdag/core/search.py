"""The search for order and graph, from starts to the answer (MATH.md 3.4).

Few latents: climb over full orders from every start, one latent moved at a time, each move judged after refitting the
unmixing, and of the likeliest take the one with most evidence. Many latents: walk latents to their places with the rows
adapting, then go on with sparse graphs, which are cheaper and less noisy: prune, refit, walk again, turn edges round,
all under the penalised likelihood. The graph is what is worth its penalty: single edges are added and dropped to the
end. Every step only ever accepts a higher value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.evidence import order_evidence
from latentdag.core.graphs import (
    Candidate,
    Rules,
    climb_graphs,
    fit_graph,
    fit_pruned,
    perfect_rows,
    reverse_edges,
)
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array
from latentdag.core.orders import Flag, Order, climb, climb_by_refits, fit_flag
from latentdag.core.toggles import toggle_edges

#: Up to this many latents, all moves of one latent are tried over full orders, from every start.
FEW = 8

#: Sweeps over the full order before sparse graphs, which are more accurate, take over: this many over the number of
#: latents, because a sweep costs more the more there are.
SWEEPS = 320

#: Nats that adding and dropping single edges may make good between the ends of two starts.
WITHIN_REACH = 30.0

#: Full orders this many nats behind the likeliest may have more evidence, and how many of them are looked at.
NEAR_ORDERS, MOST_ORDERS = 4.0, 12


@dataclass(frozen=True)
class Found:
    """What a search returns.

    Attributes
    ----------
    best : Candidate
    values : tuple of float
        What each start led to: the likelihood of its best full order (few latents) or its best score (many).
    runner_up : (order, gap in nats) or None
        The next best order that was fitted to the end and contradicts the graph: by evidence for few latents, by score
        for many.
    """

    best: Candidate
    values: tuple[float, ...]
    runner_up: tuple[Order, float] | None


def linear_order(E: Array, permit: Callable[[Order], bool] = lambda order: True) -> Order:
    """The order that puts most evidence forward: ``E[i, j] ≥ 0`` speaks for j before i.

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


@dataclass(frozen=True)
class End:
    """Where one start led.

    Attributes
    ----------
    value : float
        The likelihood of the best full order (few latents), or the score of the best graph (many).
    flags : full orders fitted to the end on the way (few)
    graph : the best graph (many)
    scores : of all orders fitted on the way (many)
    """

    value: float
    flags: Mapping[Order, Flag]
    graph: Candidate | None
    scores: Mapping[Order, float]


def search(design: Design, starts: Sequence[tuple[Array, Order]], rules: Rules) -> Found | None:
    """The best order and graph over all starts; None if no start has a likelihood."""
    return conclude(design, [climb_from(design, start, rules) for start in starts], rules)


@np.errstate(all="ignore")  # other processes have settings of their own
def climb_from(design: Design, start: tuple[Array, Order], rules: Rules) -> End | None:
    """The best order, and for many latents graph, that can be reached from one start."""
    return (_few if design.d <= FEW else _many)(design, *start, rules)


def conclude(design: Design, found: Sequence[End | None], rules: Rules) -> Found | None:
    """The best graph of all ends, fitted to the last digit, and its rivals."""
    ends = [end for end in found if end is not None]
    concluded = (_conclude_few if design.d <= FEW else _conclude_many)(design, ends, rules) if ends else None
    if concluded is None:
        return None
    best, values, gaps = concluded
    best = fit_graph(design, best.optimum.H, best.parents, best.order, rules) or best
    rivals = sorted((gap, order) for order, gap in gaps.items() if _contradicts(order, best))
    return Found(best, values, (rivals[0][1], rivals[0][0]) if rivals else None)


#: A graph, what each start led to, and by how many nats every order that was fitted is behind.
Concluded = tuple[Candidate, tuple[float, ...], dict[Order, float]]


def _conclude_few(design: Design, ends: Sequence[End], rules: Rules) -> Concluded | None:
    """The order of most evidence among the likeliest, and its edges."""
    flags: dict[Order, Flag] = {}
    for flag in (flag for end in ends for flag in end.flags.values()):
        if flag.order not in flags or flag.value > flags[flag.order].value:
            flags[flag.order] = flag
    ranked = sorted(flags.values(), key=lambda flag: -flag.value)
    gaps = {flag.order: ranked[0].value - flag.value for flag in ranked}
    chosen, near = ranked[0], [flag for flag in ranked[:MOST_ORDERS] if gaps[flag.order] < NEAR_ORDERS]
    if len(near) > 1 and not any(design.soft):  # soft interventions leave edges within the order open
        evidence = {flag.order: order_evidence(design, flag, rules) for flag in near}
        chosen = max(near, key=lambda flag: evidence[flag.order])
        gaps |= {order: evidence[chosen.order] - value for order, value in evidence.items()}
    best = fit_pruned(design, perfect_rows(design, chosen.H, chosen.order), chosen.order, rules)
    return None if best is None else (toggle_edges(design, best, rules), tuple(end.value for end in ends), gaps)


def _conclude_many(design: Design, ends: Sequence[End], rules: Rules) -> Concluded:
    """The graph of the highest score once single edges have been added and dropped."""
    toggled = _toggled(design, [end.graph for end in ends if end.graph is not None], rules)
    top = max(end.value for end in ends)
    gaps: dict[Order, float] = {}
    for order, score in (item for end in ends for item in end.scores.items()):
        gaps[order] = min(top - score, gaps.get(order, np.inf))
    return max(toggled, key=lambda graph: graph.score), tuple(graph.score for graph in toggled), gaps


def _toggled(design: Design, candidates: Sequence[Candidate], rules: Rules) -> list[Candidate]:
    """Candidates near the best with single edges added and dropped; starts often lead to one and the same."""
    found: list[Candidate] = []
    top, done = max(candidate.score for candidate in candidates), {}
    for candidate in candidates:
        graph = tuple(tuple(parents.tolist()) for parents in candidate.parents)
        if graph not in done and candidate.score > top - WITHIN_REACH:
            done[graph] = toggle_edges(design, candidate, rules)
        found.append(done.get(graph, candidate))
    return found


def _contradicts(order: Order, best: Candidate) -> bool:
    """Whether an order turns some edge of the graph round; other orders say the same as the best."""
    position = np.argsort(order)
    return any(position[j] > position[i] for i, parents in enumerate(best.parents) for j in parents)


def _few(design: Design, H: Array, order: Order, rules: Rules) -> End | None:
    flag = climb(design, H, order, rules.permit)
    start = fit_flag(design, flag.H, flag.order)
    if start is None:
        return None
    flags = {start.order: start}

    def notice(flag: Flag) -> None:
        flags[flag.order] = flag

    end = climb_by_refits(design, start, rules.permit, notice)
    return End(end.value, flags, None, {})


def _many(design: Design, H: Array, order: Order, rules: Rules) -> End | None:
    flag = climb(design, H, order, rules.permit, sweeps=max(2, SWEEPS // design.d))
    best = climb_graphs(design, flag.H, flag.order, rules)
    if best is None:
        return None
    scores: dict[Order, float] = {}

    def notice(candidate: Candidate) -> None:
        scores[candidate.order] = max(candidate.score, scores.get(candidate.order, -np.inf))

    best = reverse_edges(design, best, rules, patience=max(5, 400 // design.d), notice=notice)
    return End(best.score, {}, best, scores)
