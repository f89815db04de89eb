"""Matrices that can be sliced by rows: ndarray and memmap, csr, zarr and HDF5 arrays, Dask arrays."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from latentdag.rows import as_rows, check_dtype, is_sparse
from latentdag.stream.reader import Reader, digest


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
        check_dtype(X.dtype, name)
        if X.ndim != 2:
            raise ValueError(f"{name} must have two dimensions (samples, features), got shape {X.shape}")
        self.X, self.name, self.labels = X, name, labels
        self.shape = X.shape
        self.n_rows, p = X.shape
        self.all_features = feature_names if feature_names is not None else [f"x{j}" for j in range(p)]
        self.sparse = is_sparse(X)

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        for first in range(start, self.n_rows, step):
            block = self.X[first : min(first + step, self.n_rows)]
            yield block.compute() if hasattr(block, "compute") else block

    def identity(self) -> dict[str, str]:
        known = {"rows": str(self.n_rows), "columns": str(self.X.shape[1]), "type": str(self.X.dtype)}
        if hasattr(self.X, "compute"):
            return known  # a Dask array is a recipe; reading rows of it may cost as much as all the work
        ends = [self.X[row : row + 1] for row in sorted({0, self.n_rows // 2, self.n_rows - 1})]
        values = [np.asarray(end.toarray() if is_sparse(end) else end) for end in ends]
        return {**known, "first, middle and last row": digest(*values)}


class CompressedReader(Reader):
    """Rows of a csr matrix stored as three arrays, as AnnData writes it to HDF5 and zarr.

    Parameters
    ----------
    group : HDF5 or zarr group with ``data``, ``indices`` and ``indptr``
    labels : (n,)
    feature_names : p names
    name : str
    """

    sparse = True

    def __init__(self, group: Any, labels: Any, feature_names: Sequence[str], name: str):
        self.group, self.labels, self.name, self.all_features = group, labels, name, feature_names
        self.shape = tuple(int(size) for size in group.attrs["shape"])
        self.n_rows = self.shape[0]
        self.indptr = np.asarray(group["indptr"][:])
        if len(self.shape) != 2 or len(self.indptr) != self.n_rows + 1 or (np.diff(self.indptr) < 0).any():
            raise ValueError(f"{name} is a damaged csr matrix of shape {self.shape}")

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        for first in range(start, self.n_rows, step):
            last = min(first + step, self.n_rows)
            a, b = int(self.indptr[first]), int(self.indptr[last])
            pointers = self.indptr[first : last + 1] - a
            data, indices = np.asarray(self.group["data"][a:b]), np.asarray(self.group["indices"][a:b])
            block = sparse.csr_matrix((data, indices, pointers), shape=(last - first, self.shape[1]))
            block.check_format(full_check=True)  # compiled products trust the indices of a damaged file blindly
            yield block

    def identity(self) -> dict[str, str]:
        return {"shape": str(self.shape), "rows' ends": digest(self.indptr)}
