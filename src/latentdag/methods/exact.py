"""Algorithms 1–3 on moments that are taken to be exact."""

from latentdag.core.exact import TOLERANCE
from latentdag.identification import identify
from latentdag.moments import Moments
from latentdag.result import Fit, named_graph
from latentdag.scoring import log_likelihood


def fit_exact(m: Moments, tol: float = TOLERANCE) -> Fit:
    """Exact identification as a :class:`Fit`; see :func:`latentdag.identify`."""
    model = identify(m, tol=tol)
    order = tuple(reversed(model.latents))
    graph = named_graph(model, model.graph.edges)
    return Fit(model, "exact", order, graph, log_likelihood(model, m), tuple(m.counts.tolist()))
