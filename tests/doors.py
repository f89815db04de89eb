"""Every way to hand rows to latentdag, and what comes back."""

import gzip
import warnings
from functools import reduce

import anndata as ad
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import zarr
from scipy import sparse
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

dask.config.set(scheduler="synchronous")


class CannotHold(Exception):
    """This door has no form for such values."""


def dense(case):
    """The values as an ndarray of their own type."""
    if isinstance(case.X, list) or np.ma.isMaskedArray(case.X):
        raise CannotHold
    X = case.X.toarray() if sparse.issparse(case.X) else np.asarray(case.X)
    if X.ndim != 2:
        raise CannotHold
    return X


def stored(case):
    """The same where a file or a table is to hold them: no objects, no types that only numpy knows."""
    X = dense(case)
    if X.dtype == object or X.dtype == np.longdouble:
        raise CannotHold
    return X.astype(X.dtype.newbyteorder("="))


def doubles(case):
    X = stored(case)
    if X.dtype.kind in "cmM" or case.flaw == "long":
        raise CannotHold
    return X.astype(float)


def texts(case):
    if case.flaw == "labels":
        raise CannotHold
    return [f"k{code}" for code in case.codes]


def table(case, X=None):
    made = pd.DataFrame(stored(case) if X is None else X, columns=case.names)
    made["context"] = texts(case)
    for name in () if case.covariates is None else case.covariates:
        made[name] = case.covariates[name].to_numpy()
    return made


def adata(case, make=np.asarray):
    made = ad.AnnData(
        make(stored(case)), obs=pd.DataFrame({"context": texts(case)}), var=pd.DataFrame(index=case.names)
    )
    made.obs_names = [f"cell{i}" for i in range(case.n)]
    for name in () if case.covariates is None else case.covariates:
        made.obs[name] = case.covariates[name].to_numpy()
    return made


def by_labels(case, X, through=ld.Moments.from_samples, **more):
    options = {"feature_names": case.names, "adjust": case.covariates, **more}
    return through(X, case.row_labels, case.labels[0], **options), case.labels


def by_column(case, source, **more):
    adjust = None if case.covariates is None else list(case.covariates)
    features = None if str(source).endswith((".h5ad", ".zarr")) or isinstance(source, ad.AnnData) else case.names
    found = ld.stream.moments(
        source, "context", "k0", adjust=adjust, features=features, block_rows=case.block_rows, **more
    )
    return found, case.column_labels


def samples(case, folder):
    return lambda: by_labels(case, case.X)


def blocks(case, folder):
    return lambda: by_labels(case, case.X, ld.stream.moments, block_rows=case.block_rows)


def checkpoint(case, folder):
    return lambda: by_labels(
        case, case.X, ld.stream.moments, block_rows=case.block_rows, checkpoint=folder / "sums", checkpoint_seconds=0
    )


def shards(case, folder):
    """A sum of moments of parts of the rows."""
    X = case.X
    if case.covariates is not None or isinstance(X, list) or X.ndim != 2 or X.shape[0] < 2 or case.flaw == "labels":
        raise CannotHold
    if case.values is not None and 0 < np.min(case.truth[3], initial=1, where=case.truth[3] > 0) < 1e-72:
        raise CannotHold  # a shard may vary too little where the whole does not
    X = sparse.csr_array(X) if sparse.issparse(X) else X
    part, of_rows = np.random.default_rng(case.n).integers(3, size=X.shape[0]), list(case.row_labels)

    def run():
        made = []
        for i in np.unique(part):
            rows = np.flatnonzero(part == i)
            labels = [of_rows[r] for r in rows]
            made.append(ld.Moments.from_samples(X[rows], labels, None, case.names))
        return reduce(lambda a, b: a + b, made), case.labels

    return run


def saved(case, folder):
    if isinstance(case.labels[0], pd.Timestamp | frozenset):
        raise CannotHold

    def run():
        found, labels = by_labels(case, case.X)
        found.save(folder / "m.npz")
        return ld.Moments.load(folder / "m.npz"), labels

    return run


def frame(case, folder):
    made = pd.DataFrame(dense(case), columns=case.names)
    return lambda: by_labels(case, made)


def polars_table(case, folder):
    made = pl.from_pandas(table(case))
    return lambda: by_column(case, made)


def arrow_table(case, folder):
    made = pa.Table.from_pandas(table(case))
    return lambda: by_column(case, made)


def dask_array(case, folder):
    X = dense(case)
    if X.dtype == object:
        raise CannotHold
    chunks = (max(1, case.n // 3), max(1, X.shape[1] - 1))
    return lambda: by_labels(case, da.from_array(X, chunks=chunks))


def dask_sparse(case, folder):
    X = sparse.csr_matrix(doubles(case))
    chunked = da.from_array(X, chunks=(max(1, case.n // 2), X.shape[1]), asarray=False)
    return lambda: by_labels(case, chunked)


def dask_frame(case, folder):
    made = dd.from_pandas(pd.DataFrame(doubles(case), columns=case.names), npartitions=2)
    return lambda: by_labels(case, made, ld.stream.dask_moments)


def annotated(case, folder, make=np.asarray):
    made = adata(case, make)
    adjust = None if case.covariates is None else list(case.covariates)
    return lambda: (
        ld.Moments.from_anndata(made, "context", "k0", adjust=adjust, min_cells=1, progress=False),
        case.column_labels,
    )


def annotated_csc(case, folder):
    return annotated(case, folder, sparse.csc_matrix)


def backed(case, folder):
    adata(case).write_h5ad(folder / "x.h5ad")
    made = ad.read_h5ad(folder / "x.h5ad", backed="r")
    return lambda: by_column(case, made)


def h5ad(case, folder, make=np.asarray):
    adata(case, make).write_h5ad(folder / "x.h5ad")
    return lambda: by_column(case, folder / "x.h5ad")


def h5ad_csr(case, folder):
    return h5ad(case, folder, sparse.csr_matrix)


def zarr_store(case, folder, make=np.asarray):
    adata(case, make).write_zarr(folder / "x.zarr")
    return lambda: by_column(case, folder / "x.zarr")


def zarr_csr(case, folder):
    return zarr_store(case, folder, sparse.csr_matrix)


def zarr_array(case, folder):
    X = stored(case)
    made = zarr.create_array(str(folder / "x.zarr"), shape=X.shape, dtype=X.dtype, chunks=(max(1, case.n // 2), 2))
    made[...] = X
    return lambda: by_labels(case, folder / "x.zarr", ld.stream.moments)


def zarr_group(case, folder):
    group = zarr.open_group(str(folder / "x.zarr"), mode="w")
    for name, values in {"X": stored(case), "context": case.codes}.items():
        group.create_array(name, shape=values.shape, dtype=values.dtype)[...] = values
    if case.flaw == "labels":
        raise CannotHold
    found = {"feature_names": case.names, "adjust": case.covariates}
    return lambda: (ld.stream.moments(folder / "x.zarr", "context", 0, **found), list(range(len(case.labels))))


def npy(case, folder):
    X = dense(case)
    if X.dtype == object:
        raise CannotHold
    np.save(folder / "x.npy", X)
    return lambda: by_labels(case, folder / "x.npy", ld.stream.moments, block_rows=case.block_rows)


def csv(case, folder):
    table(case, doubles(case)).to_csv(folder / "x.csv", index=False, na_rep="NaN")
    return lambda: by_column(case, folder / "x.csv")


def tsv(case, folder):
    with gzip.open(folder / "x.tsv.gz", "wt") as file:
        table(case, doubles(case)).to_csv(file, index=False, sep="\t", na_rep="NaN")
    return lambda: by_column(case, folder / "x.tsv.gz")


def parquet(case, folder):
    table(case).to_parquet(folder / "x.parquet", row_group_size=7)
    return lambda: by_column(case, folder / "x.parquet")


def parquet_folder(case, folder):
    made = table(case)
    for i, start in enumerate(range(0, case.n, max(1, case.n // 2))):
        made[start : start + max(1, case.n // 2)].to_parquet(folder / f"part{i}.parquet")
    return lambda: by_column(case, folder)


def mtx(case, folder):
    X = sparse.coo_array(doubles(case).T)
    with (folder / "matrix.mtx").open("w") as file:
        file.write(f"%%MatrixMarket matrix coordinate real general\n{X.shape[0]} {X.shape[1]} {X.nnz}\n")
        file.writelines(f"{i + 1} {j + 1} {v!r}\n" for i, j, v in zip(X.row, X.col, X.data.tolist(), strict=True))
    (folder / "barcodes.tsv").write_text("".join(f"cell{i}\n" for i in range(case.n)))
    (folder / "features.tsv").write_text("".join(f"{name}\n" for name in case.names))
    obs = pd.DataFrame({"cell": [f"cell{i}" for i in range(case.n)], "context": texts(case)})
    for name in () if case.covariates is None else case.covariates:
        obs[name] = case.covariates[name].to_numpy()
    obs.to_csv(folder / "cells.csv", index=False)
    return lambda: by_column(case, folder)


def command(case, folder):
    """The command line, on a file of any kind that it reads."""
    kinds = {"x.csv": csv, "x.tsv.gz": tsv, "x.parquet": parquet, "x.h5ad": h5ad, "x.zarr": zarr_store}
    name = sorted(kinds)[case.n % len(kinds)]
    if case.covariates is not None and name not in ("x.h5ad", "x.zarr"):
        raise CannotHold  # columns beside the features would be features too
    kinds[name](case, folder)
    given = ["moments", str(folder / name), "--control", "k0", "--out", str(folder / "m.npz"), "--no-progress"]
    given += [] if case.covariates is None else ["--adjust", ",".join(case.covariates)]

    def run():
        done = CliRunner().invoke(app, given)
        if done.exit_code == 0:
            return ld.Moments.load(folder / "m.npz"), case.column_labels
        text = done.stderr.strip()
        if done.exit_code != 2 or "\n" in text or not text.startswith("latentdag: "):
            raise RuntimeError(f"exit code {done.exit_code}: {text} {done.exception!r}")
        raise Refused(text)

    return run


class Refused(ValueError):
    """One clear line of the command line."""


#: Doors that every case goes through, and doors of which every case goes through some.
ALWAYS = {"from_samples": samples, "blocks": blocks, "a + b": shards}
OTHERS = {
    "checkpoint": checkpoint,
    "save and load": saved,
    "pandas": frame,
    "polars": polars_table,
    "pyarrow": arrow_table,
    "Dask array": dask_array,
    "Dask csr": dask_sparse,
    "Dask frame": dask_frame,
    "AnnData": annotated,
    "AnnData csc": annotated_csc,
    "backed": backed,
    "h5ad": h5ad,
    "h5ad csr": h5ad_csr,
    "zarr AnnData": zarr_store,
    "zarr csr": zarr_csr,
    "zarr array": zarr_array,
    "zarr group": zarr_group,
    "npy": npy,
    "csv": csv,
    "tsv.gz": tsv,
    "parquet": parquet,
    "parquet folder": parquet_folder,
    "mtx": mtx,
    "command line": command,
}

#: Doors that take ten times as long as others, most of it in the libraries that write their files.
SLOW = ("zarr AnnData", "zarr csr", "command line")


def opened(door, case, folder):
    """What runs that door, its files written; None where it cannot hold the data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return door(case, folder)
        except (CannotHold, TypeError, ValueError, NotImplementedError, pa.ArrowException, pl.exceptions.PolarsError):
            return None  # no door calls latentdag before its files are written
