"""From the core's optimum back to the user's features, names and units."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from latentdag.core.evidence import ancestors_of
from latentdag.core.graphs import FittedGraph
from latentdag.core.likelihood import Mechanism, shares
from latentdag.core.linalg import Array
from latentdag.core.noisy import State
from latentdag.core.optimize import Optimum
from latentdag.core.responses import fit_responses
from latentdag.core.search import Found
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.errors import FewSamplesWarning, NotConvergedWarning, WeakInterventionWarning
from latentdag.identification.equivalence import reduced_model
from latentdag.methods.design import Prepared
from latentdag.methods.options import Options
from latentdag.methods.result import Fit, named_graph
from latentdag.methods.verdict import NO_WARNING, unsettled
from latentdag.model.distribution import log_likelihood
from latentdag.model.intervention import Change, Intervention
from latentdag.model.model import LatentModel

#: Shrinkage beyond which the covariance of a context cannot be told from the shrunk one.
ALL_BORROWED = 0.99

#: Latents up to which a fit keeps what its contexts show of total effects.
RESPONSES_UP_TO = 50

#: Strength below which a partial intervention says next to nothing about weights.
WEAK = 0.3

#: Edges that are less probable are not listed.
NEGLIGIBLE = 1e-3


def finish(
    m: Moments,
    prepared: Prepared,
    found: Found,
    options: Options,
    penalty: float,
    ambiguous: Mapping[str, Any],
) -> Fit:
    """Return the fit in the user's features, names and units."""
    best, design = found.best, prepared.design
    order = tuple(prepared.latents[i] for i in best.order)
    rows = list(reversed(best.order))
    model = model_of_graph(m, prepared, best)
    if options.unintervened == "upstream" and "soft" not in prepared.kinds.values():
        model = reduced_model(model)  # latents that nobody intervened on, in canonical rotation
    model = model.reordered([prepared.latents[i] for i in rows]).rescaled("paper")
    edges = [(prepared.latents[j], prepared.latents[i]) for i, parents in enumerate(best.parents) for j in parents]
    graph = named_graph(model, edges)
    r = design.S.shape[1]
    constant = -0.5 * design.N * (r * (np.log(2 * np.pi) + 1) + np.linalg.slogdet(design.S_bar)[1])
    loglik = best.optimum.value + float(constant) + design.N * prepared.log_volume
    if prepared.reduction is not None:
        loglik = log_likelihood(model.seen_by(m), m)
    elif r == design.d and prepared.shrinkage.max() < ALL_BORROWED:
        loglik -= _shrinkage_gain(prepared, best)
    elif r == design.d and options.means:
        unshrunk = log_likelihood(model, m)
        loglik = unshrunk if np.isfinite(unshrunk) else loglik
    if (
        r == design.d and prepared.reduction is None and not m.has_means
    ):  # the fit left means free, but they are the same
        loglik = log_likelihood(model, m)
    if "do" in prepared.kinds.values():
        loglik = float("nan")  # a latent without noise has no density
    _warn(m, prepared, found, options)
    top = max(found.values)
    details = {
        "gain": float(best.optimum.gain),
        "n_starts": len(found.values),
        "n_agreed": int(sum(value > top - 0.5 for value in found.values)),
        "penalty": penalty,
        "shrinkage": dict(zip(lb.text_names(m.contexts), prepared.shrinkage.tolist(), strict=True)),
        "ambiguous": dict(ambiguous),
        **_probabilities(prepared, found),
        **_responses(m, prepared, best, model.seen_by(m)),
        **prepared.noise,
    }
    counts = tuple(m.counts.tolist())
    return Fit(model, order, graph, float(loglik), counts, bool(best.optimum.converged), options, details)


def _probabilities(prepared: Prepared, found: Found) -> dict[str, Any]:
    """Return how sure order and graph are: what a search weighed, or nothing where there was none."""
    posterior, latents = found.posterior, prepared.latents
    if posterior is None:
        return {"runner_up": None}
    rival = posterior.runner_up()
    told: dict[str, Any] = {"runner_up": rival and {"order": [latents[i] for i in rival[0]], "gap": float(rival[1])}}
    if any(prepared.design.soft):
        # edges are one choice among equivalent ones, and relations are tested by what contexts show of total effects
        ancestors = [ancestors_of(one.present, one.graph.order) for one in posterior.weighed]
        weighed = np.tensordot(posterior.shares, ancestors, axes=1)
        likely = np.argwhere(weighed >= NEGLIGIBLE)
        return told | {"ancestors": [[latents[j], latents[i], float(weighed[i, j])] for i, j in likely]}
    likely = np.argwhere(posterior.edges >= NEGLIGIBLE)
    told["probability"] = [[latents[j], latents[i], float(posterior.edges[i, j])] for i, j in likely]
    relations = [[latents[j], latents[i], joint] for j, i, joint in posterior.relations]
    return told | {"explored": posterior.explored, "relations": relations}


def _responses(m: Moments, prepared: Prepared, best: FittedGraph, model: LatentModel) -> dict[str, Any]:
    """Return what contexts show of total effects, in noises of variance one with the signs of the model's."""
    design, names = prepared.design, prepared.latents
    targeted = {i for hit in design.hits for i in hit}
    if design.d > RESPONSES_UP_TO or len(targeted) < design.d:
        return {}
    R = fit_responses(design, best)
    if R is None:
        return {}
    fitted = best.optimum.H @ prepared.W
    sign = [np.sign(fitted[i] @ model.unmixing[model.index(name)]) for i, name in enumerate(names)]
    mechanisms = [
        (context, i) for context, hit in zip(lb.text_names(m.contexts), design.hits, strict=True) for i in hit
    ]
    shown = [
        [context, names[j], names[i], float(sign[i] * sign[j] * R[q, j])]
        for q, (context, i) in enumerate(mechanisms)
        for j in best.order[: best.order.index(i)]
    ]
    return {"responses": shown}


def _shrinkage_gain(prepared: Prepared, best: FittedGraph) -> float:
    """Return by how many nats the shrunk covariances S are likelier than the data as they are.

    The data's are ``S + w/(1 − w) (S − C)``, with C pooled over all contexts before shrinking.
    """
    design, w = prepared.design, prepared.shrinkage
    noises = best.optimum.rows @ best.optimum.H
    alone, hit = noises[: design.d], iter(noises[design.d :])
    moved = design.n * w / (1 - w)
    C = np.tensordot(design.n + moved, design.S, axes=1) / (design.N + moved.sum())
    total = np.vdot(alone @ (np.tensordot(moved, design.S, axes=1) - moved.sum() * C), alone)
    for k, rows in enumerate(design.hits):
        for i in rows:
            pair = np.array([next(hit), alone[i]])
            squares = np.einsum("ij,ij->i", pair @ design.S[k] - pair @ C, pair)
            total += moved[k] * (squares[0] - squares[1])
    return 0.5 * float(total)


def _warn(m: Moments, prepared: Prepared, found: Found, options: Options) -> None:
    """Warn of what a user should know before believing the fit."""
    best = found.best
    weak = [f"{c!r} ({np.min(s):g})" for c, s in (options.strength or {}).items() if np.min(s) < WEAK]
    if weak:
        warnings.warn(
            f"strengths below {WEAK}: {', '.join(weak[:5])}. A weight is the effect that is seen divided by strengths, "
            "so that its error explodes",
            WeakInterventionWarning,
            stacklevel=4,
        )
    if not best.optimum.converged:
        warnings.warn(
            f"the likelihood could still grow by about {best.optimum.gain:.3g} nats when the optimiser stopped",
            NotConvergedWarning,
            stacklevel=4,
        )
    if found.posterior is None or any(prepared.design.soft):
        return
    probability = found.posterior.edges[found.posterior.best.present]
    if unsettled(len(probability), float(probability.sum()), NO_WARNING):
        few = [c for c, w in zip(m.contexts, prepared.shrinkage, strict=True) if w > 0.5]
        listed = ", ".join(f"{c!r} ({m.counts[m.index(c)]} samples)" for c in few[:5])
        borrowed = f"; more than half of the covariance of {len(few)} contexts is borrowed from the others: {listed}"
        warnings.warn(
            f"the graph is not settled by these data: of its {len(probability)} edges only {probability.sum():.1f} are "
            f"expected to be right (fit.edges() has the probability of each){borrowed if few else ''}",
            FewSamplesWarning,
            stacklevel=4,
        )


def model_of_graph(m: Moments, prepared: Prepared, best: FittedGraph) -> LatentModel:
    """Return the fitted model in features, rows in the order of the design."""
    design, latents, d = prepared.design, prepared.latents, prepared.design.d
    H, rows = best.optimum.H, best.optimum.rows
    mechanisms = design.mechanisms(best.parents)
    mean, offset, extra = _latent_means(m, prepared, best.optimum)
    unmixing: Any = extra.pop("unmixing", H @ prepared.W)
    hit = _mean_noises(prepared, best.optimum, mechanisms)
    changes: dict[int, dict[str, Change]] = {}
    for mechanism, row, noise in zip(mechanisms[d:], rows[d:], hit, strict=True):
        i, k = mechanism.latent, mechanism.context
        kind = prepared.kinds[m.contexts[k]]
        kind = "soft" if mechanism.n_weights else "do" if kind == "do" else "perfect"
        shift = float((noise - row @ mean) / row[i])
        weights = {latents[j]: float(-row[j] / row[i]) for j in mechanism.parents} if kind == "soft" else None
        variance = 0.0 if kind == "do" else float(row[i] ** -2)
        strength = 1.0 if design.strength is None or kind != "perfect" else float(design.strength[k])
        changes.setdefault(k, {})[latents[i]] = Change(kind, variance, shift, weights, strength)
    return LatentModel.from_structural(
        unmixing,
        rows[:d],
        latents=latents,
        interventions={c: Intervention.of_changes(changes.get(k, {})) for k, c in enumerate(m.contexts) if k},
        control=m.control,
        feature_names=m.feature_names if prepared.reduction is None else m.source_features,
        offset=offset,
        basis=None if prepared.reduction is None else m.basis,
        **extra,
    )


def _mean_noises(prepared: Prepared, optimum: Optimum, mechanisms: Sequence[Mechanism]) -> Array:
    """Return the mean noise of every intervened mechanism in its context."""
    d, state = prepared.design.d, optimum.state
    if state is not None and state.tau is not None:
        return state.tau[len(state.H) :]
    contexts = [mechanism.context for mechanism in mechanisms[d:]]
    return np.einsum("qi,qi->q", optimum.rows[d:] @ optimum.H, prepared.means[contexts])


def _latent_means(m: Moments, prepared: Prepared, optimum: Optimum) -> tuple[Array, Array, dict[str, Any]]:
    """Return the mean of the latents in the control (d,), of the features there (p,), and what else the features have.

    With means in use the noise of a latent has one mean in all contexts that leave it alone.
    """
    design, H, rows, state = prepared.design, optimum.H, optimum.rows, optimum.state
    B, (_, share) = rows[: design.d], shares(design.n, design.hits, design.d)
    # features: regress on the latents about the grand mean, which all contexts share
    grand_features, grand = share[-1] @ m.means, share[-1] @ prepared.means
    if state is not None:
        G, extra = _noisy_features(prepared, state)
        control = m.means[0]
        if m.basis is not None:
            control, grand_features = (m.basis.center + m.basis.back @ y for y in (control, grand_features))
        if state.tau is None:
            return np.zeros(design.d), control, extra
        every: Array = np.asarray(np.linalg.solve(state.rows[: len(G.T)], state.tau[: len(G.T)]), dtype=float)
        return every[: design.d], grand_features + G @ (every - state.H @ grand), extra
    extra = _complement(prepared, H) if H.shape[1] > design.d else {}
    if not prepared.means.any():
        return np.zeros(design.d), m.means[0], extra
    nu = np.einsum("ij,ij->i", B @ H, share[:-1] @ prepared.means)
    mean: Array = np.asarray(np.linalg.solve(B, nu), dtype=float)
    away = mean - H @ grand
    if extra:
        return mean, grand_features + extra["loadings"] @ away, extra
    Q, R = np.linalg.qr((H @ prepared.W).T)
    return mean, grand_features + Q @ solve_triangular(R, away, trans="T"), extra


def _noisy_features(prepared: Prepared, state: State) -> tuple[Array, dict[str, Any]]:
    """Return the mixing (p, r) of all latents, background included, and the model's fields for noisy features."""
    reduction, d = prepared.reduction, prepared.design.d
    assert reduction is not None
    G = reduction.loadings @ np.linalg.inv(state.H @ prepared.W @ reduction.back)
    # the noise of y is linear in ν; a large ν shows that the model does not hold, and must not become a power of e
    change = state.nu @ reduction.to_psi
    psi = reduction.psi * np.where(change > 0, 1 + change, np.exp(np.minimum(change, 0.0)))
    unmixing = np.linalg.solve((G.T / psi) @ G, G.T / psi)
    residual = G[:, d:] @ G[:, d:].T + np.diag(psi)
    return G, {"unmixing": unmixing[:d], "loadings": G[:, :d], "residual": residual, "feature_noise": psi}


def _complement(prepared: Prepared, H: Array) -> dict[str, Array]:
    """Return loadings and residual covariance of features that have more dimensions than there are latents."""
    S_bar = prepared.design.S_bar
    G = S_bar @ H.T @ np.linalg.inv(H @ S_bar @ H.T)
    residual = S_bar - G @ H @ S_bar
    back = np.linalg.pinv(prepared.W)  # whitened coordinates to features
    return {"loadings": back @ G, "residual": back @ residual @ back.T}
