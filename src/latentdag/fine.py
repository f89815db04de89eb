"""What means and covariances in float64 forget, and samples do not.

A covariance forgets directions 1e-8 times smaller than the largest, because it squares them. Where a first look at the
samples shows such directions, the accumulator sums squares along the principal axes of those samples too, and the
moments keep these sums beside the covariances.

A mean that is 1e12 deviations away from zero is rounded by 1e-4 deviations; merged covariances would feel it. So a mean
is kept as two numbers whose sum it is, the second being what rounding took off the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from latentdag.core.linalg import all_above

#: Deviation along an axis, relative to the largest, below which its square is lost among those of the others.
FORGOTTEN = 3e-5

#: And below which it is rounding of the samples themselves.
ROUNDING = 1e-12

#: Values beyond this, or below its inverse, are refused later; their squares need not be numbers.
LARGE = 1e100


@dataclass(frozen=True, eq=False)
class FineScale:
    """Covariances in coordinates that keep small directions apart.

    Attributes
    ----------
    axes : (p, p)
        Orthogonal to each other in units of the features' deviations.
    covariances : (K+1, p, p) of ``axes @ x``, about each context's own mean, divisor n − 1
    """

    axes: np.ndarray
    covariances: np.ndarray

    def along(self, axes: np.ndarray) -> "FineScale":
        """The same along other axes."""
        # The inverse of the axes: they are an orthogonal matrix, divided by the features' deviations.
        turn = axes @ (self.axes.T / np.square(self.axes).sum(axis=0)[:, None])
        return FineScale(axes, turn @ self.covariances @ turn.T)

    def select(self, rows: Sequence[int]) -> "FineScale":
        """Only these contexts."""
        return FineScale(self.axes, self.covariances[list(rows)])

    def varying(self, counts: np.ndarray) -> np.ndarray:
        """Positions of the axes along which the features vary by more than rounding."""
        pooled = np.einsum("k,kj->j", counts / counts.sum(), np.diagonal(self.covariances, axis1=1, axis2=2))
        return np.flatnonzero(pooled > ROUNDING**2 * pooled.max())


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is complained about in the end
def two_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a + b`` of vectors (p,) as the float64 number and the rest that rounding took off it (2, p); Knuth's."""
    whole = a + b
    part = whole - a
    return np.array([whole, (a - (whole - part)) + (b - part)])


def fine_axes(X: np.ndarray, codes: np.ndarray, n_covariates: int = 0) -> np.ndarray | None:
    """Return the principal axes (p, p) of rows X (n, p) of contexts ``codes`` (n,), if their covariance forgets one.

    There must be twice as many rows as features, in double precision, and every feature must vary: otherwise the rows
    cannot tell. Covariates right of the features (p + c in all) are axes of their own.
    """
    n, p = X.shape
    if X.dtype.itemsize < 8 or n < 2 * p or not (np.abs(X) < LARGE).all():
        return None
    Y = np.array(X, dtype=float)
    for k in np.unique(codes):
        Y[codes == k] -= Y[codes == k].mean(axis=0)
    deviation = np.linalg.norm(Y, axis=0)
    if not (deviation > 1 / LARGE).all():
        return None
    Y /= deviation
    if all_above(Y.T @ Y, p * FORGOTTEN**2):
        return None
    s, Vt = linalg.svd(np.linalg.qr(Y, mode="r"))[1:]
    forgotten = (s < FORGOTTEN * s[0]) & (s > ROUNDING * s[0])
    return linalg.block_diag(Vt / deviation, np.eye(n_covariates)) if forgotten.any() else None
