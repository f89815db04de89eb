"""Shuffled labels."""

import numpy as np
import pandas as pd
import pytest

import latentdag as ld
from latentdag import simulate
from latentdag.inference.permutation import PermutationTest, _labels, _shuffled

NOTHING = {"feature_names": None, "layer": None, "features": None, "adjust": None}


def screen():
    X, labels = simulate.sample(simulate.random_model(3, 3, rng=1), 1_000, rng=0)
    return X, np.array([str(label) for label in labels])


@pytest.mark.parametrize("among", ["all", "perturbed"])
def test_a_shuffle_moves_what_it_may_and_keeps_the_counts_in_every_stratum(among):
    X, labels = screen()
    batch = np.arange(len(X)) % 3
    found, groups = _labels(X, labels, "control", batch, among, NOTHING)
    made = _shuffled(found, groups, np.random.default_rng(0))
    assert (made != labels).any()
    pd.testing.assert_frame_equal(pd.crosstab(batch, made), pd.crosstab(batch, labels))
    if among == "perturbed":
        assert ((made == "control") == (labels == "control")).all()


def test_true_labels_beat_shuffled_ones_and_the_answer_is_reproducible():
    X, labels = screen()
    first, again = (ld.permutation_test(X, labels, "control", n=4, among="perturbed", rng=3) for _ in range(2))
    assert first == again
    assert first.observed > 0
    assert first.p_value == (1 + sum(c >= first.observed for c in first.shuffled)) / 5
    table = pd.DataFrame(X).assign(guide=labels).rename(columns=str)
    assert ld.permutation_test(table, "guide", "control", n=1, rng=0).observed == first.observed


def test_the_p_value_counts_the_true_labelling():
    assert PermutationTest(2, (0, 2, 5, 1), "all", 0.05).p_value == 3 / 5
    assert PermutationTest(0, (0, 0), "all", 0.05).p_value == 1


@pytest.mark.parametrize(("wrong", "message"), [({"among": "some"}, "among must be"), ({"n": 0}, "number of shuffles")])
def test_wrong_options_are_named(wrong, message):
    X, labels = screen()
    with pytest.raises(ValueError, match=message):
        ld.permutation_test(X, labels, "control", **wrong)
