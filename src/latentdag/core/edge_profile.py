"""What the data know about the weights of edges once all other parameters adapt, from one factorisation.

The information is that of :mod:`latentdag.core.jacobian`. The weight of an edge j → i, present or not, moves row i of V
along row j of ``B_0^{-1}``, so its information and what it shares with the parameters are read off the quadratic form.
Its price grows as d⁶.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from latentdag.core.jacobian import Point, as_array, optimiser_point, quadratic_form
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.noisy import noisy_point, slope
from latentdag.core.optimize import Optimum
from latentdag.core.orders import cholesky

#: Added to the information, relative to its diagonal: directions that the data leave free must not stop the rest.
RIDGE = 1e-9

#: Part of its information below which a weight counts as free: a change of rows does the same.
FREE = 1e-6


class EdgeProfile:
    """Factorise the information about X, the edges' weights and all else that is fitted, at a maximum."""

    def __init__(self, design: Design, optimum: Optimum, parents: Sequence[IntArray]):
        self.design, self.optimum, self.mechanisms = design, optimum, design.mechanisms(parents)
        self.point = self._point()
        self.form, P = quadratic_form(self.point), self.point.rows_by_parameters
        self.across = P.T @ self.form
        A = as_array(self.across @ P)
        self.scale = np.sqrt(np.maximum(np.diagonal(A), np.finfo(float).tiny))
        A /= self.scale[:, None]
        A /= self.scale
        A.flat[:: len(A) + 1] += RIDGE
        self.L = np.asfortranarray(cholesky(A))

    def _point(self) -> Point:
        """Return the point whose parameters are X, the edges' weights and the intervened rows' own entries."""
        if self.optimum.state is not None:
            return noisy_point(self.design, self.mechanisms, self.optimum.state)
        d, optimum = self.design.d, self.optimum
        point = optimiser_point(self.design, self.mechanisms, optimum.rows, optimum.H)
        own = np.arange(d) == np.array([mechanism.latent for mechanism in self.mechanisms])[:, None]
        return replace(point, free=np.vstack([point.free[:d] & ~own[:d], own[d:]]))

    @property
    def edges(self) -> BoolArray:
        """Edges (d, d) whose weights are parameters."""
        return self.point.free[: self.design.d, : self.design.d]

    def _half(self) -> Array:
        """Return a root of the covariance of all parameters but X: columns belong to them."""
        X = self.point.d**2
        return np.asarray(lapack.dtrtri(np.asfortranarray(self.L[X:, X:]), lower=1)[0] / self.scale[X:])

    def weight_information(self) -> Array:
        """Return the information (d, d) about the edges' weights."""
        information = np.zeros(self.edges.shape)
        information[self.edges] = 1 / np.square(self._half()).sum(axis=0)[: self.edges.sum()]
        return information

    def weight_covariance(self) -> Array:
        """Return the covariance of the edges' weights, in the order of ``np.nonzero(edges)``."""
        half = self._half()[:, : self.edges.sum()]
        return np.asarray(half.T @ half)

    def slopes(self, child: int, parents: IntArray) -> Array:
        """Return the slopes of the likelihood in the weights that absent edges of one child would have."""
        moved, share = self._moved(child)
        if self.optimum.state is not None:
            at = slope(self.design, self.optimum.state, self.point)
            return np.zeros(len(parents)) if at is None else -self.point.B_inv[parents] @ (share @ at.V[moved])
        residual = np.zeros(self.optimum.H.shape[1])
        for q, part in zip(moved, share, strict=True):
            mine = self.mechanisms[q]
            residual += part * mine.w * (self.optimum.rows[q] @ self.optimum.H @ mine.S)
        return np.asarray(self.optimum.H[parents] @ residual)

    def _moved(self, child: int) -> tuple[IntArray, Array]:
        """Return the mechanisms whose entries move with the weights of a child, itself first, and by how much."""
        d, rows, tied = self.point.d, self.point.rows, self.point.tied
        if tied is None:
            return np.array([child]), np.ones(1)
        also = np.flatnonzero((self.point.target == child) & (tied > 0))
        share = tied[also] * rows[d + also, child] / rows[child, child]
        return np.array([child, *(d + also)]), np.array([1.0, *share])

    def of_absent(self, child: int, parents: IntArray) -> Array:
        """Return the information about the weights that absent edges of one child would have; zero where it is free."""
        d, along = self.point.d, self.point.B_inv[parents]
        moved, share = self._moved(child)
        row: Any = slice(child * d, child * d + d)
        if len(moved) > 1:
            row = (moved[:, None] * d + np.arange(d)).ravel()
            along = (share[:, None] * along[:, None]).reshape(len(along), len(row))
        information = np.einsum("mb,bc,mc->m", along, as_array(self.form[row][:, row]), along)
        right = np.asfortranarray(as_array(self.across[:, row]) @ along.T / self.scale[:, None])
        explained = solve_triangular(self.L, right, lower=True, overwrite_b=True, check_finite=False)
        left = information - np.square(explained).sum(axis=0)
        return np.asarray(np.where(left > FREE * information, left, 0.0))
