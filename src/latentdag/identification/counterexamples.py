"""The paper's counterexamples, each as two models that no amount of data can tell apart.

Data fix the precision matrices ``Θ_k = Hᵀ B_kᵀ B_k H``, and through them at best the factors ``B_k H``. Take other
latents ``Ẑ = T Z``: with ``Ĥ = T H`` and ``B̂_k = B_k T^{-1}`` every ``B̂_k Ĥ = B_k H``, so the noises, and hence the
whole law of X, are the same in every context. The new latents are a rival explanation whenever all the ``B̂_k`` are
structural matrices of a DAG and each differs from ``B̂_0`` in one row. What the paper assumes is what rules rivals out:

===============================  =========================================  ============================================
what is missing                  example                                    what it costs
===============================  =========================================  ============================================
any intervention                 :func:`observational_only`                 everything: independent latents always fit
an intervention on one latent    :func:`motivating_example`,                its row of H, and all its ancestors
                                 :func:`missing_intervention`
the same, where it is a source   :func:`missing_source`                     one bit of H; not the graph
interventions on two neighbours  :func:`covered_edge`,                      which of the two causes the other, even if
                                 :func:`fully_observed`                     H is known
perfect interventions            :func:`soft_parameters`,                   rows of H up to their ancestors' rows, and
                                 :func:`soft_graph`                         which edges of the closure are direct
a soft change of all weights     :func:`nongeneric_soft`,                   the parents whose weight stays, and with
                                 :func:`soft_theorem_gap`                   them the partial order
a known control                  :func:`star_tie`,                          the rule of the appendix ties or errs;
                                 :func:`deviation_cancellation`             the control itself is still identified
===============================  =========================================  ============================================

Only :func:`missing_source` and :func:`covered_edge` are of another kind: there ``B̂_k Ĥ`` and ``B_k H`` differ by a
rotation of the noise, so the two models share all second moments, and the whole law when the noise is Gaussian.

Contexts are numbered as in the paper, with 0 for the control. The condition of Liu et al. (2022), to which the paper
compares its own, is in :mod:`latentdag.identification.liu` and reached from here as well.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
from scipy import linalg

from latentdag.core.exact import TOLERANCE
from latentdag.core.linalg import range_basis, symmetrize
from latentdag.errors import clear_numerics
from latentdag.identification.equivalence import law_gap, relative_gap
from latentdag.identification.identify import as_precisions
from latentdag.identification.liu import liu_condition, liu_matrix, liu_possible, liu_rank  # noqa: F401
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Two models with the same contexts and the same moments.

    Attributes
    ----------
    name : str
    statement : str
        What the pair shows, in one sentence.
    first, second : LatentModel
    """

    name: str
    statement: str
    first: LatentModel
    second: LatentModel

    @property
    def latent_map(self) -> np.ndarray:
        """T (d, d) with ``Ẑ = T Z``: the second model's latents in terms of the first's."""
        return self.second.unmixing @ self.first.mixing

    def moment_gap(self) -> float:
        """Return the largest difference between the models' means, covariances and precisions over all contexts.

        Relative: entry [i, j] is measured in units of ``sqrt(S_ii S_jj)``, means in standard deviations.
        """
        one, other = self.first, self.second
        return max(
            max(law_gap(one, other, context), relative_gap(one.precision(context), other.precision(context)))
            for context in one.contexts
        )

    def unmixing_gap(self) -> float:
        """Return how far the latents are from being the same up to order and units.

        It is the largest angle, as its sine, between a row of the first unmixing and the nearest row of the second: 0
        iff the rows of one are multiples of those of the other, which still leaves the equations to compare.
        """
        H, H_hat = (
            model.unmixing / np.linalg.norm(model.unmixing, axis=1, keepdims=True)
            for model in (self.first, self.second)
        )
        cosine = H @ H_hat.T
        # the residual of the projection, since 1 − cos² would lose half the digits
        sine = np.linalg.norm(H[:, None] - cosine[..., None] * H_hat, axis=2)
        return float(sine.min(axis=1).max())


def _pair_of(name: str, statement: str, *, H: Any, B: Sequence[Any], H_hat: Any) -> Counterexample:
    """Return the pair with other latents ``Ẑ = T Z`` and the same noises: ``Ĥ = T H`` and ``B̂_k = B_k T^{-1}``.

    Parameters
    ----------
    H, H_hat : (d, d)
        Both unmixings; ``T^{-1} = H Ĥ^{-1}``.
    B : [B_0, B_1, …], each (d, d)
        Structural matrices of the first model.
    """
    B_hat = np.asarray(B, dtype=float) @ np.asarray(H) @ np.linalg.inv(H_hat)
    B_hat[np.abs(B_hat) < 1e-12 * np.abs(B_hat).max()] = 0.0
    return Counterexample(name, statement, _model_of(H, B), _model_of(H_hat, B_hat))


def _model_of(H: Any, B: Sequence[Any]) -> LatentModel:
    """Return the model with unmixing H and structural matrices ``[B_0, B_1, …]``, contexts numbered as in the paper."""
    return LatentModel.from_structural(H, B[0], dict(enumerate(B[1:], start=1)), control=0)


def _random_upper(rng: np.random.Generator, d: int) -> np.ndarray:
    """Draw an upper triangular matrix (d, d) of positive diagonal, with nothing near zero on or above it."""
    size = rng.uniform(0.5, 2.0, size=(d, d))
    sign = np.where(np.eye(d) > 0, 1.0, rng.choice([-1.0, 1.0], size=(d, d)))
    return np.triu(size * sign)


def motivating_example() -> Counterexample:
    """Return the introduction's example, with its numbers: one context is too few for two latents (Example 1).

    The latents are 2 → 1 with ``Z_1 = −Z_2 + ε_1``, and the only context changes the noise of ``Z_2``. The second model
    has no edge: its first latent is the noise ``ε_1 = Z_1 + Z_2``, which no context ever touched.

    What stays identified is ``Z_2``, the target: ``Θ_1 − Θ_0`` has rank one and spans its row of H.

    See Also
    --------
    missing_intervention : the same for any model.

    Examples
    --------
    >>> pair = motivating_example()
    >>> pair.first.covariance(0).round(9), pair.second.covariance(0).round(9)
    (array([[ 20., -16.], [-16.,  13.]]), array([[ 20., -16.], [-16.,  13.]]))
    >>> list(pair.first.graph.edges), list(pair.second.graph.edges)
    ([('Z2', 'Z1')], [])
    """
    return _pair_of(
        "motivating example",
        "With one context for two latents, 2 → 1 and two independent latents have the same covariances.",
        H=[[0.5, 1.0], [1.0, 1.0]],
        B=[[[1, 1], [0, 1]], [[1, 1], [0, 2]]],
        H_hat=[[1.5, 2.0], [1.0, 1.0]],
    )


def observational_only(model: LatentModel) -> Counterexample:
    """Return the pair that the control alone leaves: independent latents always fit (section "Worst-case Necessity").

    The second model's latents are the first's noises, ``Ĥ = Λ B_0 H`` with Λ the noise scales. What stays identified is
    the number of latents and the space they span, nothing about a single one.

    Parameters
    ----------
    model : LatentModel
        With at least one edge; its contexts other than the control are dropped.

    Examples
    --------
    >>> from latentdag import simulate
    >>> pair = observational_only(simulate.random_model(rng=0))
    >>> pair.second
    LatentModel(5 latents, 10 features, 0 edges, 0 interventions)
    """
    if not model.weights.any():
        raise ValueError("the latents are independent already: the second model would be the first")
    first = replace(model, interventions={})
    return Counterexample(
        "observational only",
        "Without interventions, independent latents explain the moments of any model.",
        first,
        replace(
            first,
            unmixing=(np.eye(first.n_latents) - first.weights) @ first.unmixing,
            weights=np.zeros_like(first.weights),
        ),
    )


def missing_intervention(model: LatentModel, latent: str | None = None) -> Counterexample:
    """Return the pair that one latent without an intervention leaves, in any model (proof of Proposition 5).

    Replace the latent l by its own noise, ``Ẑ_l = Z_l − Σ_j A_lj Z_j`` (the paper's ``Ĥ_l = (B_0)_l H`` in the units of
    ``Z_l``), and write ``Z_l = Ẑ_l + Σ_j A_lj Z_j`` wherever it acts on others. Then l is a source, and its children
    inherit its parents: ``Â_cj = A_cj + A_cl A_lj``.

    The paper does it for a sink (its row 1). It works for any latent that has parents. No cycle can arise, for the
    parents of l came before its children already. And interventions on other latents keep their kind: a perfect one
    replaces the row of its target c by ``λ e_c``, in which ``Z_l`` does not occur; a soft one's weights are rewritten
    like the control's.

    The graphs differ, and so do the partial orders, always (the paper says "in general"): the second order lacks every
    ancestor of l and gains nothing. The other latents are those of the first model, row by row of H.

    Parameters
    ----------
    model : LatentModel
    latent : str, optional
        The latent to go without an intervention; contexts that target it are dropped. By default the first latent that
        has parents and is not targeted in any context.

    Raises
    ------
    ValueError
        If the latent has no parents: it is its own noise, and the second model would be the first. Or if the latents
        act on each other in a cycle.

    See Also
    --------
    missing_source : what a source without an intervention costs.

    Examples
    --------
    A chain 3 → 2 → 1 without a context for the middle one becomes the collider 3 → 1 ← 2:

    >>> B_0 = np.eye(3) + np.diag([1.0, 1.0], 1)
    >>> contexts = {1: Intervention("Z1", variance=2.0), 3: Intervention("Z3", variance=2.0)}
    >>> pair = missing_intervention(LatentModel.from_structural(np.eye(3), B_0, interventions=contexts))
    >>> sorted(pair.second.graph.edges)
    [('Z2', 'Z1'), ('Z3', 'Z1')]
    >>> pair.second.targets
    {1: 'Z1', 3: 'Z3'}
    """
    name = _first_replaceable(model) if latent is None else latent
    row = model.index(name)
    first = replace(model, interventions={c: v for c, v in model.interventions.items() if name not in v.targets})
    a = first.weights[row]
    if not a.any():
        raise ValueError(f"latent {name!r} has no parents, so it is its own noise and replacing it changes nothing")
    _check_acyclic(first)
    H, A = first.unmixing.copy(), first.weights + np.outer(first.weights[:, row], a)
    H[row] -= a @ first.unmixing
    A[row] = 0.0
    parents = {first.latents[j]: float(a[j]) for j in np.flatnonzero(a).tolist()}
    return Counterexample(
        "missing intervention",
        f"No context intervenes on {name}, so its noise can pass for the latent: a source instead of a latent with "
        f"{len(parents)} parents.",
        first,
        replace(
            first,
            unmixing=H,
            weights=A,
            interventions={c: _substituted(v, name, parents) for c, v in first.interventions.items()},
        ),
    )


def missing_source(rng: Any = 0) -> Counterexample:
    """Return two models for 2 → 1 with an intervention on 1 only (Remark 2, after Proposition 5, settled).

    The paper notes that the target and the graph are identified here, since ``Θ_1 − Θ_0`` has rank two, and reports
    "preliminary computational evidence" that the parameters are not. They are not, and the reason is short. Two
    covariance matrices have common conjugate axes; a map M that flips the sign along one of them leaves both laws as
    they are, ``Mᵀ Θ_k M = Θ_k``. So ``Ĥ = H M`` with the same ``B_0`` and ``B_1`` fits as well.

    These two are all: the pair (noise of 1, row of ``Z_1``) is determined by ``(Θ_0, Θ_1)`` up to one bit, and the rest
    follows from it. The graph, the target, and ``B_0`` and ``B_1`` (for units of the latents in which they agree) stay
    identified; a context for ``Z_2`` settles the bit. One case needs no algebra: if the intervention happens to keep
    the variance of ``Z_1``, the latents only lose their correlation, and cause and effect can trade places.

    Parameters
    ----------
    rng : seed or Generator
        For the parameters, all of which are random.

    Examples
    --------
    >>> pair = missing_source()
    >>> pair.moment_gap() < 1e-12, pair.unmixing_gap() > 0.1
    (True, True)
    >>> bool((pair.first.structural() == pair.second.structural()).all())
    True
    """
    rng = np.random.default_rng(rng)
    B_0 = _random_upper(rng, 2)
    B_1 = B_0.copy()
    B_1[0] = [rng.uniform(0.5, 2.0), 0.0]
    H = _random_upper(rng, 2)
    first = _model_of(H, [B_0, B_1])
    _, V = linalg.eigh(first.precision(1), first.precision(0))  # the common conjugate axes
    M = V @ np.diag([1.0, -1.0]) @ V.T @ first.precision(0)
    return Counterexample(
        "missing source",
        "With a context for the effect but none for the cause, the graph is identified and two unmixings fit.",
        first,
        replace(first, unmixing=H @ M),
    )


def covered_edge(model: LatentModel, source: str, target: str) -> Counterexample:
    """Return the pair with an edge between two untargeted latents turned round; rows of H stay as they are.

    An edge a → b is *covered* if a and b have the same other parents P. The law of (a, b) given P can be written as
    a given P, then b given a and P, or the other way round, and neither context on other latents changes it. So the
    two directions fit every context alike, even if H is known: with H a permutation, all latents are observed, and
    this is Proposition 4, "worst-case necessity, observed".

    Parameters
    ----------
    model : LatentModel
    source, target : str
        Of a covered edge. Contexts that target either are dropped.

    See Also
    --------
    fully_observed : the worst case of the proposition, for any number of variables.

    Examples
    --------
    >>> pair = fully_observed(3, rng=0)
    >>> sorted(pair.first.graph.edges)
    [('Z2', 'Z1'), ('Z3', 'Z1'), ('Z3', 'Z2')]
    >>> sorted(pair.second.graph.edges)
    [('Z2', 'Z1'), ('Z2', 'Z3'), ('Z3', 'Z1')]
    >>> pair.moment_gap() < 1e-12
    True
    """
    a, b = model.index(source), model.index(target)
    others = np.delete(np.arange(model.n_latents), a)
    A, Omega = model.weights.copy(), model.noise_variance.copy()
    if A[b, a] == 0:
        raise ValueError(f"there is no edge {source!r} → {target!r} to turn round")
    if ((A[a, others] != 0) != (A[b, others] != 0)).any():
        raise ValueError(f"the edge {source!r} → {target!r} is not covered: its ends have different other parents")
    w, from_others = A[b, a], A[b].copy()
    from_others[a] = 0.0
    # b without a, and then a given b
    A[b] = from_others + w * A[a]
    Omega[b] = w**2 * Omega[a] + model.noise_variance[b]
    back = w * Omega[a] / Omega[b]
    A[a] = A[a] - back * A[b]
    A[a, b] = back
    Omega[a] = Omega[a] * model.noise_variance[b] / Omega[b]
    kept = {c: v for c, v in model.interventions.items() if not {source, target} & set(v.targets)}
    first = replace(model, interventions=kept)
    return Counterexample(
        "covered edge",
        f"No context intervenes on {source} or {target}, and their other parents are the same, so {source} → {target} "
        f"and {target} → {source} have the same moments, whatever is known about H.",
        first,
        replace(first, weights=A, noise_variance=Omega),
    )


def fully_observed(n_latents: int, rng: int | np.random.Generator | None = None) -> Counterexample:
    """Return all variables observed and joined, with d − 2 interventions: one edge can be turned round (Proposition 4).

    The two variables that no context targets are neighbours in the order, here the two sources. One context more, on
    either of them, would settle the direction: d − 1 are enough when H is a permutation, and d are needed in general
    (:func:`missing_intervention`).

    Parameters
    ----------
    n_latents : int, at least 2
    rng : seed or generator
        Of weights and variances.

    Examples
    --------
    >>> pair = fully_observed(2, rng=0)
    >>> list(pair.first.graph.edges), list(pair.second.graph.edges)
    ([('Z2', 'Z1')], [('Z1', 'Z2')])
    """
    if n_latents < 2:
        raise ValueError(f"an edge needs two variables, got n_latents={n_latents}")
    rng = np.random.default_rng(rng)
    d = n_latents
    weights = np.triu(rng.uniform(0.5, 1.5, (d, d)) * rng.choice([-1.0, 1.0], (d, d)), 1)
    names = tuple(f"Z{i + 1}" for i in range(d))
    contexts = {k + 1: Intervention(names[k], variance=float(rng.uniform(2.0, 4.0))) for k in range(d - 2)}
    model = LatentModel(np.eye(d)[rng.permutation(d)], weights, rng.uniform(0.5, 1.5, d), contexts, latents=names)
    return covered_edge(model, names[-1], names[-2])


def _first_replaceable(model: LatentModel) -> str:
    """Return the first latent that has parents and that no context targets."""
    for name, row in zip(model.latents, model.weights, strict=True):
        if row.any() and name in model.untargeted:
            return name
    raise ValueError(
        "every latent that has parents is targeted by some context: name the latent whose contexts are to be dropped"
    )


def _check_acyclic(model: LatentModel) -> None:
    """Raise ValueError if the latents act on each other in a cycle in some context."""
    for context in model.contexts:
        graph = nx.from_numpy_array(model.law(context).weights != 0, create_using=nx.DiGraph)
        if not nx.is_directed_acyclic_graph(graph):
            raise ValueError(f"in context {context!r} the latents act on each other in a cycle; the paper's do not")


def _substituted(intervention: Intervention, latent: str, parents: Mapping[str, float]) -> Intervention:
    """Return the same intervention where ``latent`` stands for its noise and its parents' part is written out."""
    changes = {}
    for name, change in intervention.changes.items():
        old = change.weights or {}
        added = {j: old.get(j, 0.0) + old[latent] * a for j, a in parents.items()} if old.get(latent) else {}
        changes[name] = replace(change, weights=change.weights and {**old, **added})
    return Intervention.of_changes(changes)


def nongeneric_soft() -> Counterexample:
    """Return the pair that a soft intervention leaves if it only changes a variance (appendix B, "Non-generic soft").

    Context 1 doubles the row of latent 1 in ``B_0``: weights stay, the noise shrinks. Assumption 1(b) forbids just
    that for a latent with parents. The second model has no edge, and in it all interventions are perfect.

    What stays identified are the noises: ``B_k H`` is the same. (The last equation of the appendix is about ``Θ_2``; it
    is printed with the index 1.)

    Examples
    --------
    >>> pair = nongeneric_soft()
    >>> pair.first.interventions[1], pair.second.interventions[1]
    (Intervention('Z1', 'soft', variance=0.25, weights={'Z2': -1.0}), Intervention('Z1', 'perfect', variance=0.25))
    """
    return _pair_of(
        "non-generic soft",
        "If a soft intervention only rescales the row of its target, the edges into the target are not identified.",
        H=[[1, 0], [0, 1]],
        B=[[[1, 1], [0, 1]], [[2, 2], [0, 1]], [[1, 1], [0, 2]]],
        H_hat=[[1, 1], [0, 1]],
    )


def soft_parameters(rng: Any = 0, entry: float | None = None) -> Counterexample:
    """Return a pair of H that soft interventions leave open (appendix J, "imperfect interventions", first part).

    The latents are 2 → 1, a soft intervention on 1 and one on 2, ``H = [[1, H_12], [0, 1]]``. Any other value of
    ``H_12`` fits: a multiple of ``Z_2`` moves from ``Z_1`` as the mixing shows it into the weight of 2 → 1.

    The source ``Z_2``, the noises and the partial order stay identified. "Any value" has two exceptions that the paper
    does not mention: at ``H_12 + (B_k)_12 / (B_k)_11`` for k = 0 or 1 the weight vanishes in that context, and with it
    the constant support that Assumption 1(a) asks for.

    Parameters
    ----------
    rng : seed or Generator
        For the parameters, all of which are random.
    entry : float, optional
        ``Ĥ_12`` of the second model; random by default.

    Examples
    --------
    >>> soft_parameters(entry=100.0).second.unmixing
    array([[  1., 100.], [  0.,   1.]])
    """
    rng = np.random.default_rng(rng)
    B = _random_soft_contexts(rng, 2)
    H_12, drawn = rng.uniform(-2.0, 2.0, size=2)
    return _pair_of(
        "soft parameters",
        "With soft interventions on both latents of 2 → 1, the entry H_12 can have any value.",
        H=[[1.0, H_12], [0.0, 1.0]],
        B=B,
        H_hat=[[1.0, drawn if entry is None else float(entry)], [0.0, 1.0]],
    )


def soft_graph(rng: Any = 0, entry: float | None = None) -> Counterexample:
    """Return two graphs with one closure that soft interventions leave open (appendix J, second part).

    The first model is 3 → 2 → 1 with 3 → 1, context k a soft intervention on latent k, H unit upper triangular. The
    second lacks 3 → 1. Row 1 of ``B_k H`` takes two values, in the control and in context 1; both must be of the form
    ``(b_1, b_2, 0) Ĥ``, which leaves two linear equations for ``Ĥ_13`` and ``Ĥ_23``, given any ``Ĥ_12``. Their
    determinant ``(B_0)_11 (B_1)_12 − (B_1)_11 (B_0)_12`` vanishes only if the weight of 2 → 1 stays the same.

    Closure, noises and the row of the source stay identified.

    The appendix prints ``B_1`` with a changed second row, as if contexts 1 and 2 both hit latent 2 and none hit 1. Its
    linear system and its ``B̂_1`` belong to a changed first row, which is what is built here.

    Parameters
    ----------
    rng : seed or Generator
        For the parameters, all of which are random.
    entry : float, optional
        ``Ĥ_12`` of the second model; by default that of the first.

    Examples
    --------
    >>> pair = soft_graph()
    >>> sorted(pair.first.graph.edges), sorted(pair.second.graph.edges)
    ([('Z2', 'Z1'), ('Z3', 'Z1'), ('Z3', 'Z2')], [('Z2', 'Z1'), ('Z3', 'Z2')])
    """
    rng = np.random.default_rng(rng)
    B = _random_soft_contexts(rng, 3)
    H = np.eye(3) + np.triu(rng.uniform(-2.0, 2.0, size=(3, 3)), k=1)
    H_hat = H.copy()
    H_hat[0, 1] = H[0, 1] if entry is None else float(entry)
    # row 1 as the control and as context 1 have it, in the latents of the first model
    first_rows = np.array([B[0][0], B[1][0]])
    left = np.column_stack([first_rows[:, 0], first_rows[:, 1] + first_rows[:, 0] * (H[0, 1] - H_hat[0, 1])])
    H_hat[:2, 2] = np.linalg.solve(left, first_rows @ H[:, 2])
    return _pair_of(
        "soft graph",
        "With a soft intervention on every latent, 3 → 2 → 1 fits with and without the edge 3 → 1.",
        H=H,
        B=B,
        H_hat=H_hat,
    )


def soft_theorem_gap() -> Counterexample:
    """Return a pair that is generic by the letter of Assumption 1(b), and yet of two partial orders (gap in Theorem 1).

    The first half of Theorem 1 says that d generic interventions, soft ones included, identify the
    closure of the graph; generic means that the target's row of ``B_k`` is no multiple of that of ``B_0``. Here the
    latents are 3 → 1 ← 2, and context 1 changes the weight of 2 but not that of 3: generic in that sense. The second
    model absorbs the constant part into its first latent, ``Ẑ_1 = Z_1 − A_13 Z_3``, and has no edge 3 → 1.

    So the theorem needs every weight of the target to change. In general all constant weights, C, are absorbed at once
    by ``T = I − C``. That leaves ``Â_k = (A_k − C)(I − C)^{-1}``, and what is identified for generic values is the
    closure of this graph. Perfect interventions are safe, since they change every weight, to zero.

    In the proof the lemma on row spans is right. The algorithm tests something else, namely whether projecting out the
    rows found so far leaves one dimension, and ``rowspan(Θ_1 − Θ_0)`` contains ``h_2``: projecting out ``h_2`` is
    enough, before or without 3.

    Examples
    --------
    >>> pair = soft_theorem_gap()
    >>> sorted(pair.first.graph.edges), sorted(pair.second.graph.edges)
    ([('Z2', 'Z1'), ('Z3', 'Z1')], [('Z2', 'Z1')])
    """
    return _pair_of(
        "gap of the soft theorem",
        "If a soft intervention on 1 in 3 → 1 ← 2 changes only the weight of 2, the edge 3 → 1 is not identified.",
        H=np.eye(3),
        B=[
            [[1, -1, -1], [0, 1, 0], [0, 0, 1]],
            [[1, -2, -1], [0, 1, 0], [0, 0, 1]],
            [[1, -1, -1], [0, 2, 0], [0, 0, 1]],
            [[1, -1, -1], [0, 1, 0], [0, 0, 2]],
        ],
        H_hat=[[1, 0, -1], [0, 1, 0], [0, 0, 1]],
    )


def _random_soft_contexts(rng: np.random.Generator, d: int) -> list[np.ndarray]:
    """Draw ``[B_0, …, B_d]``: context k redraws row k, each weight with the other sign, so that all of them change."""
    B = [_random_upper(rng, d) for _ in range(d + 1)]
    for k in range(1, d + 1):
        row = np.copysign(B[k][k - 1], -B[0][k - 1])
        row[k - 1] = abs(row[k - 1])
        B[k] = B[0].copy()
        B[k][k - 1] = row + 0.0
    return B


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
