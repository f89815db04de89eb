"""One plain dict with everything a report says; HTML, markdown and JSON are made from it and from nothing else."""

from typing import Any

from latentdag.data.moments import Moments
from latentdag.data.second_pass import Samples
from latentdag.inference.membership import MembershipTest
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit
from latentdag.report.about import citation, methods_text, moments_hash, versions
from latentdag.report.checks import all_checks, overall
from latentdag.report.findings import gather
from latentdag.report.parts import (
    Record,
    context_records,
    edge_records,
    graph_drawing,
    latent_records,
    plain,
)

#: Raised when the shape of the dict changes.
FORMAT = 1


def collect(
    fit: Fit,
    moments: Moments | None = None,
    *,
    title: str | None = None,
    tests: bool | MembershipTest | None = None,
    bootstrap: Bootstrap | None = None,
    data: Samples | None = None,
    level: float = 0.95,
    n_features: int = 10,
    seed: int | None = None,
    created: str | None = None,
) -> dict[str, Any]:
    """Everything a report says, as one dict of plain types.

    Parameters
    ----------
    fit : Fit
    moments : Moments, optional
        What was fitted. Without them there are no rank tests, no conditioning and no hash.
    title : str, optional
    tests : bool or MembershipTest, optional
        By default rank tests and the membership test are run where there are moments; its joint part up to 20 latents.
        False runs none; a test made before is shown as it is.
    bootstrap : Bootstrap, optional
        Made before with :func:`latentdag.inference.bootstrap.bootstrap`: how often edges came back.
    data : (X, contexts), optional
        The samples behind the moments: then tests and errors hold without Gaussian noise.
    level : float
        Of the intervals.
    n_features : int
        Strongest features listed for each latent.
    seed : int, optional
        Of the analysis, to be shown; by default the bootstrap's.
    created : str, optional
        A date to be shown. Left out, the same fit gives the same bytes.

    Returns
    -------
    dict
        title, headline, verdict, checks, contexts, latents, edges, effects, graph, tables, methods, citation,
        provenance. ``None`` stands for what is not known or not finite.

    Examples
    --------
    >>> from latentdag import simulate
    >>> from latentdag.methods.fitting import fit
    >>> m = simulate.sample_moments(simulate.random_model(3, 4, rng=1), 2_000, rng=1)
    >>> found = collect(fit(m), m)
    >>> found["verdict"]["status"], found["headline"]["latents"]
    ('good', 3)
    """
    if not isinstance(fit, Fit):
        raise TypeError(f"a report is about a Fit, got {type(fit).__name__}: make one with latentdag.fit(moments)")
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    if not (isinstance(n_features, int) and n_features >= 1):
        raise ValueError(f"n_features must be a positive whole number, got {n_features!r}")
    evidence = gather(fit, moments, tests, data)
    edges, effects, note = edge_records(fit, level, data, bootstrap)
    latents = latent_records(fit, edges, n_features)
    checks = all_checks(fit, edges, note, evidence, bootstrap)
    settings = None if bootstrap is None else plain(dict(bootstrap.settings))
    report = {
        "kind": "latentdag report",
        "format": FORMAT,
        "title": title or f"Latent causal graph: {fit.model.n_latents} latents behind {fit.model.n_features} features",
        "headline": _headline(fit),
        "level": level,
        "verdict": overall(checks),
        "checks": checks,
        "contexts": context_records(fit, moments, evidence),
        "latents": latents,
        "features": [{"latent": z["latent"], **feature} for z in latents for feature in z["features"]],
        "edges": edges,
        "edges_note": note,
        "effects": effects,
        "graph": graph_drawing(latents, edges),
        **({} if bootstrap is None else _stability(bootstrap)),
        "methods": methods_text(fit, evidence, level, data is not None, settings),
        "citation": citation(),
        "provenance": {
            "versions": versions(),
            "seed": seed if seed is not None or settings is None else settings["seed"],
            "method": fit.method,
            "options": fit.options.to_json(),
            "bootstrap": settings,
            "moments_sha256": None if moments is None else moments_hash(moments),
            "created": created,
        },
    }
    report["tables"] = _tables(report)
    return plain(report)


def _headline(fit: Fit) -> Record:
    return {
        "latents": fit.model.n_latents,
        "features": fit.model.n_features,
        "contexts": len(fit.model.contexts),
        "samples": fit.n_samples,
        "edges": fit.graph.number_of_edges(),
        "method": fit.method,
        "loglik": fit.loglik,
        "bic": fit.bic,
    }


def _stability(bootstrap: Bootstrap) -> Record:
    return {
        "bootstrap_summary": bootstrap.summary.to_dict("records"),
        "bootstrap_targets": bootstrap.targets.to_dict("records"),
        "bootstrap_orders": bootstrap.order.head(5).to_dict("records"),
    }


#: Tables: key of the records, title, and per column its key, heading and kind (see :func:`latentdag.report.show.show`).
TABLES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "contexts": (
        "Contexts and rank tests",
        [
            ("context", "Context", "text"), ("role", "Intervention", "word"), ("samples", "Samples", "count"),
            ("targets", "Hits", "list"), ("directions", "Directions that change", "word"),
            ("p_rank_0", "p, 0 change", "p"), ("p_rank_1", "p, ≤ 1 change", "p"),
            ("p_allowed", "p, ≤ 2 per target", "p"), ("decision", "Decision", "word"),
            ("shrinkage", "Borrowed", "share"), ("reason", "Remark", "text"),
        ],
    ),
    "edges": (
        "Edges",
        [
            ("source", "Cause", "text"), ("target", "Effect", "text"),
            ("standardized_weight", "Effect in s.d.", "number"), ("standardized_lower", "s.d. from", "number"),
            ("standardized_upper", "s.d. to", "number"), ("weight", "Weight (paper's units)", "number"),
            ("std_error", "Std. error", "number"), ("lower", "Lower", "number"), ("upper", "Upper", "number"),
            ("z", "z", "number"), ("p_value", "p", "p"), ("q_value", "q", "p"),
            ("bootstrap_frequency", "In replicates", "share"),
        ],
    ),
    "latents": (
        "Latents",
        [
            ("latent", "Latent", "text"), ("contexts", "Hit by", "list"), ("causes", "Causes", "list"),
            ("effects", "Effects", "list"), ("ancestors", "Ancestors", "count"),
            ("descendants", "Descendants", "count"), ("explained", "Variance from causes", "share"),
            ("noise_variance", "Noise variance", "number"), ("equation", "Equation (in s.d.)", "text"),
        ],
    ),
    "features": (
        "Strongest features of each latent",
        [
            ("latent", "Latent", "text"), ("feature", "Feature", "text"), ("correlation", "Correlation", "number"),
            ("mixing", "Per s.d. of the latent alone", "number"), ("unmixing", "Weight in the latent", "number"),
        ],
    ),
    "effects": (
        "Total effects, direct and through others (in s.d.)",
        [
            ("source", "Cause", "text"), ("target", "Effect", "text"), ("effect", "Total effect", "number"),
            ("lower", "Lower", "number"), ("upper", "Upper", "number"), ("direct", "Direct edge", "yes"),
        ],
    ),
    "bootstrap_summary": (
        "Bootstrap: how much of the fit came back",
        [("quantity", "Quantity", "text"), ("count", "Count", "count"), ("of", "Of", "count"),
         ("frequency", "Share", "share")],
    ),
    "bootstrap_targets": (
        "Bootstrap: did contexts keep hitting the same latents",
        [("latent", "Latent", "text"), ("count", "Matched itself", "count"), ("frequency", "Share", "share"),
         ("cosine", "Mean cosine", "number"), ("cosine_low", "5 % quantile", "number")],
    ),
    "bootstrap_orders": (
        "Bootstrap: ancestor relations that came up most often",
        [("ancestors", "Relation", "text"), ("count", "Count", "count"), ("frequency", "Share", "share"),
         ("as_in_fit", "As in the fit", "yes")],
    ),
}  # fmt: skip


def _tables(report: Record) -> list[Record]:
    """Tables with something in them, columns with nothing in any row left out."""
    tables = []
    for key, (title, columns) in TABLES.items():
        records = report.get(key)
        if not records:
            continue
        known = [c for c in columns if any(record.get(c[0]) not in (None, "") for record in plain(records))]
        named = [{"key": name, "label": label, "kind": kind} for name, label, kind in known]
        tables.append({"id": key, "title": title, "columns": named})
    return tables
