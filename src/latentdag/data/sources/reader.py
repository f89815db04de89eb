"""What every source of rows can do: name its features, give one label per row, and hand out blocks of rows.

A reader knows the labels of all rows before it reads any features. Labels are small, and with them it is known at once
which contexts there are, how many rows each has, and how much memory their covariances will need.

Damaged files end in one clear sentence, whatever the library that reads them raises. Decompressors, HDF5, zarr and
parquet each have errors of their own, other ones in every version, down to ``KeyError`` and ``RuntimeError``. An error
that comes out of their code while a file is read is the file's; one that comes out of ours is a defect, and stays what
it is.
"""

import hashlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from latentdag.data import labels as lb
from latentdag.data.matrices import as_rows, check_dtype, is_sparse
from latentdag.optional import optional

#: Values that are hashed at a time.
_HASHED = 2**22

#: The package: what one of its lines raises is meant for the user as it stands.
_OURS = str(Path(__file__).parents[2])


class Reader:
    """The rows of one source, in one fixed order.

    Subclasses set the attributes and define ``_blocks``.

    Attributes
    ----------
    name : str
        What messages call the source.
    n_rows : int
    all_features : names of all columns
    labels : (n_rows,)
        The context of every row.
    path : the file or folder that holds the rows, or None
    sparse : bool
        Whether blocks are csr matrices.
    renamed : what the user calls all columns, or None
    chosen : positions of the wanted features, or None for all
    on_disk : bool
        Whether errors while reading are the file's fault.
    dask : (n_rows, p) Dask array behind the rows, or None
    selects : bool
        Whether ``_blocks`` reads the wanted columns only.
    """

    name: str
    n_rows: int
    all_features: Sequence[str]
    labels: Any
    path: Any = None
    sparse: bool = False
    renamed: Sequence[str] | None = None
    chosen: np.ndarray | None = None
    on_disk: bool = False
    dask: Any = None
    selects: bool = False

    @property
    def feature_names(self) -> list[str]:
        names = [str(name) for name in self.renamed or self.all_features]
        return names if self.chosen is None else [names[j] for j in self.chosen]

    @property
    def wanted(self) -> list[Any]:
        """Names of the chosen columns, as the source has them."""
        return list(self.all_features) if self.chosen is None else [self.all_features[j] for j in self.chosen]

    def blocks(self, step: int, start: int = 0) -> Iterator[Any]:
        """Yield rows from ``start`` on, ``step`` at a time (the last block may be shorter): ndarray or csr (n, p).

        Raises
        ------
        ValueError
            If there are more or fewer rows than labels.
        """
        row = start
        with reading(self.name) if self.on_disk else nullcontext():
            for block in self._blocks(step, start):
                matrix = as_rows(block, self.name)
                row += matrix.shape[0]
                if row > self.n_rows:
                    raise ValueError(
                        f"{self.name} has more rows than labels ({self.n_rows}): one label per row is needed"
                    )
                yield matrix if self.chosen is None or self.selects else matrix[:, self.chosen]
        if row < self.n_rows:
            raise ValueError(f"{self.name} ends after {row} rows, but there are {self.n_rows} labels")

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        raise NotImplementedError

    def in_place(self) -> Any:
        """Return the Dask array behind the rows: only the wanted features, in chunks of whole rows, ndarray or csr."""
        X = self.dask.rechunk({1: -1})
        chunks = (X.chunks[0], (len(self.feature_names),))
        return X.map_blocks(partial(_whole_rows, self.chosen), dtype=X.dtype, chunks=chunks, meta=np.empty((0, 0)))

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        """Return columns that are not features, by name (n_rows, …)."""
        raise ValueError(
            f"{self.name} has no named columns to adjust for ({', '.join(map(repr, names[:3]))}): pass the covariates "
            "themselves, adjust=DataFrame with one row per sample"
        )

    def labelled(self, contexts: Any) -> Any:
        """Return one label per row: those given, or the column of that name."""
        return self.columns([contexts])[contexts] if lb.is_single(contexts) else contexts

    def identity(self) -> dict[str, str]:
        """Return what tells this source from others, and from an earlier state: a file's time, else all values."""
        if self.path is not None:
            return path_identity(self.path)
        found, step = hashlib.sha256(), max(1, _HASHED // max(1, len(self.all_features)))
        for block in self._blocks(step, 0):
            rows = as_rows(block, self.name)
            for part in (rows.indptr, rows.indices, rows.data) if is_sparse(rows) else (rows,):
                found.update(np.ascontiguousarray(part).data)
        return {"rows": str(self.n_rows), "columns": str(len(self.all_features)), "values": found.hexdigest()[:16]}

    def close(self) -> None:
        """Let go of open files."""


def _whole_rows(chosen: np.ndarray | None, block: Any) -> Any:
    rows = as_rows(block)
    return rows if chosen is None else rows[:, chosen]


class Mapped(Reader):
    """The rows of another reader with other features: each block becomes ``function(block, beside)``.

    Parameters
    ----------
    reader : Reader
    function : of rows (n, p), ndarray or csr, and what is beside them (n, …)
    names : of the features that it returns
    beside : (n_rows, …)
    step : rows of the other reader's blocks, at most
    """

    def __init__(
        self, reader: Reader, function: Callable[..., Any], names: Sequence[str], beside: np.ndarray, step: int
    ):
        self.reader, self.function, self.beside, self.step = reader, function, beside, step
        self.name, self.n_rows, self.labels, self.all_features = reader.name, reader.n_rows, reader.labels, names
        if reader.dask is not None:
            from dask.array import from_array  # there is one already

            X = reader.in_place()
            more = from_array(beside, chunks=(X.chunks[0], *beside.shape[1:]))
            chunks = (X.chunks[0], (len(names),))
            self.dask = X.map_blocks(function, more, dtype=float, chunks=chunks, meta=np.empty((0, 0)))

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        return rebatch(self._mapped(min(step, self.step), start), step)

    def _mapped(self, step: int, row: int) -> Iterator[Any]:
        for block in self.reader.blocks(step, row):
            with naming_source(self.name):
                yield self.function(block, self.beside[row : row + block.shape[0]])
            row += block.shape[0]

    def columns(self, names: Sequence[str]) -> Any:
        return self.reader.columns(names)

    def identity(self) -> dict[str, str]:
        return self.reader.identity()


class SomeRows(Reader):
    """Some rows of another reader, which still chooses the features.

    Parameters
    ----------
    reader : Reader
    kept : (n,) whether each of its rows is kept
    """

    selects = True

    def __init__(self, reader: Reader, kept: np.ndarray):
        self.reader, self.kept, self.n_rows = reader, kept, int(kept.sum())
        self.name, self.path, self.all_features, self.sparse = (
            reader.name, reader.path, reader.all_features, reader.sparse,
        )  # fmt: skip
        self.labels = np.array(reader.labels, dtype=object)[kept]

    @property
    def chosen(self) -> np.ndarray | None:
        return self.reader.chosen

    @chosen.setter
    def chosen(self, value: np.ndarray | None) -> None:
        self.reader.chosen = value

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        first = int(np.flatnonzero(self.kept)[start]) if start < self.n_rows else self.reader.n_rows
        yield from rebatch(self._kept(step, first), step)

    def _kept(self, step: int, row: int) -> Iterator[Any]:
        for block in self.reader.blocks(step, row):
            yield block[self.kept[row : (row := row + block.shape[0])]]

    def columns(self, names: Sequence[str]) -> Any:
        return self.reader.columns(names)[self.kept].reset_index(drop=True)

    def identity(self) -> dict[str, str]:
        return self.reader.identity()

    def close(self) -> None:
        self.reader.close()


def rebatch(pieces: Iterable[Any], step: int, skip: int = 0) -> Iterator[Any]:
    """Yield blocks of ``step`` rows (the last may be shorter) out of pieces of any size, less the first ``skip``."""
    waiting: list[Any] = []
    held = 0
    for piece in pieces:
        drop = min(skip, piece.shape[0])
        skip -= drop
        rest = piece[drop:] if drop else piece
        while held + rest.shape[0] >= step:
            taken = step - held
            yield _joined([*waiting, rest[:taken]])
            waiting, held, rest = [], 0, rest[taken:]
        if rest.shape[0]:
            waiting.append(rest)
            held += rest.shape[0]
    if held:
        yield _joined(waiting)


def _joined(parts: list[Any]) -> Any:
    """Return pieces of rows as one block."""
    parts = [part for part in parts if part.shape[0]]
    if len(parts) == 1:
        return parts[0]
    return sparse.vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts)


def ahead(blocks: Iterator[Any]) -> Iterator[Any]:
    """Yield the same blocks; the next one is read while the last one is worked on."""
    with ThreadPoolExecutor(1, thread_name_prefix="latentdag-read") as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block
            del block  # or three blocks would be in memory while the next is waited for


def path_identity(path: Path, files: Iterable[Path] | None = None) -> dict[str, str]:
    """Return name, size and time of a file, or of every file of a folder (or of those given)."""
    if path.is_file():
        stat = path.stat()
        return {"file": path.name, "size": str(stat.st_size), "changed": str(stat.st_mtime_ns)}
    inside = [(str(file.relative_to(path)), file.stat()) for file in sorted(files or path.rglob("*")) if file.is_file()]
    # what a run of ours keeps there while it works is no part of the data
    stats = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in inside if ".latentdag" not in name]
    return {"folder": path.name, "files": str(len(stats)), "their names, sizes and times": digest(stats)}


def digest(*parts: Any) -> str:
    """Return a short hash of arrays and texts."""
    found = hashlib.sha256()
    for part in parts:
        found.update(np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return found.hexdigest()[:16]


# ---- errors -----------------------------------------------------------------------------------------------------


@contextmanager
def naming_source(name: str) -> Iterator[None]:
    """Put the name of a source before the message of any ``ValueError``."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


@contextmanager
def reading(source: Any) -> Iterator[None]:
    """Turn what other libraries raise while reading a file into a ``ValueError`` that names it."""
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename.startswith(_OURS):
            raise  # by a line of latentdag, and not in a library that it called
        text = " ".join(str(error).split())
        text = text if len(text) <= 200 else f"{text[:200]}…"
        raise ValueError(f"{source} is damaged, or not what its name says ({type(error).__name__}: {text})") from None


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
