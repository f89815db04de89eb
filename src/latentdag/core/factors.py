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
from scipy.linalg import cho_factor, cho_solve, eigh, solve_triangular

from latentdag.core.linalg import Array, BoolArray

#: Share of a feature's variance below which its noise is not told from none.
LEAST_NOISE = 0.005

#: Relative growth of the likelihood at which an optimiser stops by default.
FACTOR_TOLERANCE = 1e-13

#: Nats that a scoring step promises at the end: the maximum is then known to many more digits than the data have.
SCORED = 1e-16

#: Scoring steps; where there are fewer factors than were asked for, they would go on for ever.
MOST_STEPS = 25

#: Added to the information about noise variances, relative to its largest entry.
RIDGE = 1e-9


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
    at_floor: BoolArray

    @property
    def W(self) -> Array:
        """(r, p): ``y = W x`` has noise of covariance I."""
        return np.asarray(self.Q.T / np.sqrt(self.psi))


def n_parameters(p: int, r: int, n_contexts: int) -> int:
    """Return the number of free parameters of second moments: span, noise, and the factors' covariances."""
    return p * r + p + n_contexts * r * (r + 1) // 2 - r * r


class FactorProblem:
    """What the factor model is fitted to.

    Parameters
    ----------
    n : (K+1,) weight of each context
    S : (K+1, p, p) covariances; features of about unit variance
    between : (p, p) covariance of the contexts' means, zero where they are not used
    least : (p,), optional
        Noise variances that are known to be there, as that of counting; the noise may be larger.
    known : (p,), optional
        Noise variances that are known; nan where they are not.
    """

    def __init__(self, n: Array, S: Array, between: Array, least: Array | None = None, known: Array | None = None):
        self.n, self.N, self.share, self.S, self.between = n, float(n.sum()), n / n.sum(), S, between
        self.pooled = np.tensordot(self.share, S, axes=1)
        variance = np.diagonal(self.pooled)
        floor = LEAST_NOISE * variance if least is None else np.maximum(least, LEAST_NOISE * variance)
        self.low, self.high = np.log(floor), np.log(np.maximum(variance, 1.001 * floor))
        if known is not None:
            given = np.isfinite(known)
            self.low[given] = self.high[given] = np.log(known[given])
        self.diagonal = variance + np.diagonal(between)

    def fit(
        self, r: int, start: FactorModel | None = None, tolerance: float = FACTOR_TOLERANCE, goal: float = -np.inf
    ) -> FactorModel:
        """Fit r factors by maximum likelihood, up to a relative growth of the likelihood.

        ``start`` may have fewer factors. A fit that will not come near the ``goal``, a log-likelihood, is not finished.
        """
        log_psi, Q = self._principal_factors(r) if start is None else self._extended(start, r)
        P, p = self._preconditioner(log_psi, Q), len(Q)

        def negative(x: Array) -> tuple[float, Array]:
            basis, R = np.linalg.qr(Q + x[p:].reshape(Q.shape) @ P)
            at = self.slope(x[:p], basis)
            of_basis = -2 * np.linalg.solve(R, at.outside.T).T @ P
            return at.value, np.concatenate([at.of_psi, of_basis.ravel()])

        found = optimize.minimize(
            negative,
            np.concatenate([log_psi, np.zeros(p * r)]),
            jac=True,
            method="L-BFGS-B",
            bounds=[*zip(self.low, self.high, strict=True), *[(None, None)] * (p * r)],
            options={"maxiter": 2000, "maxcor": 20, "ftol": tolerance, "gtol": 1e-9},
            callback=_Hopeless(-2 * goal / self.N),
        )
        return self._model(float(found.fun), found.x[:p], np.linalg.qr(Q + found.x[p:].reshape(Q.shape) @ P)[0])

    def polish(self, model: FactorModel) -> FactorModel:
        """Return the maximum near a model: Fisher scoring, which doubles the digits where the model holds."""
        log_psi, Q = np.log(model.psi), model.Q
        now = self.slope(log_psi, Q)
        for _ in range(MOST_STEPS):
            a, dQ, gain = self._scoring_step(log_psi, Q, now)
            if not gain > SCORED:
                break
            size = 1.0
            while size > 1e-4:
                psi_there = np.clip(log_psi + size * a, self.low, self.high)
                Q_there = np.linalg.qr(Q + size * dQ)[0]
                there = self.slope(psi_there, Q_there)
                # once a step promises this little, the likelihood is all rounding, and the gradient is not
                if gain < 1e-7 or there.value < now.value - 1e-4 * size * gain * 2 / self.N:
                    break
                size /= 2
            else:
                return self.fit(Q.shape[1], self._model(now.value, log_psi, Q))
            log_psi, Q, now = psi_there, Q_there, there
        return self._model(now.value, log_psi, Q)

    def slope(self, log_psi: Array, Q: Array) -> "FactorSlope":
        """Return −2 ℓ per sample at noise variances and an orthonormal basis of the span, and its gradient."""
        scale = np.exp(-0.5 * log_psi)
        scaled = scale[:, None] * Q
        SQ = self.S @ scaled * scale[:, None]  # (K+1, p, r) in units of the noise
        eigenvalues, U = np.linalg.eigh(Q.T @ SQ)
        above = np.maximum(eigenvalues, 1.0)
        MQ = self.between @ scaled * scale[:, None]
        value = log_psi.sum() + self.diagonal @ scale**2 - np.vdot(Q, MQ)
        value -= self.share @ (above - 1 - np.log(above)).sum(axis=1)
        # ∂/∂l of l − 1 − log l, in the coordinates of Q
        slope = (U * (1 - 1 / above)[:, None]) @ U.transpose(0, 2, 1) * self.share[:, None, None]
        pulled = (SQ @ slope).sum(axis=0) + MQ
        of_psi = 1 - self.diagonal * scale**2 + np.einsum("ij,ij->i", Q, pulled)
        C = (U * (above - 1)[:, None]) @ U.transpose(0, 2, 1)
        return FactorSlope(float(value), of_psi, pulled - Q @ (Q.T @ pulled), C, Q.T @ MQ)

    def _scoring_step(self, log_psi: Array, Q: Array, at: "FactorSlope") -> tuple[Array, Array, float]:
        """Return the step in log ψ and in the basis, and the nats that it promises.

        Noises at a bound that the slope pushes them against stay there.
        """
        precision, span, follows = noise_precision(self.n, Q, at.C, at.moved)
        along = at.outside @ np.linalg.pinv(span, rcond=1e-10, hermitian=True)
        # the span follows the noise; what is left of the slope is that of the noise alone
        rest = -0.5 * self.N * at.of_psi - self.N * np.einsum("ij,ij->i", Q @ follows.T + 0.5 * Q, at.outside)
        stuck = ((log_psi <= self.low) & (rest < 0)) | ((log_psi >= self.high) & (rest > 0)) | (self.low == self.high)
        free, a = np.flatnonzero(~stuck), np.zeros(len(Q))
        a[free] = solve_precision(precision[np.ix_(free, free)], rest[free])
        AQ = a[:, None] * Q
        dQ = -AQ @ follows.T - 0.5 * AQ
        gain = 0.5 * float(a @ rest) + 0.5 * self.N**2 * float(np.vdot(along, at.outside))
        return a, dQ - Q @ (Q.T @ dQ) + self.N * along, gain

    def _model(self, value: float, log_psi: Array, Q: Array) -> FactorModel:
        at_floor = (log_psi <= self.low + 1e-6) & (self.high > self.low)
        return FactorModel(-0.5 * self.N * value, np.exp(log_psi), Q, at_floor)

    def _preconditioner(self, log_psi: Array, Q: Array) -> Array:
        """Return P (r, r) such that all entries of Z in a basis ``Q + Z P`` have about the same curvature.

        Some factors stand out of the noise a thousand times more than others.
        """
        W = Q.T * np.exp(-0.5 * log_psi)
        eigenvalues, U = np.linalg.eigh(W @ (self.pooled + self.between) @ W.T)
        return np.asarray((U / np.sqrt(np.maximum(eigenvalues, 1.0))) @ U.T)

    def _principal_factors(self, r: int) -> tuple[Array, Array]:
        """Return log noise variances and a basis: iterated principal factors of the pooled covariance."""
        p, pooled = len(self.pooled), self.pooled
        ridge = 1e-10 * np.trace(pooled) / p
        precision = cho_solve(cho_factor(pooled + ridge * np.eye(p)), np.eye(p))
        log_psi, U = np.clip(-np.log(np.diagonal(precision)), self.low, self.high), np.empty((p, 0))
        for _ in range(10):
            scale = np.exp(-0.5 * log_psi)
            A = pooled * scale[:, None] * scale
            # the first time in full, then one step of the power method each
            U = eigh(A, subset_by_index=(p - r, p - 1))[1] if not U.size else np.linalg.qr(A @ U)[0]
            eigenvalues, turn = np.linalg.eigh(U.T @ A @ U)
            U = U @ turn
            shared = np.einsum("ij,j,ij->i", U, np.maximum(eigenvalues - 1, 0.0), U) / scale**2
            log_psi = np.clip(np.log(np.maximum(np.diagonal(pooled) - shared, np.exp(self.low))), self.low, self.high)
        return log_psi, U

    def _extended(self, start: FactorModel, r: int) -> tuple[Array, Array]:
        """Return log noise variances and a basis of more factors: those that most is left in."""
        Q, scale = start.Q, 1 / np.sqrt(start.psi)
        p, known = Q.shape
        if r > known:
            A = self.pooled * scale[:, None] * scale
            A -= Q @ (Q.T @ A)
            A -= (A @ Q) @ Q.T
            Q = np.linalg.qr(np.hstack([Q, eigh(A, subset_by_index=(p - r + known, p - 1))[1]]))[0]
        return np.log(start.psi), Q


@dataclass(frozen=True, eq=False)
class FactorSlope:
    """−2 ℓ per sample of a factor model, and its gradient.

    Attributes
    ----------
    value : float
    of_psi : (p,) gradient in log ψ
    outside : (p, r) −½ of the gradient in the basis, orthogonal to it
    C : (K+1, r, r) covariances of the factors, without the noise
    moved : (r, r) covariance of the contexts' means
    """

    value: float
    of_psi: Array
    outside: Array
    C: Array
    moved: Array


def solve_precision(precision: Array, b: Array) -> Array:
    """Return ``precision^{-1} b``; what the data know nothing about gets a large variance, not none."""
    ridge = RIDGE * float(np.diagonal(precision).max(initial=np.finfo(float).tiny))
    return np.asarray(cho_solve(cho_factor(precision + ridge * np.eye(len(b))), b)) if len(b) else b


class _Hopeless:
    """Stop a minimiser that would need thousands of steps like its last three to come below a goal."""

    def __init__(self, goal: float):
        self.goal, self.values = goal, [np.inf] * 3

    def __call__(self, intermediate_result: optimize.OptimizeResult) -> None:
        now = float(intermediate_result.fun)
        if now - self.goal > 1000 * (self.values[-3] - now):
            raise StopIteration
        self.values.append(now)


def fit_downstream(
    n: Array, S: Array, between: Array, W: Array, tolerance: float = FACTOR_TOLERANCE, goal: float = -np.inf
) -> float:
    """Return the log-likelihood of d numbers of each sample with free laws, on which all else depends alike everywhere.

    That is what exact features with more dimensions than targeted latents fulfil. In coordinates in which all contexts
    together have unit variance, with Q an orthonormal basis of those d numbers, ``−2 ℓ = Σ_k n_k log det(Qᵀ S_k Q)``
    but for constants.

    Parameters
    ----------
    n, S, between : as for :class:`FactorProblem`
    W : (d, p) where to start
    tolerance, goal : as for :meth:`FactorProblem.fit`
    """
    share, p = n / n.sum(), W.shape[1]
    L = np.linalg.cholesky(np.tensordot(share, S, axes=1) + between)

    def negative(x: Array) -> tuple[float, Array]:
        Q, R = np.linalg.qr(x.reshape(p, -1))
        V = solve_triangular(L, Q, trans=1, lower=True)
        SV = S @ V
        inside = V.T @ SV
        slope = solve_triangular(L, np.tensordot(share, SV @ np.linalg.inv(inside), axes=1), lower=True)
        outside = slope - Q @ (Q.T @ slope)
        return float(share @ np.linalg.slogdet(inside)[1]), 2 * np.linalg.solve(R, outside.T).ravel(order="F")

    constant = p + 2 * float(np.log(np.diagonal(L)).sum())
    found = optimize.minimize(
        negative,
        (W @ L).T.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": tolerance},
        callback=_Hopeless(-2 * goal / float(n.sum()) - constant),
    )
    return float(-0.5 * n.sum() * (found.fun + constant))


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
