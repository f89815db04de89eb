"""What a plan takes for true: a fit, with what it does not know, or a model.

Weights are those between latents of unit variance, so that no plan depends on the units of latents or features. Those
of a pilot fit were looked at because they are large, so they are too large on average: they are shrunk as
:mod:`latentdag.core.small_samples` says, and what the pilot leaves open is kept beside them as their covariance.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.core.planning import Screen
from latentdag.core.small_samples import without_winners_curse
from latentdag.data import labels as lb
from latentdag.data.checks import whole_number
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.uncertainty.edges import edges_in_order
from latentdag.uncertainty.standard_errors import NOT_MAXIMUM

#: Cells of a context below which no fit can be made.
FEWEST_CELLS = 3

NO_EDGES = "there is no edge to plan for: {why}"
UNKNOWN = (
    "no number of cells tells the weight of {listed}: these perturbations leave it free (soft interventions do so "
    "inside the ancestor relation, latents that nobody perturbs up to rotation); another perturbation might tell it"
)
IDLE = "nothing is planned for the latents of {listed}, in which nothing changed"


@dataclass(frozen=True, eq=False)
class Assumed:
    """A fit or a model as the truth of a plan.

    Attributes
    ----------
    fit : Fit
        Of a model, a fit that says what fits of its data would be told.
    pilot : bool
        Whether it was estimated.
    """

    fit: Fit
    pilot: bool

    @classmethod
    def of(cls, source: Fit | LatentModel) -> "Assumed":
        """Return what a user gave, checked."""
        if isinstance(source, LatentModel):
            kinds = {context: value.kind for context, value in source.interventions.items()}
            options = Options(targets=source.targets, intervention=kinds)
            order = tuple(nx.lexicographical_topological_sort(source.graph))
            counts = (1_000,) * len(source.contexts)
            assumed = cls(Fit(source, order, source.graph, np.nan, counts, options=options), False)
        elif isinstance(source, Fit):
            assumed = cls(source, True)
        else:
            raise TypeError(f"plan from a Fit or a LatentModel, got {type(source).__name__}")
        if assumed.fit.method != "likelihood":
            raise ValueError(f"a plan needs information: {NOT_MAXIMUM.format(method=assumed.fit.method)}")
        if not len(assumed.edges):
            why = f"the pilot found none. {assumed.fit.verdict}" if assumed.pilot else "the model has none"
            raise ValueError(NO_EDGES.format(why=why))
        return assumed

    @cached_property
    def edges(self) -> pd.DataFrame:
        """Source, target and standardized weight of every edge; the index is its row among all weights."""
        table = self.fit.uncertainty().table("unit-variance", ["weight"])
        table = table.rename(columns={"column": "source", "row": "target", "estimate": "weight"})
        return edges_in_order(self.fit, table[["source", "target", "weight"]])

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Source and target of every edge."""
        return list(self.edges[["source", "target"]].itertuples(index=False, name=None))

    @cached_property
    def known(self) -> np.ndarray:
        """Which edges (m,) have a weight that some number of cells tells."""
        return np.isfinite(self.screen.variances(self.screen.point.n))

    @cached_property
    def screen(self) -> Screen:
        """The edges' standardized weights as functions of the parameters."""
        uncertainty = self.fit.uncertainty()
        blocks = uncertainty.quantities.blocks("weight", "unit-variance")
        gradients = np.vstack([block.gradient.inner for block in blocks])
        return Screen(uncertainty.point, gradients[self.edges.index])

    @cached_property
    def shrunk(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (m,) without the winner's curse, and the variance (m,) that the pilot leaves them."""
        w = self.edges["weight"].to_numpy()
        if not self.pilot:
            return w, np.zeros(len(w))
        mean, variance, known = w.copy(), np.full(len(w), np.inf), self.known
        g = self.screen.gradients[known]
        V = g @ self.screen.inverse(self.screen.point.n).C @ g.T
        if known.any():
            mean[known] = without_winners_curse(w[known], V)
            variance[known] = np.diagonal(V) * np.clip(mean[known] / w[known], 0.0, 1.0)
        return mean, variance

    @property
    def note(self) -> str:
        """What to know before believing the plan."""
        fit = self.fit
        unknown = [f"{a} → {b}" for (a, b), known in zip(self.pairs, self.known, strict=True) if not known]
        said = [UNKNOWN.format(listed=lb.listed(unknown))] if unknown else []
        if fit.idle:
            said.append(IDLE.format(listed=lb.listed(lb.text_names(fit.idle))))
        if self.pilot and not fit.verdict.ok:
            said.append(f"the pilot itself is in doubt: {' '.join(fit.verdict.reasons)}")
        return "; ".join(said)

    def counts(self, cells: Any) -> dict[Hashable, int]:
        """Return the cells of every context from one number for all, or a mapping of context to cells."""
        matched = self.matched(cells)
        return {
            context: whole_number(f"cells of context {context!r}", n, FEWEST_CELLS) for context, n in matched.items()
        }

    def matched(self, given: Any) -> dict[Hashable, Any]:
        """Return a value for every context, in the model's order, from one for all or a mapping that names each."""
        contexts = self.fit.model.contexts
        if not hasattr(given, "keys"):  # neither a mapping nor a Series
            return dict.fromkeys(contexts, given)
        given = {lb.as_label(context): value for context, value in given.items()}
        missing, unknown = [c for c in contexts if c not in given], [c for c in given if c not in contexts]
        if missing or unknown:
            wrong = f"missing {missing[:5]}" if missing else f"unknown {unknown[:5]}"
            raise ValueError(f"name the cells of every context, the control included, and no other: {wrong}")
        return {context: given[context] for context in contexts}

    def variances(self, counts: Iterable[int]) -> np.ndarray:
        """Return the variance (m,) of every weight with so many cells in each context; a free mean costs one cell."""
        n = np.array(list(counts), dtype=float)
        return self.screen.variances(n if self.screen.point.tau is not None else n - 1.0)

    def with_context(self, label: Hashable, intervention: Any, cells: int, counts: Mapping[Hashable, int]) -> "Assumed":
        """Return the same model with one more context, and so many cells in each."""
        model = replace(self.fit.model, interventions={**self.fit.model.interventions, label: intervention})
        kinds = self.fit.options.intervention
        if not isinstance(kinds, str):
            kinds = {**kinds, label: intervention.kind}
        options = replace(self.fit.options, targets=model.targets, intervention=kinds)
        made = replace(self.fit, model=model, counts=(*counts.values(), cells), options=options, details={})
        return Assumed(made, False)
