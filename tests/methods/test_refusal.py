"""A fit whose data refuse the model says so first, and data of the model are hardly ever refused."""

from dataclasses import replace

import numpy as np
import pytest

import latentdag as ld


def with_intruder(seed, latents=5, features=8):
    """Return a random model in which one context hits a second latent."""
    model = ld.simulate.random_model(latents, features, rng=seed)
    a, b = list(model.interventions)[:2]
    both = ld.Intervention.of_changes({**model.interventions[a].changes, **model.interventions[b].changes})
    return replace(model, interventions={**model.interventions, a: both}), a


@pytest.mark.parametrize("seed", range(20, 26))
def test_a_second_target_is_refused_with_its_size(seed):
    model, _ = with_intruder(seed)
    fit = ld.fit(ld.simulate.sample_moments(model, 2_500, rng=seed))
    assert not fit.verdict.ok
    assert "refuse the model" in fit.verdict.reasons[0]
    assert "% of what contexts change unexplained" in fit.verdict.reasons[0]
    assert str(fit.verdict) in fit.summary()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_data_of_the_model_are_hardly_ever_refused(noise):
    """The level is .01: of 24 models three or more would be refused with probability .002."""
    refused = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        model = ld.simulate.random_model(4, 8, rng=rng, convention="text")
        X, contexts = ld.simulate.sample(model, 1_000, rng=rng)
        X = X + noise * X.std(axis=0) * rng.normal(size=X.shape)
        refused += "refusal" in ld.fit(ld.Moments.from_samples(X, contexts, control="control")).details
    assert refused < 3


def test_with_samples_heavy_tails_are_no_refusal():
    gaussian = robust = 0
    for seed in range(8):
        model, rng = ld.simulate.random_model(4, 6, rng=60 + seed), np.random.default_rng(seed)
        X = np.vstack([model.sample(500, c, rng, "student-t") for c in model.contexts])
        data = X, np.repeat(list(model.contexts), 500)
        m = ld.Moments.from_samples(*data, control="control")
        gaussian += "refusal" in ld.fit(m).details
        robust += "refusal" in ld.fit(m, data=data).details
    assert robust == 0
    assert gaussian > 0  # and the sentence says that samples were taken as Gaussian


def test_few_samples_and_given_orders_are_tested_as_far_as_can_be():
    model, _ = with_intruder(31)
    few = ld.simulate.sample_moments(model, 20, rng=0)
    assert "refusal" not in ld.fit(few).details  # covariances are borrowed from one another
    m = ld.simulate.sample_moments(model, 5_000, rng=0)
    assert "refusal" in ld.fit(m, order=model.latents[::-1]).details
    assert "refusal" not in ld.fit(m, targets={c: v.targets for c, v in model.interventions.items()}).details
