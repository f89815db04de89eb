"""The likelihood of noise rows when no order is known, for any targets (docs/math.md, Targets unknown).

In context k the noises of the latents it leaves alone keep unit variance and stay uncorrelated; nothing is said about
the others. With M the noise rows of all latents, G = M^{-1}, and T the targets of context k, the rest profiles out:

    ℓ(M) = N log|det M| − ½ Σ_i m_i (Σ_{k: i∉T_k} n_k S_k) m_iᵀ + Σ_k n_k/2 · log det((Gᵀ S_k^{-1} G)_TT) + const

For one target each, that is the formula of :mod:`latentdag.core.pairs`. The intervened rows of context k span
``S_k^{-1} G_T``, and a latent whose interventions are perfect has its row in the span of every context that hits it.
"""

import numpy as np
from scipy import optimize

from latentdag.core.linalg import Array, BoolArray, IntArray


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
            value, gradient = self(E @ M)
            if not np.isfinite(value):
                return np.inf, np.zeros_like(x)
            return -value / self.N, -(gradient @ np.linalg.inv(E).T).ravel() / self.N

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
