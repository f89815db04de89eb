"""How many generalised eigenvalues of two covariances differ from one (MATH.md 3.6)."""

import numpy as np
from scipy import stats

from latentdag.core.linalg import Array


def eigenvalue_terms(eigenvalues: Array, n_0: float, n_k: float) -> Array:
    """Each generalised eigenvalue's share of twice the log-likelihood ratio against equality."""
    N = n_0 + n_k
    return np.asarray(N * np.log((n_0 + n_k * eigenvalues) / N) - n_k * np.log(eigenvalues))


def rank_p_value(eigenvalues: Array, n_0: float, n_k: float, rank: int) -> tuple[float, float, float]:
    """Gaussian likelihood-ratio test that at most ``rank`` eigenvalues differ from one.

    Returns
    -------
    statistic, degrees of freedom, p-value
    """
    q = max(len(eigenvalues) - rank, 0)
    statistic = float(np.sort(eigenvalue_terms(eigenvalues, n_0, n_k))[:q].sum())
    dof = q * (q + 1) / 2
    return statistic, dof, float(stats.chi2.sf(statistic, dof)) if q else 1.0
