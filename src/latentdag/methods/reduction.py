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
    FactorProblem,
    fit_downstream,
    n_parameters,
    n_parameters_downstream,
    noise_precision,
    solve_precision,
)
from latentdag.core.likelihood import Noise
from latentdag.data.basis import Basis
from latentdag.data.moments import Moments
from latentdag.methods.options import Options

#: Directions of the factors' noise count as known where their covariances could add no more than this to what is known.
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
    loadings : (p, r)
        The same of the features that were measured, where those of the moments are factors of them.
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
    loadings: np.ndarray
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
    if auto and not _may_be_noisy(m, d, options):
        return None, {}
    if m.basis is not None:
        found = _of_basis(m, m.basis, n, options)
        return found, {"n_factors": found.r, "noise_bic": {}, "noise_at_floor": list(found.at_floor)}
    found = reduce_features(m, n, d, options)
    bic = {f"{r} factors": float(value) for r, value in found.criteria.items()}
    # a criterion that asks for as many background factors as there can be speaks of something else than noise
    endless = found.r > d and found.r == _numbers(m, d, None)[-1]
    if auto and (endless or found.exact <= min(found.criteria.values())):
        return None, {"noise_endless": found.r} if endless else {"noise_bic": bic | {"exact": found.exact}}
    told = {"n_factors": found.r, "noise_bic": bic, "noise_at_floor": list(found.at_floor)}
    return found, told | ({"noise_bic": bic | {"exact": found.exact}} if auto else {})


def _may_be_noisy(m: Moments, d: int, options: Options) -> bool:
    """Return whether BIC can tell noise of features from exact ones.

    Dimensions that were made of exact features have none. Nor have features that have fewer dimensions; one feature
    more than latents cannot tell noise from an effect, few samples neither. What BIC compares with noise is exact
    features whose other dimensions are downstream, and latents that are set to a value have no density.
    """
    kinds = options.intervention.values() if isinstance(options.intervention, Mapping) else [options.intervention]
    if m.basis is not None or options.unintervened == "upstream" or "do" in kinds:
        return False
    return m.range.shape[1] == m.n_features >= d + 2 and m.counts.min() > d + 2


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
    if m.range.shape[1] < p and counting is None:
        raise ValueError(
            f"the {p} features have only {m.range.shape[1]} dimensions, so they cannot all have noise of their own: "
            "fit with noise='none' or 'auto', or drop features that are sums or copies of others"
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
    problem, roughly = FactorProblem(n, S, between, least, known), ROUGHLY / float(n.sum())
    tried: dict[int, FactorModel] = {}
    criteria: dict[int, float] = {}
    for r in _numbers(m, d, options.n_latents):
        goal = 0.5 * (min(_prices(n, p, r, d)) - min(criteria.values(), default=np.inf))
        tried[r] = problem.fit(r, tried.get(r - 1), roughly, goal)
        criteria[r] = _bic(n, S, between, tried[r], d)
        if r - min(criteria, key=lambda r: criteria[r]) > PATIENCE:
            break
    best = problem.polish(tried[min(criteria, key=lambda r: criteria[r])])
    exact = np.nan
    if options.noise == "auto" and counting is None:
        first = tried[min(tried)]
        price = n_parameters_downstream(p, d, len(n)) * float(np.log(n.sum()))
        goal = 0.5 * (price - min(criteria.values()))
        exact = price - 2 * fit_downstream(n, S, between, first.W[:d], roughly, goal)
    return _reduced(m, problem, scale, best, known, criteria, exact)


def _bic(n: np.ndarray, S: np.ndarray, between: np.ndarray, factors: FactorModel, d: int) -> float:
    """Return BIC of a number of factors: with free covariances, or with those beyond d alike given the first d."""
    (p, r), W = factors.Q.shape, factors.W
    free, alike = _prices(n, p, r, d)
    if r == d:
        return free - 2 * factors.value
    Y, moved = W @ S @ W.T, W @ between @ W.T
    away = Y - np.tensordot(n / n.sum(), Y, axes=1)
    start = np.linalg.eigh(np.tensordot(n, away @ away, axes=1) + n.sum() * moved)[1][:, -d:].T
    saturated = -0.5 * float(n @ np.linalg.slogdet(Y)[1] + n.sum() * r)
    lost = saturated - fit_downstream(n, Y, moved, start)
    return min(free, alike + 2 * lost) - 2 * factors.value


def _prices(n: np.ndarray, p: int, r: int, d: int) -> tuple[float, float]:
    """Return what BIC asks for the parameters of r factors: free ones, and with those beyond d alike given those."""
    alike = n_parameters_downstream(r, d, len(n)) + r * (p - r) + p
    return float(np.log(n.sum())) * n_parameters(p, r, len(n)), float(np.log(n.sum())) * alike


def _numbers(m: Moments, d: int, asked: int | None) -> range:
    """Return the numbers of factors to try: no more than samples of a context have covariances of.

    And no more than noise can be told from: factors that no context changes show in one covariance only, whose entries
    must be at least as many as their loadings (but for a rotation), all noises, and the covariance of the changed ones.
    """
    p = m.n_features
    most = min(p, int(m.counts.min()) - 1)
    moved = min(max(d, m.n_contexts), p - 1)  # directions that contexts can change, which noise is no part of
    entries = p * (p + 1) // 2 - p - moved * (moved + 1) // 2
    told = max(moved + q for q in range(p - moved) if q * p - q * (q - 1) // 2 <= entries)
    if asked is None:
        return range(d, max(d + 1, min(most - 1, told + 1)))
    if not d <= asked <= told:
        raise ValueError(
            f"n_latents={asked} must be at least {d}, the number of targeted latents, and at most {told}: more cannot "
            f"be told from noise of {p} features"
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
    problem: FactorProblem,
    scale: np.ndarray,
    best: FactorModel,
    known: np.ndarray | None,
    criteria: Mapping[int, float],
    exact: float,
) -> Reduction:
    n, W, counting = problem.n, best.W / scale, m.noise
    psi = best.psi * scale**2
    N = np.repeat(np.eye(len(W))[None], len(n), axis=0)
    if counting is not None:
        N = N + np.einsum("rp,kp,sp->krs", W, counting - n @ counting / n.sum(), W)
    at = problem.slope(np.log(best.psi), best.Q)
    precision, _, _ = noise_precision(n, best.Q, at.C, at.moved)
    # a noise at its floor stays there: nothing tells how far below it is, and an error without bound would pass as one
    unknown = np.flatnonzero(~best.at_floor if known is None else ~(best.at_floor | np.isfinite(known)))
    directions, to_psi = _directions(best.Q, precision, unknown, n, at.C)
    noise = Noise(N, directions, np.eye(len(directions)))
    floor = tuple(name for name, low in zip(m.feature_names, best.at_floor, strict=True) if low)
    back = np.sqrt(psi)[:, None] * best.Q
    return Reduction(W, back, back, psi, noise, to_psi, dict(criteria), exact, floor)


def _of_basis(m: Moments, basis: Basis, n: np.ndarray, options: Options) -> Reduction:
    """Return the factor step that was made when the rows were read: from what all contexts have in common."""
    if basis.psi is None or basis.at_floor is None or m.noise is None:
        raise ValueError(
            f"noise={options.noise!r} is of features, and these moments are of dimensions of features taken as exact: "
            "make them with latentdag.stream.moments(…, rank=…, noise='features')"
        )
    r = m.n_features
    if isinstance(options.noise, Mapping) or options.n_latents not in (None, r):
        raise ValueError(
            f"the noise of these moments, and their {r} factors, were found when the rows were read: leave out "
            "n_latents and noise variances, or make moments of another rank"
        )
    eigenvalues, U = np.linalg.eigh(m.covariances - m.noise + np.eye(r))
    C = (U * np.maximum(eigenvalues - 1, 0.0)[:, None]) @ U.transpose(0, 2, 1)
    share = n / n.sum()
    away = m.means - share @ m.means
    Q = (basis.W * np.sqrt(basis.psi)).T
    pooled = np.tensordot(share, C, axes=1)[None]  # the noise was found from all contexts as one
    precision, _, _ = noise_precision(n.sum(keepdims=True), Q, pooled, (away.T * share) @ away)
    directions, to_psi = _directions(Q, precision, np.flatnonzero(~basis.at_floor), n, C)
    noise = Noise(m.noise, directions, np.eye(len(directions)))
    floor = tuple(name for name, low in zip(basis.feature_names, basis.at_floor, strict=True) if low)
    return Reduction(np.eye(r), np.eye(r), basis.back, basis.psi, noise, to_psi, {}, np.nan, floor)


def _directions(
    Q: np.ndarray, precision: np.ndarray, unknown: np.ndarray, n: np.ndarray, C: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return in which directions (m, r, r) the noise of y is unknown, one deviation each, and ``log ψ`` along them.

    Directions that matter little beside the sampling error of y's own covariances are left out.

    Parameters
    ----------
    Q : (p, r) orthonormal basis of the loadings in units of the noise
    precision : (p, p) of log ψ
    unknown : positions of features whose noise is not known
    n : (K+1,)
    C : (K+1, r, r) covariances of the factors in this basis, without the noise
    """
    r = Q.shape[1]
    low, high = np.triu_indices(r)
    length = np.where(low == high, 1.0, np.sqrt(2.0))  # so that the norm of a matrix is that of its entries
    T = Q[unknown][:, low] * Q[unknown][:, high] * length
    to_y = solve_precision(precision[np.ix_(unknown, unknown)], T)  # covariance of log ψ with the noise of y
    s2, U = np.linalg.eigh(T.T @ to_y)
    kept = s2 > s2.max(initial=0.0) * np.finfo(float).eps * len(Q)
    F, along = U[:, kept] * np.sqrt(s2[kept]), to_y @ (U[:, kept] / np.sqrt(s2[kept]))
    D = np.zeros((F.shape[1], r, r))
    D[:, low, high] = D[:, high, low] = (F / length[:, None]).T
    # what y itself says about each: Σ n/2 tr(V^{-1} D V^{-1} D), where one is known from the features beside it
    root = (0.5 * n[:, None, None]) ** 0.25 * np.linalg.inv(np.linalg.cholesky(C + np.eye(r)))
    seen = root[:, None] @ D @ root.transpose(0, 2, 1)[:, None]
    weight, turn = np.linalg.eigh(np.einsum("kiab,kjab->ij", seen, seen, optimize=True))
    turn = turn[:, weight > WELL_KNOWN]
    to_psi = np.zeros((turn.shape[1], len(Q)))
    to_psi[:, unknown] = (along @ turn).T
    return np.tensordot(turn.T, D, axes=1), to_psi
