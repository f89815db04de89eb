"""Moments in dimensions that all contexts share: the same fits, whatever the source, in two passes."""

import os
import signal
import threading
import time
from dataclasses import replace

import anndata as ad
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import latentdag as ld
from latentdag import simulate, stream
from latentdag.data import accumulate, basis, passes
from latentdag.errors import FileError, SourceChangedWarning


def screen(d=4, p=10, noise=0.0, seed=5, n=1500):
    """Rows of a model and their contexts."""
    truth = simulate.random_model(n_latents=d, n_features=p, rng=seed)
    rng = np.random.default_rng(seed)
    X = np.vstack([truth.sample(n, c, rng) for c in truth.contexts]) + 5
    X = X + noise * X.std() * rng.uniform(0.5, 1.5, p) * rng.normal(size=X.shape)
    return truth, X, np.repeat(np.array(truth.contexts, dtype=object), n)


def programs(seed, n=1200, p=120, d=3, shift=0.0):
    """Rows of independent features, but for d programs; the last context also shifts a feature of its own."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(["WT", *(f"c{i}" for i in range(d)), "shifted"], n)
    Z = rng.normal(size=(len(labels), d))
    for i in range(d):
        Z[labels == f"c{i}", i] *= 2
    X = rng.normal(size=(len(labels), p))
    X[:, : 10 * d] += np.repeat(Z, 10, axis=1)
    X[labels == "shifted", -1] += shift
    return X, labels


def same(a, b, rtol=1e-9):
    assert a.contexts == b.contexts
    assert a.basis.feature_names == b.basis.feature_names
    np.testing.assert_array_equal(a.counts, b.counts)
    for one, other in ((a.means, b.means), (a.covariances, b.covariances), (a.basis.W, b.basis.W)):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


# ---- the same answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "noise"), [(4, 0.0), (10, 0.0), (7, 0.3)])
def test_with_all_dimensions_the_fit_is_that_of_the_features(p, noise):
    """Features of fewer dimensions than there are, of as many, and with more dimensions than latents."""
    _, X, labels = screen(p=p, noise=noise)
    m, r = (stream.moments(X, labels, "control", rank=rank) for rank in (None, p))
    assert r.n_features == len(m.range.T)
    a, b = ld.fit(m, noise="none"), ld.fit(r)
    assert a.order == b.order
    assert b.loglik == pytest.approx(a.loglik, rel=1e-8)
    assert b.bic == pytest.approx(a.bic, rel=1e-8)
    for name in ("unmixing", "mixing", "weights", "noise_variance", "offset"):
        np.testing.assert_allclose(getattr(b.model, name), getattr(a.model, name), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(b.model.covariance("c2"), a.model.covariance("c2"), rtol=1e-8, atol=1e-8)
    columns = ["weight", "std_error", "probability"]
    np.testing.assert_allclose(b.edges()[columns], a.edges()[columns], rtol=1e-7)
    np.testing.assert_allclose(b.standard_errors()["std_error"], a.standard_errors()["std_error"], rtol=1e-7)
    change = ["c1", "c2"]
    np.testing.assert_allclose(b.predict(change).table["std_error"], a.predict(change).table["std_error"], rtol=1e-7)
    np.testing.assert_allclose(b.model.transform(X[:9]), a.model.transform(X[:9]), rtol=1e-8, atol=1e-8)
    assert ld.omnibus_test(b, r).statistic == pytest.approx(ld.omnibus_test(a, m).statistic, abs=1e-4)
    for data in (None, (X, labels)):
        tests = [ld.off_targets(fit, moments, data=data).table["statistic"] for fit, moments in ((a, m), (b, r))]
        np.testing.assert_allclose(*tests, rtol=1e-5)
        np.testing.assert_allclose(*(ld.changed(each, data)["p_holm"] for each in (m, r)), rtol=1e-5)
    assert b.latent_table().equals(a.latent_table())


def test_a_model_goes_to_dimensions_and_back():
    _, X, labels = screen(p=7, noise=0.3)
    m = stream.moments(X, labels, "control", rank=5)
    model = ld.fit(m).model
    seen = model.seen_by(m)
    assert seen.feature_names == m.feature_names
    again = seen.in_features(m.basis)
    for name in ("unmixing", "loadings", "offset", "residual"):
        np.testing.assert_allclose(getattr(again, name), getattr(model, name), rtol=1e-9, atol=1e-9)
    B = m.basis
    np.testing.assert_allclose(model.mixing, B.back @ seen.mixing, atol=1e-9)
    np.testing.assert_allclose(B.W @ B.back, np.eye(5), atol=1e-9)
    full = stream.moments(X, labels, "control")
    within = np.einsum("k,kij->ij", (full.counts - 1) / (full.counts.sum() - 5), full.covariances)
    kept = B.back @ B.W @ within  # by least squares, from the pooled covariance
    np.testing.assert_allclose(np.diagonal(within - kept), B.rest, rtol=1e-6)


def test_few_dimensions_of_many_features_have_the_graph_and_its_loadings():
    truth, Z, labels = screen(d=4, p=4, seed=2, n=2000)
    rng = np.random.default_rng(1)
    G = np.kron(np.eye(4), np.ones((1, 40))) * rng.uniform(0.5, 1, 160)
    X = (Z - 5) / Z.std(axis=0) @ G + rng.normal(size=(len(Z), 160)) * 0.02
    m = stream.moments(X, labels, "control", rank=4)
    assert "4 dimensions of 160 features" in repr(m)
    fit = ld.fit(m)
    assert set(fit.graph.edges) == set(truth.graph.edges)
    Z = truth.transform(Z - 5)
    found = fit.model.transform(pd.DataFrame(X, columns=[f"x{j}" for j in range(160)]))[list(truth.latents)]
    assert (np.abs([np.corrcoef(Z[:, i], found.to_numpy()[:, i])[0, 1] for i in range(4)]) > 0.999).all()
    assert fit.model.mixing.shape == (160, 4)
    record = ld.report.collect(fit, moments=m, tests=False)["latents"][0]
    assert record["features"][0]["feature"].startswith("x")


# ---- the moments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["csv", "h5ad", "backed", "csr", "dask", "dask-csr"])
def test_sources_agree(way, tmp_path):
    _, X, labels = screen(p=8, noise=0.2, n=300)
    expected = stream.moments(X, labels, "control", rank=5)
    options = {"rank": 5}
    if way == "csv":
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)]).assign(context=labels)
        table.to_csv(tmp_path / "x.csv", index=False)
        found = stream.moments(tmp_path / "x.csv", "context", "control", **options)
    elif way in ("h5ad", "backed"):
        obs = pd.DataFrame({"context": labels.astype(str)}, index=[f"c{i}" for i in range(len(X))])
        ad.AnnData(X, obs, pd.DataFrame(index=[f"x{j}" for j in range(8)])).write_h5ad(tmp_path / "x.h5ad")
        found = stream.moments(tmp_path / "x.h5ad", "context", "control", block_rows=130, **options)
        if way == "backed":
            backed = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
            found = ld.Moments.from_anndata(backed, "context", "control", **options)
    elif way == "csr":
        found = stream.moments(sparse.csr_matrix(X), labels, "control", **options)
    else:
        rows = da.from_array(X, chunks=(170, 3 if way == "dask" else -1))
        rows = rows.map_blocks(sparse.csr_matrix) if way == "dask-csr" else rows
        with dask.config.set(scheduler="synchronous"):
            found = stream.dask_moments(rows, labels, "control", **options)
    same(found, expected)


@pytest.mark.parametrize("options", [{}, {"adjust": True}, {"robust": True}, {"features": [5, 1, 0, 6]}])
@pytest.mark.filterwarnings("ignore::latentdag.errors.ConfoundedCovariateWarning")
def test_they_are_the_moments_of_the_features_in_a_basis(options):
    _, X, labels = screen(p=8, noise=0.2, n=300)
    rng = np.random.default_rng(0)
    if "adjust" in options:
        options = {"adjust": rng.normal(size=(len(X), 2))}
        X = X + options["adjust"] @ rng.normal(size=(2, 8)) * 5
    full, r = (stream.moments(X, labels, "control", rank=rank, **options) for rank in (None, 4))
    B = r.basis
    if "robust" in options:  # rows far away in the dimensions weigh less
        X[3] += 1e3 * B.back[:, 0]
        assert stream.moments(X, labels, "control", rank=B, robust=True).outliers[0] >= 1
        return
    np.testing.assert_allclose(r.covariances, B.W @ full.covariances @ B.W.T, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(r.means, (full.means - B.center) @ B.W.T, rtol=1e-8, atol=1e-8)


def test_shards_in_one_basis_merge_exactly_and_others_do_not():
    _, X, labels = screen(p=8, noise=0.2, n=300)
    first = stream.moments(X[:800], labels[:800], "control", rank=4)
    second = stream.moments(X[800:], labels[800:], None, rank=first.basis)
    same(first + second, stream.moments(X, labels, "control", rank=first.basis))
    for other in (stream.moments(X[800:], labels[800:], None, rank=4), stream.moments(X[:, :4], labels, "control")):
        with pytest.raises(ValueError, match=r"cannot merge moments (in different dimensions|of different features)"):
            first + other
    with pytest.raises(ValueError, match="the basis is of 8 features, from 'x0' on, and these are 3"):
        stream.moments(X[:, :3], labels, "control", rank=first.basis)


@pytest.mark.parametrize("noise", ["none", "features"])
def test_files_keep_moments_and_fits(noise, tmp_path):
    _, X, labels = screen(p=12, noise=0.3)
    m = stream.moments(X, labels, "control", rank=4, noise=noise)
    m.save(tmp_path / "m.npz")
    again = ld.Moments.load(tmp_path / "m.npz")
    same(again, m, 0)
    assert again.basis.same(m.basis)
    assert (again.noise is None) if noise == "none" else np.array_equal(again.noise, m.noise)
    fit = ld.fit(m)
    fit.save(tmp_path / "f.npz")
    found = ld.Fit.load(tmp_path / "f.npz")
    np.testing.assert_array_equal(found.edges()["std_error"], fit.edges()["std_error"])
    assert ld.omnibus_test(found, again).statistic == ld.omnibus_test(fit, m).statistic
    wrong = replace(m, basis=replace(m.basis, back=2 * m.basis.back))
    wrong.save(tmp_path / "wrong.npz")
    with pytest.raises(FileError, match="basis_back does not lead back"):
        ld.Moments.load(tmp_path / "wrong.npz")


# ---- which dimensions --------------------------------------------------------------------------------------------


def test_auto_finds_programs_and_means_and_nothing_else():
    """The bound is exceeded once in a hundred times by noise: thirty screens, two chances each."""
    found = [stream.moments(*programs(seed), "WT", rank="auto").n_features for seed in range(100, 130)]
    assert np.mean([r == 3 for r in found]) >= 0.9
    X, labels = programs(7, shift=1.0)
    m = stream.moments(X, labels, "WT", rank="auto")
    assert m.n_features == 4  # the shifted feature varies with no other: only means show it
    assert np.abs(m.basis.W[-1]).argmax() == X.shape[1] - 1
    assert np.abs(stream.moments(X, labels, "WT", rank=3).basis.W[-1]).argmax() == X.shape[1] - 1


def test_noise_exceeds_its_bound_once_in_a_hundred_times():
    rng = np.random.default_rng(11)
    top = [np.linalg.eigvalsh((X := rng.normal(size=(150, 40))).T @ X)[-1] for _ in range(1500)]
    assert 0.003 < np.mean(np.array(top) > basis.largest_of_noise(150, 40)) < 0.02


def test_rows_that_differ_in_noise_are_hardly_ever_dimensions():
    """Fewer equal rows stand for them, which is not exact: now and then there is one dimension, and never several."""
    found = []
    for seed in range(40, 60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3000, 200)) * rng.lognormal(0, 0.2, (3000, 1))
        shared = basis.Shared(np.corrcoef(X.T), np.zeros((2, 200)), np.ones(200), np.zeros(200), np.array([1500, 1500]))
        plain = basis.largest_of_noise(2998, 200) / 2998
        found.append((shared.directions("auto").shape[1], (np.linalg.eigvalsh(shared.C) > plain).sum()))
    ours, plain = np.mean(found, axis=0)
    assert np.max(found, axis=0)[0] <= 1
    assert ours <= 0.35 < 1.5 < plain


def test_large_matrices_are_iterated_to_the_same_span(monkeypatch):
    X, labels = programs(0)
    expected = stream.moments(X, labels, "WT", rank=3)
    monkeypatch.setattr(basis, "EXACT", 50)
    same(stream.moments(X, labels, "WT", rank=3), expected, 1e-6)


# ---- noise -------------------------------------------------------------------------------------------------------


def test_factors_of_noisy_features_give_the_fit_of_the_features():
    """Noise, weights and their errors are those of the factor step on all covariances, but for what these add."""
    truth, X, labels = screen(d=4, p=30, noise=0.4, seed=7, n=2500)
    m = stream.moments(X, labels, "control", rank=4, noise="features")
    np.testing.assert_allclose(m.noise, np.broadcast_to(np.eye(4), m.noise.shape), atol=1e-9)
    a, b = ld.fit(stream.moments(X, labels, "control"), noise="features"), ld.fit(m)
    assert set(b.graph.edges) == set(a.graph.edges) == set(truth.graph.edges)
    errors = a.standard_errors(), b.standard_errors()
    free = errors[0]["std_error"] > 1e-9  # the entry that a row is scaled by has none
    gap = (np.abs(errors[0]["estimate"] - errors[1]["estimate"]) / errors[0]["std_error"])[free]
    assert gap.max() < 0.5
    ratio = (errors[1]["std_error"] / errors[0]["std_error"])[free]
    assert 0.98 < ratio.min() < ratio.max() < 1.05
    assert b.noise_options == {"noise": "features", "n_latents": 4}
    assert not ld.bootstrap(m, 2, fit=b).failures
    assert ld.omnibus_test(b, m).p_value > 1e-3


def test_counts_keep_their_noise_in_every_context():
    rng = np.random.default_rng(0)
    Z = rng.gamma(5, 0.2, size=(4000, 2))
    labels = np.repeat(["NT", "A"], 2000)
    Z[labels == "A", 0] *= 2
    depth = rng.uniform(0.5, 2, 4000)
    X = rng.poisson(depth[:, None] * np.repeat(Z, 6, axis=1) * 3)
    full = ld.Moments.from_counts(X, labels, control="NT", depth=depth)
    for rows in (X, sparse.csr_matrix(X), da.from_array(X, chunks=(700, 5))):
        m = ld.stream.dask_moments(rows, labels, "NT", counts=True, depth=depth, rank=2)
        B = m.basis
        apart = full.noise - np.average(full.noise, axis=0, weights=full.counts)
        expected = B.W @ (np.diag(B.psi) + apart[:, :, None] * np.eye(12)) @ B.W.T
        np.testing.assert_allclose(m.noise, expected, atol=1e-8)
        np.testing.assert_allclose(m.covariances, B.W @ full.covariances @ B.W.T, rtol=1e-8)
        assert (B.psi >= 0.999 * np.average(full.noise, axis=0, weights=full.counts)).all()
    shared = m.with_shared_noise()
    np.testing.assert_allclose(shared.covariances - shared.noise, m.covariances - m.noise, atol=1e-12)
    both = m + m
    np.testing.assert_allclose(both.noise, m.noise)


# ---- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split_every", [None, 4])
@pytest.mark.parametrize("seed", range(2))
def test_counts_with_covariates_are_the_moments_of_the_rates_in_a_basis(seed, split_every):
    rng = np.random.default_rng(seed)
    depth, batch = rng.uniform(0.5, 2, 1500), rng.normal(size=(1500, 2))
    programs = np.exp(0.3 * rng.normal(size=(1500, 2)) @ rng.normal(size=(2, 12)))
    X = rng.poisson(depth[:, None] * programs * np.exp(0.2 * batch @ rng.normal(size=(2, 12))) * 20)
    labels = np.repeat(["control", "A", "B"], 500)
    source = X if split_every is None else da.from_array(X, chunks=(400, -1))
    options = {"counts": True, "depth": depth, "adjust": batch, "split_every": split_every}
    full, r = (stream.moments(source, labels, "control", rank=rank, **options) for rank in (None, 3))
    W = r.basis.W
    np.testing.assert_allclose(r.covariances, W @ full.covariances @ W.T, rtol=1e-8, atol=1e-8)
    apart = full.noise - np.average(full.noise, axis=0, weights=full.counts)
    np.testing.assert_allclose(r.noise - np.eye(3), np.stack([W * extra @ W.T for extra in apart]), atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 9}, "from 1 to the 8 features, or the basis of other moments .* got 9"),
        ({"rank": 0}, "got 0"),
        ({"rank": True}, "got True"),
        ({"rank": "all"}, "got 'all'"),
        ({"rank": 3, "noise": "auto"}, "noise must be 'none' or 'features', got 'auto'"),
        ({"noise": "features"}, "is for moments of a rank"),
        ({"rank": 3, "counts": True, "scale": "log"}, "rank is not for scale='log'"),
        ({"rank": 8, "noise": "features"}, "8 factors need more features"),
        ({"rank": 5, "memory_limit": 500}, r"5 contexts × 5² dimensions × 8 bytes = 1 kB .*about 3 fits"),
        ({"memory_limit": 1500}, r"fewer features .* or dimensions that all contexts share .*rank="),
    ],
)
def test_complaints(options, message):
    _, X, labels = screen(p=8, noise=0.2, n=100)
    with pytest.raises(ValueError, match=message):
        stream.moments(X, labels, "control", **options)


def test_too_few_dimensions_or_noise_that_was_not_looked_for_are_refused_by_the_fit():
    _, X, labels = screen(p=8, noise=0.2, n=100)
    m = stream.moments(X, labels, "control", rank=3)
    with pytest.raises(ValueError, match=r"4 latents .* only 3 dimensions.* or the moments need a rank of at least 4"):
        ld.fit(m)
    with pytest.raises(ValueError, match=r"make them with latentdag.stream.moments\(…, rank=…, noise='features'\)"):
        ld.fit(m, noise="features")
    noisy = stream.moments(X, labels, "control", rank=4, noise="features")
    with pytest.raises(ValueError, match="their 4 factors, were found when the rows were read"):
        ld.fit(noisy, n_latents=5)
    independent = np.random.default_rng(0).normal(size=(500, 30))
    with pytest.raises(ValueError, match="nothing that varies together"):
        stream.moments(independent, labels[:500], "control", rank="auto")


@pytest.mark.parametrize("blocks", [3, 11])
def test_a_killed_run_goes_on_in_either_pass(blocks, tmp_path, monkeypatch):
    """There are ten blocks in each pass."""
    _, X, labels = screen(p=8, noise=0.2, n=200)
    options = {"rank": 4, "block_rows": 100, "checkpoint": tmp_path / "c.npz", "checkpoint_seconds": 0.0}
    monkeypatch.setattr(passes, "_SHARE", 1e9)  # a checkpoint after every block
    add, left = accumulate.Accumulator.add, [blocks]

    def killed(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        add(*arguments)

    with monkeypatch.context() as once:
        once.setattr(accumulate.Accumulator, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            stream.moments(X, labels, "control", **options)
    left[0] = 100
    monkeypatch.setattr(accumulate.Accumulator, "add", killed)
    found = stream.moments(X, labels, "control", **options)
    assert 100 - left[0] <= 20 - blocks + 1  # what was done is not done again
    expected = stream.moments(X, labels, "control", rank=4, block_rows=100)
    np.testing.assert_array_equal(found.covariances, expected.covariances)
    with pytest.raises(ValueError, match=r"belongs to other work: .*shared dimensions changed"):
        stream.moments(X, labels, "control", **{**options, "rank": 3})
    with pytest.warns(SourceChangedWarning):
        stream.moments(X + 1, labels, "control", **options)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    _, X, labels = screen(p=8, noise=0.2, n=200)
    options = {"rank": 4, "block_rows": 100, "checkpoint": tmp_path / "c.npz", "checkpoint_seconds": 0.0}
    monkeypatch.setattr(passes, "_SHARE", 1e9)
    savez, left = np.savez, [4]

    def full(*arguments, **arrays):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        savez(*arguments, **arrays)

    with monkeypatch.context() as once:
        once.setattr(np, "savez", full)
        with pytest.raises(OSError, match=r"cannot write .*c\.npz: no space left on device"):
            stream.moments(X, labels, "control", **options)
    with np.load(tmp_path / "c.npz") as kept:
        assert kept["counts"].sum() == 400
    same(stream.moments(X, labels, "control", **options), stream.moments(X, labels, "control", rank=4), 1e-9)


def test_a_source_that_changes_between_the_passes_is_refused(tmp_path, monkeypatch):
    _, X, labels = screen(p=8, noise=0.2, n=100)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)]).assign(context=labels)
    table.to_csv(tmp_path / "x.csv", index=False)
    chosen = basis.Shared.basis

    def meanwhile(*arguments):
        table.assign(x0=table["x0"] + 1).to_csv(tmp_path / "x.csv", index=False)
        return chosen(*arguments)

    monkeypatch.setattr(basis.Shared, "basis", meanwhile)
    with pytest.raises(ValueError, match=r"x\.csv changed while it was read"):
        stream.moments(tmp_path / "x.csv", "context", "control", rank=4)


def slow(block, seconds):
    time.sleep(seconds)
    return block


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_of_two_workers_survives_the_loss_of_one(tmp_path):
    from distributed import Client, LocalCluster

    _, X, labels = screen(p=20, noise=0.2, n=500)
    expected = stream.moments(X, labels, "control", rank=6)
    rows = da.from_array(X, chunks=(100, -1))
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as workers,
        Client(workers) as client,
    ):
        pids = list(client.run(os.getpid).values())
        killer = threading.Timer(0.7, os.kill, (pids[0], signal.SIGKILL))
        began = time.monotonic()
        killer.start()
        found = stream.dask_moments(rows.map_blocks(slow, 0.15), labels, "control", rank=6)
        killer.join()
        assert time.monotonic() - began > 1.0, "the worker was to be killed mid-run"
        assert pids[0] not in client.run(os.getpid).values()
    same(found, expected)
