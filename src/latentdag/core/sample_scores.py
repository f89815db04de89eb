"""Scores of single samples, whose covariance makes standard errors hold for any noise.

A sample of context k has ``F_k x = e + τ_k``, and ``dℓ = tr Ω_k − eᵀ Ω_k (e + τ_k) + eᵀ dτ_k``. In the parameters of
:mod:`latentdag.core.uncertainty` that is an outer product, entry by entry, with latents z and ``M x = B_0 z``:

    X: −(B_kᵀ e)(M x)ᵀ,   β, β_q: −e_i z_j,   ν, τ: e_i,   V: −(B_kᵀ e) wᵀ,   Y: −w (M x)ᵀ,   κ: w,

up to constants, which drop out of a covariance about the mean.
"""

from collections.abc import Iterable

import numpy as np

from latentdag.core.linalg import Array
from latentdag.core.uncertainty import Point


def scores(point: Point, k: int, z: Array, w: Array | None = None) -> Array:
    """Scores (n, P) of samples of context k: latents z (n, d) and remainder w (n, r − d), both from the offset.

    Where means are free, both must be measured from the context's own mean.
    """
    n, members = len(z), point.members(k)
    B_k = point.structural(k)
    e = z @ B_k.T
    hit = point.target[members]
    if point.tau is not None:
        e[:, hit] -= point.tau[members]
    m, g = z @ point.B.T, e @ B_k
    ends = np.cumsum([0, *point.sizes])
    extra = 0 if w is None else (2 * point.d + (point.tau is not None)) * w.shape[1]
    out = np.zeros((n, point.size + extra))
    out[:, : ends[1]] = -(g[:, :, None] * m[:, None, :]).reshape(n, -1)
    i, j = np.nonzero(point.edge)
    out[:, ends[1] : ends[2]] = -(e[:, i] * z[:, j]) * point.alone[k, i]
    q, j = np.nonzero(point.free)
    here = np.flatnonzero(np.isin(q, members))
    out[:, ends[2] + here] = -e[:, point.target[q[here]]] * z[:, j[here]]
    if point.tau is not None:
        out[:, ends[3] : ends[4]] = e * point.alone[k]
        out[:, ends[4] + members] = e[:, hit]
    if w is not None:
        parts = [-g, -m] if point.tau is None else [-g, -m, np.ones((n, 1))]
        out[:, ends[5] :] = (np.hstack(parts)[:, :, None] * w[:, None, :]).reshape(n, -1)
    return out


def score_covariance(point: Point, blocks: Iterable[tuple[int, Array, Array | None]]) -> Array:
    """Covariance of the total score, each context about its own mean score.

    Parameters
    ----------
    blocks : of (context, latents, remainder or None), in any order
    """
    total: Array | None = None
    sums: dict[int, Array] = {}
    counts: dict[int, int] = {}
    for k, z, w in blocks:
        s = scores(point, k, z, w)
        total = np.zeros((s.shape[1], s.shape[1])) if total is None else total
        total += s.T @ s
        sums[k] = sums.get(k, 0.0) + s.sum(axis=0)
        counts[k] = counts.get(k, 0) + len(s)
    if total is None:
        raise ValueError("there are no samples")
    for k, each in sums.items():
        total -= np.outer(each, each) / counts[k]
    return total
