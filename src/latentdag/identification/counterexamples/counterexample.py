"""Two models that no amount of data can tell apart, and how to build the second from the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentdag.identification.equivalence import law_gap, relative_gap
from latentdag.model.model import LatentModel


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Two models with the same contexts and the same moments.

    Attributes
    ----------
    name : str
    statement : str
        What the pair shows, in one sentence.
    first, second : LatentModel
    """

    name: str
    statement: str
    first: LatentModel
    second: LatentModel

    @property
    def latent_map(self) -> np.ndarray:
        """T (d, d) with ``Ẑ = T Z``: the second model's latents in terms of the first's."""
        return self.second.unmixing @ self.first.mixing

    def moment_gap(self) -> float:
        """Return the largest difference between the models' means, covariances and precisions over all contexts.

        Relative: entry [i, j] is measured in units of ``sqrt(S_ii S_jj)``, means in standard deviations.
        """
        one, other = self.first, self.second
        return max(
            max(law_gap(one, other, context), relative_gap(one.precision(context), other.precision(context)))
            for context in one.contexts
        )

    def unmixing_gap(self) -> float:
        """Return how far the latents are from being the same up to order and units.

        It is the largest angle, as its sine, between a row of the first unmixing and the nearest row of the second: 0
        iff the rows of one are multiples of those of the other, which still leaves the equations to compare.
        """
        H, H_hat = (
            model.unmixing / np.linalg.norm(model.unmixing, axis=1, keepdims=True)
            for model in (self.first, self.second)
        )
        cosine = H @ H_hat.T
        # the residual of the projection, since 1 − cos² would lose half the digits
        sine = np.linalg.norm(H[:, None] - cosine[..., None] * H_hat, axis=2)
        return float(sine.min(axis=1).max())


def pair_of(name: str, statement: str, *, H: Any, B: Sequence[Any], H_hat: Any) -> Counterexample:
    """Return the pair with other latents ``Ẑ = T Z`` and the same noises: ``Ĥ = T H`` and ``B̂_k = B_k T^{-1}``.

    Parameters
    ----------
    H, H_hat : (d, d)
        Both unmixings; ``T^{-1} = H Ĥ^{-1}``.
    B : [B_0, B_1, …], each (d, d)
        Structural matrices of the first model.
    """
    B_hat = np.asarray(B, dtype=float) @ np.asarray(H) @ np.linalg.inv(H_hat)
    B_hat[np.abs(B_hat) < 1e-12 * np.abs(B_hat).max()] = 0.0
    return Counterexample(name, statement, model_of(H, B), model_of(H_hat, B_hat))


def model_of(H: Any, B: Sequence[Any]) -> LatentModel:
    """Return the model with unmixing H and structural matrices ``[B_0, B_1, …]``, contexts numbered as in the paper."""
    return LatentModel.from_structural(H, B[0], dict(enumerate(B[1:], start=1)), control=0)


def random_upper(rng: np.random.Generator, d: int) -> np.ndarray:
    """Draw an upper triangular matrix (d, d) of positive diagonal, with nothing near zero on or above it."""
    size = rng.uniform(0.5, 2.0, size=(d, d))
    sign = np.where(np.eye(d) > 0, 1.0, rng.choice([-1.0, 1.0], size=(d, d)))
    return np.triu(size * sign)
