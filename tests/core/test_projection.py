"""Algorithms 4–6: same decisions as a literal transcription, and the fractions the published code reaches."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentdag as ld
from latentdag.core.linalg import range_basis
from latentdag.core.projection import (
    _rank_one_at_level,
    identify_partial_order_finite_sample,
    iterative_difference_projection_finite_sample,
)
from latentdag.model.metrics import order_correct

from paths import BENCHMARKS
from strategies import models, seeds

sys.path.append(str(BENCHMARKS))
from literal import iterative_difference_projection_finite_sample as literal


@given(models(max_latents=7, min_latents=2), seeds, st.sampled_from([0.8, 0.99, 0.999]))
def test_same_answer_as_the_literal_transcription(truth, seed, gamma):
    m = ld.simulate.sample_moments(truth, 20_000, seed)
    found = ld.fit(m, method="projection", gamma=gamma)
    Theta = np.array([np.linalg.pinv(S, rcond=1e-11, hermitian=True) for S in m.covariances])
    H, B_0, target, order = literal(Theta, gamma)
    rows = [found.latents.index(found.targets[c]) for c in m.contexts[1:]]
    assert rows == target.tolist()
    names = found.latents
    assert {(names[j], names[i]) for i, j in np.argwhere(order)} == set(found.closure.edges)
    scale = np.linalg.cond(H) * 1e-9
    np.testing.assert_allclose(found.model.unmixing, H, atol=scale)
    np.testing.assert_allclose(found.model.structural(), B_0, atol=scale * np.abs(B_0).max())


@given(models(min_latents=2), seeds)
def test_consistent_on_exact_moments(truth, seed):
    """On exact moments H, B_0 and every λ are right; only the pruned closure depends on γ."""
    found = ld.fit(truth.moments(), method="projection", gamma=1.0 - 1e-9)
    model = found.model.reordered(truth.latents)
    np.testing.assert_allclose(model.unmixing, truth.unmixing, atol=1e-4)
    for context in truth.contexts:
        np.testing.assert_allclose(model.covariance(context), truth.covariance(context), rtol=1e-3, atol=1e-6)


@given(seeds, st.integers(1, 12), st.floats(0.5, 0.999))
def test_inertia_decides_rank_one_like_singular_values(seed, n, gamma):
    rng = np.random.default_rng(seed)
    w, border, corner = rng.normal(size=n) ** 3, rng.normal(size=(n, 5)) * 0.3, rng.normal(size=5)
    for i, decided in enumerate(_rank_one_at_level(w, border, corner, gamma)):
        M = np.block([[np.diag(w), border[:, [i]]], [border[:, [i]].T, corner[[i]][:, None]]])
        s = np.linalg.svd(M, compute_uv=False) ** 2
        if abs(s[0] / s.sum() - gamma) > 1e-12:
            assert decided == (s[0] / s.sum() >= gamma)


@given(models(max_latents=6, min_latents=2), seeds)
def test_partial_order_does_not_depend_on_the_order_of_contexts_or_features(truth, seed):
    """Algorithms 4 and 5 find the same rows in the same sequence; Algorithm 6 then hands them out context by context,
    as printed, so its assignment of rows may depend on the order of contexts."""
    m = ld.simulate.sample_moments(truth, 5_000, seed)
    U = range_basis(m.pooled_covariance())
    Theta = np.array([np.linalg.inv(U.T @ S @ U) for S in m.covariances])
    Delta = Theta[1:] - Theta[0]
    rng = np.random.default_rng(seed)
    contexts, turn = rng.permutation(len(Delta)), np.linalg.qr(rng.normal(size=Delta.shape[1:]))[0]
    Q, order = identify_partial_order_finite_sample(Delta, 0.99)
    Q_other, order_other = identify_partial_order_finite_sample(turn.T @ Delta[contexts] @ turn, 0.99)
    np.testing.assert_array_equal(order_other, order)
    np.testing.assert_allclose(np.abs(np.sum((Q_other @ turn.T) * Q, axis=1)), 1, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("convention", "n", "low", "high"),
    [("figures", 2_500, 0.55, 0.62), ("figures", 250_000, 0.97, 0.99), ("text", 2_500, 0.01, 0.05),
     ("text", 250_000, 0.70, 0.80)],
)  # fmt: skip
def test_order_is_right_as_often_as_in_the_published_code(convention, n, low, high):
    """500 models a cell; the published fractions, allowing three binomial standard errors on either side."""
    right = 0
    for s in range(500):
        rng = np.random.default_rng([2023, s])
        truth = ld.simulate.random_model(convention=convention, rng=rng)
        right += order_correct(truth, ld.fit(ld.simulate.sample_moments(truth, n, rng), method="projection"))
    slack = 3 * np.sqrt(right / 500 * (1 - right / 500) / 500)
    assert low - slack <= right / 500 <= high + slack


def test_gamma_makes_the_pruned_graph_inconsistent_but_not_the_unmixing():
    """With exact moments γ = 0.99 still gives the wrong closure in most of the paper's own models (docs/care.md)."""
    wrong = 0
    for s in range(50):
        truth = ld.simulate.random_model(rng=[5, s])
        found = ld.fit(truth.moments(), method="projection", gamma=0.99)
        closure = ld.posets.closure_graph(truth.graph)
        wrong += set(found.closure.edges) != set(closure.edges)
        np.testing.assert_allclose(found.model.reordered(truth.latents).unmixing, truth.unmixing, atol=1e-4)
    assert wrong > 40


@pytest.mark.parametrize("density", [0.05, 0.3, 0.75])
@pytest.mark.parametrize(("d", "p"), [(40, 40), (40, 60), (60, 60)])
def test_sizes_at_which_the_published_code_dies(d, p, density):
    """Either an answer or an error that names a context; never LinAlgError."""
    truth = ld.simulate.random_model(d, p, density=density, rng=d + p)
    m = ld.simulate.sample_moments(truth, 100_000, rng=1)
    outcome = None
    try:
        found = ld.fit(m, method="projection")
    except ValueError as error:  # LinAlgError is a ValueError too: look at what was said
        outcome = error
    if outcome is None:
        assert np.isfinite(found.model.unmixing).all()
    else:
        assert isinstance(outcome, ld.errors.ContextError)
        assert "context" in str(outcome)


def test_more_features_than_latents_of_full_rank():
    """The paper's own real-data setting: K = 10 contexts, p = 100 features of full rank, d = K."""
    rng = np.random.default_rng(3)
    truth = ld.simulate.random_model(10, 30, rng=rng)
    noise = 0.05 * np.eye(30)
    S = np.array([truth.covariance(c) + noise for c in truth.contexts])
    found = ld.fit(ld.Moments.from_covariances(S, 10_000, truth.contexts), method="projection")
    assert found.model.unmixing.shape == (10, 30)
    assert np.isnan(found.loglik), "ten latents give no density to thirty dimensions"


def test_one_context():
    truth = ld.simulate.random_model(1, 3, rng=0)
    found = ld.fit(ld.simulate.sample_moments(truth, 100, rng=0), method="projection")
    assert found.order == ("c1",)


def test_directions_that_coincide_are_named():
    Theta = np.array([np.eye(3), np.diag([2.0, 1, 1]), np.diag([3.0, 1, 1]), np.diag([1.0, 1, 5])])
    with pytest.raises(ld.errors.ContextError, match=r"context [12]: the direction found for it lies in the span"):
        iterative_difference_projection_finite_sample(Theta)
