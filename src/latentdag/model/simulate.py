"""Random models by the paper's recipe, and sample moments that cost the same at any sample size.

The paper's text and its published figures differ in one convention, and the second makes a far easier problem:

* ``"text"``: Ω holds variances, ``B = Ω^{-1/2}(I − A)``, with Ω_0 in [2, 4] and intervened entries in [6, 8];
* ``"figures"``: the same numbers are structural scales, ``B_0 = diag(s)(I − A)`` with s in [2, 4] and λ in [6, 8].

H is drawn entrywise and then scaled as Assumption 1(c) says; the structural equations refer to the scaled latents.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Literal

import numpy as np

from latentdag.core.linalg import max_entry_scale
from latentdag.data.moments import Moments
from latentdag.model.intervention import Intervention, latent_names
from latentdag.model.model import LatentModel, Law

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
        targets = [[int(i)] for i in rng.permutation(d)]
    else:
        targets = [sorted(rng.choice(d, n_targets, replace=False).tolist()) for _ in range(d)]
    contexts = [f"c{k + 1}" for k in range(d)]
    names = latent_names(d, dict(zip(contexts, targets, strict=True)))
    interventions = {
        context: Intervention.combine(
            _draw_change(rng, i, names, edges, kind, intervened_range, weight_range, convention) for i in rows
        )
        for context, rows in zip(contexts, targets, strict=True)
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
    """
    rng = np.random.default_rng(rng)
    counts = {c: int(n[c]) if isinstance(n, Mapping) else int(n) for c in model.contexts}
    if min(counts.values()) < 2:
        raise ValueError(f"at least two samples per context are needed, got {counts}")
    means, covariances = [], []
    for context in model.contexts:
        mean, covariance = _sample_one(model.law(context), counts[context], rng)
        means.append(mean)
        covariances.append(covariance)
    return Moments.from_covariances(
        np.array(covariances),
        list(counts.values()),
        contexts=model.contexts,
        control=model.control,
        means=np.array(means),
        feature_names=model.feature_names,
    )


def sample(
    model: LatentModel, n: int | Mapping[Hashable, int], rng: Any = None, noise: str = "gaussian"
) -> tuple[np.ndarray, np.ndarray]:
    """Draw n samples of every context.

    Returns
    -------
    X : (N, p)
    contexts : (N,) labels
    """
    rng = np.random.default_rng(rng)
    counts = [int(n[c]) if isinstance(n, Mapping) else int(n) for c in model.contexts]
    X = np.vstack([model.sample(size, c, rng, noise) for c, size in zip(model.contexts, counts, strict=True)])
    labels = np.empty(len(X), dtype=object)
    labels[:] = [c for c, size in zip(model.contexts, counts, strict=True) for _ in range(size)]
    return X, labels


def _sample_one(law: Law, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    L = law.factor
    if law.model.residual is not None:
        w, V = np.linalg.eigh(law.model.residual)
        L = np.hstack([L, V * np.sqrt(np.maximum(w, 0.0))])
    return draw_moments(law.mean, L, n, rng)


def draw_moments(
    mean: np.ndarray, factor: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (p,) and covariance (p, p) of n Gaussian samples of the law with covariance ``factor factorᵀ`` (p, r).

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
    return rng.choice([-1.0, 1.0], size=shape) * rng.uniform(*interval, size=shape)


def _variances(rng: np.random.Generator, interval: Interval, convention: Convention, size: int) -> np.ndarray:
    drawn = rng.uniform(*interval, size=size)
    return drawn if convention == "text" else drawn**-2.0


def _draw_change(
    rng: np.random.Generator,
    i: int,
    names: list[str],
    edges: np.ndarray,
    kind: str,
    intervened_range: Interval,
    weight_range: Interval,
    convention: Convention,
) -> Intervention:
    variance = float(_variances(rng, intervened_range, convention, 1)[0])
    parents = np.flatnonzero(edges[i])
    if kind == "perfect" or not len(parents):
        return Intervention(names[i], variance=variance)
    weights = _signed_uniform(rng, weight_range, len(parents))
    new = {names[j]: float(w) for j, w in zip(parents, weights, strict=True)}
    return Intervention(names[i], "soft", variance, weights=new)
