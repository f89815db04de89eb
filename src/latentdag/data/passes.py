"""One pass over the rows of a source, a block at a time, that can go on where a killed run stopped."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from latentdag.data.accumulate import Accumulator, Sums, cores
from latentdag.data.matrices import is_sparse
from latentdag.data.prepare import FEW_VALUES, Plan, require_memory
from latentdag.data.resume import ProgressFile
from latentdag.data.sources.reader import Reader, ahead, naming_source, rebatch
from latentdag.progress import Progress


def block_sums(
    reader: Reader,
    plan: Plan,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    memory_limit: float | None = None,
) -> Sums:
    """Return the sums over all rows of a reader, in blocks that come in order; see :func:`latentdag.stream.moments`."""
    size, copies = (len(plan.contexts), len(plan.names)), 1 + bool(len(plan.axes)) + (plan.C is not None)
    note = require_memory(reader.name, *size, copies, plan.block_bytes(), memory_limit)
    sums = Accumulator(plan.contexts, plan.names, plan.sparse_products, cores(), plan.axes)
    file, done = None, 0
    if checkpoint is not None:
        file = ProgressFile(checkpoint, reader.identity(), plan.options(), checkpoint_seconds)
        done = file.restore(sums, plan.block_rows)
    with Progress(f"moments of {reader.name}", -(-reader.n_rows // plan.block_rows), progress) as bar:
        if bar.show:
            bar.stream.write(f"{note}\n")
        bar.advance(done)
        _add_blocks(reader, plan, sums, done, bar, file)
    return sums.finish()


def _add_blocks(
    reader: Reader, plan: Plan, sums: Accumulator, done: int, bar: Progress, file: ProgressFile | None
) -> None:
    """Add all blocks but the first ``done`` to the sums, and write these to a file now and then."""
    row = done * plan.block_rows
    for block in ahead(_blocks(reader, plan, row)):
        here = slice(row, row + block.shape[0])
        if here.stop > reader.n_rows:
            raise ValueError(f"{reader.name} has more rows than labels ({reader.n_rows}): one label per row is needed")
        with naming_source(reader.name):
            sums.add(block, plan.codes[here], np.arange(here.start, here.stop), plan.covariates(here))
        row, done = here.stop, done + 1
        bar.advance()
        if file and (file.due() or row == reader.n_rows):
            bar.say("writing a checkpoint")
            file.write(sums, done)
            bar.say("")
    if row < reader.n_rows:
        raise ValueError(f"{reader.name} ends after {row} rows, but there are {reader.n_rows} labels")


def _blocks(reader: Reader, plan: Plan, start: int) -> Iterator[Any]:
    """Yield blocks as the products want them; sparse values in a dense file go through memory a little at a time."""
    if not plan.sparse_products or reader.sparse:
        return reader.blocks(plan.block_rows, start)
    step = max(1, min(plan.block_rows, FEW_VALUES // len(reader.feature_names)))
    compact = (block if is_sparse(block) else sparse.csr_matrix(block) for block in reader.blocks(step, start))
    return rebatch(compact, plan.block_rows)
