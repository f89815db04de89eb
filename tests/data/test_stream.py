"""Data larger than memory: the same moments from every format, after every interruption, and clear complaints."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import latentdag as ld
from latentdag import stream
from latentdag.data import accumulate, prepare
from latentdag.data.passes import ProgressFile
from latentdag.data.sources.reader import ahead, rebatch
from latentdag.data.stream import context_blocks
from latentdag.errors import SourceChangedWarning
from latentdag.inference.resampling import block_moments

from formats import FORMATS, cells, written
from strategies import seeds

pytestmark = [
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:zarr"),
]


def same(a, b, rtol=1e-12):
    assert a.contexts == b.contexts
    assert a.control == b.control
    assert a.feature_names == b.feature_names
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_allclose(a.means, b.means, rtol=rtol, atol=rtol * np.abs(b.means).max())
    scale = np.sqrt(np.einsum("kii->ki", b.covariances).max(axis=0))
    np.testing.assert_allclose(a.covariances, b.covariances, rtol=0, atol=rtol * np.outer(scale, scale).max())


def identical(a, b):
    same(a, b)
    for name in ("means", "covariances"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("share", [1.0, 0.04])
def test_every_format_gives_the_same_moments_to_the_last_bit(kind, share, tmp_path):
    data = cells(share=share)
    expected = ld.Moments.from_samples(data.X, data.labels, control="WT", feature_names=data.names)
    source, contexts, options = written(data, kind, tmp_path)
    m = stream.moments(source, contexts, "WT", block_rows=400, **options)
    same(m, expected)
    identical(m, stream.moments(data.X, data.labels, "WT", feature_names=data.names, block_rows=400))
    assert m.fine is None


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_some_contexts_are_those_that_were_cut_out_before(kind, tmp_path):
    """``only=`` in every format, with features chosen, in blocks of any size, and again as samples."""
    data = cells(n=600)
    kept = np.isin(data.labels, ["WT", "NA"])
    expected = ld.Moments.from_samples(data.X[kept][:, [4, 1]], data.labels[kept], "WT", ["g4", "g1"])
    source, contexts, options = written(data, kind, tmp_path)
    options |= {"features": ["g4", "g1"], "only": ["WT", "NA"]}
    for block_rows in (7, 250, None):
        same(stream.moments(source, contexts, "WT", block_rows=block_rows, **options), expected)
    again = list(stream.pieces(source, contexts, block_rows=100, **options).pieces())
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in again]), data.labels[kept])
    spread = stream.spread_within(stream.pieces(source, contexts, block_rows=100, **options), ["WT", "NA"], 2)
    n = expected.counts - 1
    pooled = np.einsum("k,kpp->p", n, expected.covariances) / n.sum()
    np.testing.assert_allclose(spread, pooled, rtol=1e-10)


def test_only_refuses_a_context_that_is_not_there_and_passes_over_rows_without_a_label():
    data = cells(n=600)
    labels = np.where(np.arange(600) % 5 == 0, None, data.labels)
    left = np.arange(600) % 5 > 0
    expected = ld.Moments.from_samples(data.X[left], data.labels[left], "WT")
    same(stream.moments(data.X, labels, "WT", only=["WT", "A", "B", "NA"]), expected)
    with pytest.raises(ValueError, match=r"X has no context 'C'; the labels present are 'WT' \("):
        stream.moments(data.X, labels, "WT", only=["WT", "C"])


@settings(max_examples=25)
@given(seeds, st.integers(1, 400), st.sampled_from([1.0, 0.05]))
def test_the_size_of_blocks_does_not_matter(seed, block_rows, share):
    data = cells(seed, n=300, share=share)
    expected = ld.Moments.from_samples(data.X, data.labels, control="WT")
    same(stream.moments(data.X, data.labels, "WT", block_rows=block_rows), expected)


def test_default_blocks_and_float32(tmp_path):
    data = cells()
    X = data.X.astype(np.float32)
    same(stream.moments(X, data.labels, "WT"), ld.Moments.from_samples(X.astype(float), data.labels, control="WT"))
    counts = np.round(data.X).astype(np.int16)
    same(stream.moments(counts, data.labels, "WT"), ld.Moments.from_samples(counts, data.labels, control="WT"))


def test_means_far_from_zero_keep_their_digits():
    data = cells()
    expected = ld.Moments.from_samples(data.X - data.X.mean(axis=0), data.labels, control="WT")
    far = data.X + np.where(data.labels == "A", 1e7, -1e7)[:, None]  # contexts far from each other, too
    m = stream.moments(far, data.labels, "WT", block_rows=200)
    np.testing.assert_allclose(m.covariances, expected.covariances, rtol=1e-6, atol=1e-6)


def test_rows_sorted_by_context_and_tiny_chunks(monkeypatch):
    monkeypatch.setattr(accumulate, "CHUNK_VALUES", 7 * 13)
    monkeypatch.setattr(accumulate, "CHUNK_ROWS", 13)
    data = cells()
    order = np.argsort(data.labels)
    expected = ld.Moments.from_samples(data.X, data.labels, control="WT")
    same(stream.moments(data.X[order], data.labels[order], "WT", block_rows=333), expected)


@pytest.mark.parametrize(("threads", "share"), [(1, 0.0), (2, 0.0), (2, 1.0)])
def test_threads_change_no_bit(threads, share, monkeypatch):
    monkeypatch.setattr(accumulate, "LARGEST_SHARE", share)
    data = cells()
    codes = np.unique(data.labels, return_inverse=True)[1]
    sums, one = (accumulate.Accumulator("abcd", data.names, False, n) for n in (threads, 1))
    for total in (sums, one):
        total.add(data.X, codes, np.arange(len(codes)))
    np.testing.assert_array_equal(sums.finish().scatters, one.finish().scatters)


@given(seeds, st.integers(1, 20), st.integers(1, 300))
def test_symmetric_updates_are_products(seed, n, p):
    rng = np.random.default_rng(seed)
    X, S = rng.normal(size=(n, p)), rng.normal(size=(p, p))
    before = S.copy()
    accumulate.add_gram(X, S)
    accumulate.add_gram(X[:1], S, -2.0)
    np.testing.assert_allclose(np.tril(S), np.tril(before + X.T @ X - 2 * np.outer(X[0], X[0])), atol=1e-10)
    np.testing.assert_array_equal(np.triu(S, 1), np.triu(before, 1))
    accumulate.mirror_lower(S)
    np.testing.assert_array_equal(S, S.T)


@pytest.mark.parametrize("wrong", [np.ones((3, 2), np.float32), np.ones((3, 4))[:, ::2], np.ones((3, 5))])
def test_blas_is_not_given_what_it_cannot_read(wrong):
    with pytest.raises(ValueError, match=r"BLAS needs|cannot add"):
        accumulate.add_gram(wrong, np.zeros((2, 2)))


@pytest.mark.parametrize("kind", ["ndarray", "pandas", "parquet", "csv", "h5ad", "mtx"])
def test_some_features(kind, tmp_path):
    data = cells()
    source, contexts, options = written(data, kind, tmp_path)
    m = stream.moments(source, contexts, "WT", **{**options, "features": ["g4", "g1"]})
    same(m, ld.Moments.from_samples(data.X[:, [4, 1]], data.labels, control="WT", feature_names=["g4", "g1"]))


def test_features_by_position_and_mask():
    data = cells()
    mask = np.arange(7) % 2 == 0
    for features in (mask, np.flatnonzero(mask), ["x0", "x2", "x4", "x6"]):
        assert stream.moments(data.X, data.labels, "WT", features=features).feature_names == ("x0", "x2", "x4", "x6")


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12), st.integers(0, 20), st.booleans())
def test_rebatching_keeps_every_row(sizes, step, skip, compressed):
    rows = np.arange(1.0, sum(sizes) + 1)[:, None]
    pieces = np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []
    found = list(rebatch((sparse.csr_matrix(p) if compressed else p for p in pieces), step, skip))
    assert all(block.shape[0] == step for block in found[:-1])
    flat = [value for block in found for value in np.asarray(block.todense() if compressed else block).ravel()]
    assert flat == rows[skip:].ravel().tolist()


def test_reading_ahead_passes_on_errors():
    def blocks():
        yield 1
        raise ValueError("broken")

    found = ahead(blocks())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)


@pytest.mark.parametrize("seed", range(3))
def test_csv_and_parquet_give_the_same_bytes_after_adjustment(seed, tmp_path):
    data = cells(seed)
    for kind in ("csv", "parquet"):
        source, contexts, options = written(data, kind, tmp_path)
        stream.moments(source, contexts, "WT", adjust=["depth", "batch"], **options).save(tmp_path / f"{kind}.npz")
    assert (tmp_path / "csv.npz").read_bytes() == (tmp_path / "parquet.npz").read_bytes()


# ---- interruptions ----------------------------------------------------------------------------------------------

RUN = """
import sys
from latentdag import stream
source, checkpoint, out = sys.argv[1:]
stream.moments(source, "context", "WT", block_rows=50, checkpoint=checkpoint, checkpoint_seconds=0.0,
               adjust=["depth", "batch"]).save(out)
"""


@pytest.mark.parametrize("kind", ["csv", "h5ad-layer"])
def test_a_killed_run_goes_on_to_the_same_bytes(kind, tmp_path):
    data = cells(n=5_000, share=0.04 if kind == "h5ad-layer" else 1.0)
    source, _, _ = written(data, kind, tmp_path)

    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # as the tests themselves have

    def start(checkpoint, out):
        return subprocess.Popen([sys.executable, "-c", RUN, str(source), str(checkpoint), str(out)], env=one_thread)

    interrupted = tmp_path / "interrupted.npz"
    killed = start(interrupted, tmp_path / "a.npz")
    until = time.monotonic() + 60
    while not interrupted.exists() and time.monotonic() < until:
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, "it was to be killed before it was done"
    with np.load(interrupted) as half:
        assert 0 < half["counts"].sum() < len(data.X)
    assert start(interrupted, tmp_path / "a.npz").wait() == 0
    stream.moments(source, "context", "WT", block_rows=50, adjust=["depth", "batch"]).save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_finished_checkpoint_is_not_read_again(tmp_path, monkeypatch):
    data = cells()
    first = stream.moments(data.X, data.labels, "WT", block_rows=100, checkpoint=tmp_path / "c.npz")
    monkeypatch.setattr(accumulate.Accumulator, "add", None)
    identical(first, stream.moments(data.X, data.labels, "WT", block_rows=100, checkpoint=tmp_path / "c.npz"))


@pytest.mark.parametrize("change", ["labels", "features", "blocks", "adjust", "file"])
def test_a_checkpoint_of_other_work_is_refused(change, tmp_path):
    data = cells()
    for name in ("x.csv", "y.csv"):
        data.table.to_csv(tmp_path / name, index=False)
    source, contexts = (tmp_path / "x.csv", "context") if change == "file" else (data.X, data.labels)
    options = {"block_rows": 300, "checkpoint": tmp_path / "c.npz"}
    if change == "file":
        options["features"] = data.names
    stream.moments(source, contexts, "WT", **options)
    if change == "labels":
        contexts = data.labels[::-1]
    if change == "features":
        options["features"] = [0, 1]
    if change == "blocks":
        options["block_rows"] = 200
    if change == "adjust":
        options["adjust"] = data.obs[["depth"]]
    if change == "file":
        source = tmp_path / "y.csv"
    with pytest.raises(ValueError, match=r"c\.npz belongs to other work: .* changed"):
        stream.moments(source, contexts, "WT", **options)


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
@pytest.mark.parametrize("kind", FORMATS)
def test_data_that_changed_are_read_anew_and_others_are_not(kind, tmp_path, monkeypatch):
    """A hundred rows change, and neither the first nor the middle nor the last one."""
    data, folder = cells(), tmp_path / "data"
    changed = replace(data, X=data.X.copy())
    changed.X[100:200] *= 30.0
    checkpoint = {"block_rows": 300, "checkpoint": tmp_path / "c.npz"}

    def made(data):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        source, contexts, options = written(data, kind, folder)
        return (source, contexts, "WT"), options

    def moments(source, options, **more):
        return stream.moments(*source, **options, **more)

    source, options = made(data)
    first = moments(source, options, **checkpoint)
    with monkeypatch.context() as nothing:
        nothing.setattr(accumulate.Accumulator, "add", None)
        identical(first, moments(source, options, **checkpoint))
    source, options = made(changed)
    with pytest.warns(SourceChangedWarning, match="the data changed since the checkpoint .*: begins anew"):
        again = moments(source, options, **checkpoint)
    identical(again, moments(source, options, block_rows=300))


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
def test_rows_of_a_zarr_that_change_in_place_are_read_anew(tmp_path):
    rng = np.random.default_rng()
    X, labels = rng.normal(size=(400, 2)), ["WT"] * 200 + ["A"] * 200
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, dtype=float, chunks=(50, 2))
    for source in (tmp_path / "x.zarr", array):
        array[...] = X
        options = {"block_rows": 100, "checkpoint": tmp_path / f"{type(source).__name__}.npz"}
        stream.moments(source, labels, "WT", **options)
        array[100:300] = 30 * X[100:300]
        with pytest.warns(SourceChangedWarning):
            found = stream.moments(source, labels, "WT", **options)
        np.testing.assert_allclose(found.covariances[0], np.cov(array[:200].T), rtol=1e-9)


def test_writing_a_checkpoint_takes_a_tenth_of_the_time_at_most(tmp_path):
    file = ProgressFile(tmp_path / "c.npz", {}, {}, every=0.0)
    assert file.due()
    file.took = 100.0
    assert not file.due()


# ---- before it starts -------------------------------------------------------------------------------------------


def test_too_much_memory_is_refused_before_reading():
    data = cells()
    with pytest.raises(ValueError, match=r"4 contexts × 7² features .* memory_limit allows 1 kB.*fewer features"):
        stream.moments(data.X, data.labels, "WT", memory_limit=1000)
    with pytest.raises(ValueError, match="free memory"):
        prepare.require_memory("X", 10**6, 10**5, 1, 0, None)


def test_values_too_large_to_square_are_named():
    X = np.random.default_rng(0).normal(size=(10, 2)) * [1.0, 1e200]
    with pytest.raises(ValueError, match="context 'WT': the values of feature 'x1' are too large"):
        stream.moments(X, ["WT"] * 10, "WT")


@pytest.mark.parametrize("row", [0, 731])
def test_a_gap_in_the_first_rows_of_a_context_is_found_too(row):
    data = cells()
    data.X[row, 3] = np.nan
    with pytest.raises(ValueError, match=f"1 values are not finite, the first nan in feature 'x3', row {row} "):
        stream.moments(data.X, data.labels, "WT", block_rows=2000)


def test_the_need_for_memory_is_said_on_stderr(monkeypatch, capsys):
    data = cells()
    stream.moments(data.X, data.labels, "WT", progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert "4 contexts × 7² features × 8 bytes = 1.57 kB" in said.err
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    stream.moments(data.X, data.labels, "WT")
    assert sys.stderr.getvalue() == ""


# ---- a second look ----------------------------------------------------------------------------------------------


def test_pieces_are_samples_for_every_test(tmp_path):
    data = cells()
    data.adata.write_h5ad(tmp_path / "x.h5ad")
    m = stream.moments(tmp_path / "x.h5ad", "context", "WT")
    again = stream.pieces(tmp_path / "x.h5ad", "context", block_rows=500)
    # blocks are dealt as rows come, so their sums differ; all of them together are the data
    ours = block_moments(again, m, 5)
    whole = ours.combined([np.ones(len(counts), dtype=int) for counts in ours.counts])
    np.testing.assert_allclose(whole.covariances, m.covariances, rtol=1e-8, atol=1e-8)
    for _ in range(2):  # as often as asked
        rows = sum(len(block) for _, block in context_blocks(again, m.contexts, m.n_features))
        assert rows == len(data.X)


@pytest.mark.parametrize("compressed", [False, True])
def test_pieces_are_the_samples_of_adjusted_moments(compressed):
    data = cells(share=0.3)
    X = sparse.csr_matrix(data.X) if compressed else data.X
    covariates = data.obs[["depth", "batch"]]
    m = stream.moments(X, data.labels, "WT", adjust=covariates)
    blocks, labels = zip(*stream.pieces(X, data.labels, adjust=covariates, block_rows=400).pieces(), strict=True)
    same(ld.Moments.from_samples(np.concatenate(blocks), np.concatenate(labels), control="WT"), m, rtol=1e-10)


# ---- complaints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ndarray", "csr", "csv", "parquet", "h5ad", "zarr-layer", "mtx"])
def test_values_that_are_not_finite_are_named(kind, tmp_path):
    data = cells(share=0.3)
    data.X[731, 2] = np.inf if kind != "csv" else np.nan
    label = data.labels[731]
    source, contexts, options = written(data, kind, tmp_path)
    with pytest.raises(ValueError, match=f"context '{label}'.*feature '[xg]2', row 731") as raised:
        stream.moments(source, contexts, "WT", block_rows=200, **options)
    where = {"ndarray": "X", "csr": "X"}.get(kind, str(tmp_path))
    assert str(raised.value).startswith(where)


def broken(data, folder, what):
    folder = folder / "data"
    folder.mkdir()
    table = data.table
    if what == "text":
        table = table.astype({"g3": object})
        table.loc[731, "g3"] = "oops"
    if what in ("ragged", "wide"):
        table.to_csv(folder / "x.csv", index=False)
        lines = (folder / "x.csv").read_text().splitlines()
        for i in [700] if what == "ragged" else range(1, len(lines)):
            lines[i] += ",1,2,3"
        (folder / "x.csv").write_text("\n".join(lines))
    else:
        table.loc[[5, 9], "context"] = np.nan if what == "label" else table.loc[[5, 9], "context"]
        table.to_csv(folder / "x.csv", index=False)
    if what == "empty":
        (folder / "x.csv").write_text("")
    if what == "no rows":
        table[:0].to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("text", r"x\.csv: feature column 'g3' holds 'oops' in row 731"),
        ("wide", r"x\.csv: rows have more fields than the header has names \(10\)"),
        ("ragged", r"x\.csv cannot be read.*line 701"),
        ("label", r"x\.csv: 2 rows have no context label \(the first is row 5\)"),
        ("empty", r"x\.csv cannot be read as a table"),
        ("no rows", r"x\.csv is empty"),
    ],
)
def test_broken_tables_are_named(what, message, tmp_path):
    data = cells()
    with pytest.raises(ValueError, match=message):
        stream.moments(broken(data, tmp_path, what), "context", "WT", features=data.names)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.h5ad", "x.npy", "x.zarr", "x.xyz", "x.csv.gz"])
def test_files_of_garbage_are_refused_in_one_line(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(bytes(range(256)) * 5)
    with pytest.raises(ValueError, match=name) as raised:
        stream.moments(path, "context", "WT")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["csv", "tsv.gz", "parquet", "npy", "mtx", "zarr-layer"])
def test_damaged_files_are_named_in_one_line(kind, tmp_path):
    data = cells(n=60, p=4)
    source, contexts, options = written(data, kind, tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for seed in range(20):
        rng = np.random.default_rng(seed)
        path = files[rng.integers(len(files))]
        whole = path.read_bytes()
        start, stop = sorted(rng.integers(len(whole) + 1, size=2))
        path.write_bytes(whole[:start] + whole[stop:])
        said = complaint(source, contexts, options)
        path.write_bytes(whole)
        assert said is None or (str(tmp_path) in said and "\n" not in said)


def complaint(source, contexts, options):
    try:
        stream.moments(source, contexts, "WT", memory_limit=1e9, **options)
    except (ValueError, FileNotFoundError) as error:
        return str(error)


def test_a_csr_matrix_with_columns_out_of_range_is_refused(tmp_path):
    source, contexts, options = written(cells(), "h5ad-layer", tmp_path)
    with h5py.File(source, "r+") as file:
        file["layers/compressed/indices"][17] = 10**6
    with pytest.raises(ValueError, match=r"x\.h5ad .*is damaged.*ind(ices|ex)"):
        stream.moments(source, contexts, "WT", **options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("csv", {"contexts": "nope"}, "has no column 'nope'; its columns are 'g0'"),
        ("parquet", {"adjust": ["nope"]}, "has no column 'nope'"),
        ("h5ad", {"contexts": "nope"}, "obs has no column 'nope'; its columns are 'context'"),
        ("h5ad", {"layer": "nope"}, "has no layer 'nope'; layers: 'compressed'"),
        ("zarr", {"features": ["g1", "nope"]}, "has no feature 'nope'"),
        ("zarr", {"adjust": "nope"}, "obs has no column 'nope'"),
        ("anndata", {"layer": "nope"}, "no layer 'nope'; it has 'compressed'"),
        ("anndata", {"contexts": "nope"}, "no column 'nope'"),
        ("mtx", {"contexts": "nope"}, "has no column 'nope'"),
        ("ndarray", {"contexts": "context"}, "one label per row"),
        ("ndarray", {"adjust": "depth"}, "no named columns"),
        ("ndarray", {"control": "nope"}, "control 'nope' is not among the contexts"),
        ("ndarray", {"features": [9]}, "no feature number 9"),
        ("ndarray", {"features": [True]}, "mask has shape"),
        ("ndarray", {"features": []}, "no features"),
        ("ndarray", {"block_rows": 0}, "block_rows"),
        ("npy", {"contexts": "context"}, "no labels of its own"),
        ("zarr-group", {"layer": "nope"}, "without an array 'nope'; it has X, codes"),
        ("zarr-group", {"contexts": "nope"}, "no array of labels 'nope'"),
    ],
)
def test_what_is_not_there_is_named(kind, options, message, tmp_path):
    source, contexts, more = written(cells(), kind, tmp_path)
    arguments = {"contexts": contexts, "control": "WT", **more, **options}
    with pytest.raises(ValueError, match=message):
        stream.moments(source, **arguments)


def test_labels_in_a_zarr_group(tmp_path):
    data = cells()
    source, _, _ = written(data, "zarr-group", tmp_path)
    m = stream.moments(source, "codes", 3)
    assert m.contexts == (3, 0, 1, 2)
    assert m.counts[0] == (data.labels == "WT").sum()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("matrix.mtx", "%%MatrixMarket matrix array real general\n", "no general coordinate matrix"),
        ("matrix.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 x\n", "should give the matrix's size"),
        ("matrix.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 5\n", "is 2 × 3, but there are 7"),
        ("matrix.mtx", "%%MatrixMarket matrix coordinate real general\n7 1500 1\n8 1 5\n", "entry for feature 8"),
        ("matrix.mtx", "%%MatrixMarket matrix coordinate real general\n7 1500 1\n1 a 5\n", "cannot be read"),
        ("cells.csv", "barcode,context\nc1,WT\n", "no row for 1499 of 1500 barcodes \\(the first is 'c0'\\)"),
        ("cells.csv", "barcode,context\nc1,WT\nc1,A\n", "'c1' occurs more than once"),
        ("more.csv", "barcode,context\nc1,WT\n", "one .csv or .tsv table of labels"),
        ("features.tsv", None, "has no features.tsv"),
    ],
)
def test_broken_mtx_folders_are_named(file, text, message, tmp_path):
    source, contexts, _ = written(cells(), "mtx", tmp_path)
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        stream.moments(source, contexts, "WT")


def test_columns_stored_first_cannot_be_read_by_rows(tmp_path):
    data = cells()
    adata = data.adata
    adata.X = sparse.csc_matrix(data.X)
    adata.write_h5ad(tmp_path / "x.h5ad")
    with pytest.raises(ValueError, match="store it as csr"):
        stream.moments(tmp_path / "x.h5ad", "context", "WT")


def test_missing_files_and_strange_things():
    with pytest.raises(FileNotFoundError, match=r"no such file or folder: nowhere\.csv"):
        stream.moments("nowhere.csv", "context", "WT")
    with pytest.raises(ValueError, match="cannot read rows from 'object'"):
        stream.moments(object(), ["WT"], "WT")
    with pytest.raises(ValueError, match="labels"):
        stream.moments(np.ones((3, 2)), ["WT", "A"], "WT")
    with pytest.raises(ValueError, match="not real numbers"):
        stream.moments(pd.DataFrame({"a": ["x", "y"]}), ["WT", "A"], "WT")
    with pytest.raises(ValueError, match="must be a matrix of numbers"):
        stream.moments(np.array([["x"], ["y"]]), ["WT", "A"], "WT")
