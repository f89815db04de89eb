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
    # volume on the feature space: X = G Z stretches latent volume by sqrt(det GᵀG), and H undoes it where G = H†
    G, sign = (H.T, -2) if model.loadings is None else (model.loadings, 2)
    stretch = sign * np.log(np.abs(np.diagonal(np.linalg.qr(G, mode="r")))).sum()
    n, away = m.counts, m.means - model.offset
    # squared noises and log variances of every context as if it were the control, then what its targets change of them
    control = model.law()
    B = control.structural @ H
    squares = np.tensordot(m.covariances, B.T @ B, axes=2) * (n - 1) / n + np.square(away @ B.T).sum(axis=1)
    log_variance = np.full(len(n), np.log(control.noise_variance).sum())
    for k, context in enumerate(m.contexts):
        law = model.law(context)
        for i in () if law.intervention is None else map(model.latents.index, law.intervention.changes):
            deviation, S, mean = float(np.sqrt(law.noise_variance[i])), m.covariances[k], away[k]
            b, b_0 = (H[i] - law.weights[i] @ H) / deviation, B[i]
            squares[k] += (b @ S @ b - b_0 @ S @ b_0) * (n[k] - 1) / n[k]
            squares[k] += (b @ mean - law.shift[i] / deviation) ** 2 - (b_0 @ mean) ** 2
            log_variance[k] += 2 * np.log(deviation) - np.log(control.noise_variance[i])
    # the graph has no cycle, so that the determinant of B is that of its diagonal
    return float(-0.5 * n @ (log_variance + stretch + squares + model.n_latents * np.log(2 * np.pi)))
