"""Moments in the coordinates in which the tests work: the range of the data, pooled covariance one.

Whitening by the pooled covariance works whatever the units of the features and however few samples one context has.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from latentdag import labels as lb
from latentdag.core.linalg import range_basis, symmetrize, upper_factor
from latentdag.moments import Moments


@dataclass(frozen=True)
class Whitened:
    """Moments in r coordinates.

    Attributes
    ----------
    W : (r, p)
        Coordinates are ``W x``.
    S : (K+1, r, r) covariances about each context's own mean
    means : (K+1, r)
    nu : (K+1,) degrees of freedom of each covariance, its count less one for its mean
    contexts : labels
    """

    W: np.ndarray
    S: np.ndarray
    means: np.ndarray
    nu: np.ndarray
    contexts: tuple[Hashable, ...]

    @property
    def r(self) -> int:
        return self.S.shape[1]

    def too_few(self, k: int) -> str:
        """Why a context has no test, or nothing."""
        if self.nu[k] >= self.r:
            return ""
        count, who = int(self.nu[k]) + 1, "the control" if k == 0 else "the context"
        return f"{who} has {count} samples in {self.r} dimensions; at least {self.r + 1} are needed"


def whiten(m: Moments) -> Whitened:
    """Reduce to the range of the pooled covariance and make that the identity."""
    pooled = m.pooled_covariance()
    U = range_basis(pooled)
    with lb.naming_contexts(m.contexts):
        F = upper_factor(symmetrize(U.T @ pooled @ U), context=0)
    W = np.linalg.solve(F.T, U.T)
    return Whitened(W, symmetrize(W @ m.covariances @ W.T), m.means @ W.T, m.counts - 1.0, m.contexts)
