"""Data larger than memory: their moments, and their samples once more. This is the public ``ld.stream``.

Two moments cannot tell everything: fourth moments, scores and blocks of the bootstrap need the samples again. Functions
that do take ``data=``: a pair (X, contexts), a list of such pairs, or :func:`pieces` of a source that does not fit in
memory.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.accumulate import OUTLYING
from latentdag.data.adjust import solved, within_contexts
from latentdag.data.basis import Basis
from latentdag.data.cloud import Cloud
from latentdag.data.counts import inverse_depths, rates_of
from latentdag.data.matrices import as_dense, as_rows, dense_rows
from latentdag.data.moments import SPLIT_EVERY, Moments, moments
from latentdag.data.passes import block_map
from latentdag.data.prepare import FEW_VALUES
from latentdag.data.sources.opening import covariates, open_source
from latentdag.data.sources.reader import Reader

__all__ = ["Pieces", "dask_moments", "moments", "pieces"]


def dask_moments(
    X: Any,
    contexts: Any,
    control: Hashable | None = lb.REQUIRED,
    *,
    split_every: int = SPLIT_EVERY,
    **options: Any,
) -> Moments:
    """Return the moments of a Dask array, made where its chunks are.

    Parameters
    ----------
    X : (n, p) Dask array
        Of ndarray or csr chunks with known sizes.
    contexts : (n,) labels
    control : label
    split_every : int
        Partial results that meet in one task.
    **options
        Those of :func:`latentdag.stream.moments`: ``adjust`` is a table with one row per sample, ``memory_limit`` that
        of this process.

    Returns
    -------
    Moments
    """
    return moments(X, contexts, control, split_every=split_every, **options)


#: ``(X, contexts)``, a list of such pairs for data in several pieces, or :func:`latentdag.stream.pieces`.
Samples = Any


def context_blocks(
    data: Samples, contexts: Sequence[Hashable], n_features: int, basis: Basis | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield rows of one context at a time, as float64, in blocks that fit in memory.

    Parameters
    ----------
    data : (X, contexts), a list of such pairs, or :func:`latentdag.stream.pieces` of a file
        As for :meth:`latentdag.Moments.from_samples`. Rows of other contexts are passed over.
    contexts : labels, in the order of the moments
    n_features : int
    basis : Basis, optional
        Rows are given in these dimensions.

    Yields
    ------
    k, X : position in ``contexts``, rows (n, p)
    """
    position = {label: k for k, label in enumerate(contexts)}
    seen = set()
    for X, row_contexts in _pieces(data):
        X = as_rows(X)
        if X.shape[1] != n_features:
            raise ValueError(f"the samples have {X.shape[1]} features, the moments {n_features}: pass the same columns")
        codes, present = lb.factorize(row_contexts, X.shape[0])
        for code, label in enumerate(present):
            if label not in position:
                continue
            seen.add(label)
            for block in dense_rows(X, np.flatnonzero(codes == code)):
                yield position[label], block if basis is None else basis.coordinates(block)
    missing = [label for label in contexts if label not in seen]
    if missing:
        raise ValueError(f"the samples have no rows of context {missing[0]!r}: pass the data the moments came from")


def deviations(
    data: Samples, m: Moments, contexts: Sequence[Hashable] | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the samples behind moments, as deviations from the mean of their context.

    Parameters
    ----------
    data : as for :func:`context_blocks`
    m : Moments
        Of these samples. After the last block, ``ValueError`` if a context has more or fewer rows than it should. If
        they are robust, outlying rows are passed over, and the others multiplied by the root of their weight.
    contexts : labels, optional
        Only these; by default all of ``m``.

    Yields
    ------
    k, X : position in ``m.contexts``, deviations (n, p)
    """
    at = [m.index(label) for label in (m.contexts if contexts is None else contexts)]
    seen = np.zeros(len(m.contexts), dtype=int)
    expected = m.counts if m.outliers is None else m.counts + m.outliers
    clouds = {} if m.outliers is None else {k: Cloud(m.means[k], m.covariances[k], m.counts[k]) for k in at}
    for j, block in context_blocks(data, [m.contexts[k] for k in at], len(m.source_features), m.basis):
        seen[at[j]] += len(block)
        rows = block - m.means[at[j]]
        if clouds:
            w = clouds[at[j]].weights(block)
            rows = np.sqrt(w[w >= OUTLYING] * clouds[at[j]].cuts.gamma)[:, None] * rows[w >= OUTLYING]
        yield at[j], rows
    for k in at:
        if seen[k] != expected[k]:
            raise ValueError(
                f"context {m.contexts[k]!r} has {seen[k]} rows in the data but {expected[k]} in the moments: pass the "
                "data they came from"
            )


def _pieces(data: Samples) -> Iterable[tuple[Any, Any]]:
    """Return the pairs (X, contexts) that ``data`` stands for."""
    if hasattr(data, "pieces"):
        return data.pieces()
    if isinstance(data, tuple) and len(data) == 2:
        return [data]
    if isinstance(data, list) and all(isinstance(piece, tuple) and len(piece) == 2 for piece in data):
        return data
    raise ValueError("data must be a pair (X, contexts), a list of such pairs, or latentdag.stream.pieces(…)")


class Pieces:
    """The rows of a source as pairs (X, contexts), read again whenever they are asked for.

    Made by :func:`pieces`; functions that need the samples take it as ``data=``.
    """

    def __init__(self, source: Any, contexts: Any, options: dict[str, Any], block_rows: int | None, counts: bool):
        self.source, self.contexts, self.options, self.block_rows = source, contexts, options, block_rows
        self.counts = counts
        self._inverse: np.ndarray | None = None  # of the depths, found once
        self._beta: np.ndarray | None = None  # of the covariates, found once

    def pieces(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield every row once, as pairs (X, contexts) of one block each; covariates, if any, are regressed out."""
        reader = open_source(self.source, self.contexts, **self.options)
        try:
            codes, present = lb.factorize(reader.labels, reader.n_rows)
            labels = np.empty(len(present), dtype=object)
            labels[:] = present
            C, _ = covariates(reader, self.options["adjust"])
            step = self.block_rows or max(1, FEW_VALUES // len(reader.all_features))
            rows = self._rates(reader, step) if self.counts else reader
            if C is not None and self._beta is None:
                within = within_contexts(C, codes)
                self._beta = solved(within.T @ within, sum(block_map(rows, step, _cross, within)))
            first = 0
            for block in rows.blocks(step):
                here = slice(first, first := first + block.shape[0])
                yield block if C is None else as_dense(block) - C[here] @ self._beta, labels[codes[here]]
        finally:
            reader.close()

    def _rates(self, reader: Reader, step: int) -> Reader:
        if self._inverse is None:
            self._inverse = inverse_depths(reader, self.options["depth"], partial(block_map, reader, step))
        return rates_of(reader, self._inverse, step)


def _cross(block: Any, within: np.ndarray) -> np.ndarray:
    return np.asarray(within.T @ as_dense(block))


def pieces(
    source: Any,
    contexts: Any,
    *,
    feature_names: Iterable[str] | None = None,
    layer: str | None = None,
    features: Any = None,
    adjust: Any = None,
    counts: bool = False,
    depth: Any = None,
    only: Iterable[Hashable] | None = None,
    block_rows: int | None = None,
) -> Pieces:
    """Return the samples of a source that does not fit in memory, for functions that take ``data=``.

    Parameters
    ----------
    source, contexts, feature_names, layer, features, adjust, counts, depth, only, block_rows
        As for :func:`latentdag.stream.moments`; the same as there give the samples that those moments are of. Those of
        counts are rates; single rows have no logarithms of rates.

    Examples
    --------
    >>> X, labels = np.random.default_rng(0).normal(size=(300, 2)), ["WT"] * 200 + ["A"] * 100
    >>> data = pieces(X, labels, block_rows=128)
    >>> [(block.shape, len(contexts)) for block, contexts in data.pieces()]
    [((128, 2), 128), ((128, 2), 128), ((44, 2), 44)]
    """
    options = {"feature_names": feature_names, "layer": layer, "features": features, "adjust": adjust}
    return Pieces(source, contexts, options | {"depth": depth, "only": only}, block_rows, counts)


def spread_within(data: Samples, contexts: Sequence[Hashable], n_features: int) -> np.ndarray:
    """Return the variance (p,) of every feature over all rows of these contexts, about the mean of their context.

    The labels of contexts play no other part: a feature does not count as variable because a perturbation moves it.
    Where values are not finite, so is the variance: it is infinite.
    """
    n, means, total = np.zeros(len(contexts)), np.zeros((len(contexts), n_features)), np.zeros(n_features)
    for k, rows in context_blocks(data, contexts, n_features):
        mean, before, n[k] = rows.mean(axis=0), n[k], n[k] + len(rows)
        gap = mean - means[k]
        total += ((rows - mean) ** 2).sum(axis=0) + gap**2 * (before * len(rows) / n[k])  # Chan's update
        means[k] += gap * (len(rows) / n[k])
    return np.nan_to_num(total / max(n.sum() - len(n), 1), nan=np.inf)
