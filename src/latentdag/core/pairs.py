"""(u, m) of one context from one pair of covariances, up to one bit (MATH.md 3.2).

In coordinates where the control has identity covariance, a single-node intervention changes the precision by
``P_k − I = u uᵀ − m mᵀ`` with ``‖m‖ = 1``: m is the target's row of ``B_0 H``, u its intervened row. The difference
has at most one positive eigenvalue a (vector v₊) and one negative −b (vector v₋), and all (u, m) with that difference
are related by a hyperbolic rotation; unit norm of m leaves the two candidates

    m = c v₋ ± s v₊,                      s² = a(1−b)/(a+b),  c² = b(1+a)/(a+b),
    u = √a cosh t v₊ ± √b sinh t v₋,      sinh² t = (1−b)/(a+b),

u oriented so that ``u·m > 0``. A source has only one nonzero eigenvalue and one candidate, ``u ∥ m``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.linalg import Array
from latentdag.core.ranktest import eigenvalue_terms, rank_p_value

#: Nats by which parents of a target must explain the contexts better than calling it a source.
PARSIMONY = 3.0


@dataclass(frozen=True)
class Pair:
    """What one context says about its target, in whitened coordinates.

    Attributes
    ----------
    u, m : (r,)
        Intervened row and noise row of the target.
    rivals : sequence of (u, m)
        The other candidates, best first.
    gaps : sequence of float
        How many nats worse each rival explains all contexts, given the choices made for the others.
    source_p_value : float
        Of the test that the target is a source.
    """

    u: Array
    m: Array
    rivals: Sequence[tuple[Array, Array]]
    gaps: Sequence[float]
    source_p_value: float


def candidates(Delta: Array, tol: float) -> list[tuple[Array, Array]]:
    """All (u, m) with ``Delta = u uᵀ − m mᵀ`` and ‖m‖ = 1; none if Delta is no single-node change.

    Parameters
    ----------
    Delta : (d, d), whitened difference ``P_k − I``
    tol : float
        Eigenvalues below this fraction of the largest count as zero.
    """
    w, V = np.linalg.eigh(Delta)
    size = np.abs(w)
    kept = np.flatnonzero(size > tol * size.max())
    if len(kept) == 1:
        v = V[:, kept[0]]
        return [(np.sqrt(max(1.0 + w[kept[0]], 0.0)) * v, v)]
    if len(kept) != 2 or not w[kept[0]] < 0 < w[kept[1]]:
        return []
    return _two_candidates(w[kept[1]], -w[kept[0]], V[:, kept[1]], V[:, kept[0]])


def _two_candidates(a: float, b: float, v_plus: Array, v_minus: Array) -> list[tuple[Array, Array]]:
    b = min(b, 1.0)
    s, c = np.sqrt(a * (1 - b) / (a + b)), np.sqrt(b * (1 + a) / (a + b))
    sinh = np.sqrt((1 - b) / (a + b))
    cosh = np.sqrt(1 + sinh**2)
    pairs = []
    for sign in (1.0, -1.0):
        m = c * v_minus + sign * s * v_plus
        # u·m = sign·√a·cosh·s ± √b·sinh·c must reproduce the difference: both terms carry the sign of s
        u = sign * np.sqrt(a) * cosh * v_plus + np.sqrt(b) * sinh * v_minus
        pairs.append((u, m))
    return pairs


def estimate_pairs(S: Array, n: Array, contexts: Sequence[int], same: Sequence[Sequence[int]]) -> list[Pair]:
    """(u, m) of every context with a single target, bits settled with all contexts at work.

    Parameters
    ----------
    S : (K+1, r, r), sample covariances in coordinates where the control has identity covariance
    n : (K+1,)
    contexts : those to estimate
    same : for each of them, all contexts that hit the same target
    """
    options = [_options(S, n, k) for k in contexts]
    owner = np.repeat(np.arange(len(contexts)), [len(o.rows) for o in options])
    M = np.array([m for o in options for _, m in o.rows])
    alone = np.concatenate([o.cost for o in options])
    alone = alone + np.array([_variance_misfit(m, S, n, same[q]) for q, m in zip(owner, M, strict=True)])
    clash = _correlation_misfit(M, S, n, owner, same)
    chosen = _settle(alone, clash, owner)
    pairs = []
    for q, option in enumerate(options):
        mine = np.flatnonzero(owner == q)
        others = np.delete(chosen, q)
        cost = alone[mine] + clash[np.ix_(mine, others)].sum(axis=1)
        order = np.argsort(cost, kind="stable")
        rows = [option.rows[c] for c in order]
        pairs.append(Pair(*rows[0], rows[1:], (cost[order[1:]] - cost[order[0]]).tolist(), option.p_value))
    return pairs


@dataclass(frozen=True)
class _Options:
    """Candidate rows of one context, and what each leaves unexplained in that context, in nats."""

    rows: list[tuple[Array, Array]]
    cost: Array
    p_value: float


def _options(S: Array, n: Array, k: int) -> _Options:
    """A source, whose one eigenvalue says all, or the two candidates of the strongest eigenvalue at either end.

    The eigenvalue that a source leaves unexplained is judged against the next one at its end, which is noise: the test
    of all the others together would drown it when there are many.
    """
    l, V = np.linalg.eigh(S[k])
    l = np.maximum(l, np.finfo(float).tiny)
    terms = eigenvalue_terms(l, n[0], n[k])
    first = int(np.argmax(terms))
    p_value = rank_p_value(l, n[0], n[k], rank=1)[2]
    rows = [(V[:, first] / np.sqrt(l[first]), V[:, first])]
    end = np.flatnonzero(l >= 1 if l[first] < 1 else l < 1)
    if not len(end):
        return _Options(rows, np.zeros(1), p_value)
    end = end[np.argsort(-terms[end], kind="stable")]
    second, noise = end[0], terms[end[1]] if len(end) > 1 else 0.0
    up, down = (first, second) if l[first] < 1 else (second, first)
    rows += _two_candidates(1 / l[up] - 1, 1 - 1 / l[down], V[:, up], V[:, down])
    return _Options(rows, np.array([max(0.5 * (terms[second] - noise), 0.0), PARSIMONY, PARSIMONY]), p_value)


def _variance_misfit(m: Array, S: Array, n: Array, without: Sequence[int]) -> float:
    """Nats lost by calling the variance of ``m X`` one in every context that leaves the target alone."""
    others = np.setdiff1d(np.arange(len(S)), without)
    v = np.einsum("i,kij,j->k", m, S[others], m)
    return float(0.5 * np.sum(n[others] * (v - 1 - np.log(v))))


def _correlation_misfit(M: Array, S: Array, n: Array, owner: Array, same: Sequence[Sequence[int]]) -> Array:
    """Nats lost, per pair of candidates, by calling two noises uncorrelated in the contexts that target neither."""
    total = np.zeros((len(M), len(M)))
    hit = np.zeros((len(S), len(M)), dtype=bool)
    for c, q in enumerate(owner):
        hit[list(same[q]), c] = True
    for k in range(len(S)):
        free = ~hit[k]
        total += 0.5 * n[k] * np.square(M @ S[k] @ M.T) * np.outer(free, free)
    return total


def _settle(alone: Array, clash: Array, owner: Array, restarts: int = 40) -> Array:
    """One candidate per context with the least total misfit: coordinate descent from many starts."""
    members = [np.flatnonzero(owner == q) for q in range(int(owner.max()) + 1)]
    rng = np.random.default_rng(0)
    starts = [np.array([mine[np.argmin(alone[mine])] for mine in members])]
    starts += [np.array([rng.choice(mine) for mine in members]) for _ in range(restarts)]
    ends = [_descend(alone, clash, members, start) for start in starts]
    return min(ends, key=lambda chosen: alone[chosen].sum() + 0.5 * _off_diagonal(clash, chosen))


def _off_diagonal(clash: Array, chosen: Array) -> float:
    block = clash[np.ix_(chosen, chosen)]
    return float(block.sum() - np.trace(block))


def _descend(alone: Array, clash: Array, members: Sequence[Array], start: Array) -> Array:
    chosen = start.copy()
    for _ in range(50):
        before = chosen.copy()
        for q, mine in enumerate(members):
            if len(mine) > 1:
                cost = alone[mine] + clash[np.ix_(mine, np.delete(chosen, q))].sum(axis=1)
                chosen[q] = mine[np.argmin(cost)]
        if np.array_equal(before, chosen):
            break
    return chosen
