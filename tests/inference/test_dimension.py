"""Counting latents under measurement noise."""

import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.core.ranks import change_directions
from latentdag.inference.ranks import _white_together, latent_dimension_test


def noisy(seed, n=400, d=2, p=5, law="gaussian"):
    """Independent latents, each changed plainly by one context, in more features, with noise."""
    rng = np.random.default_rng(seed)
    names = [f"Z{i}" for i in range(d)]
    hits = {f"k{i}": ld.Intervention(name, variance=8.0, shift=1.0) for i, name in enumerate(names)}
    model = ld.LatentModel(rng.standard_normal((d, p)), np.zeros((d, d)), np.ones(d), hits, latents=names)
    X, labels = ld.simulate.sample(model, n, rng, law)
    return X + 0.3 * rng.standard_normal(X.shape), labels


@pytest.mark.slow
@pytest.mark.parametrize("means", [True, False])
@pytest.mark.parametrize(("n", "side"), [(400, "two-sided"), (40, "greater")])
def test_p_values_are_uniform_at_the_true_number(means, n, side):
    """With 40 samples a change can hide in the noise, so there they are only held to be no smaller than uniform."""
    p = []
    for seed in range(150):
        m = ld.Moments.from_samples(*noisy(seed, n), control="control")
        p.append(change_directions(*_white_together(m, means), 2)[-1])
    assert stats.kstest(p, "uniform", alternative=side).pvalue > 0.01


def test_the_number_of_latents_is_found_whatever_the_map():
    right = 0
    for seed in range(20):
        X, labels = noisy(seed, d=3, p=6)
        found = latent_dimension_test(ld.Moments.from_samples(X, labels, control="control"))
        right += found.n_latents == 3
        assert found.n_dimensions == 6
        assert list(found.summary.index) == list(range(found.n_latents + 1))
        mixed = X @ np.random.default_rng(seed).standard_normal((6, 6))
        again = latent_dimension_test(ld.Moments.from_samples(mixed, labels, control="control"))
        np.testing.assert_allclose(again.summary, found.summary, rtol=1e-3, atol=1e-3)
    assert right >= 17


def test_without_noise_every_dimension_is_a_latent():
    model = ld.simulate.random_model(3, 7, convention="text", rng=4)
    found = latent_dimension_test(ld.simulate.sample_moments(model, 5_000, rng=0))
    assert (found.n_latents, found.n_dimensions) == (3, 3)
    assert "3 directions change, of 3" in repr(found)
    assert "<b>3 directions change</b>" in found._repr_html_()


def test_no_change_at_all_is_no_latent():
    S = [stats.wishart(99, np.eye(3), seed=s).rvs() / 99 for s in (0, 1)]
    assert latent_dimension_test(ld.Moments.from_covariances(S, 100)).n_latents == 0


def test_bad_input():
    m = ld.simulate.sample_moments(ld.simulate.random_model(3, 3, rng=0), {"control": 50, "c1": 3, "c2": 9, "c3": 9}, 0)
    with pytest.raises(ValueError, match="context 'c1': the context has 3 samples in 3 dimensions"):
        latent_dimension_test(m)
    with pytest.raises(ValueError, match="alpha is a probability"):
        latent_dimension_test(m, alpha=2)
