"""Data that break one assumption of the model, and by how much.

Each *break* has levels, mildest first. Samples are drawn (not moments), since several of them are not Gaussian.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from latentdag.model import simulate
from latentdag.model.distribution import standard_noise
from latentdag.model.intervention import Change, Intervention
from latentdag.model.model import LatentModel

Samples = tuple[np.ndarray, np.ndarray]
Draw = Callable[[LatentModel, int, np.random.Generator], Samples]


def on_model(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
    return simulate.sample(truth, n, rng)


def other_noise(noise: str) -> Draw:
    """Noises of the latents that are not Gaussian."""
    return lambda truth, n, rng: simulate.sample(truth, n, rng, noise)


def curved_effects(size: float) -> Draw:
    """Causes act through ``z + size (z² / s − s)``, s the standard deviation of the cause in the control."""

    def draw(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
        s = np.sqrt(np.diagonal(truth.law().latent_covariance))
        parts = []
        for context in truth.contexts:
            law = truth.law(context)
            noise = standard_noise("gaussian", (n, truth.n_latents), rng) * np.sqrt(law.noise_variance)
            Z = np.zeros_like(noise)
            for i in reversed(range(truth.n_latents)):  # sources are last
                Z[:, i] = noise[:, i] + (Z + size * (Z**2 / s - s)) @ law.weights[i]
            parts.append(Z @ truth.mixing.T)
        return _stacked(truth, parts)

    return draw


def curved_mixing(size: float) -> Draw:
    """Every feature bends: ``x + size (x² / s − s) / √2``, s its standard deviation in the control."""

    def draw(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
        X, contexts = simulate.sample(truth, n, rng)
        s = np.sqrt(np.diagonal(truth.covariance()))
        return X + size * (X**2 / s - s) / np.sqrt(2), contexts

    return draw


def measurement_noise(size: float) -> Draw:
    """Independent Gaussian noise on every feature, in units of its standard deviation in the control."""

    def draw(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
        X, contexts = simulate.sample(truth, n, rng)
        return X + size * np.sqrt(np.diagonal(truth.covariance())) * rng.standard_normal(X.shape), contexts

    return draw


def off_target(size: float) -> Draw:
    """Every context also multiplies the noise variance of one other latent by ``1 + size``; its causes stay."""

    def draw(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
        changed = {}
        for context, value in truth.interventions.items():
            other = str(rng.choice([name for name in truth.latents if name not in value.targets]))
            variance = truth.noise_variance[truth.latents.index(other)] * (1 + size)
            more = {other: Change("soft", float(variance))}
            changed[context] = Intervention.of_changes(value.changes | more)
        return simulate.sample(replace(truth, interventions=changed), n, rng)

    return draw


def weak(strength: float) -> Draw:
    """Interventions that go only part of the way: weights of causes and noise variance keep a share of their value."""

    def draw(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
        changed = {}
        for context, value in truth.interventions.items():
            i = truth.latents.index(value.target)
            before, after = truth.noise_variance[i], value.changes[value.target].variance or truth.noise_variance[i]
            kept = {truth.latents[j]: float((1 - strength) * w) for j, w in enumerate(truth.weights[i]) if w}
            variance = float(before ** (1 - strength) * after**strength)
            changed[context] = Intervention(value.target, "soft", variance, weights=kept)
        return simulate.sample(replace(truth, interventions=changed), n, rng)

    return draw


def unintervened(latent: int) -> Draw:
    """No context targets this latent, counted from the sources: −1 is a source, 0 the last effect."""

    def draw(truth: LatentModel, n: int, rng: np.random.Generator) -> Samples:
        name = truth.latents[latent]
        kept = {c: v for c, v in truth.interventions.items() if name not in v.targets}
        return simulate.sample(replace(truth, interventions=kept), n, rng)

    return draw


def _stacked(truth: LatentModel, parts: list[np.ndarray]) -> Samples:
    labels = np.empty(sum(map(len, parts)), dtype=object)
    labels[:] = [c for c, X in zip(truth.contexts, parts, strict=True) for _ in range(len(X))]
    return np.vstack(parts), labels


#: Breaks with their levels, mildest first.
BREAKS: dict[str, dict[str, Draw]] = {
    "none": {"0": on_model},
    "noise": {name: other_noise(name) for name in ("uniform", "laplace", "student-t", "exponential")},
    "curved effects": {f"{x:g}": curved_effects(x) for x in (0.1, 0.3)},
    "curved mixing": {f"{x:g}": curved_mixing(x) for x in (0.01, 0.05)},
    "measurement noise": {f"{x:g}": measurement_noise(x) for x in (0.03, 0.1, 0.3)},
    "off-target": {f"{x:g}": off_target(x) for x in (0.2, 1.0)},
    "weak": {f"{x:g}": weak(x) for x in (0.75, 0.5, 0.25)},
    "unintervened": {"a source": unintervened(-1), "the last effect": unintervened(0)},
}
