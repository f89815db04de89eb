"""Linear algebra with scale-free decisions.

Features come in arbitrary units, so no decision here compares raw numbers: ranks are decided after
scaling every feature to unit variance, factors are taken of unit-diagonal matrices, and a matrix is
called singular relative to itself. Inputs that cannot be factored raise :class:`ContextError` or
``ValueError`` with the numbers that show why, never ``LinAlgError``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg
from scipy.linalg import lapack

from latentdag.core.context_error import ContextError

Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]

#: Relative size below which an eigenvalue of a correlation matrix counts as zero. Exact low-rank data
#: computed in double precision leave eigenvalues near 1e-16, float32 data near 1e-14; genuine latent
#: directions of the paper's models lie above 1e-10.
RANK_TOLERANCE = 1e-12


#: Smallest eigenvalue of a unit-diagonal matrix, per dimension, that is more than rounding. Below it a Cholesky factor
#: exists or not by luck of the processor (Higham 2002, theorem 10.7): covariances with fewer samples than dimensions
#: leave up to 2.4 times the precision of float64 per dimension, under any kernel.
DEFINITE = 8 * float(np.finfo(float).eps)


def symmetrize(S: Array) -> Array:
    """Return the symmetric part of a matrix or stack of matrices."""
    return np.asarray(0.5 * (S + np.swapaxes(S, -1, -2)))


def unit_diagonal(S: Array) -> tuple[Array, Array]:
    """Scale ``S`` (p, p) to unit diagonal: ``S = s[:, None] * C * s``; zero rows keep scale one."""
    s = np.sqrt(np.clip(np.diagonal(S), 0.0, None))
    s = np.where(s > 0, s, 1.0)
    return S / np.outer(s, s), s


def range_basis(S: Array, rtol: float = RANK_TOLERANCE) -> Array:
    """Return an orthonormal basis (p, r) of the range of a covariance, its rank decided in correlation scale.

    The rank does not depend on the units of the features, the basis is orthonormal in those units.
    """
    V, s = _range_of_correlations(S, rtol)
    # full rank: the identity keeps the features' own coordinates, exactly
    return np.eye(len(S)) if V is None else np.asarray(np.linalg.qr(s[:, None] * V)[0])


def range_axes(S: Array, rtol: float = RANK_TOLERANCE) -> Array:
    """Return coordinates (r, p) of the range of a covariance, orthonormal in units of the features' deviations."""
    V, s = _range_of_correlations(S, rtol)
    return np.diag(1 / s) if V is None else V.T / s


def _range_of_correlations(S: Array, rtol: float) -> tuple[Array | None, Array]:
    """Return eigenvectors (p, r) of the range of the correlations (None if that is all) and the deviations (p,)."""
    C, s = unit_diagonal(S)
    if not all_above(C, max(rtol, 1e-9) * len(C)):
        w = np.linalg.eigvalsh(C)
        if w[0] <= rtol * max(w[-1], 0.0):
            w, V = linalg.eigh(C)
            return V[:, w > rtol * max(w[-1], 0.0)], s
    return None, s


def all_above(S: Array, floor: float) -> bool:
    """Tell whether all eigenvalues of a symmetric matrix exceed ``floor``: a Cholesky factor knows, at little cost."""
    return not lapack.dpotrf(S - floor * np.eye(len(S)), clean=False)[1]


def is_definite(S: Array) -> bool:
    """Tell whether a symmetric matrix is positive definite by more than rounding, on any machine and in any units."""
    return _definite_correlations(unit_diagonal(S)[0])


def _definite_correlations(C: Array) -> bool:
    return all_above(C, DEFINITE * len(C))


def full_row_rank(H: Array, tol: float = 1e-13) -> bool:
    """Tell whether no row of ``H`` (d, p) lies within ``tol`` of the span of the others, whatever the units."""
    columns = np.abs(H).max(axis=0, initial=0.0)
    rows = H / np.where(columns > 0, columns, 1.0)  # first, so that no square overflows
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if len(H) > H.shape[1] or not norms.all():
        return False
    rows = rows / norms
    return all_above(rows @ rows.T, 1e-9) or bool(np.linalg.matrix_rank(rows, tol=tol) == len(H))


def scale_free_rank(S: Array, rtol: float = RANK_TOLERANCE) -> int:
    """Return the rank of a covariance or precision matrix, whatever the units of its rows."""
    w = linalg.eigvalsh(unit_diagonal(S)[0])
    return int(np.sum(w > rtol * max(w[-1], 0.0)))


def upper_factor(S: Array, context: int) -> Array:
    """Return the upper triangular ``F`` with positive diagonal and ``FᵀF = S`` (the paper's ``cholesky``)."""
    C, s = unit_diagonal(S)
    if _definite_correlations(C):
        return np.asarray(linalg.cholesky(C, lower=False) * s)
    w = linalg.eigvalsh(C)
    raise ContextError(
        context,
        f"its matrix is not positive definite to working precision (eigenvalues of the scaled matrix from "
        f"{w[0]:.3g} to {w[-1]:.3g}); the latents are too collinear to separate: drop nearly duplicate "
        "features or contexts, or collect more samples",
    )


def inverse(S: Array, context: int) -> Array:
    """Return the inverse of a positive definite matrix through its unit-diagonal Cholesky factor."""
    F = upper_factor(S, context)
    F_inv = linalg.solve_triangular(F, np.eye(len(F)))
    return np.asarray(F_inv @ F_inv.T)


def pseudo_inverse(S: Array, rtol: float = RANK_TOLERANCE, context: int = 0) -> Array:
    """Return the Moore–Penrose inverse of a covariance or precision matrix with a scale-free rank."""
    U = range_basis(S, rtol)
    return np.asarray(U @ inverse(symmetrize(U.T @ S @ U), context) @ U.T)


def triangular_of_product(F: Array) -> Array:
    """Return ``cholesky(FᵀF)`` without forming ``FᵀF``: a QR with positive diagonal, which cannot break down.

    Works on stacks (..., n, d) with n ≥ d. The paper factors ``(Q†)ᵀ Θ Q†`` directly, which squares the
    condition number and is where its published code dies at d ≥ 40.
    """
    R = np.linalg.qr(F, mode="r")
    sign = np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.asarray(R * sign[..., :, None])


def right_inverse(H: Array) -> Array:
    """Return ``H†`` (p, d) of a full-row-rank ``H`` (d, p), rows scaled to unit norm first; if square, columns too."""
    size = np.abs(H).max(axis=0) if len(H) == H.shape[1] else np.ones(H.shape[1])
    rows = H / size
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(np.linalg.pinv(rows / norms[:, None]) / norms / size[:, None])


class PooledWhitening(NamedTuple):
    """Covariances in coordinates ``W x`` in which their pooled covariance is the identity.

    Attributes
    ----------
    W : (r, p)
    S : (K+1, r, r) covariances of ``W x``
    definite : (K+1,) whether each covariance is positive definite by more than rounding
    """

    W: Array
    S: Array
    definite: BoolArray


def whiten_pooled(axes: Array, S: Array, weights: Array) -> PooledWhitening:
    """Whiten covariances by their weighted sum.

    Parameters
    ----------
    axes : (r, p)
        Coordinates ``axes @ x`` of the range of the data.
    S : (K+1, r, r) covariances of these coordinates
    weights : (K+1,) that sum to one

    Raises
    ------
    ContextError
        If the pooled covariance is singular to working precision.
    """
    F_inv = np.linalg.inv(upper_factor(symmetrize(np.tensordot(weights, S, axes=1)), context=0))
    white = symmetrize(F_inv.T @ S @ F_inv)
    definite = np.array([is_definite(s) and is_definite(w) for s, w in zip(S, white, strict=True)])
    return PooledWhitening(F_inv.T @ axes, white, definite)


def max_entry_scale(H: Array, rtol: float = 1e-9) -> Array:
    """Return the factor by which each row must be divided to meet Assumption 1(c) of the paper.

    The entry of largest absolute value becomes +1. Entries within ``rtol`` of the largest are a tie, and the
    leftmost of a tie decides: by definition, not by luck of floating point.
    """
    size = np.abs(H)
    tied = size >= (1.0 - rtol) * size.max(axis=1, keepdims=True)
    return np.asarray(H[np.arange(len(H)), np.argmax(tied, axis=1)])


def complement(W: Array) -> Array:
    """Return an orthonormal basis (r, r − t) of the orthogonal complement of the columns of ``W`` (r, t)."""
    full, _ = linalg.qr(W, mode="full") if W.shape[1] else (np.eye(len(W)), None)
    return np.asarray(full[:, W.shape[1] :])


def independent_rows(H: Array, floor: float = 0.02) -> Array:
    """Unit rows moved apart where they nearly depend on each other: singular values raised to at least ``floor``.

    Two contexts can suggest the same direction; a start with dependent rows has no likelihood at all.
    """
    norms = np.linalg.norm(H, axis=1, keepdims=True)
    U, s, Vt = np.linalg.svd(H / np.where(norms > 0, norms, 1.0), full_matrices=False)
    return np.asarray(H if s[-1] >= floor else (U * np.maximum(s, floor)) @ Vt)


class Spectrum:
    """Single eigenvalues and eigenvectors of a symmetric matrix (r, r), counted from the smallest, 0, to r − 1.

    The reduction to tridiagonal form costs a fifth of all eigenvectors, and each of them little from there.
    """

    def __init__(self, S: Array):
        self._S = S
        # transposed, the matrix is what LAPACK works on, without a copy; room for panels of 8, its best up to r = 300
        self._reflectors, self._diagonal, beside, self._tau, _ = lapack.dsytrd(S.T, lower=1, lwork=8 * len(S))
        self._beside = np.append(beside, 0.0)

    def __len__(self) -> int:
        return len(self._S)

    def value(self, i: int) -> float:
        """Return the i-th eigenvalue."""
        i %= len(self._S)
        beside = self._beside[: max(len(self._S) - 1, 1)]
        *_, w, _, _, failed = lapack.dstebz(self._diagonal, beside, 2, 0.0, 0.0, i + 1, i + 1, 0.0, "E")
        return float(np.linalg.eigvalsh(self._S)[i] if failed else w[0])

    def none_between(self, low: float, high: float) -> bool:
        """Tell whether no eigenvalue lies in ``(low, high]``: counted, not computed."""
        beside = self._beside[: max(len(self._S) - 1, 1)]
        found, *_, failed = lapack.dstebz(self._diagonal, beside, 1, low, high, 0, 0, 0.0, "E")
        return not found and not failed

    def pairs(self, which: Sequence[int]) -> tuple[Array, Array]:
        """Return these eigenvalues (q,) and their vectors (r, q)."""
        w, V = np.empty(len(which)), np.empty((len(self._S), len(which)), order="F")
        for q, i in enumerate(which):
            beside = self._beside.copy()  # dstemr writes into it
            found, values, vectors, failed = lapack.dstemr(self._diagonal, beside, 2, 0.0, 0.0, i + 1, i + 1)
            if found != 1 or failed:
                every, V = np.linalg.eigh(self._S)
                return every[list(which)], V[:, list(which)]
            w[q], V[:, q] = values[0], vectors[:, 0]
        if len(V) > 1:
            V[1:] = lapack.dormqr("L", "N", self._reflectors[1:, :-1], self._tau, V[1:], len(V))[0]
        return w, V
