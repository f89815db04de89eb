"""Counts: rows are divided by their depth, and what counting adds to the variances is known.

A count is Poisson given the rate r of its feature and the depth s of its row, x ~ Poisson(s r). With y = x / s,

    E[y | r, s] = r,    Var[y | r, s] = r / s,    so that    Cov[y] = Cov[r] + diag(D),    D = E[r / s] = E[x / s²].

D is the mean of y / s, so a column 1/s beside the features gives it in the same pass: the mean of a product is a
covariance plus a product of means. Nothing else in the pass knows of counts. docs/math.md, Counts.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from latentdag.core.linalg import symmetrize
from latentdag.data.matrices import is_sparse
from latentdag.data.sources.reader import Mapped, Reader
from latentdag.errors import LogRatesWarning

if TYPE_CHECKING:  # moments are made further up
    from latentdag.data.moments import Moments

#: Share of a mean square below which a mean of products is rounding: no two counts ever came together.
NOTHING = 1e-10

#: Smallest eigenvalue, relative to the largest, that is called negative, and not rounding.
NEGATIVE = -1e-10


def inverse_depths(reader: Reader, depth: Any, over: Callable[..., list[np.ndarray]]) -> np.ndarray:
    """Return 1 / depth (n,) of the rows of a reader.

    Parameters
    ----------
    reader : Reader
    depth : (n,) positive numbers, one for all rows, the name of a column, or None
        None stands for the sums of the rows over all features of the source, divided by their mean.
    over : function
        Returns ``function(block, beside[rows])`` of every block, given the function and what is beside the rows (n,).

    Raises
    ------
    ValueError
        Naming a row whose depth is missing or not positive.
    """
    n = reader.n_rows
    if depth is None:
        chosen, reader.chosen = reader.chosen, None
        try:
            totals = np.concatenate(over(partial(_totals, reader.feature_names), np.arange(n)))
        finally:
            reader.chosen = chosen
        given, s = totals, totals / (totals.mean() or 1.0)
    else:
        given = np.asarray(reader.columns([depth])[depth] if isinstance(depth, str) else depth)
        if given.shape not in ((), (n,)):
            raise ValueError(f"{reader.name}: depth has shape {given.shape} for {n} rows: one number per row is needed")
        given = np.broadcast_to(given, n)
        s = pd.to_numeric(pd.Series(given), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    wrong = np.flatnonzero(~((s > 0) & np.isfinite(s)))
    if len(wrong):
        what = "has no counts at all, and so no depth" if depth is None else f"has the depth {given[wrong[0]]}"
        raise ValueError(
            f"{reader.name}: row {wrong[0]} {what} ({len(wrong)} such rows): drop these rows, or give each a positive "
            "number as depth=…"
        )
    return np.asarray(1 / s)


def _totals(names: Sequence[str], block: Any, rows: np.ndarray) -> np.ndarray:
    """Return the sum of each row (n,) of counts."""
    _check_whole(block, rows, names)
    return np.asarray(block.sum(axis=1, dtype=float)).ravel()


def rates_of(reader: Reader, inverse: np.ndarray, step: int) -> Reader:
    """Return a reader of counts, ``step`` rows at a time, as one of counts divided by the depths of their rows.

    It raises ``ValueError`` with the first value that is no count.

    Parameters
    ----------
    reader : Reader
    inverse : (n,) 1 / depth
    step : int
    """
    names, beside = reader.feature_names, np.column_stack([np.arange(len(inverse)), inverse])
    made = Mapped(reader, partial(_rates, names), names, beside, step)
    made.sparse = reader.sparse
    return made


def _rates(names: Sequence[str], block: Any, beside: np.ndarray) -> Any:
    """Return counts (n, p), dense or csr, divided by depths; ``beside`` (n, 2) are row numbers and 1 / depth."""
    _check_whole(block, beside[:, 0].astype(int), names)
    inverse = beside[:, 1:]
    return sparse.csr_matrix(block.multiply(inverse)) if is_sparse(block) else block * inverse


def _check_whole(block: Any, rows: np.ndarray, names: Sequence[str]) -> None:
    """Complain about values that are not whole numbers from 0 on, by row, feature and value."""

    def right(values: Any) -> np.ndarray:
        return (values >= 0) & (np.floor(values) == values) & np.isfinite(values)

    if right(block.data if is_sparse(block) else block).all():
        return
    dense = block.toarray() if is_sparse(block) else block
    bad = np.argwhere(~right(dense))
    i, j = bad[0]
    raise ValueError(
        f"row {rows[i]}: feature {names[j]!r} is {dense[i, j]:g} ({len(bad)} such values here), and counts are whole "
        "numbers from 0 on: pass the counts as they were before anything was done to them; values that were normalised "
        "go to Moments.from_samples"
    )


def with_counting_noise(joint: "Moments", n_features: int) -> "Moments":
    """Return moments without their last column, 1 / depth, and with the noise that follows from it.

    Parameters
    ----------
    joint : Moments
        Of rates, of covariates, and of 1 / depth.
    n_features : int
        How many of the columns are rates: only these have noise.
    """
    n, p = joint.counts[:, None], joint.n_features - 1
    noise = np.zeros((len(joint.contexts), p))
    products = (n - 1) / n * joint.covariances[:, :, p] + joint.means * joint.means[:, p:]
    noise[:, :n_features] = np.maximum(products[:, :n_features], 0.0)  # rounding could leave less
    return replace(
        joint,
        means=joint.means[:, :p].copy(),
        covariances=joint.covariances[:, :p, :p].copy(),
        feature_names=joint.feature_names[:p],
        rests=joint.rests[:, :p].copy(),
        noise=noise,
    )


def log_rates(m: "Moments") -> "Moments":
    """Return the moments of logarithms of rates; see :meth:`latentdag.Moments.log_rates`."""
    assert m.noise is not None
    means, covariances, noise = (np.empty_like(part) for part in (m.means, m.covariances, m.noise))
    moved: list[tuple[float, int]] = []
    for k, (n, mean, S, D) in enumerate(zip(m.counts, m.means, m.covariances, m.noise, strict=True)):
        M = (n - 1) / n * S + np.outer(mean, mean)  # of products of two different counts: E[r_i r_j]
        least = NOTHING * np.sqrt(np.outer(np.diagonal(M), np.diagonal(M)))
        M -= np.diag(D)
        never = np.argwhere(~(least < M))
        if len(never):
            one, other = (m.feature_names[j] for j in never[0])
            what = f"has two counts of feature {one!r}" if one == other else f"has counts of both {one!r} and {other!r}"
            raise ValueError(
                f"context {m.contexts[k]!r}: no row {what}, so the covariance of log rates cannot be estimated "
                f"({len(np.unique(never))} features concerned): leave the rarest out, or use scale='linear'"
            )
        L = np.log(M / np.outer(mean, mean))
        means[k], noise[k] = np.log(mean) - np.diagonal(L) / 2, D / mean**2
        covariances[k] = symmetrize(L + np.diag(noise[k]))
        w, V = np.linalg.eigh(covariances[k])
        if w[0] < NEGATIVE * w[-1]:
            covariances[k] = symmetrize((V * np.maximum(w, 0.0)) @ V.T)
            moved.append((w[0] / w[-1], k))
    if moved:
        share, k = min(moved)
        warnings.warn(
            f"context {m.contexts[k]!r}{f' and {len(moved) - 1} others' if len(moved) > 1 else ''}: the covariance of "
            f"log rates had negative eigenvalues, down to {share:.1%} of the largest, and the nearest one without them "
            "is taken: there are few rows for so many features. Take fewer features, or scale='linear'",
            LogRatesWarning,
            stacklevel=3,
        )
    return replace(m, means=means, covariances=covariances, noise=noise, rests=np.zeros_like(means))
