"""Evidence for an order, averaged over which of its edges exist.

The likelihood of a full order grows with every edge, whether it exists or not: an order that turns a true edge round
can explain noise with edges that are not there, and win by a nat. So each weight gets a prior: zero with probability
1 − π, else of a size that is not tiny, with the density ``β²/τ² · normal(0, τ²)`` that vanishes at zero (the moment
prior of Johnson and Rossell 2010), in units in which every noise has variance one. Wrong orders need small weights,
which a normal prior would take for likely ones. What counts as small depends on the model: τ is one of three sizes, the
same for all edges, and the evidence is averaged over them.

Near its maximum the likelihood is normal in a weight, with an estimate β, a standard error σ, and w = β²/2σ² nats to
lose without the edge. Integrated over the weights, taken one by one, it is multiplied for every edge by

    (1 − π) e^{−w} + π s^{−1/2} e^{−w/s} (μ²/τ² + 1/s),     s = 1 + τ²/σ²,   μ = β (1 − 1/s).

The constants were chosen for how probable they make the true order, on about 9,000 models of both conventions, dense
and sparse, with few and many samples, small and large weights. `benchmarks/evidence.py` tries them on others.

The standard errors are those of the full order with all rows of H adapting. That is one factorisation of a matrix with
about 3d²/2 rows; beyond a few tens of latents the errors of the two regressions of each latent stand in for it, in
which only its own row adapts.
"""

import numpy as np

from latentdag.core.edge_gains import weight_information
from latentdag.core.effort import ERRORS_OF_ALL_UP_TO
from latentdag.core.graphs import Rules, TwoRegressions, perfect_rows
from latentdag.core.likelihood import Design, evaluate
from latentdag.core.linalg import Array, BoolArray
from latentdag.core.optimize import Optimum, unit_rows
from latentdag.core.orders import Flag, full_parents

#: Probability π that an edge forward in the order exists.
EXISTS = 0.8

#: Sizes τ of the weights, and how probable each is. The most likely weight is 1.4 τ.
SIZES = {0.1: 0.2, 0.4: 0.6, 1.6: 0.2}


def order_evidence(design: Design, flag: Flag, rules: Rules) -> float:
    """Return the log evidence of a full order fitted to the end, up to a constant; −inf if it has no likelihood."""
    H = unit_rows(design, perfect_rows(design, flag.H, flag.order))
    at = evaluate(design, H, design.mechanisms(full_parents(flag.order)))
    if at is None:
        return -np.inf
    all_adapt = design.d <= ERRORS_OF_ALL_UP_TO
    of_weights = _all_rows_adapt if all_adapt else _one_row_adapts
    weights, precisions = of_weights(design, Optimum(H, at.value, at.rows, 0.0, True), flag)
    position = np.argsort(flag.order)
    open_edges = (position < position[:, None]) & ~rules.required
    averaged = _averaged(weights[open_edges], precisions[open_edges], rules.allowed[open_edges])
    return flag.value + averaged


def _all_rows_adapt(design: Design, optimum: Optimum, flag: Flag) -> tuple[Array, Array]:
    """Return the weights (d, d) between noises of variance one, and their precisions, from the whole information."""
    B = optimum.rows[: design.d]
    information = weight_information(design, optimum, full_parents(flag.order))
    return B / np.diagonal(B), information * np.diagonal(B) ** 2


def _one_row_adapts(design: Design, optimum: Optimum, flag: Flag) -> tuple[Array, Array]:
    """Return the same from the two regressions of each latent on its predecessors."""
    deviation = 1 / np.diagonal(optimum.rows[: design.d])
    regress = TwoRegressions(design, optimum.H, flag.order)
    weights, precisions = np.zeros((2, design.d, design.d))
    for t, i in enumerate(flag.order[1:], start=1):
        before = list(flag.order[:t])
        unit = deviation[before] / deviation[i]
        difference, covariance = regress.weights(t)
        weights[i, before] = difference * unit
        precisions[i, before] = 1 / (np.diagonal(covariance) * unit**2)
    return weights, precisions


def _averaged(beta: Array, precision: Array, allowed: BoolArray) -> float:
    """Return what averaging over edges and sizes of weights multiplies the likelihood by, in logarithms."""
    absent = np.log(1 - EXISTS) - 0.5 * beta**2 * precision
    present = [np.log(EXISTS) + np.where(allowed, _with_weight(beta, precision, size), -np.inf) for size in SIZES]
    by_size = np.logaddexp(absent, present).sum(axis=1) + np.log(list(SIZES.values()))
    return float(np.logaddexp.reduce(by_size))


def _with_weight(beta: Array, precision: Array, size: float) -> Array:
    """Return the logarithm of each edge's factor if it exists and its weight is of this size."""
    spread = 1 + size**2 * precision
    not_tiny = np.square(beta * (1 - 1 / spread) / size) + 1 / spread
    return np.asarray(-0.5 * np.log(spread) - 0.5 * beta**2 * precision / spread + np.log(not_tiny))
