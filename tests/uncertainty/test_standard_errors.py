"""Standard errors: exact formulas against brute force, coverage, invariance, and honesty about what is not known."""

import pickle
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import latentdag as ld
from latentdag.model.intervention import Intervention
from latentdag.uncertainty.standard_errors import Uncertainty

from brute_force import information, parameters, std_error
from designs import as_fit, shifted, with_rest

SCALINGS = ("paper", "unit-variance", "unit-norm")


def several_targets():
    model = ld.simulate.random_model(4, 4, 0.7, "text", rng=5, n_targets=2)
    alone = {f"s{i}": Intervention(name, variance=3.0 + i) for i, name in enumerate(model.latents)}
    return replace(model, interventions={**model.interventions, **alone}).rescaled("paper")


def values(table, model, scaling, pivot):
    """What each row of a table of errors speaks of, in a model."""
    latents, features = list(model.latents), list(model.feature_names)
    m = model.rescaled(model.unmixing[np.arange(len(latents)), pivot] if scaling == "paper" else scaling)
    total = np.linalg.inv(np.eye(len(latents)) - m.weights)
    read = {
        "unmixing": lambda r, c: m.unmixing[latents.index(r), features.index(c)],
        "structural": lambda r, c: m.structural()[latents.index(r), latents.index(c)],
        "weight": lambda r, c: m.weights[latents.index(r), latents.index(c)],
        "total_effect": lambda r, c: total[latents.index(r), latents.index(c)],
        "noise_variance": lambda r, c: m.noise_variance[latents.index(r)],
        "scale": lambda r, c: m.interventions[r].changes[c].variance ** -0.5,
        "shift": lambda r, c: m.interventions[r].changes[c].shift,
    }
    return np.array([read[q](r, c) for q, r, c in zip(table["quantity"], table["row"], table["column"], strict=True)])


CASES = {
    "means": (shifted(ld.simulate.random_model(3, 4, 0.9, rng=2), 0), True),
    "free means": (ld.simulate.random_model(3, 4, 0.9, rng=2), False),
    "several targets": (shifted(several_targets(), 1), True),
    "remaining dimensions": (shifted(with_rest(ld.simulate.random_model(3, 5, 0.9, rng=2), 3), 2), True),
    "remaining dimensions, free means": (with_rest(ld.simulate.random_model(3, 5, 0.9, rng=2), 3), False),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_agree_with_numerical_differentiation_of_the_exact_law(name):
    model, means = CASES[name]
    counts = [500 + 37 * k for k in range(len(model.contexts))]
    fit = as_fit(model, counts, means)
    basis = np.eye(model.n_features) if model.residual is not None else None
    theta, build, U = parameters(model, list(fit.graph.edges), means, basis)
    C = np.linalg.inv(information(theta, build, U, counts, means))
    pivot = [int(np.argmax(h == 1.0)) for h in model.unmixing]
    for scaling in SCALINGS:
        table = fit.standard_errors(scaling)
        np.testing.assert_allclose(values(table, model, scaling, pivot), table["estimate"], rtol=1e-9, atol=1e-12)
        slow = std_error(lambda m, t=table, s=scaling: values(t, m, s, pivot), theta, build, C)
        np.testing.assert_allclose(table["std_error"], slow, rtol=1e-5, atol=1e-9)
        assert table.attrs["note"] == ""


def test_soft_interventions_leave_exactly_the_unidentified_numbers_without_an_error():
    model = shifted(ld.simulate.random_model(3, 4, 0.9, rng=3, kind="soft"), 4)
    counts = [400, 500, 600, 700]
    fit = as_fit(model, counts)
    theta, build, U = parameters(model, list(fit.graph.edges))
    total = information(theta, build, U, counts)
    scale = np.sqrt(np.diagonal(total))
    w, V = np.linalg.eigh(total / np.outer(scale, scale))
    null = V[:, w < 1e-9]
    assert null.shape[1]
    C = (V[:, w >= 1e-9] / w[w >= 1e-9]) @ V[:, w >= 1e-9].T / np.outer(scale, scale)
    table = fit.standard_errors("unit-variance")
    step = 1e-5
    slow = std_error(lambda m: values(table, m, "unit-variance", None), theta, build, C)
    free = np.zeros(len(table), dtype=bool)
    for v in null.T:
        ahead, behind = (values(table, build(s * step * v / scale), "unit-variance", None) for s in (1, -1))
        free |= np.abs(ahead - behind) / step > 1e-5 * np.abs(v / scale).max()
    assert (np.isinf(table["std_error"]) == free).all()
    assert 0 < free.sum() < len(table)
    np.testing.assert_allclose(table["std_error"][~free], slow[~free], rtol=1e-5, atol=1e-9)
    assert "leave these quantities free" in table.attrs["note"]
    edges = fit.edges(level=0.9)
    assert edges.loc[np.isinf(edges["std_error"]), ["z", "p_value", "q_value", "lower"]].isna().all(axis=None)


def test_intervals_cover():
    inside, total = 0, 0
    for seed in range(25):
        truth = ld.simulate.random_model(4, 6, rng=seed, convention="text")
        fit = ld.fit(ld.simulate.sample_moments(truth, 4_000, rng=seed), graph=truth.graph)
        table = fit.confidence_intervals(0.9)
        pivot = [int(np.argmax(h == 1.0)) for h in fit.model.unmixing]
        true = values(table, truth.reordered(fit.latents), "paper", pivot)
        known = (table["std_error"] > 0).to_numpy()
        inside += int(((table["lower"] <= true) & (true <= table["upper"]))[known].sum())
        total += int(known.sum())
    # numbers of one model are correlated: about five free ones count as one
    assert stats.binomtest(inside // 5, total // 5, 0.9).pvalue > 1e-3


def test_the_sandwich_agrees_for_gaussian_noise_and_grows_for_heavy_tails():
    truth = ld.simulate.random_model(3, 5, rng=1)
    ratio = {}
    for noise in ("gaussian", "laplace"):
        X, contexts = ld.simulate.sample(truth, 20_000, rng=0, noise=noise)
        fit = ld.fit(ld.Moments.from_samples(X, contexts, control=truth.control), graph=truth.graph)
        plain, robust = fit.standard_errors(), fit.standard_errors(data=(X, contexts))
        known = plain["std_error"] > 0
        ratio[noise] = (robust["std_error"] / plain["std_error"])[known]
    np.testing.assert_allclose(ratio["gaussian"], 1.0, atol=0.06)
    # Var(ε²) is 5 for Laplace noise and 2 for Gaussian noise
    assert ratio["laplace"].max() == pytest.approx(np.sqrt(5 / 2), rel=0.1)


@pytest.mark.parametrize("means", [True, False])
def test_the_sandwich_with_remaining_dimensions_and_with_free_means(means):
    truth = with_rest(ld.simulate.random_model(2, 4, 1.0, rng=1), 0)
    X, contexts = ld.simulate.sample(truth, 20_000, rng=0)
    m = ld.Moments.from_samples(X, contexts, control=truth.control)
    fit = ld.fit(m, graph=truth.graph, means=means)
    plain, robust = fit.standard_errors(), fit.standard_errors(data=[(X, contexts)])
    known = plain["std_error"] > 0
    np.testing.assert_allclose((robust["std_error"] / plain["std_error"])[known], 1.0, atol=0.06)


def test_invariance_to_maps_of_the_features_and_to_names():
    truth = ld.simulate.random_model(4, 4, rng=3)
    m = ld.simulate.sample_moments(truth, 5_000, rng=3)
    fit = ld.fit(m, graph=truth.graph)
    L = np.random.default_rng(0).normal(size=(4, 4))
    names = dict(zip(m.contexts, ["wt", "d", "c", "b", "a"], strict=True))
    turned = ld.Moments.from_covariances(
        L @ m.covariances @ L.T, m.counts, [names[c] for c in m.contexts], means=m.means @ L.T
    )
    graph = nx.relabel_nodes(truth.graph, names)
    other = ld.fit(turned, graph=graph)
    keep = ["structural", "weight", "total_effect", "scale", "shift", "noise_variance"]
    a = fit.uncertainty().table("unit-variance", keep)
    b = other.uncertainty().table("unit-variance", keep)
    key = ["quantity", "row", "column"]
    a[["row", "column"]] = a[["row", "column"]].map(lambda name: names[name])
    both = a.merge(b, on=key)
    assert len(both) == len(a) == len(b)
    np.testing.assert_allclose(both["std_error_x"], both["std_error_y"], rtol=1e-3)
    # signs of latents are the paper's choice and may turn
    np.testing.assert_allclose(both["estimate_x"].abs(), both["estimate_y"].abs(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_edge_p_values_are_uniform_where_there_is_no_edge(noise):
    p = []
    for seed in range(60):
        truth = ld.simulate.random_model(3, 3, 0.5, rng=seed)
        # the graph with every edge along the true order holds the truth
        full = nx.DiGraph([(u, v) for i, v in enumerate(truth.latents) for u in truth.latents[i + 1 :]])
        X, contexts = ld.simulate.sample(truth, 1_500, rng=seed, noise=noise)
        fit = ld.fit(ld.Moments.from_samples(X, contexts, control=truth.control), graph=full)
        table = fit.edges(data=None if noise == "gaussian" else (X, contexts))
        absent = [not truth.graph.has_edge(u, v) for u, v in zip(table["source"], table["target"], strict=True)]
        p += list(table["p_value"][absent])
    assert len(p) > 60
    assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_few_of_the_edges_with_small_q_values_are_false():
    share = []
    for seed in range(10):
        truth = ld.simulate.random_model(4, 4, rng=seed, convention="text")
        table = ld.fit(ld.simulate.sample_moments(truth, 1_500, rng=seed)).edges()
        found = table[table["q_value"] <= 0.1]
        wrong = [not truth.graph.has_edge(u, v) for u, v in zip(found["source"], found["target"], strict=True)]
        share.append(np.mean(wrong) if wrong else 0.0)
    assert np.mean(share) <= 0.12


@pytest.mark.parametrize("seed", range(3))
def test_tests_of_edges_are_the_same_for_any_invertible_map(seed):
    rng = np.random.default_rng([12, seed])
    truth = ld.simulate.random_model(4, 4, rng=rng, convention="text")
    X, contexts = ld.simulate.sample(truth, 1_000, rng)
    seen = []
    for T in (np.eye(4), rng.normal(size=(4, 4)), rng.normal(size=(7, 4))):
        fit = ld.fit(ld.Moments.from_samples(X @ T.T, contexts, control="control"))
        tables = [fit.edges(), fit.edges(data=(X @ T.T, contexts))]
        seen.append([table.set_index(["source", "target"])["z"].abs().sort_index() for table in tables])
    assert len(seen[0][0]) > 1
    for mapped in seen[1:]:
        for z, plain in zip(mapped, seen[0], strict=True):
            np.testing.assert_allclose(z, plain, rtol=1e-3)


class TestFaces:
    truth = ld.simulate.random_model(rng=5)
    m = ld.simulate.sample_moments(truth, 2_500, rng=0)
    fit = ld.fit(m)

    def test_edges(self):
        table = self.fit.edges()
        assert list(table.columns) == [
            "source", "target", "weight", "std_error", "z", "p_value", "q_value", "probability",
            "standardized_weight",
        ]  # fmt: skip
        scaled = self.fit.standard_errors("unit-variance").query("quantity == 'weight'").set_index(["column", "row"])
        scaled = scaled.loc[list(zip(table["source"], table["target"], strict=True))]
        np.testing.assert_allclose(table["z"].abs(), (scaled["estimate"] / scaled["std_error"]).abs())
        assert (table["q_value"] >= table["p_value"]).all()
        assert (table["p_value"] >= 1 - table["probability"]).all()
        assert {"lower", "upper"} <= set(self.fit.edges(level=0.9).columns)

    def test_partial_order(self):
        order = self.fit.partial_order()
        assert set(order.edges) <= set(self.fit.closure.edges)
        assert set(order.nodes) == set(self.fit.latents)
        source, target, *_ = list(self.fit.order)
        sure = replace(self.fit, details={"relations": [[source, target, 0.96], [target, source, 0.94]]})
        assert list(sure.partial_order().edges) == [(source, target)]
        assert not sure.partial_order(0.97).edges
        unknown = replace(self.fit, details={}).partial_order()
        assert not unknown.edges
        assert "did not weigh" in unknown.graph["note"]
        with pytest.raises(ValueError, match="between 0 and 1"):
            self.fit.partial_order(level=95)

    def test_intervals_are_tidy(self):
        table = self.fit.confidence_intervals(0.95)
        assert list(table.columns) == ["quantity", "row", "column", "estimate", "std_error", "lower", "upper"]
        assert (table["lower"] <= table["estimate"]).all()
        assert (table["estimate"] <= table["upper"]).all()
        assert set(table["quantity"]) == {
            "unmixing", "structural", "weight", "total_effect", "scale", "noise_variance", "shift"
        }  # fmt: skip
        with pytest.raises(ValueError, match="scaling must be"):
            self.fit.standard_errors("rows")

    @pytest.mark.parametrize("method", ["projection", "closed-form"])
    def test_other_methods_have_no_errors_and_say_why(self, method):
        fit = ld.fit(self.m, method=method)
        table = fit.edges(level=0.9)
        assert table[["std_error", "z", "p_value", "q_value", "lower"]].isna().all(axis=None)
        assert table["probability"].isna().all()
        assert table["weight"].notna().all()
        assert "does not maximise the likelihood" in table.attrs["note"]
        assert fit.standard_errors()["std_error"].isna().all()
        assert not fit.partial_order().edges

    def test_errors_survive_a_file_and_are_kept(self, tmp_path):
        self.fit.save(tmp_path / "fit.npz")
        pd.testing.assert_frame_equal(ld.Fit.load(tmp_path / "fit.npz").edges(), self.fit.edges())
        assert self.fit.uncertainty() is self.fit.uncertainty()
        assert len(pickle.dumps(self.fit)) < 10_000  # errors are computed again where they are needed

    def test_a_do_intervention_knows_its_row(self):
        interventions = {c: Intervention(v.target, "do", value=1.0) for c, v in self.truth.interventions.items()}
        fit = as_fit(replace(self.truth, interventions=interventions), [1_000] * 6)
        table = fit.standard_errors()
        assert table.loc[table["quantity"] == "unmixing", "std_error"].max() < 1e-3
        assert np.isfinite(table["std_error"]).all()

    def test_borrowed_covariances_are_noted(self):
        fit = replace(self.fit, details={"shrinkage": {"control": 0.0, "c1": 0.3}})
        assert "depends on 'c1'" in fit.edges().attrs["note"]

    def test_no_edges_at_all(self):
        truth = ld.simulate.random_model(3, 3, 0.0, rng=0)
        fit = ld.fit(ld.simulate.sample_moments(truth, 2_000, rng=0), graph=nx.DiGraph())
        assert len(fit.edges(level=0.9)) == 0
        assert not fit.partial_order().edges
        assert "total_effect" not in set(fit.confidence_intervals()["quantity"])

    def test_too_many_parameters_for_the_scores(self, monkeypatch):
        monkeypatch.setattr("latentdag.uncertainty.standard_errors.MOST_PARAMETERS", 10)
        with pytest.raises(ValueError, match="at most 10 are possible"):
            Uncertainty(self.fit, ld.simulate.sample(self.truth, 10, rng=0))
