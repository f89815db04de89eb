"""Directions of nearly collinear features that covariances in float64 forget, and samples do not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentdag.core.linalg import unit_diagonal
from latentdag.rows import dense_rows

#: Smallest over largest eigenvalue of the correlations below which covariances are taken again along principal axes.
COLLINEAR = 1e-9

#: Relative variance below which such an axis is rounding of float64 samples.
FINE_TOLERANCE = 1e-25


@dataclass(frozen=True, eq=False)
class FineScale:
    """Covariances of nearly collinear features, again, in coordinates that keep their small directions apart.

    A covariance of float64 samples forgets directions 1e-8 times smaller than the largest, because it squares them; the
    samples themselves do not. So where features are that collinear, a second pass takes the covariances of
    ``axes @ x``, the principal axes of all contexts together in units of the features' deviations.

    Attributes
    ----------
    axes : (p, p)
    covariances : (K+1, p, p) of ``axes @ x``, about each context's own mean, divisor n − 1
    """

    axes: np.ndarray
    covariances: np.ndarray

    def varying(self, counts: np.ndarray) -> np.ndarray:
        """Positions of the axes along which the features vary by more than rounding."""
        pooled = np.einsum("k,kj->j", counts / counts.sum(), np.diagonal(self.covariances, axis1=1, axis2=2))
        return np.flatnonzero(pooled > FINE_TOLERANCE * pooled.max())


def fine_scale(X: Any, rows: Sequence[np.ndarray], means: np.ndarray, pooled: np.ndarray) -> FineScale | None:
    """Covariances along the principal axes, where features are too collinear for those of the features themselves."""
    if X.dtype.itemsize < 8:
        return None  # float32 samples have forgotten what a second pass could tell
    C, s = unit_diagonal(pooled)
    w, V = np.linalg.eigh(C)
    if w[0] > COLLINEAR * w[-1]:
        return None
    axes, covariances = V.T / s, np.zeros((len(rows), *pooled.shape))
    for k, chosen in enumerate(rows):
        for block in dense_rows(X, chosen):
            y = (block - means[k]) @ axes.T
            covariances[k] += y.T @ y
        covariances[k] /= max(len(chosen) - 1, 1)
    return FineScale(axes, covariances)
