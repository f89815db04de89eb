"""Algorithms 1–3 on moments that are taken to be exact."""

from latentdag.data.moments import Moments
from latentdag.identification.identify import identify
from latentdag.methods.options import Options
from latentdag.methods.result import Fit, named_graph
from latentdag.model.distribution import log_likelihood


def fit_exact(m: Moments, options: Options) -> Fit:
    """Exact identification as a :class:`Fit`; see :func:`latentdag.identify`."""
    model = identify(m, tol=options.tol)
    order = tuple(reversed(model.latents))
    graph = named_graph(model, model.graph.edges)
    return Fit(model, order, graph, log_likelihood(model, m), tuple(m.counts.tolist()), options=options)
