"""Maximum likelihood with a search for order and graph: the default method."""

import sys
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np

from latentdag.core.errors import ContextError
from latentdag.core.flags import fit_flag
from latentdag.core.graphs import Candidate, Rules, fit_graph, fit_pruned, perfect_rows, toggle_edges
from latentdag.core.likelihood import evaluate
from latentdag.core.linalg import Array, independent_rows
from latentdag.core.optimize import Optimum, unit_rows
from latentdag.core.pairs import Pair, estimate_pairs, refine_pairs
from latentdag.core.projection import iterative_difference_projection
from latentdag.core.search import FEW, Found, linear_order, search
from latentdag.errors import FewSamplesWarning, NotConvergedWarning
from latentdag.interventions import Change, Intervention
from latentdag.model import LatentModel
from latentdag.moments import Moments
from latentdag.posets import closure_graph
from latentdag.preparation import Prepared, permitted, prepare, single_target_contexts
from latentdag.result import Fit, named_graph
from latentdag.scoring import log_likelihood

Start = tuple[Array, tuple[int, ...]]

#: Up to this many latents the search starts from the closed form as it is, too.
RAW_UP_TO = 40


def fit_likelihood(
    m: Moments,
    *,
    targets: Mapping[Hashable, Any] | None = None,
    intervention: str | Mapping[Hashable, str] = "perfect",
    means: bool = True,
    graph: nx.DiGraph | None = None,
    order: Sequence[str] | None = None,
    forbidden: Iterable[tuple[str, str]] | None = None,
    required: Iterable[tuple[str, str]] | None = None,
    penalty: str | float = "bic",
    shrinkage: bool = True,
    start: LatentModel | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit by maximum likelihood.

    Parameters
    ----------
    m : Moments
    targets : mapping of context to latent name, or names, optional
        Which contexts hit the same latent, or several. By default every context hits a latent of its own.
    intervention : "perfect", "soft" or "do", or a mapping of context to kind
        With soft interventions the ancestor relation and the noises ``B_0 H X`` are identified; the rows of H and the
        edges within the ancestor relation are one choice among equivalent ones.
    means : bool
        Use differences between the contexts' means: an intervention may shift the mean of its target's noise, and all
        other noises keep theirs. False gives every context a free mean.
    graph : DiGraph over latent names, optional
        Fit this graph, search nothing.
    order : latent names, sources first, optional
        Search edges only.
    forbidden, required : (source, target) pairs of latent names, optional
    penalty : "bic", "aic" or float
        Log-likelihood that an edge must be worth: ``log(N)/2``, 1, or the number.
    shrinkage : bool
        Move covariances of contexts with few samples towards the pooled one.
    start : LatentModel, optional
        One more start for the search.
    progress : bool, optional
        Report on stderr; by default only where that is a terminal.
    """
    prepared = prepare(m, targets, intervention, means, shrinkage)
    design, latents = prepared.design, prepared.latents
    rules = Rules(_penalty(penalty, design.N), permitted(latents, forbidden, True), permitted(latents, required, False))
    say = _reporter(progress)
    pairs = context_pairs(prepared)
    starts = _starts(prepared, pairs, rules)
    if start is not None:
        starts.append(_given_start(prepared, start))
    starts = [(independent_rows(H), suggested) for H, suggested in starts]
    if graph is not None:
        found = _fit_given_graph(prepared, starts, rules, graph)
    elif order is not None:
        found = _fit_given_order(prepared, starts, rules, order)
    else:
        found = search(design, starts, rules, say)
    say("")
    if found is None:
        raise ContextError(0, "no start has a finite likelihood: the covariances are too near singular")
    options = {"intervention": intervention if isinstance(intervention, str) else "mixed", "means": means}
    return finish(m, prepared, found, "likelihood", options, rules.penalty)


def context_pairs(prepared: Prepared) -> dict[int, Pair]:
    """The closed form for every latent that some context targets alone."""
    contexts = single_target_contexts(prepared.design)
    rows = [i for i, k in enumerate(contexts) if k >= 0]
    if not rows:
        return {}
    hits = prepared.design.hits
    same = [[k for k, hit in enumerate(hits) if i in hit] for i in rows]
    found = estimate_pairs(prepared.about_control, prepared.design.n, [contexts[i] for i in rows], same)
    return dict(zip(rows, found, strict=True))


def _refined(prepared: Prepared, pairs: Mapping[int, Pair]) -> dict[int, Pair]:
    contexts = single_target_contexts(prepared.design)
    found = refine_pairs(prepared.about_control, prepared.design.n, [contexts[i] for i in pairs], list(pairs.values()))
    return dict(zip(pairs, found, strict=True))


def closed_form_start(prepared: Prepared, pairs: Mapping[int, Pair], rules: Rules) -> Start:
    """Rows u of the closed form, in the order that their ancestors suggest."""
    d, r = prepared.design.d, prepared.design.S.shape[1]
    H, M = np.zeros((d, r)), np.zeros((d, r))
    for i, pair in pairs.items():
        H[i], M[i] = pair.u, pair.m
    for i in range(d):
        if i not in pairs:
            H[i] = M[i] = _leftover_row(prepared, i, M)
    C = H @ M.T
    evidence = C**2 / np.maximum((C**2).sum(axis=1, keepdims=True), 1e-300)
    np.fill_diagonal(evidence, 0.0)
    evidence = evidence + 1e6 * rules.required
    return H, linear_order(evidence)


def _leftover_row(prepared: Prepared, i: int, M: Array) -> Array:
    """For a latent that is never targeted alone: the strongest change in its contexts that the known rows leave."""
    design = prepared.design
    change = sum(
        (
            design.n[k] * (prepared.about_control[k] - np.eye(len(M[0])))
            for k, hit in enumerate(design.hits)
            if i in hit
        ),
        np.zeros((len(M[0]),) * 2),
    )
    known = M[np.abs(M).any(axis=1)]
    P = np.eye(len(M[0])) - (np.linalg.pinv(known) @ known if len(known) else 0.0)
    w, V = np.linalg.eigh(P @ change @ P)
    return np.asarray(V[:, np.argmax(np.abs(w))])


def _starts(prepared: Prepared, pairs: Mapping[int, Pair], rules: Rules) -> list[Start]:
    starts = [closed_form_start(prepared, pairs, rules)]
    design = prepared.design
    if design.d > FEW and pairs:
        # a few steps of the order-free likelihood make better rows; where time allows, both go on
        refined = closed_form_start(prepared, _refined(prepared, pairs), rules)
        return [refined, *starts] if design.d <= RAW_UP_TO else [refined]
    if design.d <= FEW and all(len(hit) == 1 for hit in design.hits[1:]) and len(design.hits) == design.d + 1:
        # few latents are cheap to start once more, from the paper's algorithm in whitened coordinates
        try:
            projected = iterative_difference_projection(np.linalg.inv(prepared.about_control))
        except ContextError:
            return starts
        rows = np.array([design.hits[k][0] for k in projected.contexts])
        H = np.empty_like(starts[0][0])
        H[rows] = projected.U
        order = tuple(int(i) for i in rows[::-1])
        if rules.permit(order):
            starts.append((H, order))
    return starts


def _given_start(prepared: Prepared, model: LatentModel) -> Start:
    if sorted(model.latents) != sorted(prepared.latents):
        raise ValueError(f"the start has latents {sorted(model.latents)}, the data {sorted(prepared.latents)}")
    ordered = model.reordered(prepared.latents)
    order = tuple(prepared.latents.index(name) for name in nx.lexicographical_topological_sort(model.graph))
    return ordered.unmixing @ np.linalg.pinv(prepared.W), order


def _fit_given_graph(prepared: Prepared, starts: Sequence[Start], rules: Rules, graph: nx.DiGraph) -> Found | None:
    """The best of all starts for one graph."""
    latents = prepared.latents
    if set(graph.nodes) - set(latents):
        raise ValueError(f"the graph's nodes must be among the latents {latents}, got {sorted(graph.nodes)}")
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError("the graph has a cycle")
    full: nx.DiGraph = nx.DiGraph()
    full.add_nodes_from(latents)
    full.add_edges_from(graph.edges)
    parents = [np.array(sorted(latents.index(p) for p in full.predecessors(i)), dtype=np.intp) for i in latents]
    order = tuple(latents.index(name) for name in nx.lexicographical_topological_sort(full))
    found = []
    for H, _ in starts:
        flag = fit_flag(prepared.design, H, order)
        rows = H if flag is None else perfect_rows(prepared.design, flag.H, order)
        found += [fit_graph(prepared.design, rows, parents, order, rules)]
    return _best(found)


def _fit_given_order(prepared: Prepared, starts: Sequence[Start], rules: Rules, names: Sequence[str]) -> Found | None:
    """Edges only: flag, prune, refit."""
    if sorted(names) != sorted(prepared.latents):
        raise ValueError(f"the order must list each latent once: {prepared.latents}, got {list(names)}")
    order = tuple(prepared.latents.index(name) for name in names)
    if not rules.permit(order):
        raise ValueError("the order contradicts a required edge")
    found: list[Candidate | None] = []
    for H, _ in starts:
        flag = fit_flag(prepared.design, H, order)
        rows = perfect_rows(prepared.design, H if flag is None else flag.H, order)
        pruned = fit_pruned(prepared.design, rows, order, rules)
        if pruned is not None:
            pruned = toggle_edges(prepared.design, pruned, rules)
            found.append(fit_graph(prepared.design, pruned.optimum.H, pruned.parents, order, rules))
    return _best(found)


def _best(found: Iterable[Candidate | None]) -> Found | None:
    kept = [candidate for candidate in found if candidate is not None]
    if not kept:
        return None
    return Found(max(kept, key=lambda c: c.score), tuple(c.score for c in kept), None)


def finish(
    m: Moments, prepared: Prepared, found: Found, method: str, options: Mapping[str, Any], penalty: float
) -> Fit:
    """Everything back in the user's features, names and units."""
    best, design = found.best, prepared.design
    order = tuple(prepared.latents[i] for i in best.order)
    rows = list(reversed(best.order))
    model = model_of_candidate(m, prepared, best).reordered([prepared.latents[i] for i in rows]).rescaled("paper")
    edges = [(prepared.latents[j], prepared.latents[i]) for i, parents in enumerate(best.parents) for j in parents]
    graph = named_graph(model, edges)
    r = design.S.shape[1]
    constant = -0.5 * design.N * (r * (np.log(2 * np.pi) + 1) + np.linalg.slogdet(design.S_bar)[1])
    if r == design.d and options.get("means"):
        loglik = log_likelihood(model, m)  # of the data as they are, not as shrunk
    else:
        loglik = best.optimum.value + float(constant) + design.N * prepared.log_volume
    if "do" in prepared.kinds.values():
        loglik = float("nan")  # a latent without noise has no density
    _warn(m, prepared, best)
    top = max(found.values)
    details = {
        "gain": float(best.optimum.gain),
        "n_starts": len(found.values),
        "n_agreed": int(sum(value > top - 0.5 for value in found.values)),
        "penalty": penalty,
        "shrinkage": {str(c): float(w) for c, w in zip(m.contexts, prepared.shrinkage, strict=True)},
        "runner_up": None
        if found.runner_up is None
        else {"order": [prepared.latents[i] for i in found.runner_up[0]], "gap": float(found.runner_up[1])},
    }
    return Fit(
        model, method, order, closure_graph(graph), graph, float(loglik), tuple(m.counts.tolist()),
        bool(best.optimum.converged), dict(options), details,
    )  # fmt: skip


def _warn(m: Moments, prepared: Prepared, best: Candidate) -> None:
    """What a user should know before believing the fit."""
    if not best.optimum.converged:
        warnings.warn(
            f"the likelihood could still grow by about {best.optimum.gain:.3g} nats when the optimiser stopped",
            NotConvergedWarning,
            stacklevel=4,
        )
    few = [(c, w) for c, w in zip(m.contexts, prepared.shrinkage, strict=True) if w > 0.5]
    if few:
        listed = ", ".join(f"{c!r} ({m.counts[m.index(c)]} samples)" for c, _ in few[:5])
        warnings.warn(
            f"more than half of the covariance of {len(few)} contexts is borrowed from the others: {listed}",
            FewSamplesWarning,
            stacklevel=4,
        )


def model_of_candidate(m: Moments, prepared: Prepared, best: Candidate) -> LatentModel:
    """The fitted model in features, rows in the order of the design."""
    design, latents, d = prepared.design, prepared.latents, prepared.design.d
    H, rows = best.optimum.H, best.optimum.rows
    mechanisms = design.mechanisms(best.parents)
    mean, offset = _latent_means(m, prepared, H, rows, mechanisms)
    changes: dict[int, dict[str, Change]] = {}
    for mechanism, row in zip(mechanisms[d:], rows[d:], strict=True):
        i, k = mechanism.latent, mechanism.context
        kind = prepared.kinds[m.contexts[k]]
        kind = "soft" if len(mechanism.parents) else "do" if kind == "do" else "perfect"
        shift = float(row @ (H @ prepared.means[k] - mean) / row[i])
        weights = {latents[j]: float(-row[j] / row[i]) for j in mechanism.parents} if kind == "soft" else None
        variance = 0.0 if kind == "do" else float(row[i] ** -2)
        changes.setdefault(k, {})[latents[i]] = Change(kind, variance, shift, weights)
    extra: dict[str, Any] = {}
    if H.shape[1] > d:
        extra = _complement(prepared, H)
    return LatentModel.from_structural(
        H @ prepared.W,
        rows[:d],
        latents=latents,
        interventions={m.contexts[k]: Intervention.of_changes(change) for k, change in sorted(changes.items())},
        control=m.control,
        feature_names=m.feature_names,
        offset=offset,
        **extra,
    )


def _latent_means(
    m: Moments, prepared: Prepared, H: Array, rows: Array, mechanisms: Sequence[Any]
) -> tuple[Array, Array]:
    """Mean of the latents in the control under the model (d,), and of the features there (p,).

    With means in use the noise of a latent has one mean in all contexts that leave it alone.
    """
    design = prepared.design
    if not prepared.means.any():
        return np.zeros(design.d), m.means[0]
    nu = np.empty(design.d)
    for i in range(design.d):
        alone = np.array([i not in hit for hit in design.hits])
        nu[i] = rows[i] @ H @ (design.n[alone] @ prepared.means[alone] / design.n[alone].sum())
    mean: Array = np.asarray(np.linalg.solve(rows[: design.d], nu), dtype=float)
    # features: regress on the latents about the grand mean, which all contexts share
    weight = design.n / design.n.sum()
    grand_features, grand = weight @ m.means, weight @ prepared.means
    loadings = _complement(prepared, H)["loadings"] if H.shape[1] > design.d else np.linalg.pinv(H @ prepared.W)
    return mean, grand_features + loadings @ (mean - H @ grand)


def _complement(prepared: Prepared, H: Array) -> dict[str, Array]:
    """Loadings and residual covariance of features that have more dimensions than there are latents."""
    S_bar = prepared.design.S_bar
    G = S_bar @ H.T @ np.linalg.inv(H @ S_bar @ H.T)
    residual = S_bar - G @ H @ S_bar
    back = np.linalg.pinv(prepared.W)  # whitened coordinates to features
    return {"loadings": back @ G, "residual": back @ residual @ back.T}


def _penalty(penalty: str | float, N: float) -> float:
    if penalty == "bic":
        return 0.5 * float(np.log(N))
    if penalty == "aic":
        return 1.0
    if isinstance(penalty, int | float) and penalty >= 0:
        return float(penalty)
    raise ValueError(f"penalty must be 'bic', 'aic' or a number of nats, got {penalty!r}")


def _reporter(progress: bool | None) -> Any:
    """Say on stderr where the search is, on one line that is cleared at the end."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return lambda stage: None

    def say(stage: str) -> None:
        sys.stderr.write(f"\r\x1b[Klatentdag fit: {stage}" if stage else "\r\x1b[K")
        sys.stderr.flush()

    return say


def evaluate_candidate(prepared: Prepared, H: Array, parents: Sequence[Any], order: tuple[int, ...]) -> Found:
    """A graph at given rows, not optimised: what the closed form returns."""
    H = unit_rows(prepared.design, H)
    at = evaluate(prepared.design, H, prepared.design.mechanisms(parents))
    if at is None:
        raise ContextError(0, "the closed form has no finite likelihood: the covariances are too near singular")
    optimum = Optimum(H, at.value, at.rows, float("nan"), True)
    return Found(Candidate(at.value, optimum, tuple(parents), order), (at.value,), None)
