"""Compute the covariance of the fitted parameters, and from it the variance of whatever is computed from them.

A model in arrays is a :class:`latentdag.core.jacobian.Point`, and its information a matrix. The covariance is the
inverse of that matrix where there is one. Directions without information (soft interventions leave H free inside the
ancestor relation) are found by a pivoted Cholesky factorisation and kept, so that a quantity that moves along one of
them is said to be unknown instead of getting a number.

For noise that is not Gaussian the sandwich ``C J C`` takes the inverse's place, with J the covariance of the samples'
scores. A quantity with gradient g (:mod:`latentdag.core.quantities` has them) then has the variance ``g C gᵀ``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, stats
from scipy.linalg import lapack

from latentdag.core.jacobian import Point, information, outer_information, scores
from latentdag.core.linalg import Array, BoolArray, IntArray

#: Share of a parameter's information that must be left once the others are unknown too; below, it is not identified.
NO_INFORMATION = 1e-10

#: A quantity is unknown if this share of its gradient (parameters in units of their own information) has none.
UNKNOWN_SHARE = 1e-5

#: Information about a parameter that is held at its value.
KNOWN = 1e30

#: Parameters from which on the inverse of the information takes long enough to be avoided.
LARGE = 2_000

#: Share of a statistic's sampling variance that must be left for it to be tested.
LEFT = 1e-6


class Inverse:
    """Invert an information matrix, as far as it can be inverted.

    Attributes
    ----------
    null : (P, m) directions without information, in units of each parameter's own information
    scale : (P,) square root of each parameter's own information
    """

    def __init__(self, total: Array):  # overwritten: at d = 83 it takes half a gigabyte
        diagonal = np.diagonal(total).copy()
        self.scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        total /= self.scale[:, None]
        total /= self.scale
        # total.T is the same matrix in the memory order of LAPACK, so that the factor takes its place
        factor, pivot, rank, _ = lapack.dpstrf(total.T, tol=NO_INFORMATION, lower=1, overwrite_a=1)
        P, pivot = len(total), np.asarray(pivot) - 1
        self.null = np.zeros((P, P - rank))
        if rank < P:
            L_11, L_21 = np.tril(factor[:rank, :rank]), factor[rank:, :rank]
            self.null[pivot[:rank]] = -linalg.solve_triangular(L_11, L_21.T, lower=True, trans=1)
            self.null[pivot[rank:]] = np.eye(P - rank)
            factor = np.asfortranarray(factor[:rank, :rank])
        self._factor, self._kept = factor, pivot[:rank]

    @cached_property
    def C(self) -> Array:
        """(P, P) covariance; of directions without information, one choice of zero variance."""
        P, kept = len(self.scale), self._kept
        inverse = lapack.dpotri(self._factor, lower=1)[0] if len(kept) else np.zeros((0, 0))
        _mirror(inverse)
        C = np.zeros((P, P))
        C[np.ix_(kept, kept)] = inverse
        C /= self.scale[:, None]
        C /= self.scale
        return C

    def variance(self, J: Array) -> Array:
        """Return the variances (m,) of quantities with gradients J (m, P).

        The factor alone tells those of a few quantities, at a third of the price of the inverse of a large matrix. What
        was asked before does not matter, so that the same question has the same answer to the last digit.
        """
        if max(LARGE, 3 * len(J)) > len(self.scale):
            return np.asarray(np.einsum("mi,mi->m", *product(J, self.C)))
        half = linalg.solve_triangular(
            self._factor, (J / self.scale)[:, self._kept].T, lower=True, overwrite_b=True, check_finite=False
        )
        return np.asarray(np.einsum("im,im->m", half, half))

    def knows(self, J: Array) -> BoolArray:
        """Return (m,) which of the quantities with gradients J (m, P) the data determine."""
        if not self.null.shape[1]:
            return np.ones(len(J), dtype=bool)
        scaled = J / self.scale
        along = np.abs(scaled @ (self.null / np.linalg.norm(self.null, axis=0))).max(axis=1)
        return np.asarray(along <= UNKNOWN_SHARE * np.linalg.norm(scaled, axis=1))


def _mirror(A: Array, step: int = 512) -> None:
    """Copy the lower triangle to the upper, in place."""
    for start in range(0, len(A), step):
        stop = min(start + step, len(A))
        own = A[start:stop, start:stop]
        own[:] = np.tril(own) + np.tril(own, -1).T
        A[start:stop, stop:] = A[stop:, start:stop].T


@dataclass(frozen=True, eq=False)
class Gradient:
    """Hold gradients of m quantities: (m, P), and in the columns of (V, Y, κ) a sum of outer products c vᵀ.

    ``outer`` lists pairs c (m, 2d + 1 or 2d) and v (m, r − d).
    """

    inner: Array
    outer: tuple[tuple[Array, Array], ...] = ()

    def __getitem__(self, rows: "IntArray | BoolArray | slice | Sequence[int]") -> "Gradient":
        return Gradient(self.inner[rows], tuple((c[rows], v[rows]) for c, v in self.outer))

    def __add__(self, other: "Gradient") -> "Gradient":
        return Gradient(self.inner + other.inner, self.outer + other.outer)

    @classmethod
    def stacked(cls, parts: "Sequence[Gradient]") -> "Gradient":
        """Return the gradients of several groups of quantities of one kind as one group."""
        outer = zip(*(part.outer for part in parts), strict=True)
        return cls(
            np.vstack([part.inner for part in parts]),
            tuple((np.vstack([c for c, _ in term]), np.vstack([v for _, v in term])) for term in outer),
        )

    def times(self, factor: "Array | float") -> "Gradient":
        """Multiply each quantity's gradient by a number of its own, or one gradient by m numbers."""
        f = np.reshape(np.asarray(factor, dtype=float), (-1, 1))
        return Gradient(f * self.inner, tuple((f * c, np.ones_like(f) * v) for c, v in self.outer))

    def dense(self) -> Array:
        """Return (m, P + columns × (r − d)), for a covariance of all parameters at once."""
        parts = [np.einsum("mc,ms->mcs", c, v).reshape(len(c), -1) for c, v in self.outer]
        return np.hstack([self.inner, sum(parts[1:], parts[0])]) if parts else self.inner


class ParameterCovariance:
    """Hold the covariance of the parameters at a point.

    Parameters
    ----------
    point : Point
    rest : int
        r − d, the dimensions that the latents leave.
    of_scores : optional
        Covariance of the total score, as from `score_covariance`: then the covariance is the sandwich.

    Strengths that are not known exactly are no estimates: the others follow them with minus their covariance times what
    they share of the information, and have the errors of the strengths as well as their own.

    Attributes
    ----------
    full : of all parameters at once, those of the rest included, for the sandwich with a rest; else None
    """

    def __init__(self, point: Point, rest: int = 0, of_scores: Array | None = None):
        total = information(point)
        strengths = np.arange(len(point.unsure)) + point.d**2 + int(point.free.sum())
        across = total[:, strengths]
        total[strengths], total[:, strengths] = 0.0, 0.0
        total[strengths, strengths] = KNOWN
        self.inverse, self._by_strength = Inverse(total), np.zeros((point.size, 0))
        if len(strengths):
            moved = -self.inverse.C @ across
            moved[strengths] = np.eye(len(strengths))
            self._by_strength = moved * point.strength_sd[point.unsure]  # type: ignore[index]
        self.outer_inverse = Inverse(outer_information(point)) if rest else None
        self.full: Array | None = None
        self._sandwich: Array | None = None
        if of_scores is not None and self.outer_inverse is None:
            self._sandwich = self.inverse.C @ of_scores @ self.inverse.C
        elif of_scores is not None and self.outer_inverse is not None:
            whole = linalg.block_diag(self.inverse.C, np.kron(self.outer_inverse.C, np.eye(rest)))
            self.full = whole @ of_scores @ whole
            self._sandwich = self.full[: point.size, : point.size]

    @property
    def C(self) -> Array:
        """(P, P)."""
        C = self.inverse.C if self._sandwich is None else self._sandwich
        return C + self._by_strength @ self._by_strength.T if self._by_strength.size else C

    def knows(self, g: Gradient) -> BoolArray:
        """Return (m,) which quantities the data determine."""
        known = self.inverse.knows(g.inner)
        for c, _ in g.outer if self.outer_inverse is not None else ():
            known &= self.outer_inverse.knows(c)  # type: ignore[union-attr]
        return known

    def blocks(self, g: Gradient, size: int) -> Array:
        """Return covariances (m / size, size, size) within groups of quantities of the latents' space only."""
        CJ, J = product(g.inner, self.C)
        groups = (len(J) // size, size, J.shape[1])
        return np.asarray(CJ.reshape(groups) @ J.reshape(groups).transpose(0, 2, 1))

    def variance(self, g: Gradient) -> Array:
        """Return variances (m,) of quantities; infinite where the data do not determine them."""
        if self.full is not None and g.outer:
            J = g.dense()
            variance = np.einsum("mi,mi->m", J @ self.full, J)
        else:
            variance = (
                self.inverse.variance(g.inner)
                if self._sandwich is None
                else np.einsum("mi,mi->m", *product(g.inner, self._sandwich))
            )
            if self.outer_inverse is not None:
                for c, v in g.outer:
                    for c_2, v_2 in g.outer:
                        variance += np.einsum("mi,mi->m", c @ self.outer_inverse.C, c_2) * np.einsum("ms,ms->m", v, v_2)
        if self._by_strength.size:
            variance = variance + np.square(g.inner @ self._by_strength).sum(axis=1)
        return np.where(self.knows(g), np.maximum(variance, 0.0), np.inf)

    def matrix(self, g: Gradient) -> Array:
        """Return the covariance (m, m) of quantities."""
        CJ, J = product(g.inner, self.C)
        total = CJ @ J.T
        if self.outer_inverse is not None:
            for c, v in g.outer:
                for c_2, v_2 in g.outer:
                    total += (c @ self.outer_inverse.C @ c_2.T) * (v @ v_2.T)
        return np.asarray(total)


def product(J: Array, C: Array) -> tuple[Array, Array]:
    """Return ``J C`` and J, in the parameters that matter: most quantities depend on few."""
    used = np.flatnonzero(J.any(axis=0))
    if 2 * len(used) > len(C):
        return J @ C, J
    J = J[:, used]
    return J @ C[np.ix_(used, used)], J


def score_covariance(point: Point, blocks: Iterable[tuple[int, Array, Array | None]]) -> Array:
    """Return the covariance of the total score, each context about its own mean score.

    Parameters
    ----------
    blocks : of (context, latents, remainder or None), as for :func:`latentdag.core.jacobian.scores`, in any order
    """
    total: Array | None = None
    sums: dict[int, Array] = {}
    counts: dict[int, int] = {}
    for k, z, w in blocks:
        s = scores(point, k, z, w)
        total = np.zeros((s.shape[1], s.shape[1])) if total is None else total
        total += s.T @ s
        sums[k] = sums.get(k, 0.0) + s.sum(axis=0)
        counts[k] = counts.get(k, 0) + len(s)
    if total is None:
        raise ValueError("there are no samples")
    for k, each in sums.items():
        total -= np.outer(each, each) / counts[k]
    return total


def joint_test(values: Array, V: Array) -> tuple[float, int, float]:
    """Test that values (m,) with covariance V (m, m) have mean zero: χ² statistic, degrees of freedom and p-value.

    Directions that the fit has used up have no variance left and are left out.
    """
    if not len(values):
        return np.nan, 0, np.nan
    w, U = np.linalg.eigh(V)
    kept = w > LEFT * max(w[-1], 0.0)
    statistic = float(np.sum((U[:, kept].T @ values) ** 2 / w[kept]))
    dof = int(kept.sum())
    return statistic, dof, float(stats.chi2.sf(statistic, dof)) if dof else np.nan
