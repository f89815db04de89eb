"""Estimate one noise row per context when it is unknown which contexts share a target.

The noise row m of a context is the direction of X that is its target's own noise (docs/math.md, section "One context,
one pair"). From its own covariance a context leaves up to three solutions for it: its target is a source, or it has
one of two signs. The other contexts settle which. If two contexts have different targets, each one's noise keeps unit
variance in the other, and the two are uncorrelated in the control. If they have the same target, their rows are equal
up to sign. Each pair of contexts is charged the cheaper of the two readings, in nats, and solutions are chosen so that
all contexts together pay least.
"""

import numpy as np

from latentdag.core.linalg import Array, IntArray
from latentdag.core.pairs import choose_solutions, estimate_pairs

#: Random starts of the choice between solutions, besides the best solution of every context alone.
RESTARTS = 30


def noise_rows(S: Array, n: Array, apart: Array) -> Array:
    """Return the unit noise rows (K, r) of all contexts but the control.

    Parameters
    ----------
    S : (K+1, r, r)
        Second moments in coordinates where the control has identity covariance.
    n : (K+1,) weights of the contexts
    apart : (K, K)
        Nats by which the covariances of two contexts speak against a common target.
    """
    K = len(n) - 1
    everyone = list(range(K + 1))
    rows, alone, owner = [], [], []
    for k in range(K):
        # nobody else has a say here: all contexts may share the target
        pair = estimate_pairs(S, n, [k + 1], [everyone])[0]
        rows += [pair.m, *(m for _, m in pair.rivals)]
        alone += [0.0, *pair.gaps]
        owner += [k] * (1 + len(pair.rivals))
    M = np.array(rows)
    M /= np.linalg.norm(M, axis=1, keepdims=True)
    who = np.array(owner, dtype=np.intp)
    chosen = choose_solutions(np.array(alone), _charges(M, S, n, who, apart), who, RESTARTS)
    return np.asarray(M[chosen])


def _charges(M: Array, S: Array, n: Array, owner: IntArray, apart: Array) -> Array:
    """Return the nats (c, c) that each pair of solutions costs.

    Its contexts have the same target or different ones, and the cheaper reading counts. Solutions of one context
    cost nothing together.
    """
    square = (M @ M.T) ** 2
    variance = np.einsum("ci,kij,cj->ck", M, S[1:], M)
    off = 0.5 * n[1:] * (variance - 1 - np.log(np.maximum(variance, np.finfo(float).tiny)))
    elsewhere = off[:, owner]  # of solution c, in the context of solution e
    different = elsewhere + elsewhere.T + 0.5 * n[0] * square
    samples = np.minimum(n[1:], n[0])[owner]
    same = 0.5 * np.minimum.outer(samples, samples) * (1 - square) + apart[np.ix_(owner, owner)]
    charge = np.minimum(same, different)
    charge[owner[:, None] == owner] = 0.0
    return np.asarray(charge)
