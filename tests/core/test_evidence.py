"""Evidence for orders: what it says where the truth is known, and when it is not asked."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.integrate import trapezoid
from scipy.optimize import minimize

import latentdag as ld
from latentdag.core import evidence as module
from latentdag.core.evidence import order_evidence
from latentdag.core.graphs import perfect_rows
from latentdag.core.likelihood import evaluate
from latentdag.core.orders import fit_flag, full_parents
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.starts import given_start

from strategies import seeds


def prepared_truth(truth, m):
    prepared = prepare(m, ld.Options(means=False))
    return prepared, edge_rules(prepared, 3.0), *given_start(prepared, truth)


@given(seeds)
@settings(max_examples=3)
def test_on_exact_moments_a_true_order_has_most_evidence(seed):
    truth = ld.simulate.random_model(n_latents=4, n_features=4, density=0.7, rng=seed)
    prepared, rules, H, first = prepared_truth(truth, truth.moments(10**5))
    at = {name: i for i, name in enumerate(prepared.latents)}
    edges = [(at[j], at[i]) for j, i in truth.graph.edges]
    top = fit_flag(prepared.design, H, first).value
    right, wrong = [], [-np.inf]
    for order in itertools.permutations(range(4)):
        flag = fit_flag(prepared.design, H, order, at_least=top - 100)
        if flag is None:  # hopeless
            continue
        true = all(order.index(j) < order.index(i) for j, i in edges)
        (right if true else wrong).append(order_evidence(prepared.design, flag, rules))
    assert max(right) > max(wrong)


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
    flag = fit_flag(design, H, order)
    rows = perfect_rows(design, flag.H, order)
    at = evaluate(design, rows, design.mechanisms(full_parents(order))).rows
    estimate = -at[child, source] / at[source, source]
    grid = estimate + np.linspace(-0.3, 0.3, 41)
    start = np.array([0.0, 0.0, -np.log(at[source, source]), -np.log(at[child, child])])

    def profiled(weight):
        return -minimize(lambda x: -likelihood(design, rows, order, weight, x), start, method="BFGS").fun

    assert profiled(estimate) == pytest.approx(flag.value, abs=1e-3)
    likelihoods = np.exp([profiled(b) - flag.value for b in grid])
    density = likelihoods * sum(share * moment_prior(grid, tau) for tau, share in module.SIZES.items())
    assert max(density[0], density[-1]) < 1e-3 * max(density)
    absent = np.exp(profiled(0.0) - flag.value)
    exists = np.mean(module.DENSITIES)
    expected = np.log((1 - exists) * absent + exists * trapezoid(density, grid))
    assert order_evidence(design, flag, rules) - flag.value == pytest.approx(expected, abs=0.05)


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
