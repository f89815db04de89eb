"""One data set in every format that the readers know."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import zarr
from scipy import io, sparse


@dataclass
class Data:
    X: np.ndarray
    labels: np.ndarray
    names: list[str]
    obs: pd.DataFrame

    @property
    def table(self):
        table = pd.DataFrame(self.X, columns=self.names)
        for name in self.obs:
            table[name] = self.obs[name].to_numpy()
        return table

    @property
    def adata(self):
        made = ad.AnnData(self.X, obs=self.obs.copy(), var=pd.DataFrame(index=self.names))
        made.layers["compressed"] = sparse.csr_matrix(self.X)
        return made


def cells(seed=0, n=1500, p=7, share=1.0):
    """Cells of four contexts; a share of the values is not zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.1, 50, p) + 100
    if share < 1:
        X = np.where(rng.random((n, p)) < share, rng.integers(1, 40, size=(n, p)) / 4, 0.0)
    labels = np.array(["WT", "A", "B", "NA"])[rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])]
    depth, batch = rng.normal(1e4, 3e3, size=n), np.array(list("xyz"))[rng.integers(3, size=n)]
    obs = pd.DataFrame({"context": labels, "depth": depth, "batch": batch}, index=[f"c{i}" for i in range(n)])
    return Data(X, labels, [f"g{j}" for j in range(p)], obs)


FORMATS = [
    "ndarray",
    "fortran",
    "memmap",
    "csr",
    "csc",
    "zarr-array",
    "zarr-group",
    "npy",
    "pandas",
    "polars",
    "pyarrow",
    "csv",
    "tsv.gz",
    "parquet",
    "parquet-folder",
    "anndata",
    "anndata-layer",
    "anndata-view",
    "h5ad",
    "h5ad-layer",
    "backed",
    "backed-view",
    "zarr",
    "zarr-layer",
    "dask",
    "mtx",
    "mtx-by-feature",
]


def written(data: Data, kind: str, folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Source, contexts and options for :func:`latentdag.stream.moments`."""
    if kind in ("ndarray", "fortran", "memmap", "csr", "csc", "npy", "zarr-array", "zarr-group", "dask"):
        return _matrix(data, kind, folder)
    if kind.startswith(("anndata", "h5ad", "backed", "zarr")):
        return _annotated(data, kind, folder)
    if kind.startswith("mtx"):
        return _mtx(data, kind, folder), "context", {}
    return _table(data, kind, folder), "context", {"features": data.names}


def _matrix(data, kind, folder):
    options = {"feature_names": data.names}
    if kind in ("memmap", "npy"):
        np.save(folder / "x.npy", data.X)
        return (folder / "x.npy" if kind == "npy" else np.load(folder / "x.npy", mmap_mode="r")), data.labels, options
    if kind == "zarr-array":
        array = zarr.open_array(str(folder / "x.zarr"), mode="w", shape=data.X.shape, dtype=float, chunks=(111, 3))
        array[...] = data.X
        return folder / "x.zarr", data.labels, options
    if kind == "zarr-group":
        group = zarr.open_group(str(folder / "x.zarr"), mode="w")
        for name, values in {"X": data.X, "codes": np.unique(data.labels, return_inverse=True)[1]}.items():
            group[name] = values
        return folder / "x.zarr", data.labels, options
    if kind == "dask":
        import dask.array as da

        return da.from_array(data.X, chunks=(130, 3)), data.labels, options
    made = {"ndarray": np.array, "fortran": np.asfortranarray, "csr": sparse.csr_matrix, "csc": sparse.csc_array}
    return made[kind](data.X), data.labels, options


def _table(data, kind, folder):
    table = data.table
    if kind == "polars":
        return pl.from_pandas(table)
    if kind == "pyarrow":
        return pa.Table.from_pandas(table)
    if kind == "csv":
        table.to_csv(folder / "x.csv", index=False)
        return folder / "x.csv"
    if kind == "tsv.gz":
        table.to_csv(folder / "x.tsv.gz", index=False, sep="\t")
        return folder / "x.tsv.gz"
    if kind == "parquet":
        table.to_parquet(folder / "x.parquet", row_group_size=170)
        return folder / "x.parquet"
    if kind == "parquet-folder":
        for i, start in enumerate(range(0, len(table), 400)):
            table[start : start + 400].to_parquet(folder / f"part{i}.parquet")
        return folder
    return table


def _annotated(data, kind, folder):
    options = {"layer": "compressed"} if "layer" in kind else {}
    if kind.startswith("anndata"):
        if kind.endswith("view"):
            twice = ad.concat([data.adata, data.adata], index_unique="-")
            return twice[: len(data.X)], "context", options
        return data.adata, "context", options
    if kind.startswith("zarr"):
        data.adata.write_zarr(folder / "x.zarr")
        return folder / "x.zarr", "context", options
    if kind == "backed-view":
        backwards = np.arange(len(data.X))[::-1]
        data.adata[backwards].copy().write_h5ad(folder / "x.h5ad")
        return ad.read_h5ad(folder / "x.h5ad", backed="r")[backwards], "context", options
    data.adata.write_h5ad(folder / "x.h5ad")
    return (ad.read_h5ad(folder / "x.h5ad", backed="r") if kind == "backed" else folder / "x.h5ad"), "context", options


def read_matrix(path):
    """A MatrixMarket file as scipy reads it; the kind of sparse matrix depends on scipy's version."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*spmatrix", category=DeprecationWarning)
        return io.mmread(path)


def _mtx(data, kind, folder):
    X = sparse.coo_array(data.X.T)
    if kind == "mtx":  # in the order of the cells, as 10x writes it
        order = np.lexsort((X.row, X.col))
        X = sparse.coo_array((X.data[order], (X.row[order], X.col[order])), shape=X.shape)
    with (folder / "matrix.mtx").open("w") as file:
        file.write(f"%%MatrixMarket matrix coordinate real general\n%\n{X.shape[0]} {X.shape[1]} {X.nnz}\n")
        file.writelines(f"{i + 1} {j + 1} {v!r}\n" for i, j, v in zip(X.row, X.col, X.data.tolist(), strict=True))
    (folder / "barcodes.tsv").write_text("\n".join(data.obs.index) + "\n")
    (folder / "features.tsv").write_text("\n".join(f"id-{name}\t{name}\tGene" for name in data.names) + "\n")
    data.obs.sample(frac=1, random_state=0).to_csv(folder / "cells.csv")
    assert read_matrix(folder / "matrix.mtx").shape == X.shape
    return folder
