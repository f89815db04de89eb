"""Rows of numbers as users have them, dense or sparse: what counts as a matrix, and sums over chosen rows."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from latentdag.core.linalg import symmetrize

_BLOCK_BYTES = 64 * 2**20  # rows are taken to float64 in blocks of this size


def is_sparse(X: Any) -> bool:
    return bool(sparse.issparse(X))


def as_matrix(X: Any) -> Any:
    """A 2-d float array or csr matrix; complaints name the column."""
    if isinstance(X, pd.DataFrame):
        bad = [c for c, dtype in X.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]
        if bad:
            raise ValueError(
                f"feature column {bad[0]!r} holds {X[bad[0]].dtype} values, not numbers: drop it or convert it"
            )
        X = X.to_numpy(dtype=float, na_value=np.nan)
    if is_sparse(X):
        X = sparse.csr_matrix(X)
    else:
        try:
            X = np.asarray(X)
            X = X if X.dtype.kind in "fiub" else X.astype(float)
        except (TypeError, ValueError):
            raise ValueError("X must be a matrix of numbers: ndarray, DataFrame or scipy sparse matrix") from None
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions (samples, features), got shape {X.shape}")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"X is empty: shape {X.shape}")
    return X


def mean_and_scatter(X: Any, rows: np.ndarray, label: Hashable, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Mean (p,) and scatter about it (p, p), accumulated in float64."""
    if is_sparse(X):
        part = X[rows].astype(float)
        check_finite(part, rows, label, names)
        mean = np.asarray(part.mean(axis=0)).ravel()
        scatter = (part.T @ part).toarray() - len(rows) * np.outer(mean, mean)
        return mean, symmetrize(scatter)
    step = max(1, _BLOCK_BYTES // (8 * X.shape[1]))
    # Accumulating about a pilot mean keeps digits when the means dwarf the deviations.
    with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite are reported below
        pilot = np.asarray(X[rows[:step]], dtype=float).mean(axis=0)
    total, scatter = np.zeros(X.shape[1]), np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(rows), step):
        index = rows[start : start + step]
        part = np.asarray(X[index], dtype=float)
        check_finite(part, index, label, names)
        part = part - pilot
        total += part.sum(axis=0)
        scatter += part.T @ part
    shift = total / len(rows)
    return pilot + shift, symmetrize(scatter - len(rows) * np.outer(shift, shift))


def dense_rows(X: Any, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Chosen rows of a matrix as float64 blocks of bounded size."""
    step = max(1, _BLOCK_BYTES // (8 * X.shape[1]))
    for start in range(0, len(rows), step):
        part = X[rows[start : start + step]]
        yield part.toarray().astype(float) if is_sparse(part) else np.asarray(part, dtype=float)


def check_finite(part: Any, rows: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    """Complain about values that are not finite in rows of one context (n, p), by context, feature and row."""
    values = part.data if is_sparse(part) else part
    if np.isfinite(values).all():
        return
    dense = part.toarray() if is_sparse(part) else part
    bad = np.argwhere(~np.isfinite(dense))
    i, j = bad[0]
    features = sorted({names[c] for c in bad[:, 1]})
    raise ValueError(
        f"context {label!r}: {len(bad)} values are not finite, the first {dense[i, j]} in feature {names[j]!r}, row "
        f"{rows[i]} (features concerned: {', '.join(map(repr, features[:5]))}{', …' if len(features) > 5 else ''}); "
        "drop or impute them"
    )
