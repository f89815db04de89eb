"""The likelihood of noise rows when no order is known, for any targets (docs/math.md, Targets unknown).

In context k the noises of the latents it leaves alone keep unit variance and stay uncorrelated; nothing is said about
the others. With M the noise rows of all latents, G = M^{-1}, and T the targets of context k, the rest profiles out:

    ℓ(M) = N log|det M| − ½ Σ_i m_i (Σ_{k: i∉T_k} n_k S_k) m_iᵀ + Σ_k n_k/2 · log det((Gᵀ S_k^{-1} G)_TT) + const

For one target each, that is the formula of :mod:`latentdag.core.pairs`. The intervened rows of context k span
``S_k^{-1} G_T``, and a latent whose interventions are perfect has its row in the span of every context that hits it.

Turning two rows in their plane leaves the determinant and all other rows alone, so that ℓ is known at every angle from
numbers that all planes share (`turned_rows`; docs/math.md, The search).
"""

from collections.abc import Iterator

import numpy as np
from scipy import optimize

from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray, complement

#: Angles at which every plane is looked at, over half a turn, and how many of them next to 0 are no other maximum:
#: the best graph's rows need not be where the likelihood without an order is largest.
ANGLES, BESIDE = 48, 5


class OrderFree:
    """Order-free log-likelihood ℓ(M) of noise rows (r, r)."""

    def __init__(self, alone: Array, S: Array, n: Array, hit: BoolArray):
        """Take what does not depend on M.

        Parameters
        ----------
        alone : (r, r, r) sums of ``n_k S_k`` over the contexts that leave each latent alone
        S : (K, r, r) covariances of the perturbed contexts
        n : (K + 1,)
        hit : (K, r) which latents each perturbed context targets
        """
        self.N, self.alone = float(n.sum()), alone
        size = hit.sum(axis=1)
        self.by_size: list[tuple[Array, Array, IntArray]] = []
        for t in np.unique(size[size > 0]):
            k = np.flatnonzero(size == t)
            self.by_size.append(
                (n[1:][k], np.asarray(np.linalg.inv(S[k]), dtype=np.float64), np.argwhere(hit[k])[:, 1].reshape(-1, t))
            )

    def __call__(self, M: Array) -> tuple[float, Array]:
        """Return ℓ and its gradient in E at E = 0, for M moved to (I + E) M."""
        G = np.asarray(np.linalg.inv(M), dtype=np.float64)
        MS = np.einsum("iab,ib->ia", self.alone, M)
        value = self.N * float(np.linalg.slogdet(M)[1]) - 0.5 * float(np.vdot(MS, M))
        gradient = self.N * np.eye(len(M)) - MS @ M.T
        for n, S_inv, at in self.by_size:
            W = G.T[at] @ S_inv @ G  # (k, t, r)
            own = np.take_along_axis(W, at[:, None].repeat(at.shape[1], axis=1), axis=2)
            value += 0.5 * float(n @ np.linalg.slogdet(own)[1])
            np.subtract.at(gradient.T, at, n[:, None, None] * np.linalg.solve(own, W))
        return value, gradient

    def climb(self, M: Array, steps: int, tol: float = 1e-9) -> tuple[Array, float]:
        """Return M after some limited-memory quasi-Newton steps in E, and ℓ there; ``tol`` is nats per sample."""
        eye = np.eye(len(M))

        def objective(x: Array) -> tuple[float, Array]:
            E = eye + x.reshape(M.shape)
            try:
                value, gradient = self(E @ M)
                gradient = np.asarray(np.linalg.solve(E, gradient.T).T)
            except np.linalg.LinAlgError:  # a step too far makes rows coincide
                return np.inf, np.zeros_like(x)
            if not np.isfinite(value):
                return np.inf, np.zeros_like(x)
            return -value / self.N, -gradient.ravel() / self.N

        found = optimize.minimize(
            objective,
            np.zeros(M.size),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxcor": steps, "ftol": tol},
        )
        return np.asarray((eye + found.x.reshape(M.shape)) @ M), -float(found.fun) * self.N

    def intervened_spans(self, M: Array) -> list[Array]:
        """Return what the intervened rows of each context with targets span, (t, r) with unit covariance there.

        In the order of ``by_size``.
        """
        G = np.asarray(np.linalg.inv(M), dtype=np.float64)
        spans = []
        for _, S_inv, at in self.by_size:
            for rows, inverse in zip(G.T[at], S_inv, strict=True):
                U = rows @ inverse
                spans.append(np.asarray(np.linalg.solve(np.linalg.cholesky(U @ rows.T), U)))
        return spans


def turned_rows(design: Design, M: Array, lose_at_most: float) -> Iterator[Array]:
    """Yield noise rows (d, r) in which two were turned to another maximum of ℓ in their plane, the best first.

    A search that mixes two rows ends in a wrong maximum: others of the same plane are likely to be right.

    Parameters
    ----------
    M : (d, r) noise rows of the latents
    lose_at_most : nats
    """
    value = _in_planes(design, M)
    value = value - value[..., :1]
    peak = (value >= np.roll(value, 1, axis=-1)) & (value >= np.roll(value, -1, axis=-1)) & (value > -lose_at_most)
    peak[..., :BESIDE] = peak[..., ANGLES - BESIDE + 1 :] = False
    x, y, step = np.nonzero(peak & np.tri(len(M), k=-1, dtype=bool)[..., None])
    for at in np.argsort(-value[x, y, step], kind="stable"):
        angle, turned, both = np.pi * step[at] / ANGLES, M.copy(), [x[at], y[at]]
        c, s = np.cos(angle), np.sin(angle)
        turned[both] = np.array([[c, s], [-s, c]]) @ M[both]
        yield turned


def _in_planes(design: Design, M: Array) -> Array:
    """Return ℓ (d, d, ANGLES), up to a constant, with rows x and y turned: m_x becomes ``cos m_x + sin m_y``."""
    d, angle = len(M), np.pi * np.arange(ANGLES) / ANGLES
    whole = np.vstack([M, complement((M @ design.S_bar).T).T])
    c_c, c_s, s_s = np.cos(angle) ** 2, np.sin(2 * angle), np.sin(angle) ** 2

    def form(A: Array, i: int) -> Array:
        """Return the quadratic form of A in row i turned towards each other one."""
        return np.asarray(A[i, i] * c_c + A[i, :d, None] * c_s + np.diagonal(A)[:d, None] * s_s)

    half = np.empty((d, d, ANGLES))
    for i in range(d):
        half[i] = -0.5 * design.n_minus[i] * form(M @ design.S_minus[i] @ M.T, i)
    for k, hit in enumerate(design.hits):
        W = np.linalg.inv(whole @ design.S[k] @ whole.T) if hit else np.empty(0)
        for i in hit:
            others = [j for j in hit if j != i]
            alone = W - W[:, others] @ np.linalg.solve(W[np.ix_(others, others)], W[others]) if others else W
            apart = np.setdiff1d(np.arange(d), hit)
            half[i, apart] += 0.5 * design.n[k] * np.log(form(alone, i)[apart])
    return half + half.transpose(1, 0, 2)[..., -np.arange(ANGLES)]
