"""Weigh a fitted graph: its evidence, and how probable each edge is given all the others (docs/math.md, Evidence).

The likelihood of a graph grows with every edge, whether it exists or not. So each weight gets a prior: zero with
probability 1 − π, else of a size that is not tiny, with the density ``β²/τ² · normal(0, τ²)`` that vanishes at zero
(the moment prior of Johnson and Rossell 2010), in units in which every noise has variance one. Wrong graphs need small
weights, which a normal prior would take for likely ones. How dense a graph is and what counts as a small weight depends
on the model: π is one of several densities and τ one of three sizes, the same for all edges, and the evidence is
averaged over them.

Near its maximum the likelihood is normal in a weight, with an estimate β and a standard error σ. Integrated over the
weight, with all else at its best, the likelihood of the graph is multiplied for every edge by

    s^{−1/2} e^{−β²/2σ²s} (μ²/τ² + 1/s),     s = 1 + τ²/σ²,   μ = β (1 − 1/s).

So the odds of an edge, given the rest of the graph, are π/(1 − π) times this times ``e^{β²/2σ²}``; for an absent edge β
is the weight that it would get. A user who names a price for edges gets it instead: the odds are then
``e^{gain − price}``.

The sizes were chosen for how probable they make the true order, on about 9,000 models of both conventions, with few and
many samples, small and large weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logit, logsumexp

from latentdag.core.edge_estimates import EdgeEstimates, edge_estimates
from latentdag.core.graphs import FittedGraph, Rules
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.orders import Order

#: Probabilities π that two latents share an edge, all equally probable: from sparse to dense.
DENSITIES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65)

#: Sizes τ of the weights, and how probable each is. The most likely weight is 1.4 τ.
SIZES = {0.1: 0.2, 0.4: 0.6, 1.6: 0.2}


Key = tuple[tuple[int, ...], ...]  #: The parents of every latent: two graphs are the same if their keys are.


@dataclass(frozen=True, eq=False)
class Weighed:
    """A fitted graph with its evidence.

    Attributes
    ----------
    graph : FittedGraph
    evidence : float
        Its logarithm, in nats, up to a constant common to all graphs of a design.
    present, possible : (d, d) bool
        Edges of the graph; absent edges that may be added, each of which closes no cycle. ``[i, j]`` stands for j → i.
    odds : (sizes, d, d)
        Log odds of each of those, given all the others and the size of the weights, at the density one half.
    shares : (sizes, densities)
        How probable each combination is, given the graph.
    gain : (d, d)
        Nats that each edge gains over the graph without it, as estimated without refits; part of the odds.
    """

    graph: FittedGraph
    evidence: float
    present: BoolArray
    possible: BoolArray
    odds: Array
    shares: Array
    gain: Array

    @cached_property
    def probability(self) -> Array:
        """Probability (d, d) of each edge, given all the others: it is there, it is not, or it points the other way."""
        density = logit(self.densities)
        # evidence of the graph without a present edge, or with an absent one, over its own
        without = logsumexp(-self.odds, b=(self.shares @ np.exp(-density))[:, None, None], axis=0)
        with_it = logsumexp(self.odds, b=(self.shares @ np.exp(density))[:, None, None], axis=0)
        with_it = np.where(self.possible, with_it, -np.inf)
        return np.asarray(expit(np.where(self.present, -without, with_it - np.logaddexp(0.0, with_it.T))))

    @property
    def densities(self) -> Array:
        """The densities that were considered."""
        return np.array(DENSITIES if self.shares.shape[1] > 1 else [0.5])

    @property
    def key(self) -> Key:
        return key(self.graph.parents)


def key(parents: Sequence[IntArray]) -> Key:
    """Return the parents of every latent in a form that can be compared."""
    return tuple(tuple(mine.tolist()) for mine in parents)


def weigh(design: Design, graph: FittedGraph, rules: Rules) -> Weighed:
    """Return the evidence of a fitted graph, and the odds of every edge in it and of every edge that may be added."""
    present, possible = _edges(graph, rules)
    estimates = edge_estimates(design, graph, possible)
    possible &= estimates.information > 0
    free = present & ~rules.required
    if rules.priced or any(design.soft):  # soft interventions give an edge a weight in each of their contexts
        odds, prior = estimates.gain[None] - rules.penalty, np.zeros((1, 1))
        prior -= rules.penalty * free.sum()
    else:
        slab = _integrated(design, graph, estimates)
        odds = slab + estimates.gain
        pairs = np.triu((rules.allowed | rules.allowed.T) & ~rules.required & ~rules.required.T, 1).sum()
        density = np.array(DENSITIES)
        prior = np.log(list(SIZES.values()))[:, None] - np.log(len(DENSITIES))
        prior = prior + free.sum() * np.log(density) + (pairs - free.sum()) * np.log1p(-density)
        prior = prior + np.where(free, slab, 0.0).sum(axis=(1, 2))[:, None]
    evidence = float(logsumexp(prior))
    odds = np.where(present & rules.required, np.inf, np.where(present | possible, odds, -np.inf))
    value, shares = graph.optimum.value + evidence, np.exp(prior - evidence)
    return Weighed(graph, value, present, possible, odds, shares, estimates.gain)


def _edges(graph: FittedGraph, rules: Rules) -> tuple[BoolArray, BoolArray]:
    """Return which edges are there, and which may be added without closing a cycle."""
    d = len(graph.parents)
    present = np.zeros((d, d), dtype=bool)
    for i, parents in enumerate(graph.parents):
        present[i, parents] = True
    ancestors = ancestors_of(present, graph.order)
    return present, rules.allowed & ~present & ~ancestors.T & ~np.eye(d, dtype=bool)


def ancestors_of(present: BoolArray, order: Order) -> BoolArray:
    """Return who is an ancestor of whom (d, d), ``[i, j]`` iff j is one of i, from the edges of a graph."""
    ancestors = np.zeros_like(present)
    for i in order:
        ancestors[i] = present[i] | ancestors[present[i]].any(axis=0)
    return ancestors


def _integrated(design: Design, graph: FittedGraph, estimates: EdgeEstimates) -> Array:
    """Return the logarithm (sizes, d, d) of what integrating over a weight multiplies the likelihood by."""
    deviation = 1 / np.diagonal(graph.optimum.rows[: design.d])
    units = deviation / deviation[:, None]  # noises of variance one
    beta, precision = estimates.weight * units, estimates.information / units**2
    size = np.array(list(SIZES))[:, None, None]
    spread = 1 + size**2 * precision
    not_tiny = np.square(beta * (1 - 1 / spread) / size) + 1 / spread
    return np.asarray(-0.5 * np.log(spread) - 0.5 * beta**2 * precision / spread + np.log(not_tiny))
