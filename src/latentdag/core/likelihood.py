"""The profile likelihood of a latent DAG as a function of the unmixing alone, and its gradient.

docs/math.md, The likelihood, has the proof.

Every latent's equation is one *mechanism* in the contexts that leave it alone and another in each context that targets
it. Given H, a mechanism's weights and noise variance are an ordinary regression of the latent on its parents in the
pooled covariance S of its contexts, with residual variance ``σ² = h S hᵀ − …``. Profiling them out leaves

    ℓ(H) = N/2 · log det(H S̄ Hᵀ) − Σ_mechanisms w/2 · log σ² + const,

invariant to the scale of each row. A perfect intervention is a mechanism without parents, a soft one has the parents
again with weights of its own; several contexts on one target, contexts with several targets and unequal counts need
nothing more. A *partial* intervention of strength s has the parents again with ``1 − s`` times the weights that the
latent has where it is left alone: one regression for all of them, each weighted by its residual variance. With fewer
latents than dimensions, ``S̄`` is the pooled covariance of all contexts, and the formula is exact if the remaining
dimensions only depend on the latents, in the same way in every context.

By the envelope theorem a mechanism with residual row ``a`` (so that ``a H X`` is its residual) contributes
``− w/σ² · a (a H S)ᵀ`` to the gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from latentdag.core.linalg import Array, IntArray

#: Nats that one more regression for weights that contexts share must promise, and how many there may be.
EXACT, MOST_REGRESSIONS = 1e-13, 200


@dataclass(frozen=True)
class Mechanism:
    """One latent's equation in one set of contexts: ``w`` samples with covariance ``S`` (r, r).

    ``context`` is 0 for the contexts that leave the latent alone, else the one context that targets it. There a partial
    intervention has ``tied`` times the weights of the contexts that leave the latent alone; with 0, all are its own.
    """

    latent: int
    context: int
    parents: IntArray
    w: float
    S: Array
    tied: float = 0.0

    @property
    def n_weights(self) -> int:
        """Number of weights of its own."""
        return 0 if self.tied else len(self.parents)


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise that measurement adds, and how well it is known.

    Attributes
    ----------
    N : (K + 1, d, d) covariance in each context
    directions : (m, d, d)
        The noise of all contexts may also be ``N + Σ ν_j directions_j``.
    precision : (m, m) what is known about ν from elsewhere: its mean is 0, and this the inverse of its covariance
    span : Span, optional
        How well the features' loadings are known, where ν are the logarithms of all features' noise variances.
    """

    N: Array
    directions: Array
    precision: Array
    span: "Span | None" = None

    def seen_by(self, H: Array) -> "Noise":
        """Return the noise of ``H y``, with this one that of y."""
        return Noise(H @ self.N @ H.T, H @ self.directions @ H.T, self.precision)


@dataclass(frozen=True, eq=False)
class Span:
    """What noisy features beside the factors know about the span of the loadings.

    The loadings of every white coordinate u beside the factors may move by a row ζ + J dψ, apart from the factors' own.

    Attributes
    ----------
    information : (r + 1, r + 1) about ζ and the mean of u, the same for every u
    J : (r, r)
        How ζ follows the covariance of factors with u that a change of ψ makes.
    H : (r, p) unmixing of the factors
    W : (p − r, p) the coordinates u of features
    psi : (p,) noise variances; ``H ψ dlogψ Wᵀ`` is that covariance
    """

    information: Array
    J: Array
    H: Array
    W: Array
    psi: Array


@dataclass(frozen=True, eq=False)
class Noisy:
    """Covariances (K+1, r, r) as they were measured, and the noise in them."""

    S: Array
    noise: Noise


@dataclass(frozen=True)
class Design:
    """What the data say and which latents each context hits, in whitened coordinates.

    Attributes
    ----------
    n : (K+1,) weight of each context
    S : (K+1, r, r) covariance of each context about its own mean
    hits : per context the rows of the latents it targets, ``()`` for the control
    soft : per context whether its interventions are soft
    n_minus, S_minus : (d,), (d, r, r)
        Total weight, and covariance about the common mean, of the contexts that leave each latent alone.
    S_bar : (r, r) covariance of all contexts
    means : (K+1, r) about the control's, or None where every context has a free mean
    noisy : Noisy, or None where the features are exact
        What was measured; S are then estimates of what lies beneath the noise, which show the way.
    strength : (K+1,), or None where all are 1
        By how much each context that is not soft weakens the parents of its targets: 1 cuts them off.
    """

    n: Array
    S: Array
    hits: tuple[tuple[int, ...], ...]
    soft: tuple[bool, ...]
    n_minus: Array
    S_minus: Array
    S_bar: Array
    means: Array | None = None
    noisy: "Noisy | None" = None
    strength: Array | None = None

    @property
    def d(self) -> int:
        return len(self.n_minus)

    @property
    def N(self) -> float:
        return float(self.n.sum())

    @property
    def targeting(self) -> list[list[int]]:
        """For each latent the contexts that target it."""
        found: list[list[int]] = [[] for _ in self.n_minus]
        for k, rows in enumerate(self.hits):
            for i in rows:
                found[i].append(k)
        return found

    @property
    def kept(self) -> Array:
        """Share (K+1,) of their weights that the parents of each context's targets keep; soft counts as perfect."""
        return np.zeros(len(self.n)) if self.strength is None else np.where(self.soft, 0.0, 1.0 - self.strength)

    def mechanisms(self, parents: Sequence[IntArray]) -> list[Mechanism]:
        """Return all mechanisms of a DAG: first the one of each latent left alone, then those of its interventions."""
        none, kept = np.empty(0, dtype=np.intp), self.kept.tolist()
        alone = [Mechanism(i, 0, parents[i], float(self.n_minus[i]), self.S_minus[i]) for i in range(self.d)]
        hit = [
            Mechanism(i, k, parents[i] if self.soft[k] or kept[k] else none, float(self.n[k]), self.S[k], kept[k])
            for k, rows in enumerate(self.hits)
            for i in rows
        ]
        return alone + hit


def make_design(
    n: Array,
    S: Array,
    about: Array,
    means: Array | None,
    hits: Sequence[Sequence[int]],
    soft: Sequence[bool],
    d: int,
    strength: Array | None = None,
) -> Design:
    """Pool covariances per latent.

    Parameters
    ----------
    n : (K+1,)
    S : (K+1, r, r) about each context's own mean
    about : (K+1, r, r)
        Second moments about the control's mean; S again where there are no means.
    means : (K+1, r) about the control's, or None
        With means, the contexts that leave a latent alone share the mean of its noise, so that differences between
        their means count; without, every context has a free mean.
    hits, soft : per context
    d : number of latents
    strength : (K+1,), optional
    """
    n = np.asarray(n, dtype=float)
    total, weight = shares(n, hits, d)
    pooled = np.tensordot(weight, about, axes=1)
    if means is not None:  # digits are lost only where contexts lie far from the control, and those would lose them too
        for common, S_i in zip(weight @ means, pooled, strict=True):
            S_i -= common[:, None] * common
    return Design(
        n,
        S,
        tuple(tuple(rows) for rows in hits),
        tuple(soft),
        total[:-1],
        pooled[:-1],
        pooled[-1],
        means,
        strength=strength,
    )


def shares(n: Array, hits: Sequence[Sequence[int]], d: int) -> tuple[Array, Array]:
    """Return the total weight (d+1,) of the contexts that leave each latent alone, and each context's share (d+1, K+1).

    The last row is for all contexts together.
    """
    weight = np.repeat(n[None], d + 1, axis=0)
    for k, rows in enumerate(hits):
        weight[list(rows), k] = 0.0
    total = weight.sum(axis=1)
    return total, weight / total[:, None]


@dataclass(frozen=True)
class Evaluation:
    """ℓ(H), its gradient (d, r), and each mechanism's row ``a/σ`` (one per mechanism, d)."""

    value: float
    gradient: Array
    rows: Array


def evaluate(design: Design, H: Array, mechanisms: Sequence[Mechanism]) -> Evaluation | None:
    """Return the profile likelihood, its gradient and the structural rows at H.

    None where a residual variance is not positive.
    """
    d = len(H)
    HS = H @ design.S_bar
    value, gradient = _log_det_term(design.N, H, HS)
    rows, residuals_S = np.zeros((len(mechanisms), d)), np.empty((len(mechanisms), H.shape[1]))
    partial = [mechanism for mechanism in mechanisms if mechanism.tied and len(mechanism.parents)]
    tied = {i: _tied_weights(H, [mechanisms[i], *(a for a in partial if a.latent == i)]) for i in _latents(partial)}
    for q, mechanism in enumerate(mechanisms):
        i, parents, S = mechanism.latent, mechanism.parents, mechanism.S
        residuals_S[q] = H[i] @ S
        rows[q, i] = 1.0
        if i in tied and (q < d or mechanism.tied):
            b = (mechanism.tied or 1.0) * tied[i]
            residuals_S[q] -= b @ H[parents] @ S
            rows[q, parents] = -b
        elif len(parents):
            H_pa = H[parents]
            H_pa_S = H_pa @ S
            _, b, singular = lapack.dposv(H_pa_S @ H_pa.T, H_pa_S @ H[i])
            if singular:
                return None
            residuals_S[q] -= b @ H_pa_S
            rows[q, parents] = -b
    w, latents = np.array([mechanism.w for mechanism in mechanisms]), [mechanism.latent for mechanism in mechanisms]
    # what a regression leaves is uncorrelated with the parents; where weights are shared it need not be
    variance = np.einsum("qj,qj->q", residuals_S, rows @ H if tied else H[latents])
    if not (variance > 0).all():
        return None
    value -= 0.5 * float(w @ np.log(variance))
    gradient -= rows.T @ ((w / variance)[:, None] * residuals_S)
    return Evaluation(value, gradient, rows / np.sqrt(variance)[:, None]) if np.isfinite(value) else None


def _latents(mechanisms: Sequence[Mechanism]) -> set[int]:
    return {mechanism.latent for mechanism in mechanisms}


def _tied_weights(H: Array, mechanisms: Sequence[Mechanism]) -> Array:
    """Return the weights that several mechanisms of one latent share, the first whole and the others in part.

    They minimise ``Σ w log σ²``. The logarithm lies below its tangents, so that regressions weighted by ``w/σ²``, each
    with the variances of the one before, never climb; near the truth one or two will do. ``nan`` where singular.
    """
    of, x = H[mechanisms[0].parents], H[mechanisms[0].latent]
    f = np.array([mechanism.tied or 1.0 for mechanism in mechanisms])
    w, S = np.array([mechanism.w for mechanism in mechanisms]), np.array([mechanism.S for mechanism in mechanisms])
    G, c, own = of @ S @ of.T, f[:, None] * (S @ x @ of.T), S @ x @ x
    G *= np.square(f)[:, None, None]
    b, singular = lapack.dposv(G[0], c[0])[1:]
    for _ in range(MOST_REGRESSIONS):
        u = w / (own - 2 * c @ b + G @ b @ b)
        slope = u @ (c - G @ b)
        step, unsolved = lapack.dposv(np.tensordot(u, G, axes=1), slope)[1:]
        b = b + step
        if unsolved or not slope @ step > EXACT:
            singular |= unsolved
            break
    return np.full(len(b), np.nan) if singular else np.asarray(b)


def _log_det_term(N: float, H: Array, HS: Array) -> tuple[float, Array]:
    """Return ``N/2 log det(H S̄ Hᵀ)`` and its gradient ``N (H S̄ Hᵀ)^{-1} H S̄``."""
    R = HS @ H.T
    L, solved, singular = lapack.dposv(R, HS)
    if singular:
        return -np.inf, np.zeros_like(H)
    return N * float(np.log(np.diagonal(L)).sum()), np.asarray(N * solved, dtype=float)
