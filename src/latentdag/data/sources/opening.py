"""Choose the reader that a source needs: by its type, or by its name on disk."""

import os
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data import adjust as adjustment
from latentdag.data import labels as lb
from latentdag.data.matrices import as_rows
from latentdag.data.sources.annotated import AnnDataReader, StoreReader
from latentdag.data.sources.mtx import MtxReader, find_packed
from latentdag.data.sources.reader import ArrayReader, Reader, SomeRows, naming_source, reading
from latentdag.data.sources.tables import DelimitedReader, ParquetReader, TableReader, is_delimited
from latentdag.optional import optional


def open_source(
    source: Any,
    contexts: Any,
    *,
    feature_names: Iterable[str] | None = None,
    layer: str | None = None,
    features: Any = None,
    adjust: Any = None,
    depth: Any = None,
    only: Iterable[Hashable] | None = None,
) -> Reader:
    """Return a reader for a matrix, table, AnnData object, file or folder; see :func:`latentdag.stream.moments`.

    Raises
    ------
    ValueError, FileNotFoundError
        Naming the source and what is wrong with it.
    """
    others = [*(names_of(adjust) or ()), *(names_of(depth) or ())]
    if isinstance(source, Reader):
        reader = source
    elif isinstance(source, str | os.PathLike):
        with reading(str(source)):
            reader = _on_disk(Path(source), contexts, layer, others)
        reader.on_disk = True
    else:
        reader = _in_memory(source, contexts, layer, others)
    reader = reader if only is None else _of_contexts(reader, only)
    if feature_names is not None:
        reader.renamed = lb.named_features(feature_names, len(reader.all_features))
    reader.chosen = positions(features, reader.feature_names, reader.name)
    return reader


def _in_memory(source: Any, contexts: Any, layer: str | None, others: Sequence[str]) -> Reader:
    module = type(source).__module__.split(".")[0]
    if module == "anndata" and hasattr(source, "obs"):
        return AnnDataReader(source, contexts, layer)
    if isinstance(source, pd.DataFrame) or (module in ("polars", "pyarrow") and hasattr(source, "slice")):
        return TableReader(source, contexts, others)
    if hasattr(source, "to_dask_array"):
        return ArrayReader(source.to_dask_array(lengths=True), contexts, [str(name) for name in source.columns])
    lazy = hasattr(source, "shape") and hasattr(source, "dtype")  # zarr, HDF5 and Dask arrays are read in blocks
    return ArrayReader(source if lazy else as_rows(source), contexts)


def _on_disk(path: Path, contexts: Any, layer: str | None, others: Sequence[str]) -> Reader:
    if not path.exists() and not any(parent.suffix == ".zarr" and parent.is_dir() for parent in path.parents):
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.suffix in (".h5ad", ".h5"):
        file = optional("h5py", "anndata", f"reading {path}").File(path, "r")
        return StoreReader(file, path, contexts, layer)
    if path.is_dir() and find_packed(path, "matrix.mtx"):
        return MtxReader(path, contexts)
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return ParquetReader(path, contexts, others)
    if path.suffix == ".npy":
        X = np.load(path, mmap_mode="r", allow_pickle=False)
        return ArrayReader(X, _one_each(contexts, path), name=str(path))
    if path.is_file() and is_delimited(path):
        return DelimitedReader(path, contexts, others)
    if path.is_dir() or path.suffix in (".zarr", ".zip"):
        return _zarr(path, contexts, layer)
    raise ValueError(
        f"{path}: unknown kind of file {path.suffix!r}; known are .csv, .tsv, .parquet, .h5ad, .zarr, .npy and folders "
        "with matrix.mtx"
    )


def _zarr(path: Path, contexts: Any, layer: str | None) -> Reader:
    zarr = optional("zarr", "big", f"reading {path}")
    found = zarr.open(str(path), mode="r")
    if hasattr(found, "dtype"):
        return ArrayReader(found, _one_each(contexts, path), name=str(path))
    if str(found.attrs.get("encoding-type", "")) == "anndata":
        return StoreReader(found, path, contexts, layer)
    name, arrays = layer or "X", sorted(found.array_keys())
    if name not in arrays:
        listed = ", ".join(arrays) or "none"
        raise ValueError(f"{path} is a zarr group without an array {name!r}; it has {listed}: name one with layer=…")
    if lb.is_single(contexts):
        if contexts not in arrays:
            raise ValueError(f"{path} has no array of labels {contexts!r}; it has {', '.join(arrays)}")
        contexts = found[contexts][:]
    return ArrayReader(found[name], contexts, name=f"{path}/{name}")


def _one_each(contexts: Any, path: Path) -> Any:
    if lb.is_single(contexts):
        raise ValueError(f"{path} has no labels of its own: contexts must hold one label per row, got {contexts!r}")
    return contexts


def _of_contexts(reader: Reader, only: Iterable[Hashable]) -> Reader:
    """Return a reader of the rows of these contexts; the others, and rows without a label, are passed over."""
    counts = lb.counted(reader.labels)
    wanted = {lb.as_label(label) for label in only}
    for label in wanted - set(counts):
        listed = lb.count_table(list(counts), counts.values())
        raise ValueError(f"{reader.name} has no context {label!r}; the labels present are {listed}")
    return SomeRows(reader, np.array([lb.as_label(label) in wanted for label in reader.labels], dtype=bool))


# ---- which columns ----------------------------------------------------------------------------------------------


def positions(features: Any, names: Sequence[str], where: str) -> np.ndarray | None:
    """Return the positions of features that are chosen by name, by position, or by a mask over all of them.

    Raises
    ------
    ValueError
        Naming a feature that is not there.
    """
    if features is None:
        return None
    chosen = np.asarray(list(features) if not isinstance(features, np.ndarray) else features)
    if chosen.dtype == bool:
        if chosen.shape != (len(names),):
            raise ValueError(f"{where} has {len(names)} features, but the mask has shape {chosen.shape}")
        chosen = np.flatnonzero(chosen)
    elif chosen.dtype.kind in "iu":
        wrong = chosen[(chosen < 0) | (chosen >= len(names))]
        if len(wrong):
            raise ValueError(f"{where} has {len(names)} features, so there is no feature number {wrong[0]}")
    else:
        wanted, index = [str(name) for name in chosen], pd.Index(names)
        missing = [name for name in wanted if name not in index]
        if missing:
            more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
            raise ValueError(f"{where} has no feature {missing[0]!r}{more}; its first features are {list(names[:5])}")
        twice = [name for name in wanted if name in index[index.duplicated()]]
        if twice:
            raise ValueError(f"{where} has more than one feature {twice[0]!r}: choose by position, or rename them")
        chosen = index.get_indexer_for(wanted)
    if len(chosen) == 0:
        raise ValueError(f"{where}: no features are chosen")
    return chosen


def names_of(adjust: Any) -> list[str] | None:
    """Return names of covariates, or None if ``adjust`` holds something else."""
    if isinstance(adjust, str):
        return [adjust]
    if isinstance(adjust, list | tuple) and adjust and all(isinstance(name, str) for name in adjust):
        return list(adjust)
    return None


def covariates(reader: Reader, adjust: Any) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Return all covariates as numbers (n, c), and their names; see :func:`latentdag.data.adjust.design`."""
    if adjust is None or (isinstance(adjust, list | tuple) and len(adjust) == 0):
        return None, ()
    names = names_of(adjust)
    columns = reader.columns(names) if names is not None else adjust
    with naming_source(reader.name):
        return adjustment.design(columns, reader.n_rows)
