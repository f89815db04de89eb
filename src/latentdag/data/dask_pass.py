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

from latentdag.data import adjust as adjustment
from latentdag.data import labels as lb
from latentdag.data import memory
from latentdag.data.accumulate import SPARSE_BELOW, Accumulator, density, mirror_lower, moments_of
from latentdag.data.adjust import adjusted
from latentdag.data.collinear import fine_axes
from latentdag.data.matrices import as_dense, as_rows, check_dtype, is_sparse, warn_of_counts
from latentdag.data.moments import REQUIRED, Moments, Sums, check_control, merged_sums, named_features
from latentdag.data.passes import LOOK
from latentdag.data.sources.opening import positions
from latentdag.optional import optional

#: Bytes of covariances that one task makes, at most (or one covariance, if that is larger).
GROUP_BYTES = 128 * 2**20

#: Count, mean (2, p), and lower triangles of the scatters of features and along axes, of each context that occurs.
Partial = dict[int, Sums]


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
    rows = X.chunks[0][0]
    axes = dask.delayed(_axes)(X.to_delayed().ravel()[0], plan.codes[:rows], chosen, len(more))
    parts = [_tree(dask.delayed, partials, axes, split_every) for partials in _partials(dask.delayed, X, plan, axes)]
    look = dask.delayed(_first_rows)(X.to_delayed().ravel()[0], chosen)
    parts, axes, first = dask.compute(parts, axes, look)
    warn_of_counts(first, "X")
    made = _unpacked(parts, axes, plan, control)
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
    check_dtype(X.dtype, "X")
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions (samples, features), got shape {X.shape}")
    if any(np.isnan(size) for size in X.chunks[0]):
        raise ValueError("the Dask array has chunks of unknown size: call X.compute_chunk_sizes() first")
    return (X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X), columns


def _partials(delayed: Any, X: Any, plan: _Plan, axes: Any) -> list[list[Any]]:
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
                made[g].append(delayed(_partial)(waiting[g], about[g], axes))
                waiting[g], rows[g] = [], 0
        first += n
    for done, rest, told in zip(made, waiting, about, strict=True):
        if rest:
            done.append(delayed(_partial)(rest, told, axes))
    return made


def _tree(delayed: Any, parts: Sequence[Any], axes: Any, split_every: int) -> Any:
    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    parts = list(parts)
    while len(parts) > 1:
        parts = [delayed(_merged)(parts[i : i + split_every], axes) for i in range(0, len(parts), split_every)]
    return parts[0]


# ---- tasks ------------------------------------------------------------------------------------------------------


def _rows_of(block: Any, beside: Any, members: np.ndarray) -> tuple[Any, ...]:
    """The rows of a block that belong to a group: matrix, codes within the group, row numbers, covariates."""
    codes, C, first, chosen = beside
    mine = np.flatnonzero((codes >= members[0]) & (codes <= members[-1]))
    rows = as_rows(block)[mine]
    rows = rows if chosen is None else rows[:, chosen]
    return rows, codes[mine] - members[0], mine + first, None if C is None else C[mine]


def _first_rows(block: Any, chosen: np.ndarray | None) -> Any:
    rows = as_rows(block)[:LOOK]
    return rows if chosen is None else rows[:, chosen]


def _axes(block: Any, codes: np.ndarray, chosen: np.ndarray | None, n_covariates: int) -> np.ndarray:
    """The axes along which all partial results are summed too, from the first block; none (0, p) if nobody needs it."""
    rows = as_dense(as_rows(block))
    rows = rows if chosen is None else rows[:, chosen]
    axes = fine_axes(rows, codes, n_covariates)
    return np.zeros((0, rows.shape[1] + n_covariates)) if axes is None else axes


def _partial(pieces: Sequence[tuple[Any, ...]], about: Any, axes: np.ndarray) -> Partial:
    members, contexts, columns = about
    first = pieces[0][0]
    sparse_products = not len(axes) and is_sparse(first) and density(first) < SPARSE_BELOW
    sums = Accumulator(contexts, columns, sparse_products, axes=axes)
    for rows, codes, numbers, C in pieces:
        sums.add(rows, codes, numbers, C)
    means = sums.centred()
    lower, finer = np.tril_indices(len(columns)), np.tril_indices(len(axes))
    return {
        int(k): (int(sums.counts[i]), means[i], sums.scatters[i][lower], sums.along[i][finer])
        for i, k in enumerate(members)
        if sums.counts[i]
    }


def _merged(parts: Sequence[Partial], axes: np.ndarray) -> Partial:
    """One partial result of several; the inputs stay as they are, for another worker may still need them."""
    present = sorted({k for part in parts for k in part})
    return {k: merged_sums([part[k] for part in parts if k in part], axes) for k in present}


def _unpacked(parts: Sequence[Partial], axes: np.ndarray, plan: _Plan, control: Hashable | None) -> Moments:
    size, p, q = len(plan.contexts), len(plan.columns), len(axes)
    counts, means = np.zeros(size, dtype=np.int64), np.zeros((size, 2, p))
    S, along = np.zeros((size, p, p)), np.zeros((size, q, q))
    lower, finer = np.tril_indices(p), np.tril_indices(q)
    for part in parts:
        for k in list(part):
            counts[k], means[k], S[k][lower], along[k][finer] = part.pop(k)
            mirror_lower(S[k])
            mirror_lower(along[k])
    return moments_of(plan.contexts, control, counts, means, S, plan.columns, axes, along)
