"""What is predicted is what screens show, whatever the units and the order of contexts."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.core.jacobian import information
from latentdag.core.planning import Screen
from latentdag.design.assumed import Assumed
from latentdag.design.rivals import Exact, gaps_of


def shifted(model, size):
    """Every intervention also moves the mean of its target's noise."""
    changed = {
        context: ld.Intervention.of_changes(
            {name: replace(change, shift=size * (-1) ** i) for name, change in value.changes.items()}
        )
        for i, (context, value) in enumerate(model.interventions.items())
    }
    return replace(model, interventions=changed)


@pytest.fixture(scope="module", params=["text", "shifted"])
def truth(request):
    drawn = ld.simulate.random_model(4, 6, 0.8, convention="text", rng=43)
    return drawn if request.param == "text" else shifted(drawn, 0.6)


def by_edge(table):
    return table.set_index(["source", "target"]).sort_index()


def test_information_is_linear_in_the_cells(truth):
    screen, rng = Assumed.of(truth).screen, np.random.default_rng(0)
    a, b = rng.uniform(10, 100, (2, 5))
    parts = [information(screen.with_cells(n)) for n in (a, b, 2 * a + b)]
    np.testing.assert_allclose(2 * parts[0] + parts[1], parts[2], rtol=1e-12, atol=1e-9)


def test_slopes_are_those_of_the_variances(truth):
    screen, n = Assumed.of(truth).screen, np.array([90.0, 100, 110, 120, 130])
    v, slopes = screen.slopes(n)
    np.testing.assert_allclose(v, screen.variances(n))
    for k, step in enumerate(1e-3 * np.eye(5)):
        difference = (screen.variances(n + step) - screen.variances(n - step)) / 2e-3
        np.testing.assert_allclose(slopes[:, k], difference, rtol=1e-5, atol=1e-12)


def test_variances_are_those_of_a_fit_to_exact_moments(truth):
    counts = dict(zip(truth.contexts, (300, 400, 500, 600, 700), strict=True))
    fit = ld.fit(truth.moments(list(counts.values())), graph=truth.graph.edges)
    edges = by_edge(fit.edges())
    plan = by_edge(ld.design.power(truth, counts, searched=False))
    # the moments of samples have n − 1 degrees of freedom, exact ones are taken for those
    np.testing.assert_allclose(
        plan["half_width"] / stats.norm.isf(0.025), edges["standardized_weight"] / edges["z"], rtol=0.01
    )
    np.testing.assert_allclose(plan["weight"].abs(), edges["standardized_weight"].abs(), rtol=1e-3)


def standardized(exact):
    """The weights of the truth's graph fitted to moments, between latents of unit variance, by edge."""
    B = exact.truth.optimum.rows[: exact.design.d]
    sd = np.sqrt(np.diagonal(np.linalg.inv(B) @ np.linalg.inv(B).T))
    A = -B / np.diagonal(B)[:, None] * sd / sd[:, None]
    names = exact.prepared.latents
    return {(names[j], names[i]): A[i, j] for i, j in np.argwhere(exact.edges)}


def test_power_of_a_known_graph_is_what_screens_show(truth):
    n, draws, rng = 250, 80, np.random.default_rng(11)
    plan = by_edge(ld.design.power(truth, n, searched=False))
    fit, error = Assumed.of(truth).fit, plan["half_width"] / stats.norm.isf(0.025)
    found = np.zeros((draws, len(plan)))
    for each in found:
        weights = standardized(Exact(fit, ld.simulate.sample_moments(truth, n, rng)))
        each[:] = [abs(weights[pair]) > stats.norm.isf(0.025) * error[pair] for pair in plan.index]
    assert plan["power"].between(0.1, 0.95).any()
    wrong = found.mean(axis=0) - plan["power"].to_numpy()
    assert (np.abs(wrong) < 0.05 + 3 * np.sqrt(plan["power"] * (1 - plan["power"]) / draws)).all()


def test_search_makes_finding_harder_and_cells_make_it_easier(truth):
    known, searched, more = (
        by_edge(ld.design.power(truth, n, searched=how))["power"]
        for n, how in ((150, False), (150, True), (2_000, True))
    )
    assert (searched <= known + 1e-12).all()
    assert searched.sum() < known.sum() - 0.1
    assert more.sum() > searched.sum() + 0.1


def test_gaps_of_rivals_are_those_of_fits_to_exact_moments(truth):
    fit = Assumed.of(truth).fit
    exact = Exact(fit, truth.moments(200))
    gaps, V = gaps_of(exact)
    told = [exact.truth.optimum.value - one.graph.optimum.value for one in exact.rivals]
    assert len(told) > 2
    np.testing.assert_allclose(gaps, told, atol=0.05)
    # where a rival is near, the likelihood ratio is as in the normal limit: its variance is twice its mean
    near = (gaps > 0.01) & (gaps < 4)
    assert near.any()
    np.testing.assert_allclose(np.square(V[near]).sum(axis=1), 2 * gaps[near], rtol=0.5)


def test_the_truth_is_certain_in_the_limit(truth):
    table = ld.design.power(truth, 10**6)
    assert (table["power"] > 0.999).all()
    assert table.attrs["p_order"] > 0.999
    assert table.attrs["p_graph"] > 0.99


@pytest.mark.parametrize("searched", [False, True])
def test_units_and_order_of_contexts_do_not_matter(truth, searched):
    counts = dict(zip(truth.contexts, (200, 250, 300, 350, 400), strict=True))
    contexts = list(truth.interventions)[::-1]
    other = replace(
        truth.rescaled([3.0, 0.2, 5.0, 1.0]),
        interventions={c: truth.rescaled([3.0, 0.2, 5.0, 1.0]).interventions[c] for c in contexts},
    )
    scale = 10.0 ** np.arange(-3, 3)
    other = replace(other, unmixing=other.unmixing / scale, offset=other.offset * scale)
    a, b = (by_edge(ld.design.power(model, counts, searched=searched)) for model in (truth, other))
    np.testing.assert_allclose(a["half_width"], b["half_width"], rtol=1e-6)
    np.testing.assert_allclose(a["power"], b["power"], atol=0.02 if searched else 1e-6)  # draws differ in their order


def test_cells_needed_give_the_power(truth):
    needed = ld.design.samples_needed(truth, 0.8, searched=False)
    for edge in needed.itertuples():
        counts = int(np.ceil(edge.cells / 5))
        power = by_edge(ld.design.power(truth, counts, searched=False))["power"][edge.source, edge.target]
        assert power == pytest.approx(0.8, abs=0.03)
    counts = needed.attrs["counts"]
    assert sum(counts.values()) >= needed["cells"].max()
    assert ld.design.power(truth, counts, searched=False)["power"].min() > 0.77


def test_shares_are_kept(truth):
    shares = dict(zip(truth.contexts, (1, 2, 3, 2, 2), strict=True))
    counts = ld.design.samples_needed(truth, 0.8, shares=shares, searched=False).attrs["counts"]
    unit = counts["control"] / shares["control"]
    assert all(abs(counts[c] - shares[c] * unit) <= shares[c] for c in counts)


def test_a_curve_is_made_of_tables(truth):
    curve = ld.design.power_curve(truth, [1_000, 2_000], searched=False)
    one = ld.design.power(truth, 200, searched=False)
    np.testing.assert_allclose(curve.loc[curve["cells"] == 1_000, "power"], one["power"])


def test_a_pilot_is_shrunk_and_says_what_it_leaves_open(truth):
    pilot = ld.fit(ld.simulate.sample_moments(truth, 1_000, rng=5))
    plan, edges = by_edge(ld.design.power(pilot, 400, searched=False)), by_edge(pilot.edges())
    assert (plan["weight"].abs() < edges["standardized_weight"].abs()).mean() > 0.5
    assert plan["weight"].abs().sum() < edges["standardized_weight"].abs().sum()
    assert (plan["lower"] <= plan["power"] + 1e-9).all()
    large = by_edge(ld.design.power(ld.fit(truth.moments(10**7)), 400, searched=False))
    np.testing.assert_allclose(large["power"], by_edge(ld.design.power(truth, 400, searched=False))["power"], atol=0.01)


def test_simulated_screens_are_the_same_for_the_same_seed():
    truth = ld.simulate.random_model(2, 3, 1.0, rng=1)
    a, b = (ld.design.power(truth, 60, simulate=4, rng=3) for _ in range(2))
    assert a.equals(b)
    assert a.attrs["simulated"] == 4
    assert set(a["power"]) <= {0, 0.25, 0.5, 0.75, 1}


def test_weights_that_soft_interventions_leave_free_have_no_power():
    truth = ld.simulate.random_model(3, 5, 1.0, kind="soft", rng=2)
    table = ld.design.power(truth, 1_000)
    assert np.isinf(table["half_width"]).any()
    assert (table.loc[np.isinf(table["half_width"]), "power"] == 0).all()
    assert "no number of cells tells the weight" in table.attrs["note"]
    assert "not all interventions are perfect" in table.attrs["note"]
    needed = ld.design.samples_needed(truth)
    assert np.isinf(needed["cells"]).any()


def test_noisy_features_cost_cells():
    truth = ld.simulate.random_model(3, 8, 1.0, rng=3)
    psi = 0.5 * np.diagonal(truth.covariance())
    noisy = replace(
        truth, unmixing=np.linalg.solve((truth.mixing.T / psi) @ truth.mixing, truth.mixing.T / psi),
        loadings=truth.mixing, residual=np.diag(psi), feature_noise=psi,
    )  # fmt: skip
    exact, with_noise = (by_edge(ld.design.power(model, 300, searched=False))["half_width"] for model in (truth, noisy))
    assert (with_noise > exact).all()
    assert "features are noisy" in ld.design.power(noisy, 300).attrs["note"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: ld.design.power(t, 0), "cells of context 'control' must be a whole number, 3 or more, got 0"),
        (lambda t: ld.design.power(t, -5), "got -5"),
        (lambda t: ld.design.power(t, 10.5), "a whole number, 3 or more, got 10.5"),
        (lambda t: ld.design.power(t, "many"), "a whole number, 3 or more, got 'many'"),
        (lambda t: ld.design.power(t, {"control": 50}), r"missing \['c1'"),
        (lambda t: ld.design.power(t, dict.fromkeys([*t.contexts, "x"], 50)), r"unknown \['x'\]"),
        (lambda t: ld.design.power(t, 100, alpha=1.5), "alpha is a probability"),
        (lambda t: ld.design.samples_needed(t, 0.01), "power is a probability between alpha = 0.05 and 1"),
        (
            lambda t: ld.design.samples_needed(t, shares=dict.fromkeys(t.contexts, 0)),
            "a share of the cells is a positive",
        ),
        (
            lambda t: ld.design.power(replace(t, weights=np.zeros((4, 4))), 100),
            "no edge to plan for: the model has none",
        ),
        (
            lambda t: ld.design.power(ld.fit(t.moments(500), method="closed-form"), 100),
            "does not maximise the likelihood",
        ),
    ],
)
def test_bad_input_gets_a_sentence(truth, call, words):
    with pytest.raises(ValueError, match=words):
        call(truth)


def test_what_is_no_fit_is_refused():
    with pytest.raises(TypeError, match="plan from a Fit or a LatentModel, got int"):
        ld.design.power(3, 100)


def test_a_pilot_in_which_nothing_happened_is_refused():
    idle = ld.LatentModel(np.eye(2), [[0, 0.5], [0, 0]], [1, 1], {"a": ld.Intervention("Z2", variance=1.0)})
    quiet = ld.fit(ld.simulate.sample_moments(idle, 300, rng=0))
    assert quiet.idle == ("a",)
    with pytest.raises(ValueError, match=r"the pilot found none\. Nothing changed in a"):
        ld.design.power(quiet, 100)


def test_screens_hold_any_quantity():
    truth = ld.simulate.random_model(3, 5, 1.0, rng=4)
    screen = Assumed.of(truth).screen
    doubled = Screen(screen.point, 2 * screen.gradients)
    n = np.full(4, 100.0)
    np.testing.assert_allclose(doubled.variances(n), 4 * screen.variances(n))
