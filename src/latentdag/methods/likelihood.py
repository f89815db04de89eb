"""Maximum likelihood with a search for order and graph: the default method."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from latentdag.core.context_error import ContextError
from latentdag.core.goodness import Goodness
from latentdag.core.graphs import FittedGraph, Rules, fit_graph, fit_pruned, perfect_rows
from latentdag.core.linalg import complement, independent_rows
from latentdag.core.orders import fit_flag
from latentdag.core.search import Found, Rival, climb_from, conclude
from latentdag.core.target_sets import ContextMoments
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples
from latentdag.methods.assembly import finish
from latentdag.methods.design import Prepared, edge_rules, prepare
from latentdag.methods.joint import joint_model, omnibus_of
from latentdag.methods.learn import Learn, Learned, learn_targets, looks_otherwise
from latentdag.methods.options import DEFAULT, Options
from latentdag.methods.result import Fit
from latentdag.methods.rivals import with_rivals
from latentdag.methods.starts import Start, context_pairs, given_start, make_starts
from latentdag.model.model import LatentModel
from latentdag.progress import Progress

#: p-value of one model for all contexts from which on a verdict says that the data refuse it.
REFUSED = 0.01

#: Share of a covariance that is borrowed from the other contexts above which the model is not tested.
BORROWED = 0.01

#: Nats beyond what noise explains that no better order near the one that was found makes up for.
HOPELESS = 300.0


def fit_likelihood(
    m: Moments,
    options: Options = DEFAULT,
    *,
    start: LatentModel | None = None,
    only_start: bool = False,
    n_jobs: int | None = None,
    progress: bool | None = None,
    data: Samples | None = None,
) -> Fit:
    """Fit by maximum likelihood.

    Parameters
    ----------
    m : Moments
    options : Options
        What to fit.
    start : LatentModel, optional
        One more start for the search.
    only_start : bool
        Search from ``start`` alone, at half the price: for data like those that it was fitted to, as in a bootstrap.
    n_jobs : int, optional
        Processes for the starts, as in joblib; the answer does not depend on it.
    progress : bool, optional
        A bar on stderr once the fit takes more than a few seconds; by default only where that is a terminal.
    data : (X, contexts), optional
        The samples behind the moments: with them a refusal of the model holds for any law of the noises.
    """
    if (
        options.means and not m.has_means
    ):  # means that all are the same carry no noise: they would count as a perfect fit
        options = replace(options, means=False)
    told, learned = options, None
    if options.targets == "learn" or isinstance(options.targets, Learn):
        options, learned = _learned(m, options)
    prepared = prepare(m, options)
    penalty = price_of_edge(options.penalty, prepared.design.N)
    priced = options.penalty != DEFAULT.penalty
    rules = edge_rules(prepared, penalty, options.forbidden, options.required, priced)
    starts = [] if only_start else make_starts(prepared, context_pairs(prepared), rules)
    if start is not None:
        starts.append(given_start(prepared, start))
    if learned is not None:
        rank = [learned.latents.index(name) for name in prepared.latents]
        order = tuple(prepared.latents.index(name) for name in learned.order)
        starts.insert(0, (learned.H[rank] @ np.linalg.pinv(prepared.W), order))
    starts = [(independent_rows(H), suggested) for H, suggested in starts]
    if options.graph is not None or options.order is not None:
        # a free search climbs past maxima in which the order that was given would hold these rows
        ends = [climb_from(prepared.design, start, rules) for start in starts]
        starts += [(end[0].H, end[0].order) for end in ends if end]
    if options.graph is not None:
        found = _fit_given_graph(prepared, starts, rules, nx.DiGraph(options.graph))
    elif options.order is not None:
        found = _fit_given_order(prepared, starts, rules, options.order)
    else:
        found = _search(prepared, starts, rules, n_jobs, progress, turn=not only_start)
    if found is None:
        raise ContextError(0, "no start has a finite likelihood: the covariances are too near singular")
    rivals: Mapping[str, Any] = {}
    if rules.rest and options.graph is None and options.order is None:
        found, rivals = with_rivals(prepared, found, rules)
    fit = finish(m, prepared, found, told, rules.penalty, rivals)
    fit = replace(fit, details={**fit.details, **_refusal(m, prepared, found, rules, options, data)})
    if learned is not None:
        return replace(fit, details={**fit.details, **learned.details})
    return replace(fit, details={**fit.details, **_targets_hint(m, prepared, found, options)})


def _learned(m: Moments, options: Options) -> tuple[Options, Learned]:
    """Return the options of a fit with the targets that the data show, and how they were found."""
    asked = options.targets if isinstance(options.targets, Learn) else Learn()
    for name in ("graph", "order", "forbidden", "required"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"{name} names latents, and targets='learn' has yet to find them: fit the targets it finds"
            )
    if options.strength is not None:
        raise ValueError("strengths are of known targets: learn the targets first, then fit with those and strength=")
    if options.unintervened == "upstream":
        raise ValueError("targets='learn' takes unintervened='downstream' only: give the targets to ask for 'upstream'")
    one = replace(options, targets=dict.fromkeys(m.contexts[1:], "any"))  # which latent is which does not matter here
    prepared = prepare(m, one)
    kinds = prepared.kinds
    if "do" in kinds.values():
        raise ValueError("targets='learn' takes perfect and soft interventions: give the targets of a do-intervention")
    design = prepared.design
    data = ContextMoments(design.n, design.S, prepared.about_control, design.means)
    soft = [kinds[c] == "soft" for c in m.contexts[1:]]
    learned = learn_targets(m.contexts[1:], data, soft, price_of_edge(options.penalty, design.N), asked, design.noisy)
    if learned is None:
        raise ValueError(
            "no context differs from the control, so there are no latents to learn: see latentdag.changed(m), or give "
            "the targets to fit them all the same"
        )
    settled: dict[str, Any] = {"targets": learned.targets}
    if prepared.reduction is not None:
        settled |= {
            "noise": options.noise if options.noise != "auto" else "features",
            "n_latents": prepared.reduction.r,
        }
    elif options.noise == "auto":
        settled["noise"] = "none"
    return replace(options, **settled), replace(learned, H=learned.H @ prepared.W)


def _targets_hint(m: Moments, prepared: Prepared, found: Found, options: Options) -> dict[str, Any]:
    """Return the contexts that look as if they hit several latents, or one that others hit, if none were given."""
    design, d = prepared.design, prepared.design.d
    if options.targets is not None or design.noisy is not None or any(design.soft) or "do" in prepared.kinds.values():
        return {}
    M = found.best.optimum.rows[:d] @ found.best.optimum.H
    data = ContextMoments(design.n, design.S, prepared.about_control, design.means)
    M = np.vstack([M, complement((M @ data.about[0]).T).T])
    contexts = looks_otherwise(M, data, list(design.hits[1:]))
    return {"targets_hint": [lb.text_names(m.contexts[1:])[k] for k in contexts]} if contexts else {}


def _refusal(
    m: Moments, prepared: Prepared, found: Found, rules: Rules, options: Options, data: Samples | None
) -> dict[str, Any]:
    """Return how far off one model for all contexts is, if these data refuse it, and nothing if they do not.

    Nor where nothing can be told: with few samples covariances are borrowed from other contexts, and what is set to a
    value has no density.
    """
    best = found.best
    if prepared.shrinkage.max() > BORROWED or "do" in prepared.kinds.values():
        return {}
    given = options.graph is not None or options.order is not None
    permit = (lambda order: order == best.order) if given else rules.permit

    def settled(found: Goodness) -> bool:
        return found.p_value > REFUSED or found.nats > 0.5 * found.expected + HOPELESS

    joint = joint_model(m, prepared, best.optimum.H, best.order, permit, settled)
    if joint is None or joint.found.p_value > REFUSED:
        return {}
    test = omnibus_of(joint, data)
    if not test.p_value <= REFUSED:
        return {}
    return {"refusal": {"p_value": test.p_value, "gaussian": not test.robust, "size": test.size}}


def _search(
    prepared: Prepared,
    starts: Sequence[Start],
    rules: Rules,
    n_jobs: int | None,
    progress: bool | None,
    turn: bool,
) -> Found | None:
    """Climb from every start, in any number of processes, and weigh what they lead to."""
    ends = []
    parallel = Parallel(n_jobs=min(n_jobs, len(starts)) if n_jobs else n_jobs, return_as="generator")
    with Progress("latentdag fit", len(starts) + 1, show=progress) as bar:
        bar.say("search")
        for end in parallel(delayed(climb_from)(prepared.design, start, rules, warm=not turn) for start in starts):
            ends.append(end)
            bar.advance()
        bar.say("edges")
        return conclude(prepared.design, ends, rules, turn)


def _fit_given_graph(prepared: Prepared, starts: Sequence[Start], rules: Rules, graph: nx.DiGraph) -> Found | None:
    """Fit one graph from every start, and return the best."""
    latents = prepared.latents
    if set(graph.nodes) - set(latents):
        raise ValueError(f"the graph's nodes must be among the latents {latents}, got {sorted(graph.nodes)}")
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError("the graph has a cycle")
    full: nx.DiGraph = nx.DiGraph()
    full.add_nodes_from(latents)
    full.add_edges_from(graph.edges)
    for i in rules.rest:
        full.add_edges_from((latents[i], name) for j, name in enumerate(latents) if j not in rules.rest)
    parents = [np.array(sorted(latents.index(p) for p in full.predecessors(i)), dtype=np.intp) for i in latents]
    order = tuple(latents.index(name) for name in nx.lexicographical_topological_sort(full))
    order = rules.rest + tuple(i for i in order if i not in rules.rest)
    found = []
    for H, _ in starts:
        flag = fit_flag(prepared.design, H, order)
        rows = [H] if flag is None else [perfect_rows(prepared.design, flag.H, order), H]
        found += [fit_graph(prepared.design, each, parents, order, rules) for each in rows]
    return _best(found)


def _fit_given_order(prepared: Prepared, starts: Sequence[Start], rules: Rules, names: Sequence[str]) -> Found | None:
    """Search the edges of one order from every start: fit the full order, prune, refit."""
    targeted = [name for i, name in enumerate(prepared.latents) if i not in rules.rest]
    if sorted(names) != sorted(targeted):
        raise ValueError(f"the order must list each latent once: {targeted}, got {list(names)}")
    order = rules.rest + tuple(prepared.latents.index(name) for name in names)
    if not rules.permit(order):
        raise ValueError("the order contradicts a required edge")
    rules = replace(rules, allowed=rules.allowed & (np.argsort(order) < np.argsort(order)[:, None]))
    ends = []
    for H, _ in starts:
        flag = fit_flag(prepared.design, H, order)
        rows = perfect_rows(prepared.design, H if flag is None else flag.H, order)
        pruned = fit_pruned(prepared.design, rows, order, rules)
        ends.append([] if pruned is None else [Rival.of_graph(pruned)])
    return conclude(prepared.design, ends, rules, turn=False)


def _best(found: Iterable[FittedGraph | None]) -> Found | None:
    kept = [graph for graph in found if graph is not None]
    if not kept:
        return None
    return Found(max(kept, key=lambda c: c.score), tuple(c.score for c in kept))


def price_of_edge(penalty: str | float, N: float) -> float:
    """Return the nats that an edge must be worth."""
    if isinstance(penalty, str):
        return 0.5 * float(np.log(N)) if penalty == "bic" else 1.0
    return penalty
