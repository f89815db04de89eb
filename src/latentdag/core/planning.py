"""Say how the errors of edges depend on the cells of each context, and where cells are best spent.

docs/math.md, section "Planning a screen", has the formulas. The information is linear in the counts, ``I(n) = Σ_k n_k
I_k``, so the variance of edge e with gradient g is ``v_e(n) = gᵀ I(n)^{-1} g``, a convex function, and one more cell in
context k lowers it by ``(I^{-1}g)ᵀ I_k (I^{-1}g)``. An edge of weight w is found by a two-sided test of level α with
probability ``Φ(δ − z) + Φ(−δ − z)``, where ``δ = |w|/√v`` and z is the normal quantile at 1 − α/2.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import optimize, stats

from latentdag.core.covariance import Inverse
from latentdag.core.jacobian import Point, information, tangent
from latentdag.core.linalg import Array, IntArray

#: Relative change of the objective at which an allocation is final.
PRECISE = 1e-10


@dataclass(frozen=True, eq=False)
class Screen:
    """A model whose contexts can have any number of cells.

    Attributes
    ----------
    point : Point
        Its weights are the cells that its noise, if there is any, was estimated from.
    gradients : (m, P) of the quantities that matter
    """

    point: Point
    gradients: Array

    def with_cells(self, n: Array) -> Point:
        """Return the point with n (K + 1,) cells; what features know about their noise grows with all of them."""
        noise = self.point.noise
        if noise is not None:
            noise = replace(noise, precision=noise.precision * (n.sum() / self.point.n.sum()))
        return replace(self.point, n=np.asarray(n, dtype=float), noise=noise)

    def inverse(self, n: Array) -> Inverse:
        return Inverse(information(self.with_cells(n)))

    def variances(self, n: Array) -> Array:
        """Return the variance (m,) of every quantity; infinite where no number of cells determines it."""
        inverse = self.inverse(n)
        return np.where(inverse.knows(self.gradients), inverse.variance(self.gradients), np.inf)

    def slopes(self, n: Array) -> tuple[Array, Array]:
        """Return variances (m,), and by how much one more cell in each context changes them (m, K + 1)."""
        moved = self.inverse(n).C @ self.gradients.T
        seen = np.square(self._per_cell @ moved)
        K, noise = len(self.point.n), self.point.n_noise
        own = seen[: len(seen) - noise].reshape(K, -1, len(self.gradients)).sum(axis=1)
        every = seen[len(seen) - noise :].sum(axis=0)  # known from all contexts alike
        return np.einsum("mi,im->m", self.gradients, moved), -(own + every).T

    @cached_property
    def _per_cell(self) -> Array:
        """The tangent map with one cell in every context."""
        return tangent(self.with_cells(np.ones(len(self.point.n))))


def power(w: Array, v: Array, alpha: float, doubt: "Array | float" = 0.0) -> Array:
    """Return the power (m,) of two-sided tests of level alpha, of weights w whose estimates have variance v.

    If a weight is itself an estimate, ``doubt`` is its variance, and the power is the average over what it may be.
    Where v is infinite, no test has any.
    """
    known = np.isfinite(v)
    v, z = np.where(known, v, 1.0), stats.norm.isf(alpha / 2)
    delta, spread = np.abs(w) / np.sqrt(v), np.sqrt(1.0 + np.where(known, doubt, 0.0) / v)
    found = stats.norm.cdf((delta - z) / spread) + stats.norm.cdf((-delta - z) / spread)
    return np.asarray(np.where(known, found, 0.0))


def share_out(screen: Screen, sizes: Array, total: float, floors: Array, weakest: bool) -> Array:
    """Return counts (K + 1,) that sum to ``total``, none below its floor, and are best for these quantities.

    Parameters
    ----------
    sizes : (m,) absolute values of the quantities
    weakest : bool
        Make the largest ``v/size²`` as small as possible; else the sum of variances.
    """
    K, free = len(floors), total - floors.sum()

    def levels(x: Array) -> tuple[Array, Array]:
        v, slopes = screen.slopes(floors + free * np.maximum(x[:K], 0.0))
        if weakest:
            return np.log(v) - 2 * np.log(sizes), free * slopes / v[:, None]
        return np.log(v.sum(keepdims=True)), free * slopes.sum(axis=0, keepdims=True) / v.sum()

    # shares x on the simplex and the least t with every level below it: the levels are convex
    minimize: Any = optimize.minimize
    start = np.append(np.full(K, 1.0 / K), levels(np.full(K, 1.0 / K))[0].max())
    found = minimize(
        lambda x: (x[K], np.eye(K + 1)[K]),
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * K + [(None, None)],
        constraints=[
            {"type": "eq", "fun": lambda x: x[:K].sum() - 1.0, "jac": lambda x: np.append(np.ones(K), 0.0)},
            {
                "type": "ineq",
                "fun": lambda x: x[K] - levels(x)[0],
                "jac": lambda x: np.insert(-levels(x)[1], K, 1.0, axis=1),
            },
        ],
        options={"ftol": PRECISE, "maxiter": 500},
    )
    return np.asarray(floors + free * found.x[:K] / found.x[:K].sum())


def rounded(n: Array, total: int) -> IntArray:
    """Return whole numbers that sum to ``total``, each at most one from n; the largest remainders are rounded up."""
    whole = np.floor(n + 1e-9).astype(np.intp)
    up = np.argsort(whole - n, kind="stable")[: total - whole.sum()]
    whole[up] += 1
    return whole
