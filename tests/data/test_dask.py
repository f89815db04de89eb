"""Moments of Dask arrays: the same on every scheduler, small tasks, and a lost worker is no loss."""

import os
import signal
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import latentdag as ld
from latentdag import stream
from latentdag.data import dask_pass

from formats import cells
from strategies import seeds


def same(a, b, rtol=1e-10):
    assert a.contexts == b.contexts
    assert a.feature_names == b.feature_names
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_allclose(a.means, b.means, rtol=rtol)
    np.testing.assert_allclose(a.covariances, b.covariances, rtol=rtol, atol=rtol * np.abs(b.covariances).max())


@settings(max_examples=25)
@given(seeds, st.integers(1, 400), st.integers(1, 7), st.integers(2, 5), st.integers(1, 4))
def test_chunks_groups_and_fan_in_do_not_matter(seed, rows, columns, split_every, per_group):
    data = cells(seed, n=400)
    expected = ld.Moments.from_samples(data.X, data.labels, control="WT")
    small, dask_pass.GROUP_BYTES = dask_pass.GROUP_BYTES, per_group * 8 * 7 * 7
    try:
        with dask.config.set(scheduler="synchronous"):
            X = da.from_array(data.X, chunks=(max(rows, 20), columns))
            same(stream.dask_moments(X, data.labels, "WT", split_every=split_every), expected)
    finally:
        dask_pass.GROUP_BYTES = small


def test_from_samples_takes_dask_arrays_and_frames():
    data = cells()
    expected = ld.Moments.from_samples(data.X, data.labels, control="WT", feature_names=data.names)
    X = da.from_array(data.X, chunks=(300, 4))
    same(ld.Moments.from_samples(X, data.labels, control="WT", feature_names=data.names), expected)
    frame = dd.from_pandas(data.table[data.names], npartitions=3)
    same(ld.Moments.from_samples(frame, data.labels, control="WT"), expected)


@pytest.mark.parametrize("share", [0.04, 0.5])
def test_sparse_chunks(share):
    data = cells(share=share)
    X = da.from_array(data.X, chunks=(250, -1)).map_blocks(sparse.csr_matrix)
    same(stream.dask_moments(X, data.labels, "WT"), ld.Moments.from_samples(data.X, data.labels, control="WT"))


def test_features_and_covariates():
    data = cells()
    X = da.from_array(data.X, chunks=(250, -1))
    options = {"features": [4, 1], "adjust": data.obs[["depth", "batch"]]}
    same(stream.dask_moments(X, data.labels, "WT", **options), stream.moments(data.X, data.labels, "WT", **options))


def test_no_task_holds_the_covariances_of_all_contexts(monkeypatch):
    """A partial result is a few contexts only, and never larger than the rows behind it, but for the last."""
    monkeypatch.setattr(dask_pass, "GROUP_BYTES", 8 * 7 * 7)
    made = []
    partial, merged = dask_pass._partial, dask_pass._merged

    def watched(empty, first, pieces):
        out = partial(empty, first, pieces)
        made.append((sum(len(piece[1]) for piece in pieces), len(out)))
        return out

    def fan_in(parts, axes):
        assert len(parts) <= 3
        assert max(len(part) for part in parts) == 1
        return merged(parts, axes)

    monkeypatch.setattr(dask_pass, "_partial", watched)
    monkeypatch.setattr(dask_pass, "_merged", fan_in)
    data = cells()
    with dask.config.set(scheduler="synchronous"):
        stream.dask_moments(da.from_array(data.X, chunks=(5, -1)), data.labels, "WT", split_every=3)
    assert all(contexts == 1 for _, contexts in made)
    assert sum(rows < 7 for rows, _ in made) <= 4


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda X: X[:, 0], {}, "two dimensions"),
        (lambda X: X[X[:, 0] > 0], {}, "compute_chunk_sizes"),
        (lambda X: X, {"split_every": 1}, "split_every must be at least 2"),
        (lambda X: X, {"memory_limit": 100}, "memory_limit allows 100 bytes"),
        (lambda X: X, {"control": "nope"}, "'nope' is not among the contexts"),
        (lambda X: da.where((da.arange(1500, chunks=250) == 731)[:, None], np.nan, X), {}, "feature 'x0', row 731"),
    ],
)
def test_complaints(make, options, message):
    data = cells()
    X = make(da.from_array(data.X, chunks=(250, -1)))
    with pytest.raises(ValueError, match=message):
        stream.dask_moments(X, data.labels, **{"control": "WT", **options})


def slow(block, seconds):
    time.sleep(seconds)
    return block


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_of_two_workers_survives_the_loss_of_one(tmp_path):
    from distributed import Client, LocalCluster

    data = cells(n=3000, p=20)
    expected = ld.Moments.from_samples(data.X, data.labels, control="WT")
    X = da.from_array(data.X, chunks=(100, -1))
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as workers,
        Client(workers) as client,
    ):
        same(ld.Moments.from_samples(X, data.labels, control="WT"), expected)
        pids = list(client.run(os.getpid).values())

        def kill():
            time.sleep(0.7)
            os.kill(pids[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        began = time.monotonic()
        killer.start()
        found = ld.Moments.from_samples(X.map_blocks(slow, 0.15), data.labels, control="WT")
        killer.join()
        assert time.monotonic() - began > 1.0, "the worker was to be killed mid-run"
        assert pids[0] not in client.run(os.getpid).values()
    same(found, expected)
    assert np.array_equal(found.counts, expected.counts)
