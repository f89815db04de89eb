"""Covariance of the fitted parameters and of whatever is computed from them.

The inverse of the information where there is one. Directions without information (soft interventions leave H free
inside the ancestor relation) are found by a pivoted Cholesky factorisation and kept, so that a quantity that moves
along one of them is said to be unknown instead of getting a number. The sandwich ``C J C``, with J the covariance of
the samples' scores (:mod:`latentdag.core.sample_scores`), takes the inverse's place for noise that is not Gaussian.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.uncertainty import Point, information, outer_information

#: Share of a parameter's information that must be left once the others are unknown too; below, it is not identified.
NO_INFORMATION = 1e-10

#: A quantity is unknown if this share of its gradient (parameters in units of their own information) has none.
UNKNOWN_SHARE = 1e-5


class Inverse:
    """The inverse of an information matrix, as far as there is one.

    Attributes
    ----------
    C : (P, P) covariance; of directions without information, one choice of zero variance
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
        pivot = np.asarray(pivot) - 1
        P = len(pivot)
        self.null = np.zeros((P, P - rank))
        if rank < P:
            L_11, L_21 = np.tril(factor[:rank, :rank]), factor[rank:, :rank]
            self.null[pivot[:rank]] = -linalg.solve_triangular(L_11, L_21.T, lower=True, trans=1)
            self.null[pivot[rank:]] = np.eye(P - rank)
            factor = np.asfortranarray(factor[:rank, :rank])
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0] if rank else np.zeros((0, 0))
        _mirror(inverse)
        place = np.argsort(pivot)
        known = np.flatnonzero(place < rank)
        if rank == P:
            self.C = np.asarray(inverse[np.ix_(place, place)])
        else:
            self.C = np.zeros((P, P))
            self.C[np.ix_(known, known)] = inverse[np.ix_(place[known], place[known])]
        self.C /= self.scale[:, None]
        self.C /= self.scale

    def knows(self, J: Array) -> BoolArray:
        """Which of the quantities with gradients J (m, P) the data determine."""
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
    """Gradients of m quantities: (m, P), and in the columns of (V, Y, κ) a sum of outer products c vᵀ.

    ``outer`` lists pairs c (m, 2d + 1 or 2d) and v (m, r − d).
    """

    inner: Array
    outer: tuple[tuple[Array, Array], ...] = ()

    def __getitem__(self, rows: "IntArray | BoolArray | slice | Sequence[int]") -> "Gradient":
        return Gradient(self.inner[rows], tuple((c[rows], v[rows]) for c, v in self.outer))

    def __add__(self, other: "Gradient") -> "Gradient":
        return Gradient(self.inner + other.inner, self.outer + other.outer)

    def times(self, factor: "Array | float") -> "Gradient":
        """Each quantity's gradient times a number of its own."""
        f = np.broadcast_to(np.asarray(factor, dtype=float), (len(self.inner),))[:, None]
        return Gradient(f * self.inner, tuple((f * c, v) for c, v in self.outer))

    def dense(self) -> Array:
        """(m, P + columns × (r − d)), for a covariance of all parameters at once."""
        parts = [np.einsum("mc,ms->mcs", c, v).reshape(len(c), -1) for c, v in self.outer]
        return np.hstack([self.inner, sum(parts[1:], parts[0])]) if parts else self.inner


class ParameterCovariance:
    """Covariance of the parameters at a point.

    Parameters
    ----------
    point : Point
    rest : int
        r − d, the dimensions that the latents leave.
    """

    def __init__(self, point: Point, rest: int = 0):
        self.point, self.rest = point, rest
        self.inverse = Inverse(information(point))
        self.outer_inverse = Inverse(outer_information(point)) if rest else None
        self.C = self.inverse.C
        self.full: Array | None = None  # of all parameters at once, for the sandwich with a rest

    def robust(self, score_covariance: Array) -> "ParameterCovariance":
        """The sandwich ``C J C`` with J the covariance of the total score."""
        made = object.__new__(ParameterCovariance)
        made.point, made.rest = self.point, self.rest
        made.inverse, made.outer_inverse = self.inverse, self.outer_inverse
        made.full = None
        if self.outer_inverse is None:
            made.C = self.C @ score_covariance @ self.C
            return made
        whole = linalg.block_diag(self.C, np.kron(self.outer_inverse.C, np.eye(self.rest)))
        made.full = whole @ score_covariance @ whole
        made.C = made.full[: self.point.size, : self.point.size]
        return made

    def knows(self, g: Gradient) -> BoolArray:
        """Which quantities the data determine."""
        known = self.inverse.knows(g.inner)
        for c, _ in g.outer if self.outer_inverse is not None else ():
            known &= self.outer_inverse.knows(c)  # type: ignore[union-attr]
        return known

    def blocks(self, g: Gradient, size: int) -> Array:
        """Covariances (m / size, size, size) within groups of quantities that involve the latents' space only."""
        CJ, J = self._product(g.inner)
        groups = (len(J) // size, size, J.shape[1])
        return np.asarray(CJ.reshape(groups) @ J.reshape(groups).transpose(0, 2, 1))

    def variance(self, g: Gradient) -> Array:
        """Variance (m,) of quantities; infinite where the data do not determine them."""
        if self.full is not None and g.outer:
            J = g.dense()
            variance = np.einsum("mi,mi->m", J @ self.full, J)
        else:
            variance = np.einsum("mi,mi->m", *self._product(g.inner))
            if self.outer_inverse is not None:
                for c, v in g.outer:
                    for c_2, v_2 in g.outer:
                        variance += np.einsum("mi,mi->m", c @ self.outer_inverse.C, c_2) * np.einsum("ms,ms->m", v, v_2)
        return np.where(self.knows(g), np.maximum(variance, 0.0), np.inf)

    def _product(self, J: Array) -> tuple[Array, Array]:
        """``J C`` and J, in the parameters that matter: most quantities depend on few."""
        used = np.flatnonzero(J.any(axis=0))
        if 2 * len(used) > len(self.C):
            return J @ self.C, J
        J = J[:, used]
        return J @ self.C[np.ix_(used, used)], J
