"""Test whether two samples have one law: means and covariances together (docs/math.md, section "Tests of change").

With A the covariances (divisor n) of the two samples, P that of both together about their common mean and
``N = n_0 + n_k``, twice the log-likelihood ratio of Gaussian samples against one common law is

    T = N log det P − n_0 log det A_0 − n_k log det A_k.

Under one law T is independent of P (Basu), so all cumulants of T are those of ``−n_0 log det A_0 − n_k log det A_k``
less those of ``−N log det P``: sums of polygamma functions, since the determinants are Wishart's. A multiple of χ²
matches mean and variance exactly, also where a sample has hardly more rows than dimensions.

*Fewer rows than twice the dimensions.* Then T is taken in the q leading principal components of P. They are a function
of P, so the same independence makes the null law that of q dimensions, exactly, however they were chosen.

*Other laws* than the Gaussian: ``‖μ_k − μ_0‖² + ½ ‖S_k − S_0‖²`` where P is the identity, by the covariance of
``(y, y_i y_j)`` (:mod:`latentdag.core.fourth_moments`).
"""

from typing import NamedTuple

import numpy as np
from scipy import special, stats

from latentdag.core.linalg import RANK_TOLERANCE, Array, is_definite
from latentdag.core.ranks import mean_log_det

#: Counts beyond which rounding decides, of the statistic and of its null law: they count as so many.
MOST, MOST_OF_LAW = 1e12, 1e8


class TwoSamples(NamedTuple):
    """Two samples in q coordinates ``Vᵀx``, about their common mean, in which both together have unit covariance.

    Attributes
    ----------
    n : (2,) counts, less one where each has a free mean
    V : (r, q)
    means : (2, q), zero where they are free
    S : (2, q, q) covariances, divisor n
    free_means : bool
    """

    n: Array
    V: Array
    means: Array
    S: Array
    free_means: bool


def put_together(counts: Array, means: Array, S: Array, free_means: bool) -> TwoSamples:
    """Whiten two samples by their common covariance, in as many directions as the smaller one can bear.

    Parameters
    ----------
    counts : (2,) rows of each, from two to MOST
    means : (2, r)
    S : (2, r, r) covariances about each own mean, divisor n − 1
    free_means : bool
        Whether means may differ without counting as a change.
    """
    n = counts - float(free_means)
    A = S * ((counts - 1) / n)[:, None, None]
    away = np.zeros_like(means) if free_means else means - n @ means / n.sum()
    P = np.tensordot(n / n.sum(), A + away[:, :, None] * away[:, None, :], axes=1)
    V = _whitening(P, bearable(int(np.min(counts)), len(P)))
    return TwoSamples(n, V, away @ V, V.T @ A @ V, free_means)


def _whitening(P: Array, q: int) -> Array:
    """Return V (r, q) with ``VᵀPV = 1``; fewer columns where P has fewer dimensions."""
    if q == len(P) and is_definite(P):
        return np.asarray(np.linalg.inv(np.linalg.cholesky(P)).T)
    w, V = np.linalg.eigh(P)
    first = len(w) - min(q, int(np.sum(w > RANK_TOLERANCE * w[-1])))
    return np.asarray(V[:, first:] / np.sqrt(w[first:]))


def bearable(count: int, r: int) -> int:
    """Return in how many of r dimensions so few rows are tested: half as many as rows, at most; one at least."""
    return max(min(r, (count - 1) // 2), 1)


def likelihood_ratio(two: TwoSamples) -> tuple[float, float, float]:
    """Test that two Gaussian samples have one law.

    Returns
    -------
    statistic (in units of χ²), degrees of freedom, p-value
    """
    n, q, lost = two.n, two.S.shape[1], 0 if two.free_means else 1
    statistic = max(float(-n @ np.linalg.slogdet(two.S)[1]), 0.0)  # infinite where a variance vanished: a change, too
    n = np.minimum(n, MOST_OF_LAW)
    weights, signs = np.append(n, n.sum()), np.array([1.0, 1.0, -1.0])
    mean = -float(signs * weights @ mean_log_det(weights - lost, q, weights))
    half = (weights[:, None] - lost - np.arange(q)) / 2
    variance = float(signs * weights**2 @ special.polygamma(1, half).sum(axis=1))
    dof = 2 * mean**2 / variance
    statistic *= dof / mean
    return statistic, dof, float(stats.chi2.sf(statistic, dof))


def difference(two: TwoSamples) -> float:
    """Return the quadratic form in the difference of means and covariances, in units of 1/ν_0 + 1/ν_k."""
    nu = two.n if two.free_means else two.n - 1
    S = two.S * (two.n / nu)[:, None, None]
    size = np.sum((two.means[1] - two.means[0]) ** 2) + 0.5 * np.sum((S[1] - S[0]) ** 2)
    return float(size / np.sum(1 / nu))
