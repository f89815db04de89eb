"""Draws follow their law, blocks add up, the answer depends on data, options and seed alone, and it means what it says."""

import os
import signal
import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.inference import replicates, resampling
from latentdag.inference.bootstrap import bootstrap
from latentdag.inference.resampling import Gaussian, block_moments, canonical_factor, draw_moments
from latentdag.inference.stability import Bootstrap
from latentdag.methods.likelihood import fit_likelihood
from latentdag.model.simulate import random_model, sample, sample_moments


def small(seed=0, n=1_000, d=2, p=3):
    truth = random_model(n_latents=d, n_features=p, density=1.0, rng=seed)
    return truth, sample_moments(truth, n, rng=seed)


TRUTH, M = small()


def same(a, b):
    for name in ("weights", "standardized", "closures", "cosines", "loglik", "replicates", "fit_weights"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


# ---- draws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "rank", "n"), [(4, 4, 30), (6, 3, 30), (6, 6, 4), (5, 3, 3)])
def test_draws_have_the_wishart_mean_and_variance(p, rank, n):
    """E S = Σ and Var S_ij = (Σ_ij² + Σ_ii Σ_jj)/(n − 1), for low ranks and few samples too; means are normal."""
    rng = np.random.default_rng(p * 100 + rank * 10 + n)
    A = rng.normal(size=(p, rank))
    Sigma, mu = A @ A.T, rng.normal(size=p)
    L = canonical_factor(Sigma)
    assert L.shape == (p, rank)
    np.testing.assert_allclose(L @ L.T, Sigma, atol=1e-12 * np.abs(Sigma).max())
    drawn = [draw_moments(mu, L, n, rng) for _ in range(4_000)]
    means, S = np.array([d[0] for d in drawn]), np.array([d[1] for d in drawn])
    assert np.linalg.matrix_rank(S[0]) == min(rank, n - 1)
    variance = (Sigma**2 + np.outer(np.diagonal(Sigma), np.diagonal(Sigma))) / (n - 1)
    assert np.abs((S.mean(axis=0) - Sigma) / np.sqrt(variance / len(S))).max() < 5
    np.testing.assert_allclose(S.var(axis=0), variance, rtol=0.35)
    a = rng.normal(size=p)
    deviation = (means - mu) @ a / np.sqrt(a @ Sigma @ a / n)
    assert stats.kstest(deviation, stats.norm.cdf).pvalue > 1e-4
    ratio = (n - 1) * np.einsum("i,bij,j->b", a, S, a) / (a @ Sigma @ a)
    assert stats.kstest(ratio, stats.chi2(n - 1).cdf).pvalue > 1e-4


def test_the_factor_is_triangular_whatever_basis_the_range_has():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(5, 2))
    L = canonical_factor(A @ A.T)
    assert L[0, 1] == pytest.approx(0, abs=1e-12)
    assert (np.diagonal(L) > 0).all()
    assert canonical_factor(np.zeros((3, 3))).shape == (3, 0)


def test_a_draw_knows_labels_and_names_not_positions():
    m = small(1, d=3, p=5)[1]
    draw = Gaussian.of(m).draw(7, 4)
    contexts = m.select(m.contexts[:0:-1])
    again = Gaussian.of(contexts).draw(7, 4)
    for c in m.contexts:
        np.testing.assert_array_equal(draw.covariances[m.index(c)], again.covariances[contexts.index(c)])
    at = np.array([3, 0, 4, 1, 2])
    turned = ld.Moments(
        m.contexts, m.control, m.counts, m.means[:, at], m.covariances[:, at][:, :, at],
        tuple(m.feature_names[j] for j in at),
    )  # fmt: skip
    moved = Gaussian.of(turned).draw(7, 4)
    np.testing.assert_array_equal(moved.means, draw.means[:, at])
    np.testing.assert_array_equal(moved.covariances, draw.covariances[:, at][:, :, at])
    assert not np.array_equal(Gaussian.of(m).draw(7, 5).means, draw.means)
    assert not np.array_equal(Gaussian.of(m).draw(8, 4).means, draw.means)


def test_around_the_model_is_around_its_law():
    truth, m = small(2)
    around = Gaussian.of(m, truth).around
    np.testing.assert_allclose(around.covariances, truth.moments().covariances)
    assert around.counts.tolist() == m.counts.tolist()


# ---- blocks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples():
    X, contexts = sample(TRUTH, {"control": 500, "c1": 333, "c2": 7}, rng=5)
    X = X + 1e4  # means far from zero cost no digits
    return X, contexts, ld.Moments.from_samples(X, contexts, control="control")


def test_all_blocks_once_are_the_data(samples):
    X, contexts, m = samples
    shuffled = np.random.default_rng(0).permutation(len(X))
    pieces = [(X[shuffled[:400]], contexts[shuffled[:400]]), (X[shuffled[400:]], contexts[shuffled[400:]])]
    for data in ((X, contexts), pieces):
        blocks = block_moments(data, m, n_blocks=20)
        assert [len(c) for c in blocks.counts] == [20, 20, 7]  # a context with few rows has a block for each
        again = blocks.combined([np.ones(len(c), dtype=int) for c in blocks.counts])
        assert again.counts.tolist() == m.counts.tolist()
        np.testing.assert_allclose(again.means, m.means, rtol=1e-13)
        np.testing.assert_allclose(again.covariances, m.covariances, rtol=1e-9, atol=1e-12)


def test_chosen_blocks_are_the_moments_of_their_rows(samples):
    X, contexts, m = samples
    blocks = block_moments((X, contexts), m, n_blocks=5)
    times = [np.array([2, 0, 0, 1, 0])] * 3
    rows = [
        row
        for c in m.contexts
        for b, often in enumerate(times[0])
        for row in np.flatnonzero(contexts == c)[b::5].tolist() * int(often)
    ]
    direct = ld.Moments.from_samples(X[rows], contexts[rows], control="control")
    found = blocks.combined(times)
    assert found.counts.tolist() == [direct.counts[direct.index(c)] for c in found.contexts]
    for k, c in enumerate(found.contexts):
        np.testing.assert_allclose(found.covariances[k], direct.covariances[direct.index(c)], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.means[k], direct.means[direct.index(c)], rtol=1e-12)


def test_block_draws_have_the_variance_of_the_mean(samples):
    X, contexts, m = samples
    blocks = block_moments((X, contexts), m, n_blocks=50)
    drawn = np.array([blocks.draw(0, b).means[0] for b in range(500)])
    expected = np.sqrt(np.diagonal(m.covariances[0]) / m.counts[0])
    np.testing.assert_allclose(drawn.std(axis=0), expected, rtol=0.35)  # 49 degrees of freedom


def test_other_data_and_too_much_memory_are_refused(samples, monkeypatch):
    X, contexts, m = samples
    with pytest.raises(ValueError, match=r"context 'c2' has 3 rows in the data but 7"):
        block_moments((X[:-4], contexts[:-4]), m)
    with pytest.raises(ValueError, match="features in the same order"):
        block_moments((X[:, ::-1], contexts), m)
    with pytest.raises(ValueError, match="n_blocks must be a whole number, 2 or more, got 1"):
        block_moments((X, contexts), m, n_blocks=1)
    monkeypatch.setattr(resampling, "MAX_BYTES", 8 * 3 * 10 * 6)
    with pytest.raises(ValueError, match=r"use at most 10 blocks, use fewer features, or kind='parametric'"):
        block_moments((X, contexts), m)


# ---- the same answer ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_and_checkpoints_change_nothing(tmp_path):
    alone = bootstrap(M, 6, rng=3)
    folder = tmp_path / "run"
    bootstrap(M, 2, rng=3, checkpoint=folder)
    same(alone, bootstrap(M, 6, rng=3, checkpoint=folder))
    (folder / "piece-000001.npz").unlink()
    (folder / "piece-000004.npz").unlink()
    same(alone, bootstrap(M, 6, rng=3, checkpoint=folder))
    same(alone, bootstrap(M, 6, rng=3, n_jobs=2))
    assert not np.array_equal(alone.weights, bootstrap(M, 6, rng=4).weights)


SLOWLY = """
import sys, time, latentdag as ld
from latentdag.inference.bootstrap import bootstrap
from latentdag.inference.replicates import Checkpoint
moments, folder = sys.argv[1:]
write = Checkpoint.write
Checkpoint.write = lambda *piece: (write(*piece), time.sleep(0.5))
bootstrap(ld.Moments.load(moments), 10, rng=1, checkpoint=folder)
"""


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again(tmp_path):
    M.save(tmp_path / "m.npz")
    command = [sys.executable, "-c", SLOWLY, str(tmp_path / "m.npz"), str(tmp_path / "run")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while (
        len(list((tmp_path / "run").glob("piece-*.npz"))) < 2 and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 2 <= len(list((tmp_path / "run").glob("piece-*.npz"))) < 10
    same(bootstrap(M, 10, rng=1, checkpoint=tmp_path / "run"), bootstrap(M, 10, rng=1))


def test_a_checkpoint_of_other_work_is_refused(tmp_path):
    bootstrap(M, 1, checkpoint=tmp_path, method="closed-form")
    for change, what in (
        ({"m": small(9)[1]}, "data changed"),
        ({"rng": 1}, r"seed changed \(first '0' there, '1' now\)"),
        ({"means": False}, "options changed"),
        ({"source": "moments"}, "kind changed"),
    ):
        arguments = {"m": M, "n_replicates": 1, "checkpoint": tmp_path, "method": "closed-form", **change}
        with pytest.raises(ValueError, match=what):
            bootstrap(**arguments)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        bootstrap(M, 1, checkpoint=tmp_path, method="closed-form")
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"no run\.json"):
        bootstrap(M, 1, checkpoint=tmp_path, method="closed-form")
    with pytest.raises(ValueError, match="name a folder"):
        bootstrap(M, 1, checkpoint=tmp_path / "fit.npz", method="closed-form")
    with pytest.raises(ValueError, match="needs a seed"):
        bootstrap(M, 1, rng=None, checkpoint=tmp_path / "new")


def test_order_of_contexts_and_features_does_not_matter():
    m = small(4, d=3, p=4)[1]
    at = [2, 0, 3, 1]
    other = m.select(m.contexts[:0:-1])
    other = ld.Moments(
        other.contexts, other.control, other.counts, other.means[:, at], other.covariances[:, at][:, :, at],
        tuple(other.feature_names[j] for j in at),
    )  # fmt: skip
    a, b = bootstrap(m, 5), bootstrap(other, 5)
    assert a.latents == b.latents
    np.testing.assert_array_equal(a.closures, b.closures)
    np.testing.assert_allclose(a.standardized, b.standardized, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-5, atol=1e-6)


# ---- what it means ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_clear_edges_stay_and_others_stay_away():
    truth = random_model(n_latents=3, n_features=4, density=0.5, rng=8)
    assert 0 < truth.graph.number_of_edges() < 3
    result = bootstrap(sample_moments(truth, 5_000, rng=1), 25)
    by_edge = result.edges.set_index(["source", "target"])["frequency"]
    for edge in truth.graph.edges:
        assert by_edge[edge] == 1.0
    assert (by_edge.drop(list(truth.graph.edges)) < 0.3).all()
    ancestors = nx.transitive_closure_dag(truth.graph)
    for u, v in ancestors.edges:
        assert result.precedence.loc[u, v] == 1.0
        assert result.precedence.loc[v, u] == 0.0
    assert result.order["count"].sum() == 25
    assert result.order.loc[0, "as_in_fit"]
    assert (result.targets["frequency"] == 1).all()
    assert result.targets["cosine_low"].min() > 0.99


@pytest.mark.slow
def test_deviations_are_those_of_new_experiments():
    """The parametric bootstrap's standard deviation of a weight is the one that many data sets have."""
    truth, m = small(6, n=2_000)
    graph = truth.graph
    ((source, target),) = graph.edges
    result = bootstrap(m, 50, graph=graph)
    fitted = ld.fit(m, graph=graph).model
    pivots = dict(zip(fitted.latents, np.argmax(np.abs(fitted.unmixing), axis=1), strict=True))
    weights = []
    for s in range(50):
        model = ld.fit(sample_moments(truth, 2_000, rng=[1, s]), graph=graph).model
        i, j = model.latents.index(target), model.latents.index(source)
        weights.append(model.weights[i, j] * model.unmixing[j, pivots[source]] / model.unmixing[i, pivots[target]])
    assert result.edges.loc[0, "std"] == pytest.approx(np.std(weights), rel=0.35)
    samples = bootstrap(m, 30, source="moments", graph=graph)
    assert samples.edges.loc[0, "std"] == pytest.approx(np.std(weights), rel=0.4)


def test_replicates_have_the_noise_of_one_experiment():
    """Around the model, the fit misses a replicate by its degrees of freedom; around the moments, by the data's miss too.

    Four contexts of three features have 36 moments; the model has 9 + 3 + 3 parameters of covariances and 6 of means.
    """
    truth, m = small(6, n=5_000, d=3, p=3)
    fit = ld.fit(m, graph=truth.graph)

    def misses(law):
        draws = [Gaussian.of(m, law).draw(0, b) for b in range(20)]
        return np.mean([2 * (saturated_likelihood(x) - ld.fit(x, graph=truth.graph).loglik) for x in draws])

    once, twice = misses(fit.model), misses(None)
    assert once == pytest.approx(36 - 15 - 6, abs=4)  # the mean of 20 has a deviation of 1.3
    assert twice - once == pytest.approx(2 * (saturated_likelihood(m) - fit.loglik), abs=6)


def saturated_likelihood(m):
    n, p = m.counts, m.n_features
    log_dets = np.linalg.slogdet(m.covariances * ((n - 1) / n)[:, None, None])[1]
    return float(-0.5 * n @ (p * (np.log(2 * np.pi) + 1) + log_dets))


def test_a_replicate_starts_where_the_fit_ended():
    """From its own optimum a fit finds itself, and a replicate nearby what a search of its own finds."""
    m = small(4, d=3, p=4)[1]
    fit = ld.fit(m)
    again = fit_likelihood(m, fit.options, start=fit.model, only_start=True)
    assert set(again.graph.edges) == set(fit.graph.edges)
    assert again.loglik == pytest.approx(fit.loglik, abs=1e-3)
    assert again.details["n_starts"] == 1
    assert bootstrap(m, 2, fit=fit).settings["source"] == "model"


def test_samples_without_a_gaussian_law():
    """Blocks know of heavy tails what a Gaussian law does not: variances of variances are larger."""
    X, contexts = sample(TRUTH, 2_000, rng=2, noise="laplace")
    m = ld.Moments.from_samples(X, contexts, control="control")
    blocks = block_moments((X, contexts), m, n_blocks=100)
    gaussian = Gaussian.of(m)
    drawn = [np.std([s.draw(0, b).covariances[0, 0, 0] for b in range(300)]) for s in (blocks, gaussian)]
    assert drawn[0] > 1.2 * drawn[1]
    a = bootstrap(m, 4, "samples", data=(X, contexts), n_blocks=100)
    same(a, bootstrap(m, 4, "samples", data=blocks))
    assert a.settings["source"] == "samples"
    with pytest.raises(ValueError, match="other moments"):
        bootstrap(M, 4, "samples", data=blocks)


# ---- the result -----------------------------------------------------------------------------------------------------


def test_tables_and_files(tmp_path):
    result = bootstrap(M, 10)
    row = result.edges.iloc[0]
    drawn = result.weights[:, result.latents.index(row["target"]), result.latents.index(row["source"])]
    assert row["mean"] == pytest.approx(drawn.mean())
    assert row["q2.5"] == pytest.approx(drawn.min())  # of ten, nothing lies further out
    ordered = np.sort(drawn)
    low, high = result.intervals(9 / 11).loc[0, ["low", "high"]]
    assert (low, high) == (pytest.approx(ordered[0]), pytest.approx(ordered[9]))  # 9 of 11 gaps lie between
    low, high = result.intervals(5 / 11).loc[0, ["low", "high"]]
    assert (low, high) == (pytest.approx(ordered[2]), pytest.approx(ordered[7]))
    assert np.abs(result.intervals(standardized=True)["weight"]).max() <= 1  # a correlation, with two latents
    assert result.summary.set_index("quantity").loc["same graph", "of"] == 10
    with pytest.raises(ValueError, match="between 0 and 1"):
        result.intervals(95)
    result.save(tmp_path / "b.npz")
    again = Bootstrap.load(tmp_path / "b.npz")
    same(result, again)
    assert again.edges.equals(result.edges)
    assert again.settings == result.settings
    assert repr(again) == "Bootstrap(parametric: 10 replicates, 2 latents)"
    M.save(tmp_path / "m.npz")
    with pytest.raises(ValueError, match="not 'Bootstrap'"):
        Bootstrap.load(tmp_path / "m.npz")


def test_labels_are_escaped():
    renamed = ld.Moments.from_covariances(
        M.covariances, M.counts, ["control", "<script>x</script>", "b"], means=M.means, feature_names=M.feature_names
    )
    html = bootstrap(renamed, 2, method="closed-form")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_failures_and_warnings_are_counted_not_raised(monkeypatch):
    m = small(3, n=12)[1]
    real, calls = replicates.fit_moments, []

    def sometimes(*arguments, **options):
        calls.append(1)
        if len(calls) % 3 == 0:
            raise ValueError("no luck")
        return real(*arguments, **options)

    monkeypatch.setattr(replicates, "fit_moments", sometimes)
    fit = ld.fit(m, method="closed-form")
    result = bootstrap(m, 6, fit=fit)
    assert result.failures == {2: "ValueError: no luck", 5: "ValueError: no luck"}
    assert result.replicates.tolist() == [0, 1, 3, 4]
    assert "2 failed" in repr(result)
    monkeypatch.setattr(
        replicates, "fit_moments", lambda *a, **b: calls.append(1) or (_ for _ in ()).throw(ValueError("x"))
    )
    with pytest.raises(ValueError, match="none of the 2 replicates could be fitted; the first: ValueError: x"):
        bootstrap(m, 2, fit=fit)


def test_warnings_of_replicates_are_counted():
    truth = random_model(n_latents=5, n_features=5, convention="text", rng=0)
    fit = ld.fit(truth.moments(10**5))
    few = sample_moments(truth, 60, rng=0)
    result = bootstrap(few, 2, fit=fit)
    assert result.warnings.get("FewSamplesWarning", 0) >= 1


@pytest.mark.parametrize(
    "told",
    [
        {"intervention": {"c1": "soft"}},
        {"forbidden": [("c1", "c2"), ("c2", "c1")]},
        {"required": [("c1", "c2")]},
        {"order": ["c2", "c1"]},
        {"graph": nx.DiGraph([("c2", "c1")])},
        {"targets": {"c1": "a", "c2": "a"}, "means": False},
        {"penalty": 100.0, "shrinkage": False},
        {"method": "closed-form", "intervention": "soft"},
        {"method": "projection", "gamma": 0.9},
    ],
    ids=lambda told: next(iter(told)),
)
def test_a_fit_remembers_how_it_was_made(told):
    """Replicates of a fit are fitted as it was, whatever it was told; also after a file."""
    same(bootstrap(M, 2, fit=ld.fit(M, **told), rng=1), bootstrap(M, 2, rng=1, **told))


def test_a_fit_of_other_contexts_is_refused():
    with pytest.raises(ValueError, match="different contexts: 'c1'"):
        bootstrap(M.select(["c2"]), 2, fit=ld.fit(M, "closed-form"))


def test_what_was_given_holds_in_every_replicate():
    found = bootstrap(M, 6, fit=ld.fit(M, graph=nx.DiGraph([("c2", "c1")])))
    assert found.edges[["source", "target", "count"]].to_numpy().tolist() == [["c2", "c1", 6]]
    assert bootstrap(M, 6, fit=ld.fit(M, forbidden=[("c1", "c2"), ("c2", "c1")])).edges.empty


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "wild"}, "kind must be one of 'parametric', 'samples', got 'wild'"),
        ({"source": "data"}, "source must be one of 'model', 'moments', got 'data'"),
        ({"kind": "samples"}, r"pass data=\(X, contexts\)"),
        ({"data": (1, 2)}, "leave data out"),
        ({"n_replicates": 0}, "n_replicates must be a whole number, 1 or more, got 0"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"rng": -1}, "not negative"),
        ({"method": "closed-form", "nonsense": 1}, "no such option"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        bootstrap(M, **{"n_replicates": 2, **arguments})
