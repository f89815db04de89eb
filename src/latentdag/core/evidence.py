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
"""

import numpy as np

from latentdag.core.edge_gains import weight_information
from latentdag.core.graphs import Rules, perfect_rows
from latentdag.core.likelihood import Design, evaluate
from latentdag.core.linalg import Array
from latentdag.core.optimize import Optimum, unit_rows
from latentdag.core.orders import Flag, full_parents

#: Probability π that an edge forward in the order exists.
EXISTS = 0.8

#: Sizes τ of the weights, and how probable each is. The most likely weight is 1.4 τ.
SIZES = {0.1: 0.2, 0.4: 0.6, 1.6: 0.2}


def order_evidence(design: Design, flag: Flag, rules: Rules) -> float:
    """Log evidence of a full order fitted to the end, up to a constant; −inf where it has no likelihood."""
    d, parents = design.d, full_parents(flag.order)
    H = unit_rows(design, perfect_rows(design, flag.H, flag.order))
    at = evaluate(design, H, design.mechanisms(parents))
    if at is None:
        return -np.inf
    optimum = Optimum(H, at.value, at.rows, 0.0, True)
    B = at.rows[:d]
    weights, information = B / np.diagonal(B), weight_information(design, optimum, parents) * np.diagonal(B) ** 2
    open_edges = [(i, int(j)) for i, mine in enumerate(parents) for j in mine if not rules.required[i, j]]
    at_edges = tuple(np.array(open_edges, dtype=np.intp).reshape(-1, 2).T)
    beta, precision, allowed = weights[at_edges], information[at_edges], rules.allowed[at_edges]
    absent = np.log(1 - EXISTS) - 0.5 * beta**2 * precision
    present = [np.log(EXISTS) + np.where(allowed, _with_weight(beta, precision, size), -np.inf) for size in SIZES]
    averaged = np.logaddexp(absent, present).sum(axis=1) + np.log(list(SIZES.values()))
    return flag.value + float(np.logaddexp.reduce(averaged))


def _with_weight(beta: Array, precision: Array, size: float) -> Array:
    """What each edge multiplies the likelihood by, in logarithms, if it exists and its weight is of this size."""
    spread = 1 + size**2 * precision
    not_tiny = np.square(beta * (1 - 1 / spread) / size) + 1 / spread
    return np.asarray(-0.5 * np.log(spread) - 0.5 * beta**2 * precision / spread + np.log(not_tiny))
