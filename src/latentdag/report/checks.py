"""What was checked before the graph is shown, each with a verdict in plain words.

A check has a status: ``good``, ``note`` (nothing wrong, worth knowing), ``warn`` (believe with care), ``bad`` (speaks
against the model) or ``open`` (could not be checked, and why).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from latentdag.core.multiplicity import holm
from latentdag.data import labels as lb
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit
from latentdag.report.findings import ALPHA, Evidence
from latentdag.report.show import show
from latentdag.uncertainty.standard_errors import SHRUNK

#: From worst to best.
STATUSES = ("bad", "warn", "open", "note", "good")

OVERALL = {
    "bad": "Something speaks against this model: read the checks marked ✕ before the graph.",
    "warn": "Believe with care: read the checks marked ! before the graph.",
    "open": "Nothing that was checked speaks against this model, but not everything could be checked.",
    "note": "Nothing that was checked speaks against this model.",
    "good": "Nothing that was checked speaks against this model.",
}

#: Condition numbers of correlations up to which double precision is no worry, and up to which it is not yet a danger.
CALM, STRAINED = 1e6, 1e10

#: Nats by which the best order should be ahead: odds of twenty to one.
CLEAR = float(np.log(20))

Check = dict[str, Any]


def all_checks(
    fit: Fit, edges: Sequence[dict[str, Any]], note: str, evidence: Evidence, bootstrap: Bootstrap | None
) -> list[Check]:
    """Every check that applies to this fit."""
    made: list[Callable[[], Check | None]] = [
        lambda: _counts(fit, evidence),
        lambda: _visible(fit, evidence),
        lambda: _single_targets(fit, evidence),
        lambda: _membership(evidence),
        lambda: _condition(fit, evidence),
        lambda: _shrinkage(fit),
        lambda: _converged(fit),
        lambda: _starts(fit),
        lambda: _runner_up(fit),
        lambda: _ambiguous(fit),
        lambda: _edges(edges, note),
        lambda: _stability(bootstrap),
        lambda: (
            _check("warnings", "Warnings of the tests", "warn", " ".join(evidence.warnings))
            if evidence.warnings
            else None
        ),
    ]
    return [check for make in made if (check := make()) is not None]


def overall(checks: Sequence[Check]) -> Check:
    """The worst status, in one sentence."""
    worst = next(status for status in STATUSES if any(check["status"] == status for check in checks))
    return {"status": worst, "text": OVERALL[worst]}


def _check(key: str, name: str, status: str, text: str) -> Check:
    return {"id": key, "name": name, "status": status, "text": text}


def listed(names: Sequence[str], limit: int = 6) -> str:
    """``a, b and c``, cut where it gets long."""
    if len(names) > limit:
        return ", ".join(names[:limit]) + f" and {len(names) - limit} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _counts(fit: Fit, evidence: Evidence) -> Check:
    names = lb.text_names(fit.model.contexts)
    k = int(np.argmin(fit.counts))
    least, dims = fit.counts[k], evidence.dimensions or fit.model.n_features
    which = f"The smallest, {names[k]}, has {least:,}" if max(fit.counts) > least else f"Each context has {least:,}"
    text = (
        f"{len(names)} contexts, one of them the control, and {fit.n_samples:,} samples. {which}: {least / dims:.3g} "
        f"for each of the {dims} dimensions in which the data vary"
    )
    if least <= dims:
        return _check("counts", "Samples per context", "warn", text + ", too few for a covariance of its own.")
    if least < 5 * dims:
        return _check("counts", "Samples per context", "note", text + ". More would be comfortable.")
    return _check("counts", "Samples per context", "good", text + ".")


def _visible(fit: Fit, evidence: Evidence) -> Check | None:
    if 0 not in evidence.ranks:
        return None
    still = [c for c in fit.model.interventions if evidence.p_value(c, 0) > ALPHA]
    tested = [c for c in fit.model.interventions if np.isfinite(evidence.p_value(c, 0))]
    if not tested:
        return _check("visible", "Does every perturbation show?", "open", "Too few samples to test.")
    if still:
        means = fit.options.means
        return _check(
            "visible", "Does every perturbation show?", "warn",
            f"The covariance of {listed(lb.text_names(still))} cannot be told from the control's (p > {ALPHA:g}). "
            + ("What is said about the target rests on shifts of the mean." if means else "Its target is a guess."),
        )  # fmt: skip
    return _check(
        "visible", "Does every perturbation show?", "good",
        f"The covariance of every context tested ({len(tested)}) differs from the control's.",
    )  # fmt: skip


def _single_targets(fit: Fit, evidence: Evidence) -> Check:
    name = "One target per context (rank tests)"
    if evidence.why_not:
        return _check("rank", name, "open", evidence.why_not[0].upper() + evidence.why_not[1:] + ".")
    contexts = list(fit.model.interventions)
    p = np.array([evidence.p_value(c, evidence.allowed[c]) for c in contexts])
    if np.isnan(p).all():
        reason = next(iter(evidence.ranks.values()))["reason"].iloc[0]
        return _check("rank", name, "open", f"Could not be tested: {reason}.")
    adjusted = holm(p)
    texts = lb.text_names(contexts)
    over = [texts[k] for k in np.flatnonzero(adjusted <= ALPHA)]
    left = int(np.isnan(p).sum())
    untested = f" {left} of {len(p)} contexts have too few samples to be tested." if left else ""
    if over:
        return _check(
            "rank", name, "bad",
            f"{listed(over)} change{'s' if len(over) == 1 else ''} more than the target can: a perturbation of one "
            f"latent changes at most two directions of the covariance, and here there are more (p ≤ {ALPHA:g} after "
            f"Holm's correction).{untested}",
        )  # fmt: skip
    if not np.isnan(p).all() and all(p[np.isfinite(p)] == 1.0):
        return _check("rank", name, "open", "The data have two dimensions or fewer, so there is nothing to test.")
    return _check(
        "rank", name, "note" if left else "good",
        f"No context changes more directions than its target can (smallest p-value {np.nanmin(p):.2g}, after Holm's "
        f"correction {np.nanmin(adjusted):.2g}).{untested}",
    )  # fmt: skip


def _membership(evidence: Evidence) -> Check:
    name = "One model for all contexts (membership)"
    test = evidence.membership
    if test is None:
        text = evidence.why_no_membership
        return _check("membership", name, "open", text[0].upper() + text[1:] + ".")
    omnibus = str(test.omnibus)
    if test.omnibus.reason == "not asked for":
        omnibus = "no joint test was asked for, which takes long for many latents"
    status = "bad" if not test.in_model else "good" if np.isfinite(test.omnibus.p_value) else "note"
    return _check("membership", name, status, f"{test.verdict} ({omnibus[0].upper() + omnibus[1:]}.)")


def _condition(fit: Fit, evidence: Evidence) -> Check | None:
    if not evidence.dimensions:
        return None
    value, r, p, d = evidence.condition, evidence.dimensions, fit.model.n_features, fit.model.n_latents
    text = f"Condition number {show(value, 'number')} of the correlations of all contexts together"
    text += f", within the {r} dimensions that {p} features span. " if r < p else ". "
    if r > d:
        text += f"There are {r - d} more dimensions than latents: the rest is modelled as unaffected background. "
    if value > STRAINED:
        return _check("condition", "Conditioning", "warn", text + "Features are nearly collinear: drop duplicates.")
    if value > CALM:
        return _check("condition", "Conditioning", "note", text + "Some features nearly repeat others.")
    return _check("condition", "Conditioning", "good", text + "No numerical worry.")


def _shrinkage(fit: Fit) -> Check | None:
    shares = fit.details.get("shrinkage")
    if not shares:
        return None
    name, most = max(shares.items(), key=lambda item: item[1])
    text = f"At most {show(most, 'share')} of a context's covariance is borrowed from the others ({name})"
    if most > 0.5:
        few = [c for c, share in shares.items() if share > 0.5]
        return _check(
            "shrinkage", "Borrowed covariance", "warn",
            f"More than half of the covariance of {listed(few)} is borrowed from the other contexts, for want of "
            "samples: their own data say little.",
        )  # fmt: skip
    if most > SHRUNK:
        return _check("shrinkage", "Borrowed covariance", "note", text + "; its standard errors are a little small.")
    return _check("shrinkage", "Borrowed covariance", "good", text + ".")


def _converged(fit: Fit) -> Check:
    gain = fit.details.get("gain", float("nan"))
    if not fit.converged:
        return _check(
            "converged", "Optimiser", "warn", f"Stopped {gain:.3g} nats short of the maximum: estimates may be off."
        )
    if fit.method != "likelihood":
        return _check("converged", "Optimiser", "note", f"Method {fit.method} computes its answer without iteration.")
    return _check(
        "converged", "Optimiser", "good", f"Converged: at most {show(max(gain, 1e-12), 'p')} nats are left to gain."
    )


def _starts(fit: Fit) -> Check | None:
    n, agreed = fit.details.get("n_starts", 0), fit.details.get("n_agreed", 0)
    if n < 2:
        return None
    text = f"{agreed} of {n} starts of the search ended within half a nat of the best likelihood."
    if agreed == 1:
        return _check("starts", "Search", "note", text + " The search is hard here: a better model may exist.")
    return _check("starts", "Search", "good", text)


def _runner_up(fit: Fit) -> Check | None:
    if "runner_up" not in fit.details:
        return None
    rival = fit.details["runner_up"]
    if rival is None:
        return _check(
            "order", "Runner-up order", "good", "No rival: the search met no order that contradicts the graph."
        )
    text = f"The best order that contradicts the graph is {rival['gap']:.2g} nats behind"
    order = " → ".join(rival["order"][:12]) + (" → …" if len(rival["order"]) > 12 else "")
    if rival["gap"] < CLEAR:
        return _check(
            "order", "Runner-up order", "warn",
            f"{text}, odds of only {np.exp(min(rival['gap'], 50.0)):.2g} to 1: the direction of some edges is not "
            f"settled. It reads {order}.",
        )  # fmt: skip
    return _check("order", "Runner-up order", "good", f"{text}: the order is clear.")


def _ambiguous(fit: Fit) -> Check | None:
    if "ambiguous" not in fit.details:
        return None
    rivals = fit.details["ambiguous"]
    if not rivals:
        return _check("ambiguous", "Ambiguous latents", "good", "None: every latent has one best candidate.")
    reasons = [str(found[0].get("why", "")) for found in rivals.values() if found and isinstance(found[0], dict)]
    return _check(
        "ambiguous", "Ambiguous latents", "warn",
        f"The data leave more than one candidate for {listed(list(rivals))}."
        + (f" For example: {reasons[0]}." if reasons and reasons[0] else ""),
    )  # fmt: skip


def _edges(edges: Sequence[dict[str, Any]], note: str) -> Check:
    known = [edge["q_value"] for edge in edges if edge["q_value"] is not None]
    if not edges:
        return _check("edges", "Edges", "note", "The graph has no edges: no latent acts on another, as far as seen.")
    if not known:
        return _check("edges", "Edges", "open", f"{len(edges)} edges without tests: {note or 'no standard errors'}.")
    sure = sum(q <= ALPHA for q in known)
    text = (
        f"{sure} of {len(edges)} edges have a q-value of {ALPHA:g} or less (false discoveries among all pairs of "
        "latents, not only among those drawn)."
    )
    return _check(
        "edges",
        "Edges",
        "note" if note or sure < len(edges) else "good",
        text + (f" {note[0].upper() + note[1:]}." if note else ""),
    )


def _stability(bootstrap: Bootstrap | None) -> Check | None:
    if bootstrap is None:
        return None
    rows = {row["quantity"]: row for row in bootstrap.summary.to_dict("records")}
    order, kept = rows["same ancestor relation"], rows["edges of the fit in 95 % of the replicates"]
    failed = f" {len(bootstrap.failures)} replicates could not be fitted." if bootstrap.failures else ""
    good = kept["count"] >= 0.9 * kept["of"] and not bootstrap.failures
    return _check(
        "bootstrap", "Bootstrap", "good" if good else "note",
        f"{kept['count']} of {kept['of']} edges came back in at least 95 % of {bootstrap.n_replicates} replicates; the "
        f"whole ancestor relation came back in {order['count']} of them.{failed}",
    )  # fmt: skip
