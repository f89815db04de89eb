"""Cells of the interferon-γ study: which of them, which genes, and how they were made ready.

Strict guide calls; counts divided by depth and taken to log(1 + x); depth and replicate regressed out within contexts.
Genes are ranked over all cells without their labels. Two other rankings are there to see what that choice does: by the
control cells alone, and by the response to the knock-outs, which does use the labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from latentdag import Moments, datasets, workflow

#: IFNGR1 and IFNGR2 are the receptor, JAK2 its kinase, STAT1 what that switches on. Known biology; no fit sees it.
CASCADE = ("IFNGR1", "IFNGR2", "JAK2", "STAT1")
CORE = (*CASCADE, "IRF1", "SMAD4", "UBE2L6")
CONTROL = "non-targeting"

#: Gene sets by name: how they are ranked, and how many are taken.
GENE_SETS = {
    "variable 10": ("variable", 10), "variable 20": ("variable", 20), "variable 40": ("variable", 40),
    "no targets 10": ("no targets", 10), "no targets 20": ("no targets", 20), "no targets 40": ("no targets", 40),
    "control 20": ("control", 20), "responsive 20": ("responsive", 20),
}  # fmt: skip
MAIN = "variable 20"


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of some genes, ready for moments.

    Attributes
    ----------
    X : (n, p), depth and replicate regressed out
    contexts, guides, replicates : (n,) labels
    genes : (p,) names
    """

    X: np.ndarray
    contexts: np.ndarray
    guides: np.ndarray
    replicates: np.ndarray
    genes: tuple[str, ...]

    def take(self, rows: np.ndarray) -> "Cells":
        """Return only these cells, by mask or position."""
        return Cells(self.X[rows], self.contexts[rows], self.guides[rows], self.replicates[rows], self.genes)

    def of(self, contexts: Sequence[str]) -> "Cells":
        """Return only the cells of these contexts and of the control."""
        return self.take(np.isin(self.contexts, [CONTROL, *contexts]))

    def of_only(self, context: str) -> "Cells":
        """Return only the cells of this context."""
        return self.take(self.contexts == context)

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.contexts

    def moments(self, control: str = CONTROL) -> Moments:
        return Moments.from_samples(self.X, self.contexts, control, self.genes)

    def strata(self) -> Iterator[np.ndarray]:
        """Yield the positions of the cells of each context in each replicate."""
        key = pd.Series([*zip(self.contexts, self.replicates, strict=True)])
        return iter(key.groupby(key).indices.values())

    def resampled(self, rng: np.random.Generator) -> "Cells":
        """Draw as many cells of each context in each replicate, with replacement."""
        return self.take(np.concatenate([rng.choice(rows, len(rows)) for rows in self.strata()]))

    def shuffled(self, rng: np.random.Generator, among: Sequence[str]) -> "Cells":
        """Shuffle the labels of these contexts among their cells, within replicates."""
        contexts = self.contexts.copy()
        for replicate in np.unique(self.replicates):
            rows = np.flatnonzero(np.isin(contexts, among) & (self.replicates == replicate))
            contexts[rows] = contexts[rng.permutation(rows)]
        return replace(self, contexts=contexts)


def gene_sets() -> dict[str, Cells]:
    """Return the same cells with every gene set, for all contexts with at least 200 cells."""
    screen = datasets.papalexi_thp1(strict=True)
    chosen = workflow.choose(screen, n_genes=len(screen.feature_names), counts=True, adjust=["rep"])
    obs = screen.obs[np.isin(screen.contexts.astype(str), np.unique(chosen.contexts.astype(str)))]
    cells = Cells(
        chosen.X,
        chosen.contexts.astype(str),
        obs["guide"].to_numpy().astype(str),
        obs["rep"].to_numpy().astype(str),
        chosen.genes,
    )
    ranked = _rankings(cells, set(screen.contexts.astype(str)))
    sets = {}
    for name, (how, n) in GENE_SETS.items():
        genes = ranked[how][:n]
        at = [cells.genes.index(gene) for gene in genes]
        sets[name] = replace(cells, X=cells.X[:, at], genes=tuple(genes))
    return sets


def _rankings(cells: Cells, targeted: set[str]) -> dict[str, list[str]]:
    """Return the genes by each ranking, first ones first."""
    names = np.array(cells.genes)  # by standard deviation over all cells
    control = cells.X[cells.contexts == CONTROL]
    response = np.zeros(len(names))
    for context in CORE:
        hit = cells.X[cells.contexts == context]
        error = np.sqrt(hit.var(axis=0) / len(hit) + control.var(axis=0) / len(control))
        response = np.maximum(response, np.abs(hit.mean(axis=0) - control.mean(axis=0)) / error)
    return {
        "variable": names.tolist(),
        "no targets": [name for name in names.tolist() if name not in targeted],
        "control": names[np.argsort(-control.std(axis=0), kind="stable")].tolist(),
        "responsive": names[np.argsort(-response, kind="stable")].tolist(),
    }
