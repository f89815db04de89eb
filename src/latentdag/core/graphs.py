"""Which edges of an order are worth having, and the unmixing refitted for them (docs/math.md, The search).

For a perfect intervention the weight of an edge j → i is the *difference* between the coefficient of j in the contexts
that leave i alone and in those that target it, where the true one is zero because ``h_i`` is what is left of i there.
For one of strength s the difference is s times the weight, and the row is what is left once ``1 − s`` of it is taken
out, too.
So leaving out edges is a Wald test on the difference of two regressions, whose covariance is the sum of theirs. Testing
with ``h_i`` held fixed would be far too sure of edges: moving ``h_i`` can nearly undo them.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import blas, lapack

from latentdag.core.edge_profile import EdgeProfile
from latentdag.core.effort import GAIN_OF_A_MOVE, GAIN_OF_EDGES, GAIN_OF_REVERSALS, GAIN_TOLERANCE, NEAR
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.optimize import Optimum, maximize
from latentdag.core.orders import Factors, Order, Stack, cholesky, climb, full_parents, move_left, move_right


@dataclass(frozen=True)
class FittedGraph:
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
    rest : rows that nobody intervenes on, which come first in every order, as they are
    priced : bool
        Whether the user named the penalty, which then is what graphs are compared by.
    """

    penalty: float
    allowed: BoolArray
    required: BoolArray
    rest: Order = ()
    priced: bool = False

    def permit(self, order: Order) -> bool:
        """Tell whether the order lets every required edge point forward."""
        if order[: len(self.rest)] != self.rest:
            return False
        position = np.argsort(order)
        i, j = np.nonzero(self.required)
        return bool((position[j] < position[i]).all())


class TwoRegressions:
    """Every latent regressed on its predecessors, where it is left alone and where it is targeted, at fixed rows H."""

    def __init__(self, design: Design, H: Array, order: Order):
        self.design, self.order, self.rows = design, order, H[list(order)]
        self.columns = self.rows.T.copy()  # laid out for the products below, most of the work
        self.targeting = design.targeting

    def alone(self, t: int) -> Array:
        """Return the coefficients (t,) of the latent at position t where it is left alone."""
        return self._alone(t).b

    def targeted(self, t: int) -> Array:
        """Return the coefficients (t,) where the latent at position t is cut off; zero for the right row."""
        if self.design.kept[self.targeting[self.order[t]]].any():
            return self._partial(t)[0][:t]
        return self._targeted(t)[0]

    def weights(self, t: int) -> tuple[Array, Array]:
        """Return the weights (t,) of the edges into the latent at position t, and their covariance (t, t)."""
        if self.design.kept[self.targeting[self.order[t]]].any():
            both, V = self._partial(t)
            return both[t:], V[t:, t:]
        alone, (b_1, V_1) = self._alone(t), self._targeted(t)
        return alone.b - b_1, alone.covariance() + V_1

    def _partial(self, t: int) -> tuple[Array, Array]:
        """Return coefficients where it is cut off, and weights (2t,), and their covariance: contexts mix both."""
        contexts = self.targeting[self.order[t]]
        found = [self._alone(t), *(self._regress(t, self.design.S[k], self.design.n[k]) for k in contexts)]
        mixture = [np.array([1.0, kept]) for kept in (1.0, *self.design.kept[contexts])]
        W = [one.precision() for one in found]
        V = np.linalg.inv(sum(np.kron(np.outer(f, f), w) for f, w in zip(mixture, W, strict=True)))
        right = sum(np.kron(f, w @ one.b) for f, w, one in zip(mixture, W, found, strict=True))
        return np.asarray(V @ right), np.asarray(V)

    def _alone(self, t: int) -> "_Regression":
        i = self.order[t]
        return self._regress(t, self.design.S_minus[i], self.design.n_minus[i])

    def _targeted(self, t: int) -> tuple[Array, Array]:
        """Return the coefficients over all contexts that target the latent, and their covariance."""
        S, n = self.design.S, self.design.n
        found = [self._regress(t, S[k], n[k]) for k in self.targeting[self.order[t]]]
        if not found:  # never targeted: its row is free along its predecessors
            return np.zeros(t), np.zeros((t, t))
        if len(found) == 1:
            return found[0].b, found[0].covariance()
        precisions = [one.precision() for one in found]
        V = np.asarray(np.linalg.inv(sum(precisions)), dtype=np.float64)
        return V @ sum(W @ one.b for W, one in zip(precisions, found, strict=True)), V

    def _regress(self, t: int, S: Array, n: float) -> "_Regression":
        return _Regression(self.rows[: t + 1] @ S @ self.columns[:, : t + 1], n)


class _Regression:
    """The last variable of a covariance R on all before it, from n samples."""

    def __init__(self, R: Array, n: float):
        L, singular = lapack.dpotrf(R, lower=1)
        L = cholesky(R) if singular else L
        inverse = lapack.dtrtri(L, lower=1)[0]
        self.L, self.L_inv = L[:-1, :-1], inverse[:-1, :-1]
        self.b: Array = -L[-1, -1] * inverse[-1, :-1]
        self.scale = L[-1, -1] / np.sqrt(n)

    def covariance(self) -> Array:
        half = self.scale * self.L_inv
        return np.asarray(half.T @ half)

    def precision(self) -> Array:
        half = self.L / self.scale
        return np.asarray(half @ half.T)


def perfect_rows(design: Design, H: Array, order: Order) -> Array:
    """Return, within the flag of an order, the rows that perfect interventions mean.

    That is what is left of each latent, in the contexts that target it, after regressing out its predecessors; of a
    latent that no context targets, what is left anywhere, so that those are uncorrelated.
    """
    regress, rows = TwoRegressions(design, H, order), H.copy()
    never = set(range(design.d)).difference(*design.hits)
    for t, i in enumerate(order):
        explained = regress.alone(t) if i in never else regress.targeted(t)
        rows[i] = H[i] - explained @ H[list(order[:t])]
    return rows


def prune(
    design: Design, H: Array, order: Order, rules: Rules, at_least: float = -np.inf
) -> tuple[IntArray, ...] | None:
    """Return the parents that are worth their penalty, by backward elimination from all predecessors, at rows H.

    None if even all predecessors promise a likelihood below ``at_least``, which only shows where features are noisy.
    """
    if design.noisy is not None and not any(design.soft):  # whose weights alone leave no trace
        return _prune_noisy(design, H, order, rules, at_least)
    regress, rows = TwoRegressions(design, H, order), np.array(order, dtype=np.intp)
    parents: list[IntArray] = [np.empty(0, dtype=np.intp)] * design.d
    for t, i in enumerate(order):
        A = rows[:t]
        if len(A):
            delta, V = regress.weights(t)
            kept = _worth_keeping(delta, V, rules.penalty, rules.allowed[i, A], rules.required[i, A])
            parents[i] = np.sort(A[kept])
    return tuple(parents)


def _prune_noisy(design: Design, H: Array, order: Order, rules: Rules, at_least: float) -> tuple[IntArray, ...] | None:
    """Return the parents that are worth their penalty; noise makes all weights depend on each other."""
    full = full_parents(order)
    optimum = maximize(design, H, full, GAIN_OF_EDGES, at_least=at_least)
    if optimum is None:
        return None
    profile = EdgeProfile(design, optimum, full)
    i, j = np.nonzero(profile.edges)
    kept = _worth_keeping(
        optimum.rows[i, j], profile.weight_covariance(), rules.penalty, rules.allowed[i, j], rules.required[i, j]
    )
    return tuple(np.sort(j[kept[i[kept] == child]]) for child in range(design.d))


def _worth_keeping(delta: Array, V: Array, penalty: float, allowed: BoolArray, required: BoolArray) -> IntArray:
    """Drop the entry whose absence costs least, given those already dropped, while it costs less than the penalty."""
    left = np.arange(len(delta))
    barred = np.flatnonzero(~allowed & ~required)
    left, delta, V = _drop(left, delta, V, barred)
    left, delta, V = _drop_cheap(left, delta, V, required, 0.5 * penalty)
    # one at a time from here: what is dropped stays in the arrays as an estimate of infinity that moves no other
    fixed = np.where(required[left], np.inf, 0.0)
    both = np.asfortranarray(np.vstack([V, delta]))
    diagonal, delta = np.einsum("ii->i", both[:-1]), both[-1]
    for _ in left:
        cost = delta * delta / diagonal + fixed
        least = int(cost.argmin())
        if cost[least] >= 2 * penalty:
            break
        blas.dger(-1.0, both[:, least] / both[least, least], both[least], a=both, overwrite_a=1)
        delta[least], diagonal[least] = np.inf, 1.0
    return left[np.isfinite(delta)]


def _drop(left: IntArray, delta: Array, V: Array, gone: IntArray) -> tuple[IntArray, Array, Array]:
    """Return what is left, its estimate and its covariance, once the entries ``gone`` are known to be zero."""
    if not len(gone):
        return left, delta, V
    kept = np.delete(np.arange(len(left)), gone)
    pull = np.linalg.solve(V[np.ix_(gone, gone)], V[np.ix_(gone, kept)]).T
    return left[kept], delta[kept] - pull @ delta[gone], V[np.ix_(kept, kept)] - pull @ V[np.ix_(gone, kept)]


def _drop_cheap(
    left: IntArray, delta: Array, V: Array, required: BoolArray, bound: float
) -> tuple[IntArray, Array, Array]:
    """Drop one after the other, cheapest first, up to the first that costs the bound: one factorisation tells."""
    cost = np.where(required[left], np.inf, 0.5 * delta**2 / np.diagonal(V))
    order = np.argsort(cost, kind="stable")
    L, singular = lapack.dpotrf(V[order][:, order], lower=1)
    if singular or not len(order):
        return left, delta, V
    y = lapack.dtrtrs(L, delta[order], lower=1)[0]
    dear = np.flatnonzero((0.5 * y**2 >= bound) | (cost[order] >= bound))
    m = int(dear[0]) if len(dear) else len(order)
    kept = np.asarray(L[m:, m:], dtype=np.float64)
    return left[order[m:]], kept @ y[m:], kept @ kept.T


def fit_graph(
    design: Design,
    H: Array,
    parents: Sequence[IntArray],
    order: Order,
    rules: Rules,
    gain_tol: float = GAIN_TOLERANCE,
    at_least: float = -np.inf,
) -> FittedGraph | None:
    """Fit one DAG by maximum likelihood; None if its score promises to stay below ``at_least``."""
    price = rules.penalty * sum(len(p) for p in parents)
    optimum = maximize(design, H, parents, gain_tol=gain_tol, at_least=at_least + price)
    return None if optimum is None else FittedGraph(optimum.value - price, optimum, tuple(parents), order)


def fit_pruned(
    design: Design,
    H: Array,
    order: Order,
    rules: Rules,
    rounds: int = 6,
    gain_tol: float = GAIN_OF_EDGES,
    at_least: float = -np.inf,
) -> FittedGraph | None:
    """Prune at the rows, refit, prune again at the new rows, while the score grows."""
    best: FittedGraph | None = None
    for _ in range(rounds):
        parents = prune(design, H, order, rules, at_least)
        if parents is None:
            break
        if best is not None and all(np.array_equal(a, b) for a, b in zip(parents, best.parents, strict=True)):
            break
        found = fit_graph(design, H, parents, order, rules, gain_tol, at_least)
        if found is None or (best is not None and found.score <= best.score + GAIN_OF_A_MOVE):
            break
        best, H = found, found.optimum.H
    return best


def climb_graphs(design: Design, H: Array, order: Order, rules: Rules) -> FittedGraph | None:
    """Prune and refit, walk latents to better places at the fitted rows, and again, while the score grows."""
    best = fit_pruned(design, perfect_rows(design, H, order), order, rules)
    for _ in range(10):
        if best is None:
            break
        flag = climb(design, best.optimum.H, best.order, rules.permit)
        if flag.order == best.order:
            break
        found = fit_pruned(design, perfect_rows(design, flag.H, flag.order), flag.order, rules)
        if found is None or found.score <= best.score + GAIN_OF_A_MOVE:
            break
        best = found
    return best


def reverse_edges(
    design: Design, best: FittedGraph, rules: Rules, patience: int, notice: Callable[[FittedGraph], object]
) -> FittedGraph:
    """Turn single edges round, those that lose least first, each judged after pruning and refitting.

    Parameters
    ----------
    patience : int
        How many attempts in a row may fail.
    notice : called with every graph that was fitted to the end
    """
    stack, seen = Stack(design), {best.order}
    while True:
        for H, order in reversals(stack, best, rules, seen, patience):
            seen.add(order)
            rows = perfect_rows(design, H, order)
            found = fit_pruned(
                design, rows, order, rules, rounds=3, gain_tol=GAIN_OF_REVERSALS, at_least=best.score - 3 * NEAR
            )
            if found is None:
                continue
            notice(found)
            if found.score > best.score + 1e-2:
                best = found
                break
        else:
            return best


def reversals(
    stack: Stack,
    graph: FittedGraph,
    rules: Rules,
    seen: Container[Order],
    most: int,
    lose_at_most: float = np.inf,
    every: bool = False,
) -> Iterator[tuple[Array, Order]]:
    """Yield rows and order after walking the child of an edge before its parent, or the parent behind its child.

    At most ``most`` orders that were not ``seen``, and only if the walk promises to lose no more than so many nats.
    With ``every``, any latent before and behind any other.
    """
    H, order = graph.optimum.H, graph.order
    position = np.argsort(order)
    factors = Factors(stack, H, order)
    left, right = factors.walk_left(), factors.walk_right()
    edges = [(int(position[i]), int(position[j])) for i, pa in enumerate(graph.parents) for j in pa]
    edges = list(combinations(reversed(range(len(order))), 2)) if every else edges
    moves = [(-left.gain[i - j - 1, i], i, i - j, -1) for i, j in edges]
    moves += [(-right.gain[i - j - 1, j], j, i - j, 1) for i, j in edges]
    tried = 0
    for loss, a, passed, step in sorted(moves):
        if loss == np.inf or loss > lose_at_most or tried >= most:
            break
        move, walks = (move_left, left) if step < 0 else (move_right, right)
        H_new, order_new = move(H, order, a, walks.w[:passed, a])
        if order_new not in seen and rules.permit(order_new):
            tried += 1
            yield H_new, order_new
