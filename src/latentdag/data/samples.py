"""A second look at the samples, for what two moments cannot tell: fourth moments, scores, blocks."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.rows import as_rows, dense_rows

if TYPE_CHECKING:
    from latentdag.data.moments import Moments

#: ``(X, contexts)``, a list of such pairs for data in several pieces, or :func:`latentdag.stream.pieces`.
Samples = Any


def context_blocks(data: Samples, contexts: Sequence[Hashable], n_features: int) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of one context at a time, as float64, in blocks that fit in memory.

    Parameters
    ----------
    data : (X, contexts), a list of such pairs, or :func:`latentdag.stream.pieces` of a file
        As for :meth:`latentdag.Moments.from_samples`. Rows of other contexts are passed over.
    contexts : labels, in the order of the moments
    n_features : int

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
                yield position[label], block
    missing = [label for label in contexts if label not in seen]
    if missing:
        raise ValueError(f"the samples have no rows of context {missing[0]!r}: pass the data the moments came from")


def deviations(
    data: Samples, m: "Moments", contexts: Sequence[Hashable] | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the samples behind moments, as deviations from the mean of their context.

    Parameters
    ----------
    data : as for :func:`context_blocks`
    m : Moments
        Of these samples. After the last block, ``ValueError`` if a context has more or fewer rows than it should.
    contexts : labels, optional
        Only these; by default all of ``m``.

    Yields
    ------
    k, X : position in ``m.contexts``, deviations (n, p)
    """
    at = [m.index(label) for label in (m.contexts if contexts is None else contexts)]
    seen = np.zeros(len(m.contexts), dtype=int)
    for j, block in context_blocks(data, [m.contexts[k] for k in at], m.n_features):
        seen[at[j]] += len(block)
        yield at[j], block - m.means[at[j]]
    for k in at:
        if seen[k] != m.counts[k]:
            raise ValueError(
                f"context {m.contexts[k]!r} has {seen[k]} rows in the data but {m.counts[k]} in the moments: pass the "
                "data they came from"
            )


def _pieces(data: Samples) -> Iterable[tuple[Any, Any]]:
    if hasattr(data, "pieces"):
        return data.pieces()
    if isinstance(data, tuple) and len(data) == 2:
        return [data]
    if isinstance(data, list) and all(isinstance(piece, tuple) and len(piece) == 2 for piece in data):
        return data
    raise ValueError("data must be a pair (X, contexts), a list of such pairs, or latentdag.stream.pieces(…)")
