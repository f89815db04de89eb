"""Means and covariances of float64 numbers without any rounding: every number is a whole multiple of a power of two."""

from fractions import Fraction

import numpy as np


def as_integers(X: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Python integers (n, p) and exponents (p,) with ``X = integers · 2**exponents``."""
    mantissa, exponent = np.frexp(X)
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    exponent = np.where(X == 0, 10_000, exponent)
    least = [int(e) if e < 5000 else 0 for e in exponent.min(axis=0, initial=10_000)]
    for j, low in enumerate(least):
        shift = np.where(X[:, j] == 0, 0, exponent[:, j] - low)
        whole[:, j] = [int(v) << int(s) for v, s in zip(whole[:, j], shift, strict=True)]
    return whole, [low - 53 for low in least]


def exact_moments(X: np.ndarray) -> tuple[list[Fraction], np.ndarray]:
    """Mean (p,) and scatter (p, p) of rows X (n, p), as fractions."""
    whole, exponent = as_integers(X)
    n, total = len(X), whole.sum(axis=0)
    unit = [Fraction(2) ** e for e in exponent]
    mean = [Fraction(int(t), n) * u for t, u in zip(total, unit, strict=True)]
    gram = n * (whole.T @ whole) - np.multiply.outer(total, total)
    p = X.shape[1]
    scatter = np.array([[Fraction(int(gram[i, j]), n) * unit[i] * unit[j] for j in range(p)] for i in range(p)], object)
    return mean, scatter.reshape(p, p)


def exact_residuals(means, scatters, counts, c):
    """The same of every context, the last c columns regressed out within contexts; None where they are collinear."""
    means, p = np.array(means, dtype=object), len(means[0]) - c
    W = sum(scatters)
    varies = [j for j in range(p, p + c) if W[j, j] > 0]
    scale = np.array([float(W[j, j]) ** 0.5 for j in varies])
    correlation = np.array([[float(W[i, j]) for j in varies] for i in varies])
    if len(varies) and np.linalg.cond(correlation / np.outer(scale, scale)) > 1e6:
        return None
    beta = np.array([[Fraction(0)] * p] * c, dtype=object)
    beta[[j - p for j in varies]] = _solved(W[np.ix_(varies, varies)], W[np.ix_(varies, range(p))])
    center = sum(int(n) * m[p:] for n, m in zip(counts, means, strict=True)) / Fraction(int(sum(counts)))
    T = np.vstack([np.array([[Fraction(int(i == j)) for j in range(p)] for i in range(p)], dtype=object), -beta])
    return [m[:p] - (m[p:] - center) @ beta for m in means], [T.T @ S @ T for S in scatters]


def _solved(A, B):
    """``A⁻¹ B`` by Gaussian elimination."""
    M = np.hstack([A, B])
    for i in range(len(A)):
        M[i] = M[i] / M[i, i]
        for other in range(len(A)):
            if other != i:
                M[other] = M[other] - M[other, i] * M[i]
    return M[:, len(A) :]


def as_float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def root(x: Fraction) -> float:
    """Square root of a number of any size."""
    if x == 0:
        return 0.0
    shift = (x.numerator.bit_length() - x.denominator.bit_length()) // 2
    try:
        return float(np.ldexp(float(x / Fraction(4) ** shift) ** 0.5, shift))
    except OverflowError:
        return float("inf")
