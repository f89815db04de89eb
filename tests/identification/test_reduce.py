from itertools import product

import numpy as np
import pytest
from hypothesis import given

import latentdag as ld
from latentdag.model.intervention import Intervention

from strategies import models, seeds


def all_dags(d):
    """Every DAG on d ordered nodes, as upper triangular masks."""
    pairs = [(i, j) for i in range(d) for j in range(i + 1, d)]
    for bits in product([False, True], repeat=len(pairs)):
        mask = np.zeros((d, d), bool)
        for pair, bit in zip(pairs, bits, strict=True):
            mask[pair] = bit
        yield mask


def model_on(mask, rng, repeats=None):
    """A model with the given graph; latent i has ``repeats[i]`` contexts."""
    d = len(mask)
    A = np.where(mask, rng.choice([-1, 1], (d, d)) * rng.uniform(0.25, 1, (d, d)), 0)
    names = [f"Z{i}" for i in range(d)]
    repeats = [1] * d if repeats is None else repeats
    interventions = {
        f"Z{i}{'abc'[r]}": Intervention(names[i], variance=float(rng.uniform(6, 8)))
        for i in range(d)
        for r in range(repeats[i])
    }
    return ld.LatentModel(rng.uniform(-2, 2, (d, d + 1)), A, rng.uniform(2, 4, d), interventions, latents=names)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_reductions_are_right_on_every_dag(d):
    """Stars included, where the paper's deviation score ties; contexts shuffled, some targets hit twice or thrice."""
    for number, mask in enumerate(all_dags(d)):
        rng = np.random.default_rng([d, number])
        truth = model_on(mask, rng, rng.integers(1, 4, size=d))
        contexts = [truth.contexts[k] for k in rng.permutation(len(truth.contexts))]
        Theta = [truth.precision(c) for c in contexts]
        assert ld.latent_dimension(Theta) == d
        found = ld.reduce_contexts(Theta, contexts)
        assert found.observational == ("control",)
        (problem,) = found.problems
        want = sorted(tuple(sorted(c for c, t in truth.targets.items() if t == name)) for name in truth.latents)
        assert sorted(tuple(sorted(group)) for group in problem.groups) == want
        groups = ld.same_target_groups(Theta, contexts, observational="control")
        assert sorted(tuple(sorted(group)) for group in groups) == want


def test_redundant_contexts_are_kept_and_enter_the_model():
    rng = np.random.default_rng(5)
    truth = model_on(np.triu(np.ones((3, 3), bool), 1), rng, [2, 1, 3])
    contexts = list(reversed(truth.contexts))
    (problem,) = ld.reduce_contexts([truth.precision(c) for c in contexts], contexts).problems
    assert len(problem.redundant) == 3
    found = problem.identify()
    assert sorted(found.latents) == sorted(["Z0b|Z0a", "Z1a", "Z2c|Z2b|Z2a"])
    for context in truth.contexts:
        np.testing.assert_allclose(found.precision(context), truth.precision(context), rtol=1e-6, atol=1e-8)


def test_copies_of_the_control_are_one_observational_context():
    truth = model_on(np.triu(np.ones((3, 3), bool), 1), np.random.default_rng(1))
    Theta = [truth.precision(None), *(truth.precision(c) for c in truth.contexts)]
    found = ld.reduce_contexts(Theta, ["again", *truth.contexts])
    assert found.observational == ("again",)
    assert found.problems[0].copies == ("control",)


def test_a_single_target_leaves_the_control_open():
    """With one latent, or one target hit, swapping control and context is a real ambiguity: both come back."""
    truth = model_on(np.zeros((1, 1), bool), np.random.default_rng(0))
    found = ld.reduce_contexts([truth.precision(c) for c in truth.contexts], truth.contexts)
    assert set(found.observational) == {"control", "Z0a"}
    assert not found.is_unique


@given(models(min_latents=2), seeds)
def test_observational_context_is_found_in_random_models(truth, seed):
    contexts = [truth.contexts[k] for k in np.random.default_rng(seed).permutation(len(truth.contexts))]
    assert ld.observational_contexts([truth.precision(c) for c in contexts], contexts) == ("control",)


def test_moments_are_taken_too():
    truth = model_on(np.triu(np.ones((3, 3), bool), 1), np.random.default_rng(8), [1, 2, 1])
    m = truth.moments()
    assert ld.latent_dimension(m) == 3
    assert ("Z1a", "Z1b") in ld.same_target_groups(m)
    assert ld.observational_contexts(m) == ("control",)


@pytest.mark.parametrize("example", ["star_tie", "deviation_cancellation"])
def test_where_the_papers_rule_ties_or_errs(example):
    tie = getattr(ld.counterexamples, example)()
    assert tie.chosen != (tie.model.control,)
    Theta = [tie.model.precision(c) for c in tie.model.contexts]
    assert ld.observational_contexts(Theta, tie.model.contexts) == (tie.model.control,)


def test_out_of_model_contexts_leave_nothing_admissible():
    two = ld.simulate.random_model(n_latents=4, n_features=4, density=1.0, n_targets=2, rng=1)
    assert ld.observational_contexts([two.precision(c) for c in two.contexts]) == ()


def test_bad_input():
    truth = model_on(np.zeros((2, 2), bool), np.random.default_rng(0))
    Theta = [truth.precision(c) for c in truth.contexts]
    with pytest.raises(ValueError, match="no context 'nobody'"):
        ld.same_target_groups(Theta, truth.contexts, observational="nobody")
    with pytest.raises(ValueError, match="different ranks"):
        ld.latent_dimension([np.eye(3), np.diag([1.0, 1.0, 0.0])])
