"""The verdict on a fit: what to know before believing it, in plain sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latentdag.data import labels as lb
from latentdag.uncertainty.changed import ALIKE, UNCHANGED

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

UNCHANGED_TEXT = "Nothing changed in {which}{tail}."
ALIKE_TEXT = "No difference from the other contexts shows in {which}{tail}."
NO_GRAPH = "these data show no causal graph"
#: By the number of contexts; first, where other contexts hit some of their latents.
NO_EDGES = (
    "latents that no other context hits carry no edges",
    "its latent carries no edges",
    "their latents carry no edges",
)
NOT_CONVERGED = "The optimiser stopped before the maximum: estimates may be off."
NOISY = "Every feature has noise of its own, half of them {share:.0%} of their variance or more{beside}{why}."
WHY = " (BIC prefers this to exact features by {gap:.0f})"
EXACT = "Features are taken as exact: BIC prefers this to noise of single features by {gap:.0f}."
ENDLESS = (
    "Features are taken as exact: with noise of single features BIC asks for {r} factors, the most that can be told "
    "apart, so something else than noise is amiss."
)
UNBOUNDED = "Features are taken as exact: a fit with noise of single features leads to no model of these data."
FLOOR = "Of some features the noise cannot be told from none: {listed}."
SILENT = "Some features hold nothing but noise: {listed}."
TARGETS_HINT = (
    "But {which} may hit several latents, or one that other contexts hit: fit again with targets='learn', and compare."
)
TARGETS_OPEN = (
    "The targets are not settled: {which} may hit other latents, {n} further target sets are nearly as likely."
)
CUT_SHORT = "The search for targets was cut short: there may be better ones."
TWINS = "The same contexts hit {which}: {what}."
TWINS_OPEN = "nothing tells them apart, and no edge at either is called"
TWINS_TOLD = "nothing tells which acts on the other"
NEVER_ALONE = (
    "No context hits {which} alone: other target sets may explain such data, and probabilities of targets do not know "
    "those that the search missed."
)
SHARED = "As supposed, the contexts of {group} share a target."
NOT_SHARED = "The contexts of {group} do not share a target: {which}."
FEWER = "The data show {found} latents, not the {asked} that were asked for."
STRENGTHS = "Partial interventions, of strengths that were told: {listed}{unsure}."
UNSURE = "; the fit is for the middle of each range, and standard errors allow for the rest of it"
REFUSED = "These data refuse the model (p = {p:.1g}{gaussian}): edges are those of an approximation.{size}"
NEXT = "What to do next: {look}{ways}."
LOOK = "latentdag.membership_test says which contexts speak against it"
#: Options that may describe such data better, and what they ask. Soft interventions do not: in a full order, which is
#: what is tested, they explain the same moments.
WAYS = {
    "targets": "; targets='learn' asks whether contexts hit several latents, or one together",
    "unintervened": "; unintervened='upstream' asks whether what nobody intervened on causes the others",
}
GAUSSIAN = ", samples taken as Gaussian"
UNSETTLED = "The graph is not settled: of its {n} edges {right:.1f} are expected to be right."
FINE = "Nothing speaks against this fit."

#: Share of a feature's variance from which on its noise is all of it.
ALL_NOISE = 0.99

#: Shares of its edges that must be expected to be right for a graph to be called settled, and to raise no warning.
SETTLED, NO_WARNING = 0.9, 2 / 3


@dataclass(frozen=True)
class Verdict:
    """What to know before believing a fit.

    Attributes
    ----------
    reasons : tuple of sentences
        The weightiest first; none where nothing speaks against the fit.
    notes : tuple of sentences
        What was decided on the way, and why; nothing to worry about.
    advice : str
        What to do next where the model is refused.

    Examples
    --------
    >>> str(Verdict(())), Verdict(("Nothing changed in 'A': its latent carries no edges.",)).ok
    ('Nothing speaks against this fit.', False)
    """

    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    advice: str = ""

    @property
    def ok(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return " ".join(filter(None, [*(self.reasons or (FINE,)), *self.notes, self.advice]))


def verdict_of(fit: "Fit") -> Verdict:
    """Return the verdict on a fit: contexts that are idle come first."""
    converged = () if fit.converged else (NOT_CONVERGED,)
    refusal = fit.details.get("refusal")
    refusal = refusal if fit.graph.number_of_edges() else None
    refused = () if refusal is None else (refused_reason(**refusal),)
    reasons = (*idle_reasons(fit), *refused, *_target_reasons(fit), *_unsettled(fit), *converged)
    notes = (*_target_notes(fit), *_noise_notes(fit), *_strength_notes(fit))
    return Verdict(reasons, notes, "" if refusal is None else next_steps(fit))


def refused_reason(p_value: float, gaussian: bool, size: str) -> str:
    """Return the sentence of a model that the data refuse."""
    size = f" {size}" if size else ""
    return REFUSED.format(p=max(p_value, 1e-300), gaussian=GAUSSIAN if gaussian else "", size=size)


def next_steps(fit: "Fit", look: str = LOOK) -> str:
    """Return what to do where the data refuse the model of a fit: where to look, and options it was not told."""
    asked = "target_probability" in fit.details or fit.details.get("targets_hint")  # a note says so already
    beside = fit.model.residual is not None and fit.model.feature_noise is None
    told = {"targets": asked, "unintervened": not beside or fit.options.unintervened == "upstream"}
    return NEXT.format(look=look, ways="".join(text for name, text in WAYS.items() if not told[name]))


def _target_reasons(fit: "Fit") -> Iterator[str]:
    """Yield what speaks against the targets, given or learned."""
    for names, told in fit.twins.items():
        yield TWINS.format(which=and_list(names), what=TWINS_TOLD if told else TWINS_OPEN)
    if fit.details.get("target_rivals"):
        doubtful = sorted({context for _, sets in fit.details["target_rivals"] for context in sets})
        yield TARGETS_OPEN.format(which=and_list(doubtful), n=len(fit.details["target_rivals"]))
    if not fit.details.get("targets_explored", True):
        yield CUT_SHORT
    for group, targets in _supposed(fit).items():
        common = set.intersection(*map(set, targets.values()))
        if not common:
            said = [f"{context} hits {and_list(names) or 'none'}" for context, names in targets.items()]
            yield NOT_SHARED.format(group=group, which=", ".join(said))


def _target_notes(fit: "Fit") -> Iterator[str]:
    """Yield what was found of targets that were supposed, asked for, or taken for granted."""
    idle = lb.text_names(fit.model.contexts)
    idle = [text for text, context in zip(idle, fit.model.contexts, strict=True) if context in fit.idle]
    doubtful = [context for context in fit.details.get("targets_hint", ()) if context not in idle]
    if doubtful:
        yield TARGETS_HINT.format(which=and_list(doubtful))
    alone = {v.targets[0] for v in fit.model.interventions.values() if len(v.targets) == 1}
    never = [name for name in fit.order if name not in alone]
    if never and "target_probability" in fit.details:
        yield NEVER_ALONE.format(which=and_list(never))
    for group, targets in _supposed(fit).items():
        if set.intersection(*map(set, targets.values())):
            yield SHARED.format(group=group)
    asked = getattr(fit.options.get("targets"), "n_latents", None)
    if asked and fit.model.n_latents < asked:
        yield FEWER.format(found=fit.model.n_latents, asked=asked)


def _supposed(fit: "Fit") -> dict[str, dict[str, list[str]]]:
    """Return the targets of all contexts that were supposed to share one, by group and context."""
    found: dict[str, dict[str, list[str]]] = {}
    for context, group in getattr(fit.options.get("targets"), "share", {}).items():
        found.setdefault(group, {})[str(context)] = list(fit.model.interventions[context].targets)
    return found


def _strength_notes(fit: "Fit") -> Iterator[str]:
    """Yield what strengths the fit took interventions to have."""
    told = {c: s for c, s in (fit.options.strength or {}).items() if s != 1}
    if told:
        shown = [f"{c} {s:.2g}" if isinstance(s, float) else f"{c} {s[0]:.2g} to {s[1]:.2g}" for c, s in told.items()]
        unsure = UNSURE if any(isinstance(s, tuple) for s in told.values()) else ""
        yield STRENGTHS.format(listed=and_list(shown), unsure=unsure)


def _noise_notes(fit: "Fit") -> Iterator[str]:
    """Yield what was decided about noise of the features, and why."""
    psi, bic = fit.model.feature_noise, dict(fit.details.get("noise_bic", {}))
    exact = bic.pop("exact", None)
    if psi is None:
        if "noise_unbounded" in fit.details:
            yield UNBOUNDED
        if "noise_endless" in fit.details:
            yield ENDLESS.format(r=fit.details["noise_endless"])
        if exact is not None:
            yield EXACT.format(gap=min(bic.values()) - exact)
        return
    share = psi / np.mean([np.diagonal(fit.model.covariance(c)) for c in fit.model.contexts], axis=0)
    why = "" if exact is None else WHY.format(gap=exact - min(bic.values()))
    background = fit.details["n_factors"] - fit.model.n_latents
    beside = f", and {background} factors that no context targets" if background > 0 else ""
    yield NOISY.format(share=np.median(share), beside=beside, why=why)
    silent = [name for name, each in zip(fit.model.feature_names, share, strict=True) if each > ALL_NOISE]
    for text, names in ((FLOOR, fit.details.get("noise_at_floor", [])), (SILENT, silent)):
        if names:
            yield text.format(listed=lb.listed(names))


def _unsettled(fit: "Fit") -> list[str]:
    """Return a sentence where too few edges of the graph are expected to be right."""
    known = {(source, target): p for source, target, p in fit.details.get("probability", ())}
    right, n = sum(known.get(edge, 0.0) for edge in fit.graph.edges), fit.graph.number_of_edges()
    return [UNSETTLED.format(n=n, right=right)] if known and unsettled(n, right) else []


def unsettled(n: int, right: float, share: float = SETTLED) -> bool:
    """Tell whether of n edges too few are expected to be right; one doubtful edge does not make a doubtful graph."""
    return right < share * n and n - right > 1


def idle_reasons(fit: "Fit") -> list[str]:
    """Return the sentences about idle contexts."""
    texts = dict(zip(fit.model.contexts, lb.text_names(fit.model.contexts), strict=True))
    why, quiet = fit.details.get("changed", {}), set(fit.idle_latents)
    by_reason: dict[str, list[str]] = {}
    for context in fit.idle:
        by_reason.setdefault(why.get(texts[context], {}).get("reason", UNCHANGED), []).append(texts[context])
    every, reasons = not set(fit.model.interventions) - set(fit.idle), []
    for reason, text in ((UNCHANGED, UNCHANGED_TEXT), (ALIKE, ALIKE_TEXT)):
        names = by_reason.get(reason, [])
        bare = all(not fit.model.interventions[c].targets for c in fit.idle if texts[c] in names)
        alone = all(set(fit.model.interventions[c].targets) <= quiet for c in fit.idle if texts[c] in names)
        tail = NO_GRAPH if every else NO_EDGES[1 if len(names) == 1 else 2] if alone else NO_EDGES[0]
        tail = (
            "" if (bare and not every) or (every and reason == UNCHANGED and ALIKE in by_reason) else f": {tail}"
        )  # once is enough
        which = f"any of the {len(names)} contexts" if every and len(names) == len(fit.idle) > 1 else and_list(names)
        reasons += [text.format(which=which, tail=tail)] if names else []
    return reasons


def and_list(names: Sequence[str], limit: int = 6) -> str:
    """Return ``a, b and c``, cut where it gets long."""
    shown = [*names[:limit], f"{len(names) - limit} more"] if len(names) > limit else list(names)
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
