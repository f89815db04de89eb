"""Did anything change? Tests of every context against the control and the others, and what fits do with idle ones."""

import networkx as nx
import numpy as np
import pytest

import latentdag as ld
from latentdag import simulate
from latentdag.core.two_samples import difference, likelihood_ratio, put_together
from latentdag.methods.verdict import FINE

LAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t5": lambda rng, shape: rng.standard_t(5, shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
}


def two(rng, counts, r, law="normal", free=False):
    X = [LAWS[law](rng, (n, r)) for n in counts]
    means, S = np.array([x.mean(0) for x in X]), np.array([np.atleast_2d(np.cov(x.T)) for x in X])
    return put_together(np.array(counts), means, S, free)


def null_screen(rng, n=100, K=4, r=5, law="normal"):
    X = LAWS[law](rng, ((K + 1) * n, r)) @ rng.standard_normal((r, r)) + rng.standard_normal(r)
    return X, np.repeat(["control", *(f"fake{k}" for k in range(K))], n)


@pytest.mark.parametrize(("counts", "r"), [((300, 12), 5), ((40, 40), 20), ((500, 9), 15), ((30, 200), 8)])
@pytest.mark.parametrize("free", [False, True])
def test_p_values_are_uniform_under_one_law_also_with_few_rows(counts, r, free):
    rng = np.random.default_rng([r, *counts])
    p = np.sort([likelihood_ratio(two(rng, counts, r, free=free))[2] for _ in range(400)])
    assert np.abs(p - (np.arange(400) + 0.5) / 400).max() < 1.73 / 20  # Kolmogorov and Smirnov, 5 in a thousand


def test_the_statistic_does_not_depend_on_coordinates():
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((60, 4)), rng.standard_normal((50, 4)) * 1.3]
    A, b = rng.standard_normal((4, 4)), rng.standard_normal(4)
    found = []
    for map_ in (lambda x: x, lambda x: x @ A + b):
        Y = [map_(x) for x in X]
        pair = put_together(
            np.array([60, 50]), np.array([y.mean(0) for y in Y]), np.array([np.cov(y.T) for y in Y]), False
        )
        found.append((likelihood_ratio(pair)[0], difference(pair)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
@pytest.mark.parametrize("law", ["t5", "exponential"])
def test_with_the_samples_the_size_holds_for_other_laws(law):
    rng = np.random.default_rng(5)
    robust = gaussian = 0
    for _ in range(60):
        X, labels = null_screen(rng, K=3, n=150, r=4, law=law)
        m = ld.Moments.from_samples(X, labels, control="control")
        gaussian += (ld.changed(m)["p_holm"] <= 0.05).any()
        robust += (ld.changed(m, data=(X, labels))["p_holm"] <= 0.05).any()
    assert robust <= 9 < gaussian  # more than 9 of 60 have probability .001 at 5 %


def test_blocks_in_pieces_and_orders_of_contexts_give_the_same_answer():
    truth = simulate.random_model(4, 4, rng=3)
    X, labels = simulate.sample(truth, 80, rng=0)
    labels = np.array([str(label) for label in labels])
    m = ld.Moments.from_samples(X, labels, control="control")
    whole = ld.changed(m, data=(X, labels))
    parts = ld.changed(m, data=ld.stream.pieces(X, labels, block_rows=37))
    np.testing.assert_allclose(whole["p_apart"], parts["p_apart"], rtol=1e-6)
    back = m.select(m.contexts[:0:-1])
    for data in (None, (X, labels)):
        a, b = ld.changed(m, data), ld.changed(back, data)
        np.testing.assert_allclose(a["statistic"], b.loc[a.index, "statistic"], rtol=1e-7)
        np.testing.assert_allclose(a["apart_statistic"], b.loc[a.index, "apart_statistic"], rtol=1e-7)


def test_contexts_that_all_changed_alike_pass_the_first_question_and_fail_the_second():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((2000, 4))
    X[500:, 0] *= 2
    labels = np.repeat(["control", "a", "b", "c"], 500)
    found = ld.fit(ld.Moments.from_samples(X, labels, control="control"))
    assert found.idle == ("a", "b", "c")
    assert (
        str(found.verdict)
        == "No difference from the other contexts shows in any of the 3 contexts: these data show no causal graph."
    )
    shared = ld.changed(ld.Moments.from_samples(X, labels, control="control"), targets=dict.fromkeys("abc", "z"))
    assert not shared["idle"].any()
    assert shared["p_apart"].isna().all()


@pytest.mark.parametrize("n", [3, 5, 20])
def test_few_rows_are_no_error(n):
    rng = np.random.default_rng(n)
    X, labels = null_screen(rng, n=60, K=2, r=30)
    X, labels = np.vstack([X, rng.standard_normal((n, 30))]), np.append(labels, ["few"] * n)
    m = ld.Moments.from_samples(X, labels, control="control")
    for table in (ld.changed(m), ld.changed(m, (X, labels)), ld.changed(m, means=False)):
        assert table.loc["few", ["p_value", "p_apart"]].between(0, 1).all()


@pytest.mark.parametrize(("seed", "n"), [(0, 1_000), (1, 10**6), (2, 10**18)])
def test_exact_moments_are_never_idle_unless_nothing_changed(seed, n):
    truth = simulate.random_model(4, 5, rng=seed)
    S = np.array([truth.covariance(c) for c in truth.contexts])
    m = ld.Moments.from_covariances(S, n, contexts=truth.contexts)
    assert ld.fit(m).idle == ()
    S[2] = S[0]
    still = ld.Moments.from_covariances(S, n, contexts=truth.contexts)
    table = ld.changed(still)
    assert table.index[table["idle"]].tolist() == [truth.contexts[2]]
    assert table.loc[truth.contexts[2], "p_value"] > 0.999
    found = ld.fit(still)
    assert found.idle == (truth.contexts[2],)
    assert found.graph.degree(str(truth.contexts[2])) == 0


def test_an_idle_latent_carries_no_edge_anywhere_and_the_model_keeps_its_weights(tmp_path):
    for seed in range(10):
        X, labels = null_screen(np.random.default_rng(seed), n=60, K=5, r=5)
        found = ld.fit(ld.Moments.from_samples(X, labels, control="control"))
        if found.fitted_graph.number_of_edges():
            break
    assert len(found.idle) == 5
    for graph in (found.graph, found.closure, found.partial_order(0.95)):
        assert set(graph) == set(found.latents)
        assert not graph.edges
    assert found.edges(level=0.9).empty
    assert {(u, v) for u, v in found.model.graph.edges} == set(found.fitted_graph.edges) != set()
    assert str(found.verdict).count("these data show no causal graph.") == 1
    found.save(tmp_path / "fit.npz")
    again = ld.Fit.load(tmp_path / "fit.npz")
    assert (again.idle, again.bic, str(again.verdict)) == (found.idle, found.bic, str(found.verdict))
    assert nx.utils.graphs_equal(again.fitted_graph, found.fitted_graph)
    assert not again.graph.edges


def test_a_latent_is_idle_only_if_all_of_its_contexts_are():
    truth = simulate.random_model(3, 3, rng=1)
    X, labels = simulate.sample(truth, 600, rng=0)
    labels = np.array([str(label) for label in labels], dtype="U9")
    labels[np.flatnonzero(labels == "control")[:250]] = "weak"
    m = ld.Moments.from_samples(X, labels, control="control")
    targets = {"c1": "c1", "c2": "c2", "c3": "c3", "weak": "c1"}
    found = ld.fit(m, targets=targets)
    assert found.idle == ("weak",)
    assert found.idle_latents == ()
    assert found.graph.number_of_edges() == found.fitted_graph.number_of_edges() > 0
    said, refused = found.verdict.reasons[:2]
    assert said == "Nothing changed in weak: latents that no other context hits carry no edges."
    assert "refuse the model" in refused  # it was told to hit c1, and hits nothing


def test_edges_that_the_user_gave_stay():
    X, labels = null_screen(np.random.default_rng(2), n=100, K=2, r=2)
    m = ld.Moments.from_samples(X, labels, control="control")
    edge = ("fake0", "fake1")
    for found in (ld.fit(m, graph=[edge]), ld.fit(m, required=[edge])):
        assert len(found.idle) == 2
        assert set(found.graph.edges) == {edge}


def test_files_without_idle_contexts_load(tmp_path):
    found = ld.fit(simulate.sample_moments(simulate.random_model(3, 3, rng=1), 500, rng=0))
    arrays, meta = found.to_parts()
    meta.pop("idle")
    old = ld.Fit.from_parts(arrays, meta)
    assert old.idle == ()
    assert set(old.graph.edges) == set(found.graph.edges)
    assert str(found.verdict) == FINE
    with pytest.raises(ValueError, match="idle"):
        ld.Fit.from_parts(arrays, meta | {"idle": [found.model.control]})
