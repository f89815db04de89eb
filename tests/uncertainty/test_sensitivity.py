"""What survives if interventions are weaker than they were taken for, and what soft ones tell."""

import networkx as nx
import numpy as np
import pytest

import latentdag as ld
from latentdag.core.responses import weight_at
from latentdag.uncertainty.strength import responses_of

from designs import partial_model


def aligned(model, fit):
    """Weights of a model between latents with the order and signs of a fit, of noises of variance one; and units."""
    M, N = (each.reordered(fit.order) for each in (fit.model, model))
    rows = [each.structural() @ each.unmixing for each in (M, N)]
    sign = np.sign(np.einsum("ij,jk,ik->i", rows[0], model.covariance(), rows[1]))
    sd, unit = np.sqrt(N.noise_variance), np.sqrt(M.noise_variance)
    return sign[:, None] * N.weights * sd / sd[:, None] * sign, unit[:, None] / unit


@pytest.mark.parametrize("intervention", ["perfect", "soft"])
@pytest.mark.parametrize("seed", [21, 22])
def test_contexts_show_total_effects_times_strengths(seed, intervention):
    """R = I + S (T − I), whether or not the fit takes interventions for perfect."""
    truth, strength = partial_model(seed, d=5)
    fit = ld.fit(truth.moments(10_000), intervention=intervention)
    found = responses_of(fit)
    A, _ = aligned(truth, fit)
    T = np.linalg.inv(np.eye(5) - A) - np.eye(5)
    expected = np.array([strength[c] * T[i] for c, i in zip(found.contexts, found.target, strict=True)])
    np.testing.assert_allclose(found.shown, expected, atol=1e-2)


def test_the_true_strengths_turn_responses_into_weights():
    truth, strength = partial_model(23, d=5)
    fit = ld.fit(truth.moments(10_000))
    A, _ = aligned(truth, fit)
    found = responses_of(fit)
    R, s = np.eye(5), np.ones(5)
    R[found.target] += found.shown
    s[found.target] = [strength[c] for c in found.contexts]
    for i in range(1, 5):
        V = np.zeros((i * (i + 1) // 2,) * 2)
        assert weight_at(R[: i + 1, : i + 1], V, s[None, : i + 1])[0] == pytest.approx(A[i, 0], abs=1e-2)


def test_bands_hold_all_weights_of_a_box_and_claims_are_true():
    for seed in range(24, 27):
        truth, _ = partial_model(seed, d=5, low=0.5, high=1.0)
        fit = ld.fit(truth.moments(10_000))
        A, units = aligned(truth, fit)
        A = A * units
        at = fit.order.index
        for row in fit.sensitivity((0.5, 1.0)).table.itertuples():
            true = A[at(row.target), at(row.source)]
            assert row.low - 1e-2 <= true <= row.high + 1e-2
            if row.reading == "direct at every strength" or row.breakdown < 0.5:
                assert true * row.weight > 0
        direct = fit.sensitivity().table.set_index(["source", "target"])["breakdown"] == 0
        assert set(direct.index[direct]) <= set(truth.graph.edges)


def test_a_chain_is_no_edge_where_the_middle_may_be_weak():
    """j → l → i, l weakened by half: a fit that takes it for cut off shows j → i, and says how little that is worth."""
    A = np.array([[0, 0, 0], [0.8, 0, 0], [0, 0.8, 0]])
    hit = {
        name: ld.Intervention(name, variance=0.3, strength=s) for name, s in zip("jli", (1.0, 0.5, 1.0), strict=True)
    }
    model = ld.LatentModel(np.random.default_rng(0).normal(size=(3, 5)), A, np.ones(3), hit, latents=("j", "l", "i"))
    fit = ld.fit(model.moments(5_000))
    assert fit.graph.has_edge("j", "i")
    table = fit.sensitivity((0.3, 1.0)).table.set_index(["source", "target"])
    assert table.loc[("j", "i"), "breakdown"] > 0.5
    assert list(table.loc[[("j", "l"), ("l", "i")], "reading"]) == ["direct at every strength"] * 2
    known = ld.fit(model.moments(5_000), strength={"l": 0.5})
    assert not known.graph.has_edge("j", "i")
    assert known.sensitivity((0.3, 1.0)).table["reading"].str.startswith("cause").sum() == 1
    half = fit.sensitivity({"l": (0.5, 0.5)}).table.set_index(["source", "target"]).loc[("j", "i")]
    assert half["low"] < 0 < half["high"]


def test_intervals_of_strengths_widen_errors_by_what_they_move():
    """The delta method against refits at the ends of the interval."""
    truth, strength = partial_model(28, d=4)
    m, width = truth.moments(50_000), 0.02
    told = {**strength, "c1": (strength["c1"] - width, strength["c1"] + width)}

    def weights(strength):
        table = ld.fit(m, strength=strength, graph=truth.graph).uncertainty().table("unit-variance", ["weight"])
        return table["estimate"].to_numpy(), table["std_error"].to_numpy()

    (_, wide), (_, narrow) = weights(told), weights(strength)
    low, high = (weights({**strength, "c1": end})[0] for end in told["c1"])
    slope = (np.abs(high) - np.abs(low)) / (2 * width)
    np.testing.assert_allclose(
        np.sqrt(wide**2 - narrow**2), np.abs(slope) * 2 * width / np.sqrt(12), atol=2e-4, rtol=0.05
    )


def test_predictions_of_combinations_do_not_depend_on_strengths():
    truth, strength = partial_model(29, d=4)
    m = truth.moments(2_000)
    one, other = ld.fit(m).predict(["c1", "c3"]), ld.fit(m, strength=strength).predict(["c1", "c3"])
    exact = truth.intervene({truth.targets["c1"]: None, truth.targets["c3"]: None})
    np.testing.assert_allclose(other.covariance, exact.covariance, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=0.05, atol=0.05)


def test_soft_fits_speak():
    truth, _ = partial_model(30, d=4)
    fit = ld.fit(ld.simulate.sample_moments(truth, 4_000, rng=30), intervention="soft")
    table, causes = fit.edges(), set(nx.transitive_closure_dag(truth.graph).edges)
    assert table[["z", "p_value", "q_value", "probability"]].notna().all(axis=None)
    assert "cause of target" in table.attrs["note"]
    assert set(fit.partial_order(0.95).edges) <= causes
    sure = fit.relations().query("p_value < 1e-4")
    assert set(zip(sure["source"], sure["target"], strict=True)) <= causes
    assert len(sure) > 2
    with pytest.raises(ValueError, match="soft interventions have no strength"):
        fit.sensitivity()


def test_the_figure_has_a_line_for_every_edge():
    truth, _ = partial_model(40, d=5)
    fit = ld.fit(truth.moments(5_000))
    pytest.importorskip("matplotlib")
    ax = ld.pl.sensitivity(fit.sensitivity())
    assert len(ax.get_legend().get_texts()) == fit.sensitivity().table["reading"].str.startswith("direct").sum()


@pytest.mark.parametrize(
    ("strengths", "words"),
    [
        ((0.0, 1.0), "must be a number above 0"),
        ((0.9, 0.5), "a pair"),
        ({"nobody": (0.5, 1.0)}, "'nobody', which is no context"),
    ],
)
def test_bad_strengths_are_said(strengths, words):
    truth, _ = partial_model(0)
    with pytest.raises(ValueError, match=words):
        ld.fit(truth.moments(500)).sensitivity(strengths)
