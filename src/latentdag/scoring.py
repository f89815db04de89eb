"""How well a model explains moments: the Gaussian log-likelihood on the range of its features."""

import numpy as np

from latentdag.core.linalg import range_basis
from latentdag.model import LatentModel
from latentdag.moments import Moments


def log_likelihood(model: LatentModel, m: Moments) -> float:
    """Gaussian log-likelihood of the samples behind ``m``, with respect to volume on the model's feature space.

    ``nan`` where the data have other dimensions than the model, which then gives them no density.
    """
    H = model.unmixing
    U = range_basis(m.pooled_covariance())
    outside = H - (H @ U) @ U.T
    if "do" in {change.kind for value in model.interventions.values() for change in value.changes.values()}:
        return float("nan")
    if U.shape[1] != model.n_latents or np.abs(outside).max() > 1e-6 * np.abs(H).max():
        return float("nan")
    total = 0.0
    # volume on the feature space: X = G Z stretches latent volume by sqrt(det GᵀG)
    stretch = np.linalg.slogdet(model.mixing.T @ model.mixing)[1]
    for k, context in enumerate(m.contexts):
        n, law = m.counts[k], model.law(context)
        # in units of the noises
        B = law.structural @ H
        deviation = B @ (m.means[k] - model.offset) - law.shift / np.sqrt(law.noise_variance)
        scatter = np.vdot(B @ m.covariances[k], B) * (n - 1) / n + deviation @ deviation
        log_det = 2 * np.linalg.slogdet(law.structural)[1] - stretch
        total += 0.5 * n * (log_det - scatter - model.n_latents * np.log(2 * np.pi))
    return float(total)
