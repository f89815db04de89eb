"""Evidence for an order, averaged over which of its edges exist.

The likelihood of a full order grows with every edge, whether it exists or not: an order that turns a true edge round
can explain noise with edges that are not there, and win by a nat. So each weight gets a prior: zero with probability
1 − π, else normal with standard deviation τ, in units in which every noise has variance one. Near its maximum the
likelihood is normal in a weight, with an estimate β, a standard error σ, and w = β²/2σ² nats to lose without the edge.
Integrated over the weights, taken one by one, it is multiplied for every edge by

    (1 − π) e^{−w} + π (1 + τ²/σ²)^{−1/2} e^{−w / (1 + τ²/σ²)}.

The answer changes little with π from .9 to .98 and τ from one to two, and is right more often than the likeliest order
for models of either convention, dense and sparse: `benchmarks/evidence.py`.
"""

import numpy as np

from latentdag.core.flags import Flag, full_parents
from latentdag.core.graphs import Rules, perfect_rows
from latentdag.core.likelihood import Design, evaluate
from latentdag.core.optimize import Optimum, unit_rows
from latentdag.core.worth import edge_worth

#: Probability that an edge forward in the order exists, and the size of its weight if it does.
PROBABILITY, WEIGHT = 0.95, 1.0


def order_evidence(design: Design, flag: Flag, rules: Rules) -> float:
    """Log evidence of a full order fitted to the end, up to a constant; −inf where it has no likelihood."""
    d, parents = design.d, full_parents(flag.order)
    H = unit_rows(design, perfect_rows(design, flag.H, flag.order))
    at = evaluate(design, H, design.mechanisms(parents))
    if at is None:
        return -np.inf
    optimum = Optimum(H, at.value, at.rows, 0.0, True)
    worth = edge_worth(design, optimum, parents, np.zeros((d, d), dtype=bool))
    B = at.rows[:d]
    weight = np.abs(B / np.diagonal(B))
    total = flag.value
    for i, mine in enumerate(parents):
        j = mine[~rules.required[i, mine]]
        w = np.maximum(worth[i, j], np.finfo(float).tiny)
        information = 2 * w / np.maximum(weight[i, j], np.finfo(float).tiny) ** 2
        spread = 1 + WEIGHT**2 * information
        exists = np.log(PROBABILITY) - 0.5 * np.log(spread) - w / spread
        total += float(np.logaddexp(np.log(1 - PROBABILITY) - w, np.where(rules.allowed[i, j], exists, -np.inf)).sum())
    return total
