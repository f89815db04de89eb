"""What edges would weigh and gain, without refitting, and the moves that trust it."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

import latentdag as ld
from latentdag.core.edge_estimates import edge_estimates
from latentdag.core.evidence import weigh
from latentdag.core.graphs import fit_graph
from latentdag.core.posterior import Explorer, order_with_edge
from latentdag.core.search import search
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.starts import given_start

from designs import DESIGNS
from strategies import seeds


def fitted_truth(truth, n, seed, **options):
    """Design, rules and the maximum for the true graph."""
    prepared = prepare(ld.simulate.sample_moments(truth, n, rng=seed), ld.Options(**options))
    rules = edge_rules(prepared, 0.5 * np.log(prepared.design.N))
    names = {truth.targets[c]: prepared.latents[rows[0]] for c, rows in contexts_of_one(truth, prepared)}
    H, order = given_start(prepared, truth.renamed(names))
    graph = nx.relabel_nodes(truth.graph, names)
    at = {name: i for i, name in enumerate(prepared.latents)}
    parents = [np.array(sorted(at[j] for j in graph.predecessors(i)), dtype=np.intp) for i in prepared.latents]
    return prepared.design, rules, fit_graph(prepared.design, H, parents, order, rules)


def contexts_of_one(truth, prepared):
    pairs = zip(["control", *truth.interventions], prepared.design.hits, strict=True)
    return [(context, rows) for context, rows in pairs if len(rows) == 1]


def toggled(design, best, rules, i, j):
    parents = list(best.parents)
    parents[i] = np.setxor1d(parents[i], [j]).astype(np.intp)
    order = order_with_edge(best.order, best.parents, i, j)
    return fit_graph(design, best.optimum.H, parents, order, rules)


def acyclic(best):
    """(d, d) which absent edges close no cycle."""
    d = len(best.parents)
    return np.array(
        [
            [i != j and j not in best.parents[i] and order_with_edge(best.order, best.parents, i, j) is not None
             for j in range(d)]
            for i in range(d)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["one context per latent", "several contexts per latent", "combinations", "mean shifts", "partial"]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_worth_is_what_a_refit_gains_or_loses(name, seed):
    """Absent edges, worth next to nothing, and present ones that are weak at this sample size."""
    truth, options = DESIGNS[name]
    design, rules, best = fitted_truth(truth, 20_000, seed, **options)
    absent = acyclic(best)
    estimates = edge_estimates(design, best, absent)
    worth = estimates.gain
    assert absent.any()
    for i, j in np.argwhere(absent):
        with_it = toggled(design, best, rules, i, j)
        gained = with_it.score + rules.penalty - best.score
        assert worth[i, j] == pytest.approx(gained, rel=0.1, abs=0.05)
        rows = with_it.optimum.rows
        assert estimates.weight[i, j] == pytest.approx(-rows[i, j] / rows[i, i], rel=0.2, abs=3e-3)
    for i, parents in enumerate(best.parents):
        for j in parents:
            lost = best.score + rules.penalty - toggled(design, best, rules, i, j).score
            if lost < 300:  # far from the maximum the likelihood is no parabola
                assert worth[i, j] == pytest.approx(lost, rel=0.25)


@given(seeds)
def test_an_edge_finds_its_order_or_closes_a_cycle(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 9))
    order = tuple(int(i) for i in rng.permutation(d))
    parents = [np.array([], dtype=np.intp)] * d
    for t, i in enumerate(order):
        parents[i] = np.sort(np.array([j for j in order[:t] if rng.random() < 0.3], dtype=np.intp))
    i, j = (int(x) for x in rng.choice(d, 2, replace=False))
    graph = nx.DiGraph((int(a), b) for b, mine in enumerate(parents) for a in mine)
    graph.add_edge(j, i)
    found = order_with_edge(order, parents, i, j)
    assert (found is None) == (not nx.is_directed_acyclic_graph(graph))
    if found is not None:
        assert sorted(found) == list(range(d))
        assert all(found.index(a) < found.index(b) for a, b in graph.edges)


@pytest.mark.parametrize("seed", range(4))
def test_missing_and_superfluous_edges_are_mended(seed):
    """From a graph with two edges missing, one of them against the order now, and two too many: back to the best."""
    truth = ld.simulate.random_model(n_latents=12, n_features=12, density=0.25, rng=[21, seed])
    design, rules, best = fitted_truth(truth, 5_000, seed)
    explorer = Explorer(design, rules)
    one = explorer.enter(best)
    best = one.graph
    rng, damaged = np.random.default_rng(seed), best
    for i, j in rng.permutation([(i, j) for i, mine in enumerate(best.parents) for j in mine])[:2]:
        damaged = toggled(design, damaged, rules, i, j)
    for i, j in rng.permutation(np.argwhere(acyclic(damaged)))[:2]:
        if order_with_edge(damaged.order, damaged.parents, i, j) is not None:
            damaged = toggled(design, damaged, rules, i, j)
    assert damaged.score < best.score - 1
    explorer = Explorer(design, rules)
    explorer.enter(damaged)
    explorer.turn()  # a missing edge may come back in the wrong direction first
    assert explorer.best.evidence > one.evidence - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("convention", ["figures", "text"])
def test_no_start_is_better_than_ours_at_eleven_latents(convention):
    """The fit started at the truth is no better: two models, density .3, 2,500 samples a context."""
    for seed in range(2):
        rng = np.random.default_rng([31, seed])
        truth = ld.simulate.random_model(11, 11, density=0.3, convention=convention, rng=rng)
        m = ld.simulate.sample_moments(truth, 2_500, rng)
        prepared = prepare(m)
        rules = edge_rules(prepared, 0.5 * np.log(prepared.design.N))
        from_truth = search(prepared.design, [given_start(prepared, truth)], rules).posterior.best
        fit = ld.fit(m)
        ours = weigh(prepared.design, fitted_in_core(fit, prepared, rules), rules)
        assert ours.evidence > from_truth.evidence - 0.5


def fitted_in_core(fit, prepared, rules):
    """The graph of a fit in the core's units."""
    model = fit.model.reordered(prepared.latents)
    parents = [np.flatnonzero(row) for row in model.weights]
    order = tuple(prepared.latents.index(name) for name in fit.order)
    return fit_graph(prepared.design, model.unmixing @ np.linalg.pinv(prepared.W), parents, order, rules)
