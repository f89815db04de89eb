"""Estimate the weight that every edge of a graph has, or would have, without refits and from one factorisation.

At the maximum of the likelihood for one DAG, a present edge has a weight β; dropping it costs ``½ β² I`` (the Wald
test). An absent one would get the weight ``s / I`` and gain ``½ s² / I`` (the score test, or modification index), which
is ``½ β² I`` again. Here s is the slope of the likelihood in the edge's weight, and I its information with all other
parameters profiled out: rows of H, weights of the other edges, noise variances. So all rows of the unmixing adapt to
the edge, as they would in a refit.

The information is that of :mod:`latentdag.core.edge_profile`, whose price grows as d⁶. Where that is too much, and with
soft interventions, only the child's row adapts.
"""

from dataclasses import dataclass

import numpy as np

from latentdag.core.edge_profile import EdgeProfile
from latentdag.core.effort import ALL_ADAPT_UP_TO
from latentdag.core.graphs import FittedGraph, TwoRegressions
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray


@dataclass(frozen=True)
class EdgeEstimates:
    """Weights and their information, (d, d) both, of the edge j → i at ``[i, j]``; zero for edges not considered.

    The weights are between latents in the units of the fitted rows H.
    """

    weight: Array
    information: Array

    @property
    def gain(self) -> Array:
        """Nats (d, d) that each edge gains over the graph without it."""
        return np.asarray(0.5 * self.weight**2 * self.information)


def all_adapt(design: Design) -> bool:
    """Return True if edges are estimated with every row of H free to adapt."""
    return design.d <= ALL_ADAPT_UP_TO and not any(design.soft)


def edge_estimates(design: Design, graph: FittedGraph, absent: BoolArray) -> EdgeEstimates:
    """Return what is known of the weight of every present edge, and of those ``absent`` ones that are asked for.

    Parameters
    ----------
    graph : a maximum of the likelihood
    absent : (d, d) bool
        Further edges to consider, none of which alone may close a cycle. Where only the child's row adapts, those
        against the order are left out.
    """
    if not all_adapt(design):
        return _in_order(design, graph)
    optimum = graph.optimum
    profile, own = EdgeProfile(design, optimum, graph.parents), np.diagonal(optimum.rows)[:, None]
    rows, information = -optimum.rows[: design.d], profile.weight_information()
    rows[information == 0] = 0.0
    for i, others in enumerate(map(np.flatnonzero, absent)):
        slopes = profile.slopes(i, others)
        information[i, others] = profile.of_absent(i, others)
        known = information[i, others] > 0
        rows[i, others] = np.divide(slopes, information[i, others], out=np.zeros(len(others)), where=known)
    return EdgeEstimates(rows / own, information * own**2)


def _in_order(design: Design, graph: FittedGraph) -> EdgeEstimates:
    """Return the estimates of edges forward in the order, with only the child's row free to adapt."""
    regress, (weight, information) = (
        TwoRegressions(design, graph.optimum.H, graph.order),
        np.zeros((2, design.d, design.d)),
    )
    for t, i in enumerate(graph.order[1:], start=1):
        before = list(graph.order[:t])
        weight[i, before], information[i, before] = _one_by_one(*regress.weights(t), np.isin(before, graph.parents[i]))
    return EdgeEstimates(weight, information)


def _one_by_one(delta: Array, V: Array, kept: BoolArray) -> tuple[Array, Array]:
    """Return estimate and information of each entry, given that all those not kept, but for itself, are zero."""
    estimate, information, gone = np.empty(len(delta)), np.empty(len(delta)), ~kept
    W = np.linalg.inv(V[np.ix_(gone, gone)])
    pull = W @ delta[gone]
    information[gone] = np.diagonal(W)
    estimate[gone] = pull / information[gone]
    V_kg = V[np.ix_(kept, gone)]
    information[kept] = 1 / (np.diagonal(V)[kept] - np.einsum("ij,jk,ik->i", V_kg, W, V_kg))
    estimate[kept] = delta[kept] - V_kg @ pull
    return estimate, information
