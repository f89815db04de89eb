"""Walks over the rows of a source: a block at a time, here or where Dask has its chunks.

A walk in order can go on where a killed run stopped: a file keeps the sums so far, and what they are sums of.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from latentdag.data.accumulate import Accumulator, Sums, cores
from latentdag.data.dask_pass import dask_map, dask_sums
from latentdag.data.matrices import is_sparse, taken
from latentdag.data.prepare import FEW_VALUES, Plan, require_memory
from latentdag.data.schema import FieldError, Layout
from latentdag.data.sources.reader import Reader, ahead, naming_source, rebatch
from latentdag.data.store import check_same_work, different, load_arrays, naming_file, save_arrays
from latentdag.errors import DamagedCheckpointWarning, FileError, SourceChangedWarning
from latentdag.progress import Progress

_FILE = Layout(
    "MomentsInProgress",
    {"source": {str: str}, "options": {str: str}, "blocks": int},
    {
        "counts": "i k", "settled": "i k", "pilots": "f kp", "totals": "f kp", "scatters": "f kpp", "axes": "f ap",
        "along": "f kaa", "groups": "f gw",
    },
)  # fmt: skip

#: Largest share of the time that goes into writing.
_SHARE = 0.1

#: Parts of the identity of a source that say which data these are; the other parts say in which state they are.
NAMES = ("file", "folder", "layer")


class ProgressFile:
    """One file that holds an accumulator and how many blocks are in it.

    The sums are kept to the last bit and blocks always come in the same order, so a run that was killed and goes on
    gives exactly what it would have given.

    Parameters
    ----------
    path : file
    source : mapping of text to text
        What tells the data from what they were before, by names that a user understands.
    options : mapping of text to text
        Everything else that the sums depend on.
    every : seconds between two writings, at least; more where writing itself takes long
    """

    def __init__(
        self, path: str | os.PathLike[str], source: Mapping[str, str], options: Mapping[str, str], every: float
    ):
        self.path, self.source, self.options, self.every = Path(path), dict(source), dict(options), every
        if self.path.is_dir():
            raise ValueError(f"the checkpoint {self.path} is a folder: name a file")
        self.written = time.monotonic()
        self.took = 0.0

    def restore(self, sums: Accumulator, block_rows: int) -> int:
        """Fill in what an earlier run left; return the number of blocks that are done.

        Sums of data that changed since are worth nothing: the work begins anew, with a warning. Sums of other data or
        with other options may be wanted still, so they are not overwritten.

        A damaged file is put aside and the work begun anew: it may be another file that was named by mistake.

        Raises
        ------
        ValueError
            If the file belongs to other data or other options, or is of another kind.
        """
        if not self.path.exists():
            return 0
        try:
            arrays, meta = load_arrays(self.path, _FILE)
            if self._changed(meta["source"], meta["options"]):
                return 0
            self._check(arrays, meta["blocks"], sums, block_rows)
        except FileError as error:
            if error.field in ("kind", "version"):
                raise
            aside = self.path.with_name(f"{self.path.name}.damaged")
            self.path.replace(aside)
            said = f"{error}. It is now called {aside.name}, and the work begins anew"
            warnings.warn(said, DamagedCheckpointWarning, stacklevel=4)
            return 0
        for name in Accumulator.STATE:
            setattr(sums, name, np.ascontiguousarray(arrays[name]))
        return int(meta["blocks"])

    def _changed(self, source: dict[str, str], options: dict[str, str]) -> bool:
        """Return True if the data changed since; refuse a file that belongs to other work."""
        changed = different(source, self.source)
        if any(name in NAMES for name in changed) or (not changed and different(options, self.options)):
            advice = "Name another file, or delete this one to begin anew"
            check_same_work(self.path, {**source, **options}, {**self.source, **self.options}, advice)
        if changed:
            said = f"the data changed since the checkpoint {self.path} was written ({', '.join(changed)}): begins anew"
            warnings.warn(said, SourceChangedWarning, stacklevel=5)
        return bool(changed)

    def _check(self, arrays: dict[str, np.ndarray], blocks: int, sums: Accumulator, block_rows: int) -> None:
        """Check that sums of this work are what they can be."""
        with naming_file(self.path, "sums"):
            for name, value in arrays.items():
                if value.shape != getattr(sums, name).shape or not np.isfinite(value).all():
                    raise FieldError(name, f"must be finite and of shape {getattr(sums, name).shape}")
            if min(arrays["counts"].min(), arrays["settled"].min()) < 0:
                raise FieldError("counts", "must not be negative")
            if blocks != -(-int(arrays["counts"].sum()) // block_rows):
                raise FieldError("blocks", f"{blocks} blocks of {block_rows} rows are not what was counted")

    def due(self) -> bool:
        """Return True if it is time to write again."""
        return time.monotonic() - self.written >= max(self.every, self.took / _SHARE)

    def write(self, sums: Accumulator, blocks: int) -> None:
        """Write the sums over the first ``blocks`` blocks."""
        began = time.monotonic()
        meta = {"source": self.source, "options": self.options, "blocks": blocks}
        save_arrays(self.path, _FILE, {name: getattr(sums, name) for name in Accumulator.STATE}, meta)
        self.written = time.monotonic()
        self.took = self.written - began


@dataclass(frozen=True)
class Walk:
    """How the rows of a source are walked through; the options of :func:`latentdag.stream.moments` of these names.

    With ``split_every``, those of a Dask array are summed where its chunks are, else blocks come here in order.
    """

    checkpoint: str | os.PathLike[str] | None
    checkpoint_seconds: float
    progress: bool | None
    memory_limit: float | None
    split_every: int | None

    def map(self, reader: Reader, plan: Plan, function: Callable[..., Any], beside: np.ndarray) -> list[Any]:
        """Return ``function(block, beside[rows])`` of every block."""
        if self.split_every is not None:
            return dask_map(reader, function, beside)
        return block_map(reader, plan.block_rows, function, beside)

    def sums(self, reader: Reader, plan: Plan) -> Sums:
        """Return the sums over all rows of a reader."""
        if self.split_every is not None:
            return dask_sums(reader, plan, self.split_every, self.memory_limit)
        note = require_memory(reader.name, *plan.size(), plan.block_bytes(), self.memory_limit, plan.dimensions)
        sums = plan.accumulator(np.arange(len(plan.contexts)), cores())()
        file, done = None, 0
        if self.checkpoint is not None:
            file = ProgressFile(self.checkpoint, reader.identity(), plan.options(), self.checkpoint_seconds)
            done = file.restore(sums, plan.block_rows)
        what = "shared dimensions" if plan.pooled else "moments"
        with Progress(f"{what} of {reader.name}", -(-reader.n_rows // plan.block_rows), self.progress) as bar:
            if bar.show:
                bar.stream.write(f"{note}\n")
            bar.advance(done)
            sample = _add_blocks(reader, plan, sums, done, bar, file)
        return sums.finish()._replace(sample=sample)


def block_map(reader: Reader, block_rows: int, function: Callable[..., Any], beside: np.ndarray) -> list[Any]:
    """Return ``function(block, beside[rows])`` of every block of a reader, in order."""
    row, made = 0, []
    for block in ahead(reader.blocks(block_rows)):
        with naming_source(reader.name):
            made.append(function(block, beside[row : row + block.shape[0]]))
        row += block.shape[0]
    return made


def _add_blocks(
    reader: Reader, plan: Plan, sums: Accumulator, done: int, bar: Progress, file: ProgressFile | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Add all blocks but the first ``done`` to the sums, and write these to a file now and then; return a sample."""
    row, wanted, sample = done * plan.block_rows, plan.sample(), [(plan.codes[:0], np.zeros((0, len(plan.names))))]
    for block in ahead(_blocks(reader, plan, row)):
        here = slice(row, row + block.shape[0])
        with naming_source(reader.name):
            sums.add(block, plan.codes[here], np.arange(here.start, here.stop), plan.covariates(here))
        if wanted is not None:
            sample.append((plan.codes[here][wanted[here]], taken(block, wanted[here])))
        row, done = here.stop, done + 1
        bar.advance()
        if file and (file.due() or row == reader.n_rows):
            bar.say("writing a checkpoint")
            file.write(sums, done)
            bar.say("")
    codes, rows = zip(*sample, strict=True)
    return None if wanted is None else (np.concatenate(codes), np.concatenate(rows))


def _blocks(reader: Reader, plan: Plan, start: int) -> Iterator[Any]:
    """Yield blocks as the products want them; sparse values in a dense file go through memory a little at a time."""
    if not plan.sparse_products or reader.sparse:
        return reader.blocks(plan.block_rows, start)
    step = max(1, min(plan.block_rows, FEW_VALUES // len(reader.feature_names)))
    compact = (block if is_sparse(block) else sparse.csr_matrix(block) for block in reader.blocks(step, start))
    return rebatch(compact, plan.block_rows)
