"""A new context is worth what a fit with it gains."""

import numpy as np
import pytest

import latentdag as ld


@pytest.fixture(scope="module")
def truth():
    return ld.simulate.random_model(4, 6, 0.8, convention="text", rng=43)


def gain(table, *targets):
    return table.loc[[set(each) == set(targets) for each in table["targets"]], "gain"].iloc[0]


def test_gains_are_those_of_the_larger_screen(truth):
    ranked = ld.design.next_context(truth, n=300, counts=500)
    assert len(ranked) == 15
    assert ranked["gain"].is_monotonic_decreasing
    both = truth.intervene({"c1": None, "c2": None}).intervention
    larger = ld.LatentModel(
        truth.unmixing, truth.weights, truth.noise_variance, {**truth.interventions, "c1+c2": both}, truth.latents
    )
    counts = dict.fromkeys(truth.contexts, 500)
    before = (ld.design.power(truth, counts, searched=False)["half_width"] ** 2).sum()
    after = (ld.design.power(larger, {**counts, "c1+c2": 300}, searched=False)["half_width"] ** 2).sum()
    assert gain(ranked, "c1", "c2") == pytest.approx(1 - after / before)


def test_more_cells_gain_more_and_nothing_gains_less_than_nothing(truth):
    few, many = (ld.design.next_context(truth, n=n, counts=500) for n in (100, 1_000))
    assert (few["gain"] > 0).all()
    assert all(gain(many, *targets) > gain(few, *targets) for targets in few["targets"])


def test_the_weakest_edge_can_ask_for_another_context(truth):
    ranked = ld.design.next_context(truth, n=500, counts=500, for_="weakest")
    power = ld.design.power(truth, 500, searched=False)
    weakest = power.loc[power["power"].idxmin()]
    assert weakest["target"] in ranked["targets"].iloc[0]


def test_the_order_is_told_by_perturbing_the_disputed_pair_together(truth):
    ranked = ld.design.next_context(
        truth, n=500, counts=200, for_="order", candidates=["c1", "c2", ("c1", "c2"), "c3", "c4"]
    )
    assert (ranked["gain"] > -1e-6).all()  # the rival has to explain more
    assert len(ranked["targets"].iloc[0]) == 2
    pilot = ld.fit(ld.simulate.sample_moments(truth, 400, rng=2))
    assert (ld.design.next_context(pilot, for_="order", candidates=["c1", "c2"])["nats"] > 0).all()


def test_only_a_new_target_settles_which_of_two_models_is_right():
    model = ld.LatentModel(
        np.eye(3), [[0, 0.9, 0.7], [0, 0, 0], [0, 0, 0]], [1, 1, 1], {"k": ld.Intervention("Z1", variance=3.0)}
    )
    assert len(ld.equivalent_models(model)) == 2
    ranked = ld.design.next_context(model, n=100, counts=100, for_="ambiguity")
    left = dict(zip(ranked["targets"], ranked["models"], strict=True))
    assert left[("Z1",)] == 2
    assert left[("Z2",)] == left[("Z3",)] == 1
    assert ranked["targets"].iloc[0] in [("Z2",), ("Z3",)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": ["nobody"]}, "no latent 'nobody'; the model has"),
        ({"candidates": [()]}, "a candidate names one latent or more"),
        ({"candidates": []}, "there is no candidate"),
        ({"for_": "fun"}, "for_ must be one of 'edges', 'weakest', 'order', 'ambiguity', got 'fun'"),
        ({"n": 0}, "cells of the new context, must be a whole number, 3 or more, got 0"),
    ],
)
def test_bad_input_gets_a_sentence(truth, options, words):
    with pytest.raises(ValueError, match=words):
        ld.design.next_context(truth, **{"counts": 100, "n": 100} | options)
