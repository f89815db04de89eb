"""A second look at data larger than memory: for fourth moments, scores and blocks of the bootstrap."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from latentdag import labels as lb
from latentdag.stream.one_pass import BLOCK_VALUES
from latentdag.stream.sources import open_source


class Pieces:
    """Rows of a source as pairs (X, contexts), as often as they are asked for. Pass it wherever ``data=`` is asked.

    Made by :func:`pieces`.
    """

    def __init__(self, source: Any, contexts: Any, options: dict[str, Any], block_rows: int | None):
        self.source, self.contexts, self.options, self.block_rows = source, contexts, options, block_rows

    def pieces(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Every row once: (X, contexts), a block at a time."""
        reader = open_source(self.source, self.contexts, **self.options)
        try:
            codes, present = lb.factorize(reader.labels, reader.n_rows)
            labels = np.empty(len(present), dtype=object)
            labels[:] = present
            step = self.block_rows or max(1, BLOCK_VALUES // (4 * len(reader.feature_names)))
            row = 0
            for block in reader.blocks(step):
                yield block, labels[codes[row : row + block.shape[0]]]
                row += block.shape[0]
        finally:
            reader.close()


def pieces(
    source: Any,
    contexts: Any,
    *,
    feature_names: Iterable[str] | None = None,
    layer: str | None = None,
    features: Any = None,
    exclude: Any = None,
    block_rows: int | None = None,
) -> Pieces:
    """The samples of a source that does not fit in memory, for functions that take ``data=``.

    Parameters
    ----------
    source, contexts, feature_names, layer, features
        As for :func:`latentdag.stream.moments`.
    exclude : names of columns, optional
        Columns of a table that are no features (covariates, say).
    block_rows : int, optional

    Examples
    --------
    >>> from latentdag import Moments
    >>> X, labels = np.random.default_rng(0).normal(size=(300, 2)), ["WT"] * 200 + ["A"] * 100
    >>> data = pieces(X, labels, block_rows=128)
    >>> [(block.shape, len(contexts)) for block, contexts in data.pieces()]
    [((128, 2), 128), ((128, 2), 128), ((44, 2), 44)]
    """
    options = {"feature_names": feature_names, "layer": layer, "features": features, "adjust": exclude}
    return Pieces(source, contexts, options, block_rows)
