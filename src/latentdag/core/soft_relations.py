"""Test who comes before whom where interventions are soft (docs/math.md, Probabilities).

Soft interventions leave edges within the ancestor relation open, but not the relation itself. With the control's noise
rows ``M = B_0 H``, a context that acts on latent i alone has ``A = M S Mᵀ`` with ``(A^{-1})_{ij} = c_ii c_ij``, where c
is the row of i's changed equation in terms of the control's noises: zero unless j is i or one of its ancestors. So j
comes before i if the noises of i and j have a partial correlation in that context, given all other noises.

The rows were fitted to the same data, which takes up part of the noise: the test is careful.

Where latents are seen through noise, the rows c are fitted without any order, and tested by their information.
"""

import numpy as np
from scipy import stats
from scipy.linalg import lapack

from latentdag.core.effort import GAIN_OF_ORDERS
from latentdag.core.evidence import ancestors_of
from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array
from latentdag.core.multiplicity import holm
from latentdag.core.noisy import State, climb_noisy, information_factor, noisy_point
from latentdag.core.posterior import Posterior, Relation


def soft_relations(design: Design, posterior: Posterior) -> list[Relation]:
    """Return pairs (j, i) with j before i, each with one minus its p-value by Holm's method, the surest first.

    All pairs down to a number of at least ``level`` are true together with probability ``level``. A pair is no surer
    than that the graphs that were weighed have it; and where one would close a circle, none is sure any more.
    """
    d, graph = design.d, posterior.best.graph
    M = graph.optimum.rows[:d] @ graph.optimum.H
    p_value, state = np.ones((d, d)), graph.optimum.state
    changed = {} if state is None else _changed_rows(design, state)
    for k, hit in enumerate(design.hits):
        if len(hit) != 1 or design.n[k] <= d + 2:
            continue
        i = hit[0]
        z = changed.get(k, np.zeros(d)) if state is not None else _partial(design, M, k, i)
        contexts = sum(rows == (i,) for rows in design.hits)
        p_value[i] = np.minimum(p_value[i], np.minimum(1.0, contexts * 2 * stats.norm.sf(z)))
    pairs = np.argwhere(~np.eye(d, dtype=bool))
    adjusted = holm(p_value[pairs[:, 0], pairs[:, 1]])
    ancestors = [ancestors_of(one.present, one.graph.order) for one in posterior.weighed]
    weighed = np.tensordot(posterior.shares, ancestors, axes=1)
    doubt = np.maximum(adjusted, 1 - weighed[pairs[:, 0], pairs[:, 1]])
    found: list[Relation] = []
    before = np.eye(d, dtype=bool)  # [i, j]: j comes before i, or is i
    for p, j, i in sorted((float(p), int(j), int(i)) for p, (i, j) in zip(doubt, pairs, strict=True) if p < 0.5):
        if before[j, i]:
            break
        before |= np.outer(before[:, i], before[j])
        found.append((j, i, 1 - p))
    return found


def _partial(design: Design, M: Array, k: int, i: int) -> Array:
    """Return the partial correlations (d,) of noise i in context k with the others, in deviations."""
    P = np.linalg.inv(M @ design.S[k] @ M.T)
    partial = P[i] / np.sqrt(P[i, i] * np.diagonal(P))
    partial[i] = 0.0
    return np.asarray(np.arctanh(np.clip(np.abs(partial), 0, 1 - 1e-15)) * np.sqrt(design.n[k] - design.d - 1))


def _changed_rows(design: Design, state: State) -> dict[int, Array]:
    """Return, where latents are seen through noise, the rows c (d,) of contexts with one target, in deviations.

    They are fitted without any order: each may have entries for all noises of the control.
    """
    d, r, targets = design.d, len(state.H), [(k, i) for k, hit in enumerate(design.hits) for i in hit]
    none = np.empty(0, dtype=np.intp)
    mechanisms = [Mechanism(i, 0, none, 0.0, design.S_bar) for i in range(d)]
    mechanisms += [Mechanism(i, k, np.delete(np.arange(d), i), 0.0, design.S_bar) for k, i in targets]
    B = state.rows[:r]
    rows = np.vstack([np.eye(r), state.rows[r:] @ np.linalg.inv(B)])
    start = State(B @ state.H, rows, state.tau, state.nu)
    found = climb_noisy(design, start, mechanisms, GAIN_OF_ORDERS, 60, -np.inf)
    if found is None:
        return {}
    point = noisy_point(design, mechanisms, found[0])
    scale, L = information_factor(point)
    deviation = np.zeros(rows.shape)
    half = lapack.dtrtri(L, lower=1)[0] / scale
    deviation[point.free] = np.sqrt(np.square(half).sum(axis=0))[r * r : r * r + int(point.free.sum())]
    z = np.abs(found[0].rows) / np.where(deviation > 0, deviation, np.inf)
    return {k: np.where(np.arange(d) == i, 0.0, z[r + q, :d]) for q, (k, i) in enumerate(targets)}
