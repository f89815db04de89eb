"""Predictions of contexts never run: intervals against brute force, and coverage."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.model.intervention import Intervention

from brute_force import information, parameters, std_error
from designs import as_fit, shifted, with_rest

COUNTS = [500, 537, 574, 611]
PLAIN = shifted(ld.simulate.random_model(3, 4, 0.9, rng=2), 0)  # latents c3, c2, c1
REST = shifted(with_rest(ld.simulate.random_model(3, 5, 0.9, rng=2), 3), 2)
ASKED = {
    "two contexts": ["c1", "c2"],
    "repeats": {"c3": None, "c2": None},
    "variance": {"c3": 2.0},
    "variance, shift and a repeat": {"c3": {"variance": 2.0, "shift": 1.5}, "c2": None},
    "cut off only": {"c3": {"shift": 0.7}},
    "soft, new weights": {"c3": {"kind": "soft", "weights": {"c2": 0.3, "c1": -0.2}, "shift": 0.4}},
    "soft, new variance": {"c3": {"kind": "soft", "variance": 0.5}},
    "do": {"c2": {"kind": "do", "value": 1.2}, "c1": None},
}


def predicted(model, asked, pivot):
    if isinstance(asked, list):
        return model.intervene(Intervention.combine([model.interventions[c] for c in asked]))
    return model.rescaled(model.unmixing[np.arange(len(pivot)), pivot]).intervene(asked)


@pytest.mark.parametrize(("model", "means"), [(PLAIN, True), (REST, True), (REST, False)])
def test_errors_agree_with_numerical_differentiation(model, means):
    fit = as_fit(model, COUNTS, means)
    basis = np.eye(model.n_features) if model.residual is not None else None
    theta, build, U = parameters(model, list(fit.graph.edges), means, basis)
    C = np.linalg.inv(information(theta, build, U, COUNTS, means))
    pivot = [int(np.argmax(h == 1.0)) for h in model.unmixing]
    for asked in ASKED.values():
        found = fit.predict(asked)
        np.testing.assert_allclose(found.mean, predicted(model, asked, pivot).mean)
        np.testing.assert_allclose(found.covariance, predicted(model, asked, pivot).covariance)
        slow = std_error(lambda m, a=asked: predicted(m, a, pivot).covariance, theta, build, C)
        np.testing.assert_allclose(found.covariance_std_error.ravel(), slow, rtol=1e-5)
        np.testing.assert_allclose(found.variance_std_error, np.diagonal(found.covariance_std_error), rtol=1e-9)
        if means:
            slow = std_error(lambda m, a=asked: predicted(m, a, pivot).mean, theta, build, C)
            np.testing.assert_allclose(found.mean_std_error, slow, rtol=1e-5)
        else:
            assert np.isnan(found.mean_std_error).all()
            assert "means=False" in found.table.attrs["note"]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_intervals_of_double_perturbations_cover(noise):
    inside = []
    for seed in range(25):
        truth = shifted(ld.simulate.random_model(4, 5, rng=seed, convention="text"), seed)
        X, contexts = ld.simulate.sample(truth, 2_000, rng=seed, noise=noise)
        fit = ld.fit(ld.Moments.from_samples(X, contexts, control=truth.control), graph=truth.graph)
        data = None if noise == "gaussian" else (X, contexts)
        table = fit.predict(["c1", "c2"], level=0.9, data=data).table
        law = truth.intervene({"c1": None, "c2": None})
        true = np.concatenate([law.mean, np.diagonal(law.covariance)])
        inside.append(((table["lower"] <= true) & (true <= table["upper"])).mean())
    # the ten numbers of a model count as about three
    assert stats.binomtest(round(75 * float(np.mean(inside))), 75, 0.9).pvalue > 1e-3


def test_a_prediction_is_deterministic_and_readable():
    fit = as_fit(PLAIN, COUNTS)
    a, b = fit.predict(["c1", "c2"]), fit.predict(["c1", "c2"])
    assert a.table.equals(b.table)
    assert list(a.table.columns) == ["quantity", "feature", "estimate", "std_error", "lower", "upper"]
    assert repr(a) == "Prediction(c1, c2; 4 features)"
    assert "<table" in a._repr_html_()


def test_what_cannot_be_predicted():
    fit = as_fit(PLAIN, COUNTS)
    with pytest.raises(ValueError, match="no context 'c9'"):
        fit.predict(["c1", "c9"])
    with pytest.raises(ValueError, match="both act on 'c1'"):
        fit.predict(["c1", "c1"])
    with pytest.raises(ValueError, match="say what to predict"):
        fit.predict("c1")
    with pytest.raises(ValueError, match="is empty"):
        fit.predict([])
    rest = as_fit(REST, COUNTS)
    with pytest.raises(ValueError, match="2 dimensions beyond the latents"):
        rest.predict(["c1"], data=ld.simulate.sample(REST, 50, rng=0))
    other = replace(fit, options=ld.Options("projection"))
    assert other.predict(["c1", "c2"]).table["std_error"].isna().all()
