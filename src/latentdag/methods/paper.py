"""The paper's own methods: Algorithms 1–3 on exact moments, Algorithms 4–6 on samples.

Both are here to be compared with. The algorithms themselves are :mod:`latentdag.core.exact` and
:mod:`latentdag.core.projection`, in the paper's letters; this file gives them moments and makes a :class:`Fit` of what
they return.
"""

from collections.abc import Iterable

import numpy as np

from latentdag.core import projection
from latentdag.core.linalg import RANK_TOLERANCE, inverse, symmetrize
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.identification.identify import identify, model_of_rows, order_graph
from latentdag.methods.options import Options
from latentdag.methods.result import Fit, named_graph
from latentdag.model.distribution import log_likelihood
from latentdag.model.model import LatentModel


def fit_exact(m: Moments, options: Options) -> Fit:
    """Return the exact identification of Algorithms 1–3 as a :class:`Fit`; see :func:`latentdag.identify`."""
    model = identify(m, tol=options.tol)
    return _as_fit(m, model, model.graph.edges, options)


def fit_projection(m: Moments, options: Options) -> Fit:
    """Run Algorithms 4–6 on the sample precision matrices, in the range of the data.

    Every context has a latent of its own.
    """
    U = m.range
    _check_counts(m, U.shape[1])
    with lb.naming_contexts(m.contexts):
        Theta = np.array([inverse(symmetrize(U.T @ S @ U), k) for k, S in enumerate(m.covariances)])
        H, B_0, contexts, above = projection.iterative_difference_projection_finite_sample(Theta, options.gamma)
    model = model_of_rows(H @ U.T, B_0, contexts, m.contexts, m.feature_names, m.means)
    return _as_fit(m, model, order_graph(model.latents, above).edges, options)


def _as_fit(m: Moments, model: LatentModel, edges: Iterable[tuple[str, str]], options: Options) -> Fit:
    """Return a fit whose order is that of the model's rows, sources last."""
    order, graph = tuple(reversed(model.latents)), named_graph(model, edges)
    return Fit(model, order, graph, log_likelihood(model, m), tuple(m.counts.tolist()), options=options)


def _check_counts(m: Moments, rank: int) -> None:
    """Refuse contexts without an invertible covariance, and more contexts than dimensions."""
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
