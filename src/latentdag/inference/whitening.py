"""Coordinates in which the tests work: the range of the data, with the pooled covariance the identity.

Whitening by the pooled covariance works whatever the units of the features and however few samples one context has.
(The exact algorithms whiten by the control's covariance instead: :mod:`latentdag.core.exact`.)
"""

from dataclasses import dataclass

import numpy as np

from latentdag.core.linalg import is_definite, range_axes, symmetrize, upper_factor
from latentdag.data import labels as lb
from latentdag.data.moments import Moments


@dataclass(frozen=True)
class PooledWhite:
    """Moments in r coordinates in which the pooled covariance is the identity.

    Attributes
    ----------
    W : (r, p)
        Coordinates are ``W x``.
    S : (K+1, r, r) covariances about each context's own mean
    means : (K+1, r)
    nu : (K+1,) degrees of freedom of each covariance, its count less one for its mean
    definite : (K+1,) whether each covariance has an inverse
    """

    W: np.ndarray
    S: np.ndarray
    means: np.ndarray
    nu: np.ndarray
    definite: np.ndarray

    @property
    def r(self) -> int:
        """Number of dimensions of the data."""
        return self.S.shape[1]

    def too_few(self, k: int) -> str:
        """Return why context k has too few samples for a test; empty if it has enough."""
        if self.nu[k] >= self.r:
            return ""
        return f"{_who(k)} has {int(self.nu[k]) + 1} samples in {self.r} dimensions; at least {self.r + 1} are needed"

    def no_inverse(self, k: int) -> str:
        """Return why the covariance of context k has no inverse; empty if it has one."""
        if self.definite[k] or self.too_few(k):
            return self.too_few(k)
        return f"{_who(k)} has a singular covariance: a mixture of features that varies elsewhere is constant there"


def _who(k: int) -> str:
    return "the control" if k == 0 else "the context"


def pooled_white(m: Moments) -> PooledWhite:
    """Reduce moments to the range of the pooled covariance, and make that covariance the identity."""
    axes = range_axes(m.pooled_covariance())
    S = axes @ m.covariances @ axes.T
    if len(axes) < m.n_contexts and m.fine is not None:
        axes, S = m.fine.varying(m.counts)
    pooled = symmetrize(np.tensordot(m.counts / m.counts.sum(), S, axes=1))
    with lb.naming_contexts(m.contexts):
        F = upper_factor(pooled, context=0)
    F_inv = np.linalg.inv(F)
    W, white = F_inv.T @ axes, symmetrize(F_inv.T @ S @ F_inv)
    definite = np.array([is_definite(s) and is_definite(w) for s, w in zip(S, white, strict=True)])
    return PooledWhite(W, white, m.means @ W.T, m.counts - 1.0, definite)
