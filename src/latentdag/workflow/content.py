"""What the page of the workflow says, as plain types: sentences, warnings, tables with their columns, methods."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from latentdag.report.parts import plain
from latentdag.report.show import show

if TYPE_CHECKING:
    from latentdag.workflow.steps import Workflow

#: What every reader should know before the numbers.
CARE = (
    "This is an exploratory analysis. Patients were not randomised: an association with survival is not an effect, and "
    "age, stage and the like are adjusted for only if the methods below say so.",
    "Latents were learned in one cell line. That a tumour has the same latents, mixed from the same genes, is assumed "
    "and not tested.",
    "In contexts marked “drop” more than one latent changes, so that their latent, its edges and its scores are a best "
    "approximation and not a mechanism.",
    "The sign of a latent is a convention: a hazard ratio of 1.25 for Z is one of 0.80 for −Z.",
)

_SURVIVAL = [
    ("score", "", "text"), ("hazard_ratio", "Hazard ratio per s.d.", "number"), ("lower", "from", "number"),
    ("upper", "to", "number"), ("z", "z", "number"), ("p_value", "p", "p"), ("q_value", "q (Benjamini–Hochberg)", "p"),
    ("significant", "Marked", "yes"), ("proportional_p_value", "p, proportional hazards", "p"),
]  # fmt: skip

_CONTEXTS = [
    ("context", "Context", "text"), ("cells", "Cells", "count"), ("latent", "Latent", "text"),
    ("unchanged", "p, nothing changes (Holm)", "p"), ("p_value", "p, one target", "p"),
    ("holm", "p, one target (Holm)", "p"),
    ("decision", "Decision", "word"),
]  # fmt: skip

_EDGES = [
    ("source", "Cause", "text"), ("target", "Effect", "text"), ("standardized_weight", "Effect in s.d.", "number"),
    ("q_value", "q", "p"),
]  # fmt: skip


def content(found: "Workflow", report_link: str | None = None) -> dict[str, Any]:
    """Everything the page says, as plain types."""
    m, fit = found.moments, found.fit
    tested = found.membership.summary
    contexts = [
        {
            "context": str(c), "cells": int(n), "latent": fit.targets[c], "unchanged": float(found.unchanged[c]),
            "p_value": tested["p_value"][c], "holm": tested["holm"][c], "decision": tested["decision"][c],
        }
        for c, n in zip(m.contexts[1:], m.counts[1:], strict=True)
    ]  # fmt: skip
    top = _strongest(found)
    latents = [{**row, "genes": top[str(row["score"])]} for row in _rows(found.latents)]
    left_out = ", ".join(f"{c} ({n})" for c, n in found.choice.left_out.items())
    return plain({
        "title": f"{found.screen}: latents and survival in {found.cohort}",
        "sentences": found.sentences(),
        "refused": not found.membership.in_model,
        "care": list(CARE),
        "report": report_link,
        "chosen": [
            f"{m.n_features} genes, the most variable of those allowed: {', '.join(m.feature_names)}.",
            *found.choice.notes,
            *([f"Contexts left out for too few cells: {left_out}."] if left_out else []),
        ],
        "tables": {
            "contexts": ("Contexts", _CONTEXTS, contexts),
            "edges": ("Edges between latents", _EDGES, _rows(found.edges)),
            "latents": (
                "Survival per latent, sources first",
                [("score", "Latent", "text"), *_SURVIVAL[1:], ("random_share", "Random mixtures, p as small", "share"),
                 ("genes", "Strongest genes (correlation)", "text")],
                latents,
            ),
            "genes": (
                "Survival per gene (baseline), smallest p first",
                [("score", "Gene", "text"), *_SURVIVAL[1:]],
                _rows(found.genes.sort_values("p_value", kind="stable")),
            ),
        },
        "methods": _methods(found),
    })  # fmt: skip


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.reset_index().to_dict("records")]


def _strongest(found: "Workflow", n: int = 4) -> dict[str, str]:
    """The genes that correlate most with each latent among the control cells."""
    scaled = found.fit.model.rescaled("unit-variance")
    S = scaled.covariance()
    deviation = S.diagonal() ** 0.5
    said = {}
    for i, name in enumerate(scaled.latents):
        r = S @ scaled.unmixing[i] / deviation
        order = sorted(range(len(r)), key=lambda j: -abs(r[j]))[:n]
        said[name] = ", ".join(f"{scaled.feature_names[j]} {show(float(r[j]), 'number')}" for j in order)
    return said


def _methods(found: "Workflow") -> list[str]:
    scaled = {
        "control": "centred in the cohort and brought to the standard deviation that they have among the screen's "
        "control cells",
        "none": "centred in the cohort and left in its units",
    }[found.scaling]
    adjusted = f" beside {', '.join(found.covariates)}" if found.covariates else ""
    return [
        "Contexts were tested by the likelihood ratio of generalised eigenvalues, corrected by fourth moments; a "
        "perturbation of a single latent changes the covariance in at most two directions.",
        "The model was fitted by maximum likelihood with a search over orders and graphs. There are fewer contexts "
        "than genes; what no context touches is taken as downstream of the latents hit, or independent of them.",
        f"Scores of patients are H·x, with H the unmixing matrix of the fit and genes x matched by name, {scaled}.",
        f"Survival: one Cox regression per score{adjusted}, in units of its deviation (lifelines; Wald tests); "
        "q-values are Benjamini and Hochberg's, over latents and over genes separately. A small p for proportional "
        "hazards means that one hazard ratio does not describe the whole follow-up.",
        f"Random mixtures: {len(found.random)} independent Gaussian weightings of the standardised genes, through the "
        "same regression; the column gives how many of them have a p-value as small as the latent's.",
    ]
