"""The exact law of latents and features in one context of a model, seen or not."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.core.linalg import pseudo_inverse
from latentdag.model.intervention import Intervention
from latentdag.model.noise import standard_noise

if TYPE_CHECKING:
    from latentdag.model.model import LatentModel


@dataclass(frozen=True, eq=False)
class Law:
    """The exact law of latents and features in one context of a model, seen or not."""

    model: "LatentModel"
    intervention: Intervention | None

    @cached_property
    def weights(self) -> np.ndarray:
        """A_k, (d, d)."""
        A = self.model.weights.copy()
        for name, change in self._changes():
            row = self.model.latents.index(name)
            if change.kind != "soft":
                A[row] = 0.0
            elif change.weights is not None:
                A[row] = 0.0
                for parent, weight in change.weights.items():
                    A[row, self.model.latents.index(parent)] = weight
        return A

    @cached_property
    def noise_variance(self) -> np.ndarray:
        """The diagonal of Ω_k; zero where a latent is set by a do-intervention."""
        Omega = self.model.noise_variance.copy()
        for name, change in self._changes():
            if change.variance is not None:
                Omega[self.model.latents.index(name)] = change.variance
        return Omega

    @cached_property
    def shift(self) -> np.ndarray:
        """Mean of the noise of each latent, zero in the control."""
        shift = np.zeros(self.model.n_latents)
        for name, change in self._changes():
            shift[self.model.latents.index(name)] = change.shift
        return shift

    def _changes(self) -> list[tuple[str, Any]]:
        return [] if self.intervention is None else list(self.intervention.changes.items())

    @property
    def structural(self) -> np.ndarray:
        """B_k = Ω_k^{-1/2} (I − A_k), (d, d); not defined where a do-intervention takes the noise away."""
        if not (self.noise_variance > 0).all():
            raise ValueError("a do-intervention leaves no noise, so there is no structural matrix; use the covariance")
        return (np.eye(len(self.weights)) - self.weights) / np.sqrt(self.noise_variance)[:, None]

    @cached_property
    def noise_response(self) -> np.ndarray:
        """(I − A_k)^{-1} Ω_k^{1/2}: how the latents answer to unit noise, (d, d)."""
        return np.linalg.solve(np.eye(len(self.weights)) - self.weights, np.diag(np.sqrt(self.noise_variance)))

    @cached_property
    def latent_mean(self) -> np.ndarray:
        return np.linalg.solve(np.eye(len(self.weights)) - self.weights, self.shift)

    @property
    def latent_covariance(self) -> np.ndarray:
        return self.noise_response @ self.noise_response.T

    @property
    def factor(self) -> np.ndarray:
        """L (p, d) with Σ_k = L Lᵀ."""
        return self.model.mixing @ self.noise_response

    @property
    def covariance(self) -> np.ndarray:
        """Σ_k, (p, p)."""
        mixed = self.factor @ self.factor.T
        return mixed if self.model.residual is None else mixed + self.model.residual

    @property
    def precision(self) -> np.ndarray:
        """Θ_k = Σ_k†, (p, p)."""
        if (self.noise_variance > 0).all() and self.model.residual is None:
            F = self.structural @ self.model.unmixing
            return F.T @ F
        return pseudo_inverse(self.covariance)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the features, (p,)."""
        return self.model.offset + self.model.mixing @ self.latent_mean

    def sample(self, n: int, rng: Any = None, noise: str = "gaussian") -> np.ndarray:
        """Draw n feature vectors (n, p)."""
        rng = np.random.default_rng(rng)
        X = self.mean + standard_noise(noise, (n, self.model.n_latents), rng) @ self.factor.T
        if self.model.residual is not None:
            w, V = np.linalg.eigh(self.model.residual)
            X += standard_noise("gaussian", (n, len(w)), rng) @ (V * np.sqrt(np.maximum(w, 0.0))).T
        return X
