"""Which new context helps most: repeats, combinations of perturbations, or a new target.

A candidate is a set of latents. It does to each what the fit's own context does to it; to a latent that no context
targets, what the fit's contexts do to theirs on average. Its noise variances are its own, so that it counts as a new
experiment and not as more cells of an old one. Combinations are taken to act without interaction: check those that
exist with :func:`latentdag.find_targets` or ``fit.score`` first.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.checks import check_choice, whole_number
from latentdag.design.assumed import FEWEST_CELLS, Assumed
from latentdag.design.rivals import Exact, can_search
from latentdag.errors import clear_numerics
from latentdag.identification.equivalence import equivalent_models
from latentdag.methods.result import Fit
from latentdag.model.intervention import Change, Intervention
from latentdag.model.model import LatentModel

Counts = Mapping[Hashable, int]

#: What a new context is for.
PURPOSES = ("edges", "weakest", "order", "ambiguity")

#: Candidates that are tried by default, and rival orders that are told apart.
MOST_CANDIDATES, MOST_RIVALS = 200, 3

NO_RIVAL = "no other order has a likelihood: there is nothing to settle"


@clear_numerics
def next_context(
    fit: Fit | LatentModel,
    candidates: Iterable[Any] | None = None,
    n: int | None = None,
    *,
    counts: Any = None,
    for_: str = "edges",
) -> pd.DataFrame:
    """Rank new contexts by what they add to those of a pilot.

    Parameters
    ----------
    fit : Fit or LatentModel
        The pilot. Of a model, ``counts`` says how many cells each context has.
    candidates : sequence of latent names, tuples of them, or Interventions, optional
        By default every latent, every pair, and so on, up to 200; for "ambiguity" also latents without a context.
    n : int, optional
        Cells of the new context; by default as many as the contexts have on average.
    counts : int, or mapping of context to cells, optional
        That are there already; by default the pilot's.
    for_ : "edges", "weakest", "order" or "ambiguity"
        Cut the sum of the variances of the edges' standardized weights; cut that of the edge of least power; tell the
        order from its nearest rivals; or, where some latents have no context (``unintervened="upstream"``), leave fewer
        models with the same moments (:func:`latentdag.equivalent_models`).

    Returns
    -------
    DataFrame
        Best first: targets (tuple), n_targets, and ``gain``, the share of the variance that is cut; for "order"
        ``nats``, expected between the model and its nearest rival, and ``gain``, how many of them are new; for
        "ambiguity" ``models``, how many remain, and ``gain``, how many fewer that is. ``.attrs["note"]`` says what to
        know.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(3, 6, density=1, convention="text", rng=3)
    >>> next_context(truth, n=500, counts=500).round(2).head(3)
          targets  n_targets  gain
    0  (c1, c2, c3)          3  0.71
    1      (c2, c3)          2  0.57
    2      (c1, c3)          2  0.41
    """
    assumed = Assumed.of(fit)
    check_choice("for_", for_, PURPOSES)
    model = assumed.fit.model
    there = assumed.counts(dict(zip(model.contexts, assumed.fit.counts, strict=True)) if counts is None else counts)
    n = round(sum(there.values()) / len(there)) if n is None else n
    cells = whole_number("n, the cells of the new context,", n, FEWEST_CELLS)
    tried = [_intervention(model, each) for each in (_default(model, for_) if candidates is None else candidates)]
    if not tried:
        raise ValueError("there is no candidate: name latents, or leave candidates out")
    made = [assumed.with_context(_new_label(model), each, cells, there) for each in tried]
    score: Any = {"order": _nats, "ambiguity": _models_left}.get(for_, _variance_cut)
    targets = [each.targets for each in tried]
    table = pd.DataFrame(
        {"targets": targets, "n_targets": [len(each) for each in targets], **score(assumed, there, made, for_)}
    )
    table = table.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
    table.attrs = {"note": assumed.note, "cells": cells}
    return table


def _default(model: LatentModel, for_: str) -> list[tuple[str, ...]]:
    """Return sets of targeted latents, the smallest first, as many as are tried; for ambiguities new targets, too."""
    names = sorted(set(model.latents) - set(model.untargeted))
    sets = [each for size in range(1, len(names) + 1) for each in combinations(names, size)]
    new = [(name,) for name in model.untargeted] if for_ == "ambiguity" else []
    return [*new, *sets[: max(MOST_CANDIDATES, len(names))]]


def _intervention(model: LatentModel, candidate: Any) -> Intervention:
    """Return what a candidate does to each of its latents."""
    if isinstance(candidate, Intervention):
        return candidate
    names = (candidate,) if isinstance(candidate, str) else tuple(candidate)
    if not names:
        raise ValueError("a candidate names one latent or more")
    parts = []
    for name in names:
        model.index(name)  # refuses a name that is none of the model's
        known = [value for value in model.interventions.values() if name in value.targets]
        alone = [value for value in known if len(value.targets) == 1] or known
        parts.append(alone[0].only(name) if alone else _usual(model, name))
    return Intervention.combine(parts)


def _usual(model: LatentModel, name: str) -> Intervention:
    """Return an intervention on a latent that has none: its variance changes as those of the others do."""
    ratios = [
        change.variance / model.noise_variance[model.index(target)]
        for value in model.interventions.values()
        for target, change in value.changes.items()
        if change.variance
    ]
    ratio = float(np.exp(np.median(np.log(ratios)))) if ratios else 1.0
    return Intervention.of_changes({name: Change("perfect", ratio * float(model.noise_variance[model.index(name)]))})


def _new_label(model: LatentModel) -> str:
    label = "new"
    while label in lb.text_names(model.contexts):
        label += "'"
    return label


def _variance_cut(assumed: Assumed, there: Counts, made: Sequence[Assumed], for_: str) -> dict[str, list[float]]:
    """Return by which share each candidate cuts the variance that matters."""
    w, before = assumed.shrunk[0], assumed.variances(there.values())
    known = assumed.known
    if not known.any():
        raise ValueError(assumed.note)

    def total(v: np.ndarray) -> float:
        return float((v[known] / w[known] ** 2).max() if for_ == "weakest" else v[known].sum())

    after = [each.variances(each.fit.counts) for each in made]
    return {"gain": [1 - total(v) / total(before) for v in after]}


def _nats(assumed: Assumed, there: Counts, made: Sequence[Assumed], for_: str) -> dict[str, list[float]]:
    """Return how many nats are expected between the model and its nearest rival order, and how many are new."""
    if not can_search(assumed.fit):
        raise ValueError(
            "rival orders are compared for perfect interventions, exact features and graphs that are searched"
        )
    base = Exact(assumed.fit, assumed.fit.model.moments(list(there.values())))
    rivals = base.other_orders[:MOST_RIVALS]
    if not rivals:
        raise ValueError(NO_RIVAL)
    now = min(base.gap(rival, base) for rival in rivals)
    nats = []
    for each in made:
        exact = Exact(each.fit, each.fit.model.moments(list(each.fit.counts)))
        nats.append(min(exact.gap(rival, base) for rival in rivals))
    return {"nats": nats, "gain": [each - now for each in nats]}


def _models_left(assumed: Assumed, there: Counts, made: Sequence[Assumed], for_: str) -> dict[str, list[int]]:
    """Return how many models with the same moments remain, and how many fewer that is."""
    now = len(equivalent_models(assumed.fit.model))
    left = [len(equivalent_models(each.fit.model)) for each in made]
    return {"models": left, "gain": [now - each for each in left]}
