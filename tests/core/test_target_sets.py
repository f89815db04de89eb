"""Target sets: the likelihood without an order, its gradient, and what exact moments tell."""

import numpy as np
import pytest

from latentdag.core.order_free import OrderFree
from latentdag.core.target_search import log_prior, starting_rows
from latentdag.core.target_sets import (
    ContextMoments,
    _disjoint_planes,
    best_sets,
    climb_rows,
    columns,
    find_sets,
    prices,
    spread_rows,
)


def moments(sets, d, seed, n=10_000, soft=False):
    """Return exact moments where the control is white, the noise rows M and the rows H of a random model."""
    rng = np.random.default_rng(seed)
    A = np.tril(rng.uniform(0.4, 1, (d, d)) * rng.choice([-1, 1], (d, d)), -1)
    G = rng.standard_normal((d, d))
    B = np.eye(d) - A
    white = np.linalg.inv(np.linalg.cholesky(G @ np.linalg.inv(B.T @ B) @ G.T))
    S = [np.eye(d)]
    for k, targets in enumerate(sets):
        B_k = B.copy()
        for i in targets:
            B_k[i] = 0.3 * B[i] if soft else 0.0
            B_k[i, i] = 0.3 + 0.1 * k
        L = white @ G @ np.linalg.inv(B_k)
        S.append(L @ L.T)
    H = np.linalg.inv(white @ G)
    return ContextMoments(np.full(len(S), float(n)), np.array(S), np.array(S), None), B @ H, H


def matrix(sets, d):
    return np.array([[i in targets for i in range(d)] for targets in sets])


SETS = [(0,), (1,), (2, 3), (3,), (0, 2), ()]


def test_the_gradient_is_that_of_the_likelihood():
    data, M, _ = moments(SETS, 4, 0)
    hit = matrix(SETS, 4)
    alone = np.tensordot((data.n[:, None] * ~np.vstack([np.zeros((1, 4), bool), hit])).T, data.S, axes=1)
    likelihood = OrderFree(alone, data.S[1:], data.n, hit)
    rng = np.random.default_rng(1)
    M = M + 0.1 * rng.standard_normal(M.shape)
    _, gradient = likelihood(M)
    for _ in range(3):
        E, step = rng.standard_normal(M.shape), 1e-6
        ahead, behind = (likelihood(M + sign * step * E @ M)[0] for sign in (1, -1))
        assert (ahead - behind) / (2 * step) == pytest.approx(np.vdot(gradient, E), rel=1e-5)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_true_noise_rows_are_a_maximum_and_show_the_targets(seed, soft):
    data, M, _ = moments(SETS, 4, seed, soft=soft)
    hit = matrix(SETS, 4)
    assert (best_sets(data, M, prices(data), 4, 4) == hit).all()
    _, at_truth = climb_rows(data, M, hit)
    for other in range(3):
        E = 0.05 * np.random.default_rng(other).standard_normal(M.shape)
        climbed = climb_rows(data, M + E @ M, hit)[1]
        assert at_truth - 1 < climbed <= at_truth + 1e-3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sets", [SETS, [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)], [(0,), (0,), (1,), (2,), (3,), (1,)]])
def test_targets_are_found_from_nothing(sets, seed):
    data, _, _ = moments(sets, 4, seed)
    ends = find_sets(data, 4, 4, 40)
    assert columns(ends[0].hit) == columns(matrix(sets, 4))


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_perfect_interventions_lie_in_all_spans_of_their_contexts(seed):
    sets = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    data, M, H = moments(sets, 4, seed)
    found = starting_rows(data, matrix(sets, 4), M)
    cosine = np.abs(np.einsum("ij,ij->i", found, H)) / np.linalg.norm(found, axis=1) / np.linalg.norm(H, axis=1)
    assert cosine == pytest.approx(1, abs=1e-6)


def test_turning_planes_never_pays_more():
    data, _, _ = moments(SETS, 4, 3)
    M = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 4, 4)))[0]
    turned, paid = spread_rows(data, M)
    assert turned @ turned.transpose(0, 2, 1) == pytest.approx(np.repeat(np.eye(4)[None], 5, axis=0), abs=1e-9)
    _, again = spread_rows(data, turned)
    assert (again <= paid + 1e-6).all()


@pytest.mark.parametrize("r", [2, 3, 4, 7, 8])
def test_every_pair_of_rows_is_in_one_round(r):
    pairs = [(a, b) for rows in _disjoint_planes(r) for a, b in zip(*rows, strict=True)]
    assert sorted(pairs) == [(a, b) for a in range(r) for b in range(a + 1, r)]
    assert all(len({*rows[0], *rows[1]}) == 2 * len(rows[0]) for rows in _disjoint_planes(r))


def test_the_prior_is_a_probability():
    d = 3
    every = [[bool(mask >> q & 1) for q in range(d)] for mask in range(2**d)]
    total = sum(np.exp(log_prior(np.array([a, b]), d)) for a in every for b in every)
    assert total == pytest.approx(1.0)
