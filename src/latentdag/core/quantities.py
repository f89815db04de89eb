"""Express what users ask about as functions of the parameters: values and gradients, in any scaling of the rows.

The parameters are those of a :class:`latentdag.core.jacobian.Point`, with the diagonal of ``B_0`` held fixed, and the
covariance that turns gradients into standard errors is that of :mod:`latentdag.core.covariance`.

**Scaling** divides latent i by ``s_i``. H_ij then goes with ``1/s_i``, a weight or total effect of j on i with
``s_j/s_i``, an entry B_ij with ``s_j``, a noise variance with ``1/s_i²``, the scale λ of an intervened noise with
``s_i`` and a shift with ``1/s_i``. So every quantity is ``f · s_i^a · s_j^b`` with f a function of the parameters, and
only three gradients of ``log s_i`` are needed:

* "paper": s_i is the largest entry of row i of H, its column held fixed, ``d log s_i = dH_ip / H_ip``;
* "unit-norm": ``d log s_i = h_i · dh_i / ‖h_i‖²``;
* "unit-variance": with ``V = B_0^{-1} B_0^{-T}``, ``d log s_i = −(B_0^{-1} β V)_ii / V_ii``.

**Does a context leave a latent alone?** Apply the control's noise rows to a context: ``ε = M x`` with mean e and
covariance A. If the context leaves latent i alone, then whatever it does to the others, ε_i has the control's mean and
variance one, and is uncorrelated with all latents before i, in particular with what the parents contribute,
``y = A_i z = c ε``. A perfect or soft intervention on i moves at least one of

    mean ε_i,    log Var ε_i,    Corr(ε_i, y):

cutting i off from its parents turns ε_i into new noise less y. For Gaussian samples the three are independent with
variances 1/n, 2/n and 1/n. Where features are noisy, what is measured of ε has the covariance ``A = Cov(ε) + N``: the
variance is compared with ``1 + N_ii``, the product with y is taken from ``A − N``, and the three are not independent.
They are computed with an estimate of M, which adds its own error: with gradient g of a
statistic in the parameters and C their covariance (docs/math.md, section "Tests of the model"),

* in a context that was not in the fit, variances add: ``V + g C gᵀ``;
* in one that was, the fit has already followed the statistic: ``V − g C gᵀ``. This is the score test of a fit in which
  the context targets i too, without refitting.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csgraph

from latentdag.core.covariance import Gradient
from latentdag.core.jacobian import Point
from latentdag.core.linalg import Array, BoolArray, IntArray

#: Quantities by name; "shift" needs means, "feature_noise" noisy features.
NAMES = ("unmixing", "structural", "weight", "total_effect", "scale", "noise_variance", "shift", "feature_noise")

#: The powers of s_i and s_j with which each goes, for its row i and its column j (its target, for "scale" and "shift").
POWERS = {
    "unmixing": (-1, 0), "structural": (0, 1), "weight": (-1, 1), "total_effect": (-1, 1), "scale": (0, 1),
    "noise_variance": (0, -2), "shift": (0, -1), "feature_noise": (0, 0),
}  # fmt: skip


#: Values of one quantity that are computed together: more would not fit in memory, each time walks through a matrix.
TOGETHER = 2_560


@dataclass(frozen=True, eq=False)
class Block:
    """Some values of one quantity: row and column indices (m,), values (m,) and gradients.

    For "scale" and "shift" rows are intervened mechanisms, and columns the latents they act on.
    """

    rows: IntArray
    columns: IntArray
    estimate: Array
    gradient: Gradient


class Quantities:
    """Compute functions of the parameters at a point.

    Parameters
    ----------
    point : Point
    H : (d, p), in the units of ``point.B``
    W : (r − d, p)
        White remainder ``w = W x``; no rows where the latents leave none.
    pivot : (d,) int, optional
        The columns that "paper" scales by; by default those of the largest entries.
    shown : int, optional
        How many of the latents users ask about: background factors come after them.

    Attributes
    ----------
    M : (d, p) noise rows of the control
    A : (d, d) weights of the edges
    """

    def __init__(self, point: Point, H: Array, W: Array, pivot: IntArray | None = None, shown: int | None = None):
        self.point, self.H, self.W, self.shown = point, H, W, shown or point.d
        size = np.abs(H)
        # the leftmost of a tie
        self.pivot = np.argmax(size >= (1 - 1e-9) * size.max(axis=1, keepdims=True), axis=1) if pivot is None else pivot
        self.M = point.B @ H
        self.A = -point.B / np.diagonal(point.B)[:, None]
        np.fill_diagonal(self.A, 0.0)
        self.edge = point.free[: point.d]
        self._scales: dict[str, tuple[Array, Gradient]] = {}

    @cached_property
    def total(self) -> Array:
        """(I − A)^{-1}, (d, d)."""
        return np.asarray(np.linalg.inv(np.eye(self.point.d) - self.A))

    def log_scale(self, scaling: str) -> tuple[Array, Gradient]:
        """Return s (d,) and the gradients of its logarithm."""
        if scaling not in self._scales:
            self._scales[scaling] = self._log_scale(scaling)
        return self._scales[scaling]

    def _log_scale(self, scaling: str) -> tuple[Array, Gradient]:
        d, H = self.point.d, self.H
        if scaling == "unit-variance":
            B_inv = self.point.B_inv
            V = B_inv @ B_inv.T
            rows = np.zeros((d, *self.point.rows.shape))
            rows[:, :d] = -np.einsum("ia,bi->iab", B_inv, V) / np.diagonal(V)[:, None, None]
            return np.sqrt(np.diagonal(V)), Gradient(self.point.pack(rows=rows))
        if scaling == "paper":
            largest = H[np.arange(d), self.pivot]
            s, direction = np.abs(largest), np.zeros_like(H)  # a latent keeps its sign
            direction[np.arange(d), self.pivot] = 1 / largest
        elif scaling == "unit-norm":
            s = np.linalg.norm(H, axis=1)
            direction = H / s[:, None] ** 2
        else:
            raise ValueError(f"scaling must be 'paper', 'unit-variance' or 'unit-norm', got {scaling!r}")
        return s, self.along(np.arange(d), direction)

    def along(self, rows: IntArray, directions: Array) -> Gradient:
        """Return the gradients of the products of rows of H (m,) with directions (m, p)."""
        point, X = self.point, np.zeros((len(rows), self.point.d, self.point.d))
        X[np.arange(len(rows)), rows] = directions @ self.M.T
        inner, outer = point.pack(X), directions @ self.W.T
        if point.noise is not None and point.noise.span is not None:
            # unmixing that weighs features by their noise moves with it, and follows the loadings
            span, N = point.noise.span, point.noise.N[0]
            moved = ((N @ span.J + np.eye(point.d)) @ (span.H * span.psi))[rows]
            inner[:, point.size - point.n_noise :] = -moved * (outer @ self.W)
        return Gradient(inner, ((point.outer_rows[rows], outer),) if len(self.W) else ())

    def blocks(self, name: str, scaling: str = "paper") -> Iterator[Block]:
        """Yield all values of one quantity, some thousand at a time, so that gradients fit in memory."""
        s, log_s = self.log_scale(scaling)
        rows, columns = self._places(name)
        for start in range(0, len(rows), TOGETHER):
            i, j = rows[start : start + TOGETHER], columns[start : start + TOGETHER]
            estimate, gradient = getattr(self, f"_{name}")(i, j)
            factor = np.ones(len(i))
            for power, index in zip(POWERS[name], (i, j), strict=True):
                if power:
                    factor = factor * s[index] ** power
                    gradient = gradient + log_s[index].times(power * estimate)
            yield Block(i, j, factor * estimate, gradient.times(factor))

    def _places(self, name: str) -> tuple[IntArray, IntArray]:
        """Return the rows and columns (m,) in which a quantity has values."""
        if name in ("scale", "shift"):
            return np.arange(len(self.point.b)), self.point.target
        if name == "feature_noise":
            return np.arange(self.H.shape[1]), np.arange(self.H.shape[1])
        own = np.eye(self.point.d, dtype=bool)
        there = {
            "unmixing": np.ones_like(self.H, dtype=bool),
            "structural": self.edge | own,
            "weight": self.edge,
            "total_effect": self._ancestors,
            "noise_variance": own,
        }[name]
        rows, columns = np.nonzero(there[: self.shown])
        return rows, columns

    def _unmixing(self, i: IntArray, j: IntArray) -> tuple[Array, Gradient]:
        """Entries of H, which move with their rows of X and of V."""
        return self.H[i, j], self.along(i, np.eye(self.H.shape[1])[j])

    def _structural(self, i: IntArray, j: IntArray) -> tuple[Array, Gradient]:
        return self.point.B[i, j], self.entries(i, j)

    def _weight(self, i: IntArray, j: IntArray) -> tuple[Array, Gradient]:
        return self.A[i, j], self.entries(i, j).times(-1 / self.point.B[i, i])

    def entries(self, mechanism: "int | IntArray", columns: IntArray) -> Gradient:
        """Return the gradients of single entries of the mechanisms' rows; zero for those that are no parameters."""
        rows = np.zeros((len(columns), *self.point.rows.shape))
        rows[np.arange(len(columns)), mechanism, columns] = 1.0
        return Gradient(self.point.pack(rows=rows))

    def _total_effect(self, i: IntArray, j: IntArray) -> tuple[Array, Gradient]:
        rows = np.zeros((len(i), *self.point.rows.shape))
        from_row = self.total[i] / np.diagonal(self.point.B)
        rows[:, : self.point.d] = -from_row[:, :, None] * self.total[:, j].T[:, None, :]
        return self.total[i, j], Gradient(self.point.pack(rows=rows))

    @cached_property
    def _ancestors(self) -> BoolArray:
        """(d, d), ``[i, j]`` iff j is an ancestor of i in the graph."""
        steps = csgraph.shortest_path(self.edge, unweighted=True)
        return np.asarray(np.isfinite(steps) & (steps > 0))

    def _noise_variance(self, i: IntArray, j: IntArray) -> tuple[Array, Gradient]:
        return self.point.B[i, j] ** -2.0, self.entries(i, j)

    def _feature_noise(self, i: IntArray, j: IntArray) -> tuple[Array, Gradient]:
        psi, inner = self.feature_noise, np.zeros((len(i), self.point.size))
        inner[np.arange(len(i)), self.point.size - len(psi) + j] = psi[j]
        return psi[j], Gradient(inner)

    @property
    def feature_noise(self) -> Array:
        """Noise variances of the features (p,)."""
        assert self.point.noise is not None
        assert self.point.noise.span is not None
        return self.point.noise.span.psi

    def _scale(self, q: IntArray, target: IntArray) -> tuple[Array, Gradient]:
        return self.point.b[q, target], self.entries(self.point.d + q, target)

    def _shift(self, q: IntArray, target: IntArray) -> tuple[Array, Gradient]:
        point, own = self.point, self.point.b[q, target]
        shift = (np.zeros(len(q)) if point.tau is None else point.tau[point.d + q]) / own
        # latents are measured from the control's mean, which moves with the first d of τ
        mean = Gradient(point.pack(tau=np.hstack([-point.b[q] @ point.B_inv, np.eye(len(point.b))[q]])))
        return shift, (mean + self.entries(point.d + q, target).times(-shift)).times(1 / own)

    @cached_property
    def N(self) -> Array:
        """Noise (d, d) in what is measured of ``M x``."""
        noise = self.point.noise
        return np.zeros_like(self.point.B) if noise is None else self.point.B @ noise.N[0] @ self.point.B.T

    def law_of_context(self, k: int) -> tuple[Array, Array]:
        """Return the mean (d,) and covariance (d, d) of ``M x`` in context k under the model, without the noise."""
        D_inv = self.point.D_inv[k]
        return self.point.delta[k], D_inv @ D_inv.T

    def statistics(self, i: int, e: Array, A: Array, N: Array) -> tuple[Array, Gradient, Array]:
        """Return mean, log variance and correlation with the parents' part (3,) of noise i.

        Also their gradients, and the covariance (3, 3) of √n times them where i is left alone.

        Parameters
        ----------
        e : (d,) mean of ``M x`` in the context, features measured from the offset
        A : (d, d) covariance of ``M x``
        N : (d, d) that of the noise in it
        """
        point, d = self.point, self.point.d
        c = self.A[i] @ point.B_inv
        own, y, usual, left = max(A[i, i], np.finfo(float).tiny), c @ A @ c, 1 + N[i, i], A - N
        size = np.sqrt(own * y) if y > 0 else np.inf
        V, X, tau = np.zeros((3, *point.rows.shape)), np.zeros((3, d, d)), np.zeros((3, len(point.rows)))
        V[0, i], V[1, i], V[2, i] = e, 2 * A[i] / own - 2 * N[i] / usual, left @ c / size
        X[2] = np.outer(self.A[i], left[i]) / size
        tau[0, i] = -1.0
        nu = np.zeros((3, point.n_noise))
        if point.noise is not None:
            moved = point.B[i] @ point.noise.directions @ point.B.T
            nu[1], nu[2] = -moved[:, i] / usual, -moved @ c / size
        together = N[i] @ c / size
        sampled = np.diag([usual, 2.0, 1 + together**2])
        sampled[1, 2] = sampled[2, 1] = 2 * together
        values = np.array([e[i], np.log(own / usual), (left @ c)[i] / size])
        return values, Gradient(point.pull(V, tau, nu) + point.pack(X)), sampled
