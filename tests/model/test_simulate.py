import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.model.simulate import random_model, sample, sample_moments


@pytest.mark.parametrize("convention", ["text", "figures"])
def test_the_papers_recipe_number_by_number(convention):
    drawn = [random_model(convention=convention, rng=[7, s]) for s in range(200)]
    weights = np.abs(np.concatenate([m.weights[np.triu_indices(5, 1)] for m in drawn]))
    assert stats.binomtest(int((weights > 0).sum()), weights.size, 0.75).pvalue > 1e-4
    present = weights[weights > 0]
    assert stats.kstest(present, stats.uniform(0.25, 0.75).cdf).pvalue > 1e-4
    assert not any(np.tril(m.weights).any() for m in drawn)
    Omega_0 = np.concatenate([m.noise_variance for m in drawn])
    Omega_k = np.array([v.changes[v.target].variance for m in drawn for v in m.interventions.values()])
    if convention == "figures":
        Omega_0, Omega_k = Omega_0**-0.5, Omega_k**-0.5  # the same numbers, read as structural scales
    assert stats.kstest(Omega_0, stats.uniform(2, 2).cdf).pvalue > 1e-4
    assert stats.kstest(Omega_k, stats.uniform(6, 2).cdf).pvalue > 1e-4
    assert all(np.abs(m.unmixing).max() == pytest.approx(1.0) for m in drawn)
    first = [m.latents.index(m.targets["c1"]) for m in drawn]
    assert stats.chisquare(np.bincount(first, minlength=5)).pvalue > 1e-4  # targets are permuted


def test_same_seed_same_model():
    a, b = random_model(rng=3), random_model(rng=3)
    np.testing.assert_array_equal(a.unmixing, b.unmixing)
    np.testing.assert_array_equal(sample_moments(a, 50, 1).covariances, sample_moments(b, 50, 1).covariances)


@pytest.mark.slow
def test_sample_moments_follow_the_wishart_law():
    """(n−1) aᵀSa / aᵀΣa is chi-squared with n−1 degrees of freedom, for any a; off-diagonals are right in the mean."""
    model = random_model(n_latents=3, n_features=4, rng=2)
    n, draws = 8, 3000
    rng = np.random.default_rng(12)
    all_moments = [sample_moments(model, n, rng) for _ in range(draws)]
    for k, context in enumerate(model.contexts):
        a = model.unmixing.T @ rng.normal(size=3)
        ratio = [(n - 1) * a @ m.covariances[k] @ a / (a @ model.covariance(context) @ a) for m in all_moments]
        assert stats.kstest(ratio, stats.chi2(n - 1).cdf).pvalue > 1e-4
        mean = [a @ m.means[k] / np.sqrt(a @ model.covariance(context) @ a / n) for m in all_moments]
        assert stats.kstest(mean, stats.norm.cdf).pvalue > 1e-4
        S = np.mean([m.covariances[k] for m in all_moments], axis=0)
        sd = np.sqrt(np.diagonal(model.covariance(context)))
        assert np.abs((S - model.covariance(context)) / np.outer(sd, sd)).max() < 6 / np.sqrt(draws * (n - 1)) * 2


def test_huge_and_tiny_samples():
    model = random_model(rng=0)
    m = sample_moments(model, 10**8, rng=0)
    gap = np.abs(m.covariances - model.moments().covariances).max() / np.abs(m.covariances).max()
    assert gap < 1e-3
    assert np.linalg.matrix_rank(sample_moments(model, 3, rng=0).covariances[0]) == 2
    counts = {c: 10 + k for k, c in enumerate(model.contexts)}
    assert sample_moments(model, counts, rng=0).counts.tolist() == list(counts.values())
    with pytest.raises(ValueError, match="at least two samples"):
        sample_moments(model, 1)


def test_samples_and_sample_moments_agree_in_law():
    model = random_model(n_latents=2, n_features=3, rng=1)
    X, labels = sample(model, 50_000, rng=2)
    m = ld.Moments.from_samples(X, labels, control="control", feature_names=model.feature_names)
    for k, context in enumerate(m.contexts):
        sd = np.sqrt(np.diagonal(model.covariance(context)))
        assert np.abs((m.covariances[k] - model.covariance(context)) / np.outer(sd, sd)).max() < 6 * np.sqrt(2 / 50_000)


def test_soft_models_change_every_parent_weight_of_the_target():
    model = random_model(kind="soft", density=1.0, rng=5)
    for context, value in model.interventions.items():
        i = model.latents.index(value.target)
        parents = np.flatnonzero(model.weights[i])
        if len(parents):
            assert value.kind == "soft"
            assert (model.law(context).weights[i, parents] != model.weights[i, parents]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_latents": 5, "n_features": 4}, "1 ≤ n_latents ≤ n_features"),
        ({"density": 1.5}, "density is a probability"),
        ({"convention": "both"}, "'text' or 'figures'"),
        ({"n_targets": 6}, "n_targets must lie between"),
        ({"kind": "do"}, "'perfect' or 'soft'"),
    ],
)
def test_impossible_requests(options, message):
    with pytest.raises(ValueError, match=message):
        random_model(**options)


def test_sample_moments_have_what_the_latents_leave_of_the_features():
    model = ld.LatentModel(
        np.eye(2, 3), np.zeros((2, 2)), [1.0, 1.0], {"k": ld.Intervention("Z1", variance=4.0)},
        loadings=np.eye(3, 2), residual=np.diag([0.0, 0.0, 0.5]),
    )  # fmt: skip
    m = ld.simulate.sample_moments(model, 10**7, rng=0)
    for k, context in enumerate(m.contexts):
        assert np.allclose(m.covariances[k], model.covariance(context), atol=0.01)
