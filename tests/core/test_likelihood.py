"""The efficient estimator: its formulas, its optimum on exact moments, every design, and its accuracy on samples."""

import itertools

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentdag as ld
from latentdag import metrics
from latentdag.core.likelihood import evaluate
from latentdag.core.orders import fit_flag
from latentdag.core.posterior import Explorer
from latentdag.methods.design import edge_rules, prepare
from latentdag.model.distribution import log_likelihood

from designs import DESIGNS, random_point
from paths import SHARED
from strategies import models, seeds


def named_like(found, truth):
    """The estimate with latents called as in the truth."""
    pairs = {theirs: ours for ours, theirs in metrics.paired_latents(truth, found).items()}
    return found.model.renamed(pairs).reordered(truth.latents)


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_is_solved_on_exact_moments(name):
    truth, options = DESIGNS[name]
    found = ld.fit(truth.moments(10**5), shrinkage=False, **options)
    assert found.converged
    assert metrics.order_correct(truth, found)
    assert metrics.shd(truth, found) == 0
    np.testing.assert_allclose(metrics.row_angles(truth, found), 0, atol=0.02)
    model = named_like(found, truth)
    for context in truth.contexts:
        S = truth.covariance(context)
        np.testing.assert_allclose(model.covariance(context), S, atol=2e-3 * np.abs(S).max())
        np.testing.assert_allclose(model.mean(context), truth.mean(context), atol=2e-3 * np.sqrt(np.abs(S).max()))


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_is_solved_on_samples(name):
    truth, options = DESIGNS[name]
    counts = {context: 4_000 + 1_500 * k for k, context in enumerate(truth.contexts)}
    right, angles = 0, []
    for seed in range(8):
        found = ld.fit(ld.simulate.sample_moments(truth, counts, rng=seed), **options)
        right += metrics.order_correct(truth, found)
        angles.append(metrics.row_angles(truth, found).max())
    assert right >= 7
    assert np.median(angles) < 6


def test_means_carry_the_signal_where_only_they_move():
    """Perfect interventions that keep the noise and shift the mean: clear with means, hardly visible without."""
    truth, _ = DESIGNS["mean shifts, same noise"]
    m = ld.simulate.sample_moments(truth, 3_000, rng=1)
    assert metrics.row_angles(truth, ld.fit(m)).max() < 3
    assert "means" in ld.fit(m).options
    shifted, _ = DESIGNS["mean shifts"]
    m = ld.simulate.sample_moments(shifted, 3_000, rng=1)
    with_means, without = (metrics.row_angles(shifted, ld.fit(m, means=use)).mean() for use in (True, False))
    assert with_means < without < 10


@given(models(max_latents=6), st.sampled_from(["likelihood", "closed-form"]))
@settings(max_examples=40)
def test_exact_moments_give_the_truth(truth, method):
    found = ld.fit(truth.moments(10**5), method=method, shrinkage=False)
    assert metrics.order_correct(truth, found)
    np.testing.assert_allclose(metrics.row_angles(truth, found), 0, atol=0.05)
    if method == "likelihood":
        assert metrics.shd(truth, found) == 0
        # nothing explains exact moments better than the model they come from
        assert found.loglik == pytest.approx(log_likelihood(truth, truth.moments(10**5)), abs=0.1)


@given(models(max_latents=6), st.sampled_from(["likelihood", "closed-form"]), st.integers(4, 200), seeds)
@settings(max_examples=40)
@pytest.mark.filterwarnings("ignore::latentdag.errors.FewSamplesWarning")
def test_the_likelihood_is_that_of_the_data_not_of_shrunk_covariances(truth, method, n, seed):
    m = ld.simulate.sample_moments(truth, n, rng=seed)
    found = ld.fit(m, method=method)
    assert found.loglik == pytest.approx(log_likelihood(found.model, m), rel=1e-8, abs=1e-6)


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("soft", [False, True])
def test_gradient_matches_finite_differences(name, soft):
    design, H, parents, rng = random_point(name, 4)
    if soft:
        design = type(design)(**{**design.__dict__, "soft": (False, *(True,) * (len(design.n) - 1))})
    mechanisms = design.mechanisms(parents)
    at = evaluate(design, H, mechanisms)
    for _ in range(5):
        step = rng.normal(size=H.shape)
        h = 1e-5
        up, down = (evaluate(design, H + s * h * step, mechanisms).value for s in (1, -1))
        assert np.vdot(at.gradient, step) == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-3)
    # invariant to the scale of each row
    assert np.abs(np.sum(at.gradient * H, axis=1)).max() < 1e-6 * np.abs(at.gradient).max()


@pytest.mark.slow
def test_nothing_beats_the_search_over_all_orders():
    """d = 4, all 24 orders pruned, refitted and climbed: none has a graph of more evidence than the one chosen."""
    for seed in range(6):
        truth = ld.simulate.random_model(n_latents=4, n_features=4, convention="text", rng=[3, seed])
        m = ld.simulate.sample_moments(truth, 1_000, rng=seed)
        prepared = prepare(m)
        rules = edge_rules(prepared, 0.5 * np.log(prepared.design.N))
        found = ld.fit(m)
        H = found.model.reordered(prepared.latents).unmixing @ np.linalg.pinv(prepared.W)
        explorer = Explorer(prepared.design, rules)
        for order in itertools.permutations(range(4)):
            flag = fit_flag(prepared.design, H, order)
            if flag is not None:
                explorer.enter_order(flag.H, order)
        best = {(prepared.latents[j], prepared.latents[i]) for i, j in np.argwhere(explorer.best.present)}
        assert set(found.graph.edges) == best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("convention", "n", "least"), [("figures", 1_000, 0.88), ("text", 1_000, 0.85), ("text", 2_500, 0.92)]
)
def test_order_is_found_at_the_statistical_limit(convention, n, least):
    """40 models a cell; the paper's algorithm: about .4, 0 and .03."""
    right = 0
    for s in range(40):
        rng = np.random.default_rng([77, s])
        truth = ld.simulate.random_model(convention=convention, rng=rng)
        right += metrics.order_correct(truth, ld.fit(ld.simulate.sample_moments(truth, n, rng)))
    assert right / 40 >= least


def test_the_outcome_is_told():
    truth = ld.simulate.random_model(convention="text", rng=4)
    found = ld.fit(ld.simulate.sample_moments(truth, 1_000, rng=0))
    details = found.details
    assert details["n_starts"] >= details["n_agreed"] >= 1
    assert 0 <= details["gain"] < 1e-3
    position = {name: t for t, name in enumerate(details["runner_up"]["order"])}
    assert any(position[source] > position[target] for source, target in found.graph.edges)
    assert details["runner_up"]["gap"] > 0


@pytest.mark.slow
def test_graph_is_found():
    right = 0
    for s in range(20):
        rng = np.random.default_rng([78, s])
        truth = ld.simulate.random_model(rng=rng)
        right += metrics.shd(truth, ld.fit(ld.simulate.sample_moments(truth, 2_500, rng))) == 0
    assert right >= 19


@pytest.mark.slow
@given(models(max_latents=5, min_latents=2), seeds)
@settings(max_examples=15)
def test_answer_does_not_depend_on_order_or_units(truth, seed):
    m = ld.simulate.sample_moments(truth, 3_000, rng=seed)
    rng = np.random.default_rng(seed)
    rows = [0, *(1 + rng.permutation(m.n_contexts))]
    p = m.n_features
    T = rng.normal(size=(p, p)) + 3 * np.eye(p)
    T = T[rng.permutation(p)] * 10.0 ** rng.uniform(-3, 3, size=(p, 1))
    other = ld.Moments.from_covariances(
        T @ m.covariances[rows] @ T.T,
        m.counts[rows],
        [m.contexts[k] for k in rows],
        means=m.means[rows] @ T.T,
    )
    a, b = ld.fit(m), ld.fit(other)
    assert set(a.graph.edges) == set(b.graph.edges)
    assert b.loglik - a.loglik == pytest.approx(log_likelihood(b.model, other) - log_likelihood(a.model, m))
    H, K = a.model.rescaled("unit-variance"), b.model.rescaled("unit-variance").reordered(a.model.latents)
    np.testing.assert_allclose(np.abs(K.weights), np.abs(H.weights), atol=1e-3)
    # the same latents: unit correlation in the control
    Sigma = m.covariances[0]
    between = np.abs(np.sum((H.unmixing @ Sigma) * (K.unmixing @ T), axis=1))
    size = np.sqrt(np.einsum("ij,jk,ik->i", H.unmixing, Sigma, H.unmixing))
    size = size * np.sqrt(np.einsum("ij,jk,ik->i", K.unmixing @ T, Sigma, K.unmixing @ T))
    np.testing.assert_allclose(between / size, 1, atol=1e-4)


class TestConstraints:
    truth = ld.simulate.random_model(density=1.0, rng=6)
    m = ld.simulate.sample_moments(truth, 3_000, rng=0)

    def test_given_graph(self):
        found = ld.fit(self.m, graph=self.truth.graph)
        assert set(found.graph.edges) == set(self.truth.graph.edges)

    def test_given_order(self):
        order = list(reversed(self.truth.latents))
        assert ld.fit(self.m, order=order).order == tuple(order)

    def test_forbidden_and_required_edges(self):
        first, *_, last = reversed(self.truth.latents)
        found = ld.fit(self.m, forbidden=[(first, last)])
        assert not found.graph.has_edge(first, last)
        assert ld.fit(self.m, required=[(last, first)]).graph.has_edge(last, first)

    def test_a_larger_penalty_gives_fewer_edges(self):
        sizes = [ld.fit(self.m, penalty=p).graph.number_of_edges() for p in (0.5, 50.0, 5_000.0)]
        assert sizes[0] >= sizes[1] >= sizes[2]
        assert sizes[2] < sizes[0]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"graph": nx.DiGraph([("c1", "nobody")])}, "must be among the latents"),
            ({"graph": nx.DiGraph([("c1", "c2"), ("c2", "c1")])}, "has a cycle"),
            ({"order": ["c1"]}, "must list each latent once"),
            ({"forbidden": [("c1", "nobody")]}, "names no latent"),
            ({"penalty": "much"}, "'bic', 'aic' or a number"),
            ({"intervention": "hard"}, "kind of intervention is one of"),
            ({"targets": {"c1": "x"}}, "targets must name every context.*missing"),
            ({"targets": {f"c{k}": "x" for k in range(1, 7)}}, "unknown"),
        ],
    )
    def test_impossible_wishes(self, options, message):
        with pytest.raises(ValueError, match=message):
            ld.fit(self.m, **options)


def test_more_features_than_latents_uses_the_complement():
    """Full-rank features: latents plus dimensions that depend on them but are never targeted."""
    rng = np.random.default_rng(2)
    truth = ld.simulate.random_model(n_latents=4, n_features=4, density=0.8, rng=rng)
    p = 9
    G = rng.normal(size=(p, p))  # features mix the four latents and five noisy effects of them
    effects = rng.normal(size=(5, 4))
    S = []
    for context in truth.contexts:
        Z = truth.law(context).latent_covariance
        joint = np.block([[Z, Z @ effects.T], [effects @ Z, effects @ Z @ effects.T + 0.3 * np.eye(5)]])
        S.append(G @ joint @ G.T)
    H = np.linalg.inv(G)[:4]
    m = ld.Moments.from_covariances(S, 10_000, truth.contexts)
    found = ld.fit(m, shrinkage=False)
    model = found.model.reordered(truth.latents)
    cosine = (
        np.abs(np.sum(model.unmixing * H, axis=1)) / np.linalg.norm(model.unmixing, axis=1) / np.linalg.norm(H, axis=1)
    )
    np.testing.assert_allclose(cosine, 1, atol=1e-6)
    assert set(found.graph.edges) == set(truth.graph.edges)
    for k, context in enumerate(truth.contexts):  # features are predicted in full, not only the latent part
        np.testing.assert_allclose(found.model.covariance(context), S[k], atol=1e-3 * np.abs(S[k]).max())


def test_soft_interventions_give_the_ancestors():
    for seed in range(5):
        truth = ld.simulate.random_model(n_latents=4, n_features=4, density=0.6, kind="soft", rng=[9, seed])
        found = ld.fit(truth.moments(10**6), intervention="soft", shrinkage=False)
        assert set(found.closure.edges) == set(ld.posets.closure_graph(truth.graph).edges)
        noise = np.abs(found.model.structural() @ found.model.unmixing)
        true = np.abs(truth.structural() @ truth.unmixing)
        rows = [found.latents.index(name) for name in truth.latents]
        np.testing.assert_allclose(noise[rows], true, atol=2e-3 * true.max())


@pytest.mark.parametrize("n", [8, 12, 50])
def test_counts_near_or_below_the_number_of_features(n):
    truth = ld.simulate.random_model(n_latents=5, n_features=10, rng=1)
    X, labels = ld.simulate.sample(truth, {c: 2_000 if c == "control" else n for c in truth.contexts}, rng=0)
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)  # full rank: ten dimensions
    m = ld.Moments.from_samples(X, labels, control="control")
    found = ld.fit(m)
    assert bool(found.idle) == (n < 15)  # so few samples show no change, and that is said
    assert found.verdict.ok == (n > 15)
    assert np.isfinite(found.loglik)
    assert max(found.details["shrinkage"].values()) > 0.01
    large = ld.fit(ld.simulate.sample_moments(truth, 50_000, rng=0))
    assert max(large.details["shrinkage"].values()) < 1e-4


@pytest.mark.parametrize("seed", range(40))
def test_a_singular_context_is_named_when_shrinkage_is_off(seed):
    """Whatever the draw, the units and the processor: a factor that rounding lets through is no verdict."""
    d = 3 + seed % 6
    truth = ld.simulate.random_model(n_latents=d, n_features=d, rng=seed)
    few = 3 + seed % (d - 2)
    X, labels = ld.simulate.sample(truth, {c: 500 if c != "c2" else few for c in truth.contexts}, rng=seed)
    X *= 10.0 ** np.random.default_rng(seed).uniform(-3, 3, d)
    with pytest.raises(
        ValueError, match=f"context 'c2': its covariance of {few} samples is singular in {d} dimensions"
    ):
        ld.fit(ld.Moments.from_samples(X, labels, control="control"), shrinkage=False)


def test_save_and_load_a_fit(tmp_path):
    found = ld.fit(TestConstraints.m)
    found.save(tmp_path / "f.npz")
    back = ld.Fit.load(tmp_path / "f.npz")
    assert back.order == found.order
    assert back.details == found.details
    assert back.summary() == found.summary()
    assert nx.utils.graphs_equal(back.graph, found.graph)


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "light_tunnel").is_dir(), reason="the light tunnel's data are not here")
@pytest.mark.parametrize("p", [6, 12])
def test_light_tunnel(p):
    """Real physics behind random dense maps: colours before sensors, structural equations to cosine .98."""
    columns = ["red", "green", "blue", "ir_1", "ir_2", "current"]
    files = ["red_strong", "green_strong", "blue_strong", "t_ir_1_strong", "t_ir_2_strong", "v_c_strong"]

    def read(name):
        return pd.read_csv(SHARED / "light_tunnel" / f"uniform_{name}.csv")[columns].to_numpy(float)

    control = read("reference")
    data = {"control": control, **{c: read(f) for c, f in zip(columns, files, strict=True)}}
    equations = np.eye(6)
    centred = control - control.mean(axis=0)
    for i in (3, 4, 5):  # the sensors' known parents are the three colours
        equations[i, :3] = -np.linalg.lstsq(centred[:, :3], centred[:, i], rcond=None)[0]
    labels = np.repeat(list(data), [len(rows) for rows in data.values()])
    for seed in range(3):
        G = np.random.default_rng([p, seed]).normal(size=(p, 6)) / control.std(axis=0)
        X = np.vstack(list(data.values())) @ G.T
        found = ld.fit(ld.Moments.from_samples(X, labels, control="control"), intervention="soft")
        rows = found.model.structural() @ found.model.unmixing @ G
        for i, name in enumerate(columns):
            row = rows[found.latents.index(name)]
            assert abs(row @ equations[i]) / np.linalg.norm(row) / np.linalg.norm(equations[i]) > 0.98
        assert max(map(found.order.index, columns[:3])) < min(map(found.order.index, columns[3:]))


@pytest.mark.parametrize("p", [5, 9])
@pytest.mark.parametrize("seed", range(3))
def test_equivariance_to_maps_of_condition_1e8(seed, p):
    rng = np.random.default_rng([8, seed])
    truth = ld.simulate.random_model(5, p, rng=rng)
    X, contexts = ld.simulate.sample(truth, 2_000, rng)
    left, right = (np.linalg.qr(rng.normal(size=(p, p)))[0] for _ in range(2))
    T = left @ np.diag(np.logspace(0, -8, p)) @ right
    plain = ld.fit(ld.Moments.from_samples(X, contexts, control="control"))
    mapped = ld.fit(ld.Moments.from_samples(X @ T.T, contexts, control="control"))
    assert mapped.order == plain.order
    assert set(mapped.graph.edges) == set(plain.graph.edges)
    assert mapped.converged
    Z, Z_mapped = plain.model.transform(X), mapped.model.transform(X @ T.T)
    for i, name in enumerate(plain.latents):
        j = mapped.latents.index(name)
        assert abs(np.corrcoef(Z[:, i], Z_mapped[:, j])[0, 1]) > 1 - 1e-6


def test_the_fine_scale_is_kept_in_files_and_selections(tmp_path):
    rng = np.random.default_rng(0)
    X, contexts = ld.simulate.sample(ld.simulate.random_model(3, 3, rng=rng), 500, rng)
    T = np.diag([1.0, 1e-7, 1e-7]) + np.outer([0, 1, 1], [1, 0, 0])  # three features that are nearly the same
    m = ld.Moments.from_samples(X @ T.T, contexts, control="control")
    assert m.fine is not None
    assert ld.Moments.from_samples(X, contexts, control="control").fine is None
    m.save(tmp_path / "m.npz")
    again = ld.Moments.load(tmp_path / "m.npz")
    assert np.array_equal(again.fine.covariances, m.fine.covariances)
    assert ld.fit(again).order == ld.fit(ld.Moments.from_samples(X, contexts, control="control")).order
    assert m.select(m.contexts[:2]).fine.covariances.shape == (2, 3, 3)


def test_the_answer_does_not_depend_on_the_number_of_processes():
    truth = ld.simulate.random_model(10, 10, density=0.3, rng=4)
    m = ld.simulate.sample_moments(truth, 1_000, rng=4)
    one, two = ld.fit(m), ld.fit(m, n_jobs=2)
    assert np.array_equal(one.model.unmixing, two.model.unmixing)
    assert one.details == two.details


def test_progress_is_on_stderr_and_only_when_asked_for(capsys, monkeypatch):
    monkeypatch.setattr("latentdag.progress.AFTER", 0.0)
    m = ld.simulate.sample_moments(ld.simulate.random_model(rng=4), 1_000, rng=4)
    ld.fit(m)
    assert capsys.readouterr().err == ""
    ld.fit(m, progress=True)
    shown = capsys.readouterr()
    assert "latentdag fit [" in shown.err
    assert shown.out == ""
