"""From moments to the arrays of the core: range, shrinkage, whitening, and which context hits which latent."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import blas, solve_triangular

from latentdag.core.context_error import ContextError
from latentdag.core.graphs import Rules
from latentdag.core.likelihood import Design, Noisy, make_design
from latentdag.core.linalg import DEFINITE, is_definite, range_basis, symmetrize, upper_factor
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.methods.options import DEFAULT, Options
from latentdag.methods.reduction import Reduction, reduction_of
from latentdag.model.intervention import latent_names

#: What a do-intervention leaves of the pooled variance, so that its covariance has an inverse.
DO_FLOOR = 1e-8

#: Where moments may keep dimensions that covariances lose.
NEARLY_COLLINEAR = "; of nearly collinear features, Moments.from_samples keeps more than covariances do"

#: Relative size of the smallest eigenvalues of correlations in which there is still a digit or two.
LAST_DIGITS = 1e-14


@dataclass(frozen=True)
class Prepared:
    """Moments in coordinates where the control has identity covariance.

    Attributes
    ----------
    W : (r, p)
        Whitened coordinates are ``W (x − mean of the control)``.
    log_volume : float
        log |det| of the map from the range of the data to whitened coordinates.
    means : (K+1, r)
    about_control : (K+1, r, r)
        Second moments about the control's mean (about each own mean if means are not used).
    latents : names, in the order of the design's rows
    kinds : mapping of context to kind of intervention
    shrinkage : (K+1,)
        How far each covariance was moved towards the pooled one, between 0 and 1.
    design : Design
    reduction : Reduction of noisy features, or None where they are exact
    noise : what was tried to tell
    """

    W: np.ndarray
    log_volume: float
    means: np.ndarray
    about_control: np.ndarray
    latents: list[str]
    kinds: dict[Hashable, str]
    shrinkage: np.ndarray
    design: Design
    reduction: Reduction | None = None
    noise: Mapping[str, Any] = field(default_factory=dict)


def prepare(m: Moments, options: Options = DEFAULT) -> Prepared:
    """Whiten moments and lay out the design."""
    means = options.means
    for label, count in zip(m.contexts, m.counts, strict=True):
        if count < 3:
            raise ValueError(f"context {label!r} has {count} samples; at least 3 are needed: drop it")
    assert options.targets is None or isinstance(options.targets, Mapping)  # what is to be learned was learned before
    hits, latents = _hits(m, options.targets)
    kinds = _kinds(m, options.intervention)
    strength = _strengths(m, options, kinds)
    n = m.counts.astype(float) if means else np.maximum(m.counts - 1.0, 1.0)
    reduction, noise = reduction_of(m, n, len(latents), options)
    coordinates, S, log_volume = _coordinates(m, len(latents)) if reduction is None else reduction.coordinates(m)
    S = S * ((m.counts - 1.0) / m.counts if means else np.ones(len(n)))[:, None, None]
    measured = None if reduction is None else S
    if reduction is not None:
        S = reduction.beneath_noise(S)
    r, d = len(coordinates), len(latents)
    if d > r:
        raise ValueError(
            f"{d} latents are targeted, but the data have only {r} dimensions. Contexts that hit the same latent must "
            "say so: targets={context: latent name, …}, or targets='learn' finds out which do"
            + (f"; or the moments need a rank of at least {d}" if m.basis else "" if m.fine else NEARLY_COLLINEAR)
        )
    if options.unintervened == "upstream":
        latents, d = [*latents, *_other_names(latents, r - d)], r
    # first to coordinates in which all contexts together have unit variance, where shrinking and checking are easy
    with lb.naming_contexts(m.contexts):
        P = upper_factor(symmetrize(np.tensordot(n / n.sum(), S, axes=1)), context=0)
    definite = np.array([is_definite(s) for s in S])
    _divide(S, P)
    shrinks = options.shrinkage and reduction is None
    weight = _shrink_by(S, m.counts) if shrinks else np.zeros(len(n))
    weight = np.where([kinds.get(c) == "do" for c in m.contexts], np.maximum(weight, DO_FLOOR), weight)
    S *= (1 - weight)[:, None, None]
    np.einsum("kii->ki", S)[:] += weight[:, None]
    with lb.naming_contexts(m.contexts):
        # one that is singular in the features' own scale needs help that counts
        _check_definite(S, m.counts, definite | (weight >= DO_FLOOR))
        F = upper_factor(S[0], context=0)
    _divide(S, F)
    F = F @ P
    W = solve_triangular(F, coordinates, trans="T")
    log_volume -= float(np.log(np.diagonal(F)).sum())
    mu = (m.means - m.means[0]) @ W.T
    soft = [kinds.get(c) == "soft" for c in m.contexts]
    about = S
    if means:
        about = mu[:, :, None] * mu[:, None, :]
        about += S
    design = make_design(n, S, about, mu if means else None, hits, soft, d, strength)
    if reduction is not None and measured is not None:
        F_inv = solve_triangular(F, np.eye(len(F)), trans="T")
        noisy = Noisy(F_inv @ measured @ F_inv.T, reduction.noise.seen_by(F_inv))
        design = replace(design, noisy=noisy)
    return Prepared(W, log_volume, mu, about, latents, kinds, weight, design, reduction, noise)


def _coordinates(m: Moments, d: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coordinates (r, p) of the range of the data, covariances (K+1, r, r) in them, and log |det| of that map.

    Directions far smaller than the others count only where there would be fewer dimensions than latents without them:
    elsewhere they are more likely to be rounding.
    """
    U = m.range
    if U.shape[1] < d and m.fine is None:
        U = range_basis(m.pooled_covariance(), max(LAST_DIGITS, DEFINITE * len(U)))
    if U.shape[1] >= d or m.fine is None:
        return U.T, m.covariances if U.shape[1] == m.n_features else U.T @ m.covariances @ U, 0.0
    A, S = m.fine.varying(m.counts)
    Q = np.linalg.qr(m.fine.variances[:, None] * A.T)[0]
    return A, S, float(np.linalg.slogdet(A @ Q)[1])


def _hits(m: Moments, targets: Mapping[Hashable, Any] | None) -> tuple[list[tuple[int, ...]], list[str]]:
    """Return the rows that each context targets, and the latents' names."""
    contexts = m.contexts[1:]
    if targets is None:
        return [(), *((i,) for i in range(len(contexts)))], latent_names(
            len(contexts), {c: [i] for i, c in enumerate(contexts)}
        )
    missing = [c for c in contexts if c not in targets]
    unknown = [c for c in targets if c not in contexts]
    if missing or unknown:
        raise ValueError(
            "targets must name every context but the control, and no other: "
            + (f"missing {missing[:5]}" if missing else f"unknown {unknown[:5]}")
        )
    named = {c: (t,) if isinstance(t, str) else t for c, t in targets.items()}
    latents = sorted({name for names in named.values() for name in names})
    return [(), *(tuple(latents.index(name) for name in named[c]) for c in contexts)], latents


def _other_names(taken: Sequence[str], number: int) -> list[str]:
    """Return names for the latents that nobody intervened on."""
    word = "other"
    while any(name.startswith(f"{word} ") for name in taken):
        word += "'"
    return [f"{word} {j + 1}" for j in range(number)]


def _kinds(m: Moments, intervention: str | Mapping[Hashable, str]) -> dict[Hashable, str]:
    if isinstance(intervention, str):
        return dict.fromkeys(m.contexts[1:], intervention)
    unknown = [c for c in intervention if c not in m.contexts[1:]]
    if unknown:
        raise ValueError(f"intervention names {unknown[0]!r}, which is no context but the control: {m.contexts[1:]}")
    return {c: intervention.get(c, "perfect") for c in m.contexts[1:]}


def _strengths(m: Moments, options: Options, kinds: Mapping[Hashable, str]) -> np.ndarray | None:
    """Return the strength (K+1,) of every context, the middle of intervals; None where all are one."""
    told = options.strength or {}
    for context in told:
        if context not in kinds:
            listed = lb.listed(kinds)
            raise ValueError(f"strength names {context!r}, which is no context but the control; those are {listed}")
        if kinds[context] != "perfect":
            raise ValueError(
                f"context {context!r} is a {kinds[context]} intervention, which has no strength: say that it is "
                f"perfect, or leave it out of strength={{…}}"
            )
    if told and options.unintervened == "upstream":
        raise ValueError("strength needs unintervened='downstream': causes that nobody targets hide how strong one is")
    strength = np.array([float(np.mean(told.get(context, 1.0))) for context in m.contexts])
    return strength if (strength < 1).any() else None


def _divide(S: np.ndarray, F: np.ndarray) -> None:
    """Make ``F^{-T} S F^{-1}`` of a stack, in place and one at a time, which stays in the cache."""
    F_inv = solve_triangular(F, np.eye(len(F)), check_finite=False)
    for s in S:
        s[:] = blas.dtrmm(1.0, F_inv, blas.dtrmm(1.0, F_inv, s.T, side=1), trans_a=1).T


def _shrink_by(S: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the weight of the pooled covariance: oracle-approximating shrinkage, fading once counts exceed dimensions.

    In coordinates where the pooled covariance is the identity, the OAS formula gives the weight that minimises the
    expected squared error of a Gaussian sample covariance of any true one. It never quite forgets to shrink, and a bias
    of order 1/n would show in an efficient estimator; hence the further factor r/n, which makes it of order 1/n².
    """
    r = S.shape[1]
    trace, square = np.einsum("kii->k", S), np.einsum("kij,kij->k", S, S)
    spread = (counts + 1 - 2 / r) * (square - trace**2 / r)
    own = (1 - 2 / r) * square + trace**2
    oas = own / np.maximum(np.maximum(spread, own), np.finfo(float).tiny)  # at most one
    return oas * np.minimum(1.0, r / np.maximum(counts - 1, 1))


def _check_definite(S: np.ndarray, counts: np.ndarray, definite: np.ndarray) -> None:
    """Refuse covariances that have no inverse, relative to the pooled one."""
    for k, s in enumerate(S):
        if not (definite[k] and is_definite(s)):
            raise ContextError(
                k,
                f"its covariance of {counts[k]} samples is singular in {S.shape[1]} dimensions; turn shrinkage on, say "
                "that it is a do-intervention (intervention='do'), or use fewer features",
            )


def single_target_contexts(design: Design) -> list[int]:
    """Return for each latent the most informative context that targets it alone, or −1."""
    alone = [[k for k in contexts if len(design.hits[k]) == 1] for contexts in design.targeting]
    return [max(contexts, key=lambda k: design.n[k], default=-1) for contexts in alone]


def edge_rules(
    prepared: Prepared, penalty: float, forbidden: Any = None, required: Any = None, priced: bool = False
) -> Rules:
    """Return what users say about edges; latents without interventions come first, as causes of all others.

    Those are known up to rotation only, so all of their edges stay: which of them vanish is a matter of coordinates.
    """
    allowed, needed = permitted(prepared.latents, forbidden, True), permitted(prepared.latents, required, False)
    hit = {i for rows in prepared.design.hits for i in rows}
    rest = tuple(i for i in range(prepared.design.d) if i not in hit)
    for i in rest:
        allowed[i] = False
        needed[:, i] = True
    needed[list(rest)] = False
    return Rules(penalty, allowed, needed, rest, priced)


def permitted(latents: Sequence[str], edges: Any, default: bool) -> np.ndarray:
    """Return a boolean matrix [child, parent] from (parent, child) pairs of names."""
    matrix = np.full((len(latents), len(latents)), default)
    for source, target in edges or ():
        for name in (source, target):
            if name not in latents:
                raise ValueError(f"edge {source!r} → {target!r} names no latent; they are {list(latents)}")
        matrix[latents.index(target), latents.index(source)] = not default
    return matrix
