"""Test how many directions differ between contexts (docs/math.md, section "Rank tests").

Let ``B`` (r, s) span the row spaces of all ``Θ_k − Θ_0``. Then X given ``BᵀX`` has one law in every context: the same
regression and the same residual covariance (and, with means, the same intercept). Profiling them out leaves

    ℓ(B) = N/2 log det(BᵀS̄B) − Σ_k n_k/2 log det(BᵀS_kB) + const,

with S̄ the covariance of all contexts together. This is the first and the last part of the likelihood of the whole model
(docs/math.md, section "The likelihood"), and in statistics a covariance-reducing model (Cook and Forzani). Twice its
distance from the saturated model is χ²: with ``q = r − s``, every context but one repeats ``q s`` regression
coefficients, q(q+1)/2 residual covariances (and q intercepts), and the ``q s`` angles of B were estimated. For two
contexts it is the rank test (:mod:`latentdag.core.ranks`).

As there, the mean of the statistic at known B follows from Wishart determinants, and its excess over the degrees of
freedom corrects for few samples.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from latentdag.core.linalg import Array, complement
from latentdag.core.ranks import bartlett_factor


@dataclass(frozen=True)
class Contexts:
    """Covariances in coordinates where that of all contexts together is the identity.

    Attributes
    ----------
    n : (K+1,) weights, that sum to N
    S : (K+1, r, r), divisor n
    free_means : bool
        Whether each context has a mean of its own (n is then the count less one), or differences between means count
        as changes (n is then the count).
    shifts : (K+1, r) means about the common one, or zeros
    """

    n: Array
    S: Array
    free_means: bool
    shifts: Array


@dataclass(frozen=True)
class ChangeTest:
    """The test that s directions hold every change.

    Attributes
    ----------
    B : (r, s) basis of the directions
    statistic : float
        Corrected for few samples.
    dof, p_value : float
    """

    B: Array
    statistic: float
    dof: float
    p_value: float


def change_directions(contexts: Contexts, s: int, smaller: Array | None = None) -> ChangeTest:
    """Test, by likelihood ratio, that at most s directions change.

    Parameters
    ----------
    contexts : Contexts
        In r coordinates.
    s : int
    smaller : (r, s − 1), optional
        The directions found for s − 1: a second start.

    Returns
    -------
    ChangeTest
    """
    n, S = contexts.n, contexts.S
    K, r = len(n) - 1, S.shape[1]
    q = r - s
    starts = [_strongest(contexts, np.zeros((r, 0)), s)]
    if smaller is not None:
        starts.append(_strongest(contexts, smaller, s))
    value, B = max((_climb(n, S, start) for start in starts), key=lambda found: found[0])
    if not q:
        return ChangeTest(B, 0.0, 0.0, 1.0)
    known = K * q * (s + (q + 1) / 2 + (not contexts.free_means))
    excess = bartlett_factor(n, q, known, estimated=s + (not contexts.free_means))
    statistic = max(float(-n @ np.linalg.slogdet(S)[1] - value) / excess, 0.0)
    dof = known - q * s
    return ChangeTest(B, statistic, dof, float(stats.chi2.sf(statistic, dof)))


def _strongest(contexts: Contexts, B: Array, s: int) -> Array:
    """Return B (r, t) and the directions that change most beside it, (r, s) together."""
    E = complement(B)
    D = E.T @ (contexts.S - np.eye(len(B))) @ E
    means = contexts.shifts @ E
    # a change δ of a variance is worth n δ²/4 nats, a shift n δ²/2
    score = np.einsum("k,kij,kjl->il", contexts.n, D, D) + 2 * np.einsum("k,ki,kj->ij", contexts.n, means, means)
    _, V = np.linalg.eigh(score)
    return np.hstack([B, E @ V[:, ::-1][:, : s - B.shape[1]]])


def _climb(n: Array, S: Array, B: Array) -> tuple[float, Array]:
    """Return twice ℓ at its maximum near B (r, s), and the maximiser with orthonormal columns."""
    shape = B.shape
    if not B.size:
        return 0.0, B
    N = float(n.sum())

    def objective(x: Array) -> tuple[float, Array]:
        B = x.reshape(shape)
        SB = S @ B
        inner = B.T @ SB
        value = N * np.linalg.slogdet(B.T @ B)[1] - n @ np.linalg.slogdet(inner)[1]
        slope = N * np.linalg.solve(B.T @ B, B.T).T - np.einsum("k,kij,kjl->il", n, SB, np.linalg.inv(inner))
        return -float(value) / N, -2 * slope.ravel() / N

    found = optimize.minimize(objective, B.ravel(), jac=True, method="L-BFGS-B", options={"ftol": 1e-13, "gtol": 1e-8})
    return -float(found.fun) * N, np.linalg.qr(found.x.reshape(shape))[0]
