"""How well a model explains moments: the Gaussian log-likelihood on the range of its features."""

import numpy as np

from latentdag.data.moments import Moments
from latentdag.model.model import LatentModel


def log_likelihood(model: LatentModel, m: Moments) -> float:
    """Gaussian log-likelihood of the samples behind ``m``, with respect to volume on the model's feature space.

    ``nan`` where the data have other dimensions than the model, which then gives them no density.
    """
    H = model.unmixing
    U = m.range
    outside = H - (H @ U) @ U.T
    if "do" in {change.kind for value in model.interventions.values() for change in value.changes.values()}:
        return float("nan")
    if U.shape[1] != model.n_latents or np.abs(outside).max() > 1e-6 * np.abs(H).max():
        return float("nan")
    # volume on the feature space: X = G Z stretches latent volume by sqrt(det GᵀG), and H undoes it where G = H†
    G, sign = (H.T, -2) if model.loadings is None else (model.loadings, 2)
    stretch = sign * np.log(np.abs(np.diagonal(np.linalg.qr(G, mode="r")))).sum()
    n, away = m.counts, m.means - model.offset
    control = model.law()
    B = control.structural @ H
    means, log_variances, total = np.square(away @ B.T), np.log(control.noise_variance), 0.0
    for k, context in enumerate(m.contexts):
        S, mean, within = m.covariances[k], away[k], (n[k] - 1) / n[k]
        # every noise as in the control, but for those that the context targets
        squares = np.einsum("ij,ij->i", B @ S, B) * within + means[k]
        log_variance = log_variances.copy()
        law = model.law(context)
        for i in () if law.intervention is None else map(model.latents.index, law.intervention.changes):
            variance = law.noise_variance[i]
            b = H[i] - law.weights[i] @ H
            squares[i] = (b @ S @ b * within + (b @ mean - law.shift[i]) ** 2) / variance
            log_variance[i] = np.log(variance)
        total += n[k] * (log_variance.sum() + squares.sum())
    # the graph has no cycle, so that the determinant of B is that of its diagonal
    return float(-0.5 * (total + n.sum() * (stretch + model.n_latents * np.log(2 * np.pi))))
