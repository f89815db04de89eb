"""Matrices that can be sliced by rows: ndarray and memmap, csr, zarr and HDF5 arrays, Dask arrays."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latentdag.data.matrices import as_rows, check_dtype, is_sparse
from latentdag.data.sources.reader import Reader, path_identity
from latentdag.optional import optional


class ArrayReader(Reader):
    """Rows of a matrix in memory or on disk.

    Parameters
    ----------
    X : (n, p), sliced by rows
    labels : (n,)
    feature_names : p names, or None for ``x0, x1, …``
    name : str
    """

    def __init__(self, X: Any, labels: Any, feature_names: Sequence[str] | None = None, name: str = "X"):
        if is_sparse(X) or isinstance(X, np.ndarray):
            X = as_rows(X, name)
        backed = hasattr(X, "group") and hasattr(X, "format")  # anndata's csr on disk
        if backed and X.format == "csc":
            raise ValueError(f"{name} is stored by columns (csc), which cannot be read by rows: store it as csr")
        if not backed:  # its dtype is not one of numpy's in all versions
            check_dtype(X.dtype, name)
        if len(X.shape) != 2:
            raise ValueError(f"{name} must have two dimensions (samples, features), got shape {X.shape}")
        self.dask = X if hasattr(X, "dask") else None
        if np.isnan(X.shape[0]):
            raise ValueError("the Dask array has chunks of unknown size: call X.compute_chunk_sizes() first")
        self.X, self.name, self.labels = X, name, labels
        self.n_rows, p = X.shape
        self.all_features = feature_names if feature_names is not None else [f"x{j}" for j in range(p)]
        self.sparse = backed or is_sparse(X)

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        for first in range(start, self.n_rows, step):
            block = self.X[first : min(first + step, self.n_rows)]
            yield block if self.dask is None else block.compute()

    def identity(self) -> dict[str, str]:
        shape = {"rows": str(self.n_rows), "columns": str(self.X.shape[1])}
        if self.dask is not None:  # a recipe; reading rows of it may cost as much as all the work
            return {**shape, "recipe": optional("dask.base", "big", "a Dask array").tokenize(self.X)}
        where = _on_disk(self.X)
        return super().identity() if where is None else {**shape, **path_identity(where)}


def _on_disk(X: Any) -> Path | None:
    """Return the file or folder behind a zarr or HDF5 array, or None if there is none."""
    group = getattr(X, "group", X)  # of anndata's own csr
    store, file = getattr(group, "store", None), getattr(group, "file", None)
    local = type(store).__name__ in ("LocalStore", "DirectoryStore", "NestedDirectoryStore", "ZipStore")
    known = (getattr(store, "root", None) or getattr(store, "path", None)) if local else getattr(file, "filename", None)
    return Path(known) if known and Path(known).exists() else None
