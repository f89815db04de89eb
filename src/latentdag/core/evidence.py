"""Evidence for an order, averaged over which of its edges exist (docs/math.md, Evidence for an order).

The likelihood of a full order grows with every edge, whether it exists or not: an order that turns a true edge round
can explain noise with edges that are not there, and win by a nat. So each weight gets a prior: zero with probability
1 − π, else of a size that is not tiny, with the density ``β²/τ² · normal(0, τ²)`` that vanishes at zero (the moment
prior of Johnson and Rossell 2010), in units in which every noise has variance one. Wrong orders need small weights,
which a normal prior would take for likely ones. How dense a graph is and what counts as a small weight depends on the
model: π is one of three densities and τ one of three sizes, the same for all edges, and the evidence is averaged over
them.

Near its maximum the likelihood is normal in a weight, with an estimate β, a standard error σ, and w = β²/2σ² nats to
lose without the edge. Integrated over the weights, taken one by one, it is multiplied for every edge by

    (1 − π) e^{−w} + π s^{−1/2} e^{−w/s} (μ²/τ² + 1/s),     s = 1 + τ²/σ²,   μ = β (1 − 1/s).

The sizes were chosen for how probable they make the true order, on about 9,000 models of both conventions, with few and
many samples, small and large weights. `benchmarks/evidence.py` tries them on others.
"""

from itertools import product

import numpy as np

from latentdag.core.edge_gains import weight_information
from latentdag.core.graphs import Rules, perfect_rows
from latentdag.core.likelihood import Design, evaluate
from latentdag.core.linalg import Array, BoolArray
from latentdag.core.optimize import Optimum, unit_rows
from latentdag.core.orders import Flag, full_parents

#: Probabilities π that an edge forward in the order exists, all equally probable: sparse, even, dense.
DENSITIES = (0.2, 0.5, 0.8)

#: Sizes τ of the weights, and how probable each is. The most likely weight is 1.4 τ.
SIZES = {0.1: 0.2, 0.4: 0.6, 1.6: 0.2}


def order_evidence(design: Design, flag: Flag, rules: Rules) -> float:
    """Return the log evidence of a full order fitted to the end, up to a constant; −inf if it has no likelihood."""
    d, parents = design.d, full_parents(flag.order)
    H = unit_rows(design, perfect_rows(design, flag.H, flag.order))
    at = evaluate(design, H, design.mechanisms(parents))
    if at is None:
        return -np.inf
    B = at.rows[:d]
    weights = B / np.diagonal(B)
    information = weight_information(design, Optimum(H, at.value, at.rows, 0.0, True), parents) * np.diagonal(B) ** 2
    position = np.argsort(flag.order)
    open_edges = (position < position[:, None]) & ~rules.required
    return flag.value + _averaged(weights[open_edges], information[open_edges], rules.allowed[open_edges])


def _averaged(beta: Array, precision: Array, allowed: BoolArray) -> float:
    """Return the logarithm of what averaging over edges and their weights multiplies the likelihood by."""
    lost, total = -0.5 * beta**2 * precision, []
    for (size, probability), density in product(SIZES.items(), DENSITIES):
        kept = np.where(allowed, _with_weight(beta, precision, size), -np.inf)
        edges = np.logaddexp(np.log(1 - density) + lost, np.log(density) + kept)
        total.append(np.log(probability / len(DENSITIES)) + edges.sum())
    return float(np.logaddexp.reduce(total))


def _with_weight(beta: Array, precision: Array, size: float) -> Array:
    """Return the logarithm of each edge's factor if it exists and its weight is of this size."""
    spread = 1 + size**2 * precision
    not_tiny = np.square(beta * (1 - 1 / spread) / size) + 1 / spread
    return np.asarray(-0.5 * np.log(spread) - 0.5 * beta**2 * precision / spread + np.log(not_tiny))
