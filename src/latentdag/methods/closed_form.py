"""The closed form: every latent from the covariances of its own context and the control."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from latentdag.core.graphs import Rules, prune
from latentdag.methods.likelihood import closed_form_start, context_pairs, evaluate_candidate, finish
from latentdag.moments import Moments
from latentdag.preparation import permitted, prepare
from latentdag.result import Fit

#: Candidates that explain the contexts this much worse than the best are still reported, in nats.
AMBIGUOUS = 2.0


def fit_closed_form(
    m: Moments,
    *,
    targets: Mapping[Hashable, Any] | None = None,
    intervention: str | Mapping[Hashable, str] = "perfect",
    means: bool = True,
    shrinkage: bool = True,
) -> Fit:
    """Closed form of MATH.md 3.1–3.2: no order needed, no iteration, no error carried from one latent to the next.

    Options are those of :func:`latentdag.methods.fit_likelihood`. ``details["ambiguous"]`` names the latents for which
    the data leave more than one candidate, with the other candidates' unmixing rows and how many nats worse they are.
    """
    prepared = prepare(m, targets, intervention, means, shrinkage)
    everything, nothing = permitted(prepared.latents, None, True), permitted(prepared.latents, None, False)
    rules = Rules(0.5 * float(np.log(prepared.design.N)), everything, nothing)
    pairs = context_pairs(prepared)
    H, order = closed_form_start(prepared, pairs, rules)
    parents = prune(prepared.design, H, order, rules)
    found = evaluate_candidate(prepared, H, parents, order)
    options = {"intervention": intervention if isinstance(intervention, str) else "mixed", "means": means}
    fitted = finish(m, prepared, found, "closed-form", options, rules.penalty)
    ambiguous = {
        prepared.latents[i]: [
            {"unmixing": (u @ prepared.W).tolist(), "gap": float(gap)}
            for (u, _), gap in zip(pair.rivals, pair.gaps, strict=True)
            if gap < AMBIGUOUS
        ]
        for i, pair in pairs.items()
    }
    return replace(fitted, details={**fitted.details, "ambiguous": {k: v for k, v in ambiguous.items() if v}})
