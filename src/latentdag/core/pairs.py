"""(u, m) of one context from one pair of covariances, up to one bit (docs/math.md, One context, one pair).

In coordinates where the control has identity covariance, a single-node intervention changes the precision by
``P_k − I = u uᵀ − m mᵀ`` with ``‖m‖ = 1``: m is the target's row of ``B_0 H``, u its intervened row. The difference
has at most one positive eigenvalue a (vector v₊) and one negative −b (vector v₋), and all (u, m) with that difference
are related by a hyperbolic rotation; unit norm of m leaves the two solutions

    m = c v₋ ± s v₊,                      s² = a(1−b)/(a+b),  c² = b(1+a)/(a+b),
    u = √a cosh t v₊ ± √b sinh t v₋,      sinh² t = (1−b)/(a+b),

u oriented so that ``u·m > 0``. A source has only one nonzero eigenvalue and one solution, ``u ∥ m``.

All contexts together know more: the noise rows M of all latents, with columns g of ``M^{-1}``, have the likelihood

    ℓ(M) = N log|det M| − ½ Σ_i m_i (Σ_{k∉𝒯_i} n_k S_k) m_iᵀ + Σ_k n_k/2 · log(g_kᵀ S_k^{-1} g_k) + const

(the same section has the proof). It needs no order, and the intervened rows follow as ``u_k ∝ S_k^{-1} g_k``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentdag.core.effort import HOPELESS, ORDER_FREE_STEPS, PARSIMONY
from latentdag.core.linalg import Array, IntArray, Spectrum, complement
from latentdag.core.order_free import OrderFree
from latentdag.core.ranks import eigenvalue_terms

TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Pair:
    """What one context says about its target, in whitened coordinates.

    Attributes
    ----------
    u, m : (r,)
        Intervened row and noise row of the target.
    rivals : sequence of (u, m)
        The other solutions, best first.
    gaps : sequence of float
        How many nats worse each rival explains all contexts, given the choices made for the others.
    """

    u: Array
    m: Array
    rivals: Sequence[tuple[Array, Array]]
    gaps: Sequence[float]


def solutions(Delta: Array, tol: float) -> list[tuple[Array, Array]]:
    """Return all (u, m) with ``Delta = u uᵀ − m mᵀ`` and ‖m‖ = 1; none if Delta is no single-node change.

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
    return _two_solutions(w[kept[1]], -w[kept[0]], V[:, kept[1]], V[:, kept[0]])


def _two_solutions(a: float, b: float, v_plus: Array, v_minus: Array) -> list[tuple[Array, Array]]:
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


def other_solution(u: Array, m: Array, tol: float = 1e-9) -> tuple[Array, Array] | None:
    """Return the second (u, m) with the same difference and ‖m‖ = 1; None where u ∥ m, so that there is only one."""
    found = solutions(np.outer(u, u) - np.outer(m, m), tol)
    return min(found, key=lambda pair: abs(pair[1] @ m)) if len(found) == 2 else None


def estimate_pairs(S: Array, n: Array, contexts: Sequence[int], same: Sequence[Sequence[int]]) -> list[Pair]:
    """Estimate (u, m) of every context with a single target; all contexts together choose between its two solutions.

    Parameters
    ----------
    S : (K+1, r, r), sample covariances in coordinates where the control has identity covariance
    n : (K+1,)
    contexts : those to estimate
    same : for each of them, all contexts that hit the same target
    """
    options = [_solutions_of(S[k], n[0], n[k]) for k in contexts]
    owner = np.repeat(np.arange(len(contexts)), [len(o.rows) for o in options])
    M = np.array([m for o in options for _, m in o.rows])
    alone = np.concatenate([o.cost for o in options])
    variance, clash = _misfits(M, S, n, owner, same)
    alone = alone + variance
    chosen = choose_solutions(alone, clash, owner)
    # what each solution costs next to those chosen for the other contexts
    costs = alone + clash[:, chosen].sum(axis=1) - clash[np.arange(len(M)), chosen[owner]]
    pairs, start = [], 0
    for option in options:
        cost = costs[start : start + len(option.rows)]
        start += len(option.rows)
        order = np.argsort(cost, kind="stable")
        rows = [option.rows[c] for c in order]
        u, m = rows[0]
        pairs.append(Pair(u, m, rows[1:], (cost[order[1:]] - cost[order[0]]).tolist()))
    return pairs


@dataclass(frozen=True)
class _Solutions:
    """FittedGraph rows of one context, and what each leaves unexplained in that context, in nats."""

    rows: list[tuple[Array, Array]]
    cost: Array


def _solutions_of(S: Array, n_0: float, n_k: float) -> _Solutions:
    """Return a source, whose one eigenvalue says all, and the two solutions of the strongest eigenvalue at either end.

    The eigenvalue that a source leaves unexplained is judged against the next one at its end, which is noise: the test
    of all the others together would drown it when there are many.
    """
    spectrum = Spectrum(S)
    scale, V = spectrum.pairs((0, len(S) - 1))
    scale = np.maximum(scale, TINY)
    terms = eigenvalue_terms(scale, n_0, n_k)
    first, second = (0, 1) if terms[0] > terms[1] else (1, 0)
    rows = [(V[:, first] / np.sqrt(scale[first]), V[:, first])]
    if (scale[first] < 1) == (scale[second] < 1):
        return _Solutions(rows, np.zeros(1))
    up, down = (first, second) if scale[first] < 1 else (second, first)
    rows += _two_solutions(1 / scale[up] - 1, 1 - 1 / scale[down], V[:, up], V[:, down])
    unexplained = _unexplained(spectrum, float(scale[second]), second == 0, n_0, n_k)
    if unexplained > HOPELESS:
        return _Solutions(rows[1:], np.zeros(2))
    return _Solutions(rows, np.array([unexplained, PARSIMONY, PARSIMONY]))


def _unexplained(spectrum: Spectrum, end: float, lowest: bool, n_0: float, n_k: float) -> float:
    """Return the nats by which the eigenvalue at one end exceeds the next, or fewer if those are hopeless already."""
    term, halfway = eigenvalue_terms(end, n_0, n_k), np.sqrt(end)
    at_least = 0.5 * float(term - eigenvalue_terms(halfway, n_0, n_k))
    # terms of noise reach 2r, and halfway (in logarithms) to one the term is a quarter: is all noise beyond that?
    if at_least > HOPELESS and term > 8 * len(spectrum):
        beside = end + 1e-9 * (halfway - end)  # leaves out the end itself
        if spectrum.none_between(min(beside, halfway), max(beside, halfway)):
            return at_least
    third = max(spectrum.value(1 if lowest else -2), TINY)
    noise = eigenvalue_terms(third, n_0, n_k) if (third < 1) == (end < 1) else 0.0
    return max(0.5 * float(term - noise), 0.0)


def _misfits(M: Array, S: Array, n: Array, owner: IntArray, same: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """Return the nats that solutions lose in contexts that leave their targets alone, to leading order.

    By logarithms of variances, and by correlations over all such contexts together, in which contexts of large variance
    count less. A solution is itself an estimate: a context that shifts a mean far would else punish the least leak of
    its direction into other solutions.

    Returns
    -------
    variance : (c,), by calling the variance of ``m X`` one
    clash : (c, c), by calling two noises uncorrelated
    """
    size = np.sqrt(np.einsum("kij,kij->k", S, S) / S.shape[1])
    weight = n / np.maximum(size, 1.0)
    free, v = np.ones((len(S), len(M))), np.empty((len(S), len(M)))
    own = np.zeros_like(M)  # what each solution's own contexts contribute to the sum over all
    hit_by: list[list[int]] = [[] for _ in S]
    for c, q in enumerate(owner):
        for k in same[q]:
            hit_by[k].append(c)
    for k, mine in enumerate(hit_by):  # one at a time: all at once would take several times the memory of the data
        MS = M @ S[k]
        v[k] = np.einsum("cj,cj->c", MS, M)
        free[k, mine] = 0.0
        own[mine] += weight[k] * MS[mine]
    variance = (0.25 * n[:, None] * free * np.log(v) ** 2).sum(axis=0)
    own = own @ M.T
    total = M @ np.tensordot(weight, S, axes=1) @ M.T
    R = total - own - own.T
    # a solution whose own contexts are all there is has nothing left to correlate with
    left = np.maximum(np.diagonal(total) - np.diagonal(own), 1e-9 * np.diagonal(total))
    clash = 0.5 * ((n[:, None] * free).T @ free) * np.minimum(np.square(R) / np.outer(left, left), 1.0)
    return variance, clash


def choose_solutions(alone: Array, clash: Array, owner: IntArray, restarts: int = 0) -> IntArray:
    """Choose one solution per context, so that the misfits sum to little.

    Start from what each solution says alone: the variance of its noise in all other contexts. Then change one choice at
    a time as long as the others agree better. Where contexts are known to have different targets, restarts were tried
    and find the same (120 models, d = 5 to 60).
    """
    members = [np.flatnonzero(owner == q) for q in range(int(owner.max()) + 1)]
    rng = np.random.default_rng(0)
    starts = [np.array([mine[np.argmin(alone[mine])] for mine in members])]
    starts += [np.array([rng.choice(mine) for mine in members]) for _ in range(restarts)]
    ends = [_settled(alone, clash, members, start) for start in starts]
    return min(ends, key=lambda chosen: alone[chosen].sum() + 0.5 * clash[np.ix_(chosen, chosen)].sum())


def _settled(alone: Array, clash: Array, members: Sequence[IntArray], chosen: IntArray) -> IntArray:
    """Change one choice at a time, each for the cheapest, until none changes."""
    pull = alone + clash[:, chosen].sum(axis=1)
    for _ in range(50):
        changed = False
        for q, mine in enumerate(members):
            old = chosen[q]
            new = mine[np.argmin(pull[mine] - clash[mine, old])]
            if new != old:
                pull += clash[:, new] - clash[:, old]
                chosen[q], changed = new, True
        if not changed:
            break
    return chosen


def refine_pairs(S: Array, n: Array, contexts: Sequence[int], pairs: Sequence[Pair]) -> list[Pair]:
    """Move (u, m) of all pairs towards the maximum of the order-free likelihood of the control and ``contexts``.

    Parameters
    ----------
    S, n, contexts : as for `estimate_pairs`; every context has a target of its own
    pairs : one per context
    """
    k = list(contexts)
    if np.linalg.eigvalsh(S[k]).min() <= 1e-10:
        return list(pairs)
    left, _, right = np.linalg.svd(np.array([pair.m for pair in pairs]), full_matrices=False)
    M = left @ right  # the nearest orthonormal rows, as the control's covariance says they are
    if len(M) < M.shape[1]:
        M = np.concatenate([M, complement(M.T).T])
    total = np.einsum("k,kij->ij", n[[0, *k]], S[[0, *k]])
    alone = np.repeat(total[None], len(M), axis=0)
    alone[: len(k)] -= n[k][:, None, None] * S[k]
    likelihood = OrderFree(alone, S[k], n[[0, *k]], np.eye(len(k), len(M), dtype=bool))
    M, _ = likelihood.climb(M, ORDER_FREE_STEPS)
    U = np.concatenate(likelihood.intervened_spans(M))
    return [replace(pair, u=u, m=m) for pair, u, m in zip(pairs, U, M, strict=False)]
