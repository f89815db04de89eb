"""What a few hundred samples do to intervals: winners, errors of errors, and variances from a factor alone."""

import numpy as np
import pytest

import latentdag as ld
from latentdag.core.covariance import Inverse
from latentdag.core.small_samples import degrees_of_freedom, models_nearby, without_winners_curse


def test_the_largest_entry_is_too_large_and_its_correction_is_not():
    """Averaged over rows, the largest of noisy entries exceeds the true one, and the moved one does not."""
    rng = np.random.default_rng(0)
    p = 10
    F = 0.4 * rng.standard_normal((p, p)) / np.sqrt(p) + 0.3 * np.eye(p)
    over, left = [], []
    for _ in range(4_000):
        h = rng.standard_normal(p)
        seen = h + F @ rng.standard_normal(p)
        k = int(np.argmax(np.abs(seen)))
        over.append((seen - h)[k] * np.sign(seen[k]))
        left.append((without_winners_curse(seen, F @ F.T) - h)[k] * np.sign(seen[k]))
    assert np.mean(over) > 0.1
    assert abs(np.mean(left)) < 0.2 * np.mean(over)


def test_without_errors_nothing_moves():
    h = np.array([1.0, -0.5, 0.25])
    np.testing.assert_allclose(without_winners_curse(h, np.zeros((3, 3))), h)
    assert (np.abs(without_winners_curse(h, 100 * np.eye(3))) < 0.01).all()


@pytest.mark.parametrize("nu", [10, 50])
def test_degrees_of_freedom_are_those_of_a_sample_deviation(nu):
    s = np.sqrt(np.random.default_rng(nu).chisquare(nu, size=(4_000, 1)) / nu)
    assert degrees_of_freedom(np.log(s))[0] == pytest.approx(nu, rel=0.15)
    assert np.isinf(degrees_of_freedom(np.empty((0, 2)))).all()


def test_models_nearby_vary_as_the_errors_say():
    """Entries of H of models drawn around a fit have the standard errors of the fit, and every call draws the same."""
    truth = ld.simulate.random_model(3, 5, rng=1)
    fit = ld.fit(ld.simulate.sample_moments(truth, 2_000, rng=0), graph=truth.graph)
    u = fit.uncertainty()
    drawn = np.array([q.H for q, _ in models_nearby(u.quantities, u.covariance)])
    again = np.array([q.H for q, _ in models_nearby(u.quantities, u.covariance)])
    np.testing.assert_array_equal(drawn, again)
    along = [u.quantities.along(np.full(5, i), np.eye(5)) for i in range(3)]
    sd = np.sqrt([np.diagonal(u.covariance.matrix(g)) for g in along])
    assert 0.5 < np.sqrt(np.mean(((drawn - u.quantities.H) / sd) ** 2)) < 2


@pytest.mark.parametrize("rank", [30, 24])
def test_a_factor_tells_the_variances_that_the_inverse_has(rank, monkeypatch):
    rng = np.random.default_rng(rank)
    A = rng.standard_normal((rank, 30)) * rng.uniform(0.1, 10, 30)
    J = rng.standard_normal((4, rank)) @ A  # gradients that the data determine
    inverse = Inverse(A.T @ A)
    by_inverse = inverse.variance(J)
    monkeypatch.setattr("latentdag.core.covariance.LARGE", 0)
    by_factor = inverse.variance(J)
    np.testing.assert_allclose(by_factor, np.einsum("mi,mi->m", J @ inverse.C, J), rtol=1e-6)
    np.testing.assert_allclose(by_factor, by_inverse, rtol=1e-6)


def test_intervals_allow_for_the_choice_and_approach_wald_with_many_samples():
    truth = ld.simulate.random_model(3, 6, convention="text", rng=2)
    width = {}
    for n in (300, 10**7):
        fit = ld.fit(ld.simulate.sample_moments(truth, n, rng=0), graph=truth.graph)
        table = fit.confidence_intervals(0.95)
        table = table[(table["quantity"] == "unmixing") & (table["std_error"] > 0)]
        width[n] = ((table["upper"] - table["lower"]) / (2 * 1.959964 * table["std_error"])).to_numpy()
    assert (width[300] > 1).all()
    np.testing.assert_allclose(width[10**7], 1, atol=1e-3)
