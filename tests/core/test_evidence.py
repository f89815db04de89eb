"""Evidence for graphs: what it says where the truth is known, and that it is the integral it claims to be."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.integrate import trapezoid
from scipy.optimize import minimize
from scipy.special import logit

import latentdag as ld
from latentdag.core import evidence as module
from latentdag.core.evidence import weigh
from latentdag.core.graphs import fit_graph, perfect_rows
from latentdag.core.orders import fit_flag, full_parents
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.starts import given_start

from strategies import seeds


def prepared_truth(truth, m):
    prepared = prepare(m, ld.Options(means=False))
    return prepared, edge_rules(prepared, 3.0), *given_start(prepared, truth)


@given(seeds)
@settings(max_examples=3)
def test_on_exact_moments_the_true_graph_has_most_evidence_of_all(seed):
    """Three latents, all 25 DAGs."""
    truth = ld.simulate.random_model(n_latents=3, n_features=3, density=0.7, rng=seed)
    prepared, rules, H, _ = prepared_truth(truth, truth.moments(10**5))
    weighed = {}
    pairs = list(itertools.permutations(prepared.latents, 2))
    for edges in itertools.chain.from_iterable(itertools.combinations(pairs, r) for r in range(4)):
        graph = nx.DiGraph(edges)
        graph.add_nodes_from(prepared.latents)
        if nx.is_directed_acyclic_graph(graph):
            fitted = fit(prepared, H, graph, rules)
            weighed[frozenset(edges)] = -np.inf if fitted is None else weigh(prepared.design, fitted, rules).evidence
    assert len(weighed) == 25
    assert max(weighed, key=weighed.get) == frozenset(truth.graph.edges)


def fit(prepared, H, graph, rules):
    at = {name: i for i, name in enumerate(prepared.latents)}
    parents = [np.array(sorted(at[j] for j in graph.predecessors(i)), dtype=np.intp) for i in prepared.latents]
    order = tuple(at[name] for name in nx.topological_sort(graph))
    flag = fit_flag(prepared.design, H, order)
    return fit_graph(prepared.design, perfect_rows(prepared.design, flag.H, order), parents, order, rules)


@given(seeds)
@settings(max_examples=5)
def test_odds_of_an_edge_are_the_ratio_of_two_evidences(seed):
    """Given the rest of the graph, for edges that are there and edges that are not."""
    truth = ld.simulate.random_model(n_latents=4, n_features=4, density=0.5, rng=seed)
    prepared, rules, H, _ = prepared_truth(truth, ld.simulate.sample_moments(truth, 20_000, rng=seed))
    one = weigh(prepared.design, fit(prepared, H, truth.graph, rules), rules)
    odds = logit(one.probability)
    for i, j in np.argwhere((one.present | one.possible) & (np.abs(odds) < 20)):
        graph = truth.graph.copy()
        edge = prepared.latents[j], prepared.latents[i]
        (graph.remove_edge if one.present[i, j] else graph.add_edge)(*edge)
        other = weigh(prepared.design, fit(prepared, H, graph, rules), rules)
        sign = 1 if one.present[i, j] else -1
        rival = np.log1p(np.exp(odds[j, i])) if one.possible[j, i] else 0.0
        assert odds[i, j] + rival == pytest.approx(sign * (one.evidence - other.evidence), rel=0.2, abs=0.3)


@pytest.mark.parametrize("n", [100, 10**4])  # with 50 the edge is worth 2.74 nats, and its price is 2.76
def test_weights_that_are_exactly_zero(n):
    """Not a warning from a division, and the one edge there is."""
    contexts = {f"k{i}": ld.Intervention(f"z{i}", variance=2.0 + i) for i in range(4)}
    weights = np.zeros((4, 4))
    weights[0, 1] = 0.8
    truth = ld.LatentModel(np.eye(4), weights, np.ones(4), contexts, [f"z{i}" for i in range(4)])
    assert list(ld.fit(truth.moments(n), shrinkage=False).graph.edges) == [("k1", "k0")]


def test_the_weight_is_integrated_out():
    """Two latents: the evidence is the integral, over the prior of the one weight, of the likelihood profiled in H."""
    truth = ld.LatentModel(
        np.eye(2),
        [[0, 0], [0.1, 0]],
        [1, 1],
        {"a": ld.Intervention("a", variance=0.2), "b": ld.Intervention("b", variance=3.0)},
        ["a", "b"],
    )
    prepared, rules, H, order = prepared_truth(truth, ld.simulate.sample_moments(truth, 2_000, rng=0))
    design, (source, child) = prepared.design, order
    fitted = fit_graph(design, H, full_parents(order), order, rules)
    rows, value, at = fitted.optimum.H, fitted.optimum.value, fitted.optimum.rows
    estimate = -at[child, source] / at[source, source]
    grid = estimate + np.linspace(-0.3, 0.3, 41)
    start = np.array([0.0, 0.0, -np.log(at[source, source]), -np.log(at[child, child])])

    def profiled(weight):
        return -minimize(lambda x: -likelihood(design, rows, order, weight, x), start, method="BFGS").fun

    assert profiled(estimate) == pytest.approx(value, abs=1e-3)
    likelihoods = np.exp([profiled(b) - value for b in grid])
    density = likelihoods * sum(share * moment_prior(grid, tau) for tau, share in module.SIZES.items())
    assert max(density[0], density[-1]) < 1e-3 * max(density)
    exists = np.mean(module.DENSITIES)
    one = weigh(design, fitted, rules)
    assert one.evidence - value == pytest.approx(np.log(exists * trapezoid(density, grid)), abs=0.05)
    absent = (1 - exists) * np.exp(profiled(0.0) - value)
    present = exists * trapezoid(density, grid)
    assert one.probability[child, source] == pytest.approx(present / (present + absent), abs=0.02)


def moment_prior(weight, tau):
    """Integrates to one; zero at zero."""
    return (weight / tau) ** 2 * np.exp(-0.5 * (weight / tau) ** 2) / np.sqrt(2 * np.pi) / tau


def likelihood(design, rows, order, weight, x):
    """With the weight of source → child in noise units given; x moves the two rows and says both noises' size."""
    source, child = order
    H, s, c = rows.copy(), np.exp(x[2]), np.exp(x[3])
    H[child] = rows[child] + x[0] * rows[source]
    H[source] = rows[source] + x[1] * rows[child]
    value = 0.5 * design.N * np.linalg.slogdet(H @ design.S_bar @ H.T)[1]
    for k, hit in enumerate(design.hits):
        for i in hit:
            value -= 0.5 * design.n[k] * np.log(H[i] @ design.S[k] @ H[i])
    residual = H[child] - weight * c / s * H[source]
    for i, row, size in ((source, H[source], s), (child, residual, c)):
        value -= 0.5 * design.n_minus[i] * (2 * np.log(size) + row @ design.S_minus[i] @ row / size**2 - 1)
    return value
