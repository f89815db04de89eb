"""The likelihood of latents seen through noise: gradient, information, and the factor step, on exact moments."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import wishart

import latentdag as ld
from latentdag.core.factors import FactorProblem, noise_precision
from latentdag.core.jacobian import quadratic_form, tangent
from latentdag.core.likelihood import Noise, Noisy, make_design
from latentdag.core.noisy import State, gradient, information_factor, initial_state, noisy_point, slope
from latentdag.core.optimize import maximize


def random_state(seed, d, r, soft, means):
    """A design with noise, mechanisms of a full order, and a state at which nothing is special."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d + 1, r, 2 * r))
    S = A @ A.transpose(0, 2, 1) / (2 * r)
    mu = rng.standard_normal((d + 1, r)) if means else None
    about = S + mu[:, :, None] * mu[:, None] if means else S
    hits = [(), *((i,) for i in range(d))]
    design = make_design(rng.integers(50, 500, d + 1), S, about, mu, hits, [False, *[soft] * d], d)
    directions = 0.05 * rng.standard_normal((3, r, r))
    noise = Noise(
        np.array([0.2 * B @ B.T / r for B in rng.standard_normal((d + 1, r, r))]),
        directions + directions.transpose(0, 2, 1),
        np.diag([2.0, 3.0, 5.0]),
    )
    design = replace(design, noisy=Noisy(S, noise))
    mechanisms = design.mechanisms([np.arange(i, dtype=np.intp) for i in range(d)])
    state = initial_state(design, rng.standard_normal((d, r)), mechanisms)
    tau = None if state.tau is None else state.tau + 0.1 * rng.standard_normal(len(state.tau))
    return design, mechanisms, State(state.H, state.rows, tau, 0.1 * rng.standard_normal(3))


CASES = [(3, 3, False, True), (3, 4, False, True), (3, 3, True, False), (2, 4, True, True)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_gradient(seed, case):
    design, mechanisms, state = random_state(seed, *case)
    point = noisy_point(design, mechanisms, state)
    found = gradient(point, slope(design, state, point))

    def value(step):
        moved = state.moved(point, step)
        return slope(design, moved, noisy_point(design, mechanisms, moved)).value

    h = 1e-6
    expected = [(value(h * e) - value(-h * e)) / (2 * h) for e in np.eye(point.size)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(found).max())


@pytest.mark.parametrize("case", CASES)
def test_information_is_minus_the_expected_curvature(case, monkeypatch):
    """At moments that the state explains exactly, the curvature of the likelihood is its expectation."""
    monkeypatch.setattr("latentdag.core.noisy.HIDING", 0.0)  # of the likelihood alone
    design, mechanisms, state = random_state(7, *case)
    point = noisy_point(design, mechanisms, state)
    noise = design.noisy.noise
    F = np.linalg.inv(state.rows[point.at_work] @ state.H)
    S = F @ F.transpose(0, 2, 1) + noise.N + np.tensordot(state.nu, noise.directions, axes=1)
    means = None if state.tau is None else np.einsum("kij,kj->ki", F, state.tau[point.at_work])
    exact = replace(design, noisy=Noisy(S, noise), means=means)

    def slopes(step):
        moved = state.moved(point, step)
        there = noisy_point(exact, mechanisms, moved)
        at = slope(exact, moved, there)
        # in the parameters of the first point: the first map at a moved point differs by what multiplies a zero slope
        return gradient(there, at)

    at_rest = slopes(np.zeros(point.size))
    prior = np.zeros(point.size)
    prior[-3:] = -noise.precision @ state.nu
    np.testing.assert_allclose(at_rest, prior, atol=1e-8 * design.N)
    h = 1e-5
    curvature = np.array([(slopes(h * e) - slopes(-h * e)) / (2 * h) for e in np.eye(point.size)])
    P = point.rows_by_parameters
    information = P.T @ quadratic_form(point) @ P
    np.testing.assert_allclose(-curvature, information, atol=2e-5 * np.abs(information).max())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("extra", [1, 2, 6])
def test_factors_are_exact_on_exact_moments(seed, extra):
    """One feature more than latents is enough: noise and span are those of the model."""
    rng = np.random.default_rng(seed)
    model = ld.simulate.random_model(4, 4 + extra, convention="text", rng=rng)
    psi = rng.uniform(0.2, 1.0, 4 + extra)
    S = np.array([model.covariance(c) for c in model.contexts]) + np.diag(psi)
    scale = np.sqrt(np.diagonal(S.mean(axis=0)))
    n = rng.uniform(100, 1000, 5)
    problem = FactorProblem(n, S / scale[:, None] / scale, np.zeros_like(S[0]))
    found = problem.polish(problem.fit(4, tolerance=1e-8))
    np.testing.assert_allclose(found.psi * scale**2, psi, rtol=1e-7)
    G = model.mixing / np.sqrt(psi)[:, None]
    outside = G - found.Q @ (found.Q.T @ G)
    assert np.abs(outside).max() < 1e-7 * np.abs(G).max()


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_known_as_well_as_its_precision_says(seed):
    """Over draws, log ψ varies as the precision says (200 draws: a variance is known to 10 %)."""
    rng = np.random.default_rng(seed)
    model = ld.simulate.random_model(2, 5, convention="text", rng=rng)
    psi, n = rng.uniform(0.3, 1.0, 5), np.array([40_000.0, 20_000.0, 30_000.0])
    true = np.array([model.covariance(c) for c in model.contexts]) + np.diag(psi)
    logs = []
    for _ in range(200):
        S = np.array([wishart.rvs(k, s / k, random_state=rng) for s, k in zip(true, n, strict=True)])
        logs.append(np.log(FactorProblem(n, S, np.zeros((5, 5))).fit(2).psi))
    Q, R = np.linalg.qr(model.mixing / np.sqrt(psi)[:, None])
    C = np.array([R @ model.law(c).latent_covariance @ R.T for c in model.contexts])
    precision, _, _ = noise_precision(n, Q, C, np.zeros((2, 2)))
    expected = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    np.testing.assert_allclose(np.std(logs, axis=0), expected, rtol=0.3)
    assert np.abs(np.mean(logs, axis=0) - np.log(psi)).max() < 4 * expected.max() / np.sqrt(200) + 0.02


@pytest.mark.parametrize("case", CASES)
def test_tangent_is_a_root_of_the_information(case):
    design, mechanisms, state = random_state(11, *case)
    point = noisy_point(design, mechanisms, state)
    J, P = tangent(point), point.rows_by_parameters
    information = P.T @ quadratic_form(point) @ P
    np.testing.assert_allclose(J.T @ J, information, atol=1e-10 * np.abs(information).max())


@pytest.mark.parametrize("seed", range(3))
def test_a_variance_that_is_likeliest_at_zero_ends_the_climb(seed):
    """One latent does not vary at all in its own context, and the climb arrives all the same."""
    rng = np.random.default_rng(seed)
    d, N = 3, 0.3 * np.eye(3)
    B = np.eye(d) - np.tril(rng.uniform(0.5, 1.0, (d, d)), -1)
    C = [np.linalg.inv(B.T @ B)]
    for i in range(d):
        B_k, scale = B.copy(), np.ones(d)
        B_k[i], scale[i] = np.eye(d)[i], 0.0 if i == 1 else 2.0
        response = np.linalg.inv(B_k) * scale
        C.append(response @ response.T)
    S = np.array([wishart(500, (each + N) / 500).rvs(random_state=rng) for each in C])
    hits = [(), *((i,) for i in range(d))]
    beneath = np.array([each + 1e-3 * np.eye(d) for each in C])
    design = make_design(np.full(d + 1, 500), beneath, beneath, None, hits, [False] * (d + 1), d)
    noise = Noise(np.repeat(N[None], d + 1, axis=0), np.zeros((0, d, d)), np.zeros((0, 0)))
    found = maximize(replace(design, noisy=Noisy(S, noise)), np.eye(d), [np.arange(i, dtype=np.intp) for i in range(d)])
    assert found.converged
    np.testing.assert_allclose(found.rows[1, 0] / found.rows[1, 1], B[1, 0], atol=0.3)


def test_rotations_of_what_no_context_targets_do_not_stretch_the_coordinates():
    """They change no law, and in the optimiser's coordinates they are as long as other steps."""
    design, mechanisms, state = random_state(0, 2, 5, False, False)
    point = noisy_point(design, mechanisms, state)
    scale, L = information_factor(point)
    X = np.zeros((5, 5))
    X[2:, 2:] = np.array([[0, 1, 2], [-1, 0, 3], [-2, -3, 0]])
    turn = point.pack(X[None])[0]
    assert np.abs(tangent(point) @ turn).max() < 1e-9
    assert np.linalg.norm(L.T @ (scale * turn)) > 0.1 * np.linalg.norm(scale * turn)
