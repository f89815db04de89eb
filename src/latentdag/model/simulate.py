"""Random models by the paper's recipe, and sample moments that cost the same at any sample size.

The paper's text and its published figures differ in one convention, and the second makes a far easier problem:

* ``"text"``: Ω holds variances, ``B = Ω^{-1/2}(I − A)``, with Ω_0 in [2, 4] and intervened entries in [6, 8];
* ``"figures"``: the same numbers are structural scales, ``B_0 = diag(s)(I − A)`` with s in [2, 4] and λ in [6, 8].

H is drawn entrywise and then scaled as Assumption 1(c) says; the structural equations refer to the scaled latents.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentdag.core.linalg import max_entry_scale
from latentdag.data.moments import Moments
from latentdag.model.intervention import Change, Intervention, latent_names
from latentdag.model.model import LatentModel

Convention = Literal["text", "figures"]
Interval = tuple[float, float]


def random_model(
    n_latents: int = 5,
    n_features: int = 10,
    density: float = 0.75,
    convention: Convention = "figures",
    rng: Any = None,
    *,
    kind: Literal["perfect", "soft"] = "perfect",
    n_targets: int = 1,
    weight_range: Interval = (0.25, 1.0),
    noise_range: Interval = (2.0, 4.0),
    intervened_range: Interval = (6.0, 8.0),
    mixing_range: Interval = (-2.0, 2.0),
) -> LatentModel:
    """Draw one model as in the paper's synthetic experiment.

    Parameters
    ----------
    n_latents, n_features : int
        d and p.
    density : float
        Probability of each edge (Erdős–Rényi, along the order; sources come last).
    convention : "figures" or "text"
        What ``noise_range`` and ``intervened_range`` mean, see the module's text.
    rng : seed or Generator
    kind : "perfect" or "soft"
        Soft interventions redraw all weights of the target's parents instead of cutting them.
    n_targets : int
        1 gives each latent one context, in random order; 2 is the out-of-model variant of the membership
        experiment: in each of d contexts, a uniformly random set of that size.
    weight_range, noise_range, intervened_range, mixing_range
        Edge weights are ± the first; then Ω_0 (or the structural scales), the intervened Ω (or λ), the entries of H.

    Examples
    --------
    >>> random_model(n_latents=3, n_features=4, rng=1)
    LatentModel(3 latents, 4 features, 2 edges, 3 interventions)
    """
    rng = np.random.default_rng(rng)
    d, p = int(n_latents), int(n_features)
    if not 1 <= d <= p:
        raise ValueError(f"the model needs 1 ≤ n_latents ≤ n_features, got {d} and {p}")
    if not 0 <= density <= 1:
        raise ValueError(f"density is a probability, got {density}")
    if not 1 <= n_targets <= d:
        raise ValueError(f"n_targets must lie between 1 and n_latents = {d}, got {n_targets}")
    if convention not in ("text", "figures"):
        raise ValueError(f"convention must be 'text' or 'figures', got {convention!r}")
    if kind not in ("perfect", "soft"):
        raise ValueError(f"kind must be 'perfect' or 'soft', got {kind!r}")

    edges = np.triu(rng.random((d, d)) < density, k=1)
    A_0 = np.where(edges, _signed_uniform(rng, weight_range, (d, d)), 0.0)
    Omega_0 = _variances(rng, noise_range, convention, d)
    if n_targets == 1:
        rows = [[int(i)] for i in rng.permutation(d)]
    else:
        rows = [sorted(rng.choice(d, n_targets, replace=False).tolist()) for _ in range(d)]
    targets: dict[Hashable, list[int]] = {f"c{k + 1}": rows[k] for k in range(d)}
    names = latent_names(d, targets)

    def new_change(i: int) -> Change:
        """Draw what a context does to latent i."""
        variance = float(_variances(rng, intervened_range, convention, 1)[0])
        parents = np.flatnonzero(edges[i])
        if kind == "perfect" or not len(parents):
            return Change("perfect", variance)
        weights = _signed_uniform(rng, weight_range, len(parents)).tolist()
        return Change("soft", variance, weights={names[j]: w for j, w in zip(parents, weights, strict=True)})

    interventions = {
        context: Intervention.of_changes({names[i]: new_change(i) for i in targeted})
        for context, targeted in targets.items()
    }
    H = rng.uniform(*mixing_range, size=(d, p))
    H /= max_entry_scale(H)[:, None]
    return LatentModel(H, A_0, Omega_0, interventions, latents=names)


def sample_moments(model: LatentModel, n: int | Mapping[Hashable, int], rng: Any = None) -> Moments:
    """Draw the sample moments of n Gaussian samples per context without drawing the samples.

    Covariances come from the Wishart law through Bartlett's triangular factor and means from their normal law, so
    n = 10⁸ costs as much as n = 100.

    Parameters
    ----------
    model : LatentModel
    n : int or mapping of context to int
    rng : seed or Generator

    Examples
    --------
    >>> m = sample_moments(random_model(n_latents=3, n_features=4, rng=1), 10**8, rng=0)
    >>> m.covariances.shape, m.counts.tolist()
    ((4, 4, 4), [100000000, 100000000, 100000000, 100000000])
    """
    rng = np.random.default_rng(rng)
    counts = _counts(model, n)
    if min(counts.values()) < 2:
        raise ValueError(f"at least two samples per context are needed, got {counts}")
    means, covariances = [], []
    for context, size in counts.items():
        law = model.law(context)
        mean, covariance = draw_moments(law.mean, np.hstack([law.factor, law.residual_factor]), size, rng)
        means.append(mean)
        covariances.append(covariance)
    return model.labelled(means, covariances, list(counts.values()))


def sample(
    model: LatentModel, n: int | Mapping[Hashable, int], rng: Any = None, noise: str = "gaussian"
) -> tuple[np.ndarray, np.ndarray]:
    """Draw n samples of every context.

    Returns
    -------
    X : (N, p)
    contexts : (N,) labels

    Examples
    --------
    >>> X, contexts = sample(random_model(n_latents=3, n_features=4, rng=1), 2, rng=0)
    >>> X.shape, contexts.tolist()
    ((8, 4), ['control', 'control', 'c1', 'c1', 'c2', 'c2', 'c3', 'c3'])
    """
    rng = np.random.default_rng(rng)
    counts = _counts(model, n)
    X = np.vstack([model.sample(size, context, rng, noise) for context, size in counts.items()])
    return X, pd.Series(list(counts), dtype=object).repeat(list(counts.values())).to_numpy()


def _counts(model: LatentModel, n: int | Mapping[Hashable, int]) -> dict[Hashable, int]:
    """Return the sample size of every context."""
    return {context: int(n[context]) if isinstance(n, Mapping | pd.Series) else int(n) for context in model.contexts}


def draw_moments(
    mean: np.ndarray, factor: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the mean (p,) and covariance (p, p) of n Gaussian samples with covariance ``factor factorᵀ``, factor (p, r).

    The cost does not depend on n. With fewer than r + 1 samples the covariance has rank n − 1, as it should.
    """
    r, dof = factor.shape[1], n - 1
    new_mean = mean + factor @ rng.standard_normal(r) / np.sqrt(n)
    if dof >= r:
        T = np.tril(rng.standard_normal((r, r)), k=-1)  # Bartlett: T Tᵀ ~ Wishart(I, dof)
        T[np.diag_indices(r)] = np.sqrt(rng.chisquare(dof - np.arange(r)))
    else:
        T = rng.standard_normal((r, dof))
    LT = factor @ T
    return new_mean, LT @ LT.T / max(dof, 1)


def _signed_uniform(rng: np.random.Generator, interval: Interval, shape: Any) -> np.ndarray:
    """Draw numbers whose absolute values are uniform in the interval, with random signs."""
    return rng.choice([-1.0, 1.0], size=shape) * rng.uniform(*interval, size=shape)


def _variances(rng: np.random.Generator, interval: Interval, convention: Convention, size: int) -> np.ndarray:
    """Draw noise variances (size,), from variances ("text") or from structural scales ("figures")."""
    drawn = rng.uniform(*interval, size=size)
    return drawn if convention == "text" else drawn**-2.0
