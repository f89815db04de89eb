"""Robust moments: outlying rows do not matter, clean rows do, and every door gives the same."""

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import integrate, stats
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app
from latentdag.data.cloud import cuts, falling
from latentdag.data.robust import pilot_rows, row_keys
from latentdag.errors import OutlierWarning
from latentdag.estimator import LatentDAG

SEEDS = range(3)
LABELS = ("WT", "A", "B")


def clean(seed, n=400, p=4, d=None):
    """Return Gaussian rows of three contexts, in d dimensions, and the rows of each that are to be spoiled."""
    rng = np.random.default_rng([16, seed])
    d = p if d is None else d
    G, parts = rng.normal(size=(p, d)), []
    for _ in LABELS:
        parts.append((rng.normal(size=(n, d)) * rng.uniform(0.5, 2, d) + rng.normal(size=d)) @ G.T)
    labels = np.repeat(LABELS, n)
    order = rng.permutation(len(labels))
    bad = np.concatenate([np.flatnonzero(labels[order] == label)[:8] for label in LABELS])
    return np.vstack(parts)[order], labels[order], bad, rng


def robust(X, labels, **options):
    return ld.Moments.from_samples(X, labels, "WT", robust=True, **options)


def close(a, b, rtol=1e-7):
    scale = np.sqrt(np.diagonal(b.covariances, axis1=1, axis2=2))
    assert a.contexts == b.contexts
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_array_equal(a.outliers, b.outliers)
    np.testing.assert_allclose(a.means / scale, b.means / scale, atol=rtol)
    np.testing.assert_allclose(a.covariances, b.covariances, atol=rtol * scale.max() ** 2)


@pytest.mark.parametrize("r", [1, 2, 7, 40])
@pytest.mark.parametrize("n", [3.0, 100.0, 1e7])
def test_the_covariance_is_consistent_for_gaussian_rows(r, n):
    a, b, gamma = cuts(r, r + n)

    def mean(f):
        return integrate.quad(
            lambda x: f(x) * falling(np.clip((x - a) / (b - a), 0, 1)) * stats.chi2.pdf(x, r), 0, b, points=[r, a],
            limit=200,
        )[0]  # fmt: skip

    assert gamma == pytest.approx(r * mean(lambda x: 1.0) / mean(lambda x: x), rel=1e-6)
    assert stats.chi2.sf(a, r) <= 0.01 + 1e-6
    assert stats.chi2.sf(b, r) <= 1e-5 + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("p", [1, 4])
def test_clean_rows_give_nearly_the_plain_moments(seed, p):
    X, labels, _, _ = clean(seed, p=p)
    plain, m = ld.Moments.from_samples(X, labels, "WT"), robust(X, labels)
    sd = np.sqrt(np.diagonal(plain.covariances, axis1=1, axis2=2))
    # sampling errors are 1/√n of a deviation and √(2/n) of a variance
    assert (np.abs(m.means - plain.means) / sd).max() < 0.5 / np.sqrt(400)
    assert (np.abs(m.covariances - plain.covariances) / sd[:, :, None] / sd[:, None, :]).max() < 0.7 * np.sqrt(2 / 400)
    assert m.outliers.sum() <= 4
    np.testing.assert_array_equal(m.counts + m.outliers, plain.counts)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["scattered", "together", "single"])
def test_how_far_outliers_are_does_not_matter(seed, kind):
    """Beyond the cut a row has no weight: at a thousand deviations or a billion, it is as if it were not there."""
    X, labels, bad, rng = clean(seed)
    steps = {
        "scattered": rng.normal(size=(len(bad), 4)),
        "together": rng.normal(size=4) + 1e-3 * rng.normal(size=(len(bad), 4)),
        "single": np.eye(4)[rng.integers(4, size=len(bad))],
    }[kind]
    near, far = X.copy(), X.copy()
    near[bad] += 1e3 * steps
    far[bad] += 1e9 * steps
    close(robust(far, labels), robust(near, labels))
    rest = np.delete(X, bad, axis=0), np.delete(labels, bad)
    without, m = robust(*rest), robust(near, labels)
    np.testing.assert_array_equal(m.counts, without.counts)
    np.testing.assert_allclose(m.covariances, without.covariances, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(m.outliers, without.outliers + 8)


@pytest.mark.parametrize("seed", SEEDS)
def test_outliers_fill_all_dimensions_and_robust_moments_do_not(seed):
    X, labels, bad, rng = clean(seed, p=7, d=3)
    X[bad] += 1e-2 * rng.normal(size=(len(bad), 7))  # small, but off the three dimensions of all others
    with pytest.warns(OutlierWarning, match="carry 100% of the variance"):
        assert ld.Moments.from_samples(X, labels, "WT").range.shape[1] == 7
    m = robust(X, labels)
    assert m.range.shape[1] == 3
    assert (m.outliers >= 8).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_linear_change_of_features_changes_moments_alike(seed):
    X, labels, bad, rng = clean(seed)
    X[bad] += 30 * rng.normal(size=(len(bad), 4))
    A, b = rng.normal(size=(4, 4)), 100 * rng.normal(size=4)
    m, changed = robust(X, labels), robust(X @ A.T + b, labels)
    np.testing.assert_allclose(changed.covariances, A @ m.covariances @ A.T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(changed.means, m.means @ A.T + b, rtol=1e-6)
    np.testing.assert_array_equal(changed.outliers, m.outliers)


def test_neither_order_nor_blocks_nor_doors_matter(tmp_path):
    """More rows than a pilot holds: those are chosen by what they hold."""
    X, labels, bad, rng = clean(0, n=1300)
    X[bad] += 20
    m = robust(X, labels)
    turn, names = rng.permutation(len(X)), ["x0", "x1", "x2", "x3"]
    close(robust(X[turn], labels[turn]), m)
    back = robust(X[:, ::-1], labels)
    np.testing.assert_allclose(back.covariances[:, ::-1, ::-1], m.covariances, rtol=1e-7, atol=1e-9)
    table = pd.DataFrame(X, columns=names).assign(context=labels)
    table.to_csv(tmp_path / "rows.csv", index=False)
    cells = ad.AnnData(X, obs=pd.DataFrame({"context": labels}, index=[f"c{i}" for i in range(len(X))]))
    cells.var_names = names
    cells.write_h5ad(tmp_path / "rows.h5ad")
    zarr.save(str(tmp_path / "rows.zarr"), X)
    close(ld.stream.moments(X, labels, "WT", robust=True, block_rows=333), m)
    close(ld.stream.dask_moments(da.from_array(X, chunks=(500, 3)), labels, "WT", robust=True), m)
    close(ld.Moments.from_anndata(cells, "context", "WT", robust=True), m)
    close(ld.stream.moments(tmp_path / "rows.zarr", labels, "WT", robust=True), m)
    for name in ("rows.csv", "rows.h5ad"):
        close(ld.stream.moments(tmp_path / name, "context", "WT", robust=True, block_rows=1000), m)
    asked = ["moments", str(tmp_path / "rows.csv"), "--control", "WT", "--robust", "-o", str(tmp_path / "m.npz")]
    assert CliRunner().invoke(app, [*asked, "--json"]).exit_code == 0
    close(ld.Moments.load(tmp_path / "m.npz"), m)


def test_copies_of_a_row_are_chosen_one_by_one():
    X = np.repeat([[0.0, 0.0], [1.0, 2.0]], 5000, axis=0)
    X = np.vstack([X, np.random.default_rng(0).normal(size=(10_000, 2))])
    keys = row_keys(X, np.zeros(len(X)))
    chosen = pilot_rows(keys, np.zeros(len(X), dtype=int), 1000)
    assert chosen.sum() == 1000
    assert abs(chosen[:5000].sum() - 250) < 80  # a quarter of the rows: none or all without care
    assert abs(chosen[10_000:].sum() - 500) < 80
    assert row_keys(np.array([[-0.0, 3.0]]), X) == row_keys(np.array([[3, 0]], dtype=np.int8), X)


@pytest.mark.parametrize("seed", SEEDS)
def test_covariates_are_regressed_out_as_if_rows_were_clean(seed):
    X, labels, bad, rng = clean(seed)
    covariates = pd.DataFrame(
        {"depth": rng.normal(size=len(X)), "batch": rng.choice(list("abc"), len(X), p=[0.7, 0.28, 0.02])}
    )
    effect = 5 * covariates[["depth"]].to_numpy() + 8.0 * (covariates[["batch"]] == "c").to_numpy()
    without, m = robust(X, labels), robust(X + effect, labels, adjust=covariates)
    assert np.abs(m.outliers - without.outliers).max() <= 2  # the rare batch is not outlying
    X[bad] += 100 * rng.normal(size=(len(bad), 4))
    spoiled = robust(X + effect, labels, adjust=covariates)
    sd = np.sqrt(np.diagonal(without.covariances, axis1=1, axis2=2))
    gap = np.abs(spoiled.covariances - without.covariances) / sd[:, :, None] / sd[:, None, :]
    assert gap.max() < 3 * np.sqrt(2 / 400)
    assert (spoiled.outliers >= 8).all()
    assert (spoiled.outliers <= 12).all()


def test_files_keep_the_outliers_and_shards_add_up(tmp_path):
    X, labels, bad, _ = clean(1)
    X[bad] += 50
    m, half = robust(X, labels), np.arange(len(X)) < 600
    m.save(tmp_path / "m.npz")
    close(ld.Moments.load(tmp_path / "m.npz"), m, rtol=0)
    assert f"{m.outliers.sum()} outlying" in repr(m)
    a, b = robust(X[half], labels[half]), robust(X[~half], labels[~half])
    np.testing.assert_array_equal((a + b).outliers, a.outliers + b.outliers)
    np.testing.assert_array_equal((a + b).counts + (a + b).outliers, [400] * 3)
    np.testing.assert_allclose((a + b).covariances, m.covariances, rtol=0.1, atol=0.1)
    assert m.select(["B"]).outliers.tolist() == [m.outliers[0], m.outliers[2]]
    plain = ld.Moments.from_covariances(m.covariances, m.counts, LABELS, feature_names=m.feature_names)
    with pytest.raises(ValueError, match="cannot merge robust moments with others"):
        m + plain
    with pytest.raises(ValueError, match="leave one of them away"):
        ld.stream.moments(X, labels, "WT", robust=True, checkpoint=tmp_path / "c.npz")
    plain.save(tmp_path / "plain.npz")
    said = CliRunner().invoke(app, ["fit", str(tmp_path / "plain.npz"), "--robust", "-o", str(tmp_path / "out")])
    assert said.exit_code == 2
    assert "rows cannot be weighed any more" in said.stderr


def test_a_second_pass_leaves_the_same_rows_out():
    X, labels, bad, _ = clean(2)
    X[bad] += 50
    m = robust(X, labels)
    sums = {k: np.zeros((4, 4)) for k in range(3)}
    for k, rows in ld.data.stream.deviations((X, labels), m):
        assert len(rows) == m.counts[k]
        sums[k] += rows.T @ rows
    for k, S in sums.items():
        np.testing.assert_allclose(S / m.counts[k], m.covariances[k], rtol=0.05, atol=0.05)
    with pytest.raises(ValueError, match="rows in the data"):
        list(ld.data.stream.deviations((X[1:], labels[1:]), m))


def test_a_fit_sees_the_graph_through_outliers():
    truth = ld.simulate.random_model(3, 5, rng=1)
    X, labels = ld.simulate.sample(truth, 1500, rng=2)
    labels = np.asarray(labels)
    X[::100] += 40 * np.random.default_rng(3).normal(size=X[::100].shape)
    found = LatentDAG(control=truth.control, robust=True).fit(X, labels).fit_
    assert ld.metrics.shd(truth, found) == 0
    m = ld.Moments.from_samples(X, labels, truth.control, robust=True)
    assert ld.membership_test(m, data=(X, labels)).in_model
    assert ld.bootstrap(m, 3, fit=found, kind="samples", data=(X, labels), rng=0) is not None
    cells = ad.AnnData(X, obs=pd.DataFrame({"k": labels}, index=[f"c{i}" for i in range(len(X))]))
    ld.tl.latentdag(cells, "k", control=truth.control, robust=True)
    np.testing.assert_array_equal(cells.uns["latentdag"]["outliers"], m.outliers)


def test_a_warning_names_context_and_feature_where_few_rows_carry_much():
    X, labels, bad, rng = clean(0)
    ld.Moments.from_samples(X, labels, "WT")  # a warning is an error here
    spoiled = X.copy()
    spoiled[bad[8:16], 2] += 60
    with pytest.warns(OutlierWarning, match=r"context 'A': 8 of 400 rows .*feature 'x2' above all.*robust=True"):
        ld.Moments.from_samples(spoiled, labels, "WT")
    with pytest.warns(OutlierWarning, match="context 'A'"):
        ld.Moments.from_samples(da.from_array(spoiled, chunks=(100, 4)), labels, "WT")
    robust(spoiled, labels)
    ld.Moments.from_samples(rng.laplace(size=X.shape), labels, "WT")  # not outliers, only another law
    ld.Moments.from_samples(rng.random(X.shape), labels, "WT")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, rows: X.__setitem__((rows[:200], 1), 5.0), None),
        (lambda X, rows: X.__setitem__((rows[:350], 1), 5.0), r"context 'B': feature 'x1' has the value 5 in 88% of the rows"),
        (lambda X, rows: X.__setitem__(rows[:180], X[rows[:180]] * np.logspace(2, 30, 180)[:, None]), r"context 'B': \d+ of 400 rows are outlying"),
        (lambda X, rows: X.__setitem__((rows[3], 2), np.nan), r"context 'B': 1 values are not finite"),
        (lambda X, rows: X.__setitem__((rows[3], 2), 1e200), r"feature 'x2' are too large"),
    ],
)  # fmt: skip
def test_rows_that_make_no_cloud_end_in_a_sentence(spoil, message):
    X, labels, _, _ = clean(0)
    rows = np.flatnonzero(labels == "B")
    spoil(X, rows)
    if message is None:
        assert np.isfinite(robust(X, labels).covariances).all()
    else:
        with pytest.raises(ValueError, match=message):
            robust(X, labels)


def test_a_row_off_a_constant_context_is_outlying():
    X, labels, _, _ = clean(0)
    rows = np.flatnonzero(labels == "A")
    X[rows] = [1.0, 2.0, 3.0, 4.0]
    X[rows[5], 2] = 3.5
    m = robust(X, labels)
    assert m.outliers[1] == 1
    assert not m.covariances[1].any()
    np.testing.assert_array_equal(m.means[1], [1, 2, 3, 4])


def test_fewer_rows_than_dimensions_end_in_a_sentence():
    X, labels, _, _ = clean(0, n=20, p=12)
    with pytest.raises(ValueError, match=r"context 'WT' has 20 rows, which vary in 12 dimensions or more.*Take fewer"):
        robust(X, labels)
    X, labels, _, _ = clean(0, n=10, p=12)
    with pytest.raises(ValueError, match=r"context 'WT' has 10 rows.*twice as many rows as dimensions"):
        robust(X, labels)
    X, labels, _, _ = clean(0, n=20, p=30, d=4)  # more features than rows, but few dimensions
    assert robust(X, labels).range.shape[1] == 4
    with pytest.raises(ValueError, match="robust must be True or False, got 'yes'"):
        ld.Moments.from_samples(X, labels, "WT", robust="yes")
