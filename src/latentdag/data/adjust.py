"""Covariates regressed out of moments: depth, batch and the like.

Counts, means and covariances of features and covariates *together* are all that least squares needs, so nothing has to
be read twice. With W the scatter within contexts, pooled over all of them, the coefficients

    β = W_cc⁺ W_cx        (covariates × features)

are those of a regression of every feature on the covariates with one intercept per context. That is the usual
``regress_out`` of single-cell work, except that differences *between* contexts play no part in β: a perturbation that
also changes the depth keeps its effect. Every context's covariance becomes that of the residuals x − βᵀc, and every
mean is moved to where the covariates have their common mean.
"""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.core.linalg import symmetrize, unit_diagonal
from latentdag.data import labels as lb
from latentdag.data.collinear import FineScale, two_sum
from latentdag.errors import ConfoundedCovariateWarning

if TYPE_CHECKING:  # moments are made further up; here they come in, and leave with other means and covariances
    from latentdag.data.moments import Moments

#: Directions of the covariates with less than this share of the largest variance are taken as constant.
RANK_TOLERANCE = 1e-10


def adjusted(joint: "Moments", n_covariates: int) -> "Moments":
    """Return the moments of the features with the covariates regressed out.

    Parameters
    ----------
    joint : Moments
        Of features and covariates together, the covariates last.
    n_covariates : int

    Returns
    -------
    Moments
        Of the first p − c features: residual covariances (divisor n − 1), means at the covariates' common mean.

    Examples
    --------
    >>> from latentdag import Moments
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> depth = rng.normal(size=(500, 1))
    >>> X = rng.normal(size=(500, 2)) + 3 * depth
    >>> m = Moments.from_samples(np.hstack([X, depth]), ["WT"] * 250 + ["A"] * 250, control="WT")
    >>> bool(adjusted(m, 1).covariances.max() < 1.5 < m.covariances.max())
    True
    """
    p = joint.n_features - n_covariates
    if not 0 < n_covariates < joint.n_features:
        raise ValueError(f"{n_covariates} covariates among {joint.n_features} columns: at least one of each is needed")
    varies = _varying(joint, n_covariates)
    beta = _regressed(joint.counts, joint.covariances, varies)
    center = joint.counts @ joint.means[:, p:] / joint.counts.sum()
    shift = joint.rests[:, :p] - (joint.means[:, p:] - center) @ beta
    means, rests = two_sum(joint.means[:, :p], shift)
    covariances, fine = residual_covariances(joint.covariances, beta), None
    if joint.fine is not None and not joint.fine.axes[:p, p:].any():  # covariates are axes of their own
        along = joint.fine.covariances
        fine = FineScale(joint.fine.axes[:p, :p], residual_covariances(along, _regressed(joint.counts, along, varies)))
    names, noise = joint.feature_names[:p], None if joint.noise is None else joint.noise[:, :p]
    return replace(
        joint, means=means, covariances=covariances, feature_names=names, fine=fine, rests=rests, noise=noise
    )


def coefficients(joint: "Moments", n_covariates: int) -> np.ndarray:
    """Return β (c, p), the least squares of the features on the covariates, with one intercept per context."""
    return _regressed(joint.counts, joint.covariances, _varying(joint, n_covariates))


def _regressed(counts: np.ndarray, covariances: np.ndarray, varies: np.ndarray) -> np.ndarray:
    """Return β (c, p) from joint covariances (K, p + c, p + c); zero for covariates that do not vary (c,)."""
    p = covariances.shape[1] - len(varies)
    W = np.einsum("k,kij->ij", (counts - 1) / (counts.sum() - len(counts)), covariances[:, p:, :])
    beta = np.zeros((len(varies), p))
    beta[varies] = solved(W[varies][:, p:][:, varies], W[varies, :p])
    return beta


def residual_covariances(covariances: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return the covariances (K, p, p) of x − βᵀc from joint ones (K, p + c, p + c) and β (c, p)."""
    p = beta.shape[1]
    made = np.empty((len(covariances), p, p))
    for R, S in zip(made, covariances, strict=True):
        cross = S[:p, p:] @ beta
        R[:] = symmetrize(S[:p, :p] - cross - cross.T + beta.T @ S[p:, p:] @ beta)
    return made


def within_contexts(C: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return covariates (n, c) less their (weighted) means in the contexts ``codes`` (n,); zero where none varies."""
    w = np.ones(len(C)) if weights is None else weights
    totals = np.array([np.bincount(codes, w * column) for column in C.T]).T
    made = C - (totals / np.maximum(np.bincount(codes, w), np.finfo(float).tiny)[:, None])[codes]
    made[:, (made**2).sum(axis=0) <= RANK_TOLERANCE * (C**2).sum(axis=0)] = 0.0
    return made


def solved(W_cc: np.ndarray, W_cx: np.ndarray) -> np.ndarray:
    """Return ``W_cc⁺ W_cx`` (c, p); the rank of ``W_cc`` (c, c) is decided in units of the covariates' deviations."""
    C, s = unit_diagonal(W_cc)
    w, V = np.linalg.eigh(C)
    keep = w > RANK_TOLERANCE * w.max(initial=0.0)
    return (V[:, keep] / w[keep]) @ V[:, keep].T @ (W_cx / s[:, None]) / s[:, None]


def _varying(joint: "Moments", n_covariates: int) -> np.ndarray:
    """Return which covariates vary within contexts by more than rounding (c,); warn of the others by name.

    Raises
    ------
    ValueError
        If there are not more samples than contexts and covariates together.
    """
    p, freedom = joint.n_features - n_covariates, int(joint.counts.sum()) - len(joint.contexts)
    if freedom <= n_covariates:
        raise ValueError(
            f"{n_covariates} covariates cannot be regressed out of {joint.counts.sum()} samples in "
            f"{len(joint.contexts)} contexts: name fewer of them in adjust="
        )
    variances = np.diagonal(joint.covariances, axis1=1, axis2=2)[:, p:]
    within = (joint.counts - 1) @ variances / freedom
    means, n = joint.means[:, p:], joint.counts[:, None]
    between = (n * (means - (n * means).sum(axis=0) / n.sum()) ** 2).sum(axis=0) / n.sum()
    varies = within > RANK_TOLERANCE * between
    fixed = np.flatnonzero(~varies & (between > 0))
    if len(fixed):
        names = ", ".join(repr(joint.feature_names[p + j]) for j in fixed[:5])
        warnings.warn(
            f"{len(fixed)} covariates never vary within a context and are not regressed out ({names}): their effects "
            "cannot be told from those of the contexts",
            ConfoundedCovariateWarning,
            stacklevel=4,
        )
    return varies


# ---- from columns to numbers ------------------------------------------------------------------------------------


def design(columns: Any, n_rows: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return covariates as numbers: numeric columns as they are, others as one indicator per level but the first.

    Columns are centred and scaled, which changes no residual and keeps digits when a depth is in the millions.

    Parameters
    ----------
    columns : DataFrame, mapping of names to columns, Series, or (n,) or (n, c) array
    n_rows : int

    Returns
    -------
    C : (n, c) float64
    names : tuple of str, ``column`` or ``column[level]``

    Raises
    ------
    ValueError
        Naming the covariate, if it has another length or values that are missing.
    """
    table = _as_table(columns)
    if len(table) != n_rows:
        raise ValueError(f"adjust has {len(table)} rows but the samples are {n_rows}: one row per sample is needed")
    coded = [pair for name, column in table.items() for pair in _coded(str(name), column)]
    if not coded:
        raise ValueError("adjust names covariates with one level only: there is nothing to regress out; leave it away")
    names, parts = zip(*coded, strict=True)
    lb.check_text(names, "covariate")
    C = np.column_stack(parts)
    C = np.ldexp(C, -np.frexp(np.abs(C).max(axis=0))[1])  # exact; the largest is about one, so no square overflows
    C -= C.mean(axis=0)
    deviation = C.std(axis=0)
    return C / np.where(deviation > 0, deviation, 1.0), names


def _as_table(columns: Any) -> pd.DataFrame:
    if isinstance(columns, pd.DataFrame):
        return columns.reset_index(drop=True)
    if isinstance(columns, pd.Series):
        return columns.reset_index(drop=True).to_frame(columns.name if columns.name is not None else "covariate")
    if isinstance(columns, dict):
        return pd.DataFrame({name: pd.Series(column).reset_index(drop=True) for name, column in columns.items()})
    values = np.asarray(columns)
    if values.ndim not in (1, 2) or values.dtype.kind not in "fiub":
        raise ValueError("adjust must be a table of covariates (DataFrame, mapping, numeric array) or names of columns")
    values = values.reshape(len(values), -1)
    return pd.DataFrame(values, columns=[f"covariate {j}" for j in range(values.shape[1])])


def _coded(name: str, column: pd.Series) -> Iterable[tuple[str, np.ndarray]]:
    missing = column.isna()
    if missing.any():
        raise ValueError(
            f"covariate {name!r} is missing in {int(missing.sum())} rows (the first is row {int(np.argmax(missing))}): "
            "drop those rows or fill them in"
        )
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        values = column.to_numpy(dtype=float)
        if not np.isfinite(values).all():
            row = int(np.argmax(~np.isfinite(values)))
            raise ValueError(f"covariate {name!r} is {values[row]} in row {row}: drop or replace it")
        yield name, values
        return
    levels, codes = np.unique(np.array([str(value) for value in column], dtype=object), return_inverse=True)
    for code, level in list(enumerate(levels))[1:]:
        yield f"{name}[{level}]", (codes == code).astype(float)
