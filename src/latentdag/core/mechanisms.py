"""Is one latent's mechanism in one context that of the control? Three statistics and their law (MATH.md 3.7).

Apply the control's noise rows to a context: ``ε = M x`` with mean e and covariance A. If the context leaves latent i
alone, then whatever it does to the others, ε_i has the control's mean and variance one, and is uncorrelated with all
latents before i, in particular with what the parents contribute, ``y = A_i z = c ε``. A perfect or soft intervention on
i moves at least one of

    mean ε_i,    log Var ε_i,    Corr(ε_i, y):

cutting i off from its parents turns ε_i into new noise less y. For Gaussian samples the three are independent with
variances 1/n, 2/n and 1/n. They are computed with an estimate of M, which adds its own error: with gradient g of a
statistic in the parameters and C their covariance,

* in a context that was not in the fit, variances add: ``V + g C gᵀ``;
* in one that was, the fit has already followed the statistic: ``V − g C gᵀ``. This is the score test of a fit in which
  the context targets i too, without refitting.
"""

import numpy as np
from scipy import stats

from latentdag.core.covariance import Gradient
from latentdag.core.linalg import Array
from latentdag.core.quantities import Quantities

#: Share of a statistic's sampling variance that must be left for it to be tested.
LEFT = 1e-6


def statistics(of: Quantities, i: int, e: Array, A: Array) -> tuple[Array, Gradient]:
    """Mean, log variance and correlation with the parents' part (3,) of noise i, with gradients.

    Parameters
    ----------
    e : (d,) mean of ``M x`` in the context, features measured from the offset
    A : (d, d) covariance of ``M x``
    """
    point, d = of.point, of.point.d
    c = of.A[i] @ point.B_inv
    own, y = max(A[i, i], np.finfo(float).tiny), c @ A @ c
    size = np.sqrt(own * y) if y > 0 else np.inf
    T, X = np.zeros((3, d, d)), np.zeros((3, d, d))
    T[0, i], T[1, i], T[2, i] = e, 2 * A[i] / own, A @ c / size
    X[2] = np.outer(of.A[i], A[i]) / size
    nu = np.zeros((3, d))
    nu[0, i] = -1.0
    inner = point.pull(T, np.zeros((3, len(point.b), d)), nu) + point.pack(X)
    return np.array([e[i], np.log(own), (A @ c)[i] / size]), Gradient(inner)


def law_of_context(of: Quantities, k: int) -> tuple[Array, Array]:
    """Mean (d,) and covariance (d, d) of ``M x`` in context k under the model."""
    D_inv = of.point.B @ np.linalg.inv(of.point.structural(k))
    return of.point.delta[k], D_inv @ D_inv.T


def joint_test(values: Array, V: Array) -> tuple[float, int, float]:
    """χ² statistic, degrees of freedom and p-value of zero-mean values (m,) with covariance V (m, m).

    Directions that the fit has used up have no variance left and are left out.
    """
    if not len(values):
        return np.nan, 0, np.nan
    w, U = np.linalg.eigh(V)
    kept = w > LEFT * max(w[-1], 0.0)
    statistic = float(np.sum((U[:, kept].T @ values) ** 2 / w[kept]))
    dof = int(kept.sum())
    return statistic, dof, float(stats.chi2.sf(statistic, dof)) if dof else np.nan
