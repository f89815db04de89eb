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

#: Level of the test that calls a context a source (rank one) or not (rank two).
SOURCE_LEVEL = 0.01


@dataclass(frozen=True)
class Pair:
    """What one context says about its target, in whitened coordinates.

    Attributes
    ----------
    u, m : (r,)
        Intervened row and noise row of the target.
    rivals : sequence of (u, m)
        All candidates, best first; more than one where the pair of covariances alone leaves a bit open.
    misfit : sequence of float
        How badly each candidate's noise keeps unit variance in the other contexts, in nats.
    source_p_value : float
        Of the test that the target is a source.
    """

    u: Array
    m: Array
    rivals: Sequence[tuple[Array, Array]]
    misfit: Sequence[float]
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


def estimate_pair(S: Array, n: Array, k: int, others: Sequence[int]) -> Pair:
    """(u, m) of context k from sample covariances in coordinates where the control has identity covariance.

    Parameters
    ----------
    S : (K+1, r, r), ``S[0] = I``
    n : (K+1,)
    k : the context
    others : contexts, the control among them, in which the target's noise must keep unit variance
    """
    l, V = np.linalg.eigh(S[k])
    l = np.maximum(l, np.finfo(float).tiny)
    terms = eigenvalue_terms(l, n[0], n[k])
    strongest = np.argsort(-terms, kind="stable")
    p_value = rank_p_value(l, n[0], n[k], rank=1)[2]
    up, down = [j for j in strongest if l[j] < 1], [j for j in strongest if l[j] >= 1]
    if p_value > SOURCE_LEVEL or not up or not down:
        v = V[:, strongest[0]]
        found = [(v / np.sqrt(l[strongest[0]]), v)]
    else:
        found = _two_candidates(1 / l[up[0]] - 1, 1 - 1 / l[down[0]], V[:, up[0]], V[:, down[0]])
    misfit = [_variance_misfit(m, S, n, others) for _, m in found]
    order = np.argsort(misfit, kind="stable")
    rivals = [found[q] for q in order]
    return Pair(*rivals[0], rivals, [misfit[q] for q in order], p_value)


def _variance_misfit(m: Array, S: Array, n: Array, others: Sequence[int]) -> float:
    """Twice the nats lost, over the given contexts, by calling the variance of ``m X`` one in each of them."""
    v = np.array([m @ S[j] @ m for j in others])
    return float(np.sum(n[list(others)] * (v - 1 - np.log(v))))
