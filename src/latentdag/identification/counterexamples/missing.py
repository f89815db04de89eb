"""Interventions that are missing, and the second model that this leaves.

In the first part latents are hidden. In the second (:func:`covered_edge`, :func:`fully_observed`) nothing is hidden,
and an edge between two latents without interventions can still be turned round.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
from scipy import linalg

from latentdag.identification.counterexamples.counterexample import Counterexample, model_of, pair_of, random_upper
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel


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
    return pair_of(
        "motivating example",
        "With one context for two latents, 2 → 1 and two independent latents have the same covariances.",
        H=np.linalg.inv([[-2.0, 2.0], [2.0, -1.0]]),
        B=[[[1, 1], [0, 1]], [[1, 1], [0, 2]]],
        H_hat=np.linalg.inv([[-2.0, 4.0], [2.0, -3.0]]),
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
    if name not in model.latents:
        raise ValueError(f"no latent {name!r}; the model has {list(model.latents)}")
    first = replace(model, interventions={c: v for c, v in model.interventions.items() if name not in v.targets})
    row = first.latents.index(name)
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
    B_0 = random_upper(rng, 2)
    B_1 = B_0.copy()
    B_1[0] = [rng.uniform(0.5, 2.0), 0.0]
    H = random_upper(rng, 2)
    first = model_of(H, [B_0, B_1])
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
    for name in (source, target):
        if name not in model.latents:
            raise ValueError(f"no latent {name!r}; the model has {list(model.latents)}")
    a, b = model.latents.index(source), model.latents.index(target)
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
