"""Two rules that the paper discusses, each with models on which it fails.

The appendix finds the control by deviation scores: here are models on which that rule ties or errs. The paper compares
its own condition to that of Liu et al. (2022), appendix "Comparison".
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, Literal

import networkx as nx
import numpy as np
import pandas as pd
from scipy import linalg

from latentdag.core.exact import TOLERANCE
from latentdag.core.linalg import range_basis, symmetrize, unit_diagonal
from latentdag.errors import clear_numerics
from latentdag.identification.identify import as_precisions
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel


@dataclass(frozen=True, eq=False)
class DeviationTie:
    """A model on which the appendix's rule for finding the control fails.

    Attributes
    ----------
    name : str
    statement : str
    model : LatentModel
    scores : tuple of int
        The deviation score r_k of every context, in the model's order: the control first.
    """

    name: str
    statement: str
    model: LatentModel
    scores: tuple[int, ...]

    @property
    def chosen(self) -> tuple[Hashable, ...]:
        """The contexts of lowest score: what the rule takes for the control."""
        return tuple(c for c, r in zip(self.model.contexts, self.scores, strict=True) if r == min(self.scores))


@clear_numerics
def deviation_scores(precisions: Any, tol: float = TOLERANCE) -> np.ndarray:
    """Return the deviation score of every context, ``r_k = Σ_{l ≠ k} rank(Θ_k − Θ_l)`` (Definition 2).

    The sum runs over all other contexts. The paper's definition prints ``l ∈ [K]``, without the control; then a context
    other than the control would have one summand less, and its proof counts them all.

    Parameters
    ----------
    precisions : (K+1, p, p)
        Exact precision matrices, in any order.
    tol : float
        Eigenvalues of ``Θ_k − Θ_l`` relative to ``Θ_k + Θ_l``, which lie in [−1, 1] and do not depend on the
        coordinates of X, count as zero below it.

    Returns
    -------
    (K+1,) int

    Examples
    --------
    >>> deviation_scores([np.diag([1.0, 1.0]), np.diag([2.0, 1.0]), np.diag([1.0, 3.0])])
    array([2, 3, 3])
    """
    Theta, _, _ = as_precisions(precisions)
    U = range_basis(symmetrize(Theta.mean(axis=0)))
    P = symmetrize(U.T @ Theta @ U)
    ranks = np.zeros((len(P), len(P)), dtype=int)
    for k in range(len(P)):
        for j in range(k):
            relative = linalg.eigvalsh(P[k] - P[j], P[k] + P[j])
            ranks[k, j] = ranks[j, k] = np.sum(np.abs(relative) > tol)
    return ranks.sum(axis=1)


def star_tie(n_latents: int = 2) -> DeviationTie:
    """Return a star, in which the control and the context of the root have the same score (Proposition 10 ties).

    The appendix takes the context of lowest score for the control. Its proof has ``r_kl ≥ 3`` for a context l whose
    target has parents. But if k targets the only parent of that target, ``Θ_k − Θ_l`` lives in the plane of two rows
    of H and has rank two. For 2 → 1 the scores are (3, 4, 3); for a root with d − 1 children the control and the root's
    context both have 2d − 1. Barring cancellation these are the only ties: in any other graph there is a second source
    or a latent with a parent that is no source, and either makes every context but the control score higher.

    The control is identified all the same, for d ≥ 2: with the root's context in its place no model with perfect
    interventions has these moments. For d = 1 the two contexts are interchangeable.

    Parameters
    ----------
    n_latents : int
        d; latent d is the root.

    Examples
    --------
    >>> star_tie().scores, star_tie().chosen
    ((3, 4, 3), (0, 2))
    """
    d = int(n_latents)
    if d < 1:
        raise ValueError(f"a star has at least one latent, got n_latents = {n_latents}")
    B_0 = np.eye(d)
    B_0[:-1, -1] = 1.0
    return _deviation_tie(
        "star tie",
        "In a star the control and the context of the root have the same deviation score.",
        B_0,
    )


def deviation_cancellation() -> DeviationTie:
    """Return 2 → 1 with numbers for which Proposition 10 picks the wrong context: scores (3, 3, 2).

    ``Θ_1 − Θ_2`` has rank two for almost all parameters, but not where ::

        (λ_1² − b_11²)(b_22² − b_12² − λ_2²) = b_11² b_12²,

    the determinant in the proof of Proposition 9, "identify same target". In integers: ``b = (1, 3; 4)`` with
    ``λ_1 = λ_2 = 2`` gives ``Θ_1 − Θ_2 = 3 (1, −1)^{⊗2}``. Then context 2 has the lowest score, and contexts 1 and 2
    seem to share a target. All assumptions of the paper hold; its proposition on the control asks for no genericity.

    Here too the control is the only context that can be one.

    Examples
    --------
    >>> deviation_cancellation().scores, deviation_cancellation().chosen
    ((3, 3, 2), (2,))
    """
    return _deviation_tie(
        "deviation cancellation",
        "The differences of two interventional contexts can cancel, and the deviation score then picks one of them.",
        np.array([[1.0, 3.0], [0.0, 4.0]]),
    )


def _deviation_tie(name: str, statement: str, B_0: np.ndarray) -> DeviationTie:
    """Score the model with H = I and one perfect intervention on each latent, all with λ = 2."""
    contexts = {i + 1: Intervention(f"Z{i + 1}", variance=0.25) for i in range(len(B_0))}
    model = LatentModel.from_structural(np.eye(len(B_0)), B_0, interventions=contexts, control=0)
    scores = deviation_scores([model.precision(context) for context in model.contexts])
    return DeviationTie(name, statement, model, tuple(scores.tolist()))


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
    if kind not in ("perfect", "soft"):
        raise ValueError(f"kind must be 'perfect' or 'soft', got {kind!r}")
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
