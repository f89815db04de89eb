"""Two models that no amount of data can tell apart."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentdag.core.linalg import unit_diagonal
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
        """Largest difference between the two models' means, covariances and precision matrices over all contexts.

        Relative: entry [i, j] is measured in units of ``sqrt(S_ii S_jj)``, means in standard deviations.
        """
        return max(_law_gap(self.first, self.second, context) for context in self.first.contexts)

    def unmixing_gap(self) -> float:
        """How far the latents are from being the same up to order and units.

        The largest angle, as its sine, between a row of the first unmixing and the nearest row of the second: 0 iff
        the rows of one are multiples of those of the other, which still leaves the equations to compare.
        """
        H, H_hat = (
            model.unmixing / np.linalg.norm(model.unmixing, axis=1, keepdims=True)
            for model in (self.first, self.second)
        )
        cosine = H @ H_hat.T
        # the residual of the projection, since 1 − cos² would lose half the digits
        sine = np.linalg.norm(H[:, None] - cosine[..., None] * H_hat, axis=2)
        return float(sine.min(axis=1).max())


def pair_of(name: str, statement: str, *, H: Any, B: Sequence[Any], H_hat: Any, B_hat: Sequence[Any]) -> Counterexample:
    return Counterexample(name, statement, model_of(H, B), model_of(H_hat, B_hat))


def random_upper(rng: np.random.Generator, d: int) -> np.ndarray:
    """Upper triangular, positive diagonal, nothing near zero on or above it."""
    size = rng.uniform(0.5, 2.0, size=(d, d))
    sign = np.where(np.eye(d) > 0, 1.0, rng.choice([-1.0, 1.0], size=(d, d)))
    return np.triu(size * sign)


def _law_gap(first: LatentModel, second: LatentModel, context: Hashable) -> float:
    one, other = first.law(context), second.law(context)
    _, deviation = unit_diagonal(one.covariance)
    return max(
        float(np.abs((one.mean - other.mean) / deviation).max()),
        _relative_gap(one.covariance, other.covariance),
        _relative_gap(one.precision, other.precision),
    )


def _relative_gap(S: np.ndarray, S_hat: np.ndarray) -> float:
    _, s = unit_diagonal(S)
    return float(np.abs((S - S_hat) / np.outer(s, s)).max())


def model_of(H: Any, B: Sequence[Any]) -> LatentModel:
    """A model from H and ``[B_0, B_1, …]``, contexts numbered as in the paper."""
    return LatentModel.from_structural(H, B[0], dict(enumerate(B[1:], start=1)), control=0)
