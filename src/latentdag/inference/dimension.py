"""The number of latents: test in how many directions the contexts differ.

Without measurement noise the features have exactly d dimensions, and :func:`latentdag.latent_dimension` counts them: no
test is needed, and none is possible. With noise that is the same in every context, ``X = G Z + e``, the covariances
have full rank, and the number of latents shows only in what changes: ``Σ_k − Σ_0 = G (…) Gᵀ`` lies in the d-dimensional
range of G for every k, and fills it when the interventions together move every latent. So d is the smallest s for which
"all changes lie in s directions" is not rejected by the likelihood-ratio tests of :mod:`latentdag.core.changes`.

If s directions truly change, the test of s rejects with probability alpha. So the estimate exceeds the truth with at
most that probability; it falls short where a change is too small to see. Latents that no context moves are not counted.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from latentdag.core.changes import Contexts, change_directions
from latentdag.data.moments import Moments
from latentdag.errors import clear_numerics
from latentdag.inference.ranks import no_inverse
from latentdag.methods.fitting import check_design


@dataclass(frozen=True, eq=False)
class DimensionTest:
    """The number of latents that the contexts move.

    Attributes
    ----------
    n_latents : int
        The smallest number that the test accepts.
    n_dimensions : int
        Dimensions of the data: the number of latents if there is no measurement noise.
    summary : DataFrame indexed by n_latents
        ``statistic``, ``dof`` and ``p_value`` of the hypothesis that at most ``n_latents`` directions change, from 0 up
        to the first number that is accepted.
    alpha : float
    note : str
        What the p-values assume.
    """

    n_latents: int
    n_dimensions: int
    summary: pd.DataFrame
    alpha: float
    note: str = "p-values assume Gaussian samples, and measurement noise, if any, that is the same in every context."

    def __repr__(self) -> str:
        return (
            f"DimensionTest({self.n_latents} directions change, of {self.n_dimensions}; alpha = {self.alpha:g})\n"
            f"{self.summary.to_string()}\n{self.note}"
        )

    def _repr_html_(self) -> str:
        head = f"<b>{self.n_latents} directions change</b>, of {self.n_dimensions} (alpha = {self.alpha:g})"
        return f"<p>{head}</p>{self.summary.to_html()}<p>{self.note}</p>"


@clear_numerics
def latent_dimension_test(m: Moments, alpha: float = 0.05, means: bool = True) -> DimensionTest:
    """Count the latents that the contexts move, with measurement noise allowed.

    The paper has no measurement noise: there the number of latents is the rank of the precision matrices
    (:func:`latentdag.latent_dimension`).

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts and p features.
    alpha : float
        Probability of counting too many.
    means : bool
        Count directions in which only the mean changes, too.

    Returns
    -------
    DimensionTest

    Examples
    --------
    >>> import numpy as np
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=3, n_features=6, rng=1)
    >>> X, contexts = simulate.sample(truth, 1_000, rng=0)
    >>> noisy = X + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    >>> latent_dimension_test(Moments.from_samples(noisy, contexts, control="control")).n_latents
    3
    """
    check_design(m)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is a probability between 0 and 1, got {alpha}")
    contexts = _contexts(m.with_shared_noise(), means)
    r = contexts.S.shape[1]
    rows, found = [], None
    for s in range(r + 1):
        found = change_directions(contexts, s, found.B if found is not None else None)
        rows.append({"n_latents": s, "statistic": found.statistic, "dof": found.dof, "p_value": found.p_value})
        if found.p_value > alpha:
            break
    return DimensionTest(len(rows) - 1, r, pd.DataFrame(rows).set_index("n_latents"), alpha)


def _contexts(m: Moments, means: bool) -> Contexts:
    """Return the moments in coordinates in which the covariance of all contexts together is the identity."""
    for k, label in enumerate(m.contexts):
        if reason := no_inverse(m, k):
            raise ValueError(f"context {label!r}: {reason}: drop it, or use fewer features")
    n = m.counts.astype(float) if means else m.counts - 1.0
    S = m.whitened.S * ((m.counts - 1.0) / n)[:, None, None]
    mu = m.means @ m.whitened.W.T
    shifts = mu - n @ mu / n.sum() if means else np.zeros_like(mu)
    total = (np.einsum("k,kij->ij", n, S) + (n[:, None] * shifts).T @ shifts) / n.sum()
    L_inv = np.linalg.inv(np.linalg.cholesky(total))
    return Contexts(n, L_inv @ S @ L_inv.T, not means, shifts @ L_inv.T)
