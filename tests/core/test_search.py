"""Size changes the effort of the search, never its question: both sides of every border give the same answer."""

import pytest

import latentdag as ld
from latentdag.core import edge_estimates, effort, jacobian, newton, search
from latentdag.methods import rivals, starts

#: Every constant of the form "up to so many latents", and the modules that read it.
BORDERS = {
    "INSERT_UP_TO": (search, rivals),
    "ALL_ADAPT_UP_TO": (edge_estimates,),
    "RAW_UP_TO": (starts,),
    "DENSE_UP_TO": (newton,),
}


def found(m, monkeypatch, border, value):
    with monkeypatch.context() as patch:
        for module in BORDERS[border]:
            patch.setattr(module, border, value)
        fit = ld.fit(m)
    return set(fit.graph.edges), fit.loglik


def test_every_border_of_size_is_tested():
    assert {name for name in vars(effort) if name.endswith("_UP_TO")} == set(BORDERS)
    assert not any(name.endswith("_UP_TO") for name in vars(jacobian))


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("seed", range(2))
def test_both_sides_of_a_border_find_the_true_graph_of_exact_moments(border, seed, monkeypatch):
    truth = ld.simulate.random_model(6, 6, density=0.5, convention="text", rng=[seed, 8])
    m = truth.moments(10**5)
    below, above = (found(m, monkeypatch, border, value) for value in (5, 6))
    assert below[0] == above[0] == set(truth.graph.edges)
    assert below[1] == pytest.approx(above[1], abs=1e-2)


@pytest.mark.parametrize("border", BORDERS)
def test_both_sides_of_a_border_agree_on_samples(border, monkeypatch):
    agree = []
    for seed in range(3):
        truth = ld.simulate.random_model(6, 6, density=0.4, rng=[seed, 80])
        m = ld.simulate.sample_moments(truth, 5_000, rng=[seed, 81])
        below, above = (found(m, monkeypatch, border, value) for value in (5, 6))
        agree.append(below[0] == above[0])
    assert sum(agree) >= 2  # single edges at the border of their penalty may differ
