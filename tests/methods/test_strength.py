"""Fits of partial interventions whose strength is known."""

from dataclasses import replace

import numpy as np
import pytest

import latentdag as ld
from latentdag.errors import WeakInterventionWarning

from designs import partial_model as partial
from designs import partly


def test_a_partial_intervention_leaves_a_share_of_the_weights():
    truth, strength = partial(0)
    for context, name in truth.targets.items():
        i = truth.index(name)
        expected = truth.weights.copy()
        expected[i] *= 1 - strength[context]
        np.testing.assert_allclose(truth.law(context).weights, expected)
    scaled = truth.rescaled("unit-variance").reordered(sorted(truth.latents))
    np.testing.assert_allclose(scaled.covariance("c1"), truth.covariance("c1"))


@pytest.mark.parametrize("convention", ["text", "figures"])
@pytest.mark.parametrize("seed", [11, 12])
def test_exact_moments_give_the_model(seed, convention):
    truth, strength = partial(seed, convention=convention)
    fit = ld.fit(truth.moments(2_500), strength=strength)
    assert set(fit.graph.edges) == set(truth.graph.edges)
    np.testing.assert_allclose(fit.model.reordered(truth.latents).weights, truth.weights, atol=1e-3)
    for context in truth.contexts:
        np.testing.assert_allclose(fit.model.covariance(context), truth.covariance(context), rtol=1e-3, atol=1e-3)


def test_a_share_of_perturbed_cells_is_a_strength():
    """Of the cells of a context π are cut off and 1 − π are as in the control: second moments are those of strength π."""
    truth = ld.simulate.random_model(4, 6, density=0.6, rng=5)
    share = 0.65
    rows = [
        truth.covariance(),
        *(share * truth.covariance(c) + (1 - share) * truth.covariance() for c in truth.targets),
    ]
    fit = ld.fit(truth.labelled([np.zeros(6)] * 5, rows, 2_500), strength=dict.fromkeys(truth.targets, share))
    assert set(fit.graph.edges) == set(truth.graph.edges)
    np.testing.assert_allclose(fit.model.reordered(truth.latents).weights, truth.weights, atol=1e-3)


@pytest.mark.parametrize("option", ["auto", "features"])
def test_noise_of_features(option):
    truth, strength = partial(7, p=8, convention="text")
    psi = np.random.default_rng(7).uniform(0.2, 0.6, 8) * np.diagonal(truth.covariance())
    laws = [truth.law(c) for c in truth.contexts]
    m = truth.labelled([law.mean for law in laws], [law.covariance + np.diag(psi) for law in laws], 10**6)
    fit = ld.fit(m, noise=option, strength=strength)
    assert set(fit.graph.edges) == set(truth.graph.edges)
    unit = [each.reordered(truth.latents).rescaled("unit-variance").weights for each in (fit.model, truth)]
    np.testing.assert_allclose(*np.abs(unit), atol=0.02)
    assert np.isfinite(fit.edges()["std_error"]).all()


def test_many_latents():
    truth, strength = partial(8, d=11, p=11)
    fit = ld.fit(truth.moments(10_000), strength=strength, graph=truth.graph)
    assert fit.converged
    np.testing.assert_allclose(fit.model.reordered(truth.latents).weights, truth.weights, atol=1e-2)


def test_what_a_fit_returns_is_kept(tmp_path):
    truth, strength = partial(9)
    m = ld.simulate.sample_moments(truth, 1_000, rng=9)
    told = {**strength, "c1": (strength["c1"] - 0.1, strength["c1"] + 0.1)}
    fit = ld.fit(m, strength=told)
    fit.save(tmp_path / "fit.npz")
    back = ld.Fit.load(tmp_path / "fit.npz")
    assert dict(back.options.strength) == told
    assert back.model.interventions == fit.model.interventions
    np.testing.assert_array_equal(back.edges()["std_error"], fit.edges()["std_error"])
    assert "standard errors allow for the rest" in str(back.verdict)
    assert ld.omnibus_test(fit, m).p_value == pytest.approx(ld.omnibus_test(ld.fit(m), m).p_value, rel=1e-3)


def test_contexts_of_one_target_that_differ_in_strength():
    """Declared equally strong they are refused; told, they are not; and their ratios are found without being told."""
    truth, strength = partial(10, low=0.7)
    weak = {f"{c} weak": partly(v, 0.5 * strength[c]) for c, v in truth.interventions.items()}
    model = replace(truth, interventions={**truth.interventions, **weak})
    told = {c: next(iter(v.changes.values())).strength for c, v in model.interventions.items()}
    m = ld.simulate.sample_moments(model, 2_000, rng=10)
    alike, fit = ld.fit(m, targets=model.targets), ld.fit(m, targets=model.targets, strength=told)
    assert ld.omnibus_test(alike, m).p_value < 1e-6
    assert ld.omnibus_test(fit, m).p_value > 0.001
    ratios = alike.strength_ratios()
    assert len(ratios) == 3  # nothing acts on the source
    expected = np.where(ratios["reference"].str.contains("weak"), 2.0, 0.5)
    assert (np.abs(ratios["ratio"] - expected) < 4 * ratios["std_error"]).all()
    assert (ratios["p_value"] > 0.001).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strength": {"c1": 0.0}}, "'c1' must be a number above 0"),
        ({"strength": {"c1": 1.2}}, "at most 1"),
        ({"strength": {"c1": "most"}}, "at most 1"),
        ({"strength": {"c1": (0.8, 0.6)}}, r"a pair \(low, high\)"),
        ({"strength": {"c1": (0.5, 0.6, 0.7)}}, "a number or a pair"),
        ({"strength": 0.7}, "must map contexts to numbers"),
        ({"strength": {"nobody": 0.7}}, "'nobody', which is no context"),
        ({"strength": {"control": 0.7}}, "'control', which is no context"),
        ({"strength": {"c1": 0.7}, "intervention": "soft"}, "soft intervention, which has no strength"),
        ({"strength": {"c1": 0.7}, "intervention": {"c1": "do"}}, "do intervention, which has no strength"),
        ({"strength": {"c1": 0.7}, "unintervened": "upstream"}, "unintervened='downstream'"),
    ],
)
def test_bad_input_is_said(options, words):
    truth, _ = partial(0)
    with pytest.raises(ValueError, match=words):
        ld.fit(truth.moments(500), **options)


def test_other_methods_take_no_strength():
    truth, _ = partial(0)
    with pytest.raises(TypeError, match="no such option: 'strength'"):
        ld.fit(truth.moments(500), "closed-form", strength={"c1": 0.7})
    with pytest.raises(ValueError, match="only a perfect intervention has a strength"):
        ld.Intervention("A", "soft", strength=0.5)


def test_weak_interventions_are_warned_of():
    truth, strength = partial(0)
    with pytest.warns(WeakInterventionWarning, match=r"'c1' \(0.2\)"):
        ld.fit(truth.moments(2_000), strength={**strength, "c1": 0.2}, graph=truth.graph)
