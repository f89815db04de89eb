"""Counts: what counting adds to the variances is known exactly, at every door, and stays with the moments."""

import itertools

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app
from latentdag.data.stream import deviations
from latentdag.errors import FileError, LogRatesWarning, RawCountsWarning
from latentdag.report import moments_hash

NAMES = ("g0", "g1", "g2")
SEEDS = range(3)


def counted(seed, n=900, p=3):
    """Counts of three contexts, their depths and labels."""
    rng = np.random.default_rng([17, seed])
    labels = rng.choice(["NT", "A", "B"], n, p=[0.5, 0.3, 0.2])
    depth = rng.uniform(0.4, 2.5, n)
    rates = 6 + rng.gamma(4, size=(n, p)) + (labels == "A")[:, None]
    return rng.poisson(depth[:, None] * rates), depth, labels


def by_hand(X, depth, labels):
    """Covariances of x/s and means of x/s², context by context."""
    found = {}
    for label in ("NT", "A", "B"):
        x, s = X[labels == label], depth[labels == label][:, None]
        found[label] = (x / s).mean(axis=0), np.cov((x / s).T), (x / s**2).mean(axis=0)
    return found


def check(m, expected, rtol=1e-9):
    assert set(m.contexts) == set(expected)
    for k, label in enumerate(m.contexts):
        mean, S, D = expected[label]
        np.testing.assert_allclose(m.means[k], mean, rtol=rtol)
        np.testing.assert_allclose(m.covariances[k], S, rtol=rtol, atol=rtol * np.diagonal(S).max())
        np.testing.assert_allclose(m.noise[k], D, rtol=rtol)


def same(a, b, rtol=1e-9):
    assert (a.contexts, a.control, a.feature_names) == (b.contexts, b.control, b.feature_names)
    check(b, {c: (a.means[k], a.covariances[k], a.noise[k]) for k, c in enumerate(a.contexts)}, rtol)


# ---- theorems ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_noise_covariances_are_those_of_the_rates_whatever_the_depths(seed):
    """Two rows of two features: every outcome is a context of its own, and has its probability."""
    rng = np.random.default_rng(seed)
    rates, depth, most = rng.uniform(0.1, 0.5, (2, 2)), rng.uniform(0.3, 1.5, 2), 9
    outcomes = np.array(list(itertools.product(range(most), repeat=4))).reshape(-1, 2, 2)
    chance = stats.poisson.pmf(outcomes, depth[:, None] * rates).prod(axis=(1, 2))
    assert chance.sum() == pytest.approx(1, abs=1e-8)
    labels = np.repeat(np.arange(len(outcomes)), 2)
    m = ld.Moments.from_counts(outcomes.reshape(-1, 2), labels, 0, depth=np.tile(depth, len(outcomes)))
    np.testing.assert_allclose(chance @ m.means, rates.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(chance @ m.noise, (rates / depth[:, None]).mean(axis=0), rtol=1e-6)
    S = np.einsum("k,kij->ij", chance, m.covariances) - np.diag(chance @ m.noise)
    np.testing.assert_allclose(S, np.cov(rates.T), atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_log_rates_of_exact_moments_are_exact(seed):
    rng = np.random.default_rng(seed)
    G, mu, K = rng.normal(size=(3, 2)), rng.normal(size=(2, 4)), 2
    G = np.concatenate([G, -G[:1]])
    Sigma = np.array([G @ np.diag(rng.uniform(0.1, 1, 2)) @ G.T for _ in range(K)])
    m = np.exp(mu + np.diagonal(Sigma, axis1=1, axis2=2) / 2)
    D = m * rng.uniform(0.5, 2, (K, 1))  # E[1/s], with depths that do not depend on the rates
    rates = np.einsum("ki,kj->kij", m, m) * np.expm1(Sigma)
    S = rates + np.array([np.diag(d) for d in D])
    found = ld.Moments.from_covariances(S, 10**15, means=m, noise=D).log_rates()
    np.testing.assert_allclose(found.means, mu, atol=1e-9)
    np.testing.assert_allclose(found.noise, D / m**2, rtol=1e-9)
    np.testing.assert_allclose(found.covariances - [np.diag(d) for d in found.noise], Sigma, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_log_rates_are_logarithms_of_factorial_moments(seed):
    X, depth, labels = counted(seed)
    found = ld.Moments.from_counts(X, labels, "NT", depth, "log")
    for k, label in enumerate(found.contexts):
        x, s = X[labels == label], depth[labels == label][:, None]
        m, M = (x / s).mean(axis=0), (x / s).T @ (x / s) / len(x)
        np.fill_diagonal(M, (x * (x - 1) / s**2).mean(axis=0))
        noise = (x / s**2).mean(axis=0) / m**2
        np.testing.assert_allclose(found.noise[k], noise, rtol=1e-9)
        np.testing.assert_allclose(found.covariances[k], np.log(M / np.outer(m, m)) + np.diag(noise), atol=1e-9)
        np.testing.assert_allclose(found.means[k], np.log(m) - np.log(np.diagonal(M) / m**2) / 2, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_indefinite_covariance_of_log_rates_moves_closer_to_the_true_one(seed):
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(30, 4)) * 0.35
    x = rng.poisson(20 * np.exp(rng.normal(size=(100, 4)) @ G.T))
    with pytest.warns(LogRatesWarning, match="context 'NT': .* had negative eigenvalues, down to -"):
        m = ld.Moments.from_counts(x, ["NT"] * 100, "NT", depth=1, scale="log")
    mean, M = x.mean(axis=0), x.T @ x / 100 - np.diag(x.mean(axis=0))
    plain, truth = np.log(M / np.outer(mean, mean)) + np.diag(m.noise[0]), G @ G.T + np.diag(m.noise[0])
    assert np.linalg.eigvalsh(m.covariances[0])[0] > -1e-9
    assert np.linalg.norm(m.covariances[0] - truth) < np.linalg.norm(plain - truth)


# ---- doors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_every_door_gives_what_a_loop_gives(seed, tmp_path):
    X, depth, labels = counted(seed)
    expected = by_hand(X, depth, labels)
    table = pd.DataFrame(X, columns=NAMES).assign(context=labels, depth=depth)
    table.to_csv(tmp_path / "x.csv", index=False)
    adata = ad.AnnData(np.zeros(X.shape), layers={"counts": sparse.csr_matrix(X.astype(np.float32))})
    adata.obs["context"], adata.obs["depth"], adata.var_names = labels, depth, NAMES
    named = {"control": "NT", "depth": "depth"}
    for values in (X, X.astype(np.uint8), X.tolist(), sparse.csr_matrix(X), sparse.csc_array(X.astype(np.float32))):
        check(ld.Moments.from_counts(values, labels, "NT", depth), expected)
    chunked = da.from_array(X, chunks=(200, 2))
    for lazy in (chunked, chunked.rechunk((250, 3)).map_blocks(sparse.csr_matrix)):
        check(ld.Moments.from_counts(lazy, labels, "NT", depth), expected)
        check(ld.stream.dask_moments(lazy, labels, "NT", counts=True, depth=depth, split_every=2), expected)
    check(ld.Moments.from_counts(table.drop(columns="context"), labels, **named), expected)
    for source in (table, tmp_path / "x.csv"):
        check(ld.stream.moments(source, "context", counts=True, block_rows=70, **named), expected)
    check(ld.Moments.from_anndata(adata, "context", layer="counts", counts=True, **named), expected)
    asked = ["moments", str(tmp_path / "x.csv"), "--control", "NT", "--counts", "--depth", "depth", "--out"]
    done = CliRunner().invoke(app, [*asked, str(tmp_path / "m.npz")])
    assert done.exit_code == 0, done.output
    assert "with known noise" in done.stdout
    check(ld.Moments.load(tmp_path / "m.npz"), expected)


@pytest.mark.parametrize("density", [1.0, 0.05])
def test_without_a_depth_it_is_the_sum_over_all_features_relative_to_its_mean(density):
    rng = np.random.default_rng(5)
    X = rng.poisson(4, (800, 400)) * (rng.uniform(size=(800, 400)) < density)
    labels = np.repeat(["NT", "A"], 400)
    totals = X.sum(axis=1)
    for values in (X, sparse.csr_matrix(X), da.from_array(X, chunks=(300, 300)), pd.DataFrame(X).rename(columns=str)):
        whole = ld.Moments.from_counts(values, labels, "NT", depth=totals / totals.mean())
        same(ld.Moments.from_counts(values, labels, "NT"), whole)
        some = ld.stream.moments(values, labels, "NT", counts=True, features=[0, 7], split_every=4)
        np.testing.assert_allclose(some.noise, whole.noise[:, [0, 7]], rtol=1e-9)
        np.testing.assert_allclose(some.means, whole.means[:, [0, 7]], rtol=1e-9)


def test_a_killed_run_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    X, depth, labels = counted(0)
    options = {"counts": True, "depth": depth, "block_rows": 100, "checkpoint_seconds": 0}
    whole = ld.stream.moments(X, labels, "NT", **options)
    from latentdag.data.accumulate import Accumulator

    add, calls = Accumulator.add, iter(range(100))
    monkeypatch.setattr(Accumulator, "add", lambda *a: add(*a) if next(calls) < 4 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ld.stream.moments(X, labels, "NT", checkpoint=tmp_path / "sums", **options)
    monkeypatch.setattr(Accumulator, "add", add)
    again = ld.stream.moments(X, labels, "NT", checkpoint=tmp_path / "sums", **options)
    for name in ("means", "covariances", "noise"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_samples_once_more_are_rates(seed):
    X, depth, labels = counted(seed)
    for depth_of in (depth, None):
        m = ld.Moments.from_counts(X, labels, "NT", depth_of)
        data = ld.stream.pieces(X, labels, counts=True, depth=depth_of, block_rows=128)
        for k in range(3):
            rows = np.concatenate([block for j, block in deviations(data, m) if j == k])
            np.testing.assert_allclose(rows.T @ rows / (len(rows) - 1), m.covariances[k], rtol=1e-9, atol=1e-9)


def screen(seed):
    """Counts of a screen whose rates are linear in latents, as AnnData with two cells that take no part."""
    truth = ld.simulate.random_model(3, 6, rng=seed)
    X, labels = ld.simulate.sample(truth, 400, rng=seed)
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.5, 2, len(X))
    rates = 200 + 20 * X / X.std(axis=0)
    adata = ad.AnnData(np.zeros(X.shape), layers={"counts": rng.poisson(depth[:, None] * rates.clip(1)).astype(float)})
    adata.obs["context"] = [*labels[:-2], "few", "few"]
    adata.obs["depth"] = depth
    adata.var_names = truth.feature_names
    return adata


@pytest.mark.filterwarnings("ignore::latentdag.errors.LatentDAGWarning")
@pytest.mark.parametrize("depth", ["depth", None])
def test_tl_fits_and_scores_rates(depth):
    adata = screen(100)
    ld.tl.latentdag(adata, "context", control="control", layer="counts", counts=True, depth=depth)
    X, used = adata.layers["counts"], (adata.obs["context"] != "few").to_numpy()
    s = adata.obs["depth"].to_numpy() if depth else X.sum(axis=1) / X.sum(axis=1).mean()
    m = ld.Moments.from_counts(X[used], adata.obs["context"][used], "control", s[used], feature_names=adata.var_names)
    rows = ld.stream.pieces(X[used], adata.obs["context"][used], counts=True, depth=s[used])
    found = ld.fit(m, data=rows)
    np.testing.assert_allclose(adata.obsm["latentdag"], found.model.transform(X / s[:, None]), rtol=1e-6, atol=1e-8)
    assert adata.uns["latentdag"]["params"]["counts"]


@pytest.mark.filterwarnings("ignore::latentdag.errors.LatentDAGWarning")
def test_the_command_line_fits_rates(tmp_path):
    adata = screen(100)[:-2]
    table = pd.DataFrame(adata.layers["counts"], columns=adata.var_names)
    table.assign(context=adata.obs["context"].to_numpy(), depth=adata.obs["depth"].to_numpy()).to_csv(
        tmp_path / "x.csv", index=False
    )
    asked = ["fit", str(tmp_path / "x.csv"), "--control", "control", "--counts", "--depth", "depth", "--out"]
    done = CliRunner().invoke(app, [*asked, str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    m = ld.Moments.from_counts(table, adata.obs["context"], "control", adata.obs["depth"].to_numpy())
    same(ld.Moments.load(tmp_path / "out" / "moments.npz"), m)


# ---- what happens to moments happens to their noise ---------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_follows_contexts_shards_rows_features_units_and_files(seed, tmp_path):
    X, depth, labels = counted(seed)
    m = ld.Moments.from_counts(X, labels, "NT", depth)
    assert not m.noise.flags.writeable
    assert "with known noise" in repr(m)
    np.testing.assert_array_equal(m.select(["B"]).noise, m.noise[[0, m.index("B")]])
    part = np.random.default_rng(seed).integers(3, size=len(X))
    part[labels == "B"] = 2  # one shard has it alone
    same(sum(ld.Moments.from_counts(X[part == i], labels[part == i], None, depth[part == i]) for i in range(3)),
         ld.Moments.from_counts(X, labels, None, depth))  # fmt: skip
    rows, columns = np.random.default_rng(seed).permutation(len(X)), [2, 0, 1]
    turned = ld.Moments.from_counts(X[rows][:, columns], labels[rows], "NT", depth[rows])
    np.testing.assert_allclose(turned.noise, m.noise[:, columns], rtol=1e-12)
    units = ld.Moments.from_counts(X, labels, "NT", 1e4 * depth)
    np.testing.assert_allclose(units.noise * 1e8, m.noise, rtol=1e-10)
    np.testing.assert_allclose(units.covariances * 1e8, m.covariances, rtol=1e-9, atol=1e-10)
    m.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(ld.Moments.load(tmp_path / "m.npz").noise, m.noise)
    plain = ld.Moments.from_covariances(m.covariances, m.counts, m.contexts, means=m.means)
    plain.save(tmp_path / "plain.npz")
    assert ld.Moments.load(tmp_path / "plain.npz").noise is None
    assert moments_hash(plain) != moments_hash(plain.with_noise(m.noise))


def test_noise_follows_the_control_and_can_be_stated_in_three_ways():
    S = [np.diag([4.0, 9.0]), np.diag([5.0, 8.0])]
    made = ld.Moments.from_covariances(S, 100, ["A", "NT"], "NT", feature_names=["f", "g"], noise=[[1, 2], [3, 4]])
    np.testing.assert_array_equal(made.noise, [[3, 4], [1, 2]])
    np.testing.assert_array_equal(made.with_noise({"g": 2}).noise, [[0, 2], [0, 2]])
    np.testing.assert_array_equal(made.with_noise([1, 2]).noise, [[1, 2], [1, 2]])


@pytest.mark.parametrize("seed", SEEDS)
def test_covariates_are_regressed_out_of_rates_and_the_noise_stays(seed):
    X, depth, labels = counted(seed)
    c = np.random.default_rng(seed).normal(size=len(X))
    m = ld.Moments.from_counts(X, labels, "NT", depth, adjust={"c": c})
    plain = ld.Moments.from_samples(X / depth[:, None], labels, "NT", adjust={"c": c})
    np.testing.assert_allclose(m.covariances, plain.covariances, rtol=1e-9)
    np.testing.assert_allclose(m.means, plain.means, rtol=1e-9)
    np.testing.assert_array_equal(m.noise, ld.Moments.from_counts(X, labels, "NT", depth).noise)


# ---- bad input --------------------------------------------------------------------------------------------------


def spoiled(value, row=4, column=1):
    X = counted(0)[0].astype(float)
    X[row, column] = value
    return X


BAD = {
    "negative": (spoiled(-2), {}, r"row 4: feature 'x1' is -2 \(1 such values here\), and counts are whole numbers"),
    "fraction": (spoiled(2.5), {}, "row 4: feature 'x1' is 2.5 .* as they were before anything was done to them"),
    "nan": (spoiled(np.nan), {}, "row 4: feature 'x1' is nan"),
    "empty row": (spoiled(0, row=[4, 7], column=slice(None)), {"depth": None},
                  r"row 4 has no counts at all, and so no depth \(2 such rows\): drop these rows"),
    "depth zero": (spoiled(1), {"depth": np.r_[1.0, 1, 0, np.ones(897)]}, r"row 2 has the depth 0.0 \(1 such rows\)"),
    "depth nan": (spoiled(1), {"depth": np.r_[np.nan, np.ones(899)]}, "row 0 has the depth nan"),
    "depth text": (spoiled(1), {"depth": ["deep"] * 900}, "row 0 has the depth deep"),
    "depths too few": (spoiled(1), {"depth": [1, 2]}, r"depth has shape \(2,\) for 900 rows: one number per row"),
    "depth no column": (spoiled(1), {"depth": "total"}, "no named columns"),
    "scale": (spoiled(1), {"scale": "sqrt"}, "scale must be 'linear' or 'log', got 'sqrt'"),
    "adjust log": (spoiled(1), {"scale": "log", "adjust": {"c": np.arange(900)}}, "adjust is not for scale='log'"),
    "no pairs": (spoiled(np.arange(900) % 30 == 0, row=slice(None)), {"scale": "log"},
                 r"no row has two counts of feature 'x1', .* \(1 features concerned\): leave the rarest out, or use scale"),
    "never together": (spoiled(1) * np.repeat([[1, 0, 1], [0, 1, 1]], 450, axis=0), {"scale": "log"},
                       "no row has counts of both 'x0' and 'x1'"),
    "no counts": (np.full((900, 2), 3), {"depth": 1},
                  "the noise of feature 'x0' is 3, more than its variance 0, .* say depth="),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, lambda X: da.from_array(X, chunks=(450, -1))])
def test_bad_counts_are_refused_by_row_feature_and_value(case, make):
    X, options, message = BAD[case]
    labels = counted(0)[2]
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_counts(make(X), labels, **{"control": "NT", "depth": counted(0)[1], **options})


def test_options_of_counts_are_refused_where_they_make_no_sense(tmp_path):
    X, depth, labels = counted(0)
    with pytest.raises(ValueError, match="depth is of counts: say counts=True"):
        ld.stream.moments(X / 7, labels, "NT", depth=depth)
    with pytest.raises(ValueError, match="robust=True is not for counts"):
        ld.stream.moments(X, labels, "NT", counts=True, robust=True)
    plain = ld.Moments.from_samples(X / depth[:, None], labels, "NT")
    with pytest.raises(ValueError, match="cannot merge moments with known noise and moments without"):
        plain + ld.Moments.from_counts(X, labels, "NT", depth)
    with pytest.raises(ValueError, match="log rates are of counts"):
        plain.log_rates()
    with pytest.raises(ValueError, match="log rates are of counts"):
        ld.Moments.from_counts(X, labels, "NT", 50 * depth, "log").log_rates()
    plain.save(tmp_path / "m.npz")
    done = CliRunner().invoke(app, ["moments", str(tmp_path / "m.npz"), "--counts", "--out", str(tmp_path / "n.npz")])
    assert done.exit_code == 2
    assert "holds moments without the noise of counts: use --counts on the rows" in done.stderr


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ([1, 2, 3], r"noise must hold one variance per feature, \(2,\) or \(2, 2\), got shape \(3,\)"),
        ([[0, 1], [0, -1]], "context 'A': the noise of feature 'g' is -1.0"),
        ([np.nan, 1], "context 'NT': the noise of feature 'f' is nan"),
        ([[0, 1], [6, 1]], "context 'A': the noise of feature 'f' is 6, more than its variance 5"),
        ({"h": 1}, "there is no feature 'h' to have noise; features are 'f', 'g'"),
    ],
)
def test_bad_noise_is_refused_by_context_and_feature(noise, message, tmp_path):
    S = [np.diag([4.0, 9.0]), np.diag([5.0, 8.0])]
    given = {"counts": 10_000, "contexts": ["NT", "A"], "feature_names": ["f", "g"]}
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_covariances(S, noise=noise, **given)


def test_a_file_with_impossible_noise_is_refused(tmp_path):
    m = ld.Moments.from_covariances([np.eye(2)] * 2, 10_000, noise=[0.5, 0.5])
    np.asarray(m.noise).flags.writeable = True
    m.noise[1, 0] = 2.0
    m.save(tmp_path / "m.npz")
    with pytest.raises(FileError, match=r"m.npz: noise: context 1: the noise of feature 'x0' is 2"):
        ld.Moments.load(tmp_path / "m.npz")


@pytest.mark.parametrize("seed", range(5))
def test_variances_below_the_noise_by_chance_are_no_reason_to_refuse(seed):
    """Counts without any variance of their rates: half of all variances are below their noise."""
    rng = np.random.default_rng([18, seed])
    depth = rng.uniform(0.5, 2, 4000)
    m = ld.Moments.from_counts(rng.poisson(0.5 * depth[:, None], (4000, 50)), np.arange(4000) % 8, 0, depth)
    below = np.diagonal(m.covariances, axis1=1, axis2=2) < m.noise
    assert 0.3 < below.mean() < 0.7


def test_the_warning_of_raw_counts_says_where_counts_go():
    rng, labels = np.random.default_rng(0), counted(0)[2]
    X = rng.poisson(rng.gamma(2, size=(900, 3)))
    with pytest.warns(RawCountsWarning, match=r"with Moments\.from_counts or counts=True"):
        ld.Moments.from_samples(X, labels, "NT")


def test_shared_noise_leaves_what_rates_do():
    """Contexts whose rates differ in mean alone have the same covariances once their noise is shared."""
    rates = np.array([[3.0, 5.0], [6.0, 5.5]])
    S = np.array([[0.5, 0.2], [0.2, 0.4]])
    m = ld.Moments.from_covariances([S + np.diag(r) for r in rates], 100, means=rates, noise=rates)
    evened = m.with_shared_noise()
    np.testing.assert_allclose(evened.covariances[0], evened.covariances[1])
    np.testing.assert_allclose(evened.covariances[0] - np.diag(evened.noise[0]), S)
    plain = ld.Moments.from_covariances([S, S], 100)
    assert plain.with_shared_noise() is plain
