"""Learn target sets, latents, order and graph together (docs/math.md, Targets unknown).

Target sets that were found without an order (:mod:`latentdag.core.target_sets`) are fitted as latent DAGs and compared
by one score: the evidence of the best graph, less what the targets cost,

    score = evidence − Σ_k Σ_{i∈T_k} ½ log n_k · (numbers that the target frees) − ½ log N · (rows) + log prior(T).

The prior says how many targets contexts have: all shares of contexts with none, one, two, … targets are equally
probable, and so are all sets of one size. So a second target is dear where all other contexts have one.

Then single targets are added, dropped and exchanged. What a move gains with the rows as they are is a lower bound of
what it gains after a refit, and what a drop loses an upper bound. So moves that are worth it as they are get made in
all contexts at once, and only doubtful ones are refitted by themselves.

Soft interventions leave edges open, but not who is an ancestor of whom. With them every latent is given all its
ancestors as parents, and a soft target frees their weights: the number of free numbers is then that of the model's law.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize
from scipy.special import gammaln

from latentdag.core.effort import (
    DOUBTFUL,
    ENDS,
    FEWEST_SPREAD,
    GAIN_OF_A_MOVE,
    GAIN_OF_EDGES,
    KICKS_OF_TARGETS,
    MOVES,
    SPREAD,
    SURELY,
)
from latentdag.core.evidence import ancestors_of
from latentdag.core.graphs import FittedGraph, Rules, fit_graph
from latentdag.core.likelihood import Noisy, make_design
from latentdag.core.linalg import Array, BoolArray, IntArray, complement, independent_rows
from latentdag.core.orders import Order, climb
from latentdag.core.posterior import Explorer
from latentdag.core.search import climb_from, linear_order
from latentdag.core.target_sets import (
    ContextMoments,
    End,
    climb_rows,
    find_sets,
    intervened_spans,
    prices,
    rows_of,
    turned_ends,
)

#: A change of one context's targets: context, row that is dropped and row that is added (−1: none), and nats promised.
Move = tuple[int, int, int, float]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Target sets with the best latent DAG found for them.

    Attributes
    ----------
    hit : (K, d) which latents each perturbed context targets; columns in canonical order
    score : float
    graph : FittedGraph
    """

    hit: BoolArray
    score: float
    graph: FittedGraph

    @property
    def H(self) -> Array:
        return self.graph.optimum.H

    @property
    def order(self) -> Order:
        return self.graph.order


@dataclass(frozen=True, eq=False)
class Told:
    """What is known about targets before any are learned.

    Attributes
    ----------
    at_most : targets of one context
    n_latents : latents that are hit, at most
    fixed : (K,) contexts whose targets are told
    hit : (K, m) those targets, one column for each latent that they name
    groups : (K,) number of the group of contexts that are supposed to share a target, −1 for none
    """

    at_most: int
    n_latents: int
    fixed: BoolArray
    hit: BoolArray
    groups: IntArray


class TargetSearch:
    """Fit and compare target sets."""

    def __init__(
        self, data: ContextMoments, soft: Sequence[bool], penalty: float, told: Told, noisy: Noisy | None = None
    ):
        """Take what is the same for all target sets.

        Parameters
        ----------
        soft : (K,) whether the interventions of each perturbed context are soft
        penalty : nats that an edge must be worth
        """
        self.data, self.soft, self.penalty, self.told, self.noisy = data, tuple(soft), penalty, told, noisy
        self.known: dict[bytes, Candidate] = {}
        self.tried: set[tuple[bytes, Order]] = set()
        self.finished = True

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def candidates(self) -> list[Candidate]:
        """All target sets that were fitted, the best first."""
        return sorted(self.known.values(), key=lambda one: -one.score)

    def run(self) -> Candidate | None:
        """Return the best target sets; None if no context hits anything, or nothing could be fitted."""
        told = self.told
        ends = find_sets(self.data, told.at_most, told.n_latents, max(FEWEST_SPREAD, SPREAD // self.data.r))
        for end in ends[:ENDS]:
            self.fit_end(end)
        if (told.groups >= 0).any():
            self.fit_end(self._as_supposed(ends[0]))
        if not self.candidates:
            return None
        one = self.search_order(self.polish())
        for _ in range(KICKS_OF_TARGETS):
            self.kick(one)
            if self.best.score <= one.score + GAIN_OF_A_MOVE:
                break
            one = self.search_order(self.polish())
        return self.polish()

    def _as_supposed(self, end: End) -> End:
        """Return the end in which every group of contexts has one target: the noise row that most of them hit."""
        hit = end.hit.copy()
        for group in range(int(self.told.groups.max()) + 1):
            mine = self.told.groups == group
            hit[mine] = np.arange(hit.shape[1]) == end.hit[mine].sum(axis=0).argmax()
        return End(end.score, hit, climb_rows(self.data, end.M, hit)[0])

    def _as_told(self, end: End) -> End:
        """Return the end in which told contexts hit what they are told to hit."""
        fixed, told = self.told.fixed, self.told.hit
        if not fixed.any():
            return end
        agree = told[fixed].T.astype(float) @ end.hit[fixed] - told[fixed].T.astype(float) @ ~end.hit[fixed]
        latents, rows = optimize.linear_sum_assignment(-agree)
        hit = end.hit.copy()
        hit[fixed] = False
        hit[np.ix_(fixed, rows)] = told[np.ix_(fixed, latents)]
        return End(end.score, hit, climb_rows(self.data, end.M, hit)[0])

    # fits

    def fit_end(self, end: End) -> Candidate | None:
        """Fit the target sets of an end, with a search for the order."""
        end = self._as_told(end)
        hit, M, used = end.hit, end.M, np.flatnonzero(end.hit.any(axis=0))
        if not len(used):
            return None
        H = starting_rows(self.data, hit, M)[used]
        hit, rank = _canonical(hit[:, used])
        C = (H @ np.linalg.inv(M))[:, used] ** 2
        H, C = H[rank], C[np.ix_(rank, rank)]
        np.fill_diagonal(C, 0.0)
        order = linear_order(C / np.maximum(C.sum(axis=1, keepdims=True), np.finfo(float).tiny))
        return self._entered(hit, independent_rows(H), order, search="walk")

    def search_order(self, one: Candidate) -> Candidate:
        """Search order and graph of a candidate from its own rows; return the better."""
        return self._kept(one.hit, self._fitted(one.hit, one.H, one.order, search="full")) or one

    def _entered(self, hit: BoolArray, H: Array, order: Order, search: str) -> Candidate | None:
        """Return the best fit of target sets; an order from which they were not fitted yet may lead to a better one."""
        name = hit.tobytes(), order
        if name in self.tried:
            return self.known.get(hit.tobytes())
        self.tried.add(name)
        return self._kept(hit, self._fitted(hit, H, order, search))

    def _kept(self, hit: BoolArray, fitted: Candidate | None) -> Candidate | None:
        known = self.known.get(hit.tobytes())
        if fitted is not None and (known is None or fitted.score > known.score):
            self.known[hit.tobytes()] = known = fitted
        return known

    def _fitted(self, hit: BoolArray, H: Array, order: Order, search: str) -> Candidate | None:
        data, d = self.data, hit.shape[1]
        design = make_design(data.n, data.S, data.about, data.means, rows_of(hit), (False, *self.soft), d)
        design = replace(design, noisy=self.noisy)
        rules = Rules(self.penalty, np.ones((d, d), dtype=bool), np.zeros((d, d), dtype=bool))
        explorer = Explorer(design, rules)
        if search == "walk":
            walked = climb(design, H, order, rules.permit)
            H, order = walked.H, walked.order
        elif search == "full":
            for rival in climb_from(design, (H, order), rules)[:1]:
                H, order = rival.H, rival.order
        if explorer.enter_order(H, order) is None:
            return None
        graph = explorer.best.graph
        if not any(self.soft):
            return Candidate(hit, explorer.best.evidence - self._cost(hit, np.zeros(d)), graph)
        ancestors = ancestors_of(explorer.best.present, graph.order)
        parents = tuple(map(np.flatnonzero, ancestors))
        full = fit_graph(design, graph.optimum.H, parents, graph.order, rules, GAIN_OF_EDGES)
        if full is None:
            return None
        return Candidate(hit, full.optimum.value - self._cost(hit, ancestors.sum(axis=1)), full)

    def _cost(self, hit: BoolArray, ancestors: Array) -> float:
        """Return the nats that target sets must be worth, soft targets with so many ancestors each."""
        n, d, r = self.data.n, hit.shape[1], self.data.r
        freed = (1 + (self.data.means is not None) + np.outer(self.soft, ancestors)) * hit
        rows = d**2 + 2 * d * (r - d) + (r - d) * (r - d + 1) // 2
        numbers = 0.5 * (np.log(n[1:]) @ freed.sum(axis=1) + rows * np.log(n.sum()))
        return float(numbers) - log_prior(hit, self.told.at_most)

    # moves

    def polish(self, most: int = MOVES) -> Candidate:
        """Add, drop and exchange targets of the best candidate while the score grows, with so many refits at most."""
        one = self.best
        while True:
            one, sure = self._make_sure_moves(one)
            most -= sure
            better = None
            for move in self._doubtful(one):
                if most <= 0:
                    self.finished = False
                    break
                fitted, fresh = self._moved(one, [move])
                most -= fresh
                if fitted is not None and fitted.score > one.score + GAIN_OF_A_MOVE:
                    better = fitted
                    break
            if better is None:
                return one
            one = better

    def _make_sure_moves(self, one: Candidate) -> tuple[Candidate, int]:
        """Make the best move of every context that is worth it as it stands; return what it led to and its refits."""
        refits = 0
        while True:
            sure: dict[int, Move] = {}
            for move in self.moves(one):
                if move[3] > SURELY:
                    sure.setdefault(move[0], move)
            fitted, fresh = self._moved(one, list(sure.values())) if sure else (None, 0)
            refits += fresh
            if fitted is None or fitted.score <= one.score + GAIN_OF_A_MOVE:
                return one, refits
            one = fitted

    def _doubtful(self, one: Candidate) -> list[Move]:
        return [move for move in self.moves(one) if move[3] > -DOUBTFUL]

    def moves(self, one: Candidate) -> list[Move]:
        """Return all moves of single contexts, most promising first."""
        add, drop = self.promises(one)
        now, moves = log_prior(one.hit, self.told.at_most), []
        for k in np.flatnonzero(~self.told.fixed).tolist():
            mine, others = np.flatnonzero(one.hit[k]).tolist(), np.flatnonzero(~one.hit[k]).tolist()
            pairs = [(-1, j, add[k, j]) for j in others] + [(i, -1, drop[k, i]) for i in mine]
            pairs += [(i, j, drop[k, i] + add[k, j]) for i in mine for j in others]
            size = len(mine)
            prior = {step: _resized(one.hit, k, size + step, self.told.at_most) - now for step in (-1, 0, 1)}
            for i, j, gain in pairs:
                step = int(j >= 0) - int(i >= 0)
                last = i >= 0 and one.hit[:, i].sum() == 1  # a latent that nobody else hits would go
                if not last and size + step <= self.told.at_most:
                    moves.append((k, i, j, float(gain + prior[step])))
        return sorted(moves, key=lambda move: (-move[3], move))

    def promises(self, one: Candidate) -> tuple[Array, Array]:
        """Return what adding a target gains and dropping one loses, (K, d) both, at the candidate's rows.

        Less the price of the numbers that a target frees; the prior is not in it.
        """
        n, H, K, d = self.data.n, one.H, *one.hit.shape
        about, own = H @ self.data.about @ H.T, H @ self.data.S @ H.T
        mean = np.zeros((K + 1, d)) if self.data.means is None else self.data.means @ H.T
        gain = np.zeros((K, d))
        for i, parents in enumerate(one.graph.parents):
            at = [*parents.tolist(), i]
            alone = np.concatenate([[True], ~one.hit[:, i]])
            w, sums, shift = (
                n[alone].sum(),
                np.tensordot(n * alone, about[:, at][:, :, at], 1),
                (n * alone) @ mean[:, at],
            )
            step = np.where(alone[1:], -1.0, 1.0)  # a context leaves the mechanism, or comes back to it
            weight = w + step * n[1:]
            moved = sums + (step * n[1:])[:, None, None] * about[1:, at][:, :, at]
            away = (shift + (step * n[1:])[:, None] * mean[1:, at]) / weight[:, None]
            before = _log_residual((sums / w - np.outer(shift, shift) / w**2)[None])[0]
            after = _log_residual(moved / weight[:, None, None] - away[:, :, None] * away[:, None])
            alone_k = np.log(own[1:, i, i])
            if any(self.soft):
                alone_k = np.where(self.soft, _log_residual(own[1:, at][:, :, at]), alone_k)
            numbers = 1 + (self.data.means is not None) + np.array(self.soft) * len(parents)
            freed = 0.5 * n[1:] * alone_k + 0.5 * np.log(n[1:]) * numbers
            gain[:, i] = 0.5 * (w * before - weight * after) + step * freed
        return np.where(one.hit, -np.inf, gain), np.where(one.hit, gain, -np.inf)

    def kick(self, one: Candidate) -> None:
        """Turn the noise rows of a candidate, choose targets anew from there, and fit what that leads to."""
        hit = np.pad(one.hit, ((0, 0), (0, self.data.r - one.hit.shape[1])))
        start = End(0.0, hit, self.noise_rows(one))
        for end in turned_ends(self.data, start, prices(self.data), self.told.at_most, self.told.n_latents)[:ENDS]:
            self.fit_end(end)

    def noise_rows(self, one: Candidate) -> Array:
        """Return the noise rows (r, r) of a candidate, those of its latents first."""
        M = one.graph.optimum.rows[: len(one.H)] @ one.H
        rest = complement((M @ self.data.about[0]).T).T
        return np.vstack([M, rest])

    def _moved(self, one: Candidate, moves: Iterable[Move]) -> tuple[Candidate | None, int]:
        """Return the candidate after some moves, from the rows and order of this one, and how many refits it took."""
        hit = one.hit.copy()
        for k, i, j, _ in moves:
            if i >= 0:
                hit[k, i] = False
            if j >= 0:
                hit[k, j] = True
        if not hit.any(axis=0).all():
            return None, 0
        hit, rank = _canonical(hit)
        position = np.argsort(rank)
        order = tuple(int(position[i]) for i in one.order)
        fresh = int((hit.tobytes(), order) not in self.tried)
        return self._entered(hit, one.H[rank], order, search=""), fresh


def _log_residual(S: Array) -> Array:
    """Return the logarithm of the last variable's variance given all before it, of covariances (K, q, q)."""
    return np.asarray(-np.log(np.linalg.inv(S)[:, -1, -1]))


def _canonical(hit: BoolArray) -> tuple[BoolArray, list[int]]:
    """Return a matrix of targets with its columns in canonical order, and which column each was."""
    rank = sorted(range(hit.shape[1]), key=lambda i: (tuple(~hit[:, i]), i))
    return np.ascontiguousarray(hit[:, rank]), rank


def log_prior(hit: BoolArray, at_most: int) -> float:
    """Return the logarithm of the prior of target sets."""
    return _prior_of_sizes(np.bincount(hit.sum(axis=1), minlength=at_most + 1), hit.shape[1])


def _resized(hit: BoolArray, k: int, size: int, at_most: int) -> float:
    """Return the log prior with another number of targets of context k."""
    if not 0 <= size <= at_most:
        return -np.inf
    sizes = np.bincount(hit.sum(axis=1), minlength=at_most + 1)
    sizes[hit[k].sum()] -= 1
    sizes[size] += 1
    return _prior_of_sizes(sizes, hit.shape[1])


def _prior_of_sizes(sizes: IntArray, d: int) -> float:
    t, most, K = np.arange(len(sizes)), min(len(sizes), d + 1), sizes.sum()
    sets = gammaln(d + 1) - gammaln(t[:most] + 1) - gammaln(d - t[:most] + 1)
    return float(gammaln(most) - gammaln(most + K) + gammaln(1.0 + sizes[:most]).sum() - sizes[:most] @ sets)


def starting_rows(data: ContextMoments, hit: BoolArray, M: Array) -> Array:
    """Return rows of latents (r, r) from noise rows: what all contexts that hit a latent have in common.

    The row of a latent lies in the span of the intervened rows of every context that hits it, if perfectly. One that
    only one context hits, with others, is what their rows leave of that span; one that none hits keeps its noise row.
    """
    spans, H = intervened_spans(data, hit, M), M.copy()
    root = np.linalg.cholesky(np.tensordot(data.n / data.n.sum(), data.about, axes=1))
    done: list[int] = []
    for i in np.argsort(-hit.sum(axis=0), kind="stable").tolist():  # what many contexts show first
        if not hit[:, i].any():
            break
        total = np.zeros((data.r, data.r))
        for k in np.flatnonzero(hit[:, i]).tolist():
            U = spans[k]
            if len(U) > 1 and hit[:, i].sum() == 1:  # alone with latents that others show
                theirs = H[[j for j in done if hit[k, j]]]
                if len(theirs):
                    inside = U - (U @ data.S[k + 1] @ theirs.T) @ np.linalg.solve(
                        theirs @ data.S[k + 1] @ theirs.T, theirs
                    )
                    values, turn = np.linalg.eigh(inside @ data.S[k + 1] @ inside.T)
                    U = turn[:, values > 0.5].T @ inside if (values > 0.5).any() else U
            Q = np.linalg.qr((U @ root).T)[0]
            total += data.n[k + 1] * Q @ Q.T
        values, V = np.linalg.eigh(total)
        twins = sum((hit[:, i] == hit[:, j]).all() for j in done)  # each takes a direction of what they share
        H[i] = np.linalg.solve(root.T, V[:, -1 - twins])
        done.append(i)
    return H
