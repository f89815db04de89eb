"""What was checked before the graph is shown: the tests, and for each check a verdict in plain words.

:class:`Evidence` is what the moments say about the model, before any edge is believed.

A check has a status: ``good``, ``note`` (nothing wrong, worth knowing), ``warn`` (believe with care), ``bad`` (speaks
against the model) or ``open`` (could not be checked, and why). Each function below returns the status of one check,
which of its sentences in ``words.toml`` says so, and what is filled into it; or None where the check does not apply.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd

from latentdag.core.linalg import RANK_TOLERANCE, unit_diagonal
from latentdag.core.multiplicity import holm
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples
from latentdag.inference.membership import FIT_UP_TO, MembershipTest, membership_test
from latentdag.inference.ranks import p_value_column, rank_test
from latentdag.methods.result import Fit
from latentdag.methods.verdict import Verdict, and_list, next_steps, refused_reason
from latentdag.report.text import WORDS, show
from latentdag.uncertainty.standard_errors import SHRUNK

if TYPE_CHECKING:
    from latentdag.report.results import Results

#: A p-value at or below this speaks against a hypothesis.
ALPHA = 0.05

#: Contexts times features cubed up to which ranks below those of the hypothesis are tested as well: half a minute each.
TEST_UP_TO = 1e10

NO_MOMENTS = "Not checked: no moments were given (pass moments=…)."
NOT_ASKED = "Not checked: tests were turned off (tests=False)."


@dataclass(frozen=True)
class Evidence:
    """What the tests found.

    Attributes
    ----------
    ranks : mapping of rank to the table of :func:`latentdag.inference.ranks.rank_test`
        Of rank 0, 1, and 2 per target; only the last where there are very many features.
    allowed : mapping of context to the rank that its targets can change
    membership : MembershipTest or None
    condition, dimensions : of the correlations of all contexts together, in the directions along which data vary
    warnings : what the tests warned of
    why_not : str
        Why nothing was tested.
    """

    ranks: dict[int, pd.DataFrame] = field(default_factory=dict)
    allowed: dict[Hashable, int] = field(default_factory=dict)
    membership: MembershipTest | None = None
    condition: float = float("nan")
    dimensions: int = 0
    warnings: tuple[str, ...] = ()
    why_not: str = ""

    def p_value(self, context: Hashable, rank: int) -> float:
        """Return the p-value of "at most ``rank`` directions change in this context"; nan if it was not tested."""
        table = self.ranks.get(rank)
        if table is None or context not in table.index:
            return float("nan")
        return float(lb.row_of(table, context)[p_value_column(table)])

    def directions(self, context: Hashable) -> str:
        """Return in how many directions a context differs from the control, as far as the tests tell."""
        tested = [rank for rank in sorted(self.ranks) if np.isfinite(self.p_value(context, rank))]
        for rank in tested:
            if self.p_value(context, rank) > ALPHA:
                return str(rank) if 0 in tested else f"at most {rank}"
        return f"more than {tested[-1]}" if tested else ""


def gather(fit: Fit, m: Moments | None, tests: bool | MembershipTest | None, data: Samples | None) -> Evidence:
    """Run the tests, or say why not.

    Parameters
    ----------
    fit : Fit
    m : Moments or None
    tests : bool, MembershipTest or None
        None runs them where there are moments. A test that was made before is taken as it is.
    data : (X, contexts), optional
        Makes the tests hold without Gaussian samples.
    """
    given = tests if isinstance(tests, MembershipTest) else None
    if m is None:
        if tests is True:
            raise ValueError("tests=True needs the moments that were fitted: pass moments=…")
        return Evidence(membership=given, why_not=NO_MOMENTS)
    check_same(fit, m)
    condition, dimensions = conditioning(m)
    if tests is False:
        return Evidence(condition=condition, dimensions=dimensions, why_not=NOT_ASKED)
    allowed: dict[Hashable, int] = {c: 2 * len(v.targets) for c, v in fit.model.interventions.items()}
    allowed |= {c: 2 for c in m.contexts[1:] if c not in allowed}  # left out of the fit, perhaps because of this test
    with catch_warnings(record=True) as raised:
        simplefilter("always")
        membership = given
        if given is None and set(allowed.values()) == {2}:
            joint = 2 <= fit.model.n_latents <= FIT_UP_TO  # one latent fits any moments; many take long
            membership = membership_test(m, data, ALPHA, fit=fit if joint else False)
        ranks = _rank_tests(m, set(allowed.values()), membership, given is None, data)
    texts = tuple(dict.fromkeys(str(w.message) for w in raised))
    return Evidence(ranks, allowed, membership, condition, dimensions, texts)


def _rank_tests(
    m: Moments, allowed: set[int], membership: MembershipTest | None, made_here: bool, data: Samples | None
) -> dict[int, pd.DataFrame]:
    """Test each rank once: a membership test of these moments has tested rank two."""
    every = m.n_contexts * m.n_features**3 <= TEST_UP_TO
    tested = {} if membership is None or (every and not made_here) else {2: membership.summary}
    wanted = {0, 1} | allowed if every else set(tested) or allowed
    return {rank: tested[rank] if rank in tested else rank_test(m, rank, data) for rank in sorted(wanted)}


def check_same(fit: Fit, m: Moments) -> None:
    """Refuse moments that are not those of the fit; contexts that the fit left out may be there as well."""
    if not isinstance(m, Moments):
        raise TypeError(f"moments must be Moments, got {type(m).__name__}")
    if m.source_features != tuple(fit.model.feature_names):
        raise ValueError("these are not the moments of this fit: the features differ")
    for context, count in zip(fit.model.contexts, fit.counts, strict=True):
        if context not in m.contexts:
            raise ValueError(f"these are not the moments of this fit: they have no context {context!r}")
        found = int(m.counts[m.index(context)])
        if found != count:
            raise ValueError(
                f"these are not the moments of this fit: context {context!r} has {found} samples, the fit saw {count}"
            )


def conditioning(m: Moments) -> tuple[float, int]:
    """Return the condition number of the pooled correlations within their range, and the dimension of that range."""
    w: Any = np.linalg.eigvalsh(unit_diagonal(m.pooled_covariance())[0])
    kept = w[w > RANK_TOLERANCE * w[-1]]
    return float(kept[-1] / kept[0]), len(kept)


#: From worst to best.
STATUSES = ("bad", "warn", "open", "note", "good")

#: Checks that the verdict of a fit speaks of itself, and those that say nothing good where the model is refused.
TOLD, OF_THE_MODEL = ("changed", "membership", "converged"), ("order", "ambiguous", "edges")

#: Condition numbers of correlations up to which double precision is no worry, and up to which it is not yet a danger.
CALM, STRAINED = 1e6, 1e10

#: Nats by which the best order should be ahead: odds of twenty to one.
CLEAR = float(np.log(20))

Check = dict[str, Any]
Found = tuple[str, str, dict[str, Any]] | None


def all_checks(results: "Results") -> list[Check]:
    """Return every check that applies to this fit, as records of id, name, status and text."""
    checks = []
    for check in CHECKS:
        found, words = check(results), WORDS["checks"][check.__name__]
        if found is not None:
            status, sentence, values = found
            if status == "good" and check.__name__ in OF_THE_MODEL and results.refused:
                status = "note"
            text = (words.get("first", "") + words[sentence]).format(**values, alpha=ALPHA)
            checks.append({"id": check.__name__, "name": words["name"], "status": status, "text": text})
    return checks


def overall(results: "Results", checks: Sequence[Check]) -> tuple[str, Verdict]:
    """Return the status of a fit, and its verdict together with what the checks add."""
    verdict, test = results.fit.verdict, results.evidence.membership
    status = min([*(check["status"] for check in checks), "good" if verdict.ok else "warn"], key=STATUSES.index)
    reasons, notes, advice = verdict.reasons, verdict.notes, verdict.advice
    if results.refused and test is not None and not test.in_model:
        if "refusal" not in results.fit.details:
            reasons = (*reasons, refused_reason(test.p_value, not test.omnibus.robust, test.size))
        off = {c: value for c, value in test.omnibus.misfit.items() if c != results.fit.model.control}
        worst = test.drop or sorted(off, key=lambda c: -off[c])[:1]
        look = WORDS["verdict"]["drop" if test.drop else "worst" if worst else "look"]
        advice = next_steps(results.fit, look.format(which=and_list([str(c) for c in worst])))
    marked = [check["name"] for check in checks if check["status"] in ("bad", "warn") and check["id"] not in TOLD]
    if marked:
        reasons = (*reasons, WORDS["verdict"]["marked"].format(names=and_list(marked)))
    if status == "open":
        notes = (*notes, WORDS["verdict"]["open"])
    return "bad" if results.refused else status, Verdict(reasons, notes, advice)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def changed(results: "Results") -> Found:
    """Whether anything changed in every context: what the fit itself tested, before any edge."""
    fit = results.fit
    if fit.idle:
        return "warn", "warn", {"which": and_list(lb.text_names(fit.idle))}
    if "changed" not in fit.details:
        return None
    return "good", "good", {"contexts": len(fit.model.interventions)}


def counts(results: "Results") -> Found:
    fit, names = results.fit, lb.text_names(results.fit.model.contexts)
    k = int(np.argmin(fit.counts))
    least, dims = fit.counts[k], results.evidence.dimensions or fit.model.n_features
    which = f"The smallest, {names[k]}, has" if max(fit.counts) > least else "Each context has"
    status = "warn" if least <= dims else "note" if least < 5 * dims else "good"
    values = {"contexts": len(names), "samples": fit.n_samples, "which": which, "least": least, "dims": dims}
    return status, status, {**values, "each": least / dims}


def rank(results: "Results") -> Found:
    evidence = results.evidence
    if evidence.why_not:
        return "open", "said", {"said": evidence.why_not}
    contexts = list(results.fit.model.interventions)
    p = np.array([evidence.p_value(c, evidence.allowed[c]) for c in contexts])
    if np.isnan(p).all():
        return "open", "untested", {"reason": next(iter(evidence.ranks.values()))["reason"].iloc[0]}
    adjusted, test, left = holm(p), evidence.membership, int(np.isnan(p).sum())
    over = [text for text, value in zip(lb.text_names(contexts), adjusted, strict=True) if value <= ALPHA]
    untested = f" {left} of {len(p)} contexts have too few samples to be tested." if left else ""
    if over and test is not None and test.in_model:  # one verdict, with one level: that of the whole
        return "note", "doubt", {"over": and_list(over), "untested": untested}
    if over:
        dropped = map(str, test.drop) if test is not None and test.fit is not None else over
        spared = [text for text in over if text not in set(dropped)]
        mend = f" Leaving {and_list(spared)} out would not mend that." if spared else ""
        change = f"{and_list(over)} change{'s' if len(over) == 1 else ''}"
        return "bad", "bad", {"change": change, "mend": mend, "untested": untested}
    if evidence.dimensions <= 2:
        return "open", "nothing", {}
    smallest = {"p": np.nanmin(p), "adjusted": np.nanmin(adjusted)}
    return "note" if left else "good", "good", {**smallest, "untested": untested}


def membership(results: "Results") -> Found:
    test = results.evidence.membership
    if test is None:
        why_not = results.evidence.why_not
        return "open", "said" if why_not else "several", {"said": why_not}
    asked = test.omnibus.reason != "not asked for"
    status = "bad" if not test.in_model else "good" if np.isfinite(test.omnibus.p_value) else "note"
    if test.in_model and results.refused:  # by the test of the fit, with other samples or at another level
        return "bad", "apart", {"omnibus": str(test.omnibus)}
    said = test.verdict.removesuffix(test.size).strip()  # the size of the misfit is in the verdict on the fit
    return status, "tested" if asked else "not_asked", {"verdict": said, "omnibus": _sentence(str(test.omnibus))}


def condition(results: "Results") -> Found:
    value, r, model = results.evidence.condition, results.evidence.dimensions, results.fit.model
    if not r:
        return None
    words, within, background = WORDS["checks"]["condition"], "", ""
    if r < model.n_features:
        within = words["within"].format(r=r, features=model.n_features)
    if r > model.n_latents:
        factors = results.fit.details.get("n_factors", model.n_latents) - model.n_latents
        kind, beside = "background" if model.feature_noise is None else "noise", words["beside"] if factors else ""
        background = words[kind].format(more=r - model.n_latents, beside=beside.format(n=factors))
    status = "warn" if value > STRAINED else "note" if value > CALM else "good"
    return status, status, {"value": show(value, "number"), "within": within, "background": background}


def shrinkage(results: "Results") -> Found:
    shares = results.fit.details.get("shrinkage")
    if not shares:
        return None
    name = max(shares, key=shares.get)
    status = "warn" if shares[name] > 0.5 else "note" if shares[name] > SHRUNK else "good"
    few = and_list([context for context, share in shares.items() if share > 0.5])
    return status, status, {"share": show(shares[name], "share"), "name": name, "few": few}


def converged(results: "Results") -> Found:
    fit = results.fit
    gain = fit.details.get("gain", float("nan"))
    if not fit.converged:
        return "warn", "warn", {"gain": gain}
    if fit.method != "likelihood":
        return "note", "note", {"method": fit.method}
    return "good", "good", {"gain": show(max(gain, 1e-12), "p")}


def starts(results: "Results") -> Found:
    n, agreed = (results.fit.details.get(name, 0) for name in ("n_starts", "n_agreed"))
    if n < 2:
        return None
    status = "note" if agreed == 1 else "good"
    return status, status, {"agreed": agreed, "n": n}


def order(results: "Results") -> Found:
    if "runner_up" not in results.fit.details:
        return None
    rival = results.fit.details["runner_up"]
    if rival is None:
        return "good", "none", {}
    status, odds = "warn" if rival["gap"] < CLEAR else "good", np.exp(min(rival["gap"], 50.0))
    order = " → ".join(rival["order"][:12]) + (" → …" if len(rival["order"]) > 12 else "")
    return status, status, {"gap": rival["gap"], "odds": odds, "order": order}


def ambiguous(results: "Results") -> Found:
    if "ambiguous" not in results.fit.details:
        return None
    rivals = results.fit.details["ambiguous"]
    if not rivals:
        return "good", "good", {}
    reasons = [str(found[0].get("why", "")) for found in rivals.values() if found and isinstance(found[0], dict)]
    example = f" For example: {reasons[0]}." if reasons and reasons[0] else ""
    return "warn", "warn", {"names": and_list(list(rivals)), "example": example}


def edges(results: "Results") -> Found:
    q, note = results.edges["q_value"], results.edges.attrs["note"]
    if not len(q):
        return "note", "none", {}
    if q.isna().all():
        return "open", "open", {"n": len(q), "note": note or "no standard errors"}
    sure = int((q <= ALPHA).sum())
    status = "note" if note or sure < len(q) else "good"
    return status, "tested", {"sure": sure, "n": len(q), "note": f" {_sentence(note)}" if note else ""}


def bootstrap(results: "Results") -> Found:
    bootstrap = results.bootstrap
    if bootstrap is None:
        return None
    rows = {row["quantity"]: row for row in bootstrap.summary.to_dict("records")}
    order, kept = rows["same ancestor relation"], rows["edges of the fit in 95 % of the replicates"]
    failed = f" {len(bootstrap.failures)} replicates could not be fitted." if bootstrap.failures else ""
    good = kept["count"] >= 0.9 * kept["of"] and not bootstrap.failures
    values = {"kept": kept, "order": order, "n": bootstrap.n_replicates, "failed": failed}
    return "good" if good else "note", "kept", values


def warnings(results: "Results") -> Found:
    said = " ".join(results.evidence.warnings)
    return ("warn", "said", {"said": said}) if said else None


#: The checks in the order in which a report lists them; their words stand under the same names.
CHECKS = (
    changed, counts, rank, membership, condition, shrinkage, converged, starts, order, ambiguous, edges, bootstrap,
    warnings,
)  # fmt: skip
