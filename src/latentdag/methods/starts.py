"""Where the search for the maximum of the likelihood starts."""

from collections.abc import Mapping

import networkx as nx
import numpy as np

from latentdag.core.effort import RAW_UP_TO
from latentdag.core.graphs import Rules
from latentdag.core.linalg import Array, complement
from latentdag.core.pairs import Pair, estimate_pairs, refine_pairs
from latentdag.core.search import linear_order
from latentdag.methods.design import Prepared, single_target_contexts
from latentdag.model.model import LatentModel

Start = tuple[Array, tuple[int, ...]]  #: rows of the unmixing, and an order


def context_pairs(prepared: Prepared) -> dict[int, Pair]:
    """Return the closed form of every latent that some context targets alone."""
    contexts = single_target_contexts(prepared.design)
    rows = [i for i, k in enumerate(contexts) if k >= 0]
    if not rows:
        return {}
    targeting = prepared.design.targeting
    same = [targeting[i] for i in rows]
    found = estimate_pairs(prepared.about_control, prepared.design.n, [contexts[i] for i in rows], same)
    return dict(zip(rows, found, strict=True))


def _refined(prepared: Prepared, pairs: Mapping[int, Pair]) -> dict[int, Pair]:
    contexts = single_target_contexts(prepared.design)
    found = refine_pairs(prepared.about_control, prepared.design.n, [contexts[i] for i in pairs], list(pairs.values()))
    return dict(zip(pairs, found, strict=True))


def closed_form_start(prepared: Prepared, pairs: Mapping[int, Pair], rules: Rules) -> Start:
    """Return the rows u of the closed form, and the order that their ancestors suggest."""
    d, r = prepared.design.d, prepared.design.S.shape[1]
    H, M = np.zeros((d, r)), np.zeros((d, r))
    for i, pair in pairs.items():
        H[i], M[i] = pair.u, pair.m
    for i in range(d):
        if i not in pairs and i not in rules.rest:
            H[i] = M[i] = _leftover_row(prepared, i, M)
    if rules.rest:
        # what the contexts leave alone: the noises uncorrelated with those of the targets
        targeted = [i for i in range(d) if i not in rules.rest]
        H[list(rules.rest)] = M[list(rules.rest)] = complement(M[targeted].T).T
    C = H @ M.T
    evidence = C**2 / np.maximum((C**2).sum(axis=1, keepdims=True), 1e-300)
    np.fill_diagonal(evidence, 0.0)
    evidence = evidence + 1e6 * rules.required
    order = linear_order(evidence)
    return H, (*rules.rest, *(i for i in order if i not in rules.rest))


def _leftover_row(prepared: Prepared, i: int, M: Array) -> Array:
    """Return a row for a latent never targeted alone: the strongest change in its contexts, known rows aside."""
    design = prepared.design
    change = sum(
        (
            design.n[k] * (prepared.about_control[k] - np.eye(len(M[0])))
            for k, hit in enumerate(design.hits)
            if i in hit
        ),
        np.zeros((len(M[0]),) * 2),
    )
    known = M[np.abs(M).any(axis=1)]
    P = np.eye(len(M[0])) - (np.linalg.pinv(known) @ known if len(known) else 0.0)
    w, V = np.linalg.eigh(P @ change @ P)
    return np.asarray(V[:, np.argmax(np.abs(w))])


def make_starts(prepared: Prepared, pairs: Mapping[int, Pair], rules: Rules) -> list[Start]:
    """Return the closed form as it is and after a few steps of the order-free likelihood, which make better rows.

    Far off the model a single start can be far from the best; where there are many latents, time allows only one.
    """
    raw = closed_form_start(prepared, pairs, rules)
    if not pairs:
        return [raw]
    refined = closed_form_start(prepared, _refined(prepared, pairs), rules)
    return [refined, raw] if prepared.design.d <= RAW_UP_TO else [refined]


def given_start(prepared: Prepared, model: LatentModel) -> Start:
    """Return the rows and an order of a model that the user gives."""
    if sorted(model.latents) != sorted(prepared.latents):
        raise ValueError(f"the start has latents {sorted(model.latents)}, the data {sorted(prepared.latents)}")
    ordered = model.reordered(prepared.latents)
    order = tuple(prepared.latents.index(name) for name in nx.lexicographical_topological_sort(model.graph))
    return ordered.unmixing @ np.linalg.pinv(prepared.W), order
