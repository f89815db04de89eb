"""Mean and covariance of the features in a context that was never run, as functions of the fitted parameters.

The new context has structural rows of its own: those of the control, of fitted interventions (mechanism q, wherever it
was seen), and rows that the user names. With ``F = [B_* H; W]``, ``F^{-1} = [G B_*^{-1}, E]`` and τ its mean noise,

    dμ = F^{-1} (dτ − Ω τ),    dΣ = −F^{-1} (Ω + Ωᵀ) F^{-T},

where the rows of ``Ω D`` are ``T_i``, ``R_q``, or ``b X + db B_0^{-1}`` for a named row b. A named number is in the
user's units, so b and τ move with the scale of the latents, which is estimated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.covariance import Gradient
from latentdag.core.linalg import Array, IntArray
from latentdag.core.quantities import Quantities


@dataclass(frozen=True, eq=False)
class NewRow:
    """What replaces the row of one latent.

    Attributes
    ----------
    latent : int
    row : (d,) structural row
    tau : float
        Mean noise, in standard deviations, where the control's is zero.
    mechanism : int
        The fitted mechanism that it repeats, or −1.
    d_row, d_tau : Gradient of the d entries of the row, and of tau; None for a repeated mechanism
    """

    latent: int
    row: Array
    tau: float
    mechanism: int = -1
    d_row: Gradient | None = None
    d_tau: Gradient | None = None


def named_row(
    of: Quantities, i: int, weights: Array | None, variance: float | None, shift: float, keeps_weights: bool
) -> NewRow:
    """A row whose numbers the user gives in the paper's scaling; ``None`` leaves the control's.

    Parameters
    ----------
    weights : (d,) effects of the other latents on i; None: zero, or the control's if ``keeps_weights``
    """
    point = of.point
    _, log_s = of.log_scale("paper")
    zero = Gradient(point.pack(rows=point.d))
    own = log_s[[i] * point.d]
    if weights is not None:
        w, d_w = weights, (own + log_s.times(-1.0)).times(weights)
    elif keeps_weights:
        beta = np.zeros((point.d, point.d, point.d))
        beta[np.arange(point.d), i, np.arange(point.d)] = -1 / point.B[i, i]
        w, d_w = of.A[i], Gradient(point.pack(beta=beta))
    else:
        w, d_w = np.zeros(point.d), zero
    sd = 1 / point.B[i, i] if variance is None else np.sqrt(variance)
    row = (np.eye(point.d)[i] - w) / sd
    d_log_sd = zero if variance is None else own
    d_row = d_w.times(-1 / sd) + d_log_sd.times(-row)
    # in units of the noise, a shift in the user's units moves with the scale of latent over that of its noise
    d_tau = (own + d_log_sd.times(-1.0)).times(shift / sd)[[0]]
    return NewRow(i, row, shift / sd, -1, d_row, d_tau)


class Response:
    """A new context.

    Parameters
    ----------
    of : Quantities
    G : (p, d) loadings
    E : (p, r − d) what the white remainder contributes to the features
    rows : of the intervened latents
    """

    def __init__(self, of: Quantities, G: Array, E: Array, rows: Sequence[NewRow]):
        self.of, self.E, self.rows = of, E, rows
        self.B, self.tau = of.point.B.copy(), np.zeros(of.point.d)
        for new in rows:
            self.B[new.latent], self.tau[new.latent] = new.row, new.tau
        B_inv = np.linalg.inv(self.B)
        self.U = G @ B_inv  # (p, d), the latents' part of F^{-1}
        self.D_inv = of.point.B @ B_inv
        self.delta = self.D_inv @ self.tau
        self.hit = np.array([new.latent for new in rows], dtype=np.intp)

    def mean(self, features: IntArray) -> Gradient:
        """Gradients of the mean of some features."""
        point, L = self.of.point, self.U[features]
        tau = np.zeros((len(L), len(point.b)))
        nu = L.copy()
        nu[:, self.hit] = 0.0
        total = self._rows(-L, np.tile(self.delta, (len(L), 1)))
        for new in self.rows:
            own = L[:, new.latent]
            if new.mechanism >= 0:
                tau[:, new.mechanism] += own
            elif new.d_tau is not None:
                # latents are measured from the control's mean, which moves with ν
                nu += own[:, None] * (new.row @ point.B_inv)
                total = total + _spread(new.d_tau, own)
        total = total + Gradient(point.pack(nu=nu, tau=tau))
        if not self.E.shape[1]:
            return total
        c = np.concatenate([np.zeros(point.d), -self.delta, [1.0]])[: self.of.n_outer]
        return total + Gradient(np.zeros_like(total.inner), ((np.tile(c, (len(L), 1)), self.E[features]),))

    def covariance(self, a: IntArray, b: IntArray) -> Gradient:
        """Gradients of the covariances of features a and b (m,), but for the remainder's own part."""
        return self._half(a, b) + self._half(b, a)

    def _half(self, a: IntArray, b: IntArray) -> Gradient:
        """Of ``−f_aᵀ Ω f_b`` with f the rows of F^{-1}."""
        u_a, v_b = self.U[a], self.U[b] @ self.D_inv.T
        total = self._rows(-u_a, v_b)
        if not self.E.shape[1]:
            return total
        zero = np.zeros((len(u_a), self.of.point.d))
        last = np.zeros((len(u_a), self.of.n_outer - 2 * self.of.point.d))
        V, Y = np.hstack([-u_a @ self.B, zero, last]), np.hstack([zero, -v_b, last])
        return total + Gradient(np.zeros_like(total.inner), ((V, self.E[b]), (Y, self.E[a])))

    def remainder_variance(self, a: IntArray, b: IntArray, N: float) -> Array:
        """What the estimated covariance of the remainder, from N samples, adds to the variance of covariances."""
        norms = np.einsum("ps,ps->p", self.E, self.E)
        return np.asarray((norms[a] * norms[b] + np.einsum("ps,ps->p", self.E[a], self.E[b]) ** 2) / N)

    def _rows(self, L: Array, v: Array) -> Gradient:
        """Of ``Σ_i L_i (Ω D)_i v``, for L and v (m, d)."""
        point, m = self.of.point, len(L)
        outer = L[:, :, None] * v[:, None, :]
        T, R = outer.copy(), np.zeros((m, len(point.b), point.d))
        T[:, self.hit] = 0.0
        X = np.zeros_like(T)
        total = Gradient(np.zeros((m, point.size)))
        for new in self.rows:
            own = outer[:, new.latent]
            if new.mechanism >= 0:
                R[:, new.mechanism] += own
            elif new.d_row is not None:
                X += new.row[None, :, None] * own[:, None, :]
                along = own @ point.B_inv.T
                for j in np.flatnonzero(new.d_row.inner.any(axis=1)):
                    total = total + _spread(new.d_row[[int(j)]], along[:, j])
        return total + Gradient(point.pull(T, R) + point.pack(X))


def _spread(one: Gradient, factor: Array) -> Gradient:
    """One quantity's gradient, times as many numbers."""
    f = factor[:, None]
    return Gradient(f * one.inner, tuple((f * c, np.tile(v, (len(f), 1))) for c, v in one.outer))
