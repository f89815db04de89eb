"""Separate the noise of single features from what latents share: factor analysis of several contexts at once.

Features that are measured with noise follow ``Σ_k = G C_k Gᵀ + Ψ``, with Ψ diagonal and the same in every context.
With the covariances ``C_k`` left free, only the span of G matters, and they drop out in closed form. In units in which
every noise has variance one, let Q be an orthonormal basis of that span, and l the eigenvalues of ``Qᵀ S_k Q``. Where
``l ≤ 1`` there is nothing but noise, and the others belong to ``C_k + I``, so that

    −2 ℓ = Σ_k n_k [log|Ψ| + tr Ψ^{-1} S_k − Σ_l (l − 1 − log l)₊].

Means of contexts differ inside the span only, so what they do outside counts as noise. The differences
``Σ_k − Σ_0 = G (C_k − C_0) Gᵀ`` do not depend on Ψ, so the contexts help to find the span, and one feature more than
there are latents is enough (docs/math.md, Features measured with noise).

All that later steps need is ``y = Qᵀ Ψ^{-1/2} x``, one number per factor, in whose covariances the noise is the
identity, and how well Ψ is known.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.linalg import cho_factor, cho_solve

from latentdag.core.linalg import Array

#: Share of a feature's variance below which its noise is not told from none.
LEAST_NOISE = 0.005

#: Relative growth of the likelihood at which the optimiser stops.
FACTOR_TOLERANCE = 1e-13


@dataclass(frozen=True, eq=False)
class FactorModel:
    """A factor model of several contexts.

    Attributes
    ----------
    value : float
        The log-likelihood, without ``−N p/2 log 2π``.
    psi : (p,) noise variances
    Q : (p, r) orthonormal basis of ``Ψ^{-1/2} G``
    at_floor : (p,) bool
        Features whose noise was at the floor (a Heywood case).
    """

    value: float
    psi: Array
    Q: Array
    at_floor: Array

    @property
    def W(self) -> Array:
        """(r, p): ``y = W x`` has noise of covariance I."""
        return np.asarray(self.Q.T / np.sqrt(self.psi))


def n_parameters(p: int, r: int, n_contexts: int) -> int:
    """Return the number of free parameters of second moments: span, noise, and the factors' covariances."""
    return p * r + p + n_contexts * r * (r + 1) // 2 - r * r


def fit_factors(
    n: Array,
    S: Array,
    between: Array,
    r: int,
    least: Array | None = None,
    known: Array | None = None,
    start: FactorModel | None = None,
    tolerance: float = FACTOR_TOLERANCE,
) -> FactorModel:
    """Fit r factors by maximum likelihood.

    Parameters
    ----------
    n : (K+1,) weight of each context
    S : (K+1, p, p) covariances; features of about unit variance
    between : (p, p) covariance of the contexts' means, zero where they are not used
    least : (p,), optional
        Noise variances that are known to be there, as that of counting; the noise may be larger.
    known : (p,), optional
        Noise variances that are known; nan where they are not.
    start : FactorModel to start from, optional
    tolerance : float
        Relative growth of the likelihood at which to stop.
    """
    pooled = np.tensordot(n / n.sum(), S, axes=1)
    variance = np.diagonal(pooled).copy()
    floor = LEAST_NOISE * variance if least is None else np.maximum(least, LEAST_NOISE * variance)
    low, high = np.log(floor), np.log(np.maximum(variance, 1.001 * floor))
    if known is not None:
        given = np.isfinite(known)
        low[given] = high[given] = np.log(known[given])
    log_psi, Q = _principal_factors(pooled, r, low, high) if start is None else (np.log(start.psi), start.Q)
    negative = _Negative(n, S, between, log_psi, Q)
    p = len(low)
    found = optimize.minimize(
        negative,
        np.concatenate([log_psi, np.zeros(p * r)]),
        jac=True,
        method="L-BFGS-B",
        bounds=[*zip(low, high, strict=True), *[(None, None)] * (p * r)],
        options={"maxiter": 2000, "maxcor": 20, "ftol": tolerance, "gtol": 1e-9},
    )
    psi, Q = np.exp(found.x[:p]), np.linalg.qr(negative.basis(found.x))[0]
    return FactorModel(-0.5 * float(n.sum()) * float(found.fun), psi, Q, (found.x[:p] <= low + 1e-6) & (high > low))


def _principal_factors(pooled: Array, r: int, low: Array, high: Array) -> tuple[Array, Array]:
    """Return log noise variances and a basis: iterated principal factors of the pooled covariance."""
    ridge = 1e-10 * np.trace(pooled) / len(pooled)
    precision = cho_solve(cho_factor(pooled + ridge * np.eye(len(pooled))), np.eye(len(pooled)))
    log_psi = np.clip(-np.log(np.diagonal(precision)), low, high)
    for _ in range(10):
        scale = np.exp(-0.5 * log_psi)
        eigenvalues, U = np.linalg.eigh(pooled * scale[:, None] * scale)
        U, eigenvalues = U[:, -r:], eigenvalues[-r:]
        shared = np.einsum("ij,j,ij->i", U, np.maximum(eigenvalues - 1, 0.0), U) / scale**2
        log_psi = np.clip(np.log(np.maximum(np.diagonal(pooled) - shared, np.exp(low))), low, high)
    return log_psi, U


class _Negative:
    """−2 ℓ per sample as a function of log ψ and of a basis of the span, with its gradient.

    The basis is ``Q + Z P``, with P such that all entries of Z have about the same curvature: some factors stand out of
    the noise a thousand times more than others.
    """

    def __init__(self, n: Array, S: Array, between: Array, log_psi: Array, Q: Array):
        self.share, self.S, self.between, self.Q = n / n.sum(), S, between, Q
        self.diagonal = self.share @ np.einsum("kii->ki", S) + np.diagonal(between)
        W = Q.T * np.exp(-0.5 * log_psi)
        eigenvalues, U = np.linalg.eigh(W @ (np.tensordot(self.share, S, axes=1) + between) @ W.T)
        self.P = (U / np.sqrt(np.maximum(eigenvalues, 1.0))) @ U.T

    def basis(self, x: Array) -> Array:
        """Return the basis (p, r), not orthonormal."""
        return np.asarray(self.Q + x[len(self.Q) :].reshape(self.Q.shape) @ self.P)

    def __call__(self, x: Array) -> tuple[float, Array]:
        log_psi = x[: len(self.Q)]
        scale = np.exp(-0.5 * log_psi)
        Q, R = np.linalg.qr(self.basis(x))
        SQ = self.S @ (scale[:, None] * Q) * scale[:, None]  # (K+1, p, r) in units of the noise
        eigenvalues, U = np.linalg.eigh(Q.T @ SQ)
        above = np.maximum(eigenvalues, 1.0)
        MQ = self.between @ (scale[:, None] * Q) * scale[:, None]
        value = log_psi.sum() + self.diagonal @ scale**2 - np.vdot(Q, MQ)
        value -= self.share @ (above - 1 - np.log(above)).sum(axis=1)
        # ∂/∂l of l − 1 − log l, in the coordinates of Q
        slope = (U * (1 - 1 / above)[:, None]) @ U.transpose(0, 2, 1) * self.share[:, None, None]
        pulled = (SQ @ slope).sum(axis=0) + MQ
        of_psi = 1 - self.diagonal * scale**2 + np.einsum("ij,ij->i", Q, pulled)
        outside = pulled - Q @ (Q.T @ pulled)
        of_basis = -2 * np.linalg.solve(R, outside.T).T @ self.P
        return float(value), np.concatenate([of_psi, of_basis.ravel()])


def fit_downstream(n: Array, S: Array, between: Array, W: Array) -> float:
    """Return the log-likelihood of d numbers of each sample with free laws, on which all else depends alike everywhere.

    That is what exact features with more dimensions than targeted latents fulfil. In coordinates in which all contexts
    together have unit variance, with Q an orthonormal basis of those d numbers, ``−2 ℓ = Σ_k n_k log det(Qᵀ S_k Q)``
    but for constants.

    Parameters
    ----------
    n, S, between : as for :func:`fit_factors`
    W : (d, p) where to start
    """
    share = n / n.sum()
    L = np.linalg.cholesky(np.tensordot(share, S, axes=1) + between)
    L_inv = np.linalg.inv(L)
    whitened = L_inv @ S @ L_inv.T

    def negative(x: Array) -> tuple[float, Array]:
        Q, R = np.linalg.qr(x.reshape(len(L), -1))
        SQ = whitened @ Q
        inside = Q.T @ SQ
        slope = np.tensordot(share, SQ @ np.linalg.inv(inside), axes=1)
        outside = slope - Q @ (Q.T @ slope)
        return float(share @ np.linalg.slogdet(inside)[1]), 2 * np.linalg.solve(R, outside.T).ravel(order="F")

    found = optimize.minimize(
        negative, (W @ L).T.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": FACTOR_TOLERANCE}
    )
    constant = 2 * np.log(np.diagonal(L)).sum() + len(L)
    return -0.5 * float(n.sum()) * (float(found.fun) + float(constant))


def n_parameters_downstream(p: int, d: int, n_contexts: int) -> int:
    """Return the number of free parameters of :func:`fit_downstream`."""
    return 2 * d * (p - d) + n_contexts * d * (d + 1) // 2 + (p - d) * (p - d + 1) // 2


def noise_precision(n: Array, Q: Array, C: Array, between: Array) -> tuple[Array, Array, Array]:
    """Return what the features beside the factors know about log ψ, and about the span.

    With ``u`` the white coordinates beside y, uncorrelated with it: a change of ψ moves the covariance of u, the same
    in all contexts, and that of y with u, which the span can follow in part.

    Parameters
    ----------
    n : (K+1,)
    Q : (p, r) orthonormal basis of the loadings in units of the noise
    C : (K+1, r, r) covariances of the factors in this basis, without the noise
    between : (r, r) covariance of the contexts' means in this basis

    Returns
    -------
    precision : (p, p) of log ψ, the span profiled out
    span : (r, r) information about the loadings of each u
    follows : (r, r)
        The loadings of u follow a change a of the covariance of y with u by ``−follows a``.
    """
    beside = np.eye(len(Q)) - Q @ Q.T
    V_inv = np.linalg.inv(C + np.eye(Q.shape[1]))
    VC = np.einsum("k,kij,kjl->il", n, V_inv, C)
    span = np.einsum("k,kij,kjl->il", n, C, V_inv @ C) + n.sum() * between
    follows = np.linalg.pinv(span, rcond=1e-10, hermitian=True) @ VC.T
    rest = np.tensordot(n, V_inv, axes=1) - VC @ follows
    across = Q @ rest @ Q.T
    return np.asarray((across + 0.5 * n.sum() * beside) * beside), span, follows
