"""Held-out likelihood: the density is the right one, references are what they say, and doubles are predicted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import latentdag as ld
from latentdag.model.intervention import Intervention
from latentdag.model.simulate import random_model, sample_moments
from latentdag.uncertainty.held_out import COLUMNS, score

from strategies import models, seeds


def with_shifts(model, rng, size=2.0):
    """Every intervention also moves the mean of its target's noise, by ``size`` of the control's deviations."""
    rng = np.random.default_rng(rng)
    sd = dict(zip(model.latents, np.sqrt(np.diagonal(model.law().latent_covariance)), strict=True))
    return replace(
        model,
        interventions={
            c: Intervention.of_changes(
                {t: replace(x, shift=float(rng.choice([-1, 1]) * size * sd[t])) for t, x in v.changes.items()}
            )
            for c, v in model.interventions.items()
        },
    )


def doubles(model, n, rng=None):
    """Moments of all pairs of single contexts, exact where there is no rng, and what was combined."""
    singles = list(model.interventions)
    pairs = {f"{a}+{b}": (a, b) for i, a in enumerate(singles) for b in singles[:i]}
    both = {name: Intervention.combine(model.interventions[c] for c in parts) for name, parts in pairs.items()}
    extended = replace(model, interventions=both)
    return (extended.moments(n) if rng is None else sample_moments(extended, n, rng)), pairs


@pytest.mark.parametrize(("d", "p"), [(3, 3), (2, 4)])
def test_the_density_is_scipys(d, p):
    """Mean of scipy's Gaussian log-density over the samples themselves, on the model's space."""
    model = with_shifts(random_model(n_latents=d, n_features=p, rng=1), 2)
    X = np.vstack([model.sample(40, c, rng=k) for k, c in enumerate(model.contexts)])
    labels = np.repeat(np.array(model.contexts, dtype=object), 40)
    m = ld.Moments.from_samples(X, labels, control=model.control)
    table = score(model, m)
    U = np.linalg.svd(model.covariance())[0][:, :d]
    for c in model.contexts:
        law = stats.multivariate_normal(U.T @ model.mean(c), U.T @ model.covariance(c) @ U)
        assert table.loc[c, "model"] == pytest.approx(law.logpdf(X[labels == c] @ U).mean(), rel=1e-9)
        null = stats.multivariate_normal(U.T @ model.mean(), U.T @ model.covariance() @ U)
        assert table.loc[c, "control"] == pytest.approx(null.logpdf(X[labels == c] @ U).mean(), rel=1e-9)


@given(model=models(max_latents=4), seed=seeds, shift=st.floats(0, 3))
def test_no_law_beats_the_saturated_one_and_the_truth_beats_references_in_expectation(model, seed, shift):
    model = with_shifts(model, seed, shift)
    sampled = score(model, sample_moments(model, 50, rng=seed))
    assert (
        sampled["saturated"] >= sampled[["model", "control", "additive", "additive_pooled"]].max(axis=1) - 1e-9
    ).all()
    exact = score(model, model.moments(10**9))
    assert exact["model"].to_numpy() == pytest.approx(exact["saturated"].to_numpy(), abs=1e-5)
    assert (exact["gain_over_control"] > -1e-5).all()
    assert (exact["gain_over_additive"] > -1e-5).all()


def test_means_are_missed_by_what_samples_are_off_and_predicted_exactly_where_shifts_do_not_add_up():
    truth = with_shifts(random_model(n_latents=4, n_features=8, density=1, rng=6), 1, 2.0)
    exact = score(truth, truth.moments(10**6))
    assert exact["rmse"].max() < 1e-9
    assert exact.drop(index=truth.control)["pearson"].min() > 1 - 1e-9
    parts = list(truth.interventions)
    both = truth.intervene({v.targets[0]: None for v in truth.interventions.values()})
    m = ld.Moments.from_covariances([both.covariance], 10**6, ["all"], means=[both.mean])
    row = score(truth, m, combinations={"all": parts}).loc["all"]
    assert row["rmse"] < 1e-9 < 1e-3 < row["rmse_additive"]
    drawn = [score(truth, sample_moments(truth, 400, rng=seed)) for seed in range(40)]
    off, expected = (np.mean([np.square(table[name]).mean() for table in drawn]) for name in ("rmse", "rmse_ceiling"))
    assert off == pytest.approx(expected, rel=0.1)
    free = score(truth, truth.moments(1_000), means=False)
    assert free[["rmse", "pearson", "rmse_ceiling"]].isna().all(axis=None)


def test_a_prediction_is_an_anndata_if_asked_for():
    pytest.importorskip("anndata")
    truth = with_shifts(random_model(n_latents=3, n_features=5, rng=3), 4)
    fit = ld.fit(sample_moments(truth, 800, rng=0))
    one, found = fit.predict(["c1", "c2"]), fit.predict(["c1", "c2"], as_anndata=True)
    assert found.obs_names.tolist() == ["c1, c2"]
    assert found.var_names.tolist() == list(truth.feature_names)
    np.testing.assert_array_equal(found.X[0], one.mean)
    np.testing.assert_array_equal(found.varp["covariance"], one.covariance)
    assert (found.layers["lower"] < found.X).all()
    assert (found.layers["upper"] > found.X).all()


def test_contexts_add_up_to_the_likelihood_of_the_fit():
    truth = with_shifts(random_model(n_latents=3, n_features=5, rng=3), 4)
    m = sample_moments(truth, 800, rng=0)
    fit = ld.fit(m)
    table = score(fit, m)
    assert table.columns.tolist() == COLUMNS
    assert float(table["n"] @ table["model"]) == pytest.approx(fit.loglik, rel=1e-9)
    total = table.attrs["total"]
    singles = table.drop(index="control")
    assert total["n"] == 2400
    assert total["gain_over_control"] == pytest.approx(np.average(singles["gain_over_control"], weights=singles["n"]))


def test_units_and_order_of_features_do_not_matter():
    truth = with_shifts(random_model(n_latents=3, n_features=3, rng=5), 6)
    m = sample_moments(truth, 500, rng=0)
    at = [2, 0, 1]
    turned = ld.Moments.from_covariances(
        m.covariances[:, at][:, :, at], m.counts, m.contexts, means=m.means[:, at],
        feature_names=[m.feature_names[j] for j in at],
    )  # fmt: skip
    a, b = score(truth, m, m), score(truth, turned, turned)
    np.testing.assert_allclose(a.to_numpy(), b.to_numpy(), rtol=1e-9)


def test_the_additive_reference_adds_shifts_of_the_training_data():
    truth = with_shifts(random_model(n_latents=3, n_features=3, rng=7), 8)
    train = sample_moments(truth, 1_000, rng=0)
    m, pairs = doubles(truth, 400, rng=1)
    table = score(truth, m, train, combinations=pairs)
    for context, (a, b) in pairs.items():
        mean = train.means[train.index(a)] + train.means[train.index(b)] - train.means[0]
        k = m.index(context)
        S, mu = m.covariances[k] * 399 / 400, m.means[k]
        inv = np.linalg.inv(train.covariances[0])
        expected = -0.5 * (
            3 * np.log(2 * np.pi)
            + np.linalg.slogdet(train.covariances[0])[1]
            + np.trace(inv @ S)
            + (mu - mean) @ inv @ (mu - mean)
        )
        assert table.loc[context, "additive"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("convention", ["figures", "text"])
def test_doubles_are_predicted_from_singles(convention):
    wins = []
    for s in range(6):
        truth = with_shifts(random_model(n_latents=3, n_features=6, convention=convention, rng=[s, 1]), s)
        train = sample_moments(truth, 2_500, rng=s)
        held_out, pairs = doubles(truth, 1_000, rng=100 + s)
        total = score(ld.fit(train), held_out, train, combinations=pairs).attrs["total"]
        wins.append(total["gain_over_additive"] > 0)
        assert total["saturated"] - total["model"] < 0.1
    assert all(wins)


def test_more_features_than_latents_with_a_complement():
    """Features with noise of their own: the model has loadings and a residual, and full rank."""
    truth = with_shifts(random_model(n_latents=2, n_features=5, rng=9), 10)
    m = sample_moments(truth, 3_000, rng=0)
    noisy = ld.Moments.from_covariances(
        m.covariances + 0.05 * np.eye(5), m.counts, m.contexts, means=m.means, feature_names=m.feature_names
    )
    fit = ld.fit(noisy)
    assert fit.model.residual is not None
    table = score(fit, noisy, noisy)
    assert np.isfinite(table.drop(columns=["pearson", "pearson_additive"]).to_numpy()).all()
    assert (table["model"] <= table["saturated"] + 1e-9).all()
    assert (table.drop(index="control")["gain_over_control"] > 0).all()


def test_covariances_only():
    truth = with_shifts(random_model(n_latents=3, n_features=3, rng=11), 12)
    m = sample_moments(truth, 1_000, rng=0)
    fit = ld.fit(m, means=False)
    table = score(fit, m, m)
    np.testing.assert_allclose(table["control"], table["additive"])  # there is nothing to add to the covariance
    assert (table["saturated"] >= table["model"] - 1e-9).all()
    moved = ld.Moments.from_covariances(m.covariances, m.counts, m.contexts, means=m.means + 7.0)
    np.testing.assert_allclose(score(fit, moved, m), table)
    assert (score(fit, moved, m, means=True)["model"] < table["model"] - 1).all()


@pytest.mark.parametrize("seed", range(40))
def test_where_there_is_no_density(seed):
    model = random_model(n_latents=3 + seed % 4, n_features=3 + seed % 4, rng=seed)
    few = sample_moments(model, 3, rng=seed)
    assert np.isinf(score(model, few)["saturated"]).all()
    assert np.isfinite(score(model, few)["model"]).all()
    with pytest.raises(ValueError, match="leave m_train out"):
        score(model, few, few)


def test_a_latent_that_is_held_has_no_density():
    model = random_model(n_latents=3, n_features=3, rng=0)
    frozen = replace(model, interventions={"c1": Intervention(model.latents[0], "do", value=1.0)})
    assert np.isnan(score(frozen, sample_moments(model, 50, rng=0).select(["c1"])).loc["c1", "model"])


def test_an_intervention_of_ones_own():
    model = random_model(n_latents=3, n_features=3, rng=0)
    a, b = model.latents[:2]
    new = Intervention([a, b], variance=[1.0, 2.0], shift=[0.5, 0.0])
    law = model.intervene(new)
    m = ld.Moments.from_covariances([law.covariance], 10**8, ["new"], means=[law.mean])
    row = score(model, m, combinations={"new": new}).loc["new"]
    assert row["model"] == pytest.approx(row["saturated"], abs=1e-6)
    assert np.isnan(row["additive"])


def test_what_cannot_be_scored_is_said():
    model = random_model(n_latents=2, n_features=4, rng=0)
    m = sample_moments(model, 100, rng=0)
    other = ld.Moments.from_covariances(m.covariances, m.counts, ["control", "c1", "c1+c2"], means=m.means)
    with pytest.raises(ValueError, match=r"combinations=\{'c1\+c2': \('c1', 'c2'\)\}"):
        score(model, other)
    with pytest.raises(ValueError, match=r"'c1\+c2' combines \('c1', 'c9'\): no context 'c9'"):
        score(model, other, combinations={"c1+c2": ("c1", "c9")})
    same_latent = replace(model, interventions={**model.interventions, "again": model.interventions["c1"]})
    with pytest.raises(ValueError, match="contexts 'c1' and 'again' both act on"):
        score(same_latent, other, combinations={"c1+c2": ("c1", "again")})
    with pytest.raises(ValueError, match="m_train has no context 'c2'"):
        score(model, other, m.select(["c1"]), combinations={"c1+c2": ("c1", "c2")})
    outside = ld.Moments.from_covariances(m.covariances + 0.1 * np.eye(4), m.counts, m.contexts, means=m.means)
    with pytest.raises(ValueError, match=r"context 'control': .* lies outside the 2 dimensions"):
        score(model, outside)
    moved = ld.Moments.from_covariances(m.covariances, m.counts, m.contexts, means=m.means + np.eye(4)[3])
    with pytest.raises(ValueError, match="lies outside"):
        score(model, moved)
    fewer = ld.Moments.from_covariances(m.covariances[:, :3, :3], m.counts, m.contexts)
    with pytest.raises(ValueError, match="1 missing, first 'x3'"):
        score(model, fewer)
