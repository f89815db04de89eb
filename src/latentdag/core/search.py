"""The search for the order and the graph of a latent DAG (MATH.md 3.4, with better moves).

**Flags.** If every earlier latent may be a parent, a latent's row can be changed by any multiple of earlier rows without
changing the likelihood: its regression on the earlier ones absorbs it, in the contexts that leave it alone and in those
that target it. So a *full order* has a likelihood that depends only on the flag of spans of its rows, and at fixed rows
each latent's part of it needs two residual variances given its predecessors. Those parts make moves in the order cheap.

**Edges.** For a perfect intervention the weight of an edge j → i is the *difference* between the coefficient of j in the
contexts that leave i alone and in those that target it, where the true one is zero because ``h_i`` is what is left of i
there. So leaving out edges is a Wald test on the difference of two regressions, whose covariance is the sum of theirs.
Testing with ``h_i`` held fixed would be far too optimistic about edges: moving ``h_i`` can nearly undo them.

**Search.** Few latents: climb over full orders from every start, one latent moved at a time, each promising move judged
after refitting the unmixing. Many latents: first find the neighbourhood with sparse graphs, which are cheaper and less
noisy: prune, refit, prune again at the new rows, improve the order at the new rows, turn single edges round, all under the
penalised likelihood; then climb over full orders from there. The order is the best full order found; the graph is what
is worth its penalty in that order. Every step only ever accepts a higher value.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentdag.core.likelihood import Design, node_cost
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.optimize import Optimum, maximize

Order = tuple[int, ...]  # rows, sources first

#: Up to this many latents, all moves of one latent are tried over full orders from every start.
FEW = 8

#: Orders that come within this many nats of the best are fitted to the end, so that runners-up are known.
NEAR = 10.0


@dataclass(frozen=True)
class Candidate:
    """A DAG with its maximum-likelihood unmixing."""

    score: float
    optimum: Optimum
    parents: tuple[IntArray, ...]
    order: Order


@dataclass(frozen=True)
class Rules:
    """What the user or the design says about edges.

    Attributes
    ----------
    penalty : float
        Nats that an edge must be worth.
    allowed : (d, d) bool, ``[i, j]`` iff j may be a parent of i
    required : (d, d) bool, edges that stay
    """

    penalty: float
    allowed: BoolArray
    required: BoolArray

    def permit(self, order: Order) -> bool:
        """Whether the order lets every required edge point forward."""
        position = np.argsort(order)
        i, j = np.nonzero(self.required)
        return bool((position[j] < position[i]).all())


def linear_order(E: Array, start: Sequence[int] | None = None) -> Order:
    """The order that puts most evidence forward: ``E[i, j] ≥ 0`` speaks for j before i.

    Repeated best insertion of one element, from a greedy start (least evidence of ancestors first).
    """
    d = len(E)
    order = list(start) if start is not None else _greedy_order(E)
    for _ in range(100):
        changed = False
        for x in tuple(order):
            a = order.index(x)
            rest = order[:a] + order[a + 1 :]
            gain = np.concatenate([[0.0], np.cumsum(E[x, rest] - E[rest, x])])
            best = int(np.argmax(gain))
            if gain[best] > gain[a] + 1e-12 * (1 + abs(gain[a])):
                order = [*rest[:best], x, *rest[best:]]
                changed = True
        if not changed or d < 2:
            break
    return tuple(order)


def _greedy_order(E: Array) -> list[int]:
    left, order = list(range(len(E))), []
    while left:
        rest = E[np.ix_(left, left)].sum(axis=1)
        order.append(left.pop(int(np.argmin(rest))))
    return order


def full_parents(order: Order, allowed: BoolArray | None = None) -> tuple[IntArray, ...]:
    """All predecessors of each latent, in index order; only the allowed ones if given."""
    parents: list[IntArray] = [np.empty(0, dtype=np.intp)] * len(order)
    for t, i in enumerate(order):
        before = np.array(sorted(order[:t]), dtype=np.intp)
        parents[i] = before if allowed is None else before[allowed[i, before]]
    return tuple(parents)


class FixedRows:
    """Every latent's part of the flag likelihood, at fixed rows H."""

    def __init__(self, design: Design, H: Array):
        self.design = design
        self.alone = H @ design.S_minus @ H.T
        self.each = H @ design.S @ H.T
        self.hits = [[k for k, rows in enumerate(design.hits) if i in rows] for i in range(design.d)]
        self._known: dict[tuple[int, frozenset[int]], float] = {}

    def part(self, i: int, before: Sequence[int]) -> float:
        """Latent i's part when it comes after exactly these."""
        key = (i, frozenset(before))
        if key not in self._known:
            A = np.array(sorted(before), dtype=np.intp)
            value = -0.5 * self.design.n_minus[i] * node_cost(self.alone[i], i, A)
            for k in self.hits[i]:
                value -= 0.5 * self.design.n[k] * node_cost(self.each[k], i, A)
            self._known[key] = float(value)
        return self._known[key]

    def total(self, order: Order) -> float:
        return sum(self.part(i, order[:t]) for t, i in enumerate(order))

    def improved(self, order: Order, permit: Callable[[Order], bool]) -> Order:
        """Insertion moves, each to the best place, until none helps."""
        now = list(order)
        for _ in range(50):
            changed = False
            for x in tuple(now):
                place = self._best_place(now, x)
                if place != now.index(x):
                    rest = [y for y in now if y != x]
                    moved = [*rest[:place], x, *rest[place:]]
                    if permit(tuple(moved)):
                        now, changed = moved, True
            if not changed:
                break
        return tuple(now)

    def _best_place(self, order: list[int], x: int) -> int:
        """Where x gains most, walking left and right from where it is by swaps with its neighbours."""
        a = order.index(x)
        best, place = 1e-6, a
        for step in (-1, 1):
            gain, walked, at = 0.0, list(order), a
            while 0 <= at + step < len(order):
                y = walked[at + step]
                first, second = (x, y) if step < 0 else (y, x)  # who comes first after the swap
                before = walked[: min(at, at + step)]
                gain += self.part(first, before) + self.part(second, [*before, first])
                gain -= self.part(second, before) + self.part(first, [*before, second])
                walked[at], walked[at + step] = y, x
                at += step
                if gain > best:
                    best, place = gain, at
        return place

    def two_regressions(self, i: int, A: IntArray) -> tuple[Array, Array, Array]:
        """Coefficients of i on A where it is left alone and where it is targeted, and the covariance of the difference."""
        b_0, V_0 = _regression(self.alone[i], i, A, self.design.n_minus[i])
        precision, pull = np.zeros((len(A), len(A))), np.zeros(len(A))
        for k in self.hits[i]:
            b_k, V_k = _regression(self.each[k], i, A, self.design.n[k])
            W = np.linalg.inv(V_k)
            precision, pull = precision + W, pull + W @ b_k
        if not self.hits[i]:  # never targeted: its row is free along its predecessors, and nothing is a difference
            return b_0, b_0, V_0
        V_1 = np.linalg.inv(precision)
        return b_0, V_1 @ pull, V_0 + V_1


def _regression(R: Array, i: int, A: IntArray, n: float) -> tuple[Array, Array]:
    R_inv = np.linalg.inv(R[np.ix_(A, A)])
    b = R_inv @ R[A, i]
    variance = max(R[i, i] - b @ R[A, i], np.finfo(float).tiny)
    return b, variance / n * R_inv


def perfect_rows(design: Design, H: Array, order: Order) -> Array:
    """Within the flag of an order, the rows that perfect interventions mean: what is left of each latent in the contexts
    that target it after regressing out its predecessors."""
    fixed, rows = FixedRows(design, H), H.copy()
    for t, i in enumerate(order):
        A = np.array(order[:t], dtype=np.intp)
        if len(A) and fixed.hits[i]:
            rows[i] = H[i] - fixed.two_regressions(i, A)[1] @ H[A]
    return rows


def prune(design: Design, H: Array, order: Order, rules: Rules) -> tuple[IntArray, ...]:
    """Backward elimination: which edges forward in the order are worth their penalty, at rows H."""
    fixed = FixedRows(design, H)
    parents: list[IntArray] = [np.empty(0, dtype=np.intp)] * design.d
    for t, i in enumerate(order):
        A = np.array(sorted(order[:t]), dtype=np.intp)
        if len(A):
            b_0, b_1, V = fixed.two_regressions(i, A)
            delta = b_0 - b_1 if fixed.hits[i] else b_0
            parents[i] = A[_worth_keeping(delta, V, rules.penalty, rules.allowed[i, A], rules.required[i, A])]
    return tuple(parents)


def _worth_keeping(delta: Array, V: Array, penalty: float, allowed: BoolArray, required: BoolArray) -> IntArray:
    """Drop the entry whose absence costs least, given those already dropped, while it costs less than the penalty."""
    kept = np.ones(len(delta), dtype=bool)
    delta, V = delta.copy(), V.copy()

    def drop(j: int) -> None:
        nonlocal delta, V
        g = V[:, j] / V[j, j]
        delta, V = delta - g * delta[j], V - np.outer(g, V[j])
        kept[j] = False

    for j in np.flatnonzero(~allowed & ~required):
        drop(int(j))
    while (kept & ~required).any():
        free = np.flatnonzero(kept & ~required)
        cost = 0.5 * delta[free] ** 2 / np.diagonal(V)[free]
        if cost.min() >= penalty:
            break
        drop(int(free[np.argmin(cost)]))
    return np.flatnonzero(kept)


@dataclass(frozen=True)
class Flag:
    """A full order with its maximum-likelihood unmixing."""

    value: float
    H: Array
    order: Order


def fit_flag(design: Design, H: Array, order: Order, at_least: float = -np.inf, gain_tol: float = 1e-3) -> Flag | None:
    """Maximum likelihood for one full order, rows as perfect interventions mean them."""
    soft = replace(design, soft=(False, *(True,) * (len(design.n) - 1)))
    fitted = maximize(soft, H, full_parents(order), gain_tol=gain_tol, at_least=at_least)
    return None if fitted is None else Flag(fitted.value, perfect_rows(design, fitted.H, order), order)


def climb_flags(
    design: Design, start: Flag, rules: Rules, patience: int, notice: Callable[[Flag], None]
) -> Flag:
    """Move one latent at a time while the likelihood of the full order grows, nearest moves at fixed rows first."""
    best, seen = start, {start.order}
    while True:
        fixed = FixedRows(design, best.H)
        ranked = sorted(
            (-fixed.total(order), order) for order in set(_insertions(best.order)) - seen if rules.permit(order)
        )
        for _, order in ranked[:patience]:
            seen.add(order)
            flag = fit_flag(design, best.H, order, at_least=best.value - NEAR)
            if flag is None:
                continue
            notice(flag)
            if flag.value > best.value + 1e-3:
                best = flag
                break
        else:
            return best


def _insertions(order: Order) -> Iterator[Order]:
    """All orders in which one latent is moved."""
    for a, x in enumerate(order):
        rest = order[:a] + order[a + 1 :]
        for b in range(len(order)):
            if b not in (a, a + 1):  # moving one place to the right is moving the neighbour to the left
                yield (*rest[:b], x, *rest[b:])


def fit_pruned(
    design: Design, H: Array, order: Order, rules: Rules, rounds: int = 6, gain_tol: float = 0.02
) -> Candidate | None:
    """Prune at the rows, refit, prune again at the new rows, while the penalised likelihood grows."""
    best: Candidate | None = None
    for _ in range(rounds):
        parents = prune(design, H, order, rules)
        if best is not None and _same(parents, best.parents):
            break
        candidate = fit_graph(design, H, parents, order, rules, gain_tol)
        if candidate is None or (best is not None and candidate.score <= best.score + 1e-3):
            break
        best, H = candidate, candidate.optimum.H
    return best


def fit_graph(
    design: Design, H: Array, parents: Sequence[IntArray], order: Order, rules: Rules, gain_tol: float = 1e-5
) -> Candidate | None:
    """Maximum likelihood for one DAG."""
    optimum = maximize(design, H, parents, gain_tol=gain_tol)
    if optimum is None:
        return None
    return Candidate(optimum.value - rules.penalty * _size(parents), optimum, tuple(parents), order)


def climb_graphs(design: Design, H: Array, order: Order, rules: Rules) -> Candidate | None:
    """From one start: prune, refit and improve the order at the fitted rows, in turn."""
    best = fit_pruned(design, H, order, rules)
    for _ in range(10):
        if best is None:
            break
        improved = FixedRows(design, best.optimum.H).improved(best.order, rules.permit)
        if improved == best.order:
            break
        candidate = fit_pruned(design, best.optimum.H, improved, rules)
        if candidate is None or candidate.score <= best.score + 1e-3:
            break
        best = candidate
    return best


def reverse_edges(design: Design, best: Candidate, rules: Rules, patience: int) -> Candidate:
    """Try orders in which one edge is turned round, those that lose least at fixed rows first.

    ``patience`` is how many orders in a row may fail.
    """
    seen = {best.order}
    while True:
        fixed = FixedRows(design, best.optimum.H)
        ranked = sorted(
            (-fixed.total(order), order) for order in set(_reversals(best)) - seen if rules.permit(order)
        )
        for _, order in ranked[:patience]:
            seen.add(order)
            candidate = fit_pruned(design, best.optimum.H, order, rules, rounds=3, gain_tol=0.3)
            if candidate is not None and candidate.score > best.score + 1e-2:
                best = candidate
                break
        else:
            return best


def _reversals(candidate: Candidate) -> Iterator[Order]:
    """Orders in which the child of one edge moves just before its parent, or the parent just behind its child."""
    for child, parents in enumerate(candidate.parents):
        for parent in parents.tolist():
            rest = [x for x in candidate.order if x != child]
            at = rest.index(parent)
            yield (*rest[:at], child, *rest[at:])
            rest = [x for x in candidate.order if x != parent]
            at = rest.index(child) + 1
            yield (*rest[:at], parent, *rest[at:])


def toggle_edges(design: Design, best: Candidate, rules: Rules) -> Candidate:
    """Add or drop single edges near the border of significance, each judged after a refit."""
    seen: set[tuple[int, int]] = set()
    while True:
        for i, j in _borderline(design, best, rules):
            if (i, j) in seen:
                continue
            seen.add((i, j))
            parents = list(best.parents)
            parents[i] = np.setxor1d(parents[i], [j]).astype(np.intp)
            candidate = fit_graph(design, best.optimum.H, parents, best.order, rules, gain_tol=0.02)
            if candidate is not None and candidate.score > best.score + 1e-3:
                best = candidate
                break
        else:
            return best


def _borderline(design: Design, best: Candidate, rules: Rules) -> list[tuple[int, int]]:
    """Pairs (child, parent) whose edge is worth between a fifth and five times its penalty, nearest to it first."""
    fixed, found = FixedRows(design, best.optimum.H), []
    for t, i in enumerate(best.order):
        A = np.array(sorted(best.order[:t]), dtype=np.intp)
        if not len(A):
            continue
        b_0, b_1, V = fixed.two_regressions(i, A)
        delta = b_0 - b_1 if fixed.hits[i] else b_0
        kept = np.isin(A, best.parents[i])
        for position, j in enumerate(A.tolist()):
            if not rules.allowed[i, j] or rules.required[i, j]:
                continue
            dropped = np.flatnonzero(~kept & (np.arange(len(A)) != position))
            cost = _cost_given(delta, V, position, dropped)
            ratio = abs(np.log(max(cost, 1e-12) / max(rules.penalty, 1e-12)))
            if ratio < np.log(5):
                found.append((ratio, i, j))
    return [(i, j) for _, i, j in sorted(found)]


def _cost_given(delta: Array, V: Array, j: int, dropped: IntArray) -> float:
    """Nats that dropping entry j costs when the entries ``dropped`` are gone already."""
    if not len(dropped):
        return float(0.5 * delta[j] ** 2 / V[j, j])
    solved = np.linalg.solve(V[np.ix_(dropped, dropped)], np.column_stack([delta[dropped], V[dropped, j]]))
    left = delta[j] - V[j, dropped] @ solved[:, 0]
    return float(0.5 * left**2 / (V[j, j] - V[j, dropped] @ solved[:, 1]))


def _size(parents: Sequence[IntArray]) -> int:
    return sum(len(p) for p in parents)


def _same(a: Sequence[IntArray], b: Sequence[IntArray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Found:
    """What a search returns.

    Attributes
    ----------
    best : Candidate
        The graph and its unmixing.
    full_value : float
        Likelihood of the best full order.
    runner_up : (order, gap in nats) or None
        The next best full order that was fitted, other than the winner.
    values : tuple of float
        Likelihood of the full order that each start led to.
    """

    best: Candidate
    full_value: float
    runner_up: tuple[Order, float] | None
    values: tuple[float, ...]


def search(
    design: Design,
    starts: Sequence[tuple[Array, Order]],
    rules: Rules,
    progress: Callable[[str], None] = lambda stage: None,
) -> Found | None:
    """The best order and graph over all starts; None if no start has a likelihood."""
    fitted: dict[Order, Flag] = {}
    ends = []
    for number, (H, order) in enumerate(starts, start=1):
        progress(f"start {number} of {len(starts)}")
        end = _from_one_start(design, H, order, rules, lambda flag: fitted.setdefault(flag.order, flag))
        if end is not None:
            fitted.setdefault(end.order, end)
            ends.append(end)
    if not ends:
        return None
    best = max(ends, key=lambda flag: flag.value)
    progress("edges")
    graph = fit_pruned(design, best.H, best.order, rules)
    if graph is None:
        return None
    graph = toggle_edges(design, graph, rules)
    final = fit_graph(design, graph.optimum.H, graph.parents, graph.order, rules)
    rivals = sorted((best.value - flag.value, order) for order, flag in fitted.items() if order != best.order)
    runner_up = (rivals[0][1], float(rivals[0][0])) if rivals else None
    return Found(final or graph, best.value, runner_up, tuple(end.value for end in ends))


def _from_one_start(
    design: Design, H: Array, order: Order, rules: Rules, notice: Callable[[Flag], object]
) -> Flag | None:
    d = design.d
    if d > FEW:
        graph = climb_graphs(design, perfect_rows(design, H, order), order, rules)
        if graph is not None:
            graph = reverse_edges(design, graph, rules, patience=max(5, 400 // d))
            H, order = graph.optimum.H, graph.order
    flag = fit_flag(design, H, order, gain_tol=1e-2)
    if flag is None:
        return None
    return climb_flags(design, flag, rules, patience=d * d if d <= FEW else max(5, 400 // d), notice=notice)
