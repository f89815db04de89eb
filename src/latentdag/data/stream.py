"""Moments of data larger than memory: files and folders, AnnData, Dask arrays. This is the public ``ld.stream``."""

from collections.abc import Hashable
from typing import Any

from latentdag.data.labels import REQUIRED
from latentdag.data.moments import SPLIT_EVERY, Moments, moments
from latentdag.data.second_pass import Pieces, pieces

__all__ = ["Pieces", "dask_moments", "moments", "pieces"]


def dask_moments(
    X: Any,
    contexts: Any,
    control: Hashable | None = REQUIRED,
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
