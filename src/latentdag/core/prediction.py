"""Compute the mean and covariance of the features in a context that was never run, with gradients in the parameters.

The new context has structural rows of its own: those of the control, of fitted interventions (mechanism q, wherever it
was seen), and rows that the user names. With ``F = [B_* H; W]``, ``F^{-1} = [G B_*^{-1}, E]`` and τ its mean noise,

    dμ = F^{-1} (dτ − Ω τ),    dΣ = −F^{-1} (Ω + Ωᵀ) F^{-T},

where the rows of ``Ω D`` are those of V (:mod:`latentdag.core.jacobian`) of a mechanism of the fit, or
``b X + db B_0^{-1}`` for a named row b. A named number is in the user's units, so b and τ move with the scale of the
latents, which is estimated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.covariance import Gradient
from latentdag.core.linalg import Array, IntArray
from latentdag.core.quantities import Quantities


@dataclass(frozen=True, eq=False)
class NewRow:
    """Say what replaces the row of one latent.

    Attributes
    ----------
    latent : int
    row : (d,) structural row
    tau : float
        Mean noise, in standard deviations, where the control's is zero.
    mechanism : int
        The mechanism of the fit that it repeats, counted as in a :class:`latentdag.core.jacobian.Point`, or −1.
    d_row, d_tau : Gradient of the d entries of the row, and of tau; None for a repeated mechanism
    """

    latent: int
    row: Array
    tau: float
    mechanism: int = -1
    d_row: Gradient | None = None
    d_tau: Gradient | None = None


def named_row(
    of: Quantities, i: int, weights: Array | None, variance: float | None, shift: float, kept: float
) -> NewRow:
    """Return a row whose numbers the user gives in the paper's scaling; ``None`` leaves the control's.

    Parameters
    ----------
    weights : (d,) effects of the other latents on i; None: the share ``kept`` of the control's
    """
    point = of.point
    _, log_s = of.log_scale("paper")
    own = log_s[[i] * point.d]
    w, d_w = np.zeros(point.d), Gradient(np.zeros((point.d, point.size)))
    if weights is not None:
        w, d_w = weights, (own + log_s.times(-1.0)).times(weights)
    elif kept:
        w, d_w = kept * of.A[i], of.entries(i, np.arange(point.d)).times(-kept / point.B[i, i])
    sd = 1 / point.B[i, i] if variance is None else np.sqrt(variance)
    row = (np.eye(point.d)[i] - w) / sd
    d_log_sd = own.times(0.0 if variance is None else 1.0)
    d_row = d_w.times(-1 / sd) + d_log_sd.times(-row)
    # in units of the noise, a shift in the user's units moves with the scale of latent over that of its noise
    d_tau = (own + d_log_sd.times(-1.0)).times(shift / sd)[[0]]
    return NewRow(i, row, shift / sd, -1, d_row, d_tau)


class Response:
    """Differentiate the law of a new context.

    Parameters
    ----------
    of : Quantities
    G : (p, d) loadings
    E : (p, r − d) what the white remainder contributes to the features
    rows : of the intervened latents
    """

    def __init__(self, of: Quantities, G: Array, E: Array, rows: Sequence[NewRow]):
        self.of, self.point, self.E = of, of.point, E
        self.B, tau = self.point.B.copy(), np.zeros(self.point.d)
        self.mechanism = np.arange(self.point.d)
        for new in rows:
            self.B[new.latent], tau[new.latent], self.mechanism[new.latent] = new.row, new.tau, new.mechanism
        self.named = [new for new in rows if new.mechanism < 0]
        self.B_inv = B_inv = np.linalg.inv(self.B)
        self.U = G @ B_inv  # (p, d), the latents' part of F^{-1}
        self.D_inv = self.point.B @ B_inv
        self.delta = self.D_inv @ tau

    def _by_mechanism(self, L: Array) -> Array:
        """Sort what belongs to latents (m, d, …) by the mechanism that they follow (m, d + q, …), named rows aside."""
        out = np.zeros((len(L), len(self.point.rows), *L.shape[2:]))
        of_fit = self.mechanism >= 0
        out[:, self.mechanism[of_fit]] = L[:, of_fit]
        return out

    def mean(self, features: IntArray) -> Gradient:
        """Return the gradients of the mean of some features."""
        L = self.U[features]
        delta, tau = np.tile(self.delta, (len(L), 1)), self._by_mechanism(L)
        total = self._rows(-L, delta)
        for new in self.named:
            own = L[:, new.latent]
            # latents are measured from the control's mean, which moves with the first d of τ
            tau[:, : self.point.d] += own[:, None] * (new.row @ self.point.B_inv)
            total = total + new.d_tau.times(own)  # type: ignore[union-attr]
        total = total + Gradient(self.point.pack(tau=tau))
        if not self.E.shape[1]:
            return total
        if self.point.noise is not None:
            means = np.vstack([self.delta, self.point.n @ self.point.delta / self.point.n.sum()]) @ self.point.B_inv.T
            return total + self._beside(np.tile(means[0] - means[1], (len(L), 1)), features, 1.0)
        c = np.hstack([np.zeros_like(delta), -delta, np.ones((len(L), 1))])[:, : self.point.n_outer]
        return total + Gradient(np.zeros_like(total.inner), ((c, self.E[features]),))

    def covariance(self, a: IntArray, b: IntArray) -> Gradient:
        """Return the gradients of the covariances of features a and b (m,), but for the remainder's own part."""
        return self._half(a, b) + self._half(b, a)

    def _half(self, a: IntArray, b: IntArray) -> Gradient:
        """Return the gradients of ``−f_aᵀ Ω f_b`` with f the rows of F^{-1}."""
        u_a, v_b = self.U[a], self.U[b] @ self.D_inv.T
        total = self._rows(-u_a, v_b)
        if self.point.noise is not None:
            total.inner[:, self.point.size - self.point.n_noise :][a == b, a[a == b]] += (
                0.5 * self.of.feature_noise[a[a == b]]
            )
            return total + self._beside(u_a @ self.B_inv.T, b, 0.0) if self.E.shape[1] else total
        if not self.E.shape[1]:
            return total
        zero = np.zeros((len(u_a), self.point.d))
        last = np.zeros((len(u_a), self.point.n_outer - 2 * self.point.d))
        V, Y = np.hstack([-u_a @ self.B, zero, last]), np.hstack([zero, -v_b, last])
        return total + Gradient(np.zeros_like(total.inner), ((V, self.E[b]), (Y, self.E[a])))

    def _beside(self, c: Array, features: IntArray, mean: float) -> Gradient:
        """Return the gradients of ``Σ_u E_u (c ζ_u + mean κ_u)`` where features are noisy, ζ following their noise."""
        span, W = self.point.noise.span, self.of.W  # type: ignore[union-attr]
        inner = np.zeros((len(c), self.point.size))
        inner[:, self.point.size - self.point.n_noise :] = -(c @ span.J @ (span.H * span.psi)) * (self.E[features] @ W)  # type: ignore[union-attr]
        return Gradient(inner, ((np.hstack([c, np.full((len(c), 1), mean)]), self.E[features]),))

    def remainder_variance(self, a: IntArray, b: IntArray, N: float) -> Array:
        """Return what the remainder's covariance, estimated from N samples, adds to the variance of covariances."""
        if self.point.noise is not None:  # noise of the features, which has its own error
            return np.zeros(len(a))
        norms = np.einsum("ps,ps->p", self.E, self.E)
        return np.asarray((norms[a] * norms[b] + np.einsum("ps,ps->p", self.E[a], self.E[b]) ** 2) / N)

    def _rows(self, L: Array, v: Array) -> Gradient:
        """Return the gradients of ``Σ_i L_i (Ω D)_i v``, for L and v (m, d)."""
        outer = L[:, :, None] * v[:, None, :]
        total = Gradient(self.point.pull(self._by_mechanism(outer)))
        for new in self.named:
            own = outer[:, new.latent]
            total = total + Gradient(self.point.pack(new.row[None, :, None] * own[:, None, :]))
            along, d_row = own @ self.point.B_inv.T, new.d_row
            for j in np.flatnonzero(d_row.inner.any(axis=1)):  # type: ignore[union-attr]
                total = total + d_row[[int(j)]].times(along[:, j])  # type: ignore[index]
        return total
