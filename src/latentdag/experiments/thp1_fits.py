"""Fits of the interferon-γ study: the graph between distinct latents, what loads on them, and held-out cells."""

from collections.abc import Iterator, Sequence
from typing import Any

import networkx as nx
import numpy as np

from latentdag.core.linalg import range_basis
from latentdag.data.moments import Moments
from latentdag.experiments.base import Row
from latentdag.experiments.thp1_cells import CASCADE, CONTROL, CORE, Cells
from latentdag.inference.omnibus import omnibus_test
from latentdag.methods.fitting import fit
from latentdag.methods.result import Fit, weight_of
from latentdag.uncertainty.held_out import Sample, score

#: The latent that the four contexts of the cascade share; others are named after their context.
SHARED = "cascade"
TWO = (*CASCADE, "IRF1")

#: What labels are dealt anew among, for the nulls of the graph.
NULLS = {
    "all labels shuffled": (CONTROL, *TWO),
    "IRF1 and control shuffled": (CONTROL, "IRF1"),
    "cascade and IRF1 shuffled": TWO,
}


def targets(contexts: Sequence[Any]) -> dict[Any, str]:
    """The latent of each context; those of the cascade share one."""
    return {c: SHARED if c in CASCADE else str(c) for c in contexts if c != CONTROL}


def fitted(m: Moments, **options: Any) -> Fit:
    return fit(m, targets=targets(m.contexts), progress=False, **options)


def two_latents(cells: Cells, **options: Any) -> Row:
    """Which of the cascade and IRF1 comes first, in a fit of these two latents."""
    found = fitted(cells.of(TWO).moments(), **options)
    if found.graph.has_edge(SHARED, "IRF1"):
        relation, ends = "cascade first", (SHARED, "IRF1")
    elif found.graph.has_edge("IRF1", SHARED):
        relation, ends = "IRF1 first", ("IRF1", SHARED)
    else:
        return {"relation": "no edge", "weight": 0.0, "converged": bool(found.converged)}
    weight = weight_of(found.model.rescaled("unit-variance"), ends[1], ends[0])
    return {"relation": relation, "weight": abs(weight), "converged": bool(found.converged)}


def splits(cells: Cells) -> Iterator[tuple[str, Cells]]:
    """Parts of the cells that should agree: single replicates, and two halves of the guides of every gene."""
    for replicate in np.unique(cells.replicates):
        yield f"only {replicate}", cells.take(cells.replicates == replicate)
    half = np.zeros(len(cells.X), dtype=int)
    for context in np.unique(cells.contexts[cells.contexts != CONTROL]):
        mine = cells.contexts == context
        # guides alternate by their number of cells, so that halves are about equal
        names, counts = np.unique(cells.guides[mine], return_counts=True)
        for i, name in enumerate(names[np.argsort(-counts, kind="stable")]):
            half[mine & (cells.guides == name)] = (i + 1) // 2 % 2
    for h in (0, 1):
        yield f"guides, half {h + 1}", cells.take((half == h) | (cells.contexts == CONTROL))


def graph_rows(found: Fit) -> list[Row]:
    """Edges between targeted latents, and which latent is an ancestor of which."""
    named = set(targets(found.model.contexts).values())
    scaled = found.model.rescaled("unit-variance")
    rows: list[Row] = []
    for a, b in nx.transitive_closure_dag(found.graph).edges:
        if {a, b} <= named:
            edge = found.graph.has_edge(a, b)
            weight = weight_of(scaled, b, a) if edge else None
            rows.append({"source": a, "target": b, "edge": edge, "weight": weight})
    return rows


def loading_rows(found: Fit) -> list[Row]:
    """What one deviation of each latent does to each gene, through other latents too, in the gene's deviations.

    These are the directions in which knock-outs shift the mean, and depend little on the graph. Signs are such that
    knock-outs lower the latent: a gene with a positive effect falls with it.
    """
    scaled = found.model.rescaled("unit-variance")
    total = scaled.mixing @ np.linalg.inv(np.eye(len(found.latents)) - scaled.weights)
    effects = total / np.sqrt(np.diagonal(scaled.covariance()))[:, None]
    rows: list[Row] = []
    for latent in dict.fromkeys(targets(found.model.contexts).values()):
        i = scaled.latents.index(latent)
        shifts = [v.changes[latent].shift for v in scaled.interventions.values() if latent in v.changes]
        sign = -1.0 if np.sum(shifts) > 0 else 1.0
        rows += [
            {"latent": latent, "gene": gene, "effect": float(sign * value)}
            for gene, value in zip(found.model.feature_names, effects[:, i], strict=True)
        ]
    return rows


def omnibus_row(cells: Cells, found: Fit) -> Row:
    test = omnibus_test(found, cells.moments(), cells.data)
    return {"p_omnibus": float(test.p_value), "dof": float(test.dof), "nats": float(-test.loglik)}


# ---- held-out cells -------------------------------------------------------------------------------------------------


def fold_masks(cells: Cells, folds: int, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Which cells are held out: folds that share out every context and replicate, then each replicate."""
    number = np.empty(len(cells.X), dtype=int)
    for rows in cells.strata():
        number[rng.permutation(rows)] = np.arange(len(rows)) % folds
    for f in range(folds):
        yield f"fold {f + 1}", number == f
    for replicate in np.unique(cells.replicates):
        yield str(replicate), cells.replicates == replicate


def score_rows(cells: Cells, held_out: np.ndarray, **options: Any) -> list[Row]:
    """Log-likelihood per held-out cell under the fit and its references, context by context."""
    train, test = cells.take(~held_out).moments(), cells.take(held_out).moments()
    found = fitted(train, **options)
    table = score(found, test, train)
    own = own_law(train, test)
    return [
        {
            "context": str(c),
            "n": int(table.loc[c, "n"]),
            **{name: float(table.loc[c, name]) for name in ("model", "control", "additive")},
            "own": own[c],
        }
        for c in table.index
    ]


def own_law(train: Moments, test: Moments) -> dict[Any, float]:
    """Held-out cells under the mean and covariance of their own context in training: no model at all."""
    U = range_basis(train.covariances[0])
    scored = {}
    for k, c in enumerate(test.contexts):
        j = train.index(c)
        scored[c] = Sample.of(test, k, U, means=True).log_density(train.means[j], train.covariances[j])
    return scored


def unseen_rows(cells: Cells, left_out: str) -> list[Row]:
    """A knock-out of the cascade that no fit saw, predicted as each of the other three."""
    cells = cells.of(CORE)
    seen = cells.take(cells.contexts != left_out).moments()
    new = cells.take(cells.contexts == left_out).moments(control=left_out)
    found = fitted(seen)
    rows = []
    for other in CASCADE:
        if other != left_out:
            table = score(found, new, seen, combinations={left_out: (other,)})
            values = {name: float(table.loc[left_out, name]) for name in ("model", "control", "additive")}
            own = Sample.of(new, 0, range_basis(seen.covariances[0]), means=True)
            j = seen.index(other)
            values["own"] = own.log_density(seen.means[j], seen.covariances[j])
            rows.append({"context": left_out, "other": other, "n": int(new.counts[0]), **values})
    return rows
