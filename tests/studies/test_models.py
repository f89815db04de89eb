"""Studies of models: what is identified, what happens off the model, how time and memory grow."""

import doctest
from functools import partial

import numpy as np
import pytest

import latentdag as ld
from studies import means, scaling
from studies.__main__ import load, main
from studies.robustness import off_model
from studies.robustness.off_model import BREAKS

from runs import check_folder


def quick(tmp_path, name, models=2):
    assert main([name, "--quick", "--models", str(models), "--out", str(tmp_path)]) == 0
    return check_folder(tmp_path / name, models, load(name))


def test_examples():
    assert [doctest.testmod(module).attempted for module in (means, scaling)] == [1, 1]
    assert doctest.testmod(means).failed == doctest.testmod(scaling).failed == 0


def test_identifiability(tmp_path):
    rows, _ = quick(tmp_path, "identifiability")
    assert rows["moment_gap"].max() < 1e-10
    pairs = rows[rows["part"] == "pair"]
    # in one pair nothing is hidden: the latents are the same, and an edge is turned round
    assert ((pairs["unmixing_gap"] > 0.1) | (pairs["edges_first"] != pairs["edges_second"])).all()
    assert (rows["double_gap"].dropna() < 1e-10).all()
    assert rows.loc[rows["part"] == "soft", "closure_identified"].all()
    control = rows[rows["part"] == "control"].set_index("name")
    assert control["admissible"].to_dict() == {
        "one latent": "0, 1",
        "star, d = 2": "0",
        "star, d = 4": "0",
        "cancellation": "0",
    }
    assert control.loc["cancellation", "by_the_rule"] == "2"


@pytest.mark.slow
def test_robustness(tmp_path):
    rows, _ = quick(tmp_path, "robustness", models=1)
    tested = rows[(rows["method"] == "likelihood") & (rows["n"] == 2_500)].set_index("break")
    assert tested.loc[["off-target"], "flagged_robust"].all()
    assert set(rows.loc[rows["break"] == "unintervened", "method"]) > {"likelihood", "likelihood, upstream"}
    on_model = rows[(rows["break"] == "none") & (rows["n"] == 2_500) & (rows["method"] == "likelihood")]
    assert (on_model["correlation"] > 0.99).all()


@pytest.mark.parametrize("name", list(BREAKS))
def test_every_break_draws_samples_of_every_context(name):
    truth = ld.simulate.random_model(3, 4, rng=0)
    for draw in BREAKS[name].values():
        X, contexts = draw(truth, 50, np.random.default_rng(0))
        kept = len(truth.contexts) - (name == "unintervened")
        assert X.shape == (50 * kept, 4)
        assert len(set(contexts)) == kept
        assert np.isfinite(X).all()


def test_breaks_of_size_nothing_are_the_model():
    truth = ld.simulate.random_model(rng=1)
    exact = truth.moments()
    for draw in (
        partial(off_model.curved_effects, size=0.0),
        partial(off_model.off_target, size=0.0),
        partial(off_model.weak, strength=1.0),
        partial(off_model.measurement_noise, size=0.0),
    ):
        m = ld.Moments.from_samples(*draw(truth, 20_000, np.random.default_rng(0)), control="control")
        s = np.sqrt(np.diagonal(exact.covariances, axis1=1, axis2=2))
        gap = np.abs(m.covariances - exact.covariances) / (s[:, :, None] * s[:, None, :])
        assert gap.max() < 0.06


@pytest.mark.slow
def test_scaling(tmp_path):
    rows, _ = quick(tmp_path, "scaling", models=1)
    assert set(rows["method"]) == {"projection", "closed-form", "likelihood"}
    assert (rows["peak_mb"] > 0).all()
    assert "differ from run to run" in (tmp_path / "scaling/README.md").read_text()
