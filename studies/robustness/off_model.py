"""Data that break one assumption of the model, and by how much.

Each *break* has levels, mildest first. Samples are drawn (not moments), since several of them are not Gaussian.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from latentdag import Intervention, LatentModel, simulate
from latentdag.model.distribution import standard_noise
from latentdag.model.intervention import Change

Samples = tuple[np.ndarray, np.ndarray]
Draw = Callable[[LatentModel, int, np.random.Generator], Samples]


def on_model(truth: LatentModel, n: int, rng: np.random.Generator, noise: str = "gaussian") -> Samples:
    """Draw n samples per context; the noises of the latents need not be Gaussian."""
    return simulate.sample(truth, n, rng, noise)


def curved_effects(truth: LatentModel, n: int, rng: np.random.Generator, size: float) -> Samples:
    """Let causes act through ``z + size (z² / s − s)``, s the standard deviation of the cause in the control."""
    s = np.sqrt(np.diagonal(truth.law().latent_covariance))
    parts = []
    for context in truth.contexts:
        law = truth.law(context)
        noise = standard_noise("gaussian", (n, truth.n_latents), rng) * np.sqrt(law.noise_variance)
        Z = np.zeros_like(noise)
        for i in reversed(range(truth.n_latents)):  # sources are last
            Z[:, i] = noise[:, i] + (Z + size * (Z**2 / s - s)) @ law.weights[i]
        parts.append(Z @ truth.mixing.T)
    return np.vstack(parts), np.repeat(np.array(truth.contexts, dtype=object), n)


def curved_mixing(truth: LatentModel, n: int, rng: np.random.Generator, size: float) -> Samples:
    """Bend every feature: ``x + size (x² / s − s) / √2``, s its standard deviation in the control."""
    X, contexts = simulate.sample(truth, n, rng)
    s = np.sqrt(np.diagonal(truth.covariance()))
    return X + size * (X**2 / s - s) / np.sqrt(2), contexts


def measurement_noise(truth: LatentModel, n: int, rng: np.random.Generator, size: float) -> Samples:
    """Add independent Gaussian noise to every feature, in units of its standard deviation in the control."""
    X, contexts = simulate.sample(truth, n, rng)
    return X + size * np.sqrt(np.diagonal(truth.covariance())) * rng.standard_normal(X.shape), contexts


def off_target(truth: LatentModel, n: int, rng: np.random.Generator, size: float) -> Samples:
    """Let every context also multiply the noise variance of one other latent by ``1 + size``; its causes stay."""
    changed = {}
    for context, value in truth.interventions.items():
        other = str(rng.choice([name for name in truth.latents if name not in value.targets]))
        variance = truth.noise_variance[truth.latents.index(other)] * (1 + size)
        changed[context] = Intervention.of_changes(value.changes | {other: Change("soft", float(variance))})
    return simulate.sample(replace(truth, interventions=changed), n, rng)


def weak(truth: LatentModel, n: int, rng: np.random.Generator, strength: float) -> Samples:
    """Let interventions go only part of the way: weights of causes and noise variance keep a share of their value."""
    changed = {}
    for context, value in truth.interventions.items():
        i = truth.latents.index(value.target)
        before, after = truth.noise_variance[i], value.changes[value.target].variance or truth.noise_variance[i]
        kept = {truth.latents[j]: float((1 - strength) * w) for j, w in enumerate(truth.weights[i]) if w}
        variance = float(before ** (1 - strength) * after**strength)
        changed[context] = Intervention(value.target, "soft", variance, weights=kept)
    return simulate.sample(replace(truth, interventions=changed), n, rng)


def unintervened(truth: LatentModel, n: int, rng: np.random.Generator, latent: int) -> Samples:
    """Leave out the contexts of one latent, counted from the last effect: 0 is the last effect, −1 a source."""
    name = truth.latents[latent]
    kept = {c: v for c, v in truth.interventions.items() if name not in v.targets}
    return simulate.sample(replace(truth, interventions=kept), n, rng)


def _levels(draw: Callable[..., Samples], name: str, *values: float) -> dict[str, Draw]:
    """Return a break at several levels, by what they are called."""
    return {f"{value:g}": partial(draw, **{name: value}) for value in values}


#: Breaks with their levels, mildest first.
BREAKS: dict[str, dict[str, Draw]] = {
    "none": {"0": on_model},
    "noise": {name: partial(on_model, noise=name) for name in ("uniform", "laplace", "student-t", "exponential")},
    "curved effects": _levels(curved_effects, "size", 0.1, 0.3),
    "curved mixing": _levels(curved_mixing, "size", 0.01, 0.05),
    "measurement noise": _levels(measurement_noise, "size", 0.03, 0.1, 0.3),
    "off-target": _levels(off_target, "size", 0.2, 1.0),
    "weak": _levels(weak, "strength", 0.75, 0.5, 0.25),
    "unintervened": {"a source": partial(unintervened, latent=-1), "the last effect": partial(unintervened, latent=0)},
}
