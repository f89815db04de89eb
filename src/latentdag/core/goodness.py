"""Compare a fitted model with the saturated one: does any model of this kind explain all contexts at once?

Rank two is what one context must fulfil by itself (docs/math.md, section "Tests of the model"). Together they must do
more: noise rows orthonormal, every noise left alone elsewhere, an acyclic graph. The likelihood ratio of the best model
of that kind against free means and covariances tests all of it at once.

Which model: the full order, where every earlier latent may be a parent. A graph whose edges were chosen on the same
data would fit better or worse than its number of edges says; a full order has none to choose.

*Degrees of freedom.* At known H every mechanism is a regression, with one weight per parent, a variance and, where
means are used, an intercept. H adds its ``d r`` entries, less one scale per row; with more dimensions than latents the
others add a regression on the latents. A latent with soft interventions only can be mixed with any of its predecessors
without a trace, and latents that nobody targets with each other, so such directions are not counted. Contexts with
several targets can hide more, and there the rank of the tangent map (:mod:`latentdag.core.jacobian`) at random
parameters counts.

*Few samples.* At known H all determinants are those of Wishart matrices, whose logarithms have known means; how much
the mean of the statistic exceeds its degrees of freedom there corrects it (Bartlett).

*How far off.* With enough samples every model is refused, so a statistic T comes with sizes that do not grow with them.
Context k has the part ``T_k = n_k (tr A_k − log det A_k − r + ‖μ_k‖²)`` of it, A_k and μ_k the covariance and mean of
its noises as fitted, which should be I and 0. Its root mean square misfit is

    √((T_k − E T_k) / (n_k · number of moments)),

to first order that of correlations between noises, of their means in standard deviations, and of their variances in
units of √2. And ``(T − E T) / (T_0 − E T_0)`` is the share that the model leaves unexplained of all that changes, with
T_0 the same ratio where nothing changes at all.

*Noises of any law.* In coordinates of the noises each context's moments are off by a vector of errors: of the weighted
products ``ε_i ε_j`` and, where means are used, of the ε_i. Scaled by √n_k its covariance is Γ_k, the identity if the
noises are Gaussian. The statistic is the squared norm of what the tangent map leaves of these errors. With Q the
projection on what it leaves, its mean is ``tr(QΓ)`` and its variance ``2 tr((QΓ)²)``, and a multiple of χ² that has
both takes the place of χ².
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from latentdag.core.full_orders import FullOrder
from latentdag.core.jacobian import Point, fitted_point, noise_roots, tangent
from latentdag.core.likelihood import Design, Mechanism, Noisy, make_design
from latentdag.core.linalg import Array, IntArray, complement
from latentdag.core.noisy import noisy_point
from latentdag.core.optimize import Optimum
from latentdag.core.orders import full_parents
from latentdag.core.ranks import mean_log_det

#: Up to this many latents the tangent map of a design with several targets per context is counted.
COUNT_UP_TO = 20

#: Moments of all contexts together up to which the projection is held as a matrix.
MOMENTS_UP_TO = 4000


@dataclass(frozen=True)
class Goodness:
    """Hold twice the log-likelihood ratio, corrected for few samples; its degrees of freedom; the ratio in nats.

    ``expected`` is the mean of twice the ratio if the model is true and samples are Gaussian.
    """

    statistic: float
    dof: int
    nats: float
    expected: float

    @property
    def p_value(self) -> float:
        """For Gaussian samples; one where there is nothing to test."""
        return float(stats.chi2.sf(self.statistic, self.dof)) if self.dof > 0 else 1.0


def goodness(design: Design, full: FullOrder) -> Goodness:
    """Compare the saturated model with the maximum of a full order, for a design without shrinkage."""
    value, order = full.optimum.value, full.order
    r = design.S.shape[1]
    mechanisms = design.mechanisms(full_parents(order))
    free = design.n @ np.linalg.slogdet(_measured(design)[0])[1]
    fitted = design.N * np.linalg.slogdet(design.S_bar)[1] - 2 * value
    if design.noisy is not None:  # whose value lacks nothing but this
        fitted = -2 * value - design.N * r
    own_mean = int(design.means is not None)
    saturated = len(design.n) * (r * (r + 1) // 2 + own_mean * r)
    at_known_H = _regressions(design, mechanisms)
    hidden = _hidden(design, mechanisms, order)
    excess = _known_mean(design, mechanisms) / max(saturated - at_known_H, 1)
    dof = saturated - at_known_H - (design.d * (r - 1) - hidden)
    excess = max(excess, 1.0)
    return Goodness(float(fitted - free) / excess, dof, 0.5 * float(fitted - free), dof * excess)


def _measured(design: Design) -> tuple[Array, Array]:
    """Return the covariances (K+1, r, r) of what was measured, and that of all contexts together (r, r)."""
    if design.noisy is None:
        return design.S, design.S_bar
    S, share = design.noisy.S, design.n / design.N
    pooled = np.tensordot(share, S, axes=1)
    if design.means is None:
        return S, pooled
    away = design.means - share @ design.means
    return S, pooled + (away.T * share) @ away


def _regressions(design: Design, mechanisms: Sequence[Mechanism]) -> int:
    """Count parameters at known H: of every mechanism, and of the other dimensions given the latents."""
    own_mean = int(design.means is not None)
    q = int(design.S.shape[1]) - design.d
    rest = q * design.d + q * (q + 1) // 2 + own_mean * q
    return rest + sum(a.n_weights + 1 + own_mean for a in mechanisms)


def _known_mean(design: Design, mechanisms: Sequence[Mechanism]) -> float:
    """Return the mean of the statistic at known H."""
    r, own_mean = design.S.shape[1], int(design.means is not None)

    def term(weight: float, lost: int, q: int) -> float:
        nu = weight - lost - own_mean
        return weight * float(mean_log_det(nu, q) + q * np.log(nu / weight))

    fitted = sum(term(a.w, a.n_weights, 1) for a in mechanisms) + term(design.N, design.d, r - design.d)
    return fitted - sum(term(float(n), 0, r) for n in design.n)


def _hidden(design: Design, mechanisms: Sequence[Mechanism], order: Sequence[int]) -> int:
    """Count the directions of H that leave no trace."""
    d = design.d
    if max(len(hit) for hit in design.hits) > 1 and d <= COUNT_UP_TO:
        rng = np.random.default_rng(0)
        rows = np.zeros((len(mechanisms), d))
        for q, a in enumerate(mechanisms):
            rows[q, a.parents] = rng.uniform(0.3, 1.0, len(a.parents)) * rng.choice([-1.0, 1.0], len(a.parents))
            rows[q, a.latent] = rng.uniform(0.5, 2.0)
        means = None if design.means is None else rng.standard_normal(len(mechanisms))
        point = fitted_point(design, mechanisms, rows, means)
        point = replace(point, rows=point.retied(rows), n=np.ones(len(design.n)))
        # each row of H has a scale that is no parameter; the point counts it twice, in X and in its own entry
        return point.size - d - int(np.linalg.matrix_rank(tangent(point), tol=1e-7))
    perfect = {a.latent for a in mechanisms[d:] if not design.soft[a.context]}
    untouched = set(range(d)) - {a.latent for a in mechanisms[d:]}
    mixed = sum(t for t, i in enumerate(order) if i not in perfect)
    return mixed + sum(j in untouched for t, i in enumerate(order) if i in untouched for j in order[t + 1 :])


@dataclass(frozen=True)
class Noises:
    """Hold a model whose latents fill all dimensions, with the noise rows of every context.

    Attributes
    ----------
    point : Point
    F : (K+1, r, r) noise rows
    b : (K+1, r) means that are left unexplained: noises are ``F_k x + b_k`` with x about the mean of its context
    """

    point: Point
    F: Array
    b: Array

    @property
    def n_moments(self) -> int:
        """Number of moments of each context."""
        r = self.point.d
        return r * (r + 1) // 2 + (r if self.point.tau is not None else 0)


def noises(design: Design, optimum: Optimum, parents: Sequence[IntArray]) -> Noises:
    """Return the fitted noises; dimensions beyond the latents count as untargeted latents that depend on all others."""
    d, r = optimum.H.shape
    mechanisms, state, nu = design.mechanisms(parents), optimum.state, np.zeros((len(design.n), r))
    if state is not None:  # what was measured of the noises, in coordinates in which it has unit variance
        point = noisy_point(design, mechanisms, state)
        roots = np.linalg.inv(noise_roots(point))
        F = roots @ state.rows[point.at_work] @ state.H
        if state.tau is not None:
            nu = np.einsum("kij,kj->ki", roots, state.tau[point.at_work])
    else:
        rest = [Mechanism(i, 0, np.arange(i, dtype=np.intp), design.N, design.S_bar) for i in range(d, r)]
        mechanisms[d:d] = rest
        rows = np.eye(len(mechanisms), r)
        rows[:d, :d], rows[r:, :d], rows[r:, d:] = optimum.rows[:d], optimum.rows[d:], 0.0
        H = np.vstack([optimum.H, _rest(design, optimum.H)])
        point = fitted_point(design, mechanisms, rows)
        F = rows[point.at_work] @ H
        if design.means is not None:
            # each mechanism's mean noise is that of all samples of the contexts where it is at work
            weight = design.n * (point.at_work == np.arange(len(rows))[:, None, None]).any(axis=2)
            tau = np.einsum("qj,qj->q", rows @ H, weight @ design.means) / weight.sum(axis=1)
            point, nu = replace(point, tau=tau), tau[point.at_work]
    return Noises(point, F, -nu if design.means is None else np.einsum("kij,kj->ki", F, design.means) - nu)


def release(design: Design, k: int) -> Design:
    """Return the design without what context k says. Its targets stay latents: they may cause others all the same."""
    kept = [j for j in range(len(design.n)) if j != k]
    S, means, noisy = design.S[kept], None if design.means is None else design.means[kept], design.noisy
    about = S if means is None else S + means[:, :, None] * means[:, None, :]
    hits, soft = [design.hits[j] for j in kept], [design.soft[j] for j in kept]
    strength = None if design.strength is None else design.strength[kept]
    left = make_design(design.n[kept], S, about, means, hits, soft, design.d, strength)
    if noisy is None:
        return left
    return replace(left, noisy=Noisy(noisy.S[kept], replace(noisy.noise, N=noisy.noise.N[kept])))


def misfit(design: Design, full: FullOrder, found: Goodness, scale: float = 1.0) -> tuple[Array, float]:
    """Return how far a fitted model is off, beyond what noise explains.

    Parameters
    ----------
    found : of the same model
    scale : mean of the statistic over that of Gaussian samples

    Returns
    -------
    root mean square misfit of each context (K+1,), and the share of all change that is unexplained
    """
    parents = full_parents(full.order)
    model, n, r = noises(design, full.optimum, parents), design.n, design.S.shape[1]
    S, S_bar = _measured(design)
    A = model.F @ S @ model.F.transpose(0, 2, 1)
    off = np.trace(A, axis1=1, axis2=2) - np.linalg.slogdet(A)[1] - r + np.sum(model.b**2, axis=1)
    # parameters of a context's own cost it so many degrees of freedom; the others are shared as samples are
    hit = design.mechanisms(parents)[design.d :]
    own_mean = design.means is not None
    own = np.bincount([a.context for a in hit], [a.n_weights + 1 + own_mean for a in hit], len(n))
    shared = len(n) * model.n_moments - found.dof - own.sum()
    dof = np.maximum(model.n_moments - own - shared * n / design.N, 0.0)
    expected = scale * found.expected / dof.sum() * dof
    beyond = np.maximum(n * off - expected, 0.0)
    free = n @ np.linalg.slogdet(S)[1]
    change = design.N * np.linalg.slogdet(S_bar)[1] - free - scale * (len(n) - 1) * model.n_moments
    left = max(2 * found.nats - scale * found.expected, 0.0)
    return np.sqrt(beyond / (n * model.n_moments)), float(min(left / change, 1.0)) if change > 0 else 1.0


def _rest(design: Design, H: Array) -> Array:
    """Return rows (r − d, r) of unit variance, uncorrelated with the latents and each other over all contexts."""
    C = complement((H @ design.S_bar).T).T
    return np.asarray(np.linalg.solve(np.linalg.cholesky(C @ design.S_bar @ C.T), C))


def matched_traces(model: Noises, Gamma: Array) -> tuple[float, float]:
    """Return tr(QΓ) and tr((QΓ)²), the second without the bias of having estimated Γ.

    Parameters
    ----------
    Gamma : (K+1, size, size) covariance of the errors in every context
    """
    J = tangent(model.point)
    U, s, _ = np.linalg.svd(J / np.linalg.norm(J, axis=0), full_matrices=False)
    U = U[:, s > 1e-9 * s[0]]
    Q = np.eye(len(U)) - U @ U.T
    size = Gamma.shape[1]
    blocks = [slice(k * size, (k + 1) * size) for k in range(len(Gamma))]
    rest = Q[:, len(Gamma) * size :]  # what is known of the noise from elsewhere has unit variance as it is
    QG = np.hstack([*(Q[:, b] @ G for b, G in zip(blocks, Gamma, strict=True)), rest])
    by_context = np.array([np.trace(QG[b, b]) for b in blocks])
    squared = float(np.sum(QG * QG.T)) - float(np.sum(by_context**2 / model.point.n))
    t = float(np.trace(QG))
    return t, max(squared, t**2 / max(len(U) - U.shape[1], 1))
