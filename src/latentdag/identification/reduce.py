"""Reductions of the paper's appendix: latent dimension, contexts with one target, the observational context.

All are statements about exact moments; interventions are perfect. Two of the paper's rules need care:

* *Same target iff* ``rank(Θ_k − Θ_l) = 1`` holds between contexts with an intervention, for generic parameters. The
  observational context must be left out: it too differs by rank one from every context that targets a source. Here
  contexts must also share the noise row of their target, so that a cancellation does not group different targets.
* *The observational context minimises the sum of ranks* ``r_k``. It ties when the graph is a star rooted at one source,
  and a legitimate cancellation can even make another context win. Instead, a context o is admissible iff a model
  with o as its control exists: each group of contexts with one target must have a noise row m, in the row span of
  its difference from o, that keeps unit variance in every context outside the group; these rows must be orthonormal,
  and the graph they imply acyclic. With two distinct targets or more, only the true context passes; with one
  target the swap is a real ambiguity, and both are returned.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import networkx as nx
import numpy as np

from latentdag.core import exact, pairs
from latentdag.core.context_error import ContextError
from latentdag.core.linalg import is_definite, pseudo_inverse, scale_free_rank
from latentdag.errors import clear_numerics
from latentdag.identification.identify import as_precisions, identify
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel
from latentdag.model.posets import transitive_closure

#: How far an equation between exact moments may be off, in coordinates where the control has unit covariance.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class ReducedProblem:
    """One way to read unlabelled contexts: which is observational, and which share a target.

    Attributes
    ----------
    observational : label
    copies : tuple of labels
        Further contexts with the same moments as the observational one.
    groups : tuple of tuples of labels
        Contexts with the same target, one group per latent that was intervened on.
    precisions : (1 + number of groups, p, p)
        Of the observational context and the first of each group: the paper's reduced problem.
    redundant_precisions : (number of other contexts in groups, p, p)
        Of the contexts in :attr:`redundant`.
    """

    observational: Hashable
    copies: tuple[Hashable, ...]
    groups: tuple[tuple[Hashable, ...], ...]
    precisions: np.ndarray
    redundant_precisions: np.ndarray

    @property
    def contexts(self) -> tuple[Hashable, ...]:
        """Labels of ``precisions``."""
        return (self.observational, *(group[0] for group in self.groups))

    @property
    def redundant(self) -> tuple[Hashable, ...]:
        """The other contexts of each group, kept for whatever can use them."""
        return tuple(label for group in self.groups for label in group[1:])

    def identify(self) -> LatentModel:
        """Run Algorithms 1–3 on the reduced problem; redundant contexts come back as interventions of their own."""
        model = identify(self.precisions, self.contexts)
        group_of = {label: group for group in self.groups for label in group}
        added = {}
        for label, Theta in zip(self.redundant, self.redundant_precisions, strict=True):
            target = model.targets[group_of[label][0]]
            h = model.unmixing[model.latents.index(target)]
            # a perfect intervention leaves the target nothing but its noise
            added[label] = Intervention(target, variance=float(h @ pseudo_inverse(Theta) @ h))
        names = {model.targets[group[0]]: "|".join(map(str, group)) for group in self.groups}
        return replace(model, interventions={**model.interventions, **added}).renamed(names)


@dataclass(frozen=True)
class Reduction:
    """All admissible readings of unlabelled contexts.

    Attributes
    ----------
    n_latents : int
    problems : tuple of ReducedProblem
        One per admissible observational context; more than one only where the data truly leave it open.
    """

    n_latents: int
    problems: tuple[ReducedProblem, ...]

    @property
    def is_unique(self) -> bool:
        """True if only one context can be the observational one."""
        return len(self.problems) == 1

    @property
    def observational(self) -> tuple[Hashable, ...]:
        """Labels of the contexts that can be the observational one."""
        return tuple(problem.observational for problem in self.problems)


@clear_numerics
def latent_dimension(precisions: Any) -> int:
    """Return the number of latents, d = rank(Θ_k), from exact precision matrices or exact moments (appendix E).

    Parameters
    ----------
    precisions : (K+1, p, p) or Moments

    Raises
    ------
    ValueError
        If the contexts do not all have the same rank.

    Examples
    --------
    >>> from latentdag import simulate
    >>> latent_dimension(simulate.random_model(n_latents=3, n_features=7, rng=0).moments())
    3
    """
    Theta, labels, _ = as_precisions(precisions)
    ranks = [scale_free_rank(T) for T in Theta]
    if len(set(ranks)) > 1:
        listed = ", ".join(f"{label!r}: {rank}" for label, rank in zip(labels, ranks, strict=True))
        raise ValueError(f"the contexts have different ranks ({listed}), so no single latent dimension")
    return ranks[0]


@clear_numerics
def same_target_groups(
    precisions: Any,
    contexts: Sequence[Hashable] | None = None,
    observational: Hashable | None = None,
    tol: float = TOLERANCE,
) -> tuple[tuple[Hashable, ...], ...]:
    """Group the contexts with an intervention by their target (Proposition 9: ``rank(Θ_k − Θ_l) = 1`` within a group).

    Parameters
    ----------
    precisions : (K+1, p, p) or Moments
        Exact.
    contexts : labels, optional
    observational : label, optional
        The first context unless given; it belongs to no group.

    Examples
    --------
    >>> import numpy as np
    >>> contexts = {"a": Intervention("Z1", variance=2.0), "a2": Intervention("Z1", variance=3.0)}
    >>> model = LatentModel(np.eye(2), [[0, 1.0], [0, 0]], [1, 1], contexts | {"b": Intervention("Z2", variance=2.0)})
    >>> same_target_groups(model.moments())
    (('a', 'a2'), ('b',))
    """
    Theta, labels, _ = as_precisions(precisions, contexts)
    observational = labels[0] if observational is None else observational
    if observational not in labels:
        raise ValueError(f"no context {observational!r} among {labels}")
    _, groups = _copies_and_groups(_whitened_differences(Theta, labels.index(observational)), tol)
    return tuple(tuple(labels[k] for k in group) for group in groups)


@clear_numerics
def observational_contexts(
    precisions: Any, contexts: Sequence[Hashable] | None = None, tol: float = TOLERANCE
) -> tuple[Hashable, ...]:
    """Return all contexts that can be the observational one (in place of the rule of Proposition 10, which can err).

    Returns
    -------
    tuple of labels
        Copies of one observational context are listed once, by the first of them. Empty if no context is admissible:
        the moments are then not those of perfect single-node interventions.

    Examples
    --------
    >>> from latentdag import counterexamples
    >>> observational_contexts(counterexamples.star_tie().model.moments())  # where the paper's rule ties
    (0,)
    """
    return reduce_contexts(precisions, contexts, tol).observational


@clear_numerics
def reduce_contexts(precisions: Any, contexts: Sequence[Hashable] | None = None, tol: float = TOLERANCE) -> Reduction:
    """Reduce unlabelled contexts to the paper's setting: d, the observational context, one context per target.

    Parameters
    ----------
    precisions : (K+1, p, p) or Moments
        Exact, in any order; a control named in Moments is not used.
    contexts : labels, optional

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=3, n_features=4, rng=1)
    >>> shuffled = ["c2", "control", "c3", "c1"]
    >>> reduce_contexts([truth.precision(c) for c in shuffled], shuffled).observational
    ('control',)
    """
    Theta, labels, _ = as_precisions(precisions, contexts)
    problems = []
    for o in range(len(labels)):
        found = _read_with_control(Theta, o, tol)
        if found is None or found[0][0] < o:  # a copy earlier in the list stands for all
            continue
        copies, groups = found
        first = [o, *(group[0] for group in groups)]
        rest = [k for group in groups for k in group[1:]]
        problems.append(
            ReducedProblem(
                labels[o],
                tuple(labels[k] for k in copies if k != o),
                tuple(tuple(labels[k] for k in group) for group in groups),
                Theta[first],
                Theta[rest],
            )
        )
    return Reduction(latent_dimension(Theta), tuple(problems))


def _whitened_differences(Theta: np.ndarray, o: int) -> np.ndarray:
    """Return ``P_k − I`` of every context (K+1, d, d), in coordinates where context o has unit precision."""
    others = [k for k in range(len(Theta)) if k != o]
    return np.insert(exact.whiten_precisions(Theta[[o, *others]]).Delta, o, 0.0, axis=0)


def _rank(D: np.ndarray, tol: float) -> int:
    """Return the rank of a difference of precision matrices, in whitened coordinates."""
    s = np.linalg.svd(D, compute_uv=False)
    return int(np.sum(s > tol * max(s[0], tol)))


def _copies_and_groups(Delta: np.ndarray, tol: float) -> tuple[list[int], list[list[int]]]:
    """Return the contexts without an intervention, and those with one, grouped by target.

    Contexts of one target have differences of rank one *and* a noise row in common. Rank one alone is not enough: the
    differences of two contexts with different targets can cancel.
    """
    copies = [k for k in range(len(Delta)) if np.linalg.norm(Delta[k], 2) <= tol]
    members = [k for k in range(len(Delta)) if k not in copies]
    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(members)
    rows = {k: [m for _, m in pairs.solutions(Delta[k], tol)] for k in members}
    graph.add_edges_from(
        (k, j)
        for k in members
        for j in members
        if k < j and _rank(Delta[k] - Delta[j], tol) <= 1 and any(_parallel(m, n) for m in rows[k] for n in rows[j])
    )
    return copies, sorted(sorted(group) for group in nx.connected_components(graph))


def _parallel(m: np.ndarray, n: np.ndarray) -> bool:
    """Return True if two unit vectors agree up to sign."""
    return bool(min(np.abs(m - n).max(), np.abs(m + n).max()) < 1e2 * TOLERANCE)


def _read_with_control(Theta: np.ndarray, o: int, tol: float) -> tuple[list[int], list[list[int]]] | None:
    """Return o with its copies, and the groups by target, if o can be the control; else None."""
    try:
        Delta = _whitened_differences(Theta, o)
    except ContextError:
        return None
    copies, groups = _copies_and_groups(Delta, tol)
    Theta_white = np.eye(Delta.shape[1]) + Delta
    if len(groups) > Delta.shape[1] or not all(is_definite(T) for T in Theta_white):
        return None
    Sigma = np.linalg.inv(Theta_white)
    options = [_noise_rows(Delta, Sigma, group, tol) for group in groups]
    if any(_is_consistent(choice) for choice in product(*options)):
        return copies, groups
    return None


def _noise_rows(
    Delta: np.ndarray, Sigma: np.ndarray, group: Sequence[int], tol: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pairs (u, m) of a group in which m explains all its contexts and has unit variance in all others."""
    outside = [j for j in range(len(Delta)) if j not in group]
    kept = []
    for u, m in pairs.solutions(Delta[group[0]], tol):
        unit_elsewhere = all(abs(m @ Sigma[j] @ m - 1) < 1e2 * tol for j in outside)
        shared = all(any(_parallel(m, n) for _, n in pairs.solutions(Delta[k], tol)) for k in group[1:])
        if unit_elsewhere and shared:
            kept.append((u, m))
    return kept


def _is_consistent(choice: Sequence[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Return True if noise rows are orthonormal and the graph acyclic; C = U Mᵀ has the support of its closure."""
    if not choice:
        return True
    U, M = np.array([u for u, _ in choice]), np.array([m for _, m in choice])
    if np.abs(M @ M.T - np.eye(len(M))).max() > 1e2 * TOLERANCE:
        return False
    C = U @ M.T
    ancestors = np.abs(C) > 1e2 * TOLERANCE * np.linalg.norm(C, axis=1, keepdims=True)
    np.fill_diagonal(ancestors, False)
    return not np.diagonal(transitive_closure(ancestors)).any()
