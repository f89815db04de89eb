"""What was checked before the graph is shown, each with a verdict in plain words.

A check has a status: ``good``, ``note`` (nothing wrong, worth knowing), ``warn`` (believe with care), ``bad`` (speaks
against the model) or ``open`` (could not be checked, and why). Each function below returns the status and the text of
one check, or None where the check does not apply to the fit.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.core.multiplicity import holm
from latentdag.data import labels as lb
from latentdag.methods.verdict import and_list, idle_reasons
from latentdag.report.evidence import ALPHA
from latentdag.report.text import WORDS, show
from latentdag.uncertainty.standard_errors import SHRUNK

if TYPE_CHECKING:
    from latentdag.report.results import Results

#: From worst to best.
STATUSES = tuple(WORDS["verdicts"])

#: Condition numbers of correlations up to which double precision is no worry, and up to which it is not yet a danger.
CALM, STRAINED = 1e6, 1e10

#: Nats by which the best order should be ahead: odds of twenty to one.
CLEAR = float(np.log(20))

Check = dict[str, Any]
Found = tuple[str, str] | None


def all_checks(results: "Results") -> list[Check]:
    """Return every check that applies to this fit, as records of id, name, status and text."""
    found = [(key, name, check(results)) for key, name, check in CHECKS]
    return [
        {"id": key, "name": name, "status": said[0], "text": said[1]} for key, name, said in found if said is not None
    ]


def overall(checks: Sequence[Check], first: Sequence[str] = ()) -> Check:
    """Return the worst status, with one sentence about it; ``first``, what must be said before."""
    worst = min((check["status"] for check in checks), key=STATUSES.index)
    return {"status": worst, "text": " ".join([*first, WORDS["verdicts"][worst]])}


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _counts(results: "Results") -> Found:
    fit = results.fit
    names = lb.text_names(fit.model.contexts)
    k = int(np.argmin(fit.counts))
    least, dims = fit.counts[k], results.evidence.dimensions or fit.model.n_features
    which = f"The smallest, {names[k]}, has {least:,}" if max(fit.counts) > least else f"Each context has {least:,}"
    text = (
        f"{len(names)} contexts, one of them the control, and {fit.n_samples:,} samples. {which}: {least / dims:.3g} "
        f"for each of the {dims} dimensions in which the data vary"
    )
    if least <= dims:
        return "warn", text + ", too few for a covariance of its own."
    if least < 5 * dims:
        return "note", text + ". More would be comfortable."
    return "good", text + "."


def _changed(results: "Results") -> Found:
    """Whether anything changed in every context: what the fit itself tested, before any edge."""
    fit = results.fit
    if fit.idle:
        return "warn", " ".join(idle_reasons(fit))
    if "changed" not in fit.details:
        return None
    return "good", (
        f"All {len(fit.model.interventions)} contexts differ from the control, and each from the others together "
        f"(mean and covariance; p ≤ {ALPHA:g} after Holm's correction)."
    )


def _single_targets(results: "Results") -> Found:
    evidence = results.evidence
    if evidence.why_not:
        return "open", _sentence(evidence.why_not)
    contexts = list(results.fit.model.interventions)
    p = np.array([evidence.p_value(c, evidence.allowed[c]) for c in contexts])
    if np.isnan(p).all():
        reason = next(iter(evidence.ranks.values()))["reason"].iloc[0]
        return "open", f"Could not be tested: {reason}."
    adjusted = holm(p)
    over = [text for text, value in zip(lb.text_names(contexts), adjusted, strict=True) if value <= ALPHA]
    left = int(np.isnan(p).sum())
    untested = f" {left} of {len(p)} contexts have too few samples to be tested." if left else ""
    test = evidence.membership
    if over and test is not None and test.in_model:  # one verdict, with one level: that of the whole
        return "note", (
            f"{and_list(over)} may change more than the target can (p ≤ {ALPHA:g} after Holm's correction), but not "
            f"plainly enough to refuse the model as a whole.{untested}"
        )
    if over:
        spared = [
            text for text in over if test is not None and test.fit is not None and text not in map(str, test.drop)
        ]
        mend = f" Leaving {and_list(spared)} out would not mend that." if spared else ""
        return "bad", (
            f"{and_list(over)} change{'s' if len(over) == 1 else ''} more than the target can: a perturbation of one "
            f"latent changes at most two directions of the covariance, and here there are more (p ≤ {ALPHA:g} after "
            f"Holm's correction).{mend}{untested}"
        )
    if np.nanmin(p) == 1.0:
        return "open", "The data have two dimensions or fewer, so there is nothing to test."
    return "note" if left else "good", (
        f"No context changes more directions than its target can (smallest p-value {np.nanmin(p):.2g}, after Holm's "
        f"correction {np.nanmin(adjusted):.2g}).{untested}"
    )


def _membership(results: "Results") -> Found:
    test = results.evidence.membership
    if test is None:
        return "open", _sentence(results.evidence.why_no_membership)
    omnibus = str(test.omnibus)
    if test.omnibus.reason == "not asked for":
        omnibus = "no joint test was asked for, which takes long for many latents"
    status = "bad" if not test.in_model else "good" if np.isfinite(test.omnibus.p_value) else "note"
    return status, f"{test.verdict} ({_sentence(omnibus)})"


def _condition(results: "Results") -> Found:
    value, r, model = results.evidence.condition, results.evidence.dimensions, results.fit.model
    if not r:
        return None
    text = f"Condition number {show(value, 'number')} of the correlations of all contexts together"
    text += f", within the {r} dimensions that {model.n_features} features span. " if r < model.n_features else ". "
    if r > model.n_latents:
        more = r - model.n_latents
        text += f"There are {more} more dimensions than latents: the rest is modelled as unaffected background. "
    if value > STRAINED:
        return "warn", text + "Features are nearly collinear: drop duplicates."
    if value > CALM:
        return "note", text + "Some features nearly repeat others."
    return "good", text + "No numerical worry."


def _shrinkage(results: "Results") -> Found:
    shares = results.fit.details.get("shrinkage")
    if not shares:
        return None
    name = max(shares, key=shares.get)
    text = f"At most {show(shares[name], 'share')} of a context's covariance is borrowed from the others ({name})"
    few = [context for context, share in shares.items() if share > 0.5]
    if few:
        return "warn", (
            f"More than half of the covariance of {and_list(few)} is borrowed from the other contexts, for want of "
            "samples: their own data say little."
        )
    if shares[name] > SHRUNK:
        return "note", text + "; its standard errors are a little small."
    return "good", text + "."


def _converged(results: "Results") -> Found:
    fit = results.fit
    gain = fit.details.get("gain", float("nan"))
    if not fit.converged:
        return "warn", f"Stopped {gain:.3g} nats short of the maximum: estimates may be off."
    if fit.method != "likelihood":
        return "note", f"Method {fit.method} computes its answer without iteration."
    return "good", f"Converged: at most {show(max(gain, 1e-12), 'p')} nats are left to gain."


def _starts(results: "Results") -> Found:
    details = results.fit.details
    n, agreed = details.get("n_starts", 0), details.get("n_agreed", 0)
    if n < 2:
        return None
    text = f"{agreed} of {n} starts of the search ended within half a nat of the best."
    if agreed == 1:
        return "note", text + " The search is hard here: a better model may exist."
    return "good", text


def _runner_up(results: "Results") -> Found:
    if "runner_up" not in results.fit.details:
        return None
    rival = results.fit.details["runner_up"]
    if rival is None:
        return "good", "No rival: the search met no order that contradicts the graph."
    text = f"The best order that contradicts the graph is {rival['gap']:.2g} nats behind"
    order = " → ".join(rival["order"][:12]) + (" → …" if len(rival["order"]) > 12 else "")
    if rival["gap"] < CLEAR:
        return "warn", (
            f"{text}, odds of only {np.exp(min(rival['gap'], 50.0)):.2g} to 1: the direction of some edges is not "
            f"settled. It reads {order}."
        )
    return "good", f"{text}: the order is clear."


def _ambiguous(results: "Results") -> Found:
    if "ambiguous" not in results.fit.details:
        return None
    rivals = results.fit.details["ambiguous"]
    if not rivals:
        return "good", "None: every latent has one best candidate."
    reasons = [str(found[0].get("why", "")) for found in rivals.values() if found and isinstance(found[0], dict)]
    example = f" For example: {reasons[0]}." if reasons and reasons[0] else ""
    return "warn", f"The data leave more than one candidate for {and_list(list(rivals))}.{example}"


def _edges(results: "Results") -> Found:
    q, note = results.edges["q_value"], results.edges.attrs["note"]
    if not len(q):
        return "note", "The graph has no edges: no latent acts on another, as far as seen."
    if q.isna().all():
        return "open", f"{len(q)} edges without tests: {note or 'no standard errors'}."
    sure = int((q <= ALPHA).sum())
    text = f"{sure} of {len(q)} edges have a q-value of {ALPHA:g} or less: other orders and graphs are counted in."
    return "note" if note or sure < len(q) else "good", text + (f" {_sentence(note)}" if note else "")


def _stability(results: "Results") -> Found:
    bootstrap = results.bootstrap
    if bootstrap is None:
        return None
    rows = {row["quantity"]: row for row in bootstrap.summary.to_dict("records")}
    order, kept = rows["same ancestor relation"], rows["edges of the fit in 95 % of the replicates"]
    failed = f" {len(bootstrap.failures)} replicates could not be fitted." if bootstrap.failures else ""
    good = kept["count"] >= 0.9 * kept["of"] and not bootstrap.failures
    return "good" if good else "note", (
        f"{kept['count']} of {kept['of']} edges came back in at least 95 % of {bootstrap.n_replicates} replicates; the "
        f"whole ancestor relation came back in {order['count']} of them.{failed}"
    )


def _warnings(results: "Results") -> Found:
    return ("warn", " ".join(results.evidence.warnings)) if results.evidence.warnings else None


#: Checks in the order in which a report lists them: id, name, and what returns status and text.
CHECKS = (
    ("changed", "Did anything change?", _changed),
    ("counts", "Samples per context", _counts),
    ("rank", "One target per context (rank tests)", _single_targets),
    ("membership", "One model for all contexts (membership)", _membership),
    ("condition", "Conditioning", _condition),
    ("shrinkage", "Borrowed covariance", _shrinkage),
    ("converged", "Optimiser", _converged),
    ("starts", "Search", _starts),
    ("order", "Runner-up order", _runner_up),
    ("ambiguous", "Ambiguous latents", _ambiguous),
    ("edges", "Edges", _edges),
    ("bootstrap", "Bootstrap", _stability),
    ("warnings", "Warnings of the tests", _warnings),
)
