"""The sums over a Dask array, on any of Dask's schedulers.

Contexts are dealt into groups whose covariances are small together, and rows into runs of blocks with at least as many
rows of the group as its covariances have: no partial result is ever larger than the rows behind it, and none holds the
covariances of all contexts. Partial results meet in a tree of small fan-in. All tasks are pure functions of their
inputs, so what a lost worker had done is done again elsewhere.

The first look at the rows (:mod:`latentdag.data.prepare`) reads the first chunk once more than the sums do.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from latentdag.data.accumulate import Accumulator, ContextSums, Sums, merged_sums
from latentdag.data.matrices import taken
from latentdag.data.prepare import Plan, require_memory
from latentdag.data.sources.reader import Reader, naming_source
from latentdag.optional import optional

#: Bytes of covariances that one task makes, at most (or one covariance, if that is larger).
GROUP_BYTES = 128 * 2**20

#: The sums of each context that occurs, by its position.
Partial = dict[int, ContextSums]


def dask_sums(reader: Reader, plan: Plan, split_every: int, memory_limit: float | None = None) -> Sums:
    """Return the sums over the Dask array of a reader, made where its chunks are.

    Parameters
    ----------
    reader : Reader of a Dask array of ndarray or csr chunks
    plan : Plan
    split_every : int
        Partial results that meet in one task.
    memory_limit : bytes of this process, or None for 80 % of what is free
    """
    contexts, p, matrices = plan.size()
    matrices = max(matrices, 2)  # parts, and what they become
    require_memory(reader.name, contexts, p, matrices, 0, memory_limit, plan.dimensions)
    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    dask = optional("dask", "big", "a Dask array")
    X, wanted = reader.in_place(), plan.sample()
    looks = [] if wanted is None else _each(dask.delayed, X, taken, wanted)
    with naming_source(reader.name):
        trees = [_tree(dask.delayed, parts, split_every, plan.axes) for parts in _partials(dask.delayed, X, plan)]
        groups, rows = dask.compute(trees, looks)
    parts = [part[k] for part in groups for k in sorted(part)]
    sample = None if wanted is None else (plan.codes[wanted], np.concatenate(rows))
    return Sums.together(parts, plan.axes)._replace(sample=sample)


def _partials(delayed: Any, X: Any, plan: Plan) -> list[list[Any]]:
    """Return the partial results of every group of contexts over runs of blocks; nothing is computed yet."""
    size, p, _ = plan.size()
    contexts = np.arange(len(plan.contexts))
    per_group = int(max(1, GROUP_BYTES // (8 * p * p)))
    groups = [contexts] if plan.pooled else np.array_split(contexts, -(-size // per_group))
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    enough = [p + len(group) if plan.pooled else p * len(group) for group in groups]
    sums_of = [delayed(partial(_partial, plan.accumulator(group), int(group[0]))) for group in groups]
    waiting: list[list[Any]] = [[] for _ in groups]
    rows = [0] * len(groups)
    made: list[list[Any]] = [[] for _ in groups]
    first = 0
    for block, n in zip(X.to_delayed().ravel(), X.chunks[0], strict=True):
        here = slice(first, first + n)
        codes = plan.codes[here].astype(np.int32)
        # One node for what all groups need of a block's rows, so that the graph stays small.
        beside = delayed((codes, plan.covariates(here), first))
        held = np.bincount(group_of[codes], minlength=len(groups))
        for g in np.flatnonzero(held):
            waiting[g].append(delayed(_rows_of)(block, beside, groups[g]))
            rows[g] += int(held[g])
            if rows[g] >= enough[g]:
                made[g].append(sums_of[g](waiting[g]))
                waiting[g], rows[g] = [], 0
        first += n
    for done, rest, of_group in zip(made, waiting, sums_of, strict=True):
        if rest:
            done.append(of_group(rest))
    return made


def _tree(delayed: Any, parts: list[Any], split_every: int, axes: np.ndarray) -> Any:
    """Return one result of many, merging ``split_every`` at a time; nothing is computed yet."""
    along = delayed(axes)
    while len(parts) > 1:
        parts = [delayed(_merged)(parts[i : i + split_every], along) for i in range(0, len(parts), split_every)]
    return parts[0]


def dask_map(reader: Reader, function: Callable[..., Any], beside: np.ndarray) -> list[Any]:
    """Return ``function(block, beside[rows])`` of every block of a reader's Dask array, made where its chunks are."""
    dask = optional("dask", "big", "a Dask array")
    with naming_source(reader.name):
        return list(dask.compute(*_each(dask.delayed, reader.in_place(), function, beside)))


def _each(delayed: Any, X: Any, function: Callable[..., Any], beside: np.ndarray) -> list[Any]:
    """Return ``function(block, beside[rows])`` of every block; nothing is computed yet."""
    parts = np.split(beside, np.cumsum(X.chunks[0])[:-1])
    return [delayed(function)(block, part) for block, part in zip(X.to_delayed().ravel(), parts, strict=True)]


# ---- tasks ------------------------------------------------------------------------------------------------------


def _rows_of(block: Any, beside: Any, members: np.ndarray) -> tuple[Any, ...]:
    """Return the rows of a block that belong to a group: matrix, codes within the group, row numbers, covariates."""
    codes, C, first = beside
    mine = np.flatnonzero((codes >= members[0]) & (codes <= members[-1]))
    return block[mine], codes[mine] - members[0], mine + first, None if C is None else C[mine]


def _partial(empty: Callable[[], Accumulator], first: int, pieces: Sequence[tuple[Any, ...]]) -> Partial:
    """Return the sums over the rows of one group of contexts, from ``first`` on, in a run of blocks."""
    sums = empty()
    for piece in pieces:
        sums.add(*piece)
    made = sums.finish()
    return {first + i: made.of(i) for i in range(len(made.counts)) if made.counts[i] or made.outlying[i]}


def _merged(parts: Sequence[Partial], axes: np.ndarray) -> Partial:
    """Return one partial result of several; the inputs stay as they are, for another worker may still need them."""
    present = sorted({k for part in parts for k in part})
    return {k: merged_sums([part[k] for part in parts if k in part], axes) for k in present}
