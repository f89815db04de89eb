"""Rank tests: in how many directions does a context differ from the control, and do all contexts together?

*One context.* A single-node intervention changes the precision by rank two, by rank one if its target is a source. The
paper's appendix G measures this by ``ρ_r``, the share of the squared singular values of ``Θ̂_k − Θ̂_0`` that the r
largest hold, against a threshold. That share depends on the units of the features and on the number of samples. The
likelihood ratio (:mod:`latentdag.core.ranks`) depends on neither, and comes with a p-value. Both are reported.

*The number of latents.* Without measurement noise the features have exactly d dimensions, and
:func:`latentdag.latent_dimension` counts them: no test is needed, and none is possible. With noise that is the same in
every context, ``X = G Z + e``, the covariances have full rank, and the number of latents shows only in what changes:
``Σ_k − Σ_0 = G (…) Gᵀ`` lies in the d-dimensional range of G for every k, and fills it when the interventions together
move every latent. So d is the smallest s for which "all changes lie in s directions" is not rejected. If s directions
truly change, the test of s rejects with probability alpha. So the estimate exceeds the truth with at most that
probability; it falls short where a change is too small to see. Latents that no context moves are not counted.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import linalg

from latentdag.core.fourth_moments import ProductCovariance, moment_matched_p_value
from latentdag.core.linalg import is_definite, symmetrize
from latentdag.core.ranks import change_directions, eigenvalue_terms, rank_p_value
from latentdag.data import labels as lb
from latentdag.data.checks import check_design, check_probability, whole_number
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples, deviations
from latentdag.errors import clear_numerics
from latentdag.methods.fitting import in_factors

GAUSSIAN_NOTE = (
    "p-values assume Gaussian samples: heavier tails make them too small, lighter tails too large. "
    "With data=(X, contexts) fourth moments correct for that."
)
ROBUST_NOTE = "robust p-values are corrected by the fourth moments of the samples; the others assume Gaussian samples."


@clear_numerics
def rank_test(
    m: Moments, rank: int = 2, data: Samples | None = None, noise: Any = "none", n_latents: int | None = None
) -> pd.DataFrame:
    """Test for every context that its covariance differs from the control's by at most ``rank`` directions.

    The paper measures this by ``ρ_r`` (appendix G).

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts.
    rank : int
        2 is what a single-node intervention changes at most, 1 what one on a source changes, 0 is no change at all.
    data : (X, contexts), or a list of such pairs, optional
        The samples (n, p) behind ``m`` and the context of each row, for a second pass that makes the test hold for any
        law with eight moments.
    noise, n_latents
        As for :func:`latentdag.fit`. Where features have noise of their own, the test is made on the factors that they
        share. Those are fewer, so it sees more, and with the size that it says; on the features it is conservative.

    Returns
    -------
    DataFrame of K rows, indexed by context
        ``rank``; ``statistic``, ``dof`` and ``p_value`` of the Gaussian likelihood-ratio test, corrected for few
        samples; ``rho``, the paper's ratio of squared singular values; with ``data`` also ``robust_statistic``,
        ``robust_dof`` and ``robust_p_value``; ``reason``, why there is no p-value, or why it is one. What the p-values
        assume stands in ``.attrs["note"]``.

    Notes
    -----
    p-values are uniform if exactly ``rank`` directions change and each change is plain to see. They are larger if fewer
    directions change, or if a change is hidden in the noise.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_targets=2, rng=0)
    >>> table = rank_test(simulate.sample_moments(truth, 2_500, rng=0))
    >>> int((table["p_value"] < 0.05).sum()), len(table)
    (5, 5)
    """
    check_design(m)
    rank = whole_number("rank", rank, 0)
    rho = _rho(m.with_shared_noise(), rank)
    m, data = in_factors(m, data, noise, n_latents)
    rows = [_gaussian(m, k, rank) for k in range(1, len(m.contexts))]
    table = pd.DataFrame(rows, index=lb.as_index(m.contexts[1:]))
    reason = table.pop("reason")
    table["rho"] = rho
    if data is not None:
        robust = _robust(m, rank, data, table["statistic"].to_numpy())
        table[["robust_statistic", "robust_dof", "robust_p_value"]] = robust
        table.loc[table["dof"] == 0, "robust_p_value"] = 1.0
    table["reason"] = reason
    table.attrs["note"] = GAUSSIAN_NOTE if data is None else ROBUST_NOTE
    return table


def p_value_column(table: pd.DataFrame) -> str:
    """Return the name of the column with the p-values of a rank test that assume least."""
    return "robust_p_value" if "robust_p_value" in table else "p_value"


def too_few(m: Moments, k: int) -> str:
    """Return why context k has too few samples for a test; empty if it has enough."""
    n, r = m.counts[k], len(m.whitened.W)
    return "" if n > r else f"{_who(k)} has {n} samples in {r} dimensions; at least {r + 1} are needed"


def no_inverse(m: Moments, k: int) -> str:
    """Return why the covariance of context k has no inverse; empty if it has one."""
    if m.whitened.definite[k] or too_few(m, k):
        return too_few(m, k)
    return f"{_who(k)} has a singular covariance: a mixture of features that varies elsewhere is constant there"


def _who(k: int) -> str:
    return "the control" if k == 0 else "the context"


def _gaussian(m: Moments, k: int, rank: int) -> dict[str, Any]:
    """Return the row of the table for context k."""
    row = {"rank": rank, "statistic": np.nan, "dof": np.nan, "p_value": np.nan, "reason": ""}
    r = len(m.whitened.W)
    if r <= rank:
        reason = f"the data have {r} dimensions: every change has rank {rank} or less"
        return row | {"statistic": 0.0, "dof": 0.0, "p_value": 1.0, "reason": reason}
    reason = no_inverse(m, 0) or too_few(m, k)
    if reason:
        return row | {"reason": reason}
    ratio, _ = _generalised(m, k)
    statistic, dof, p_value = rank_p_value(ratio, m.counts[0] - 1.0, m.counts[k] - 1.0, rank)
    return row | {"statistic": statistic, "dof": dof, "p_value": p_value}


def _generalised(m: Moments, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues (r,) of (S_k, S_0), and vectors (r, r) in which S_0 is the identity and S_k diagonal."""
    ratio, V = linalg.eigh(m.whitened.S[k], m.whitened.S[0])
    return np.maximum(ratio, np.finfo(float).tiny), V


def _robust(m: Moments, rank: int, data: Samples, statistics: np.ndarray) -> np.ndarray:
    """Return statistic, degrees of freedom and p-value (K, 3) of the moment-matched test; nan without a statistic."""
    W, nu = m.whitened.W, m.counts - 1.0
    axes, sums = {}, {}
    for k in (np.flatnonzero(statistics > 0) + 1).tolist():
        ratio, V = _generalised(m, k)
        kept = np.argsort(eigenvalue_terms(ratio, nu[0], nu[k]), kind="stable")[: len(W) - rank]
        pooled = (nu[0] + nu[k] * ratio[kept]) / (nu[0] + nu[k])
        axes[k] = V[:, kept] / np.sqrt(pooled)
        sums[k] = ProductCovariance((int(m.counts[0]), int(m.counts[k])), len(kept))
    for k, block in deviations(data, m):
        Y = block @ W.T
        for j in axes if k == 0 else axes.keys() & {k}:
            sums[j].add(int(k > 0), Y @ axes[j])
    found = np.full((len(statistics), 3), np.nan)
    for k, each in sums.items():
        found[k - 1] = moment_matched_p_value(statistics[k - 1], *each.traces())
    return found


def _rho(m: Moments, rank: int) -> list[float]:
    """Return the paper's ``ρ_r(Θ̂_k − Θ̂_0)`` (K,) in the features' own units; nan where a covariance has no inverse."""
    U = m.range
    S = symmetrize(U.T @ m.covariances @ U)
    known = [n > len(s) and is_definite(s) for n, s in zip(m.counts, S, strict=True)]
    return [_concentration(S[0], S[k], rank) if known[0] and known[k] else np.nan for k in range(1, len(S))]


def _concentration(S_0: np.ndarray, S_k: np.ndarray, rank: int) -> float:
    """Return the share of the squared singular values of ``S_k⁻¹ − S_0⁻¹`` that the largest hold."""
    s = np.linalg.svd(np.linalg.inv(S_k) - np.linalg.inv(S_0), compute_uv=False)
    s = np.square(s / s[0]) if s[0] > 0 else np.array([np.nan])
    return float(s[:rank].sum() / s.sum())


@dataclass(frozen=True, eq=False)
class DimensionTest:
    """The number of latents that the contexts move.

    Attributes
    ----------
    n_latents : int
        The smallest number that the test accepts.
    n_dimensions : int
        Dimensions of the data: the number of latents if there is no measurement noise.
    summary : DataFrame indexed by n_latents
        ``statistic``, ``dof`` and ``p_value`` of the hypothesis that at most ``n_latents`` directions change, from 0 up
        to the first number that is accepted.
    alpha : float
    note : str
        What the p-values assume.
    """

    n_latents: int
    n_dimensions: int
    summary: pd.DataFrame
    alpha: float
    note: str = "p-values assume Gaussian samples, and measurement noise, if any, that is the same in every context."

    def __repr__(self) -> str:
        return (
            f"DimensionTest({self.n_latents} directions change, of {self.n_dimensions}; alpha = {self.alpha:g})\n"
            f"{self.summary.to_string()}\n{self.note}"
        )

    def _repr_html_(self) -> str:
        head = f"<b>{self.n_latents} directions change</b>, of {self.n_dimensions} (alpha = {self.alpha:g})"
        return f"<p>{head}</p>{self.summary.to_html()}<p>{self.note}</p>"


@clear_numerics
def latent_dimension_test(m: Moments, alpha: float = 0.05, means: bool = True) -> DimensionTest:
    """Count the latents that the contexts move, with measurement noise allowed.

    The paper has no measurement noise: there the number of latents is the rank of the precision matrices
    (:func:`latentdag.latent_dimension`).

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts and p features.
    alpha : float
        Probability of counting too many.
    means : bool
        Count directions in which only the mean changes, too.

    Returns
    -------
    DimensionTest

    Examples
    --------
    >>> import numpy as np
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=3, n_features=6, rng=1)
    >>> X, contexts = simulate.sample(truth, 1_000, rng=0)
    >>> noisy = X + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    >>> latent_dimension_test(Moments.from_samples(noisy, contexts, control="control")).n_latents
    3
    """
    check_design(m)
    check_probability("alpha", alpha)
    n, S, shifts = _white_together(m.with_shared_noise(), means)
    rows: list[list[float]] = []
    B, accepted = None, False
    while not accepted:
        B, *tested = change_directions(n, S, shifts, len(rows), B)
        rows.append(tested)
        accepted = rows[-1][2] > alpha
    summary = pd.DataFrame(rows, columns=["statistic", "dof", "p_value"]).rename_axis("n_latents")
    return DimensionTest(len(rows) - 1, S.shape[1], summary, alpha)


def _white_together(m: Moments, means: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return weights, covariances and shifts of the contexts where the covariance of all together is the identity."""
    for k, label in enumerate(m.contexts):
        if reason := no_inverse(m, k):
            raise ValueError(f"context {label!r}: {reason}: drop it, or use fewer features")
    n = m.counts.astype(float) if means else m.counts - 1.0
    S = m.whitened.S * ((m.counts - 1.0) / n)[:, None, None]
    mu = m.means @ m.whitened.W.T
    shifts = mu - n @ mu / n.sum() if means else np.zeros_like(mu)
    total = (np.einsum("k,kij->ij", n, S) + (n[:, None] * shifts).T @ shifts) / n.sum()
    L_inv = np.linalg.inv(np.linalg.cholesky(total))
    return n, L_inv @ S @ L_inv.T, shifts @ L_inv.T if means else None
