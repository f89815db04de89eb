"""The sums over a Dask array, on any of Dask's schedulers.

Contexts are dealt into groups whose covariances are small together, and rows into runs of blocks with at least as many
rows of the group as its covariances have: no partial result is ever larger than the rows behind it, and none holds the
covariances of all contexts. Partial results meet in a tree of small fan-in. All tasks are pure functions of their
inputs, so what a lost worker had done is done again elsewhere.

The first look at the rows (:mod:`latentdag.data.prepare`) reads the first chunk once more than the sums do.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from latentdag.data.accumulate import (
    EVERY_ROW,
    Accumulator,
    ContextSums,
    Sums,
    context_totals,
    merged_sums,
    mirror_lower,
)
from latentdag.data.counts import rates
from latentdag.data.matrices import as_rows
from latentdag.data.pilot import taken
from latentdag.data.prepare import Plan, require_memory
from latentdag.data.sources.reader import Reader, naming_source
from latentdag.optional import optional

#: Bytes of covariances that one task makes, at most (or one covariance, if that is larger).
GROUP_BYTES = 128 * 2**20

#: The sums of each context that occurs, by its position; scatters are packed lower triangles.
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
    matrices = max(matrices, 2)  # packed parts, and what they become
    require_memory(reader.name, contexts, p, matrices, 0, memory_limit, plan.dimensions)
    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    dask = optional("dask", "big", "a Dask array")
    X = _whole_rows(reader)
    axes = dask.delayed(plan.axes)
    totals = None
    if plan.pooled:
        beside = plan.codes[:, None] if plan.C is None else np.column_stack([plan.codes, plan.C])
        totals_of = partial(_totals, len(plan.contexts), reader.feature_names if plan.divided else None)
        sums_of = _each(dask.delayed, X, totals_of, beside, reader.chosen)
        totals = _tree(dask.delayed, sums_of, split_every, sum)
        plan = replace(plan, contexts=EVERY_ROW, codes=np.zeros_like(plan.codes))
    groups = _partials(dask.delayed, X, plan, reader.chosen, axes)
    wanted = plan.sample()
    looks = [] if wanted is None else _each(dask.delayed, X, taken, wanted, reader.chosen)
    with naming_source(reader.name):
        trees = [_tree(dask.delayed, partials, split_every, _merged, axes) for partials in groups]
        parts, rows, totals = dask.compute(trees, looks, totals)
    sample = None if wanted is None else (plan.codes[wanted], np.concatenate(rows))
    return _unpacked(parts, plan)._replace(sample=sample, totals=None if totals is None else totals.toarray())


def _partials(delayed: Any, X: Any, plan: Plan, chosen: np.ndarray | None, axes: Any) -> list[list[Any]]:
    """Return the partial results of every group of contexts over runs of blocks; nothing is computed yet."""
    size, p = len(plan.contexts), len(plan.names)
    per_group = int(max(1, GROUP_BYTES // (8 * p * p)))
    groups = np.array_split(np.arange(size), -(-size // per_group))
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    way = plan.names, plan.sparse_products, plan.divided
    about = [
        delayed((group, tuple(plan.contexts[k] for k in group), *way, plan.weigh and plan.weigh.of(group)))
        for group in groups
    ]
    waiting: list[list[Any]] = [[] for _ in groups]
    rows = [0] * len(groups)
    made: list[list[Any]] = [[] for _ in groups]
    first = 0
    for block, n in zip(X.to_delayed().ravel(), X.chunks[0], strict=True):
        here = slice(first, first + n)
        codes = plan.codes[here].astype(np.int32)
        # One node for what all groups need of a block's rows, so that the graph stays small.
        beside = delayed((codes, plan.covariates(here), first, chosen))
        held = np.bincount(group_of[codes], minlength=len(groups))
        for g in np.flatnonzero(held):
            waiting[g].append(delayed(_rows_of)(block, beside, groups[g]))
            rows[g] += int(held[g])
            if rows[g] >= len(groups[g]) * p:
                made[g].append(delayed(_partial)(waiting[g], about[g], axes))
                waiting[g], rows[g] = [], 0
        first += n
    for done, rest, told in zip(made, waiting, about, strict=True):
        if rest:
            done.append(delayed(_partial)(rest, told, axes))
    return made


def _tree(delayed: Any, parts: list[Any], split_every: int, merge: Callable[..., Any], *beside: Any) -> Any:
    """Return one result of many, merging ``split_every`` at a time; nothing is computed yet."""
    while len(parts) > 1:
        parts = [delayed(merge)(parts[i : i + split_every], *beside) for i in range(0, len(parts), split_every)]
    return parts[0]


def dask_map(reader: Reader, function: Callable[..., Any], beside: np.ndarray) -> list[Any]:
    """Return ``function(block, beside[rows])`` of every block of a reader's Dask array, made where its chunks are."""
    dask = optional("dask", "big", "a Dask array")
    with naming_source(reader.name):
        return list(dask.compute(*_each(dask.delayed, _whole_rows(reader), function, beside, reader.chosen)))


def _each(delayed: Any, X: Any, function: Callable[..., Any], beside: np.ndarray, chosen: np.ndarray | None) -> list:
    """Return ``function(block, beside[rows])`` of every block; nothing is computed yet."""
    parts = np.split(beside, np.cumsum(X.chunks[0])[:-1])
    blocks = X.to_delayed().ravel()
    return [delayed(_applied)(function, block, part, chosen) for block, part in zip(blocks, parts, strict=True)]


def _whole_rows(reader: Reader) -> Any:
    """Return a reader's Dask array in chunks of whole rows."""
    X = reader.dask
    return X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X


# ---- tasks ------------------------------------------------------------------------------------------------------


def _applied(function: Callable[..., Any], block: Any, beside: np.ndarray, chosen: np.ndarray | None) -> Any:
    rows = as_rows(block)
    return function(rows if chosen is None else rows[:, chosen], beside)


def _totals(n_contexts: int, names: Sequence[str] | None, block: Any, beside: np.ndarray) -> Any:
    """Return the sum of the rows of each context; with names of features, of counts divided by their depth."""
    codes, C = beside[:, 0].astype(np.int64), beside[:, 1:].astype(float)
    if names is not None:
        block = rates(block, C[:, -1], np.arange(len(codes)), names)
    return context_totals(n_contexts, block, codes, C if C.shape[1] else None, names is not None)


def _rows_of(block: Any, beside: Any, members: np.ndarray) -> tuple[Any, ...]:
    """Return the rows of a block that belong to a group: matrix, codes within the group, row numbers, covariates."""
    codes, C, first, chosen = beside
    mine = np.flatnonzero((codes >= members[0]) & (codes <= members[-1]))
    rows = as_rows(block)[mine]
    rows = rows if chosen is None else rows[:, chosen]
    return rows, codes[mine] - members[0], mine + first, None if C is None else C[mine]


def _partial(pieces: Sequence[tuple[Any, ...]], about: Any, axes: np.ndarray) -> Partial:
    """Return the sums over the rows of one group of contexts in a run of blocks."""
    members, contexts, names, sparse_products, divided, weigh = about
    sums = Accumulator(contexts, names, sparse_products, axes=axes, weigh=weigh, divided=divided)
    for rows, codes, numbers, C in pieces:
        sums.add(rows, codes, numbers, C)
    made = sums.finish()
    lower, finer = np.tril_indices(len(names)), np.tril_indices(len(axes))
    return {
        int(k): (made.counts[i], made.means[i], made.scatters[i][lower], made.along[i][finer], int(made.outlying[i]))
        for i, k in enumerate(members)
        if made.counts[i] or made.outlying[i]
    }


def _merged(parts: Sequence[Partial], axes: np.ndarray) -> Partial:
    """Return one partial result of several; the inputs stay as they are, for another worker may still need them."""
    present = sorted({k for part in parts for k in part})
    return {k: merged_sums([part[k] for part in parts if k in part], axes) for k in present}


def _unpacked(parts: Sequence[Partial], plan: Plan) -> Sums:
    """Return the sums of all groups of contexts as whole matrices."""
    size, p, q = len(plan.contexts), len(plan.names), len(plan.axes)
    counts, means = np.zeros(size, dtype=np.int64 if plan.weigh is None else np.float64), np.zeros((size, 2, p))
    outlying = np.zeros(size, dtype=np.int64)
    scatters, along = np.zeros((size, p, p)), np.zeros((size, q, q))
    lower, finer = np.tril_indices(p), np.tril_indices(q)
    for part in parts:
        for k in list(part):
            counts[k], means[k], scatters[k][lower], along[k][finer], outlying[k] = part.pop(k)
            mirror_lower(scatters[k])
            mirror_lower(along[k])
    return Sums(counts, means, scatters, plan.axes, along, outlying)
