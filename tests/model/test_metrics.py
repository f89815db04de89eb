import numpy as np
import pytest
from hypothesis import given

import latentdag as ld
from latentdag import metrics

from strategies import models, seeds


@given(models(min_latents=2), seeds)
def test_a_perfect_estimate_scores_perfectly_in_any_order_and_scaling(truth, seed):
    rng = np.random.default_rng(seed)
    same = truth.rescaled(rng.uniform(0.5, 2, truth.n_latents) * rng.choice([-1, 1], truth.n_latents))
    same = same.reordered(rng.permutation(list(truth.latents)).tolist())
    scores = metrics.compare(truth, same)
    assert scores["order correct"] == scores["targets correct"] == 1
    assert scores["SHD"] == 0
    assert scores["closure precision"] == scores["closure recall"] == 1
    for name in ("‖Ĥ − H‖", "‖Ĥ − H‖, truth's index", "‖B̂ − B‖", "‖B̂ − B‖, truth's index", "mean angle (°)"):
        assert scores[name] == pytest.approx(0, abs=1e-4)
    assert scores["mean latent correlation"] == pytest.approx(1)


def test_distances_by_hand():
    truth = ld.LatentModel(
        np.eye(2), [[0, 0.5], [0, 0]], [1, 1], {"a": ld.Intervention("Z1", variance=2), "b": ld.Intervention("Z2")}
    )
    turned = ld.LatentModel(
        [[1, 0.75], [0, 1]], [[0, 0], [0, 0]], [1, 4], {"a": ld.Intervention("Z1"), "b": ld.Intervention("Z2")}
    )
    assert metrics.unmixing_error(truth, turned) == pytest.approx(0.75)
    assert metrics.structural_error(truth, turned) == pytest.approx(np.sqrt(0.5**2 + 0.5**2))
    assert metrics.row_angles(truth, turned).tolist() == pytest.approx([np.degrees(np.arctan(0.75)), 0])
    # Cov(Z1, Z1 + .75 Z2) with Var Z1 = 1.25, Cov(Z1, Z2) = .5, Var Z2 = 1
    expected = (1.25 + 0.375) / np.sqrt(1.25 * (1.25 + 2 * 0.375 + 0.75**2))
    assert metrics.latent_correlations(truth, turned)["Z1"] == pytest.approx(expected)
    assert metrics.shd(truth, turned) == 1
    assert metrics.closure_precision_recall(truth, turned) == (1.0, 0.0)


def test_near_ties_make_the_papers_scaling_jump_but_not_the_truths_index():
    truth = ld.LatentModel([[1.0, -0.999]], [[0]], [1], {"a": ld.Intervention("Z1")})
    near = ld.LatentModel([[0.999, -1.0]], [[0]], [1], {"a": ld.Intervention("Z1")})
    assert metrics.unmixing_error(truth, near) > 1.9
    assert metrics.unmixing_error(truth, near, "truth-index") < 0.01


def test_swapped_targets_are_seen_unless_the_graph_allows_them():
    free = ld.simulate.random_model(n_latents=3, n_features=3, density=0.0, rng=1)
    chain = ld.simulate.random_model(n_latents=3, n_features=3, density=1.0, rng=1)
    for truth, right in ((free, True), (chain, False)):
        names = list(truth.latents)
        swapped = truth.reordered([names[1], names[0], names[2]])
        estimate = ld.LatentModel(  # no edges: the order of rows is all it says
            swapped.unmixing, np.zeros((3, 3)), swapped.noise_variance, swapped.interventions, swapped.latents
        )
        assert metrics.order_correct(truth, estimate) is right
        assert (metrics.targets_correct(truth, estimate) == 1) is right


def test_incomparable_models():
    a = ld.simulate.random_model(n_latents=2, n_features=3, rng=0)
    b = ld.simulate.random_model(n_latents=3, n_features=3, rng=0)
    with pytest.raises(ValueError, match="the truth has 2 latents, the estimate 3"):
        metrics.row_angles(a, b)
    with pytest.raises(ValueError, match="share no context"):
        metrics.unmixing_error(a, ld.LatentModel(np.eye(2), np.zeros((2, 2)), np.ones(2)))
    with pytest.raises(ValueError, match="'paper' or 'truth-index'"):
        metrics.unmixing_error(a, a, "largest")
