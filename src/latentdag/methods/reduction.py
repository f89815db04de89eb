"""From noisy features to a few numbers per sample whose noise is known: the factor step before a fit.

The features follow ``X = offset + G Z + E`` with noises E of single features. Factor analysis of all contexts together
(:mod:`latentdag.core.factors`) finds the span of G and the noise variances. What a fit needs of a sample is then
``y = W x``, one number per factor, with noise of a covariance that is known up to the error of the noise variances.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentdag.core.factors import (
    FactorModel,
    fit_downstream,
    fit_factors,
    n_parameters,
    n_parameters_downstream,
    noise_precision,
)
from latentdag.core.likelihood import Noise
from latentdag.data.moments import Moments
from latentdag.methods.options import Options

#: Directions in which the noise of the factors is known this much better than their covariances count as known.
WELL_KNOWN = 1e-3

#: Variance that every direction of the factors keeps where the search looks for its way, in units of the noise.
LEAST_SIGNAL = 0.1

#: Relative growth of the likelihood, over the number of samples, at which numbers of factors are compared.
ROUGHLY = 1e-3

#: FactorModel beyond those asked for are tried while the criterion falls, and this many more.
PATIENCE = 1


@dataclass(frozen=True, eq=False)
class Reduction:
    """Coordinates in which all factors are seen with noise of unit covariance.

    Attributes
    ----------
    W : (r, p)
        ``y = W (x − mean)``
    back : (p, r)
        Features of the factors; ``W back = I``.
    psi : (p,) noise variances of the features
    noise : Noise of y
    to_psi : (m, p)
        Change of ``log ψ`` along each direction of the noise.
    criteria : BIC of each number of factors that was tried
    exact : BIC of features without noise
    at_floor : names of features whose noise was at the floor
    """

    W: np.ndarray
    back: np.ndarray
    psi: np.ndarray
    noise: Noise
    to_psi: np.ndarray
    criteria: Mapping[int, float]
    exact: float
    at_floor: tuple[str, ...]

    @property
    def r(self) -> int:
        return len(self.W)

    def coordinates(self, m: Moments) -> tuple[np.ndarray, np.ndarray, float]:
        """Return W, covariances (K+1, r, r) of y, and log |det| of the map, of which only differences matter."""
        return self.W, self.W @ m.covariances @ self.W.T, 0.0

    def beneath_noise(self, S: np.ndarray) -> np.ndarray:
        """Return what covariances (K+1, r, r) of y are without the noise, and definite."""
        eigenvalues, U = np.linalg.eigh(S - self.noise.N)
        return np.asarray((U * np.maximum(eigenvalues, LEAST_SIGNAL)[:, None]) @ U.transpose(0, 2, 1))


def reduction_of(m: Moments, n: np.ndarray, d: int, options: Options) -> tuple[Reduction | None, dict[str, Any]]:
    """Return the factor step that the options ask for, None where features are exact; and what was tried."""
    counting = m.noise
    auto = options.noise == "auto" and counting is None
    if options.method != "likelihood" or (options.noise == "none" and counting is None):
        return None, {}
    # fewer dimensions than features have no noise; one more than latents cannot tell noise from an effect, few samples
    # neither
    if auto and (m.range.shape[1] < m.n_features or m.n_features < d + 2 or m.counts.min() <= d + 2):
        return None, {}
    found = reduce_features(m, n, d, options)
    bic = {f"{r} factors": float(value) for r, value in found.criteria.items()}
    if auto and found.exact <= min(found.criteria.values()):
        return None, {"noise_bic": bic | {"exact": found.exact}}
    told = {"n_factors": found.r, "noise_bic": bic, "noise_at_floor": list(found.at_floor)}
    return found, told | ({"noise_bic": bic | {"exact": found.exact}} if auto else {})


def reduce_features(m: Moments, n: np.ndarray, d: int, options: Options) -> Reduction:
    """Return the factors that d targeted latents, and what is in the background, leave in noisy features.

    Parameters
    ----------
    n : (K+1,) weight of each context
    d : number of targeted latents
    options : noise and n_latents are looked at
    """
    p, counting = m.n_features, m.noise
    if p < d + 1:
        raise ValueError(
            f"{d} targeted latents and noise of single features need at least {d + 1} features to be told apart, and "
            f"there are {p}: measure more features, or fit with noise='none'"
        )
    scale = np.sqrt(np.diagonal(m.pooled_covariance()))
    between = np.zeros((p, p))
    if options.means and m.has_means:
        away = (m.means - n @ m.means / n.sum()) / scale
        between = (away.T * (n / n.sum())) @ away
    S = m.covariances / scale[:, None] / scale
    least, known = _told(m, n, options, scale)
    if counting is not None:  # noise of counting differs between contexts: that of their mean in all of them
        S = S - np.einsum("kp,pq->kpq", (counting / scale**2) - least, np.eye(p))
    tried: dict[int, FactorModel] = {}
    criteria: dict[int, float] = {}
    for r in _numbers(min(p, int(m.counts.min()) - 1), p, d, options.n_latents):
        tried[r] = fit_factors(n, S, between, r, least, known, tolerance=ROUGHLY / float(n.sum()))
        criteria[r] = _bic(n, S, between, tried[r], d)
        if r - min(criteria, key=lambda r: criteria[r]) > PATIENCE:
            break
    r = min(criteria, key=lambda r: criteria[r])
    best = fit_factors(n, S, between, r, least, known, start=tried[r])
    exact = np.nan
    if options.noise == "auto" and counting is None:
        first = tried[min(tried)]
        exact = -2 * fit_downstream(n, S, between, first.W[:d])
        exact += n_parameters_downstream(p, d, len(n)) * float(np.log(n.sum()))
    return _reduced(m, n, S, between, scale, best, known, criteria, exact)


def _bic(n: np.ndarray, S: np.ndarray, between: np.ndarray, factors: FactorModel, d: int) -> float:
    """Return BIC of a number of factors: with free covariances, or with those beyond d alike given the first d."""
    (p, r), price, W = factors.Q.shape, float(np.log(n.sum())), factors.W
    free = -2 * factors.value + price * n_parameters(p, r, len(n))
    if r == d:
        return free
    Y, moved = W @ S @ W.T, W @ between @ W.T
    away = Y - np.tensordot(n / n.sum(), Y, axes=1)
    start = np.linalg.eigh(np.tensordot(n, away @ away, axes=1) + n.sum() * moved)[1][:, -d:].T
    saturated = -0.5 * float(n @ np.linalg.slogdet(Y)[1] + n.sum() * r)
    lost = saturated - fit_downstream(n, Y, moved, start)
    alike = n_parameters_downstream(r, d, len(n)) + r * (p - r) + p
    return min(free, -2 * (factors.value - lost) + price * alike)


def _numbers(most: int, p: int, d: int, asked: int | None) -> range:
    """Return the numbers of factors to try: no more than samples of a context have covariances of."""
    if asked is None:
        return range(d, max(d + 1, most - 1))
    if not d <= asked < p:
        raise ValueError(
            f"n_latents={asked} must be at least {d}, the number of targeted latents, and less than the {p} features"
        )
    return range(asked, asked + 1)


def _told(
    m: Moments, n: np.ndarray, options: Options, scale: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return noise variances (p,) that are known to be there, and those that are known; in units of the features."""
    counting = m.noise
    least = None if counting is None else n @ counting / n.sum() / scale**2
    if not isinstance(options.noise, Mapping):
        return least, None
    unknown = [name for name in options.noise if name not in m.feature_names]
    if unknown:
        raise ValueError(f"noise names {unknown[0]!r}, which is no feature: {list(m.feature_names)[:5]} …")
    known = np.array([options.noise.get(name, np.nan) for name in m.feature_names]) / scale**2
    for name, share in zip(m.feature_names, known, strict=True):
        if share >= 1:
            raise ValueError(
                f"noise of feature {name!r} is {options.noise[name]:g}, but its variance is only "
                f"{options.noise[name] / share:g}: give the noise as a variance, in the units of the feature squared"
            )
    return least, known


def _reduced(
    m: Moments,
    n: np.ndarray,
    S: np.ndarray,
    between: np.ndarray,
    scale: np.ndarray,
    best: FactorModel,
    known: np.ndarray | None,
    criteria: Mapping[int, float],
    exact: float,
) -> Reduction:
    W, counting = best.W / scale, m.noise
    psi = best.psi * scale**2
    N = np.repeat(np.eye(len(W))[None], len(n), axis=0)
    if counting is not None:
        N = N + np.einsum("rp,kp,sp->krs", W, counting - n @ counting / n.sum(), W)
    eigenvalues, U = np.linalg.eigh(best.W @ S @ best.W.T)
    C = (U * np.maximum(eigenvalues - 1, 0.0)[:, None]) @ U.transpose(0, 2, 1)
    precision, _, _ = noise_precision(n, best.Q, C, best.W @ between @ best.W.T)
    directions, to_psi = _directions(best, precision, known, float(n.sum()))
    noise = Noise(N, directions, np.eye(len(directions)))
    floor = tuple(name for name, low in zip(m.feature_names, best.at_floor, strict=True) if low)
    return Reduction(W, np.sqrt(psi)[:, None] * best.Q, psi, noise, to_psi, dict(criteria), exact, floor)


def _directions(
    best: FactorModel, precision: np.ndarray, known: np.ndarray | None, N: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return in which directions (m, r, r) the noise of y is unknown, one deviation each, and ``log ψ`` along them."""
    Q = best.Q
    unknown = np.flatnonzero(np.ones(len(Q), dtype=bool) if known is None else ~np.isfinite(known))
    covariance = np.linalg.pinv(precision[np.ix_(unknown, unknown)], rcond=1e-8, hermitian=True)
    low, high = np.triu_indices(Q.shape[1])
    length = np.where(low == high, 1.0, np.sqrt(2.0))  # so that the norm of a matrix is that of its entries
    T = (Q[unknown][:, low] * Q[unknown][:, high] * length).T
    s2, U = np.linalg.eigh(T @ covariance @ T.T)
    kept = s2 > WELL_KNOWN / N
    s, U = np.sqrt(s2[kept]), U[:, kept]
    directions = np.zeros((len(s), Q.shape[1], Q.shape[1]))
    directions[:, low, high] = directions[:, high, low] = (U * s / length[:, None]).T
    to_psi = np.zeros((len(s), len(Q)))
    to_psi[:, unknown] = (covariance @ T.T @ (U / s)).T
    return directions, to_psi
