"""Robust moments: rows far from the others of their context weigh less, or nothing.

Every context is one cloud of rows, with a center μ and a scatter S. A row weighs by its distance

    D² = (x − μ)ᵀ S⁻¹ (x − μ),    w = 1 up to D² = a, falling smoothly to w = 0 at D² = b,

and μ, S are the weighted mean and covariance of the rows, the latter times γ = r E[w] / E[w D²], which makes it
consistent for Gaussian rows in r dimensions. *a* and *b* are distances that a Gaussian row exceeds once in 100 and once
in 100,000 times, given how many rows are behind S. A weight must fall to zero: with weights c/D² one per cent of rows
that lie together would still add c/100 to the variance in their direction.

S⁻¹ is taken on the range of S. A row that leaves the range has no distance, and no weight: where clean rows fill fewer
dimensions than there are features, outliers fill them all.

Weights and moments depend on each other. They begin with a pilot, a small sample of rows, and the three quarters of it
that are closest together (concentration steps from a covariance of directions), and are settled on the pilot; then two
passes over all rows follow. docs/math.md, Robust moments.

Rows of the pilot are chosen by what they hold: each has a key, a hash of its values, and the rows with the smallest
keys are taken. So the choice depends neither on the order of rows or features, nor on blocks or containers.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.data.accumulate import OUTLYING, Sums, by_context
from latentdag.data.adjust import coefficients, residual_covariances, solved, within_contexts
from latentdag.data.checks import check_sizes
from latentdag.data.cloud import CLEAN, Cloud, settled
from latentdag.data.matrices import check_finite, dense_rows, taken
from latentdag.data.prepare import Plan, require_memory
from latentdag.data.sources.reader import Reader, naming_source
from latentdag.errors import OutlierWarning

if TYPE_CHECKING:  # moments are made further up
    from latentdag.data.moments import Moments

#: Rows of a context in the pilot, at most; and, where that is more, rows per feature.
PILOT_ROWS, ROWS_PER_FEATURE = 1000, 5

#: An odd number without pattern: the golden ratio in 64 bits.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

#: Share of rows that may differ from a value that all others have, and be called outliers.
FEW = 0.05

#: Share of the variance in one direction that a few far rows must carry to be worth a warning.
MUCH = 0.4

#: Rounds in which weights and coefficients of covariates are found in turn.
ROUNDS = 3


@dataclass(frozen=True)
class Weighing:
    """The weights of rows of several contexts, called with a context's position and rows (n, p + c).

    Attributes
    ----------
    clouds : one for each context
    beta : (c, p) or None
        Of covariates, which are the last c columns: rows are measured without them.
    """

    clouds: tuple[Cloud, ...]
    beta: np.ndarray | None = None

    def __call__(self, k: int, rows: np.ndarray) -> np.ndarray:
        return self.clouds[k].weights(_without(rows, self.beta))

    def of(self, members: Iterable[int]) -> "Weighing":
        """Return the weighing of some contexts only."""
        return Weighing(tuple(self.clouds[k] for k in members), self.beta)

    def consistent(self, sums: Sums, rows: np.ndarray, contexts: Sequence[Hashable]) -> Sums:
        """Return weighted sums as sums of the rows (K,) that are not outlying.

        Raises
        ------
        ValueError
            If too many rows of a context are outlying.
        """
        for label, out, n in zip(contexts, sums.outlying, rows, strict=True):
            if out > (1 - CLEAN) * n:
                raise ValueError(
                    f"context {label!r}: {out} of {n} rows are outlying, so there are no weights to trust: robust "
                    f"moments need {CLEAN:.0%} of the rows in one cloud. Give rows of different kinds contexts of "
                    "their own, or use robust=False"
                )
        counts = rows - sums.outlying
        gamma = np.array([cloud.cuts.gamma for cloud in self.clouds])
        scale = (gamma * np.maximum(counts - 1, 1) / np.maximum(sums.counts - 1, 1))[:, None, None]
        for scatters in (sums.scatters, sums.along):
            scatters *= scale
        return sums._replace(counts=counts)


def again(joint: "Moments", n_covariates: int) -> Weighing:
    """Return the weights that follow from moments of all columns, the covariates last."""
    if not n_covariates:
        return Weighing(tuple(map(Cloud, joint.means, joint.covariances, joint.counts)))
    beta = coefficients(joint, n_covariates)
    means, covariances = _without(joint.means, beta), residual_covariances(joint.covariances, beta)
    return Weighing(tuple(map(Cloud, means, covariances, joint.counts)), beta)


def _without(rows: np.ndarray, beta: np.ndarray | None) -> np.ndarray:
    """Return the features (n, p) of rows (n, p + c), the covariates regressed out."""
    return rows if beta is None else rows[:, : -len(beta)] - rows[:, -len(beta) :] @ beta


# ---- the pilot --------------------------------------------------------------------------------------------------


def row_keys(block: Any, _: np.ndarray) -> np.ndarray:
    """Return one key (n,) uint64 for every row of a block (n, p): the sum of the hashes of its values."""
    made = np.empty(block.shape[0], dtype=np.uint64)
    start = 0
    for rows in dense_rows(block, np.arange(len(made))):
        bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # plus zero: there are two zeros, and they are equal
        made[start : start + len(rows)] = _mixed(bits).sum(axis=1)
        start += len(rows)
    return made


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Return whole numbers shuffled, zero staying zero (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))


def pilot_rows(keys: np.ndarray, codes: np.ndarray, most: int) -> np.ndarray:
    """Return a mask (n,) of at most ``most`` rows of every context, those with the smallest keys.

    Copies of a row have the same key. They are numbered and get keys of their own, or all copies of a frequent row
    would be chosen together.

    Parameters
    ----------
    keys : (n,) uint64
    codes : (n,) position of each row's context
    most : int

    Examples
    --------
    >>> pilot_rows(np.array([7, 7, 7, 2, 9], dtype=np.uint64), np.array([0, 0, 0, 0, 1]), most=2).sum()
    np.int64(3)
    """
    order = np.lexsort((keys, codes))
    copy = _place_in_run(np.column_stack([codes[order].astype(np.uint64), keys[order]]))
    order = order[np.lexsort((_mixed(keys[order] + copy.astype(np.uint64) * _GOLDEN), codes[order]))]
    chosen = np.zeros(len(codes), dtype=bool)
    chosen[order[_place_in_run(codes[order][:, None]) < most]] = True
    return chosen


def _place_in_run(values: np.ndarray) -> np.ndarray:
    """Return how many equal rows stand right before each row of an array (n, c)."""
    place = np.arange(len(values))
    first = np.ones(len(values), dtype=bool)
    first[1:] = (values[1:] != values[:-1]).any(axis=1)
    return place - np.maximum.accumulate(np.where(first, place, 0))


def pilot_weighing(reader: Reader, plan: Plan, over: Callable[..., list[Any]], memory_limit: float | None) -> Weighing:
    """Return the first weights, from a pilot.

    Parameters
    ----------
    reader : Reader
    plan : Plan
    over : function
        Returns ``function(block, beside[rows])`` of every block, given the function and what is beside the rows (n,).
    memory_limit : bytes, or None for 80 % of what is free

    Raises
    ------
    ValueError
        If a context has too few rows for its dimensions, or a feature the same value in most of its rows.
    """
    size, p = np.bincount(plan.codes), len(reader.feature_names)
    most = max(PILOT_ROWS, ROWS_PER_FEATURE * p)
    extra = 8 * p * int(np.minimum(size, most).sum()) + plan.block_bytes()
    require_memory(reader.name, len(plan.contexts), len(plan.names), 3, extra, memory_limit)
    chosen = np.ones(len(plan.codes), dtype=bool)
    if size.max() > most:
        chosen = pilot_rows(np.concatenate(over(row_keys, plan.codes)), plan.codes, most)
    X, C = np.concatenate(over(taken, chosen)), None if plan.C is None else plan.C[chosen]
    codes = plan.codes[chosen]
    with naming_source(reader.name):
        for k, group in by_context(codes):
            check_finite(X[group], np.flatnonzero(chosen)[group], plan.contexts[k], plan.names)
            check_sizes(np.abs(X[group]).max(axis=0)[None], np.zeros((1, p, p)), [plan.contexts[k]], plan.names)
        return _settled(X, C, codes, plan)


def _settled(X: np.ndarray, C: np.ndarray | None, codes: np.ndarray, plan: Plan) -> Weighing:
    """Return the weights of the rows of a pilot, (n, p) and covariates (n, c), on which they and moments agree."""
    groups = [group for _, group in by_context(codes)]
    near, beta = X.copy(), None
    if C is not None:
        for group in groups:  # what an intercept takes up should cost no digits
            near[group] -= np.median(X[group], axis=0)
        beta = _first_beta(near, C, codes)
    for _ in range(1 if C is None else ROUNDS):
        Y = X if C is None else X - C @ beta
        found = [settled(Y[group]) for group in groups]
        if C is not None:
            w = np.empty(len(X))
            w[np.concatenate(groups)] = np.concatenate([own for _, own in found])
            beta = _weighted_beta(near, C, w, codes)
    for label, group, (cloud, w) in zip(plan.contexts, groups, found, strict=True):
        _check_cloud(Y[group], cloud, w, label, plan.names)
    return Weighing(tuple(cloud for cloud, _ in found), beta)


def _check_cloud(X: np.ndarray, cloud: Cloud, w: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    """Complain about the pilot (n, p) of a context that no cloud can be trusted of."""
    clean = w >= OUTLYING
    value = X[np.argmax(clean)]
    others = np.where(np.ptp(X[clean], axis=0) == 0, (value != X).mean(axis=0), 0.0) if clean.any() else np.zeros(1)
    if others.max() > FEW:
        j = int(np.argmax(others))
        raise ValueError(
            f"context {label!r}: feature {names[j]!r} has the value {value[j]:g} in {1 - others[j]:.0%} of the rows, "
            "so how far the others are away cannot be measured: leave it out, or use robust=False"
        )
    if len(X) < 2 * cloud.r:
        raise ValueError(
            f"context {label!r} has {len(X)} rows, which vary in {cloud.r} dimensions or more: robust moments need at "
            "least twice as many rows as dimensions. Take fewer features, or use robust=False"
        )


def _first_beta(X: np.ndarray, C: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return coefficients (c, p) of the covariates by least absolute distances; rows are about contexts' medians."""
    size = np.abs(X).mean(axis=0)
    size = np.where(size > 0, size, 1.0)
    beta = np.zeros((C.shape[1], X.shape[1]))
    for _ in range(10):
        far = np.linalg.norm((X - C @ beta) / size, axis=1)
        beta = _weighted_beta(X, C, 1 / np.maximum(far, 1e-3 * np.median(far) or 1.0), codes)
    return beta


def _weighted_beta(X: np.ndarray, C: np.ndarray, w: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the weighted least squares (c, p) of features on covariates, with one intercept per context."""
    within = within_contexts(C, codes, w)
    weighted = (w[:, None] * within).T
    return solved(weighted @ within, weighted @ X)


def warn_of_outliers(m: "Moments", codes: np.ndarray, rows: np.ndarray) -> None:
    """Warn where a few rows carry much of a context's covariance.

    Parameters
    ----------
    m : Moments
    codes : (n,) position of each row's context
    rows : (n, p)
        Some of the rows behind the moments, or all.
    """
    found: list[tuple[float, int, int, int, int]] = []
    for k, group in by_context(codes):
        X = rows[group]
        kept = np.flatnonzero((np.median(X, axis=0) == X).mean(axis=0) < 0.5)  # others have no scale to be far in
        if not len(kept):
            continue
        cloud = Cloud(m.means[k, kept], m.covariances[k][np.ix_(kept, kept)], m.counts[k])
        d2 = cloud.distances(X[:, kept])
        far = np.isfinite(d2) & (d2 > cloud.cuts.b)
        if far.any():
            Z = (X[far][:, kept] - cloud.center) @ cloud.T.T
            share, directions = np.linalg.eigh(Z.T @ Z / len(X))
            loading = np.linalg.lstsq(cloud.T, directions[:, -1], rcond=None)[0] / cloud.deviations
            if share[-1] > MUCH:
                found.append((share[-1], far.sum(), len(X), k, kept[np.argmax(np.abs(loading))]))
    if found:
        most, number, n, k, j = max(found)
        others = f" and {len(found) - 1} others" if len(found) > 1 else ""
        warnings.warn(
            f"context {m.contexts[k]!r}{others}: {number} of {n} rows lie far from the rest and carry "
            f"{min(most, 1):.0%} of the variance in one direction (feature {m.feature_names[j]!r} above all): look at "
            "them, or let them weigh less with robust=True",
            OutlierWarning,
            stacklevel=5,
        )
