"""One Jacobian of the model: its matrix, its fast product and its sparse form are the same, and right."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import latentdag as ld
from latentdag.core import jacobian
from latentdag.core.jacobian import (
    as_array,
    fitted_point,
    information,
    optimiser_point,
    outer_information,
    quadratic_form,
    scores,
    tangent,
)
from latentdag.core.likelihood import evaluate
from latentdag.core.newton import Curvature, outside_information, solve_dense, solve_iteratively
from latentdag.core.optimize import maximize
from latentdag.methods.design import prepare

from designs import DESIGNS, random_point
from strategies import seeds


def point_and_rng(name, seed=5, fits_means=False):
    """A random point of one kind of design, as the optimiser sees it or with means as parameters."""
    design, H, parents, rng = random_point(name, seed)
    mechanisms = design.mechanisms(parents)
    rows = evaluate(design, H, mechanisms).rows
    if not fits_means:
        return optimiser_point(design, mechanisms, rows, H), rng
    return fitted_point(design, mechanisms, rows, rng.normal(size=len(rows))), rng


def at(point, theta):
    """Noise rows (K+1, d, d) as multiples of M, and mean noises, of the model with parameters moved by theta."""
    d, E = point.d, int(point.free.sum())
    rows = point.rows.copy()
    rows[point.free] += theta[d * d : d * d + E]
    rows, tau = point.retied(rows), point.tau + theta[d * d + E :]
    H = point.B_inv + theta[: d * d].reshape(d, d)  # in units of M
    return rows[point.at_work] @ H, tau[point.at_work]


@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"do"}))
def test_the_tangent_map_is_the_derivative_of_the_moments(name):
    """Contexts' means and covariances in noise coordinates, by central differences."""
    point, _ = point_and_rng(name, fits_means=True)
    step, i, j = 1e-6, *np.triu_indices(point.d)
    F_0, tau_0 = at(point, np.zeros(point.size))
    columns = []
    for theta in step * np.eye(point.size):
        moved = []
        for s in (1, -1):
            F, tau = at(point, s * theta)
            back = F_0 @ np.linalg.inv(F)
            S = back @ back.swapaxes(1, 2)
            mean = np.einsum("kij,kj->ki", back, tau)
            # the tangent map counts precisions, whose sign is the other
            pairs = -S[:, i, j] * np.where(i == j, np.sqrt(0.5), 1.0)
            moved.append(np.sqrt(point.n)[:, None] * np.hstack([pairs, mean - tau_0]))
        columns.append((moved[0] - moved[1]).ravel() / (2 * step))
    J = tangent(point)
    np.testing.assert_allclose(J, np.array(columns).T, atol=1e-6 * np.abs(J).max())


@pytest.mark.parametrize("fits_means", [False, True])
@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"do"}))
def test_the_information_is_that_of_the_tangent_map_dense_or_sparse(name, fits_means, monkeypatch):
    point, rng = point_and_rng(name, fits_means=fits_means)
    J, total = tangent(point), information(point)
    np.testing.assert_allclose(total, J.T @ J, atol=1e-12 * total.max())
    z, w = rng.normal(size=(7, point.d)), rng.normal(size=(7, 2))
    k = int(point.context[-1])
    each = scores(point, k, z, w)
    monkeypatch.setattr(jacobian, "SMALL", 0)
    again = replace(point)
    assert not isinstance(quadratic_form(again), np.ndarray)
    np.testing.assert_allclose(tangent(again), J, atol=1e-12 * np.abs(J).max())
    np.testing.assert_allclose(information(again), total, atol=1e-12 * total.max())
    np.testing.assert_allclose(scores(again, k, z, w), each, atol=1e-12 * np.abs(each).max())


@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"do"}))
def test_the_fast_product_is_the_quadratic_form(name):
    point, rng = point_and_rng(name)
    V = rng.normal(size=point.rows.shape)
    expected = (as_array(quadratic_form(point)) @ V.ravel()).reshape(V.shape)
    found = np.concatenate(Curvature(point)(V[: point.d], V[point.d :]))
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"do"}))
def test_conjugate_gradients_find_the_step_of_the_matrix(name):
    """Up to the scale of each row of H, along which the likelihood is constant."""
    point, rng = point_and_rng(name)
    h = point.B_inv / np.linalg.norm(point.B_inv, axis=1, keepdims=True)
    gradient = rng.normal(size=h.shape)
    gradient -= np.einsum("ij,ij->i", gradient, h)[:, None] * h
    steps = [solve_dense(point, gradient), solve_iteratively(point, gradient, 1e-10, 2_000)]
    dense, iterative = (X - np.einsum("ij,ij->i", X, h)[:, None] * h for X in steps)
    np.testing.assert_allclose(iterative, dense, atol=1e-6 * np.abs(dense).max())


@pytest.mark.parametrize("name", sorted(set(DESIGNS) - {"do"}))
def test_the_expected_product_of_scores_is_the_information(name):
    """Gaussian samples, by numerical integration that is exact for polynomials of degree five (cubature)."""
    point, _ = point_and_rng(name, fits_means=True)
    d, total = point.d, np.zeros((point.size, point.size))
    # third-order Gauss–Hermite nodes have the moments of a Gaussian up to the fifth
    nodes, weights = np.sqrt(3) * np.array([-1, 0, 1]), np.array([1, 4, 1]) / 6
    grid = np.array(np.meshgrid(*[nodes] * d)).reshape(d, -1).T
    weight = np.prod(np.array(np.meshgrid(*[weights] * d)).reshape(d, -1), axis=0)
    for k, n in enumerate(point.n):
        at_work = point.at_work[k]
        each = scores(point, k, (grid + point.tau[at_work]) @ np.linalg.inv(point.rows[at_work]).T)
        each = each - weight @ each
        total += n * (each.T * weight) @ each
    expected = information(point)
    np.testing.assert_allclose(total, expected, atol=1e-10 * expected.max())


@pytest.mark.parametrize("name", ["combinations", "mean shifts"])
def test_directions_outside_the_latents_have_the_information_with_the_remainder_profiled_out(name):
    point, _ = point_and_rng(name, fits_means=True)
    d, B = point.d, point.rows[point.at_work]
    J = np.concatenate([B, np.linalg.inv(B).swapaxes(1, 2) @ point.B.T], axis=2)
    total = np.einsum("k,kai,kaj->ij", point.n, J, J)
    np.testing.assert_allclose(outer_information(replace(point, tau=None)), total, rtol=1e-9, atol=1e-9 * total.max())
    np.testing.assert_allclose(np.linalg.inv(outside_information(point)), np.linalg.inv(total)[:d, :d], rtol=1e-6)
    mean = np.einsum("kij,kj->ki", point.B @ np.linalg.inv(B), point.tau[point.at_work])
    total[d:, d:] += (mean.T * point.n) @ mean
    full = outer_information(point)
    np.testing.assert_allclose(full[:-1, :-1], total, rtol=1e-9, atol=1e-9 * total.max())
    np.testing.assert_allclose(full[-1], [*np.zeros(d), *(-point.n @ mean), point.n.sum()], atol=1e-9 * total.max())


@given(seeds)
@settings(max_examples=10)
def test_information_is_the_curvature_at_exact_moments(seed):
    """Expected equals observed information where the moments are exact; weights and variances profiled out of both."""
    truth = ld.simulate.random_model(n_latents=3, n_features=3, density=0.8, rng=seed)
    prepared = prepare(truth.moments(1000), ld.Options(means=False, shrinkage=False))
    rows = [truth.latents.index(name) for name in prepared.latents]
    H = truth.unmixing[rows] @ np.linalg.pinv(prepared.W)
    A = truth.weights[np.ix_(rows, rows)]
    parents = [np.flatnonzero(A[i]) for i in range(3)]
    mechanisms = prepared.design.mechanisms(parents)
    best = maximize(prepared.design, H, parents, gain_tol=1e-12)
    point = optimiser_point(prepared.design, mechanisms, best.rows, best.H)
    full, n_x = information(point), 9
    expected = full[:n_x, :n_x] - full[:n_x, n_x:] @ np.linalg.pinv(full[n_x:, n_x:]) @ full[n_x:, :n_x]
    M = point.B @ best.H
    X, h = np.random.default_rng(seed).normal(size=(3, 3)), 1e-4
    up, down = (evaluate(prepared.design, best.H + s * h * X @ M, mechanisms).gradient @ M.T for s in (1, -1))
    observed = -(up - down).ravel() / (2 * h)
    np.testing.assert_allclose(expected @ X.ravel(), observed, atol=2e-3 * np.abs(observed).max())
