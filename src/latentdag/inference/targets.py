"""Which latents a context acts on: contexts that were not in a fit, and unclaimed targets of those that were.

Every latent has a joint test of its noise's mean, variance and independence of its parents
(:mod:`latentdag.core.mechanisms`). Under its null a latent is left alone *whatever happens to the others*, so the tests
of one context find one target, several or none without a search over sets. Exact nulls are rejected by enough cells;
the effect sizes say whether it matters.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.core.covariance import Gradient
from latentdag.core.mechanisms import joint_test, law_of_context, statistics
from latentdag.core.multiplicity import benjamini_hochberg
from latentdag.core.sample_scores import scores
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.samples import Samples, context_blocks
from latentdag.errors import clear_numerics
from latentdag.uncertainty.standard_errors import BLOCK, Uncertainty

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

COLUMNS = [
    "context", "latent", "shift", "log_variance_ratio", "parent_correlation", "statistic", "dof", "p_value", "q_value",
    "is_target",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class TargetTest:
    """Tests of every latent in every context asked about.

    Attributes
    ----------
    table : DataFrame
        Per context and latent: ``shift`` of its noise's mean (in standard deviations), ``log_variance_ratio`` to the
        control, ``parent_correlation`` of its noise with what its parents contribute, the joint ``statistic`` with its
        ``dof``, ``p_value``, ``q_value``, and whether it ``is_target`` at the level asked for.
    alpha : float
    """

    table: pd.DataFrame
    alpha: float

    @property
    def targets(self) -> dict[Hashable, tuple[str, ...]]:
        """Latents found in each context."""
        found: dict[Hashable, tuple[str, ...]] = {}
        for context, latent, hit in zip(*(self.table[c] for c in ("context", "latent", "is_target")), strict=True):
            found[context] = found.get(context, ()) + (latent,) * bool(hit)
        return found

    @property
    def summary(self) -> pd.DataFrame:
        """One row per context: verdict "none", "one" or "several", targets, and the smallest p-value."""
        smallest = self.table.groupby("context", sort=False)["p_value"].min()
        rows = [
            (context, ("none", "one", "several")[min(len(found), 2)], ", ".join(found), p)
            for (context, found), p in zip(self.targets.items(), smallest, strict=True)
        ]
        table = pd.DataFrame(rows, columns=["context", "verdict", "targets", "smallest_p_value"])
        table["context"] = lb.as_index([row[0] for row in rows])
        return table

    def __repr__(self) -> str:
        return self.summary.to_string(index=False)

    def _repr_html_(self) -> str:
        return str(self.summary.to_html(index=False))


@clear_numerics
def find_targets(
    fit: "Fit",
    m: Moments,
    contexts: Sequence[Hashable] | None = None,
    *,
    means: bool | None = None,
    alpha: float = 0.05,
    data: Samples | None = None,
) -> TargetTest:
    """Find the targets of contexts that were not in the fit.

    Parameters
    ----------
    fit : Fit
        By maximum likelihood.
    m : Moments
        Of the same features; contexts of the fit in it are passed over.
    contexts : labels, optional
        By default every context of ``m`` that the fit does not have.
    means : bool, optional
        Whether a shifted mean counts; by default if the fit used means.
    alpha : float
        False-discovery rate among the latents of one context; the chance of any finding where there is no target.
    data : (X, contexts), optional
        Samples of the fit's contexts and of the new ones: then tests hold for any noise.

    Returns
    -------
    TargetTest

    Examples
    --------
    Leave a context out of the fit of a latent that another context targets, and ask what it does.

    >>> from dataclasses import replace
    >>> import latentdag as ld
    >>> truth = ld.simulate.random_model(rng=5)
    >>> again = replace(truth, interventions={**truth.interventions, "?": ld.Intervention("c2", variance=1.0)})
    >>> m = ld.simulate.sample_moments(again, 2_500, rng=0)
    >>> find_targets(ld.fit(m.select(truth.interventions)), m).targets
    {'?': ('c2',)}
    """
    known = fit.model.contexts
    chosen = [c for c in m.contexts if c not in known] if contexts is None else list(contexts)
    clash = [c for c in chosen if c in known]
    if clash:
        raise ValueError(f"context {clash[0]!r} is part of the fit: use off_targets for it")
    if not chosen:
        raise ValueError(f"every context of these moments is part of the fit already: {list(m.contexts)}")
    uncertainty = _checked(fit, m, data)
    asked = []
    for context in chosen:
        k = m.index(context)
        e, A = _noise_moments(uncertainty, m, k)
        sampled = None if data is None else _Sampled(uncertainty, data, context, m.means[k], A)
        asked.append(_Asked(context, int(m.counts[k]), (e, A), (e, A), -1, (), sampled))
    return _result(_tests(uncertainty, asked, means), alpha, by_context=True)


@clear_numerics
def off_targets(
    fit: "Fit", m: Moments, *, means: bool | None = None, alpha: float = 0.05, data: Samples | None = None
) -> TargetTest:
    """Test the contexts of a fit for effects on latents that they are supposed to leave alone.

    Parameters
    ----------
    fit : Fit
        By maximum likelihood.
    m : Moments
        Those behind the fit.
    means : bool, optional
        Whether a shifted mean counts; by default if the fit used means.
    alpha : float
        False-discovery rate among all pairs of a context and a latent.
    data : (X, contexts), optional
        The samples: then tests hold for any noise.

    Returns
    -------
    TargetTest
        Of the pairs that the fit does not have as targets.
    """
    uncertainty = _checked(fit, m, data)
    counts = dict(zip(m.contexts, m.counts.tolist(), strict=True))
    for context, count in zip(fit.model.contexts, fit.counts, strict=True):
        if counts.get(context) != count:
            raise ValueError(
                f"context {context!r} has {counts.get(context, 'no')} samples here and {count} in the fit: pass the "
                "moments that were fitted"
            )
    asked = []
    for k, (context, intervention) in enumerate(fit.model.interventions.items(), start=1):
        row = m.index(context)
        e, A = _noise_moments(uncertainty, m, row)
        sampled = None if data is None else _Sampled(uncertainty, data, context, m.means[row], A, k)
        law = law_of_context(uncertainty.quantities, k)
        asked.append(_Asked(context, fit.counts[k], (e, A), law, k, intervention.targets, sampled))
    return _result(_tests(uncertainty, asked, means), alpha, by_context=False)


def _checked(fit: "Fit", m: Moments, data: Samples | None) -> Uncertainty:
    if tuple(m.feature_names) != tuple(fit.model.feature_names):
        raise ValueError(
            f"the moments have {m.n_features} features {list(m.feature_names)[:3]}…, the fit {fit.model.n_features} "
            f"{list(fit.model.feature_names)[:3]}…: they must be the same"
        )
    uncertainty = fit.uncertainty(data)
    if uncertainty.covariance is None:
        raise ValueError(f"tests of targets need standard errors: {uncertainty.note}")
    return uncertainty


def _noise_moments(uncertainty: Uncertainty, m: Moments, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and covariance (d, d) of the control's noises in a context."""
    M = uncertainty.quantities.M
    return M @ (m.means[k] - uncertainty.fit.model.offset), M @ m.covariances[k] @ M.T


def _gaussian(n: int) -> np.ndarray:
    """Sampling covariance (3, 3) of the statistics for Gaussian noise."""
    return np.diag([1 / n, 2 / (n - 1), 1 / n])


@dataclass(frozen=True, eq=False)
class _Asked:
    """One context: its noises' mean and covariance, and those at which to take gradients; k ≥ 1 if it was fitted."""

    context: Hashable
    n: int
    moments: tuple[np.ndarray, np.ndarray]
    law: tuple[np.ndarray, np.ndarray]
    k: int
    claimed: tuple[str, ...]
    sampled: "_Sampled | None"


class _Sampled:
    """Sampling covariances from the samples of one context, with their scores if it is context k of the fit.

    For other than Gaussian noise the fit does not follow a statistic along its gradient, so the covariance of the two
    is counted, too.
    """

    def __init__(
        self,
        uncertainty: Uncertainty,
        data: Samples,
        context: Hashable,
        mean: np.ndarray,
        A: np.ndarray,
        k: int | None = None,
    ):
        of, model = uncertainty.quantities, uncertainty.fit.model
        point, d = of.point, model.n_latents
        self.of = uncertainty
        c = of.A @ point.B_inv
        size = np.sqrt(np.diagonal(A) * np.einsum("ij,jk,ik->i", c, A, c))
        weight = np.divide(1.0, size, out=np.zeros(d), where=size > 0)
        center = mean if point.tau is None else model.offset
        total, sums, n = np.zeros((d, 3, 3)), np.zeros(3 * d), 0
        cross, score_sums = np.zeros((point.size, 3 * d)), np.zeros(point.size)
        for _, X in context_blocks(data, [context], model.n_features):
            step = max(1, BLOCK // point.size)
            for part in (X[start : start + step] for start in range(0, len(X), step)):
                eps = (part - mean) @ of.M.T
                psi = np.stack([eps, eps**2 / np.diagonal(A), eps * (eps @ c.T) * weight], axis=2)
                total += np.einsum("nia,nib->iab", psi, psi)
                sums += psi.sum(axis=0).ravel()
                n += len(part)
                if k is not None:
                    each = scores(point, k, (part - center) @ model.unmixing.T)
                    cross += each.T @ psi.reshape(len(part), -1)
                    score_sums += each.sum(axis=0)
        by_latent = sums.reshape(d, 3)
        self._own = (total - by_latent[:, :, None] * by_latent[:, None, :] / n) / n**2
        self._cross = ((cross - np.outer(score_sums, sums) / n) / n).reshape(point.size, d, 3)

    def own(self, i: int) -> np.ndarray:
        """Of the statistics of latent i, (3, 3)."""
        return np.asarray(self._own[i])

    def shared(self, i: int, g: Gradient) -> np.ndarray:
        """Twice the covariance of statistics and the fit's answer to them, (3, 3)."""
        assert self.of.covariance is not None
        half = g.inner @ (self.of.covariance.inverse.C @ self._cross[:, i])
        return np.asarray(half + half.T)


def _tests(uncertainty: Uncertainty, asked: Sequence[_Asked], means: bool | None) -> list[tuple[Any, ...]]:
    """Effect sizes and joint tests, by context and latent; latent by latent, since contexts share its gradients."""
    of, covariance, point = uncertainty.quantities, uncertainty.covariance, uncertainty.point
    assert covariance is not None  # checked by the callers
    used_means = point.tau is not None
    by_context: dict[Hashable, list[tuple[Any, ...]]] = {each.context: [] for each in asked}
    for i, latent in enumerate(uncertainty.fit.latents):
        here = [each for each in asked if latent not in each.claimed]
        if not here:
            continue
        gradients = [statistics(of, i, *each.law)[1] for each in here]
        g = Gradient(np.vstack([one.inner for one in gradients]))
        estimated, known = covariance.blocks(g, 3), covariance.knows(g).reshape(-1, 3)
        wanted = np.array([used_means if means is None else means and used_means, True, point.edge[i].any()])
        for each, one, from_fit, known_i in zip(here, gradients, estimated, known, strict=True):
            values, _ = statistics(of, i, *each.moments)
            if each.sampled is not None:
                V = each.sampled.own(i) + from_fit + (each.sampled.shared(i, one) if each.k > 0 else 0.0)
            else:
                V = _gaussian(each.n) + (-from_fit if each.k > 0 else from_fit)
            # the logarithm of a χ² mean is low by 1/dof
            centred, tested = values + np.array([0.0, 1 / (each.n - 1), 0.0]), wanted & known_i
            statistic, dof, p = joint_test(centred[tested], V[np.ix_(tested, tested)])
            shift, log_ratio, correlation = values
            by_context[each.context].append(
                (each.context, latent, shift if used_means else np.nan, log_ratio, correlation, statistic, dof, p)
            )
    return [row for rows in by_context.values() for row in rows]


def _result(rows: list[Any], alpha: float, by_context: bool) -> TargetTest:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is a rate between 0 and 1, got {alpha}")
    table = pd.DataFrame(rows, columns=COLUMNS[:8])
    table["context"] = lb.as_index([row[0] for row in rows])
    families = table.groupby("context", sort=False).indices.values() if by_context else [np.arange(len(table))]
    q = np.full(len(table), np.nan)
    for family in families:
        q[family] = benjamini_hochberg(table["p_value"].to_numpy()[family])
    table["q_value"], table["is_target"] = q, q <= alpha
    return TargetTest(table, alpha)
