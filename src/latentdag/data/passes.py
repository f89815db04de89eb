"""Moments of data larger than memory, in one pass over blocks of rows."""

import os
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latentdag.data import labels as lb
from latentdag.data import memory
from latentdag.data.accumulate import SPARSE_BELOW, Accumulator, cores, density
from latentdag.data.adjust import adjusted
from latentdag.data.collinear import fine_axes
from latentdag.data.matrices import as_dense, is_sparse, warn_of_counts
from latentdag.data.moments import REQUIRED, Moments, check_control, named_features
from latentdag.data.resume import ProgressFile
from latentdag.data.sources.opening import covariates, open_source
from latentdag.data.sources.reader import Reader, ahead, digest, rebatch
from latentdag.progress import Progress

#: Rows of every context that a block should hold: fewer make products slow.
ROWS_PER_CONTEXT = 2048

#: Values in a block, at least and at most; and where few are not zero, of those.
FEW_VALUES, BLOCK_VALUES = 2**24, 2**27
SPARSE_VALUES = 2**25

#: Rows of a block, at most and at the first look.
MAX_ROWS = 2**18
LOOK = 2048


def moments(
    source: Any,
    contexts: Any,
    control: Hashable | None = REQUIRED,
    *,
    feature_names: Iterable[str] | None = None,
    layer: str | None = None,
    features: Any = None,
    adjust: Any = None,
    block_rows: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    memory_limit: float | None = None,
) -> Moments:
    """Moments of a matrix, table, AnnData object, file or folder, a block of rows at a time.

    Parameters
    ----------
    source
        * a matrix: ndarray, memmap, scipy sparse matrix, zarr, HDF5 or Dask array;
        * a table: pandas or polars DataFrame, pyarrow Table;
        * an AnnData object, in memory, backed or lazy;
        * a path: ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet`` or a folder of such files, ``.h5ad``, ``.zarr``
          (AnnData, or an array, or a group of arrays), ``.npy``, or a folder with ``matrix.mtx``.
    contexts : name, or (n,) labels
        The column that holds the context of each row (for AnnData in ``.obs``; for a zarr group an array), or the
        labels themselves.
    control : label
        The unperturbed context; ``None`` only where it is not among these rows or not known.
    feature_names : optional
        Instead of the names that the source has for all its features.
    layer : str, optional
        Of an AnnData object or store, instead of X; of a plain zarr group, the array.
    features : names, positions or mask, optional
        Only these features.
    adjust : names of columns, or a table with one row per sample, optional
        Covariates to regress out within contexts, in the same pass; see :mod:`latentdag.data.adjust`.
    block_rows : int, optional
        Rows of a block; by default so many that products are fast and blocks stay under about a gigabyte.
    checkpoint : path, optional
        A file to keep the sums in. A later call with the same source and options goes on where the last one stopped,
        and gives the same answer to the last bit; if the source changed in between, it begins anew with a
        :class:`~latentdag.errors.SourceChangedWarning`. It stays there: delete it once the moments are saved.
    checkpoint_seconds : float
        Seconds between two writings, at least.
    progress : bool, optional
        True or False to force the bar on stderr; by default it shows in a terminal.
    memory_limit : bytes, optional
        Refuse to begin where more is needed; by default 80 % of the memory that is free.

    Returns
    -------
    Moments

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> moments(X, ["WT"] * 200 + ["A"] * 100, control="WT", block_rows=100)
    Moments(2 contexts, 2 features; control 'WT' (200); 'A' (100))
    """
    reader = open_source(source, contexts, feature_names=feature_names, layer=layer, features=features, adjust=adjust)
    try:
        work = _prepare(reader, control, adjust, block_rows)
        note = memory.require(
            reader.name,
            len(work.contexts),
            len(work.columns),
            1 + (work.axes is not None) + (work.C is not None),
            work.block_bytes(reader),
            memory_limit,
        )
        with Progress(f"moments of {reader.name}", -(-reader.n_rows // work.block_rows), progress) as bar:
            if bar.show:
                bar.stream.write(f"{note}\n")
            sums = _run(reader, work, bar, checkpoint, checkpoint_seconds)
    finally:
        reader.close()
    try:
        made = sums.finish(work.control)
    except ValueError as error:
        raise ValueError(f"{reader.name}: {error}") from None
    return made if work.C is None else adjusted(made, work.C.shape[1])


@dataclass
class _Work:
    """What is decided before the first block."""

    contexts: tuple[Hashable, ...]  # the control first
    control: Hashable | None
    codes: np.ndarray  # (n,) positions in contexts
    columns: tuple[str, ...]  # features, then covariates
    C: np.ndarray | None  # (n, c) covariates
    sparse_products: bool
    axes: np.ndarray | None  # (p, p) of nearly collinear features
    block_rows: int

    def block_bytes(self, reader: Reader) -> int:
        """One block at work, the next being read, and its rows on their way into float64."""
        p, rows = len(self.columns), min(self.block_rows, reader.n_rows)
        return 12 * SPARSE_VALUES * 3 if self.sparse_products else 3 * 8 * rows * p

    def options(self) -> dict[str, str]:
        """Everything that the sums depend on besides the source."""
        return {
            "contexts": digest(self.contexts, self.codes),
            "features": digest(self.columns),
            "covariates": "none" if self.C is None else digest(self.C),
            "rows per block": str(self.block_rows),
            "products": "sparse" if self.sparse_products else "dense",
        }


def _prepare(reader: Reader, control: Any, adjust: Any, block_rows: int | None) -> _Work:
    n = reader.n_rows
    if n == 0 or not reader.feature_names:
        raise ValueError(f"{reader.name} is empty: {n} rows, {len(reader.feature_names)} features")
    try:
        names = named_features(reader.feature_names, len(reader.feature_names))
        codes, present = lb.factorize(reader.labels, n)
        control = check_control(control, present, np.bincount(codes))
    except ValueError as error:
        raise ValueError(f"{reader.name}: {error}") from None
    order = sorted(range(len(present)), key=lambda k: (control is not None and present[k] != control, k))
    C, more = covariates(reader, adjust)
    first = next(reader.blocks(min(LOOK, n)))
    warn_of_counts(first, reader.name)
    share = density(first)
    sparse_products = share < SPARSE_BELOW
    axes = None if sparse_products else fine_axes(as_dense(first), codes[: first.shape[0]], len(more))
    if block_rows is None:
        block_rows = _rows_per_block(len(present), len(names), share if sparse_products else None)
    if block_rows < 1:
        raise ValueError(f"block_rows must be a positive whole number, got {block_rows}")
    position = np.argsort(order)
    contexts = tuple(present[k] for k in order)
    return _Work(contexts, control, position[codes], (*names, *more), C, sparse_products, axes, block_rows)


def _rows_per_block(n_contexts: int, p: int, share: float | None) -> int:
    """Enough rows of every context, as far as memory allows; the same on every machine, or bits would differ."""
    if share is not None:
        return int(np.clip(SPARSE_VALUES / max(share * p, 1.0), 1, MAX_ROWS))
    wanted = np.clip(ROWS_PER_CONTEXT * n_contexts, FEW_VALUES / p, BLOCK_VALUES / p)
    return int(np.clip(wanted, 1, MAX_ROWS))


def _run(
    reader: Reader, work: _Work, bar: Progress, checkpoint: str | os.PathLike[str] | None, seconds: float
) -> Accumulator:
    sums = Accumulator(work.contexts, work.columns, work.sparse_products, cores(), work.axes)
    file = ProgressFile(checkpoint, reader.identity(), work.options(), seconds) if checkpoint is not None else None
    done = file.restore(sums, work.block_rows) if file else 0
    bar.advance(done)
    row = done * work.block_rows
    for block in ahead(_blocks(reader, work, row)):
        rows = np.arange(row, row + block.shape[0])
        if rows[-1] >= reader.n_rows:
            raise ValueError(f"{reader.name} has more rows than labels ({reader.n_rows}): one label per row is needed")
        covariates = None if work.C is None else work.C[row : rows[-1] + 1]
        try:
            sums.add(block, work.codes[row : rows[-1] + 1], rows, covariates)
        except ValueError as error:
            raise ValueError(f"{reader.name}: {error}") from None
        row, done = int(rows[-1]) + 1, done + 1
        bar.advance()
        if file and (file.due() or row == reader.n_rows):
            bar.say("writing a checkpoint")
            file.write(sums, done)
            bar.say("")
    if row < reader.n_rows:
        raise ValueError(f"{reader.name} ends after {row} rows, but there are {reader.n_rows} labels")
    return sums


def _blocks(reader: Reader, work: _Work, start: int) -> Iterator[Any]:
    """Blocks in the form that the products want; sparse values in a dense file go through memory a little at a time."""
    if not work.sparse_products or reader.sparse:
        return reader.blocks(work.block_rows, start)
    step = max(1, min(work.block_rows, FEW_VALUES // len(reader.feature_names)))
    compact = (block if is_sparse(block) else sparse.csr_matrix(block) for block in reader.blocks(step, start))
    return rebatch(compact, work.block_rows)
