"""Digits that means and covariances in float64 forget, and samples do not, for features that are nearly collinear.

A covariance forgets directions 1e-8 times smaller than the largest, because it squares them. Where a first look at the
samples shows such directions, the accumulator sums squares along the principal axes of those samples too, and the
moments keep these sums beside the covariances.

A mean that is 1e12 deviations away from zero is rounded by 1e-4 deviations; merged covariances would feel it. So a mean
is kept as two numbers whose sum it is, the second being what rounding took off the first.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from latentdag.core.linalg import all_above

#: Deviation along an axis, relative to the largest, below which covariances forget it: its square is lost in rounding.
FORGOTTEN = 3e-5

#: Deviation along an axis, relative to the largest, below which it is rounding of the samples themselves.
ROUNDING = 1e-12

#: Values beyond this, or below its inverse, are not looked at here: they are refused later.
LARGE = 1e100


#: Relative difference up to which two arrays of a file are taken to say the same.
SAME = 1e-6


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

    @property
    def variances(self) -> np.ndarray:
        """Variances of the features (p,) by which the axes are scaled: an orthogonal matrix divided by deviations."""
        return 1 / np.square(self.axes).sum(axis=0)

    @property
    def back(self) -> np.ndarray:
        """Inverse of the axes (p, p)."""
        return self.variances[:, None] * self.axes.T

    def along(self, axes: np.ndarray) -> "FineScale":
        """Return the same covariances along other axes (p, p)."""
        turn = axes @ self.back
        return FineScale(axes, turn @ self.covariances @ turn.T)

    def check(self, S: np.ndarray) -> None:
        """Check that these are the covariances S (K+1, p, p) of the features along axes that can be undone.

        Raises
        ------
        ValueError
        """
        C, expected = self.covariances, np.diagonal(S, axis1=1, axis2=2)
        with np.errstate(all="ignore"):  # what is not finite here is refused
            Q = self.axes / np.linalg.norm(self.axes, axis=0)
            turned = np.abs(Q.T @ Q - np.eye(len(Q))).max()
            skew = np.abs(C - C.transpose(0, 2, 1)).max() / np.abs(C).max()
            gap = np.abs(np.einsum("kij,ij->ki", self.back @ C, self.back) - expected).max(axis=0)
        if not turned < SAME:
            raise ValueError("the axes are not orthogonal in units of the features' deviations")
        if not (skew < SAME and (gap <= SAME * expected.max(axis=0)).all()):
            raise ValueError("the covariances along the axes are not those of the features")

    def varying(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the axes (r, p) along which features vary by more than rounding, and the covariances (K+1, r, r)."""
        pooled = np.einsum("k,kj->j", counts / counts.sum(), np.diagonal(self.covariances, axis1=1, axis2=2))
        kept = np.flatnonzero(pooled > ROUNDING**2 * pooled.max())
        return self.axes[kept], self.covariances[:, kept][:, :, kept]


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is complained about in the end
def two_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``a + b`` of vectors (p,) as two numbers (2, p): the rounded sum and what rounding took off (Knuth)."""
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
