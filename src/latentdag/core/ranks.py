"""How many generalised eigenvalues of two covariances differ from one (MATH.md 3.6).

``Σ_k − Σ_0`` has rank r iff all but r of the generalised eigenvalues l of (Σ_k, Σ_0) are one. For Gaussian samples with
ν_0 and ν_k degrees of freedom (counts, less one where the mean was estimated) twice the log-likelihood ratio of "at
most r" is the sum of the ``q = d − r`` smallest of

    g(l) = (ν_0 + ν_k) log((ν_0 + ν_k l)/(ν_0 + ν_k)) − ν_k log l,

χ² with q(q+1)/2 degrees of freedom if r eigenvalues truly differ, and smaller if fewer do or if one is hard to see:
then the test is conservative.

*Few samples.* If the r changed directions were known, the mean of the statistic would follow from that of the log
determinant of a Wishart matrix, exactly. Dividing by how much it exceeds the degrees of freedom (Bartlett's correction)
keeps the size from 8 % to 5 % where 60 samples meet ten dimensions, and changes nothing where there are many.

*Other laws.* Near equality the statistic is a quadratic form, ``½ ‖M_k − M_0‖² / (1/ν_0 + 1/ν_k)`` with M the second
moments of the q coordinates y in which nothing changes (pooled variance one). Its law under equality has mean
``t = tr Γ`` and variance ``2 tr Γ²``, where Γ is the covariance of the products ``y_i y_j``, weighted as the quadratic
form weights them; a multiple of χ² with ``t²/tr Γ²`` degrees of freedom matches both. Γ needs fourth moments: a second
pass over the data, in blocks of rows, with one matrix Γ per context.
"""

from collections.abc import Iterator

import numpy as np
from scipy import special, stats

from latentdag.core.linalg import Array

#: Products ``y_i y_j`` up to which their covariance is held exactly, and the size of the random sketch beyond.
EXACT_UP_TO, SKETCH = 600, 400

_CHUNK = 2**21  # numbers in one block of products


def eigenvalue_terms(eigenvalues: float | Array, n_0: float, n_k: float) -> Array:
    """Each generalised eigenvalue's share of twice the log-likelihood ratio against equality."""
    N = n_0 + n_k
    return np.asarray(N * np.log((n_0 + n_k * eigenvalues) / N) - n_k * np.log(eigenvalues))


def rank_p_value(eigenvalues: Array, n_0: float, n_k: float, rank: int) -> tuple[float, float, float]:
    """Gaussian likelihood-ratio test that at most ``rank`` eigenvalues differ from one.

    Returns
    -------
    statistic (corrected for few samples), degrees of freedom, p-value
    """
    q = max(len(eigenvalues) - rank, 0)
    if not q:
        return 0.0, 0.0, 1.0
    dof = q * (q + 1) / 2
    statistic = float(np.sort(eigenvalue_terms(eigenvalues, n_0, n_k))[:q].sum())
    statistic /= bartlett_factor(np.array([n_0, n_k]), q, dof)
    return statistic, dof, float(stats.chi2.sf(statistic, dof))


def mean_log_det(nu: float | Array, q: int) -> Array:
    """Mean of ``log det(W/ν)`` of a Wishart matrix W (q, q) with ν degrees of freedom and unit scale."""
    half = (np.asarray(nu, dtype=float)[..., None] - np.arange(q)) / 2
    return np.asarray(special.digamma(half).sum(axis=-1) + q * np.log(2 / np.asarray(nu, dtype=float)))


def bartlett_factor(nu: Array, q: int, dof: float) -> float:
    """Mean of the likelihood ratio for equality of q-dimensional covariances over its degrees of freedom; at least one.

    Parameters
    ----------
    nu : (number of covariances,) degrees of freedom of each
    """
    if nu.min() < q:
        return 1.0  # a covariance without inverse: no statistic, so nothing to correct
    mean = nu.sum() * mean_log_det(nu.sum(), q) - nu @ mean_log_det(nu, q)
    return max(float(mean) / dof, 1.0)


class ProductCovariance:
    """tr Γ and tr Γ² of the moment-matched test of one context, from blocks of rows in any order.

    Parameters
    ----------
    counts : (n_0, n_k)
    q : int
        Number of coordinates in which nothing should have changed.
    """

    def __init__(self, counts: tuple[int, int], q: int):
        self.counts, self.q = np.array(counts, dtype=float), q
        self.i, self.j = np.triu_indices(q)
        # ½‖M‖² = ½ Σ M_ii² + Σ_{i<j} M_ij²
        self.root_weight = np.where(self.i == self.j, np.sqrt(0.5), 1.0)
        size = len(self.i)
        self.projection: Array | None = None
        if size > EXACT_UP_TO:
            self.projection = np.random.default_rng(0).standard_normal((size, SKETCH)) / np.sqrt(SKETCH)
        width = size if self.projection is None else SKETCH
        self.total, self.squares = np.zeros((2, size)), np.zeros(2)
        self.second = np.zeros((2, width)), np.zeros((width, width))
        self.rows = np.zeros(2)
        # Γ is the covariance of a difference of means, in units of 1/ν_0 + 1/ν_k
        self.scale = 1 / np.sum(1 / (self.counts - 1))

    def add(self, side: int, Y: Array) -> None:
        """Rows (n, q) of the control (side 0) or of the context (side 1), about their mean, pooled variance one."""
        sums, cross = self.second
        weight = self.scale / (self.counts[side] * (self.counts[side] - 1))
        for F in self._products(Y):
            self.total[side] += F.sum(axis=0)
            self.squares[side] += np.vdot(F, F)
            if self.projection is not None:
                F = F @ self.projection
            sums[side] += F.sum(axis=0)
            cross += weight * (F.T @ F)
        self.rows[side] += len(Y)

    def _products(self, Y: Array) -> Iterator[Array]:
        step = max(1, _CHUNK // len(self.i))
        for start in range(0, len(Y), step):
            part = Y[start : start + step]
            yield part[:, self.i] * part[:, self.j] * self.root_weight

    def traces(self) -> tuple[float, float]:
        """t = tr Γ and tr Γ², the second without the bias of having estimated Γ."""
        n = self.counts
        by_side = self.scale * (self.squares - np.sum(self.total**2, axis=1) / n) / (n * (n - 1))
        t = float(by_side.sum())
        sums, cross = self.second
        Gamma = cross - self.scale * np.einsum("s,si,sj->ij", 1 / (n**2 * (n - 1)), sums, sums)
        squared = float(np.vdot(Gamma, Gamma))
        if self.projection is not None:  # a Gaussian sketch adds tr² / size to the squared norm
            squared = (squared - t**2 / SKETCH) / (1 + 1 / SKETCH)
        squared -= float(np.sum(by_side**2 / n))
        # at most one degree of freedom per product, whatever the noise of the two corrections
        return t, max(squared, t**2 / len(self.i))


def moment_matched_p_value(statistic: float, t: float, squared: float) -> tuple[float, float, float]:
    """The statistic referred to a multiple of χ² with its first two moments.

    Returns
    -------
    statistic, degrees of freedom, p-value
    """
    dof = t**2 / squared
    scaled = statistic * dof / t
    return float(scaled), float(dof), float(stats.chi2.sf(scaled, dof))
