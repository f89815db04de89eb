"""Classical decompositions of the pooled samples, for comparison: PCA, factor analysis and independent components."""

import warnings
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import PCA, FactorAnalysis, FastICA

NAMES = ("PCA", "FactorAnalysis", "FastICA")


def decompose(X: np.ndarray, n_components: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the linear map of each method, (n_components, p): components are this times the centred samples.

    The methods see all samples of all contexts, but not which context a sample is from.
    """
    methods: dict[str, Any] = {
        "PCA": PCA(n_components),
        "FactorAnalysis": FactorAnalysis(n_components, max_iter=200),
        "FastICA": FastICA(n_components, whiten="unit-variance", max_iter=200, random_state=seed),
    }
    maps = {}
    for name, method in methods.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # iterations that ran out: what was reached is the answer
            method.fit(X)
        p = X.shape[1]
        maps[name] = (method.transform(np.eye(p)) - method.transform(np.zeros((1, p)))).T
    return maps


def best_match(likeness: np.ndarray) -> np.ndarray:
    """Match rows to columns one to one so that the sum of likeness is largest; returns each row's column.

    Examples
    --------
    >>> best_match(np.array([[0.9, 0.8], [0.9, 0.1]])).tolist()
    [1, 0]
    """
    return np.asarray(linear_sum_assignment(-likeness)[1])
