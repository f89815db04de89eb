"""Which edges of an order are worth having, and the unmixing refitted for them (MATH.md 3.4).

For a perfect intervention the weight of an edge j → i is the *difference* between the coefficient of j in the contexts that
leave i alone and in those that target it, where the true one is zero because ``h_i`` is what is left of i there. So
leaving out edges is a Wald test on the difference of two regressions, whose covariance is the sum of theirs. Testing with
``h_i`` held fixed would be far too sure of edges: moving ``h_i`` can nearly undo them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.flags import NEAR, Order, Pairs, climb
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.optimize import GAIN_TOLERANCE, Optimum, maximize


@dataclass(frozen=True)
class Candidate:
    """A DAG with its maximum-likelihood unmixing; the score is the likelihood less the price of the edges."""

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


class TwoRegressions:
    """Every latent regressed on predecessors, where it is left alone and where it is targeted, at fixed rows H."""

    def __init__(self, design: Design, H: Array):
        self.design = design
        self.hits = [[k for k, rows in enumerate(design.hits) if i in rows] for i in range(design.d)]
        self.H = H

    def __call__(self, i: int, A: IntArray) -> tuple[Array, Array, Array]:
        """Regress i on A.

        Returns
        -------
        b_1 : (a,) coefficients in the contexts that target i, zero for the right row
        delta, V : (a,), (a, a) weights of the edges A → i and their covariance
        """
        rows = self.H[[*A, i]]
        b_0, V_0 = _regression(rows @ self.design.S_minus[i] @ rows.T, self.design.n_minus[i])
        if not self.hits[i]:  # never targeted: its row is free along its predecessors
            return np.zeros(len(A)), b_0, V_0
        precision, pull = np.zeros((len(A), len(A))), np.zeros(len(A))
        for k in self.hits[i]:
            b_k, V_k = _regression(rows @ self.design.S[k] @ rows.T, self.design.n[k])
            W = np.linalg.inv(V_k)
            precision, pull = precision + W, pull + W @ b_k
        V_1 = np.linalg.inv(precision)
        b_1 = V_1 @ pull
        return b_1, b_0 - b_1, V_0 + V_1


def _regression(R: Array, n: float) -> tuple[Array, Array]:
    """Coefficients of the last on all before it, and their covariance."""
    R_inv = np.linalg.inv(R[:-1, :-1])
    b = R_inv @ R[:-1, -1]
    variance = max(R[-1, -1] - b @ R[:-1, -1], np.finfo(float).tiny)
    return b, variance / n * R_inv


def perfect_rows(design: Design, H: Array, order: Order) -> Array:
    """Within the flag of an order, the rows that perfect interventions mean.

    That is what is left of each latent, in the contexts that target it, after regressing out its predecessors.
    """
    regress, rows = TwoRegressions(design, H), H.copy()
    for t, i in enumerate(order):
        A = np.array(order[:t], dtype=np.intp)
        if len(A):
            rows[i] = H[i] - regress(i, A)[0] @ H[A]
    return rows


def prune(design: Design, H: Array, order: Order, rules: Rules) -> tuple[IntArray, ...]:
    """Backward elimination: which edges forward in the order are worth their penalty, at rows H."""
    regress = TwoRegressions(design, H)
    parents: list[IntArray] = [np.empty(0, dtype=np.intp)] * design.d
    for t, i in enumerate(order):
        A = np.array(sorted(order[:t]), dtype=np.intp)
        if len(A):
            _, delta, V = regress(i, A)
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


def fit_graph(
    design: Design,
    H: Array,
    parents: Sequence[IntArray],
    order: Order,
    rules: Rules,
    gain_tol: float = GAIN_TOLERANCE,
    at_least: float = -np.inf,
) -> Candidate | None:
    """Maximum likelihood for one DAG; None if its score promises to stay below ``at_least``."""
    price = rules.penalty * sum(len(p) for p in parents)
    optimum = maximize(design, H, parents, gain_tol=gain_tol, at_least=at_least + price)
    return None if optimum is None else Candidate(optimum.value - price, optimum, tuple(parents), order)


def fit_pruned(
    design: Design,
    H: Array,
    order: Order,
    rules: Rules,
    rounds: int = 6,
    gain_tol: float = 0.02,
    at_least: float = -np.inf,
) -> Candidate | None:
    """Prune at the rows, refit, prune again at the new rows, while the score grows."""
    best: Candidate | None = None
    for _ in range(rounds):
        parents = prune(design, H, order, rules)
        if best is not None and all(np.array_equal(a, b) for a, b in zip(parents, best.parents, strict=True)):
            break
        candidate = fit_graph(design, H, parents, order, rules, gain_tol, at_least)
        if candidate is None or (best is not None and candidate.score <= best.score + 1e-3):
            break
        best, H = candidate, candidate.optimum.H
    return best


def climb_graphs(design: Design, H: Array, order: Order, rules: Rules) -> Candidate | None:
    """Prune and refit, walk latents to better places at the fitted rows, and again, while the score grows."""
    best = fit_pruned(design, perfect_rows(design, H, order), order, rules)
    for _ in range(10):
        if best is None:
            break
        flag = climb(design, best.optimum.H, best.order, rules.permit)
        if flag.order == best.order:
            break
        candidate = fit_pruned(design, perfect_rows(design, flag.H, flag.order), flag.order, rules)
        if candidate is None or candidate.score <= best.score + 1e-3:
            break
        best = candidate
    return best


def reverse_edges(
    design: Design, best: Candidate, rules: Rules, patience: int, notice: Callable[[Candidate], object]
) -> Candidate:
    """Turn single edges round, those that lose least first, each judged after pruning and refitting.

    Parameters
    ----------
    patience : int
        How many attempts in a row may fail.
    notice : called with every candidate that was fitted to the end
    """
    pairs, seen = Pairs(design), {best.order}
    while True:
        moves = {order: (loss, H) for loss, order, H in _reversals(pairs, best)}
        fresh = [order for order in moves if order not in seen and rules.permit(order)]
        for order in sorted(fresh, key=lambda order: (moves[order][0], order))[:patience]:
            seen.add(order)
            rows = perfect_rows(design, moves[order][1], order)
            found = fit_pruned(design, rows, order, rules, rounds=3, gain_tol=0.3, at_least=best.score - 3 * NEAR)
            if found is None:
                continue
            notice(found)
            if found.score > best.score + 1e-2:
                best = found
                break
        else:
            return best


def _reversals(pairs: Pairs, candidate: Candidate) -> Iterator[tuple[float, Order, Array]]:
    """Loss, order and rows after walking the child of each edge before its parent, and the parent behind its child."""
    for child, parents in enumerate(candidate.parents):
        for parent in parents.tolist():
            for mover, step in ((child, -1), (parent, 1)):
                H, order = candidate.optimum.H.copy(), list(candidate.order)
                gain, at = 0.0, order.index(mover)
                while order.index(child) > order.index(parent):
                    t = min(at, at + step)
                    _, swap, _, w = pairs.rotate(H, order, t)
                    pairs.turn(H, order, t, True, w)
                    gain, at = gain + swap, at + step
                yield -gain, tuple(order), H


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
            found = fit_graph(design, best.optimum.H, parents, best.order, rules, gain_tol=0.02, at_least=best.score)
            if found is not None and found.score > best.score + 1e-3:
                best = found
                break
        else:
            return best


def _borderline(design: Design, best: Candidate, rules: Rules) -> list[tuple[int, int]]:
    """Pairs (child, parent) whose edge is worth between a fifth and five times its penalty, nearest to it first."""
    regress, found = TwoRegressions(design, best.optimum.H), []
    for t, i in enumerate(best.order):
        A = np.array(sorted(best.order[:t]), dtype=np.intp)
        if not len(A):
            continue
        _, delta, V = regress(i, A)
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
