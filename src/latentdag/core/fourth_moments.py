"""Fourth moments: what tests of covariances need where samples are not Gaussian.

The error of a covariance is a mean of products ``y_i y_j``. For Gaussian samples the variance of that error follows
from the covariance itself; for other laws it takes fourth moments, and so a second pass over the samples. They come in
blocks of rows, and every class here adds blocks up in any order.

*Moment matching.* Near the null hypothesis a likelihood-ratio statistic is a quadratic form in such errors. With Γ the
covariance of the errors, weighted as the quadratic form weights them, its mean is ``t = tr Γ`` and its variance
``2 tr Γ²``. A multiple of χ² with ``t²/tr Γ²`` degrees of freedom matches both (docs/math.md, section "Rank tests").

For the rank test (:mod:`latentdag.core.ranks`) the quadratic form is ``½ ‖M_k − M_0‖² / (1/ν_0 + 1/ν_k)``, with M the
second moments of the q coordinates y in which nothing changes (pooled variance one).
"""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from latentdag.core.linalg import Array

#: Products ``y_i y_j`` up to which their covariance is held exactly, and the size of the random sketch beyond.
EXACT_UP_TO, SKETCH = 600, 400

_CHUNK = 2**21  # numbers in one block of products


def weighted_products(Y: Array) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of rows (b, q) of Y (n, q) and their products (b, q(q+1)/2) ``y_i y_j`` for i ≤ j.

    Squares are divided by √2, so that sums of squares are ``½‖M‖² = ½ Σ M_ii² + Σ_{i<j} M_ij²``. Blocks are small,
    since there are many more products than coordinates.
    """
    i, j = np.triu_indices(Y.shape[1])
    weight = np.where(i == j, np.sqrt(0.5), 1.0)
    step = max(1, _CHUNK // len(i))
    for start in range(0, len(Y), step):
        part = Y[start : start + step]
        yield part, part[:, i] * part[:, j] * weight


class CrossCovariance:
    """Covariance (a, b) of two statistics of the samples, from blocks of rows in any order."""

    def __init__(self, a: int, b: int):
        self.n, self.left, self.right, self.products = 0, np.zeros(a), np.zeros(b), np.zeros((a, b))

    def add(self, F: Array, G: Array) -> None:
        """Add the statistics F (n, a) and G (n, b) of the same n samples."""
        self.n += len(F)
        self.left += F.sum(axis=0)
        self.right += G.sum(axis=0)
        self.products += F.T @ G

    def value(self) -> Array:
        """Return the covariance (a, b), divisor n."""
        return np.asarray((self.products - np.outer(self.left, self.right) / self.n) / self.n)


class ProductCovariance:
    """tr Γ and tr Γ² of a moment-matched test of one context against another, from blocks of rows in any order.

    Parameters
    ----------
    counts : (n_0, n_k)
        Of all rows, on which the statistic rests.
    q : int
        Number of coordinates in which nothing should have changed.
    used : (u_0, u_k), optional
        How many of the rows will be added, where that is not all: a few thousand tell the law of a row well enough.
    means : bool
        Whether the statistic has differences of means as well, ``‖μ_k − μ_0‖²``.
    one_law : bool
        Whether the null hypothesis is that both have one law. Then the rows of both tell Γ, and few on one side do.
    """

    def __init__(
        self,
        counts: tuple[int, int],
        q: int,
        used: tuple[int, int] | None = None,
        *,
        means: bool = False,
        one_law: bool = False,
    ):
        self.means = means
        self.size = size = q * (q + 1) // 2 + q * means
        self.projection: Array | None = None
        if size > EXACT_UP_TO:
            self.projection = np.random.default_rng(0).standard_normal((size, SKETCH)) / np.sqrt(SKETCH)
        width = size if self.projection is None else SKETCH
        self.total, self.squares = np.zeros((2, size)), np.zeros(2)
        self.sums, self.cross = np.zeros((2, width)), np.zeros((width, width))
        # Γ is the covariance of a difference of means, in units of 1/ν_0 + 1/ν_k
        n = np.array(counts, dtype=float)
        self.used = n if used is None else np.array(used, dtype=float)
        free = np.maximum(self.used - 1, 1)
        self.weight = np.full(2, 1 / free.sum()) if one_law else 1 / (np.sum(1 / (n - 1)) * n * free)

    def add(self, side: int, Y: Array) -> None:
        """Add rows (n, q) of the control (side 0) or of the context (side 1), about their mean, pooled variance one."""
        for part, F in weighted_products(Y):
            if self.means:
                F = np.hstack([part, F])
            self.total[side] += F.sum(axis=0)
            self.squares[side] += np.vdot(F, F)
            if self.projection is not None:
                F = F @ self.projection
            self.sums[side] += F.sum(axis=0)
            self.cross += self.weight[side] * (F.T @ F)

    def traces(self) -> tuple[float, float]:
        """Return t = tr Γ and tr Γ², the second without the bias of having estimated Γ."""
        by_side = self.weight * (self.squares - np.sum(self.total**2, axis=1) / self.used)
        t = float(by_side.sum())
        Gamma = self.cross - np.einsum("s,si,sj->ij", self.weight / self.used, self.sums, self.sums)
        squared = float(np.vdot(Gamma, Gamma))
        if self.projection is not None:  # a Gaussian sketch adds tr² / size to the squared norm
            squared = (squared - t**2 / SKETCH) / (1 + 1 / SKETCH)
        squared -= float(np.sum(by_side**2 / self.used))
        # at most one degree of freedom per product, whatever the noise of the two corrections
        return t, max(squared, t**2 / self.size)


def moment_matched_p_value(statistic: float, t: float, squared: float) -> tuple[float, float, float]:
    """Refer a statistic to the multiple of χ² that has its mean and variance.

    Parameters
    ----------
    statistic : float
    t, squared : float
        tr Γ and tr Γ².

    Returns
    -------
    statistic (in units of χ²), degrees of freedom, p-value
    """
    dof = t**2 / squared
    scaled = statistic * dof / t
    return float(scaled), float(dof), float(stats.chi2.sf(scaled, dof))
