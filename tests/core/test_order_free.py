"""The likelihood without an order, and its other maxima in planes of two noise rows."""

import numpy as np
import pytest

import latentdag as ld
from latentdag.core.linalg import complement
from latentdag.core.order_free import ANGLES, OrderFree, _in_planes, turned_rows
from latentdag.methods.design import prepare

from designs import DESIGNS, random_point


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_planes_show_the_likelihood_of_turned_rows(name):
    design, M, _, rng = random_point(name, 3)
    d, r = M.shape
    rest = complement((M @ design.S_bar).T).T
    hit = np.zeros((len(design.n) - 1, r), dtype=bool)
    for mine, rows in zip(hit, design.hits[1:], strict=True):
        mine[list(rows)] = True
    everywhere = np.repeat(design.N * design.S_bar[None], r - d, axis=0)
    alone = np.concatenate([design.n_minus[:, None, None] * design.S_minus, everywhere])
    likelihood, planes = OrderFree(alone, design.S[1:], design.n, hit), _in_planes(design, M)
    at_rest = likelihood(np.vstack([M, rest]))[0]
    for _ in range(20):
        (x, y), step = rng.permutation(d)[:2], rng.integers(ANGLES)
        c, s, turned = np.cos(np.pi * step / ANGLES), np.sin(np.pi * step / ANGLES), M.copy()
        turned[[x, y]] = np.array([[c, s], [-s, c]]) @ M[[x, y]]
        moved = likelihood(np.vstack([turned, rest]))[0] - at_rest
        assert planes[x, y, step] - planes[x, y, 0] == pytest.approx(moved, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_were_turned_away_are_turned_back(seed):
    """Two true noise rows mixed by 45 degrees: the most promising turn leads back to them."""
    truth = ld.simulate.random_model(6, 6, density=0.5, convention="text", rng=[seed, 60])
    prepared = prepare(truth.moments(10**5), ld.Options())
    rank = [truth.latents.index(name) for name in prepared.latents]
    M = ((truth.structural() @ truth.unmixing) @ np.linalg.pinv(prepared.W))[rank]
    x, y = np.random.default_rng(seed).permutation(6)[:2]
    mixed = M.copy()
    mixed[x], mixed[y] = (M[x] + M[y]) / np.sqrt(2), (M[y] - M[x]) / np.sqrt(2)
    best = next(turned_rows(prepared.design, mixed, 0.0))
    cosines = np.abs(np.sum(best * M, axis=1)) / np.linalg.norm(best, axis=1) / np.linalg.norm(M, axis=1)
    assert cosines.min() > 0.99


def test_a_step_to_rows_that_coincide_is_turned_down():
    """Found under Prescott's kernels: a context in which nothing changed lets one row go anywhere."""
    idle = ld.LatentModel(np.eye(2), [[0, 0.5], [0, 0]], [1, 1], {"a": ld.Intervention("Z2", variance=1.0)})
    for seed in range(20):
        fit = ld.fit(ld.simulate.sample_moments(idle, 300, rng=seed))
        assert np.isfinite(fit.loglik)
