"""Membership: decisions for all contexts together, and what rank alone cannot see."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.core.full_orders import best_full_order
from latentdag.core.goodness import _hidden, misfit, release
from latentdag.core.jacobian import fitted_point, tangent
from latentdag.core.likelihood import make_design
from latentdag.core.optimize import maximize
from latentdag.core.orders import full_parents
from latentdag.inference.membership import membership_test
from latentdag.inference.omnibus import joint_fit, omnibus_test
from latentdag.methods.design import prepare
from latentdag.methods.options import Options


def true_graph(model):
    """The graph over the names that a fit gives the latents: those of the contexts."""
    name = {target: context for context, target in model.targets.items()}
    graph = nx.DiGraph()
    graph.add_nodes_from(model.targets)
    graph.add_edges_from((name[a], name[b]) for a, b in model.graph.edges)
    return graph


def mixed_model():
    """Single targets, but for one context that hits two latents with parents of their own."""
    d, names = 6, list("abcdef")
    A = np.tril(np.full((d, d), 0.8), -1)
    hits = {name: ld.Intervention(name, variance=5.0) for name in names}
    hits["<b>both</b>"] = ld.Intervention(["d", "f"], variance=[0.1, 6.0])
    return ld.LatentModel(np.random.default_rng(0).standard_normal((d, d)), A, np.ones(d), hits, latents=names)


def test_where_some_contexts_must_share_a_target_rank_tests_decide():
    found = membership_test(ld.simulate.sample_moments(mixed_model(), 3_000, rng=1), alpha=0.001)
    assert found.drop == ("<b>both</b>",)
    assert set(found.members) == set("abcdef")
    assert found.summary["reason"]["<b>both</b>"].startswith(
        "drop because its covariance differs from the control's in"
    )
    assert not found.in_model
    assert found.verdict.startswith("Not in the model: <b>both</b> (1 of 7 contexts) changes more than one target can")
    assert found.omnibus.reason.startswith("7 contexts in 6 dimensions")
    page = found._repr_html_()
    assert "<b>both</b>" not in page
    assert "&lt;b&gt;both&lt;/b&gt;" in page
    assert "MembershipTest: Not in the model" in repr(found)
    assert "Gaussian" in found.note


def intruder(seed, d=4):
    """A model in which one context has a second target, and that context."""
    rng = np.random.default_rng(seed)
    model = ld.simulate.random_model(d, d + 1, convention="text", rng=rng)
    context = model.contexts[1 + rng.integers(d)]
    other = next(name for name in model.latents if name != model.targets[context])
    hit = ld.Intervention([model.targets[context], other], variance=[7.0, 7.0])
    return replace(model, interventions={**model.interventions, context: hit}), context


@pytest.mark.parametrize("seed", range(4))
def test_a_context_with_a_second_target_is_named(seed):
    model, context = intruder(seed)
    found = membership_test(ld.simulate.sample_moments(model, 4_000, rng=seed))
    assert found.drop == (context,)
    assert found.summary["gain"].idxmax() == context
    assert f"Not in the model: {context} (1 of 4 contexts) changes more than one target can" in found.verdict
    assert "% of a standard deviation" in found.verdict


def test_misfit_is_a_size_that_does_not_grow_with_the_number_of_samples():
    model, _ = intruder(1)
    S = [model.covariance(c) for c in model.contexts]
    tests = []
    for n in (20_000, 2_000_000):
        m = ld.Moments.from_covariances(S, [n] * len(S), contexts=model.contexts, control=model.control)
        tests.append(omnibus_test(ld.fit(m), m))
    few, many = tests
    assert many.statistic > 50 * few.statistic
    assert many.unexplained == pytest.approx(few.unexplained, rel=0.05)
    for context, size in many.misfit.items():
        assert few.misfit[context] == pytest.approx(size, rel=0.1, abs=0.005)


def test_parts_of_the_misfit_add_up_and_a_released_context_has_none():
    m = ld.simulate.sample_moments(intruder(2)[0], 500, rng=2)
    joint = joint_fit(ld.fit(m), m)
    design, best = joint.prepared.design, joint.best
    raw, _ = misfit(design, best, joint.found, scale=0.0)
    size = len(design.S[0]) * (len(design.S[0]) + 3) / 2
    assert size * np.sum(design.n * raw**2) == pytest.approx(2 * joint.found.nats, rel=1e-6)
    fewer = release(design, 1)
    assert fewer.d == design.d
    assert design.N - design.n[1] == fewer.N


def test_the_verdict_has_one_level():
    m = ld.simulate.sample_moments(ld.simulate.random_model(3, 3, rng=0), 500, rng=0)
    test = membership_test(m)
    assert test.p_value == min(1.0, test.omnibus.p_value / 0.8, test.summary["holm"].min() / 0.2)
    for alpha in (test.p_value * 0.99, min(test.p_value * 1.01, 0.999)):
        assert membership_test(m, alpha=alpha).in_model == (test.p_value > alpha)
    assert membership_test(m, fit=False).p_value == test.summary["holm"].min()


def test_means_that_nobody_measured_are_not_tested():
    m = ld.simulate.sample_moments(ld.simulate.random_model(3, 3, rng=0), 500, rng=0)
    bare = ld.Moments.from_covariances(m.covariances, m.counts, contexts=m.contexts, control=m.control)
    assert m.has_means
    assert not bare.has_means
    fit = ld.fit(bare)
    assert not fit.options.means
    assert omnibus_test(fit, bare).dof == omnibus_test(ld.fit(m, means=False), m).dof


@pytest.mark.parametrize("seed", range(3))
def test_no_full_order_is_worse_than_the_one_it_started_from(seed):
    m = ld.simulate.sample_moments(intruder(seed)[0], 200, rng=seed)
    design = prepare(m, Options(shrinkage=False)).design
    H, order = np.random.default_rng(seed).standard_normal((4, 4)), (2, 0, 3, 1)
    start = maximize(design, H, full_parents(order))
    found = best_full_order(design, H, order, lambda other: True, lambda full: False)
    assert found.optimum.value >= start.value
    same = best_full_order(design, H, order, lambda other: other == order, lambda full: False)
    assert same.order == order


def test_the_answer_does_not_depend_on_order_or_units():
    m = ld.simulate.sample_moments(mixed_model(), 2_000, rng=2)
    want = membership_test(m, fit=False)
    T = np.random.default_rng(3).standard_normal((6, 6))
    mixed = ld.Moments.from_covariances(
        T @ m.covariances @ T.T, m.counts, m.contexts, m.control, m.means @ T.T, m.feature_names
    )
    got = membership_test(mixed.select(m.contexts[:0:-1]), fit=False)
    columns = ["p_value", "holm", "q_value"]
    np.testing.assert_allclose(got.summary.loc[want.summary.index, columns], want.summary[columns], rtol=1e-6)
    assert got.drop == want.drop


def test_what_rank_cannot_see_the_omnibus_test_does():
    """The paper's own example: an empty graph and two targets per context, where every difference has rank two."""
    model = ld.simulate.random_model(4, 4, density=0.0, n_targets=2, rng=2)
    found = membership_test(ld.simulate.sample_moments(model, 2_000, rng=0))
    assert not found.summary["reject_fwer"].any()
    assert found.omnibus.p_value < 1e-6
    assert not found.in_model
    assert found.verdict.startswith("Not in the model")


@pytest.mark.slow
def test_omnibus_p_values_are_uniform_after_a_search():
    """The full order is tested, so that edges chosen on the same data play no part."""
    p = []
    for seed in range(40):
        model = ld.simulate.random_model(3, 4, convention="text", rng=seed)
        m = ld.simulate.sample_moments(model, 800, rng=seed)
        p.append(omnibus_test(ld.fit(m), m).p_value)
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_omnibus_p_values_are_uniform_with_dimensions_that_no_context_targets():
    p = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        A = np.zeros((4, 4))
        A[1, 0], A[2, :2], A[3, :3] = 0.8, 0.7, 0.6
        names = list("abcd")
        hits = {name: ld.Intervention(name, variance=5.0, shift=0.5) for name in "ab"}
        model = ld.LatentModel(rng.standard_normal((4, 4)), A, np.ones(4), hits, latents=names)
        m = ld.simulate.sample_moments(model, 300, rng=rng)
        p.append(omnibus_test(ld.fit(m, graph=nx.DiGraph([("a", "b")])), m).p_value)
    assert stats.kstest(p, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("noise", "means"), [("exponential", True), ("uniform", False)])
def test_robust_omnibus_p_values_are_uniform(noise, means):
    robust, gaussian = [], []
    for seed in range(40):
        model = ld.simulate.random_model(2, 2, density=1.0, convention="text", rng=seed)
        X, labels = ld.simulate.sample(model, 1_000, seed, noise)
        m = ld.Moments.from_samples(X, labels, control="control")
        fit = ld.fit(m, means=means, graph=true_graph(model))
        robust.append(omnibus_test(fit, m, (X, labels)).p_value)
        gaussian.append(omnibus_test(fit, m).p_value)
    assert stats.kstest(robust, "uniform").pvalue > 0.01
    if noise == "exponential":
        assert stats.kstest(gaussian, "uniform").pvalue < 0.01


def test_degrees_of_freedom_are_those_of_the_paper_with_a_full_order():
    d = 4
    m = ld.simulate.sample_moments(ld.simulate.random_model(d, d, rng=0), 1_000, rng=0)
    edges = d * (d - 1) // 2
    want = (d + 1) * d * (d + 1) / 2 - d**2 - edges - d
    assert omnibus_test(ld.fit(m, means=False), m).dof == want
    assert omnibus_test(ld.fit(m), m).dof == want + (d + 1) * d - d - d


@pytest.mark.parametrize("seed", range(10))
def test_directions_that_leave_no_trace_are_the_kernel_of_the_tangent_map(seed):
    """Soft interventions, repeated targets, latents that nobody targets; with means and without."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 6))
    order = tuple(rng.permutation(d).tolist())
    aimed = order[int(rng.integers(0, d)) :]
    hits = [(), *((i,) for i in aimed), *((int(rng.choice(aimed)),) for _ in range(2))]
    soft = [False, *(rng.random(len(hits) - 1) < 0.5).tolist()]
    S = np.array([np.eye(d)] * len(hits))
    for means in (None, np.zeros((len(hits), d))):
        design = make_design(np.full(len(hits), 100.0), S, S, means, hits, soft, d)
        mechanisms = design.mechanisms(full_parents(order))
        rows = np.zeros((len(mechanisms), d))
        for q, a in enumerate(mechanisms):
            rows[q, a.parents] = rng.uniform(0.3, 1, len(a.parents))
            rows[q, a.latent] = rng.uniform(0.5, 2)
        tau = None if means is None else rng.standard_normal(len(mechanisms))
        J = tangent(fitted_point(design, mechanisms, rows, tau))
        regressions = sum(len(a.parents) + 1 + (means is not None) for a in mechanisms)
        assert np.linalg.matrix_rank(J, tol=1e-7) == regressions + d * (d - 1) - _hidden(design, mechanisms, order)


def test_contexts_with_several_targets_count_what_they_identify():
    model = ld.simulate.random_model(3, 3, convention="text", rng=4)
    a, b, _ = model.targets
    pair = ld.Intervention([model.targets[a], model.targets[b]], variance=[0.5, 9.0])
    both = ld.LatentModel(
        model.unmixing,
        model.weights,
        model.noise_variance,
        {**model.interventions, "both": pair},
        latents=model.latents,
    )
    m = ld.simulate.sample_moments(both, 2_000, rng=0)
    found = omnibus_test(ld.fit(m, targets={**{c: c for c in model.targets}, "both": (a, b)}), m)
    assert found.dof == 5 * (6 + 3) - (9 + 3 + 5) - (3 + 5)
    assert found.p_value > 0.01


def test_where_there_is_no_omnibus_test_it_says_why():
    model = ld.simulate.random_model(3, 3, rng=0)
    m = ld.simulate.sample_moments(model, 500, rng=0)
    assert str(membership_test(m, fit=False).omnibus) == "no omnibus test: not asked for"
    assert "each by itself" in membership_test(m, fit=False).verdict
    done = omnibus_test(ld.fit(m, intervention={m.contexts[1]: "do"}), m)
    assert "set to a value" in done.reason
    small = ld.simulate.sample_moments(model, {"control": 90, "c1": 90, "c2": 90, "c3": 3}, rng=0)
    few = membership_test(small)
    assert few.untested == ("c3",)
    assert few.summary["decision"]["c3"] == "untested"
    borrowed = ld.fit(small)
    assert "context 'c3': the context has 3 samples in 3 dimensions" in omnibus_test(borrowed, small).reason
    again = ld.LatentModel(
        model.unmixing, model.weights, model.noise_variance,
        {**model.interventions, "c4": ld.Intervention(model.latents[0], variance=3.0)}, latents=model.latents,
    )  # fmt: skip
    crowd = membership_test(ld.simulate.sample_moments(again, 500, rng=0))
    assert crowd.omnibus.reason.startswith("4 contexts in 3 dimensions: some share a target")


def test_bad_input():
    m = ld.simulate.sample_moments(ld.simulate.random_model(3, 3, rng=0), 500, rng=0)
    with pytest.raises(ValueError, match="alpha is a probability"):
        membership_test(m, alpha=0)
    with pytest.raises(TypeError, match=r"fit must be what latentdag\.fit returns, got bool"):
        membership_test(m, fit=True)
    fit = ld.fit(m)
    other = ld.Moments.from_covariances(m.covariances, m.counts, m.contexts, m.control, m.means, list("xyz"))
    with pytest.raises(ValueError, match="the fit has other features than the moments"):
        omnibus_test(fit, other)
    with pytest.raises(ValueError, match="has a context 'c1' that the moments lack"):
        omnibus_test(fit, m.select(["c2", "c3"]))
