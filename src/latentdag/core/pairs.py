"""(u, m) of one context from one pair of covariances, up to one bit (MATH.md 3.2).

In coordinates where the control has identity covariance, a single-node intervention changes the precision by
``P_k − I = u uᵀ − m mᵀ`` with ``‖m‖ = 1``: m is the target's row of ``B_0 H``, u its intervened row. The difference
has at most one positive eigenvalue a (vector v₊) and one negative −b (vector v₋), and all (u, m) with that difference
are related by a hyperbolic rotation; unit norm of m leaves the two candidates

    m = c v₋ ± s v₊,                      s² = a(1−b)/(a+b),  c² = b(1+a)/(a+b),
    u = √a cosh t v₊ ± √b sinh t v₋,      sinh² t = (1−b)/(a+b),

u oriented so that ``u·m > 0``. A source has only one nonzero eigenvalue and one candidate, ``u ∥ m``.
"""

import numpy as np

from latentdag.core.linalg import Array


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
