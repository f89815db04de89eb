"""The noise rows of contexts of which nobody knows which share a target.

From its own covariance a context leaves up to three candidates for its noise row (MATH.md 3.2): its target a source,
or one of two signs. What settles them is the other contexts. If two contexts have different targets, each one's noise
keeps unit variance in the other, and the two are uncorrelated in the control. If they have the same target, their rows
are equal up to sign. Each pair of contexts is charged the cheaper of the two readings, in nats, and candidates are
chosen so that all contexts together pay least.
"""

from collections.abc import Sequence

import numpy as np

from latentdag.core.linalg import Array, IntArray
from latentdag.core.pairs import estimate_pairs


def noise_rows(S: Array, n: Array, apart: Array, restarts: int = 30) -> Array:
    """Unit noise rows (K, r) of all contexts but the control.

    Parameters
    ----------
    S : (K+1, r, r), second moments in coordinates where the control has identity covariance
    n : (K+1,)
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
    chosen = _settle(np.array(alone), _charges(M, S, n, who, apart), who, restarts)
    return np.asarray(M[chosen])


def _charges(M: Array, S: Array, n: Array, owner: IntArray, apart: Array) -> Array:
    """What each pair of candidates (c, c) costs under the cheaper of "same target" and "different targets"."""
    square = (M @ M.T) ** 2
    variance = np.einsum("ci,kij,cj->ck", M, S[1:], M)
    off = 0.5 * n[1:] * (variance - 1 - np.log(np.maximum(variance, np.finfo(float).tiny)))
    elsewhere = off[:, owner]  # of candidate c, in the context of candidate e
    different = elsewhere + elsewhere.T + 0.5 * n[0] * square
    samples = np.minimum(n[1:], n[0])[owner]
    same = 0.5 * np.minimum.outer(samples, samples) * (1 - square) + apart[np.ix_(owner, owner)]
    charge = np.minimum(same, different)
    charge[owner[:, None] == owner] = 0.0
    return np.asarray(charge)


def _settle(alone: Array, charge: Array, owner: IntArray, restarts: int) -> IntArray:
    """One candidate per context: coordinate descent, from each context's own favourite and from random starts."""
    members = [np.flatnonzero(owner == k) for k in range(int(owner.max()) + 1)]
    rng = np.random.default_rng(0)
    starts = [np.array([mine[np.argmin(alone[mine])] for mine in members])]
    starts += [np.array([rng.choice(mine) for mine in members]) for _ in range(restarts)]
    ends = [_descend(alone, charge, members, start) for start in starts]
    return min(ends, key=lambda chosen: alone[chosen].sum() + 0.5 * charge[np.ix_(chosen, chosen)].sum())


def _descend(alone: Array, charge: Array, members: Sequence[IntArray], chosen: IntArray) -> IntArray:
    cost = alone + charge[:, chosen].sum(axis=1)
    for _ in range(50):
        before = chosen.copy()
        for k, mine in enumerate(members):
            new = mine[np.argmin(cost[mine])]
            if new != chosen[k]:
                cost += charge[:, new] - charge[:, chosen[k]]
                chosen[k] = new
        if np.array_equal(before, chosen):
            break
    return chosen
