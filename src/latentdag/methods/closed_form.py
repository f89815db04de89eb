"""The closed form: every latent from the covariances of its own context and the control."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentdag.core.context_error import ContextError
from latentdag.core.graphs import FittedGraph, prune
from latentdag.core.likelihood import evaluate
from latentdag.core.linalg import Array
from latentdag.core.optimize import Optimum, unit_rows
from latentdag.core.orders import full_parents
from latentdag.core.pairs import Pair
from latentdag.core.search import Found
from latentdag.data.moments import Moments
from latentdag.methods.assembly import finish
from latentdag.methods.design import Prepared, edge_rules, prepare, single_target_contexts
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.methods.rivals import AMBIGUOUS
from latentdag.methods.starts import closed_form_start, context_pairs


def fit_closed_form(m: Moments, options: Options) -> Fit:
    """Fit by the closed form (docs/math.md, One context, one pair).

    It needs no order and no iteration, and carries no error from one latent to the next.

    ``details["ambiguous"]`` names the latents for which the data leave more than one solution: the context, the other
    solutions' unmixing rows, how many nats worse they are, and why they are left.
    """
    prepared = prepare(m, options)
    rules = edge_rules(prepared, 0.5 * float(np.log(prepared.design.N)))
    pairs = context_pairs(prepared)
    H, order = closed_form_start(prepared, pairs, rules)
    parents = prune(prepared.design, H, order, rules) or full_parents(order)
    found = _evaluated(prepared, H, parents, order)
    return finish(m, prepared, found, options, rules.penalty, _ambiguous(m, prepared, pairs))


def _ambiguous(m: Moments, prepared: Prepared, pairs: Mapping[int, Pair]) -> dict[str, list[dict[str, Any]]]:
    """Return, by latent, the solutions that are nearly as good as the one chosen, and why they are left."""
    contexts = single_target_contexts(prepared.design)
    found: dict[str, list[dict[str, Any]]] = {}
    for i, pair in pairs.items():
        for (u, noise), gap in zip(pair.rivals, pair.gaps, strict=True):
            if gap < AMBIGUOUS:
                label = str(m.contexts[contexts[i]])
                parallel = abs(u @ noise) > (1 - 1e-9) * np.linalg.norm(u) * np.linalg.norm(noise)
                other = "a latent without causes" if parallel else "the other solution of the closed form"
                why = f"{other} explains context {label} and what it leaves alone only {gap:.2g} nats worse"
                rival = {"context": label, "unmixing": (u @ prepared.W).tolist(), "gap": float(gap), "why": why}
                found.setdefault(prepared.latents[i], []).append(rival)
    return found


def _evaluated(prepared: Prepared, H: Array, parents: Sequence[Any], order: tuple[int, ...]) -> Found:
    """Return a graph at given rows as it is, without optimising them."""
    H = unit_rows(prepared.design, H)
    at = evaluate(prepared.design, H, prepared.design.mechanisms(parents))
    if at is None:
        raise ContextError(0, "the closed form has no finite likelihood: the covariances are too near singular")
    optimum = Optimum(H, at.value, at.rows, float("nan"), True)
    return Found(FittedGraph(at.value, optimum, tuple(parents), order), (at.value,))
