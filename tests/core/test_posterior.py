"""Probabilities of edges and relations: what they are on exact moments, and that rivals lower them."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import expit

import latentdag as ld
from latentdag.core.evidence import weigh
from latentdag.core.posterior import _draw_ancestors
from latentdag.core.search import search
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.starts import given_start

from strategies import seeds


def posterior_of(m, truth, **options):
    prepared = prepare(m, ld.Options(**options))
    rules = edge_rules(prepared, 0.5 * np.log(prepared.design.N))
    return prepared, search(prepared.design, [given_start(prepared, truth)], rules).posterior


@given(seeds)
@settings(max_examples=3)
def test_on_exact_moments_all_is_certain(seed):
    """Every edge and relation of the truth has probability one, every other zero."""
    truth = ld.simulate.random_model(5, 5, density=0.5, rng=seed)
    fit = ld.fit(truth.moments(10**6))
    known = {(u, v): p for u, v, p in fit.details["probability"]}
    assert {pair for pair, p in known.items() if p > 0.5} == set(truth.graph.edges)
    assert all(abs(p - (p > 0.5)) < 0.02 for p in known.values())
    assert set(fit.partial_order(0.95).edges) == set(nx.transitive_closure_dag(truth.graph).edges)
    assert fit.details["explored"]


@pytest.mark.parametrize("seed", range(3))
def test_few_samples_leave_both_directions_open(seed):
    """With 100 samples a context the two directions of an edge share one probability, and no relation goes both ways."""
    truth = ld.simulate.random_model(5, 5, density=0.5, convention="text", rng=[9, seed])
    _, posterior = posterior_of(ld.simulate.sample_moments(truth, 100, rng=seed), truth)
    P = posterior.edges
    assert ((P >= 0) & (P <= 1)).all()
    assert (P + P.T <= 1 + 1e-9).all()
    assert len(posterior.weighed) > 3
    joint = [p for _, _, p in posterior.relations]
    assert joint == sorted(joint, reverse=True)
    pairs = {(j, i) for j, i, _ in posterior.relations}
    assert not pairs & {(i, j) for j, i in pairs}
    rival = posterior.runner_up()
    assert rival is None or rival[1] >= 0


@pytest.mark.parametrize("seed", range(3))
def test_no_edge_is_surer_than_the_best_graph_without_it_allows(seed):
    """Where a search was cut off; and refits without an edge only ever lower what was estimated at the maximum."""
    truth = ld.simulate.random_model(5, 5, density=0.5, convention="text", rng=[9, seed])
    prepared, posterior = posterior_of(ld.simulate.sample_moments(truth, 100, rng=seed), truth)
    best, cut_off = posterior.best, replace(posterior, explored=False).edges
    for i, j in np.argwhere(best.present):
        without = max(one.evidence for one in posterior.weighed if not one.present[i, j])
        assert cut_off[i, j] <= expit(best.evidence - without)
    assert (cut_off <= replace(posterior, explored=True).edges).all()
    estimated = weigh(prepared.design, best.graph, edge_rules(prepared, 0.5 * np.log(prepared.design.N)))
    assert (best.odds <= estimated.odds + 1e-9)[:, best.present].all()


def test_the_answer_does_not_depend_on_the_order_of_contexts():
    truth = ld.simulate.random_model(5, 7, density=0.5, convention="text", rng=3)
    m = ld.simulate.sample_moments(truth, 200, rng=4)
    X, contexts = ld.simulate.sample(truth, 200, rng=4)
    shuffled = np.random.default_rng(0).permutation(len(X))
    first = ld.fit(ld.Moments.from_samples(X, contexts, control=m.control))
    second = ld.fit(ld.Moments.from_samples(X[shuffled][:, ::-1], np.asarray(contexts)[shuffled], control=m.control))
    a, b = ({(u, v): p for u, v, p in fit.details["probability"]} for fit in (first, second))
    assert all(a.get(pair, 0) == pytest.approx(b.get(pair, 0), abs=1e-3) for pair in a | b)
    assert set(first.partial_order(0.9).edges) == set(second.partial_order(0.9).edges)


def test_draws_have_the_ancestors_of_their_edges():
    """Drawn relations are closed, and as frequent as independent edges make them."""
    truth = ld.simulate.random_model(3, 3, density=1.0, convention="text", rng=1)
    _, posterior = posterior_of(ld.simulate.sample_moments(truth, 300, rng=1), truth)
    one = posterior.best
    drawn = _draw_ancestors(one, 4_000, np.random.default_rng(0))
    for a, b, c in itertools.permutations(range(3)):
        assert not (drawn[b, a] & drawn[c, b] & ~drawn[c, a]).any()
    first, second, _ = one.graph.order  # nothing lies between the first two
    assert drawn[second, first].mean() == pytest.approx(one.probability[second, first], abs=0.03)


def test_a_given_order_has_probabilities_of_its_edges_alone():
    truth = ld.simulate.random_model(4, 4, density=0.6, convention="text", rng=2)
    fit = ld.fit(ld.simulate.sample_moments(truth, 300, rng=2), order=list(nx.topological_sort(truth.graph)))
    position = {name: t for t, name in enumerate(fit.order)}
    assert all(position[u] < position[v] for u, v, _ in fit.details["probability"])
    given_graph = ld.fit(ld.simulate.sample_moments(truth, 300, rng=2), graph=truth.graph)
    assert (given_graph.edges()["probability"] == 1).all()
    assert set(given_graph.partial_order().edges) == set(nx.transitive_closure_dag(truth.graph).edges)


@pytest.mark.parametrize("seed", range(3))
def test_soft_interventions_leave_the_relation(seed):
    """Edges are open, who comes before whom is not: all true relations at 10,000 samples, and none that is false."""
    truth = ld.simulate.random_model(4, 4, density=0.6, kind="soft", rng=[4, seed])
    fit = ld.fit(ld.simulate.sample_moments(truth, 10_000, rng=seed), intervention="soft")
    order = fit.partial_order(0.95)
    assert set(order.edges) <= set(nx.transitive_closure_dag(truth.graph).edges)
    assert order.number_of_edges() >= 1
    assert fit.edges()["probability"].notna().all()  # that of the relation


def test_a_graph_that_is_not_settled_is_said_to_be_so():
    """By the verdict where more than one edge in ten is expected to be wrong, by a warning where one in three is."""
    truth = ld.simulate.random_model(5, 10, 0.5, "text", rng=2)
    fit = ld.fit(ld.simulate.sample_moments(truth, 200, rng=1))
    expected = fit.edges()["probability"].sum()
    assert fit.graph.number_of_edges() - expected > 1
    assert f"{expected:.1f} are expected to be right" in str(fit.verdict)
    assert ld.fit(truth.moments(10**5)).verdict.ok
    dense = ld.simulate.random_model(5, 5, 0.75, "text", rng=0)
    with pytest.warns(ld.errors.FewSamplesWarning, match="not settled"):
        ld.fit(ld.simulate.sample_moments(dense, 60, rng=0))
