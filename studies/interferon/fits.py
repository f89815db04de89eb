"""Fits of the interferon-γ study: the graph between distinct latents, what loads on them, and held-out cells."""

from collections.abc import Iterator, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
from scipy import stats

from latentdag import Fit, Moments, fit, omnibus_test, score
from latentdag.experiments import Row, attempt
from studies.interferon.screen import CASCADE, CONTROL, CORE, Cells

#: The latent that the four contexts of the cascade share; others are named after their context.
SHARED = "cascade"
TWO = (*CASCADE, "IRF1")

#: Prefix of fits that allow every gene noise of its own (noise="auto").
NOISY = "with noise, "

#: What labels are dealt anew among, for the nulls of the graph.
NULLS = {
    "all labels shuffled": (CONTROL, *TWO),
    "IRF1 and control shuffled": (CONTROL, "IRF1"),
    "cascade and IRF1 shuffled": TWO,
}


def targets(contexts: Sequence[Any]) -> dict[Any, str]:
    """Return the latent of each context; contexts of the cascade share one."""
    return {c: SHARED if c in CASCADE else str(c) for c in contexts if c != CONTROL}


def fitted(m: Moments, **options: Any) -> Fit:
    return fit(m, targets=targets(m.contexts), progress=False, **options)


def two_latents(cells: Cells, **options: Any) -> Row:
    """Fit the cascade and IRF1 as two latents; returns which comes first, and of noisy features how many factors."""
    m = cells.of(TWO).moments()
    found, failure = attempt(m, "likelihood", targets=targets(m.contexts), progress=False, **options)
    if found is None:
        return {"relation": "no fit", "weight": 0.0, "converged": False, "failure": failure}
    row: Row = {"relation": "no edge", "weight": 0.0, "converged": bool(found.converged)}
    row["factors"] = found.details.get("n_factors")
    for source, target in ((SHARED, "IRF1"), ("IRF1", SHARED)):
        if found.graph.has_edge(source, target):
            scaled = found.model.rescaled("unit-variance").graph
            row |= {"relation": f"{source} first", "weight": float(abs(scaled.edges[source, target]["weight"]))}
    return row


def splits(cells: Cells) -> Iterator[tuple[str, Cells]]:
    """Yield parts of the cells that should agree: single replicates, and two halves of the guides of every gene."""
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
    """Return edges between targeted latents, and which latent is an ancestor of which."""
    named = set(targets(found.model.contexts).values())
    scaled = found.model.rescaled("unit-variance").graph
    rows: list[Row] = []
    for a, b in nx.transitive_closure_dag(found.graph).edges:
        if {a, b} <= named:
            edge = found.graph.has_edge(a, b)
            weight = float(scaled.edges[a, b]["weight"]) if edge else None
            rows.append({"source": a, "target": b, "edge": edge, "weight": weight})
    return rows


def loading_rows(found: Fit) -> list[Row]:
    """Return the total effect of one deviation of each latent on each gene, in the gene's deviations.

    These are the directions in which knock-outs shift the mean, and they depend little on the graph. Signs are chosen
    so that knock-outs lower the latent: a gene with a positive effect falls with the knock-out.
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


def fold_masks(cells: Cells, folds: int, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Yield which cells are held out: folds that share out every context and replicate, then each replicate."""
    number = np.empty(len(cells.X), dtype=int)
    for rows in cells.strata():
        number[rng.permutation(rows)] = np.arange(len(rows)) % folds
    for f in range(folds):
        yield f"fold {f + 1}", number == f
    for replicate in np.unique(cells.replicates):
        yield str(replicate), cells.replicates == replicate


def score_rows(cells: Cells, held_out: np.ndarray, **options: Any) -> list[Row]:
    """Return the log-likelihood per held-out cell under the fit and its references, context by context."""
    train, test = cells.take(~held_out), cells.take(held_out)
    m = train.moments()
    table = score(fitted(m, **options), test.moments(), m)
    return [
        {"context": str(c), "n": int(table.loc[c, "n"]), **_gains(table.loc[c]), "own": own_law(test.of_only(c), m, c)}
        for c in table.index
    ]


def unseen_rows(cells: Cells, left_out: str) -> list[Row]:
    """Predict a knock-out of the cascade that the fit did not see as each of the other three."""
    cells = cells.of(CORE)
    seen, new = cells.take(cells.contexts != left_out).moments(), cells.of_only(left_out)
    found, m = fitted(seen), new.moments(control=left_out)
    rows = []
    for other in CASCADE:
        if other != left_out:
            table = score(found, m, seen, combinations={left_out: (other,)})
            key = {"context": left_out, "other": other, "n": int(m.counts[0])}
            rows.append({**key, **_gains(table.loc[left_out]), "own": own_law(new, seen, other)})
    return rows


def _gains(line: pd.Series) -> Row:
    return {name: float(line[name]) for name in ("model", "control", "additive")}


def own_law(cells: Cells, m: Moments, context: Any) -> float:
    """Return the mean log-density of cells under the mean and covariance of one context of m: no model at all."""
    k = m.index(context)
    return float(stats.multivariate_normal(m.means[k], m.covariances[k]).logpdf(cells.X).mean())
