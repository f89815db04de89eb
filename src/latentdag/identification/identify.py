"""The paper's exact parts on exact precision matrices: partial-order RQ, Algorithm 2, and Algorithms 1–3 together.

This module checks what the user gives, calls the algorithms of :mod:`latentdag.core.exact` and
:mod:`latentdag.core.porq`, and makes a :class:`LatentModel` with names of what they return. Algorithm 3 has an answer
for any input that passes its rank conditions; :func:`identify` therefore checks last that the model found reproduces
every precision matrix.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np

from latentdag.core import exact, porq
from latentdag.core.context_error import NotInModelError
from latentdag.core.linalg import pseudo_inverse, symmetrize, unit_diagonal
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.errors import clear_numerics
from latentdag.model.intervention import Intervention, latent_names
from latentdag.model.model import LatentModel
from latentdag.model.posets import order_matrix

#: Exact edges weaker than this, between latents of unit variance, are rounding noise.
EDGE_TOLERANCE = 1e-6


@clear_numerics
def partial_order_rq(H: Any, order: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the partial-order RQ decomposition ``H = R Q`` (Definition 1).

    Parameters
    ----------
    H : (d, p) array_like of full row rank
    order : DiGraph or (d, d) bool
        A graph's edges point from parent to child; a matrix has ``order[i, j]`` iff j is an ancestor of i. Either is
        closed transitively first.

    Returns
    -------
    R : (d, d)
        Positive diagonal; ``R[i, j] = 0`` unless i = j or j is an ancestor of i.
    Q : (d, p)
        Unit rows, each orthogonal to the rows of its ancestors.

    Examples
    --------
    >>> R, Q = partial_order_rq([[3.0, 4.0], [0.0, 2.0]], nx.DiGraph([(1, 0)]))
    >>> R
    array([[3., 4.],
           [0., 2.]])
    """
    H = np.atleast_2d(np.asarray(H, dtype=float))
    if H.ndim != 2 or len(H) > H.shape[1]:
        raise ValueError(f"H must have at least as many columns as rows, got shape {H.shape}")
    if not np.isfinite(H).all():
        raise ValueError("H holds values that are not finite")
    return porq.partial_order_rq(H, order_matrix(order, len(H)))


@clear_numerics
def identify(
    precisions: Any,
    contexts: Sequence[Hashable] | None = None,
    feature_names: Sequence[str] | None = None,
    tol: float = exact.TOLERANCE,
) -> LatentModel:
    """Return the latent model behind exact precision matrices, unique up to S(G) (Algorithms 1–3, Theorem 2).

    Parameters
    ----------
    precisions : (K+1, p, p) or Moments
        Pseudo-inverse covariances of all contexts, the control first; one perfect single-node intervention per latent.
    contexts : labels, optional
        Defaults to 0 (the control), 1, …, K.
    feature_names : optional
    tol : float
        Relative size below which a singular value counts as zero.

    Returns
    -------
    LatentModel
        In the paper's scaling and order (sources last, so structural matrices are upper triangular).

    Notes
    -----
    One *soft* context per latent gives the same moments as perfect contexts on other latents, so it cannot be refused;
    what the two readings share is the ancestor relation (:func:`identify_partial_order`).

    Raises
    ------
    NotInModelError
        Saying which context fails which condition.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=3, n_features=4, rng=3)
    >>> found = identify([truth.precision(c) for c in truth.contexts], truth.contexts)
    >>> bool(np.allclose(found.reordered(truth.latents).unmixing, truth.unmixing))
    True
    """
    Theta, labels, features = as_precisions(precisions, contexts, feature_names)
    means = precisions.means if isinstance(precisions, Moments) else None
    with lb.naming_contexts(labels):
        whitened = _whitened_with_one_context_each(Theta)
        U, B_0, row_contexts, _ = exact.iterative_difference_projection(whitened.Delta, tol)
        model = without_zero_edges(model_of_rows(U @ whitened.W, B_0, row_contexts, labels, features, means))
        _check_reproduces(model, Theta, labels)
    return model


@clear_numerics
def identify_partial_order(
    precisions: Any, contexts: Sequence[Hashable] | None = None, tol: float = exact.TOLERANCE
) -> nx.DiGraph:
    """Return the ancestor relation of the latents, also under generic soft interventions (Algorithm 2, Theorem 1).

    Parameters
    ----------
    precisions : (K+1, p, p) or Moments
        Pseudo-inverse covariances of all contexts, the control first; one single-node intervention per latent.
    contexts : labels, optional
        Defaults to 0 (the control), 1, …, K.
    tol : float
        Relative size below which a singular value counts as zero.

    Returns
    -------
    DiGraph
        Over latent names, transitively closed, edges from ancestor to descendant.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=3, n_features=4, kind="soft", rng=0)
    >>> found = identify_partial_order([truth.precision(c) for c in truth.contexts], truth.contexts)
    >>> sorted(truth.graph.edges), sorted(found.edges)
    ([('c2', 'c1'), ('c3', 'c1')], [('c2', 'c1'), ('c3', 'c1')])
    """
    Theta, labels, _ = as_precisions(precisions, contexts)
    with lb.naming_contexts(labels):
        whitened = _whitened_with_one_context_each(Theta)
        _, row_contexts, order = exact.id_partial_order(whitened.Delta, tol)
    return order_graph(_row_names(row_contexts, labels), order)


def order_graph(names: Sequence[str], order: np.ndarray) -> nx.DiGraph:
    """Return a partial order between rows (d, d) as a graph over names, edges from ancestor to descendant."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(reversed(names))
    graph.add_edges_from((names[j], names[i]) for i, j in np.argwhere(order))
    return graph


def as_precisions(
    precisions: Any, contexts: Sequence[Hashable] | None = None, feature_names: Sequence[str] | None = None
) -> tuple[np.ndarray, list[Hashable], tuple[str, ...]]:
    """Return precision matrices (K+1, p, p), context labels and feature names, from arrays or exact moments."""
    if isinstance(precisions, Moments):
        m = precisions
        with lb.naming_contexts(m.contexts):
            inverses = np.array([pseudo_inverse(S, context=k) for k, S in enumerate(m.covariances)])
        return inverses, list(m.contexts), m.feature_names
    try:
        Theta = np.asarray(precisions, dtype=float)
    except ValueError:
        raise ValueError("precisions must be matrices of one shape, the control first") from None
    if Theta.ndim != 3 or Theta.shape[1] != Theta.shape[2]:
        raise ValueError(f"precisions must have shape (K+1, p, p), the control first; got {Theta.shape}")
    labels: list[Hashable] = [lb.as_label(c) for c in contexts] if contexts is not None else [*range(len(Theta))]
    lb.check_labels(labels)
    if len(labels) != len(Theta) or len(set(labels)) < len(labels):
        raise ValueError(f"{len(Theta)} distinct context labels are needed, got {labels}")
    if len(Theta) < 2:
        raise ValueError("only the control is given: at least one context with an intervention is needed")
    for label, T in zip(labels, Theta, strict=True):
        if not np.isfinite(T).all():
            i, j = np.argwhere(~np.isfinite(T))[0]
            raise ValueError(f"context {label!r}: entry [{i}, {j}] of the precision matrix is {T[i, j]}")
        if np.abs(T - T.T).max() > 1e-8 * np.abs(T).max():
            raise ValueError(f"context {label!r}: the precision matrix is not symmetric")
    return symmetrize(Theta), labels, lb.named_features(feature_names, Theta.shape[1])


def _whitened_with_one_context_each(Theta: np.ndarray) -> exact.WhitenedPrecisions:
    """Whiten the precision matrices (K+1, p, p); raise NotInModelError unless K = d."""
    whitened = exact.whiten_precisions(Theta)
    K, d = whitened.Delta.shape[:2]
    if d > K:
        there = f"only {K} other contexts; exact identification needs one intervention per latent"
    elif d < K:
        there = (
            f"{K} other contexts; contexts that hit the same latent must be grouped first (latentdag.reduce_contexts)"
        )
    else:
        return whitened
    raise NotInModelError(0, f"it has {d} latent dimensions but there are {there}")


def _row_names(row_contexts: np.ndarray, labels: Sequence[Hashable]) -> list[str]:
    """Return the name of each row's latent, after its context."""
    targets: dict[Hashable, list[int]] = {labels[k]: [i] for i, k in enumerate(row_contexts)}
    return latent_names(len(row_contexts), targets)


def model_of_rows(
    U: np.ndarray,
    B_0: np.ndarray,
    row_contexts: np.ndarray,
    labels: Sequence[Hashable],
    features: Sequence[str],
    means: np.ndarray | None = None,
) -> LatentModel:
    """Return the model in the paper's scaling, from rows ``u = λ h`` in whose units every intervention has unit noise.

    Parameters
    ----------
    U : (d, p)
    B_0 : (d, d), upper triangular
    row_contexts : (d,) position in ``labels`` of the context that targets each row
    labels : contexts, the control first
    features : names
    means : (K+1, p), optional
        Mean of the features in each context; the control's becomes the offset, the others shift their targets.
    """
    names = _row_names(row_contexts, labels)
    means = np.zeros((len(labels), U.shape[1])) if means is None else means
    interventions = {
        labels[k]: Intervention(names[i], variance=1.0, shift=float(U[i] @ (means[k] - means[0])))
        for k, i in sorted(zip(row_contexts, range(len(names)), strict=True))
    }
    return LatentModel.from_structural(
        U,
        np.triu(B_0),
        latents=names,
        interventions=interventions,
        control=labels[0],
        feature_names=features,
        offset=means[0],
    ).rescaled("paper")


def without_zero_edges(model: LatentModel) -> LatentModel:
    """Return the model with weights set to zero that are rounding noise, judged between latents of unit variance."""
    sd = np.sqrt(np.diagonal(model.law().latent_covariance))
    weights = np.where(np.abs(model.weights) * sd / sd[:, None] > EDGE_TOLERANCE, model.weights, 0.0)
    return replace(model, weights=weights)


def _check_reproduces(model: LatentModel, Theta: np.ndarray, labels: Sequence[Hashable]) -> None:
    """Raise NotInModelError for the first context whose precision matrix is not the model's."""
    _, scale = unit_diagonal(Theta[0])
    for k, label in enumerate(labels):
        gap = np.abs((model.precision(label) - Theta[k]) / np.outer(scale, scale)).max()
        size = np.abs(Theta[k] / np.outer(scale, scale)).max()
        if gap > 1e-5 * size:
            raise NotInModelError(
                k,
                f"no model with perfect single-node interventions gives its precision matrix (the nearest found is off "
                f"by {gap / size:.2g} of its largest entry)",
            )
