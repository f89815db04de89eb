"""In how many directions does a context differ from the control: the paper's ρ beside a calibrated test.

A single-node intervention changes the precision by rank two, by rank one if its target is a source. The paper measures
this by ``ρ_r``, the share of the squared singular values of ``Θ̂_k − Θ̂_0`` that the r largest hold, against a threshold.
That share depends on the units of the features and on the number of samples. The likelihood ratio
(:mod:`latentdag.core.ranks`) depends on neither, and comes with a p-value.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import linalg

from latentdag.core.linalg import is_definite, symmetrize
from latentdag.core.ranks import (
    ProductCovariance,
    eigenvalue_terms,
    moment_matched_p_value,
    rank_p_value,
)
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.second_pass import Samples, context_blocks
from latentdag.errors import clear_numerics
from latentdag.inference.coordinates import Whitened, whiten
from latentdag.methods.fitting import check_design

GAUSSIAN_NOTE = (
    "p-values assume Gaussian samples: heavier tails make them too small, lighter tails too large. "
    "With data=(X, contexts) fourth moments correct for that."
)
ROBUST_NOTE = "robust p-values are corrected by the fourth moments of the samples; the others assume Gaussian samples."


@clear_numerics
def rank_test(m: Moments, rank: int = 2, data: Samples | None = None) -> pd.DataFrame:
    """Test for every context that its covariance differs from the control's by at most ``rank`` directions.

    Parameters
    ----------
    m : Moments
    rank : int
        2 is what a single-node intervention changes at most, 1 what one on a source changes, 0 is no change at all.
    data : (X, contexts), or a list of such pairs, optional
        The samples behind ``m``, for a second pass that makes the test hold for any law with eight moments.

    Returns
    -------
    DataFrame indexed by context
        ``rank``; ``statistic``, ``dof`` and ``p_value`` of the Gaussian likelihood-ratio test, corrected for few
        samples; ``rho``, the paper's ratio of squared singular values; with ``data`` also ``robust_statistic``,
        ``robust_dof`` and ``robust_p_value``; ``reason``, why there is no p-value, or why it is one. What the p-values
        assume stands in ``.attrs["note"]``.

    Notes
    -----
    p-values are uniform if exactly ``rank`` directions change and each change is plain to see; where fewer change, or
    one is hidden in the noise, they are larger.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_targets=2, rng=0)
    >>> table = rank_test(simulate.sample_moments(truth, 2_500, rng=0))
    >>> int((table["p_value"] < 0.05).sum()), len(table)
    (5, 5)
    """
    check_design(m)
    if not (isinstance(rank, int | np.integer) and rank >= 0):
        raise ValueError(f"rank must be a whole number, 0 or more, got {rank!r}")
    white = whiten(m)
    rho = _rho(m, int(rank))
    rows = [_gaussian(white, k, int(rank)) | {"rho": rho[k - 1]} for k in range(1, len(m.contexts))]
    table = pd.DataFrame(rows, index=lb.as_index(m.contexts[1:]))
    if data is not None:
        robust = _robust(m, white, int(rank), data, table["statistic"].to_dict())
        for column in ("statistic", "dof", "p_value"):
            table[f"robust_{column}"] = [robust[c][column] if c in robust else np.nan for c in table.index]
        trivial = table["dof"] == 0
        table.loc[trivial, "robust_p_value"] = 1.0
    table["reason"] = table.pop("reason")
    table.attrs["note"] = GAUSSIAN_NOTE if data is None else ROBUST_NOTE
    return table


def p_value_column(table: pd.DataFrame) -> str:
    """The p-values of a rank test that assume least."""
    return "robust_p_value" if "robust_p_value" in table else "p_value"


def _gaussian(white: Whitened, k: int, rank: int) -> dict[str, Any]:
    row = {"rank": rank, "statistic": np.nan, "dof": np.nan, "p_value": np.nan, "reason": ""}
    if white.r <= rank:
        reason = f"the data have {white.r} dimensions: every change has rank {rank} or less"
        return row | {"statistic": 0.0, "dof": 0.0, "p_value": 1.0, "reason": reason}
    reason = white.no_inverse(0) or white.too_few(k)
    if reason:
        return row | {"reason": reason}
    ratio, _ = _generalised(white, k)
    statistic, dof, p_value = rank_p_value(ratio, white.nu[0], white.nu[k], rank)
    return row | {"statistic": statistic, "dof": dof, "p_value": p_value}


def _generalised(white: Whitened, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of (S_k, S_0), and vectors in which S_0 is the identity and S_k the diagonal matrix of them."""
    ratio, V = linalg.eigh(white.S[k], white.S[0])
    return np.maximum(ratio, np.finfo(float).tiny), V


def _robust(
    m: Moments, white: Whitened, rank: int, data: Samples, statistics: Mapping[Hashable, float]
) -> dict[Hashable, dict[str, float]]:
    """The moment-matched test of every context that has a statistic."""
    tested = [k for k in range(1, len(m.contexts)) if statistics[m.contexts[k]] > 0]
    axes, sums = {}, {}
    for k in tested:
        ratio, V = _generalised(white, k)
        kept = np.argsort(eigenvalue_terms(ratio, white.nu[0], white.nu[k]), kind="stable")[: white.r - rank]
        pooled = (white.nu[0] + white.nu[k] * ratio[kept]) / (white.nu[0] + white.nu[k])
        axes[k] = V[:, kept] / np.sqrt(pooled)
        sums[k] = ProductCovariance((int(m.counts[0]), int(m.counts[k])), len(kept))
    seen = np.zeros(len(m.contexts), dtype=int)
    for k, block in context_blocks(data, m.contexts, m.n_features):
        seen[k] += len(block)
        Y = (block - m.means[k]) @ white.W.T
        for j in tested if k == 0 else [k] if k in axes else []:
            sums[j].add(int(k > 0), Y @ axes[j])
    _check_same_samples(m, seen)
    found = {}
    for k in tested:
        values = moment_matched_p_value(statistics[m.contexts[k]], *sums[k].traces())
        found[m.contexts[k]] = dict(zip(("statistic", "dof", "p_value"), values, strict=True))
    return found


def _check_same_samples(m: Moments, seen: np.ndarray) -> None:
    for label, expected, count in zip(m.contexts, m.counts, seen, strict=True):
        if expected != count:
            raise ValueError(
                f"context {label!r}: the moments are of {expected} samples, but data holds {count}: pass the data the "
                "moments came from"
            )


def _rho(m: Moments, rank: int) -> list[float]:
    """The paper's ``ρ_r(Θ̂_k − Θ̂_0)`` in the coordinates of the features; nan where a covariance has no inverse."""
    U = m.range
    S = symmetrize(U.T @ m.covariances @ U)
    known = [n > len(s) and is_definite(s) for n, s in zip(m.counts, S, strict=True)]
    return [_concentration(S[0], S[k], rank) if known[0] and known[k] else np.nan for k in range(1, len(S))]


def _concentration(S_0: np.ndarray, S_k: np.ndarray, rank: int) -> float:
    s = np.linalg.svd(np.linalg.inv(S_k) - np.linalg.inv(S_0), compute_uv=False)
    s = np.square(s / s[0]) if s[0] > 0 else np.array([np.nan])
    return float(s[:rank].sum() / s.sum())
