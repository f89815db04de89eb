"""Moments of a Dask array, on any of Dask's schedulers.

Contexts are dealt into groups whose covariances are small together, and rows into runs of blocks with at least as many
rows of the group as its covariances have: no partial result is ever larger than the rows behind it, and none holds the
covariances of all contexts. Partial results meet in a tree of small fan-in. All tasks are pure functions of their
inputs, so what a lost worker had done is done again elsewhere.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latentdag import adjustment
from latentdag import labels as lb
from latentdag.adjustment import adjusted
from latentdag.moments import REQUIRED, Moments, check_control, named_features
from latentdag.rows import is_sparse
from latentdag.stream import memory
from latentdag.stream.accumulate import SPARSE_BELOW, Accumulator, density, mirror_lower
from latentdag.stream.optional import optional
from latentdag.stream.sources import positions

#: Bytes of covariances that one task makes, at most (or one covariance, if that is larger).
GROUP_BYTES = 128 * 2**20

#: Count, mean (p,) and lower triangle of the scatter (p (p + 1) / 2) of each context that occurs.
Partial = dict[int, tuple[int, np.ndarray, np.ndarray]]


def dask_moments(
    X: Any,
    contexts: Any,
    control: Hashable | None = REQUIRED,
    *,
    feature_names: Iterable[str] | None = None,
    features: Any = None,
    adjust: Any = None,
    split_every: int = 4,
    memory_limit: float | None = None,
) -> Moments:
    """Moments of a Dask array, where its chunks are.

    Parameters
    ----------
    X : (n, p) Dask array
        Of ndarray or csr chunks with known sizes.
    contexts : (n,) labels
    control : label
    feature_names, features, memory_limit
        As for :func:`latentdag.stream.moments`. The memory is that of this process.
    adjust : table with one row per sample, optional
    split_every : int
        Partial results that meet in one task.

    Returns
    -------
    Moments
    """
    dask = optional("dask", "big", "a Dask array")
    optional("dask.array", "big", "a Dask array")
    X, columns = _one_column_chunk(X)
    n, p = X.shape
    names = named_features(feature_names if feature_names is not None else columns, p)
    chosen = positions(features, names, "X")
    codes, present = lb.factorize(contexts if hasattr(contexts, "__len__") else np.asarray(contexts), n)
    control = check_control(control, present, np.bincount(codes))
    C, more = (None, ()) if adjust is None else adjustment.design(adjust, n)
    kept = names if chosen is None else tuple(names[j] for j in chosen)
    columns_all = (*kept, *more)
    order = sorted(range(len(present)), key=lambda k: (control is not None and present[k] != control, k))
    labels = tuple(present[k] for k in order)
    memory.require("X", len(labels), len(columns_all), 2, 0, memory_limit)  # packed parts, and what they become
    plan = _Plan(labels, columns_all, chosen, np.argsort(order)[codes].astype(np.int32), C)
    parts = [_tree(dask.delayed, partials, split_every) for partials in _partials(dask.delayed, X, plan)]
    counts, means, covariances = _unpacked(dask.compute(*parts), len(labels), len(columns_all))
    made = Moments(labels, control, counts, means, covariances, columns_all)
    return made if C is None else adjusted(made, C.shape[1])


@dataclass(frozen=True)
class _Plan:
    contexts: tuple[Hashable, ...]
    columns: tuple[str, ...]
    chosen: np.ndarray | None
    codes: np.ndarray
    C: np.ndarray | None


def _one_column_chunk(X: Any) -> tuple[Any, list[str] | None]:
    """Chunks of whole rows; and the names of the columns, if it was a Dask DataFrame."""
    columns = None
    if hasattr(X, "to_dask_array"):
        columns = [str(name) for name in X.columns]
        X = X.to_dask_array(lengths=True)
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions (samples, features), got shape {X.shape}")
    if any(np.isnan(size) for size in X.chunks[0]):
        raise ValueError("the Dask array has chunks of unknown size: call X.compute_chunk_sizes() first")
    return (X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X), columns


def _partials(delayed: Any, X: Any, plan: _Plan) -> list[list[Any]]:
    """For every group of contexts, partial results over runs of blocks; nothing is computed yet."""
    size, p = len(plan.contexts), len(plan.columns)
    per_group = int(max(1, GROUP_BYTES // (8 * p * p)))
    groups = np.array_split(np.arange(size), -(-size // per_group))
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    about = [delayed((group, tuple(plan.contexts[k] for k in group), plan.columns)) for group in groups]
    waiting: list[list[Any]] = [[] for _ in groups]
    rows = [0] * len(groups)
    made: list[list[Any]] = [[] for _ in groups]
    first = 0
    for block, n in zip(X.to_delayed().ravel(), X.chunks[0], strict=True):
        codes = plan.codes[first : first + n]
        # One node for what all groups need of a block's rows, so that the graph stays small.
        beside = delayed((codes, None if plan.C is None else plan.C[first : first + n], first, plan.chosen))
        held = np.bincount(group_of[codes], minlength=len(groups))
        for g in np.flatnonzero(held):
            waiting[g].append(delayed(_rows_of)(block, beside, groups[g]))
            rows[g] += int(held[g])
            if rows[g] >= len(groups[g]) * p:
                made[g].append(delayed(_partial)(waiting[g], about[g]))
                waiting[g], rows[g] = [], 0
        first += n
    for done, rest, told in zip(made, waiting, about, strict=True):
        if rest:
            done.append(delayed(_partial)(rest, told))
    return made


def _tree(delayed: Any, parts: Sequence[Any], split_every: int) -> Any:
    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    parts = list(parts)
    while len(parts) > 1:
        parts = [delayed(_merged)(parts[i : i + split_every]) for i in range(0, len(parts), split_every)]
    return parts[0]


# ---- tasks ------------------------------------------------------------------------------------------------------


def _rows_of(block: Any, beside: Any, members: np.ndarray) -> tuple[Any, ...]:
    """The rows of a block that belong to a group: matrix, codes within the group, row numbers, covariates."""
    codes, C, first, chosen = beside
    mine = np.flatnonzero((codes >= members[0]) & (codes <= members[-1]))
    rows = sparse.csr_matrix(block)[mine] if is_sparse(block) else np.asarray(block)[mine]
    rows = rows if chosen is None else rows[:, chosen]
    return rows, codes[mine] - members[0], mine + first, None if C is None else C[mine]


def _partial(pieces: Sequence[tuple[Any, ...]], about: Any) -> Partial:
    members, contexts, columns = about
    first = pieces[0][0]
    sums = Accumulator(contexts, columns, is_sparse(first) and density(first) < SPARSE_BELOW)
    for rows, codes, numbers, C in pieces:
        sums.add(rows, codes, numbers, C)
    means, scatters = sums.centred()
    lower = np.tril_indices(len(columns))
    return {
        int(k): (int(sums.counts[i]), means[i], scatters[i][lower]) for i, k in enumerate(members) if sums.counts[i]
    }


def _merged(parts: Sequence[Partial]) -> Partial:
    """Chan's update, context by context; the inputs stay as they are, for another worker may still need them."""
    merged: Partial = {}
    for k in sorted({k for part in parts for k in part}):
        found = [part[k] for part in parts if k in part]
        n, mean, scatter = found[0]
        if len(found) > 1:
            scatter, lower = scatter.copy(), np.tril_indices(len(mean))
        for m, other, more in found[1:]:
            gap = other - mean
            scatter += more
            scatter += (n * m / (n + m)) * np.outer(gap, gap)[lower]
            mean = mean + gap * (m / (n + m))
            n += m
        merged[k] = (n, mean, scatter)
    return merged


def _unpacked(parts: Sequence[Partial], size: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts, means, covariances = np.zeros(size, dtype=np.int64), np.zeros((size, p)), np.zeros((size, p, p))
    lower = np.tril_indices(p)
    for part in parts:
        for k in list(part):
            counts[k], means[k], scatter = part.pop(k)
            covariances[k][lower] = scatter / max(counts[k] - 1, 1)
            mirror_lower(covariances[k])
    return counts, means, covariances
