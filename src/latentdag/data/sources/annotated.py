"""AnnData: objects in memory, backed or lazy, and .h5ad and zarr stores read without making an object."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.sources.reader import ArrayReader, Reader, digest
from latentdag.errors import EmptyCategoryWarning
from latentdag.optional import optional


class _Cells(Reader):
    """Cells of an object or store: ``matrix`` has their rows, and ``_obs`` gives the columns that describe them."""

    matrix: ArrayReader

    def _obs(self, key: Any) -> pd.Series:
        raise NotImplementedError

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        return self.matrix._blocks(step, start)

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        return pd.DataFrame({name: self._obs(name) for name in names})


class AnnDataReader(_Cells):
    """Cells of an AnnData object. Nothing backed or lazy is read but the block that is asked for.

    Parameters
    ----------
    adata : AnnData
    contexts : name of a column of ``.obs``, or (n,) labels
    layer : name, or None for ``.X``
    """

    def __init__(self, adata: Any, contexts: Any, layer: str | None = None):
        self.adata, self.layer = adata, layer
        self.name = "adata" if layer is None else f"adata.layers[{layer!r}]"
        if layer is not None and layer not in adata.layers:
            raise ValueError(f"adata has no layer {layer!r}; it has {_layers(adata.layers)}")
        if layer is None and not adata.isbacked and adata.X is None:
            raise ValueError(f"adata has no X: name one of its layers with layer=… ({_layers(adata.layers)})")
        self.n_rows = adata.n_obs
        self.all_features = [str(name) for name in adata.var_names]
        self.labels = self.labelled(contexts)
        self.path = Path(adata.filename) if adata.isbacked else None
        # A view of a backed object would load all its rows at once; its parent gives the rows of one block.
        self.cut_first = adata.isbacked and adata.is_view
        if not self.cut_first:
            self.matrix = ArrayReader(adata.X if layer is None else adata.layers[layer], self.labels, name=self.name)
            self.sparse, self.dask = self.matrix.sparse, self.matrix.dask

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        if not self.cut_first:
            yield from super()._blocks(step, start)
            return
        parent, columns = self.adata._adata_ref, self.adata._vidx
        rows = np.arange(parent.n_obs)[self.adata._oidx]
        for first in range(start, self.n_rows, step):
            part = parent[rows[first : first + step], columns]
            yield part.X if self.layer is None else part.layers[self.layer]

    def _obs(self, key: Any) -> pd.Series:
        return obs_column(self.adata, key)

    def identity(self) -> dict[str, str]:
        known = super().identity() if self.adata.isbacked else self.matrix.identity()
        return {**known, "cells": digest(self.adata.obs_names.to_numpy(str)), "layer": str(self.layer)}


def obs_column(adata: Any, key: Any) -> pd.Series:
    """Return a column of ``.obs``, also of a lazy one.

    Raises
    ------
    ValueError
        Listing the columns there are.
    """
    if key not in adata.obs:
        raise ValueError(f"adata.obs has no column {key!r}; its columns are {lb.listed(adata.obs.columns)}")
    column = adata.obs[key]
    if not isinstance(column, pd.Series):  # lazy objects hold xarray columns
        column = pd.Series(np.asarray(column))
    return column.reset_index(drop=True)


def check_cells(labels: pd.Series, key: str, min_cells: int) -> None:
    """Complain about cells without a label and contexts with too few cells; warn about categories without any."""
    missing = int(labels.isna().sum())
    if missing:
        raise ValueError(
            f"{missing} of {len(labels)} cells have no label in obs[{key!r}]: drop them with "
            f"adata[adata.obs[{key!r}].notna()], or label them"
        )
    counts = labels.value_counts()
    empty = [lb.as_label(label) for label in counts.index[counts == 0]]
    if empty:
        warnings.warn(
            f"{len(empty)} categories of obs[{key!r}] have no cells and are left out: {lb.listed(empty)}",
            EmptyCategoryWarning,
            stacklevel=3,
        )
    few = counts[(counts > 0) & (counts < min_cells)]
    if len(few):
        table = lb.count_table([lb.as_label(label) for label in few.index], few.to_numpy(), limit=8)
        raise ValueError(
            f"{len(few)} contexts of obs[{key!r}] have fewer than {min_cells} cells: {table}; drop or merge them"
        )


def chosen_features(adata: Any, mask_var: Any) -> Any:
    """Return ``mask_var`` as a mask or names; a text names a boolean column of ``.var``."""
    if not isinstance(mask_var, str):
        return mask_var
    if mask_var not in adata.var:
        raise ValueError(f"adata.var has no column {mask_var!r}; its columns are {lb.listed(adata.var.columns)}")
    column = np.asarray(adata.var[mask_var])
    if column.dtype != bool:
        raise ValueError(f"adata.var[{mask_var!r}] must be boolean to choose features, it holds {column.dtype}")
    return column


# ---- stores -----------------------------------------------------------------------------------------------------


class StoreReader(_Cells):
    """Cells of an AnnData store: HDF5 or zarr, X or a layer, dense or csr.

    Parameters
    ----------
    group : the store's root group
    path : for messages
    contexts : name of a column of ``obs``, or (n,) labels
    layer : name, or None for X
    """

    def __init__(self, group: Any, path: Path, contexts: Any, layer: str | None = None):
        self.group, self.path, self.layer = group, path, layer
        self.name = str(path) if layer is None else f"{path} (layer {layer!r})"
        try:
            element = group["X"] if layer is None else group["layers"][layer]
        except KeyError:
            layers = lb.listed(group["layers"]) if "layers" in group else "none"
            raise ValueError(
                f"{path} has no {'X' if layer is None else f'layer {layer!r}'}; layers: {layers}"
            ) from None
        self.io = optional("anndata", "anndata", f"reading {path}").io
        self.labels = self.labelled(contexts)
        features = [str(name) for name in self._column("var", group["var"].attrs["_index"])]
        kind = str(element.attrs.get("encoding-type", "array"))
        if kind.startswith(("csr", "csc")):
            element = self.io.sparse_dataset(element)
        elif kind not in ("array", "dense") or not hasattr(element, "shape"):
            raise ValueError(f"{self.name} is stored as {kind!r}, not as a dense or csr matrix")
        self.matrix = ArrayReader(element, self.labels, features, self.name)
        if self.matrix.X.shape[1] != len(features):
            raise ValueError(f"{self.name} has {self.matrix.X.shape[1]} columns, but var has {len(features)} features")
        self.all_features, self.sparse, self.n_rows = features, self.matrix.sparse, self.matrix.n_rows

    def _column(self, table: str, key: str) -> pd.Series:
        return pd.Series(self.io.read_elem(self.group[table][key]))

    def _obs(self, key: Any) -> pd.Series:
        names = [str(name) for name in self.group["obs"].attrs.get("column-order", [])]
        if key not in names:
            raise ValueError(f"{self.path}: obs has no column {key!r}; its columns are {lb.listed(names)}")
        return self._column("obs", str(key))

    def identity(self) -> dict[str, str]:
        return {**super().identity(), "layer": str(self.layer)}

    def close(self) -> None:
        if hasattr(self.group, "close"):
            self.group.close()


def _layers(layers: Any) -> str:
    return lb.listed(name for name in layers if name is not None)  # anndata 0.13 calls X a layer without a name
