"""Know what a few hundred samples do to intervals: the largest entry is too large, and errors have errors.

docs/math.md, section "Intervals from few samples", has the reasons.

**The largest entry.** The paper divides each row of H by its largest entry. Of entries that nearly tie, the one whose
error points outward wins, so it is too large on average: a winner's curse. The mean of a posterior has none, whatever
was chosen by looking at the data. With entries of a row h drawn from a normal law of variance v, and an estimate ĥ of
covariance V, it is

    h̃ = v (v + V)^{-1} ĥ,    v = (‖ĥ‖² − tr V) / p.

**Errors of errors.** A standard error is itself computed at an estimate. If the logarithm of it has variance u, then it
is as good as one from ν = 1 / (2u) residuals, and Student's t with ν degrees of freedom takes the place of the normal
law. The variance u is that of the standard errors at parameters drawn from the law of the estimate.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from latentdag.core.covariance import ParameterCovariance
from latentdag.core.linalg import Array
from latentdag.core.quantities import Quantities

#: Share of a row's size that is held to be no error, however large errors are.
LEAST_SIGNAL = 1e-3

#: Models drawn around the estimate to see how much standard errors vary.
DRAWS = 12

#: More parameters than this (some thirty latents), and the draws cost more than a fit; then errors count as exact.
MOST_PARAMETERS = 1_200

#: Fewest degrees of freedom: below, Student's t has no variance.
FEWEST = 3.0


def without_winners_curse(h: Array, V: Array) -> Array:
    """Return the entries (p,) of a row moved towards zero, as far as their covariance V (p, p) says."""
    v = max(h @ h - np.trace(V), LEAST_SIGNAL * h @ h) / len(h)
    return np.asarray(v * np.linalg.solve(V + v * np.eye(len(h)), h))


def models_nearby(
    quantities: Quantities, covariance: ParameterCovariance
) -> Iterator[tuple[Quantities, ParameterCovariance]]:
    """Yield what a model might have been, drawn from the law of the estimate, and its covariance.

    Nothing is drawn where the data leave directions open, where features are noisy (which takes many samples anyway),
    or where that would take longer than a fit.
    """
    point, W, inner, outer = quantities.point, quantities.W, covariance.inverse, covariance.outer_inverse
    if (
        point.noise is not None
        or point.size > MOST_PARAMETERS
        or inner.null.shape[1]
        or (outer is not None and outer.null.shape[1])
    ):
        return
    rng, d, m = np.random.default_rng(0), point.d, point.n_means
    half = _root(covariance.C)
    half_outer = None if outer is None else _root(outer.C)
    for _ in range(DRAWS):
        x = half @ rng.standard_normal(point.size)
        rows, H = point.rows.copy(), quantities.H + x[: d * d].reshape(d, d) @ quantities.M
        rows[point.free] += x[d * d : d * d + int(point.free.sum())]
        if half_outer is not None:
            H = H + (half_outer @ rng.standard_normal((len(half_outer), len(W))))[:d] @ W
        tau = point.tau + x[point.size - m :] if point.tau is not None and m else point.tau
        moved = replace(point, rows=point.retied(rows), tau=tau)
        yield Quantities(moved, H, W, quantities.pivot), ParameterCovariance(moved, len(W))


def _root(C: Array) -> Array:
    """Return L with ``L Lᵀ = C`` for a covariance that rounding may have left a little indefinite."""
    w, V = np.linalg.eigh(C)
    return np.asarray(V * np.sqrt(np.maximum(w, 0.0)))


def degrees_of_freedom(log_errors: Array) -> Array:
    """Return ν (m,) from the logarithms (draws, m) of standard errors; infinite where nothing was drawn."""
    if len(log_errors) < 2:
        return np.full(log_errors.shape[1], np.inf)
    variance = np.maximum(np.var(log_errors, axis=0, ddof=1), np.finfo(float).tiny)
    return np.asarray(np.maximum(0.5 / variance, FEWEST))
