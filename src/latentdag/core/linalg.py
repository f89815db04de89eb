"""Linear algebra with scale-free decisions.

Features come in arbitrary units, so no decision here compares raw numbers: ranks are decided after
scaling every feature to unit variance, factors are taken of unit-diagonal matrices, and a matrix is
called singular relative to itself. Inputs that cannot be factored raise :class:`ContextError` or
``ValueError`` with the numbers that show why, never ``LinAlgError``.
"""

import numpy as np
import numpy.typing as npt
from scipy import linalg
from scipy.linalg import lapack

from latentdag.core.errors import ContextError

Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]

#: Relative size below which an eigenvalue of a correlation matrix counts as zero. Exact low-rank data
#: computed in double precision leave eigenvalues near 1e-16, float32 data near 1e-14; genuine latent
#: directions of the paper's models lie above 1e-10.
RANK_TOLERANCE = 1e-12


def symmetrize(S: Array) -> Array:
    """The symmetric part of a matrix or stack of matrices."""
    return np.asarray(0.5 * (S + np.swapaxes(S, -1, -2)))


def unit_diagonal(S: Array) -> tuple[Array, Array]:
    """Scale ``S`` (p, p) to unit diagonal: ``S = s[:, None] * C * s``; zero rows keep scale one."""
    s = np.sqrt(np.clip(np.diagonal(S), 0.0, None))
    s = np.where(s > 0, s, 1.0)
    return S / np.outer(s, s), s


def range_basis(S: Array, rtol: float = RANK_TOLERANCE) -> Array:
    """Orthonormal basis (p, r) of the range of a covariance, its rank decided in correlation scale.

    The rank does not depend on the units of the features, the basis is orthonormal in those units.
    """
    C, s = unit_diagonal(S)
    w, V = linalg.eigh(C)
    keep = w > rtol * max(w[-1], 0.0)
    if keep.all():  # full rank: the identity keeps the features' own coordinates, exactly
        return np.eye(len(S))
    U, _ = np.linalg.qr(s[:, None] * V[:, keep])
    return np.asarray(U)


def scale_free_rank(S: Array, rtol: float = RANK_TOLERANCE) -> int:
    """Rank of a covariance or precision matrix, whatever the units of its rows."""
    w = linalg.eigvalsh(unit_diagonal(S)[0])
    return int(np.sum(w > rtol * max(w[-1], 0.0)))


def upper_factor(S: Array, context: int) -> Array:
    """Upper triangular ``F`` with positive diagonal and ``FᵀF = S`` (the paper's ``cholesky``)."""
    C, s = unit_diagonal(S)
    try:
        return np.asarray(linalg.cholesky(C, lower=False) * s)
    except linalg.LinAlgError:
        w = linalg.eigvalsh(C)
        raise ContextError(
            context,
            f"its matrix is not positive definite to working precision (eigenvalues of the scaled matrix from "
            f"{w[0]:.3g} to {w[-1]:.3g}); the latents are too collinear to separate: drop nearly duplicate "
            "features or contexts, or collect more samples",
        ) from None


def inverse(S: Array, context: int) -> Array:
    """Inverse of a positive definite matrix through its unit-diagonal Cholesky factor."""
    F = upper_factor(S, context)
    F_inv = linalg.solve_triangular(F, np.eye(len(F)))
    return np.asarray(F_inv @ F_inv.T)


def pseudo_inverse(S: Array, rtol: float = RANK_TOLERANCE, context: int = 0) -> Array:
    """Moore–Penrose inverse of a covariance or precision matrix with a scale-free rank."""
    U = range_basis(S, rtol)
    return np.asarray(U @ inverse(symmetrize(U.T @ S @ U), context) @ U.T)


def triangular_of_product(F: Array) -> Array:
    """``cholesky(FᵀF)`` without forming ``FᵀF``: a QR with positive diagonal, which cannot break down.

    Works on stacks (..., n, d) with n ≥ d. The paper factors ``(Q†)ᵀ Θ Q†`` directly, which squares the
    condition number and is where its published code dies at d ≥ 40.
    """
    R = np.linalg.qr(F, mode="r")
    sign = np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.asarray(R * sign[..., :, None])


def right_inverse(H: Array) -> Array:
    """``H†`` (p, d) of a full-row-rank ``H`` (d, p), rows scaled to unit norm first."""
    norms = np.linalg.norm(H, axis=1)
    return np.asarray(np.linalg.pinv(H / norms[:, None]) / norms)


def max_entry_scale(H: Array, rtol: float = 1e-9) -> Array:
    """The factor by which each row must be divided to meet Assumption 1(c) of the paper.

    The entry of largest absolute value becomes +1. Entries within ``rtol`` of the largest are a tie, and the
    leftmost of a tie decides: by definition, not by luck of floating point.
    """
    size = np.abs(H)
    tied = size >= (1.0 - rtol) * size.max(axis=1, keepdims=True)
    return np.asarray(H[np.arange(len(H)), np.argmax(tied, axis=1)])


def complement(W: Array) -> Array:
    """Orthonormal basis (r, r − t) of the orthogonal complement of the columns of ``W`` (r, t)."""
    full, _ = linalg.qr(W, mode="full") if W.shape[1] else (np.eye(len(W)), None)
    return np.asarray(full[:, W.shape[1] :])


def independent_rows(H: Array, floor: float = 0.02) -> Array:
    """Unit rows moved apart where they nearly depend on each other: singular values raised to at least ``floor``.

    Two contexts can suggest the same direction; a start with dependent rows has no likelihood at all.
    """
    norms = np.linalg.norm(H, axis=1, keepdims=True)
    U, s, Vt = np.linalg.svd(H / np.where(norms > 0, norms, 1.0), full_matrices=False)
    return np.asarray(H if s[-1] >= floor else (U * np.maximum(s, floor)) @ Vt)


def end_eigenpairs(S: Array) -> tuple[Array, Array]:
    """The two smallest and two largest eigenvalues (4,) of a symmetric matrix, and vectors (r, 4); all if r < 4.

    The reduction to tridiagonal form costs a fifth of all eigenvectors, and its ends next to nothing.
    """
    r = len(S)
    if r < 4:
        w, V = np.linalg.eigh(S)
        return w, V
    a, diagonal, beside, tau, _ = lapack.dsytrd(S, lower=1)
    # dstemr writes into what lies beside the diagonal, so each call gets its own
    ends = [lapack.dstemr(diagonal, np.append(beside, 0.0), 2, 0.0, 0.0, first, first + 1) for first in (1, r - 1)]
    if any(found != 2 or info for found, _, _, info in ends):
        w, V = np.linalg.eigh(S)
        kept = [0, 1, r - 2, r - 1]
        return w[kept], V[:, kept]
    V = np.concatenate([z[:, :2] for _, _, z, _ in ends], axis=1)
    V[1:] = lapack.dormqr("L", "N", a[1:, :-1], tau, V[1:], r)[0]
    return np.concatenate([w[:2] for _, w, _, _ in ends]), V
