"""Membership in the model: test that every context has one target and that one model explains them all.

The paper's appendix G asks, context by context, whether ``Θ_k − Θ_0`` has rank two at most. It leaves a test of that,
and of what the model says beyond it, to future work. Both are here: a calibrated test per context, by Holm for all of
them, and the omnibus likelihood ratio of one model for all contexts. The two share the level, so that the verdict as a
whole refuses data of the model with probability alpha at most. Only then does it name contexts to drop
(:mod:`latentdag.inference.omnibus`), and it says how far the model is off: with enough cells every model is refused.
"""

import html
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentdag.core.multiplicity import benjamini_hochberg, holm
from latentdag.data.checks import check_probability
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples
from latentdag.errors import LatentDAGWarning, clear_numerics
from latentdag.inference.omnibus import LeftOut, joint_fit, leave_out, no_covariance
from latentdag.inference.ranks import p_value_column, rank_test
from latentdag.methods.fitting import fit as run_fit
from latentdag.methods.joint import Joint, Omnibus, omnibus_of
from latentdag.methods.result import Fit

#: Contexts up to which the model is fitted for the omnibus test without being asked.
FIT_UP_TO = 20

#: Share of alpha that the omnibus test gets; Holm's rank tests get the rest. Where changes are hard to see rank tests
#: hardly ever err, and what they get is lost; and the omnibus test finds nearly all contexts that change too much.
OMNIBUS_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class MembershipTest:
    """The verdict on membership in the model, and what it rests on.

    Attributes
    ----------
    summary : DataFrame indexed by context
        ``p_value`` of rank ≤ 2; ``holm``, adjusted so that a decision at alpha is wrong for any context at all with at
        most that probability; ``q_value``, by Benjamini and Hochberg; ``reject_fwer`` and ``reject_fdr``, whether the
        rank tests reject by either; ``rho`` and ``rho_above``, the paper's ratio and whether it exceeds the threshold;
        ``misfit``, how far one model for all is off in this context (see :class:`latentdag.methods.joint.Omnibus`);
        ``gain``, the share of all misfit that goes if this context is left out, after a refusal; ``decision``: "keep",
        "drop" or "untested"; ``reason``.
    omnibus : Omnibus
        Of one model for all contexts.
    alpha, threshold : float
    note : str
        What the p-values assume.
    fit : Fit or None
        Behind the omnibus test.
    p_without : float
        Of the omnibus test of the other contexts, without those to drop.
    """

    summary: pd.DataFrame
    omnibus: Omnibus
    alpha: float
    threshold: float
    note: str
    fit: Fit | None = None
    p_without: float = float("nan")

    @property
    def members(self) -> tuple[Hashable, ...]:
        """Contexts that are kept."""
        return self._decided("keep")

    @property
    def drop(self) -> tuple[Hashable, ...]:
        """Contexts to drop: those that account for a refusal. None if the model is not refused, or if no few do."""
        return self._decided("drop")

    @property
    def untested(self) -> tuple[Hashable, ...]:
        """Contexts with too few samples for a test."""
        return self._decided("untested")

    def _decided(self, decision: str) -> tuple[Hashable, ...]:
        return tuple(self.summary.index[self.summary["decision"] == decision])

    @property
    def p_value(self) -> float:
        """Of the verdict as a whole: the smaller of Holm's and the omnibus test's, each over its share of alpha."""
        return _overall(self.summary["holm"], self.omnibus)

    @property
    def in_model(self) -> bool:
        """Whether nothing speaks against the model: the p-value of the whole is not alpha or less."""
        return not self.p_value <= self.alpha

    @property
    def size(self) -> str:
        """How far off the model is, in one sentence; empty where there is no omnibus test."""
        return self.omnibus.size

    @property
    def verdict(self) -> str:
        """The verdict in a sentence or two."""
        if self.in_model:
            untested = f" ({len(self.untested)} could not be tested)" if self.untested else ""
            joint = ", alone and together." if np.isfinite(self.omnibus.p_value) else ", each by itself."
            return f"Nothing speaks against the model: all contexts{untested} can have a single target{joint}"
        drop, size = self.drop, f" {self.size}" if self.size else ""
        if drop:
            listed = ", ".join(map(str, drop[:5])) + (", …" if len(drop) > 5 else "")
            one = len(drop) == 1
            how = "changes more than one target can" if one else "change more than one target each can"
            said = f"Not in the model: {listed} ({len(drop)} of {len(self.summary)} contexts) {how}"
            if np.isfinite(self.p_without):
                rest = "fit one model" if self.p_without > self.alpha else "still do not fit one model"
                said += f"; without {'it' if one else 'them'}, the others {rest} (p = {self.p_without:.2g})"
            return f"{said}.{size}"
        gain = self.summary["gain"].dropna().sort_values(kind="stable")
        most = f" (without {gain.index[-1]}, {100 * gain.iloc[-1]:.0f} % of the misfit goes)" if len(gain) else ""
        return (
            f"Not in the model: no one model fits all contexts (p = {self.p_value:.2g}), and no few of them account "
            f"for it{most}, so dropping contexts does not help: a fit is an approximation at best.{size}"
        )

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
        Probability of refusing data of the model.
    fit : Fit, False or None
        The fit whose omnibus test to make; False for none. By default all contexts are fitted with
        :func:`latentdag.fit`, if there are no more than 20.
    threshold : float
        The paper's τ for ρ₂, shown beside the test; it decides nothing.

    Returns
    -------
    MembershipTest
        With one row per context in ``summary``, (K, 11).

    Examples
    --------
    >>> from latentdag import simulate
    >>> m = simulate.sample_moments(simulate.random_model(rng=1), 2_500, rng=1)
    >>> membership_test(m).verdict
    'Nothing speaks against the model: all contexts can have a single target, alone and together.'
    """
    check_probability("alpha", alpha)
    joint, used = _joint(m, fit)
    noise = {} if used is None or used.model.feature_noise is None else used.noise_options
    ranks = rank_test(m, rank=2, data=data, **noise)
    p = ranks[p_value_column(ranks)].to_numpy()
    table = pd.DataFrame({"p_value": p, "holm": holm(p), "q_value": benjamini_hochberg(p)}, index=ranks.index)
    omnibus = Omnibus(reason=joint) if isinstance(joint, str) else omnibus_of(joint, data)
    of_ranks = alpha * (1 - OMNIBUS_SHARE if np.isfinite(omnibus.p_value) else 1.0)
    table["reject_fwer"], table["reject_fdr"] = table["holm"] <= of_ranks, table["q_value"] <= alpha
    table["rho"] = ranks["rho"]
    table["rho_above"] = ranks["rho"] > threshold
    labels, out = m.contexts[1:], LeftOut()
    if _overall(table["holm"], omnibus) <= alpha:
        out = LeftOut({}, tuple(c for c, hit in zip(labels, table["reject_fwer"], strict=True) if hit))
        if not isinstance(joint, str) and omnibus.p_value <= alpha * OMNIBUS_SHARE:
            out = leave_out(joint, omnibus, alpha)
    table["misfit"] = [omnibus.misfit.get(c, np.nan) for c in labels]
    table["gain"] = [out.gain.get(c, np.nan) for c in labels]
    table["decision"] = [
        "drop" if c in out.culprits else "untested" if np.isnan(value) else "keep"
        for c, value in zip(labels, p, strict=True)
    ]
    both = zip(labels, table.to_dict("records"), ranks["reason"], strict=True)
    table["reason"] = [_reason(m, c, row, alpha, said, data is None) for c, row, said in both]
    note = ranks.attrs["note"] if data is None else "p-values are corrected by the fourth moments of the samples."
    return MembershipTest(table, omnibus, alpha, threshold, note, used, out.p_value)


def _overall(adjusted: pd.Series, omnibus: Omnibus) -> float:
    """Return the p-value of the verdict as a whole: 1 where nothing could be tested."""
    ranks = float(adjusted.min()) if adjusted.notna().any() else 1.0
    if np.isnan(omnibus.p_value):
        return ranks
    return min(1.0, ranks / (1 - OMNIBUS_SHARE), omnibus.p_value / OMNIBUS_SHARE)


def _reason(m: Moments, context: Hashable, row: Any, alpha: float, of_rank: str, gaussian: bool) -> str:
    """Return the reason for a decision, in words; the rank test may have given one."""
    if row["decision"] == "untested":
        return of_rank
    how_many = _directions(m, context, alpha) if gaussian and row["reject_fwer"] else 3
    seen = (
        f"its covariance differs from the control's in {'at least ' * (how_many == 3)}{how_many} directions "
        f"(p = {row['p_value']:.2g}, Holm {row['holm']:.2g}), where a single target changes at most 2"
    )
    if row["decision"] == "drop":
        gained = (
            f"leaving it out takes {100 * row['gain']:.0f} % of the misfit away" if np.isfinite(row["gain"]) else ""
        )
        why = [text for text, said in ((gained, gained), (seen, row["reject_fwer"])) if said]
        return f"drop because {'; and '.join(why)}"
    if row["reject_fwer"]:
        return f"suspect: {seen}; but leaving it out does not mend the model"
    if row["reject_fdr"]:
        return f"suspect: rejected at a false-discovery rate of {alpha:g}, not family-wise"
    return of_rank


def _directions(m: Moments, context: Hashable, alpha: float) -> int:
    """Return the smallest rank of at least three that the Gaussian test of one context accepts."""
    pair = m.select([context])
    r = len(pair.whitened.W)
    return next((rank for rank in range(3, r) if rank_test(pair, rank)["p_value"].iloc[0] > alpha), r)


def _joint(m: Moments, fit: Fit | Literal[False] | None) -> tuple[Joint | str, Fit | None]:
    """Return one model for all contexts, or why there is none, and the fit behind it."""
    if fit is False:
        return "not asked for", None
    if fit is None:
        K, r = m.n_contexts, len(m.whitened.W)
        if too_small := no_covariance(m):
            return too_small, None
        if r < K:
            return (
                f"{K} contexts in {r} dimensions: some share a target. Group them (latentdag.target_groups), fit with "
                "targets=…, and pass fit=…"
            ), None
        if K > FIT_UP_TO:
            return f"{K} contexts take a while to fit: pass fit=latentdag.fit(m)", None
        with warnings.catch_warnings():  # what a fit warns of matters to its reader; the test has warnings of its own
            warnings.simplefilter("ignore", LatentDAGWarning)
            fit = run_fit(m)
    return joint_fit(fit, m), fit
