"""Models on which the paper's rule for finding the control ties or errs."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from latentdag.core.exact import TOLERANCE
from latentdag.core.linalg import range_basis, symmetrize
from latentdag.errors import clear_numerics
from latentdag.identification.identify import as_precisions
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel


@dataclass(frozen=True, eq=False)
class DeviationTie:
    """A model on which the appendix's rule for finding the control fails.

    Attributes
    ----------
    name : str
    statement : str
    model : LatentModel
    scores : tuple of int
        The deviation score r_k of every context, in the model's order: the control first.
    """

    name: str
    statement: str
    model: LatentModel
    scores: tuple[int, ...]

    @property
    def chosen(self) -> tuple[Hashable, ...]:
        """The contexts of lowest score: what the rule takes for the control."""
        return tuple(c for c, r in zip(self.model.contexts, self.scores, strict=True) if r == min(self.scores))


@clear_numerics
def deviation_scores(precisions: Any, tol: float = TOLERANCE) -> np.ndarray:
    """Return the deviation score of every context, ``r_k = Σ_{l ≠ k} rank(Θ_k − Θ_l)`` (Definition 2).

    The sum runs over all other contexts. The paper's definition prints ``l ∈ [K]``, without the control; then a context
    other than the control would have one summand less, and its proof counts them all.

    Parameters
    ----------
    precisions : (K+1, p, p)
        Exact precision matrices, in any order.
    tol : float
        Eigenvalues of ``Θ_k − Θ_l`` relative to ``Θ_k + Θ_l``, which lie in [−1, 1] and do not depend on the
        coordinates of X, count as zero below it.

    Returns
    -------
    (K+1,) int

    Examples
    --------
    >>> deviation_scores([np.diag([1.0, 1.0]), np.diag([2.0, 1.0]), np.diag([1.0, 3.0])])
    array([2, 3, 3])
    """
    Theta, _, _ = as_precisions(precisions)
    U = range_basis(symmetrize(Theta.mean(axis=0)))
    P = symmetrize(U.T @ Theta @ U)
    ranks = np.zeros((len(P), len(P)), dtype=int)
    for k in range(len(P)):
        for j in range(k):
            relative = linalg.eigvalsh(P[k] - P[j], P[k] + P[j])
            ranks[k, j] = ranks[j, k] = np.sum(np.abs(relative) > tol)
    return ranks.sum(axis=1)


def star_tie(n_latents: int = 2) -> DeviationTie:
    """Return a star, in which the control and the context of the root have the same score (Proposition 10 ties).

    The appendix takes the context of lowest score for the control. Its proof has ``r_kl ≥ 3`` for a context l whose
    target has parents. But if k targets the only parent of that target, ``Θ_k − Θ_l`` lives in the plane of two rows
    of H and has rank two. For 2 → 1 the scores are (3, 4, 3); for a root with d − 1 children the control and the root's
    context both have 2d − 1. Barring cancellation these are the only ties: in any other graph there is a second source
    or a latent with a parent that is no source, and either makes every context but the control score higher.

    The control is identified all the same, for d ≥ 2: with the root's context in its place no model with perfect
    interventions has these moments. For d = 1 the two contexts are interchangeable.

    Parameters
    ----------
    n_latents : int
        d; latent d is the root.

    Examples
    --------
    >>> star_tie().scores, star_tie().chosen
    ((3, 4, 3), (0, 2))
    """
    d = int(n_latents)
    if d < 1:
        raise ValueError(f"a star has at least one latent, got n_latents = {n_latents}")
    B_0 = np.eye(d)
    B_0[:-1, -1] = 1.0
    return _deviation_tie(
        "star tie",
        "In a star the control and the context of the root have the same deviation score.",
        B_0,
    )


def deviation_cancellation() -> DeviationTie:
    """Return 2 → 1 with numbers for which Proposition 10 picks the wrong context: scores (3, 3, 2).

    ``Θ_1 − Θ_2`` has rank two for almost all parameters, but not where ::

        (λ_1² − b_11²)(b_22² − b_12² − λ_2²) = b_11² b_12²,

    the determinant in the proof of Proposition 9, "identify same target". In integers: ``b = (1, 3; 4)`` with
    ``λ_1 = λ_2 = 2`` gives ``Θ_1 − Θ_2 = 3 (1, −1)^{⊗2}``. Then context 2 has the lowest score, and contexts 1 and 2
    seem to share a target. All assumptions of the paper hold; its proposition on the control asks for no genericity.

    Here too the control is the only context that can be one.

    Examples
    --------
    >>> deviation_cancellation().scores, deviation_cancellation().chosen
    ((3, 3, 2), (2,))
    """
    return _deviation_tie(
        "deviation cancellation",
        "The differences of two interventional contexts can cancel, and the deviation score then picks one of them.",
        np.array([[1.0, 3.0], [0.0, 4.0]]),
    )


def _deviation_tie(name: str, statement: str, B_0: np.ndarray) -> DeviationTie:
    """Score the model with H = I and one perfect intervention on each latent, all with λ = 2."""
    contexts = {i + 1: Intervention(f"Z{i + 1}", variance=0.25) for i in range(len(B_0))}
    model = LatentModel.from_structural(np.eye(len(B_0)), B_0, interventions=contexts, control=0)
    scores = deviation_scores([model.precision(context) for context in model.contexts])
    return DeviationTie(name, statement, model, tuple(scores.tolist()))
