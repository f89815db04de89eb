"""The exact distribution of latents and features in one context: its moments, samples and likelihood.

In context k the latents solve ``Z = A_k Z + shift_k + Ω_k^{1/2} ε`` with independent unit noises ε, and the features
are ``X = offset + G Z``. Everything here follows from the *noise response* ``(I − A_k)^{-1} Ω_k^{1/2}`` (d, d), which
turns unit noises into latents: covariances are its squares, samples are its products with drawn noise.

The context may be one of the model's own or one that was never run (:meth:`LatentModel.intervene`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.core.linalg import pseudo_inverse
from latentdag.data.moments import Moments
from latentdag.model.intervention import Change, Intervention

if TYPE_CHECKING:
    from latentdag.model.model import LatentModel

#: Degrees of freedom of the Student-t noise: heavy tails with a finite fourth moment.
STUDENT_DF = 5

_DRAW = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "laplace": lambda rng, shape: rng.laplace(scale=np.sqrt(0.5), size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1.0,
    "uniform": lambda rng, shape: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=shape),
    "student-t": lambda rng, shape: rng.standard_t(STUDENT_DF, size=shape) * np.sqrt(1 - 2 / STUDENT_DF),
}
#: Names of the noises that samples can be drawn with, each of mean zero and variance one.
NOISES = tuple(_DRAW)


@dataclass(frozen=True, eq=False)
class Law:
    """The exact distribution of latents and features in one context, seen or not.

    Attributes
    ----------
    model : LatentModel
    intervention : Intervention or None
        What the context does to the latents; ``None`` is the control.

    Examples
    --------
    >>> from latentdag import simulate
    >>> law = simulate.random_model(n_latents=3, n_features=4, rng=0).law("c1")
    >>> law.weights.shape, law.covariance.shape, law.sample(5, rng=0).shape
    ((3, 3), (4, 4), (5, 4))
    """

    model: "LatentModel"
    intervention: Intervention | None

    def _changes(self) -> Iterator[tuple[int, Change]]:
        """Yield the row of each targeted latent and what happens to it."""
        for name, change in self.intervention.changes.items() if self.intervention else ():
            yield self.model.latents.index(name), change

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights A_k (d, d); ``[i, j]`` is the effect of latent j on latent i in this context."""
        A = self.model.weights.copy()
        for row, change in self._changes():
            if change.kind != "soft" or change.weights is not None:
                A[row] *= 1.0 - change.strength
            for parent, weight in (change.weights or {}).items():
                A[row, self.model.latents.index(parent)] = weight
        return A

    @cached_property
    def noise_variance(self) -> np.ndarray:
        """Diagonal of Ω_k (d,); zero where a do-intervention sets a latent."""
        Omega = self.model.noise_variance.copy()
        for row, change in self._changes():
            if change.variance is not None:
                Omega[row] = change.variance
        return Omega

    @cached_property
    def shift(self) -> np.ndarray:
        """Mean of each latent's noise (d,), zero in the control."""
        shift = np.zeros(self.model.n_latents)
        for row, change in self._changes():
            shift[row] = change.shift
        return shift

    @property
    def structural(self) -> np.ndarray:
        """B_k = Ω_k^{-1/2} (I − A_k), (d, d); not defined where a do-intervention takes the noise away."""
        if not (self.noise_variance > 0).all():
            raise ValueError("a do-intervention leaves no noise, so there is no structural matrix; use the covariance")
        return (np.eye(len(self.weights)) - self.weights) / np.sqrt(self.noise_variance)[:, None]

    @cached_property
    def noise_response(self) -> np.ndarray:
        """Response of the latents to unit noise, ``(I − A_k)^{-1} Ω_k^{1/2}`` (d, d)."""
        return np.linalg.solve(np.eye(len(self.weights)) - self.weights, np.diag(np.sqrt(self.noise_variance)))

    @cached_property
    def latent_mean(self) -> np.ndarray:
        """Mean of the latents (d,), measured from their mean in the control."""
        return np.linalg.solve(np.eye(len(self.weights)) - self.weights, self.shift)

    @property
    def latent_covariance(self) -> np.ndarray:
        """Covariance of the latents (d, d)."""
        return self.noise_response @ self.noise_response.T

    @property
    def factor(self) -> np.ndarray:
        """L (p, d) such that ``L Lᵀ`` is what the latents contribute to Σ_k."""
        return self.model.mixing @ self.noise_response

    @property
    def residual_factor(self) -> np.ndarray:
        """R (p, p) such that ``R Rᵀ`` is the model's residual covariance; (p, 0) if it has none."""
        if self.model.residual is None:
            return np.empty((self.model.n_features, 0))
        w, V = np.linalg.eigh(self.model.residual)
        return np.asarray(V * np.sqrt(np.maximum(w, 0.0)))

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the features, Σ_k (p, p)."""
        mixed = self.factor @ self.factor.T
        return mixed if self.model.residual is None else mixed + self.model.residual

    @property
    def precision(self) -> np.ndarray:
        """Pseudo-inverse of the covariance of the features, Θ_k = Σ_k† (p, p)."""
        if (self.noise_variance > 0).all() and self.model.residual is None:
            F = self.structural @ self.model.unmixing
            return F.T @ F
        return pseudo_inverse(self.covariance)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the features (p,)."""
        return self.model.offset + self.model.mixing @ self.latent_mean

    def sample(self, n: int, rng: Any = None, noise: str = "gaussian") -> np.ndarray:
        """Draw n feature vectors (n, p) with latent noise of one of the names in ``NOISES``; residuals are Gaussian."""
        rng = np.random.default_rng(rng)
        X = self.mean + standard_noise(noise, (n, self.model.n_latents), rng) @ self.factor.T
        if self.model.residual is not None:
            X += rng.standard_normal((n, self.model.n_features)) @ self.residual_factor.T
        return X


def standard_noise(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw independent "gaussian", "laplace", "exponential", "uniform" or "student-t" noise, mean 0 and variance 1."""
    if name not in _DRAW:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {name!r}")
    return np.asarray(_DRAW[name](rng, shape))


def log_likelihood(model: "LatentModel", m: Moments) -> float:
    """Return the Gaussian log-likelihood of the samples behind ``m``: how well the model explains them.

    Densities are with respect to volume on the model's d-dimensional feature space, or on that of all features where
    those are noisy. The value is ``nan`` where the data
    span another space than the model, or where a do-intervention leaves a latent no density.
    """
    H = model.unmixing
    U = m.range
    outside = H - (H @ U) @ U.T
    if "do" in {change.kind for value in model.interventions.values() for change in value.changes.values()}:
        return float("nan")
    if model.feature_noise is not None:
        return _noisy_log_likelihood(model, m)
    if U.shape[1] != model.n_latents or np.abs(outside).max() > 1e-6 * np.abs(H).max():
        return float("nan")
    # volume on the feature space: X = G Z stretches latent volume by sqrt(det GᵀG), and H undoes it where G = H†
    G, sign = (H.T, -2) if model.loadings is None else (model.loadings, 2)
    stretch = sign * np.log(np.abs(np.diagonal(np.linalg.qr(G, mode="r")))).sum()
    n, total = m.counts, 0.0
    for k, context in enumerate(m.contexts):
        law = model.law(context)
        B = law.structural @ H
        means = B @ (m.means[k] - model.offset) - law.shift / np.sqrt(law.noise_variance)
        squares = np.einsum("ij,ij->", B @ m.covariances[k], B) * (n[k] - 1) / n[k] + means @ means
        total += n[k] * (np.log(law.noise_variance).sum() + squares)
    # the graph has no cycle, so the determinant of B is the product of its diagonal
    return float(-0.5 * (total + n.sum() * (stretch + model.n_latents * np.log(2 * np.pi))))


def _noisy_log_likelihood(model: "LatentModel", m: Moments) -> float:
    """Return the log-likelihood where every feature has noise of its own; that is inverted once, for all contexts."""
    residual = np.asarray(model.residual)
    R_inv, log_det = np.linalg.inv(residual), np.linalg.slogdet(residual)[1] + len(residual) * np.log(2 * np.pi)
    total = 0.0
    for k, context in enumerate(m.contexts):
        law, n = model.law(context), m.counts[k]
        away = m.means[k] - law.mean
        about = m.covariances[k] * (n - 1) / n + away[:, None] * away
        T = R_inv @ law.factor
        A = np.eye(model.n_latents) + law.factor.T @ T
        squares = np.vdot(R_inv, about) - np.trace(np.linalg.solve(A, T.T @ about @ T))
        total += n * (log_det + np.linalg.slogdet(A)[1] + squares)
    return -0.5 * float(total)
