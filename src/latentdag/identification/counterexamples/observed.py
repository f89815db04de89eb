"""What interventions are needed for even where nothing is hidden: edges that can be turned round."""

from dataclasses import replace

import numpy as np

from latentdag.identification.counterexamples.pairs import Counterexample
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel


def covered_edge(model: LatentModel, source: str, target: str) -> Counterexample:
    """An edge between two latents without interventions, turned round; rows of H stay as they are.

    An edge a → b is *covered* if a and b have the same other parents P. The law of (a, b) given P can be written as
    a given P, then b given a and P, or the other way round, and neither context on other latents changes it. So the
    two directions fit every context alike, even if H is known: with H a permutation, all latents are observed, and
    this is the paper's Proposition "worst-case necessity, observed".

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
    """All variables observed, every pair joined, d − 2 interventions: one edge is left that can be turned round.

    The two variables that no context targets are neighbours in the order, here the two sources. One context more, on
    either of them, would settle the direction: d − 1 are enough when H is a permutation, and d are needed in general
    (:func:`missing_intervention`).

    Parameters
    ----------
    n_latents : int, at least 2
    rng : seed or generator
        Of weights and variances.
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
