"""A second look at data larger than memory: for fourth moments, scores and blocks of the bootstrap."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.adjust import RANK_TOLERANCE, solved
from latentdag.data.one_pass import FEW_VALUES
from latentdag.data.rows import as_dense
from latentdag.data.sources.opening import covariates, open_source
from latentdag.data.sources.reader import Reader


class Pieces:
    """Rows of a source as pairs (X, contexts), as often as they are asked for. Pass it wherever ``data=`` is asked.

    Made by :func:`pieces`.
    """

    def __init__(self, source: Any, contexts: Any, options: dict[str, Any], block_rows: int | None):
        self.source, self.contexts, self.options, self.block_rows = source, contexts, options, block_rows
        self._beta: np.ndarray | None = None  # of the covariates, found once

    def pieces(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Every row once: (X, contexts), a block at a time; less the covariates' part, where there are any."""
        reader = open_source(self.source, self.contexts, **self.options)
        try:
            codes, present = lb.factorize(reader.labels, reader.n_rows)
            labels = np.empty(len(present), dtype=object)
            labels[:] = present
            C, _ = covariates(reader, self.options["adjust"])
            if C is not None and self._beta is None:
                self._beta = self._coefficients(reader, C, codes)
            for rows, block in self._blocks(reader):
                yield block if C is None else as_dense(block) - C[rows] @ self._beta, labels[codes[rows]]
        finally:
            reader.close()

    def _blocks(self, reader: Reader) -> Iterator[tuple[slice, Any]]:
        row, step = 0, self.block_rows or max(1, FEW_VALUES // len(reader.feature_names))
        for block in reader.blocks(step):
            yield slice(row, row + block.shape[0]), block
            row += block.shape[0]

    def _coefficients(self, reader: Reader, C: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """As :func:`latentdag.data.adjust.coefficients`, from the samples and in one pass over them."""
        counts = np.bincount(codes)
        means = np.array([np.bincount(codes, weights=column) / counts for column in C.T]).T
        within = C - means[codes]
        within[:, (within**2).sum(axis=0) <= RANK_TOLERANCE * (C**2).sum(axis=0)] = 0.0
        cross = sum(within[rows].T @ as_dense(block) for rows, block in self._blocks(reader))
        return solved(within.T @ within, np.asarray(cross))


def pieces(
    source: Any,
    contexts: Any,
    *,
    feature_names: Iterable[str] | None = None,
    layer: str | None = None,
    features: Any = None,
    adjust: Any = None,
    block_rows: int | None = None,
) -> Pieces:
    """The samples of a source that does not fit in memory, for functions that take ``data=``.

    Parameters
    ----------
    source, contexts, feature_names, layer, features, adjust, block_rows
        As for :func:`latentdag.stream.moments`; the same as there give the samples that those moments are of.

    Examples
    --------
    >>> X, labels = np.random.default_rng(0).normal(size=(300, 2)), ["WT"] * 200 + ["A"] * 100
    >>> data = pieces(X, labels, block_rows=128)
    >>> [(block.shape, len(contexts)) for block, contexts in data.pieces()]
    [((128, 2), 128), ((128, 2), 128), ((44, 2), 44)]
    """
    options = {"feature_names": feature_names, "layer": layer, "features": features, "adjust": adjust}
    return Pieces(source, contexts, options, block_rows)
