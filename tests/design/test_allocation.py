"""An allocation cannot be bettered, sums to the budget, and keeps the floors."""

from dataclasses import replace

import numpy as np
import pytest

import latentdag as ld
from latentdag.core.planning import rounded, share_out
from latentdag.design.assumed import Assumed


@pytest.fixture(scope="module")
def truth():
    return ld.simulate.random_model(4, 6, 0.8, convention="text", rng=43)


@pytest.fixture(scope="module")
def several():
    """Two contexts on one target, one context with two targets."""
    drawn = ld.simulate.random_model(3, 5, 1.0, convention="text", rng=8)
    a, b = list(drawn.interventions)[:2]
    again = ld.Intervention(drawn.targets[a], variance=0.5)
    both = ld.Intervention.combine([drawn.interventions[a], drawn.interventions[b]])
    return replace(drawn, interventions={**drawn.interventions, "again": again, "both": both})


def ratios(assumed, n):
    return assumed.screen.variances(n) / assumed.edges["weight"].to_numpy() ** 2


@pytest.mark.parametrize("name", ["truth", "several"])
def test_max_min_allocations_cannot_be_bettered(name, request):
    assumed = Assumed.of(request.getfixturevalue(name))
    w, K = assumed.edges["weight"].abs().to_numpy(), len(assumed.fit.model.contexts)
    floors, rng = np.full(K, 20.0), np.random.default_rng(0)
    n = share_out(assumed.screen, w, 2_000.0, floors, weakest=True)
    assert n.sum() == pytest.approx(2_000)
    assert (n >= floors - 1e-6).all()
    worst = ratios(assumed, n).max()
    assert worst < ratios(assumed, np.full(K, 2_000 / K)).max()
    for other in floors + (2_000 - floors.sum()) * rng.dirichlet(np.ones(K), 200):
        for share in (1.0, 0.03):  # far and near
            assert ratios(assumed, n + share * (other - n)).max() >= worst * (1 - 1e-6)


def test_the_smallest_sum_of_variances_has_equal_slopes(truth):
    assumed = Assumed.of(truth)
    floors = np.full(5, 20.0)
    n = share_out(assumed.screen, np.ones(len(assumed.edges)), 2_000.0, floors, weakest=False)
    slopes = assumed.screen.slopes(n)[1].sum(axis=0)
    inside = n > floors + 1
    np.testing.assert_allclose(slopes[inside], slopes[inside].mean(), rtol=1e-3)
    assert (slopes[~inside] >= slopes[inside].mean() * (1 + 1e-3)).all()  # a cell there is worth less


@pytest.mark.parametrize("budget", [997, 1_000, 12_345])
def test_whole_cells_sum_to_the_budget(several, budget):
    counts = ld.design.allocate(several, budget)
    assert counts.sum() == budget
    assert counts["control"] >= budget // 12
    assert counts.min() >= budget // 30
    assert counts.dtype.kind == "i"


def test_rounding_keeps_the_sum_and_moves_nothing_by_more_than_one():
    n = np.random.default_rng(1).dirichlet(np.ones(7)) * 1_001
    assert rounded(n, 1_001).sum() == 1_001
    assert (np.abs(rounded(n, 1_001) - n) < 1).all()


def test_less_power_is_lost_than_by_equal_cells(truth):
    counts = ld.design.allocate(truth, 2_000)
    assert counts.attrs["least_power"] > counts.attrs["least_power_equal"]
    plan = ld.design.power(truth, counts, searched=False)
    assert plan["power"].min() == pytest.approx(counts.attrs["least_power"], abs=1e-6)
    fewer = ld.design.power(truth, (counts * (1 - counts.attrs["saved"])).astype(int), searched=False)["power"].min()
    assert fewer == pytest.approx(counts.attrs["least_power_equal"], abs=0.01)
    variances = ld.design.allocate(truth, 2_000, criterion="A")
    sums = [(ld.design.power(truth, c, searched=False)["half_width"] ** 2).sum() for c in (variances, counts)]
    assert sums[0] < sums[1]


def test_neither_units_nor_the_order_of_contexts_matter(truth):
    scale = 10.0 ** np.arange(-3, 3)
    other = replace(
        truth, unmixing=truth.unmixing / scale, offset=truth.offset * scale,
        interventions={c: truth.interventions[c] for c in sorted(truth.interventions, reverse=True)},
    )  # fmt: skip
    a, b = ld.design.allocate(truth, 3_000), ld.design.allocate(other, 3_000)
    assert (a - b[a.index]).abs().max() <= 1


def test_floors_are_kept(truth):
    counts = ld.design.allocate(truth, 1_000, floor={"control": 300, "c2": 150})
    assert counts["control"] == 300
    assert counts["c2"] >= 150
    assert ld.design.allocate(truth, 1_000, floor=190).min() >= 190


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: ld.design.allocate(t, 14), "a budget of 14 cells is below the floors of 5 contexts"),
        (lambda t: ld.design.allocate(t, 400, floor=100), "below the floors of 5 contexts, 500 together"),
        (lambda t: ld.design.allocate(t, -1), "budget must be a whole number, 1 or more, got -1"),
        (lambda t: ld.design.allocate(t, "all"), "budget must be a whole number, 1 or more, got 'all'"),
        (lambda t: ld.design.allocate(t, 1_000, criterion="D"), "criterion must be one of 'maxmin', 'A', got 'D'"),
        (lambda t: ld.design.allocate(t, 1_000, floor={"x": 3}), r"unknown \['x'\]"),
    ],
)
def test_bad_input_gets_a_sentence(truth, call, words):
    with pytest.raises(ValueError, match=words):
        call(truth)


def test_what_no_design_can_tell_is_no_budget_spent_on():
    truth = ld.simulate.random_model(2, 3, 1.0, kind="soft", rng=2)
    with pytest.raises(ValueError, match="no number of cells tells the weight of"):
        ld.design.allocate(truth, 1_000)
