"""Compute the log-likelihood gain (nats) of every present and absent edge, without refits, from one factorisation.

At the maximum of the likelihood for one DAG, an absent edge promises ``½ s² / I`` (the score test, or modification
index) and a present one of weight β is worth ``½ β² I`` (the Wald test). Here s is the slope of the likelihood in the
edge's weight, and I its information with all other parameters profiled out: rows of H, weights of the other edges,
noise variances. So all rows of the unmixing adapt to the edge, as they would in a refit.

The information is that of :mod:`latentdag.core.jacobian`. The weight of an edge j → i, present or not, moves row i of V
along row j of ``B_0^{-1}``, so its information and what it shares with the parameters are read off the quadratic form.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import lapack, solve_triangular

from latentdag.core.jacobian import as_array, optimiser_point, quadratic_form
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.optimize import Optimum
from latentdag.core.orders import cholesky

#: Added to the information, relative to its diagonal: directions that the data leave free must not stop the rest.
RIDGE = 1e-9

#: Part of its information below which a weight counts as free: a change of rows does the same.
FREE = 1e-6


def edge_worth(design: Design, optimum: Optimum, parents: Sequence[IntArray], absent: BoolArray) -> Array:
    """Return the nats (d, d) that the edge j → i gains, at ``[i, j]``; zero for what is neither present nor ``absent``.

    Parameters
    ----------
    design : without soft interventions, which give an edge a weight in each of their contexts
    optimum : the maximum for the DAG of ``parents``
    absent : (d, d) bool
        Further edges to consider, none of which alone may close a cycle.
    """
    mechanisms, profile = design.mechanisms(parents), _Profile(design, optimum, parents)
    worth = 0.5 * np.square(optimum.rows[: design.d]) * profile.weight_information()
    for i, others in enumerate(map(np.flatnonzero, absent)):
        residual = optimum.rows[i] @ optimum.H @ mechanisms[i].S
        slopes = -mechanisms[i].w * optimum.H[others] @ residual
        worth[i, others] = profile.gains(i, others, slopes)
    return worth


def weight_information(design: Design, optimum: Optimum, parents: Sequence[IntArray]) -> Array:
    """Return the information (d, d) about the weight of each edge in ``B_0``, all else profiled out; zero elsewhere."""
    return _Profile(design, optimum, parents).weight_information()


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

    def gains(self, child: int, parents: IntArray, slopes: Array) -> Array:
        """Return the nats that absent edges of one child promise, from the likelihood's slopes in their weights."""
        d, along = self.point.d, self.point.B_inv[parents]
        row = slice(child * d, child * d + d)
        information = np.einsum("mb,bc,mc->m", along, as_array(self.form[row, row]), along)
        right = np.asfortranarray(as_array(self.across[:, row]) @ along.T / self.scale[:, None])
        explained = solve_triangular(self.L, right, lower=True, overwrite_b=True, check_finite=False)
        left = information - np.square(explained).sum(axis=0)
        return np.asarray(
            np.where(left > FREE * information, 0.5 * slopes**2 / np.maximum(left, FREE * information), 0.0)
        )
