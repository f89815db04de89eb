"""Moments of data larger than memory: files and folders, AnnData, Dask arrays. This is the public ``ld.stream``."""

from collections.abc import Hashable, Iterable
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
    feature_names: Iterable[str] | None = None,
    features: Any = None,
    adjust: Any = None,
    robust: bool = False,
    split_every: int = SPLIT_EVERY,
    memory_limit: float | None = None,
) -> Moments:
    """Return the moments of a Dask array, made where its chunks are.

    Parameters
    ----------
    X : (n, p) Dask array
        Of ndarray or csr chunks with known sizes.
    contexts : (n,) labels
    control : label
    feature_names, features, robust, memory_limit
        As for :func:`latentdag.stream.moments`. The memory is that of this process.
    adjust : table with one row per sample, optional
    split_every : int
        Partial results that meet in one task.

    Returns
    -------
    Moments
    """
    options = {"feature_names": feature_names, "features": features, "adjust": adjust, "robust": robust}
    return moments(X, contexts, control, split_every=split_every, memory_limit=memory_limit, **options)
