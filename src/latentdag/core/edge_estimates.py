"""Estimate the weight that every edge of a graph has, or would have, without refits and from one factorisation.

At the maximum of the likelihood for one DAG, a present edge has a weight β; dropping it costs ``½ β² I`` (the Wald
test). An absent one would get the weight ``s / I`` and gain ``½ s² / I`` (the score test, or modification index), which
is ``½ β² I`` again. Here s is the slope of the likelihood in the edge's weight, and I its information with all other
parameters profiled out: rows of H, weights of the other edges, noise variances. So all rows of the unmixing adapt to
the edge, as they would in a refit.

The information is that of :mod:`latentdag.core.jacobian`. The weight of an edge j → i, present or not, moves row i of V
along row j of ``B_0^{-1}``, so its information and what it shares with the parameters are read off the quadratic form.
Its price grows as d⁶. Where that is too much, and with soft interventions, only the child's row adapts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack, solve_triangular

from latentdag.core.effort import ALL_ADAPT_UP_TO
from latentdag.core.graphs import FittedGraph, TwoRegressions
from latentdag.core.jacobian import as_array, optimiser_point, quadratic_form
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.optimize import Optimum
from latentdag.core.orders import cholesky

#: Added to the information, relative to its diagonal: directions that the data leave free must not stop the rest.
RIDGE = 1e-9

#: Part of its information below which a weight counts as free: a change of rows does the same.
FREE = 1e-6


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
    mechanisms, optimum = design.mechanisms(graph.parents), graph.optimum
    profile, own = _Profile(design, optimum, graph.parents), np.diagonal(optimum.rows)[:, None]
    rows, information = -optimum.rows[: design.d], profile.weight_information()
    rows[information == 0] = 0.0
    for i, others in enumerate(map(np.flatnonzero, absent)):
        residual = optimum.rows[i] @ optimum.H @ mechanisms[i].S
        slopes = mechanisms[i].w * optimum.H[others] @ residual
        information[i, others] = profile.of_absent(i, others)
        known = information[i, others] > 0
        rows[i, others] = np.divide(slopes, information[i, others], out=np.zeros(len(others)), where=known)
    return EdgeEstimates(rows / own, information * own**2)


class _Profile:
    """Factorise the information about X, the edges' weights and the intervened rows' own entries."""

    def __init__(self, design: Design, optimum: Optimum, parents: Sequence[IntArray]):
        mechanisms = design.mechanisms(parents)
        point = optimiser_point(design, mechanisms, optimum.rows, optimum.H)
        own = np.arange(design.d) == np.array([mechanism.latent for mechanism in mechanisms])[:, None]
        free = np.vstack([point.free[: design.d] & ~own[: design.d], own[design.d :]])
        self.point = replace(point, free=free)
        self.form, P = quadratic_form(self.point), self.point.rows_by_parameters
        self.across = P.T @ self.form
        A = as_array(self.across @ P)
        self.scale = np.sqrt(np.maximum(np.diagonal(A), np.finfo(float).tiny))
        A /= self.scale[:, None]
        A /= self.scale
        A.flat[:: len(A) + 1] += RIDGE
        self.L = np.asfortranarray(cholesky(A))

    def weight_information(self) -> Array:
        """Return the information (d, d) about the edges' weights."""
        d, edge = self.point.d, self.point.free[: self.point.d]
        half = lapack.dtrtri(np.asfortranarray(self.L[d * d :, d * d :]), lower=1)[0] / self.scale[d * d :]
        information = np.zeros((d, d))
        information[edge] = 1 / np.square(half).sum(axis=0)[: edge.sum()]
        return information

    def of_absent(self, child: int, parents: IntArray) -> Array:
        """Return the information about the weights that absent edges of one child would have; zero where it is free."""
        d, along = self.point.d, self.point.B_inv[parents]
        row = slice(child * d, child * d + d)
        information = np.einsum("mb,bc,mc->m", along, as_array(self.form[row, row]), along)
        right = np.asfortranarray(as_array(self.across[:, row]) @ along.T / self.scale[:, None])
        explained = solve_triangular(self.L, right, lower=True, overwrite_b=True, check_finite=False)
        left = information - np.square(explained).sum(axis=0)
        return np.asarray(np.where(left > FREE * information, left, 0.0))


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
