"""The comparison with other software is fair: scores are what they say, and absent packages are left out."""

import importlib.util
import sys

import numpy as np
import pytest

from paths import BENCHMARKS

sys.path.append(str(BENCHMARKS))
comparison = pytest.importorskip("comparison")


@pytest.fixture(scope="module")
def draw():
    return comparison.Draw("figures", 2_000, [1, 2])


def test_the_truth_scores_one(draw):
    place, scores = draw.components(draw.truth.unmixing[::-1])
    assert place.tolist() == list(range(5))[::-1]
    assert scores["latents"] == pytest.approx(1)
    assert draw.graph(draw.edges) == {"F1": 1.0, "exact": 1.0}
    assert draw.components(draw.truth.structural() @ draw.truth.unmixing)[1]["noises"] == pytest.approx(1)


def test_an_open_direction_counts_as_right_but_not_as_exact(draw):
    assert draw.graph(draw.edges | draw.edges.T) == {"F1": 1.0, "exact": 0.0}
    assert draw.graph(draw.edges.T)["F1"] == 0
    assert draw.graph(np.zeros((5, 5), dtype=bool))["F1"] == 0


def test_ours_and_a_decomposition(draw):
    ours = comparison.ours(draw, "likelihood")
    assert ours["latents"] > 0.99
    assert ours["targets"] == 1
    assert 0.2 < comparison.decomposed(draw, "PCA")["latents"] < ours["latents"]


def test_absent_packages_are_left_out():
    rows = {row["method"]: row for row in comparison.cell("figures", 300, 1, 0)}
    assert ("true+gies" in rows) == (importlib.util.find_spec("gies") is not None)
    assert {"latentdag", "projection", "PCA"} <= set(rows)
    assert comparison.installed("no-such-package") is None
