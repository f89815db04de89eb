"""Membership in the model: test that every context has one target and that one model explains them all.

The paper's appendix G asks, context by context, whether ``Θ_k − Θ_0`` has rank two at most. It leaves a test of that,
and of what the model says beyond it, to future work. Both are here: a calibrated test per context, with decisions that
hold for all contexts together, and the omnibus likelihood ratio of a fit to the contexts that pass.
"""

import html
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentdag.core.multiplicity import benjamini_hochberg, holm
from latentdag.data.moments import Moments
from latentdag.data.second_pass import Samples
from latentdag.errors import clear_numerics
from latentdag.inference.omnibus import Omnibus, omnibus_test
from latentdag.inference.ranks import p_value_column, rank_test
from latentdag.methods.fitting import fit as run_fit
from latentdag.methods.result import Fit

#: Contexts up to which the model is fitted for the omnibus test without being asked.
FIT_UP_TO = 20


@dataclass(frozen=True, eq=False)
class MembershipTest:
    """The verdict on membership in the model, and what it rests on.

    Attributes
    ----------
    summary : DataFrame indexed by context
        ``p_value`` of rank ≤ 2; ``holm``, adjusted so that a decision at alpha is wrong for any context at all with at
        most that probability; ``q_value``, by Benjamini and Hochberg; ``reject_fwer`` and ``reject_fdr``, decisions by
        either; ``rho`` and ``rho_above``, the paper's ratio and whether it exceeds the threshold; ``decision``: "keep",
        "drop" or "untested"; ``reason``.
    omnibus : Omnibus
        Of the model for the contexts that are kept.
    alpha, threshold : float
    note : str
        What the p-values assume.
    fit : Fit or None
        Behind the omnibus test.
    """

    summary: pd.DataFrame
    omnibus: Omnibus
    alpha: float
    threshold: float
    note: str
    fit: Fit | None = None

    @property
    def members(self) -> tuple[Hashable, ...]:
        """Contexts that are kept: they can have a single target."""
        return self._decided("keep")

    @property
    def drop(self) -> tuple[Hashable, ...]:
        """Contexts to drop: they change more than a single target can."""
        return self._decided("drop")

    @property
    def untested(self) -> tuple[Hashable, ...]:
        """Contexts with too few samples for a test."""
        return self._decided("untested")

    def _decided(self, decision: str) -> tuple[Hashable, ...]:
        return tuple(self.summary.index[self.summary["decision"] == decision])

    @property
    def in_model(self) -> bool:
        """Whether nothing speaks against the model: no context is dropped, and the omnibus test does not reject."""
        return not self.drop and not self._omnibus_rejects

    @property
    def _omnibus_rejects(self) -> bool:
        return bool(self.omnibus.p_value <= self.alpha)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if self.drop:
            listed = ", ".join(map(str, self.drop[:5])) + (", …" if len(self.drop) > 5 else "")
            return (
                f"Not in the model: {len(self.drop)} of {len(self.summary)} contexts change more than one target can "
                f"({listed})" + ("; nor do the others fit one model together." if self._omnibus_rejects else ".")
            )
        if self._omnibus_rejects:
            return (
                "Not in the model: every context by itself can have a single target, but no one model fits them all "
                f"(p = {self.omnibus.p_value:.2g})."
            )
        untested = f" ({len(self.untested)} could not be tested)" if self.untested else ""
        joint = ", alone and together." if np.isfinite(self.omnibus.p_value) else ", each by itself."
        return f"Nothing speaks against the model: all contexts{untested} can have a single target{joint}"

    def __repr__(self) -> str:
        return "\n".join(["MembershipTest: " + self.verdict, self.summary.to_string(), str(self.omnibus), self.note])

    def _repr_html_(self) -> str:
        table = self.summary.rename(index=str).to_html(escape=True, float_format=lambda value: f"{value:.3g}")
        lines = [str(self.omnibus), self.note]
        return f"<p><b>{html.escape(self.verdict)}</b></p>{table}" + "".join(f"<p>{html.escape(x)}</p>" for x in lines)


@clear_numerics
def membership_test(
    m: Moments,
    data: Samples | None = None,
    alpha: float = 0.05,
    fit: Fit | Literal[False] | None = None,
    threshold: float = 0.99,
) -> MembershipTest:
    """Test that every context has at most one target, and that one model explains them all.

    This is the hypothesis of the paper's appendix G.

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts and p features.
    data : (X, contexts), or a list of such pairs, optional
        The samples (n, p) behind ``m`` and the context of each row: then the tests hold without Gaussian samples.
    alpha : float
        A context is dropped if its p-value, adjusted by Holm for all contexts, is at most this.
    fit : Fit, False or None
        The fit whose omnibus test to make; False for none. By default the contexts that pass are fitted with
        :func:`latentdag.fit`, if there are no more than 20.
    threshold : float
        The paper's τ for ρ₂, shown beside the test; it decides nothing.

    Returns
    -------
    MembershipTest
        With one row per context in ``summary``, (K, 9).

    Examples
    --------
    >>> from latentdag import simulate
    >>> m = simulate.sample_moments(simulate.random_model(rng=1), 2_500, rng=1)
    >>> membership_test(m).verdict
    'Nothing speaks against the model: all contexts can have a single target, alone and together.'
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is a probability between 0 and 1, got {alpha}")
    ranks = rank_test(m, rank=2, data=data)
    p = ranks[p_value_column(ranks)].to_numpy()
    table = pd.DataFrame({"p_value": p, "holm": holm(p), "q_value": benjamini_hochberg(p)}, index=ranks.index)
    table["reject_fwer"], table["reject_fdr"] = table["holm"] <= alpha, table["q_value"] <= alpha
    table["rho"] = ranks["rho"]
    table["rho_above"] = ranks["rho"] > threshold
    table["decision"] = np.where(np.isnan(p), "untested", np.where(table["reject_fwer"], "drop", "keep"))
    both = zip(m.contexts[1:], table.to_dict("records"), ranks["reason"], strict=True)
    table["reason"] = [_reason(m, c, row, alpha, said, data is None) for c, row, said in both]
    members = [c for c, decision in zip(m.contexts[1:], table["decision"], strict=True) if decision == "keep"]
    omnibus, used = _omnibus(m, members, fit, data)
    note = ranks.attrs["note"] if data is None else "p-values are corrected by the fourth moments of the samples."
    return MembershipTest(table, omnibus, alpha, threshold, note, used)


def _reason(m: Moments, context: Hashable, row: Any, alpha: float, of_rank: str, gaussian: bool) -> str:
    """Return the reason for a decision, in words; the rank test may have given one."""
    if row["decision"] == "untested":
        return of_rank
    if row["decision"] == "drop":
        how_many = _directions(m, context, alpha) if gaussian else 3
        return (
            f"drop because its covariance differs from the control's in {'at least ' * (how_many == 3)}{how_many} "
            f"directions (p = {row['p_value']:.2g}, Holm {row['holm']:.2g}); a single target changes at most 2"
        )
    if row["reject_fdr"]:
        return f"suspect: rejected at a false-discovery rate of {alpha:g}, not family-wise"
    return of_rank


def _directions(m: Moments, context: Hashable, alpha: float) -> int:
    """Return the smallest rank of at least three that the Gaussian test of one context accepts."""
    pair = m.select([context])
    r = len(pair.whitened.W)
    return next((rank for rank in range(3, r) if rank_test(pair, rank)["p_value"].iloc[0] > alpha), r)


def _omnibus(
    m: Moments, members: list[Hashable], fit: Fit | Literal[False] | None, data: Samples | None
) -> tuple[Omnibus, Fit | None]:
    """Return the omnibus test of the contexts that are kept, and the fit behind it."""
    if fit is False:
        return Omnibus(reason="not asked for"), None
    if fit is None:
        if not members:
            return Omnibus(reason="no context is left to fit"), None
        kept = m.select(members)
        r = len(kept.whitened.W)
        if len(members) > r:
            return Omnibus(
                reason=f"{len(members)} contexts in {r} dimensions: some share a target. Group them "
                "(latentdag.target_groups), fit with targets=…, and pass fit=…"
            ), None
        if len(members) > FIT_UP_TO:
            return Omnibus(reason=f"{len(members)} contexts take a while to fit: pass fit=latentdag.fit(m)"), None
        fit = run_fit(kept)
    return omnibus_test(fit, m, data), fit
