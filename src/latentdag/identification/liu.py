"""The condition of Liu et al. (2022), to which the paper compares its own (appendix "Comparison")."""

from collections.abc import Hashable, Mapping
from itertools import combinations_with_replacement
from typing import Literal

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.core.linalg import unit_diagonal
from latentdag.data.checks import check_choice
from latentdag.model.model import LatentModel

#: Entries of a latent precision matrix below this partial correlation are rounding errors of a zero.
ZERO = 1e-12


def liu_matrix(model: LatentModel) -> pd.DataFrame:
    """Return L of Liu et al. (2022), Theorem 4.1(iii): how each context changes the latents' sufficient statistics.

    Column k is ``η_k − η_0``, where ``η_k`` lists the nonzero entries on and above the diagonal of the latent precision
    matrix ``B_kᵀ B_k``: d variances and ``|E|`` pairs. ``|E|`` is the number of edges of the *undirected* graph of that
    matrix, as the paper counts, and not of the DAG: parents of a common child are joined too (the moral graph).

    Returns
    -------
    DataFrame, ``(d + |E|, K)``
        Rows by pair of latents, columns by context.

    Examples
    --------
    >>> from latentdag.identification.counterexamples import motivating_example
    >>> liu_matrix(motivating_example().first)
             1
    Z1 Z1  0.0
       Z2  0.0
    Z2 Z2  3.0
    """
    Theta = np.array([B.T @ B for B in map(model.structural, model.contexts)])
    largest = np.abs([unit_diagonal(T)[0] for T in Theta]).max(axis=0)
    i, j = np.nonzero(np.triu(largest > ZERO))
    pairs = [(model.latents[a], model.latents[b]) for a, b in zip(i.tolist(), j.tolist(), strict=True)]
    return pd.DataFrame(
        (Theta[1:, i, j] - Theta[0, i, j]).T,
        index=pd.MultiIndex.from_tuples(pairs),
        columns=pd.Index(list(model.interventions), dtype=object),
    )


def liu_condition(model: LatentModel, tol: float = 1e-9) -> bool:
    """Return True if some choice of contexts makes L invertible, that is if L has full row rank.

    Parameters
    ----------
    model : LatentModel
    tol : float
        Singular values of L count as zero below it, once latents are in units of their conditional standard deviation
        in the control and columns have norm one.

    Examples
    --------
    >>> from latentdag.identification.counterexamples import motivating_example
    >>> liu_condition(motivating_example().first)
    False
    """
    return liu_rank(model, tol) == len(liu_matrix(model))


def liu_rank(model: LatentModel, tol: float = 1e-9) -> int:
    """Return the rank of L, decided as in :func:`liu_condition`.

    For perfect interventions, n_i of them on latent i with distinct new variances, it is ``Σ_i min(n_i, 1)`` over the
    sources plus ``Σ_i min(n_i, 2)`` over the others: the columns of one target lie in the plane of ``e_i e_iᵀ`` and
    ``m_i m_iᵀ``, with ``m_i`` row i of ``B_0``, or on a line if i is a source.

    Examples
    --------
    >>> from latentdag.identification.counterexamples import motivating_example
    >>> liu_rank(motivating_example().first)
    1
    """
    L = liu_matrix(model)
    if L.empty:
        return 0
    scale = dict(zip(model.latents, np.linalg.norm(model.structural(), axis=0), strict=True))
    scaled = L.to_numpy() / np.array([scale[i] * scale[j] for i, j in L.index])[:, None]
    norms = np.linalg.norm(scaled, axis=0)
    return int(np.linalg.matrix_rank(scaled / np.where(norms > 0, norms, 1.0), tol=tol))


def liu_possible(
    graph: nx.DiGraph,
    contexts: int | Mapping[Hashable, int] = 2,
    kind: Literal["perfect", "soft"] = "perfect",
) -> bool:
    """Return True if a graph and a number of contexts on each latent make L invertible for generic parameters.

    *Perfect interventions.* The paper argues: L needs ``d + |E|`` independent columns, a third context on the same
    latent adds none, so ``|E| ≤ d``. More is true, since the contexts of a source span only a line: L has rank at most
    2d − s with s sources, so ``|E| ≤ d − s < d`` ("fewer than d" in the paper's main text, "at most d" in its
    appendix). And ``|E|`` is at least the number of edges of the DAG, hence at least d − s, with equality iff no latent
    has two parents. So the condition holds exactly for **forests whose edges point away from the roots**, with two
    contexts for every latent that has a parent and one for every root. The paper's own condition has one
    context each, for any DAG.

    *Soft interventions* that redraw all weights are free of that bound. Each context on i can account for any one pair
    in {i} ∪ pa(i), so with enough contexts every graph will do; it is a matching of contexts to entries of L.

    Parameters
    ----------
    graph : DiGraph
        A DAG, edges from cause to effect.
    contexts : int or mapping of latent to int
        Number of contexts that target each latent.
    kind : "perfect" or "soft"

    Examples
    --------
    >>> chain, collider = nx.DiGraph([(3, 2), (2, 1)]), nx.DiGraph([(3, 1), (2, 1)])
    >>> liu_possible(chain), liu_possible(chain, 1), liu_possible(collider, 100)
    (True, False, False)
    >>> liu_possible(collider, {1: 4, 2: 1, 3: 1}, kind="soft")
    True
    """
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError("the graph must be directed and acyclic")
    check_choice("kind", kind, ("perfect", "soft"))
    count = contexts if isinstance(contexts, Mapping) else dict.fromkeys(graph, contexts)
    if kind == "perfect":
        return all(graph.in_degree(i) <= 1 and count.get(i, 0) >= 1 + graph.in_degree(i) for i in graph)
    return _contexts_cover_pairs(graph, count)


def _contexts_cover_pairs(graph: nx.DiGraph, count: Mapping[Hashable, int]) -> bool:
    """Return True if every pair of the moral graph, diagonal included, gets a context of its own."""
    match: nx.Graph = nx.Graph()
    pairs: set[tuple[str, frozenset[Hashable]]] = set()
    for i in graph:
        family = [frozenset(pair) for pair in combinations_with_replacement([i, *graph.predecessors(i)], 2)]
        pairs.update(("pair", pair) for pair in family)
        copies = range(min(count.get(i, 0), len(family)))
        match.add_edges_from((("pair", pair), ("context", i, copy)) for pair in family for copy in copies)
    match.add_nodes_from(pairs)
    matching = nx.bipartite.hopcroft_karp_matching(match, top_nodes=pairs)
    return pairs <= matching.keys()
