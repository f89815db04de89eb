"""Generative models that come from data: fitted, then cut down to what the paper's semi-synthetic experiment keeps.

The paper fits its algorithm to single-cell counts (K = 10 contexts, p = 100 genes), sets entries of the structural
matrices below 0.04 to zero and draws new data from the result. Its data cannot be shipped; the default here is fitted
in the same way to simulated counts of the same size, made when they are needed. Any saved fit can take its place.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from latentdag.data.moments import Moments
from latentdag.methods.fitting import fit
from latentdag.methods.result import Fit
from latentdag.model import simulate
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel

#: Entries of B_0 up to this size are set to zero, as in the paper.
THRESHOLD = 0.04

#: The paper's size: contexts, genes, and about as many cells per context.
CONTEXTS, GENES, CELLS = 10, 100, 1_000

#: Counts are scaled to this total per cell before the logarithm, as is usual.
TOTAL = 1e4

#: How much a gene's log-rate varies between cells, and the depth of sequencing (both standard deviations of logs).
BIOLOGY, DEPTH = 0.5, 0.3


def simulated_counts(
    seed: int, contexts: int = CONTEXTS, genes: int = GENES, cells: int = CELLS
) -> tuple[np.ndarray, np.ndarray, str]:
    """Poisson counts of cells whose log-rates follow a latent model with one context per latent.

    Returns
    -------
    counts : (N, genes) int
    labels : (N,) contexts
    control : label
    """
    rng = np.random.default_rng([seed, contexts, genes])
    truth = simulate.random_model(contexts, genes, density=0.4, convention="text", rng=rng)
    X, labels = simulate.sample(truth, cells, rng)
    log_rate = rng.normal(0.5, 1.0, genes) + BIOLOGY * X / np.sqrt(np.diagonal(truth.covariance()))
    depth = rng.lognormal(0.0, DEPTH, len(X))
    return rng.poisson(np.exp(log_rate) * depth[:, None]), labels, str(truth.control)


def log_normalised(counts: np.ndarray) -> np.ndarray:
    """log(1 + counts per ten thousand), (N, genes)."""
    return np.log1p(TOTAL * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


def default_model(seed: int, quick: bool = False) -> LatentModel:
    """The paper's algorithm fitted to simulated counts; deterministic, a few seconds."""
    size = (4, 20, 500) if quick else (CONTEXTS, GENES, CELLS)
    counts, labels, control = simulated_counts(seed, *size)
    return fit(Moments.from_samples(log_normalised(counts), labels, control=control), "projection").model


def fitted_model(path: Path) -> LatentModel:
    """The model of a saved fit.

    Raises
    ------
    ValueError
        If a latent is not the single target of exactly one perfect intervention: the paper's algorithm needs that.
    """
    model = Fit.load(path).model
    once = sorted(name for value in model.interventions.values() for name in value.targets) == sorted(model.latents)
    if not once or any(value.kind != "perfect" or len(value.targets) > 1 for value in model.interventions.values()):
        raise ValueError(
            f"{path}: data are generated for the paper's algorithm, so every latent must be the only target of one "
            "perfect intervention; fit one context per latent, with intervention='perfect'"
        )
    return model


def truncated(model: LatentModel, threshold: float = THRESHOLD) -> LatentModel:
    """The generative model: small entries of B_0 cut, no shifts of means, no dimensions beyond the latents.

    Examples
    --------
    >>> model = LatentModel(np.eye(2), [[0, 0.03], [0, 0]], [1, 1], {"k": Intervention("Z1", variance=2.0, shift=1.0)})
    >>> cut = truncated(model)
    >>> cut.graph.number_of_edges(), cut.interventions["k"]
    (0, Intervention('Z1', 'perfect', variance=2))
    """
    B_0 = model.structural()
    changed = {}
    for context, value in model.interventions.items():
        variance = value.changes[value.target].variance
        changed[context] = Intervention(value.target, variance=variance)
    return replace(
        model,
        weights=np.where(np.abs(B_0) > threshold, model.weights, 0.0),
        interventions=changed,
        offset=np.zeros(model.n_features),
        loadings=None,
        residual=None,
    )
