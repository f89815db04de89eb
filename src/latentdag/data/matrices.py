"""Matrices of numbers as users have them, dense or sparse: what is accepted, and complaints that name the place.

Raw counts are recognised too. Their variance follows their mean, and their depth is in every covariance: the model
would find the depth. Counts are whole numbers from 0 on with a long tail. Indicators have no values beyond 1, grades
and codes end soon or have no tail, and readings of an instrument seldom reach 0: none of these cause a warning.
"""

import warnings
from collections.abc import Hashable, Iterator, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from latentdag.errors import RawCountsWarning

_BLOCK_BYTES = 64 * 2**20  # rows are taken to float64 in blocks of this size

#: float64 cannot tell whole numbers beyond this from their neighbours.
_WHOLE = 2**53

#: Features that never exceed ``GRADES`` are indicators or grades. Counts exceed ``FEW`` in some feature.
GRADES, FEW = 2, 5

#: The largest count of a feature, divided by its mean count, is at least this.
TAIL = 3.0


def is_sparse(X: Any) -> bool:
    """Return True for a sparse matrix or array of scipy."""
    return bool(sparse.issparse(X))


def as_rows(X: Any, name: str = "X") -> Any:
    """Return X as an ndarray or csr matrix of real numbers (n, p), in its own precision and without a copy if it can.

    Raises
    ------
    ValueError
        Where values would be lost or guessed: complex numbers, masked values, text, dates, whole numbers that float64
        cannot hold.
    """
    if isinstance(X, pd.DataFrame):
        return as_rows(numbers(X, name), name)
    if not is_sparse(X):
        X = _unmasked(X, name)
    check_dtype(X.dtype, name)
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (samples, features), got shape {X.shape}")
    if is_sparse(X):
        X = sparse.csr_matrix(X)
        try:
            X.check_format(full_check=True)  # compiled products trust the indices blindly
        except ValueError as error:
            raise ValueError(f"{name} holds a sparse matrix that is damaged: {error}") from None
    _check_whole(X.data if is_sparse(X) else X, name)
    return _as_double(X) if X.dtype.itemsize > 8 else X


def _as_double(X: Any) -> Any:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is reported by context and feature
        return X.astype(float)


def _check_whole(values: np.ndarray, name: str) -> None:
    """Complain about whole numbers that float64 cannot hold."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        largest = max(int(values.max()), -int(values.min()))
        if largest > _WHOLE:
            raise ValueError(
                f"{name} holds the whole number {largest}, and float64 cannot tell numbers beyond 2**53 from their "
                "neighbours: subtract an offset from that feature first"
            )


def check_dtype(dtype: Any, name: str) -> None:
    """Complain about a type of values that is not one of real numbers."""
    kind = getattr(dtype, "kind", "O")
    if kind == "c":
        raise ValueError(f"{name} holds complex numbers: take real and imaginary parts as features of their own")
    if kind not in "fiub":
        raise ValueError(f"{name} must be a matrix of numbers, but it holds {dtype} values: convert it first")


def _unmasked(X: Any, name: str) -> np.ndarray:
    """Return anything that numpy takes for an array as one; refuse masked values and rows of unequal length."""
    if isinstance(X, np.ma.MaskedArray):
        hidden = np.argwhere(np.ma.getmaskarray(X))
        if len(hidden):
            at = ", ".join(str(i) for i in hidden[0])
            raise ValueError(
                f"{name} has {len(hidden)} masked values, the first at [{at}]: drop those rows, or fill them in"
            )
        return np.ma.getdata(X)
    try:
        made = np.asarray(X)
    except ValueError:
        raise ValueError(f"{name} must be a matrix of numbers, its rows all of the same length") from None
    if made.dtype is np.dtype(object) and made.ndim == 0:
        raise ValueError(
            f"cannot read rows from {type(X).__name__!r}: pass a matrix, a table, an AnnData object or a path"
        )
    if made.dtype != object:
        return made
    wrong = _not_a_number(made)  # fractions and decimals are numbers that Python keeps as objects
    if wrong is not None:
        place = ", ".join(map(str, wrong))
        raise ValueError(f"{name} must be a matrix of numbers, but [{place}] is {made[wrong]!r}: convert it first")
    return made.astype(float)


def _not_a_number(X: np.ndarray) -> tuple[int, ...] | None:
    """Return the place of the first object that is no real number, or None."""
    others = (at for at, value in np.ndenumerate(X) if not isinstance(value, Real | np.bool_ | Decimal))
    return next(others, None)


def numbers(part: pd.DataFrame, where: str) -> np.ndarray:
    """Return the rows of a table as float64 (n, p).

    Raises
    ------
    ValueError
        Naming the first column that does not hold numbers.
    """
    made = np.empty(part.shape)
    for j, (name, dtype) in enumerate(part.dtypes.items()):
        column = part.iloc[:, j]
        own = isinstance(dtype, np.dtype)  # and not one of pandas' types, which know missing values
        real = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)
        if not real and not (getattr(dtype, "kind", "") == "O" and _not_a_number(column.to_numpy()) is None):
            raise ValueError(
                f"{where}: feature column {name!r} holds {dtype} values, not real numbers: drop it, convert it, or "
                "choose the features with features=[…]"
            )
        values = column.to_numpy() if own else column.to_numpy(dtype=float, na_value=np.nan)
        _check_whole(values, f"{where}: feature column {name!r}")
        made[:, j] = _as_double(values)
    return made


def as_dense(block: Any) -> np.ndarray:
    """Return rows as an ndarray, in their own precision."""
    return block.toarray() if is_sparse(block) else np.asarray(block)


def dense_rows(X: Any, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield chosen rows of a matrix as float64 blocks of bounded size."""
    step = max(1, _BLOCK_BYTES // (8 * X.shape[1]))
    for start in range(0, len(rows), step):
        yield as_dense(X[rows[start : start + step]]).astype(float, copy=False)


def taken(block: Any, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen rows of a block (n, p), a mask (n,), as float64."""
    parts = list(dense_rows(block, np.flatnonzero(chosen)))
    return np.concatenate([np.zeros((0, block.shape[1])), *parts])


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


def warn_of_counts(rows: Any, name: str) -> bool:
    """Warn, and return True, if rows (n, p), dense or sparse, look like raw counts."""
    counts = looks_like_counts(rows)
    if counts:
        warnings.warn(
            f"{name} looks like raw counts (whole numbers from 0 to {rows.max():g} with a long tail), and the depth "
            "would be found as a latent: say that they are counts, with Moments.from_counts or counts=True, or divide "
            "each row by its depth and take log1p first",
            RawCountsWarning,
            stacklevel=4,
        )
    return counts


def looks_like_counts(rows: Any) -> bool:
    """Return True if all values are whole numbers ≥ 0, and most features go from 0 to several times their mean."""
    values = rows.data if is_sparse(rows) else rows
    if rows.shape[0] == 0 or (values < 0).any() or (np.floor(values) != values).any():
        return False
    lowest, highest = (np.ravel(m.toarray() if is_sparse(m) else m) for m in (rows.min(axis=0), rows.max(axis=0)))
    mean = np.ravel(rows.mean(axis=0))
    counted = highest > GRADES
    tailed = (lowest == 0) & (highest >= TAIL * mean)
    return bool(highest.max() > FEW and tailed[counted].mean() > 0.5)
