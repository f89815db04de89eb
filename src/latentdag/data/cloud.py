"""The cloud of one context's rows: center, scatter, and how much a row weighs by its distance from them.

Distances are taken on the range of the scatter. A row that leaves the range has no distance, and no weight: where clean
rows fill fewer dimensions than there are features, outliers fill them all. docs/math.md, Robust moments.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from latentdag.core.linalg import range_axes, unit_diagonal

#: Shares of Gaussian rows that weigh less than one, and nothing.
LESS, NOTHING = 1e-2, 1e-5

#: Share of the rows that are taken to be clean at first, and that must turn out to be.
CLEAN = 0.75

#: Distance from the range of the clean rows, in deviations of the features, that is more than rounding.
OFF_RANGE = 1e-5

#: Concentration steps, and steps of weights, at most.
STEPS = 100

#: Nodes and weights of Gauss-Legendre quadrature on [0, 1].
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(40) + np.array([[1.0], [0.0]])) / 2


class Cuts(NamedTuple):
    """Squared distances between which weights fall, and what makes the covariance consistent."""

    a: float
    b: float
    gamma: float


def cuts(r: int, n: float) -> Cuts:
    """Return the cuts for distances in r dimensions, from a covariance of n rows.

    Examples
    --------
    >>> tuple(round(value, 3) for value in cuts(5, 1e9))
    (15.086, 30.856, 1.003)
    """
    if r == 0:
        return Cuts(1.0, 2.0, 1.0)  # distances are zero or infinite
    # a Gaussian row that is not among the n has r(n² − 1)/(n(n − r)) times F(r, n − r)
    free = max(n - r, 1.0)
    a, b = (float(r * (n * n - 1) / (n * free) * special.fdtri(r, free, 1 - share)) for share in (LESS, NOTHING))
    d2 = a + (b - a) * _NODES
    density = (b - a) * _WEIGHTS * np.exp(special.xlogy(r / 2 - 1, d2 / 2) - d2 / 2 - special.gammaln(r / 2)) / 2
    mass = falling(_NODES) * density
    mean_w = special.chdtr(r, a) + mass.sum()
    mean_wd2 = r * special.chdtr(r + 2, a) + (mass * d2).sum()
    return Cuts(a, b, float(r * mean_w / mean_wd2))


def falling(t: np.ndarray) -> np.ndarray:
    """Return weights that fall from one at t = 0 to zero at t = 1, level at both ends."""
    return np.asarray((1 - t) ** 2 * (1 + 2 * t))


class Cloud:
    """One context's center and scatter, and the weights that follow from them.

    Parameters
    ----------
    center : (p,)
    S : (p, p)
    n : rows behind them, or their weights' sum
    """

    def __init__(self, center: np.ndarray, S: np.ndarray, n: float):
        axes = range_axes(S)
        self.center, self.r, self.cuts = center, len(axes), cuts(len(axes), n)
        L = np.linalg.cholesky(axes @ S @ axes.T)
        self.T = np.linalg.solve(L, axes)  # white coordinates (r, p)
        self.deviations = unit_diagonal(S)[1]
        self.V = axes * self.deviations if self.r < len(S) else None  # orthonormal rows (r, p)

    def distances(self, X: np.ndarray) -> np.ndarray:
        """Return D² of rows (n, p); infinite off the range."""
        Y = X - self.center
        d2 = np.square(Y @ self.T.T).sum(axis=1)
        if self.V is not None:
            Y /= self.deviations
            d2[np.linalg.norm(Y - (Y @ self.V.T) @ self.V, axis=1) > OFF_RANGE] = np.inf
        return np.asarray(d2)

    def weights(self, X: np.ndarray) -> np.ndarray:
        """Return the weights of rows (n, p)."""
        d2, (a, b, _) = self.distances(X), self.cuts
        return falling(np.clip((d2 - a) / (b - a), 0.0, 1.0))


def settled(X: np.ndarray) -> tuple[Cloud, np.ndarray]:
    """Return the cloud of rows (n, p) of one context, and their weights (n,), which agree with each other."""
    at = np.median(X, axis=0)
    Y = X - at
    cloud, w = _concentrated(Y), np.zeros(len(Y))
    for _ in range(STEPS):
        before, w = w, cloud.weights(Y)
        if np.abs(w - before).max() < 1e-10 or w.sum() <= 1:
            break
        cloud = _weighted(Y, w, cloud.cuts.gamma)
    cloud.center = cloud.center + at
    return cloud, w


def _weighted(Y: np.ndarray, w: np.ndarray, gamma: float) -> Cloud:
    """Return the cloud of weighted rows."""
    n = w.sum()
    center = w @ Y / n
    Z = np.sqrt(w)[:, None] * (Y - center)
    return Cloud(center, gamma * (Z.T @ Z) / max(n - 1, 1.0), n)


def _concentrated(Y: np.ndarray) -> Cloud:
    """Return the cloud of the three quarters of the rows (n, p) that are closest together (Rousseeuw's MCD).

    Steps begin with the covariance of directions from the median, in which no row counts more than another. A row in a
    dimension of its own is as far away as can be, so rows off the range of all others leave first.
    """
    size = np.median(np.abs(Y), axis=0)
    size = np.where(size > 0, size, np.abs(Y).mean(axis=0))
    U = Y / np.where(size > 0, size, 1.0)
    norm = np.linalg.norm(U, axis=1)
    U /= np.where(norm > 0, norm, 1.0)[:, None]
    h = int(np.ceil(CLEAN * len(Y)))
    d2 = Cloud(np.zeros(Y.shape[1]), U.T @ U / len(U), h).distances(U * norm[:, None])
    core = np.zeros(0, dtype=int)
    for _ in range(STEPS):
        before, core = core, np.sort(np.argsort(d2, kind="stable")[:h])
        if np.array_equal(core, before):
            break
        cloud = _weighted(Y[core], np.ones(h), 1.0)
        d2 = cloud.distances(Y)
    middle = np.median(d2)
    if cloud.r and 0 < middle < np.inf:  # the closest rows have too small a scatter
        cloud.T /= np.sqrt(middle / special.chdtri(cloud.r, 0.5))
    return cloud
