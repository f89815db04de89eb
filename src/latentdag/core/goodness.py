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

*Noises of any law.* In coordinates of the noises each context's moments are off by a vector of errors: of the weighted
products ``ε_i ε_j`` and, where means are used, of the ε_i. Scaled by √n_k its covariance is Γ_k, the identity if the
noises are Gaussian. The statistic is the squared norm of what the tangent map leaves of these errors. With Q the
projection on what it leaves, its mean is ``tr(QΓ)`` and its variance ``2 tr((QΓ)²)``, and a multiple of χ² that has
both takes the place of χ².
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentdag.core.jacobian import Point, fitted_point, tangent
from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array, IntArray, complement
from latentdag.core.optimize import Optimum
from latentdag.core.ranks import mean_log_det

#: Up to this many latents the tangent map of a design with several targets per context is counted.
COUNT_UP_TO = 20

#: Moments of all contexts together up to which the projection is held as a matrix.
MOMENTS_UP_TO = 4000


@dataclass(frozen=True)
class Goodness:
    """Hold twice the log-likelihood ratio, corrected for few samples; its degrees of freedom; the ratio in nats."""

    statistic: float
    dof: int
    nats: float


def goodness(design: Design, value: float, parents: Sequence[IntArray], order: Sequence[int]) -> Goodness:
    """Compare the saturated model with the maximum ``value`` of a full order.

    Parameters
    ----------
    design : Design
        Without shrinkage.
    value : float
        ℓ(H) at its maximum, as from :func:`latentdag.core.optimize.maximize`.
    parents, order : of the full order
    """
    r = design.S.shape[1]
    mechanisms = design.mechanisms(parents)
    free = design.n @ np.linalg.slogdet(design.S)[1]
    fitted = design.N * np.linalg.slogdet(design.S_bar)[1] - 2 * value
    own_mean = int(design.means is not None)
    saturated = len(design.n) * (r * (r + 1) // 2 + own_mean * r)
    at_known_H = _regressions(design, mechanisms)
    hidden = _hidden(design, mechanisms, order)
    excess = _known_mean(design, mechanisms) / max(saturated - at_known_H, 1)
    dof = saturated - at_known_H - (design.d * (r - 1) - hidden)
    return Goodness(float(fitted - free) / max(excess, 1.0), dof, 0.5 * float(fitted - free))


def _regressions(design: Design, mechanisms: Sequence[Mechanism]) -> int:
    """Count parameters at known H: of every mechanism, and of the other dimensions given the latents."""
    own_mean = int(design.means is not None)
    q = int(design.S.shape[1]) - design.d
    rest = q * design.d + q * (q + 1) // 2 + own_mean * q
    return rest + sum(len(a.parents) + 1 + own_mean for a in mechanisms)


def _known_mean(design: Design, mechanisms: Sequence[Mechanism]) -> float:
    """Return the mean of the statistic at known H."""
    r, own_mean = design.S.shape[1], int(design.means is not None)

    def term(weight: float, lost: int, q: int) -> float:
        nu = weight - lost - own_mean
        return weight * float(mean_log_det(nu, q) + q * np.log(nu / weight))

    fitted = sum(term(a.w, len(a.parents), 1) for a in mechanisms) + term(design.N, design.d, r - design.d)
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
        point = replace(fitted_point(design, mechanisms, rows, means), n=np.ones(len(design.n)))
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
    F : (K+1, r, r) noise rows, ``ε = F_k x − nu_k``
    nu : (K+1, r)
    """

    point: Point
    F: Array
    nu: Array

    @property
    def n_moments(self) -> int:
        """Number of moments of each context."""
        r = self.point.d
        return r * (r + 1) // 2 + (r if self.point.tau is not None else 0)


def noises(design: Design, optimum: Optimum, parents: Sequence[IntArray]) -> Noises:
    """Return the fitted noises; dimensions beyond the latents count as untargeted latents that depend on all others."""
    d, r = optimum.H.shape
    mechanisms = design.mechanisms(parents)
    mechanisms[d:d] = [Mechanism(i, 0, np.arange(i, dtype=np.intp), design.N, design.S_bar) for i in range(d, r)]
    rows = np.eye(len(mechanisms), r)
    rows[:d, :d], rows[r:, :d], rows[r:, d:] = optimum.rows[:d], optimum.rows[d:], 0.0
    H = np.vstack([optimum.H, _rest(design, optimum.H)])
    point = fitted_point(design, mechanisms, rows)
    F = rows[point.at_work] @ H
    if design.means is None:
        return Noises(point, F, np.zeros((len(F), r)))
    # each mechanism's mean noise is that of all samples of the contexts where it is at work
    weight = design.n * (point.at_work == np.arange(len(rows))[:, None, None]).any(axis=2)
    tau = np.einsum("qj,qj->q", rows @ H, weight @ design.means) / weight.sum(axis=1)
    return Noises(replace(point, tau=tau), F, tau[point.at_work])


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
    QG = np.hstack([Q[:, b] @ G for b, G in zip(blocks, Gamma, strict=True)])
    by_context = np.array([np.trace(QG[b, b]) for b in blocks])
    squared = float(np.sum(QG * QG.T)) - float(np.sum(by_context**2 / model.point.n))
    t = float(by_context.sum())
    return t, max(squared, t**2 / max(len(U) - U.shape[1], 1))
