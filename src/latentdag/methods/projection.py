"""The paper's finite-sample method: Algorithms 4–6."""

import numpy as np

from latentdag.core import projection
from latentdag.core.linalg import RANK_TOLERANCE, inverse, symmetrize
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.identification.identify import model_of_rows, order_graph
from latentdag.methods.options import Options
from latentdag.methods.result import Fit, named_graph
from latentdag.model.distribution import log_likelihood


def fit_projection(m: Moments, options: Options) -> Fit:
    """Algorithms 4–6 on the sample precision matrices, in the range of the data; every context with its own latent."""
    U = m.range
    _check_counts(m, U.shape[1])
    with lb.naming_contexts(m.contexts):
        Theta = np.array([inverse(symmetrize(U.T @ S @ U), k) for k, S in enumerate(m.covariances)])
        found = projection.iterative_difference_projection_finite_sample(Theta, options.gamma)
    model = model_of_rows(found.U @ U.T, found.B_0, found.contexts, m.contexts, m.feature_names, m.means)
    return Fit(
        model,
        tuple(reversed(model.latents)),
        named_graph(model, order_graph(model.latents, found.order).edges),
        log_likelihood(model, m),
        tuple(m.counts.tolist()),
        options=options,
    )


def _check_counts(m: Moments, rank: int) -> None:
    """Every context needs its own invertible covariance, and every context its own latent."""
    for label, n in zip(m.contexts, m.counts, strict=True):
        if n <= rank:
            raise ValueError(
                f"context {label!r} has {n} samples for {rank} feature dimensions: its covariance has no inverse. Use "
                f"more samples, fewer features (fewer than {n - 1}), or drop the context"
            )
    if m.n_contexts > rank:
        raise ValueError(
            f"{m.n_contexts} contexts with an intervention, but the data have only {rank} dimensions (eigenvalues of "
            f"the correlation matrix above {RANK_TOLERANCE:g} of the largest): at most {rank} distinct latents fit. "
            "Contexts that hit the same latent must be grouped: see latentdag.same_target_groups"
        )
