"""p-values of many tests at once.

Among a hundred true hypotheses about five have a p-value below .05. Two adjustments take that into account. Holm's
controls the family-wise error rate: the probability of rejecting any true hypothesis at all. Benjamini and Hochberg's
controls the false-discovery rate: the expected share of true hypotheses among the rejected ones. An adjusted p-value
is compared with alpha as a single p-value would be.

A test that could not be made has the p-value ``nan``. It keeps it, and counts as no test.
"""

import numpy as np
from scipy import stats

from latentdag.core.linalg import Array


def holm(p: Array) -> Array:
    """Return Holm's adjusted p-values.

    Parameters
    ----------
    p : (n,) p-values, ``nan`` where there is no test

    Returns
    -------
    (n,) adjusted p-values
        Rejecting where they are at most alpha rejects any true hypothesis with probability at most alpha.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, np.nan, 0.03])).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    order = np.argsort(p, kind="stable")[: np.count_nonzero(~np.isnan(p))]  # nan is sorted to the end
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(p: Array, n_tests: int | None = None) -> Array:
    """Return Benjamini and Hochberg's q-values.

    Parameters
    ----------
    p : (n,) p-values, ``nan`` where there is no test
    n_tests : int, optional
        Size of the family of tests, if it is larger than the number of p-values: the others count as p = 1. Edges are
        tested like this, since the search has dropped those with the largest p-values.

    Returns
    -------
    (n,) q-values
        Rejecting where they are at most alpha makes the expected share of false rejections at most alpha.

    Examples
    --------
    >>> p = np.array([0.01, 0.04, np.nan, 0.03])
    >>> benjamini_hochberg(p).tolist()
    [0.03, 0.04, nan, 0.04]
    >>> benjamini_hochberg(p, n_tests=6).tolist()
    [0.06, 0.08, nan, 0.08]
    """
    known = ~np.isnan(p)
    n = int(known.sum())
    dropped = np.ones(max((n_tests or 0) - n, 0))
    q = np.full(len(p), np.nan)
    q[known] = stats.false_discovery_control(np.append(p[known], dropped))[:n]
    return q
