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
    # volume on the feature space: X = G Z stretches latent volume by sqrt(det GᵀG)
    stretch = np.linalg.slogdet(model.mixing.T @ model.mixing)[1]
    n = m.counts
    # squared noises and log variances (K+1, d) of rows as the control has them, then of those that a context targets
    control = model.law()
    B = control.structural @ H
    squares = np.einsum("kij,ij->ki", B @ m.covariances, B) * ((n - 1) / n)[:, None]
    squares += ((m.means - model.offset) @ B.T) ** 2
    log_variances = np.repeat(np.log(control.noise_variance)[None], len(n), axis=0)
    eye = np.eye(model.n_latents)
    for k, context in enumerate(m.contexts):
        law = model.law(context)
        if law.intervention is None:
            continue
        rows = [model.latents.index(name) for name in law.intervention.changes]
        scale = np.sqrt(law.noise_variance[rows])
        b = (eye[rows] - law.weights[rows]) @ H / scale[:, None]
        deviation = b @ (m.means[k] - model.offset) - law.shift[rows] / scale
        squares[k, rows] = np.einsum("ij,ij->i", b @ m.covariances[k], b) * (n[k] - 1) / n[k] + deviation**2
        log_variances[k, rows] = np.log(law.noise_variance[rows])
    # the graph has no cycle, so that the determinant of B is that of its diagonal
    per_sample = -log_variances.sum(axis=1) - stretch - squares.sum(axis=1) - model.n_latents * np.log(2 * np.pi)
    return float(0.5 * n @ per_sample)
