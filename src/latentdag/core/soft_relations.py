"""Test who comes before whom where interventions are soft (docs/math.md, Probabilities).

Soft interventions leave edges within the ancestor relation open, but not the relation itself. With the control's noise
rows ``M = B_0 H``, a context that acts on latent i alone has ``A = M S Mᵀ`` with ``(A^{-1})_{ij} = c_ii c_ij``, where c
is the row of i's changed equation in terms of the control's noises: zero unless j is i or one of its ancestors. So j
comes before i if the noises of i and j have a partial correlation in that context, given all other noises.

The rows were fitted to the same data, which takes up part of the noise: the test is careful.
"""

import numpy as np
from scipy import stats

from latentdag.core.graphs import FittedGraph
from latentdag.core.likelihood import Design
from latentdag.core.multiplicity import holm


def soft_relations(design: Design, graph: FittedGraph) -> list[tuple[int, int, float]]:
    """Return pairs (j, i) with j before i, each with one minus its p-value by Holm's method, the surest first.

    All pairs down to a number of at least ``level`` are true together with probability ``level``.
    """
    d = design.d
    M = graph.optimum.rows[:d] @ graph.optimum.H
    p_value = np.ones((d, d))
    for k, hit in enumerate(design.hits):
        if len(hit) != 1 or design.n[k] <= d + 2:
            continue
        i = hit[0]
        precision = np.linalg.inv(M @ design.S[k] @ M.T)
        partial = precision[i] / np.sqrt(precision[i, i] * np.diagonal(precision))
        partial[i] = 0.0
        z = np.arctanh(np.clip(np.abs(partial), 0, 1 - 1e-15)) * np.sqrt(design.n[k] - d - 1)
        contexts = sum(rows == (i,) for rows in design.hits)
        p_value[i] = np.minimum(p_value[i], np.minimum(1.0, contexts * 2 * stats.norm.sf(z)))
    pairs = np.argwhere(~np.eye(d, dtype=bool))
    adjusted = holm(p_value[pairs[:, 0], pairs[:, 1]])
    ranked = sorted((float(p), int(j), int(i)) for p, (i, j) in zip(adjusted, pairs, strict=True) if p < 0.5)
    return [(j, i, 1 - p) for p, j, i in ranked]
