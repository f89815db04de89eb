"""Find the graphs that the data leave open, and how probable edges and orders are (docs/math.md, Probabilities).

A search that returns one graph says nothing about those that are nearly as good. Here the graphs near the best are
collected and weighed (:mod:`latentdag.core.evidence`):

1. *Enter.* Every order that the search fitted and that came near the best is a seed. Its graph is pruned, refitted and
   weighed; then single edges are added and dropped while the evidence grows.
2. *Kick.* Where there are too many latents to refit every move, the best graph is kicked out of its maximum: latents
   walk past each other, and the rows of two are turned in their plane. A climb of sparse graphs can end tens of nats
   short, and most wrong maxima mix two rows. Of many latents a random pair is hardly ever the one: there the planes are
   those in which the likelihood without an order has another maximum. Kicks of a full order do not help: its noise is
   larger than the gap.
3. *Turn.* From the most probable graph that was not turned yet, turn single edges round: whoever walks past a neighbour
   adapts its rows, prunes and refits, which can change many edges at once. Each is entered as above.

The probability of an edge is its probability *given the rest of the graph*, averaged over all graphs collected, each
with its evidence: one step of a Gibbs sampler from every one of them. So edges that come and go independently of each
other need not be tried in all combinations, and only what turns an order round must be found. What an edge is worth is
seen by a refit without it: estimated from the curvature at the maximum it is too much with few samples.

Relations (who comes before whom) follow from graphs drawn in the same way. They are ranked by how often they hold, and
each is given the share of draws in which it holds *together with all before it*.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from latentdag.core.edge_estimates import all_adapt
from latentdag.core.effort import (
    DRAWN_NUMBERS,
    DRAWS,
    FEWEST_GRAPHS,
    GAIN_OF_A_MOVE,
    GAIN_OF_EDGES,
    GAIN_OF_SEEDS,
    GRAPHS,
    GRAPHS_BY_SIZE,
    LOSE_AT_MOST,
    NEAR,
    REFIT_WITHIN,
    SURE,
    TRY_IF_ONE_ADAPTS,
    TURN_WITHIN,
)
from latentdag.core.evidence import Key, Weighed, key, weigh
from latentdag.core.graphs import FittedGraph, Rules, fit_graph, fit_pruned, perfect_rows, prune, reversals
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.order_free import turned_rows
from latentdag.core.orders import Order, Stack

#: Turn the rows of two latents in their plane: exchange them, or go half of the way.
EXCHANGE, HALFWAY = np.array([[0, 1], [1, 0]]), np.array([[1, 1], [-1, 1]])

#: A relation j before i, and the probability that it holds together with all that are listed before it.
Relation = tuple[int, int, float]


@dataclass(frozen=True, eq=False)
class Posterior:
    """The graphs that were weighed, the most probable first; ``explored`` is False if some were left unturned."""

    weighed: tuple[Weighed, ...]
    explored: bool

    @property
    def best(self) -> Weighed:
        return self.weighed[0]

    @cached_property
    def shares(self) -> Array:
        """How probable each graph is among all that were weighed."""
        weights = np.exp([one.evidence - self.best.evidence for one in self.weighed])
        return np.asarray(weights / weights.sum())

    @cached_property
    def edges(self) -> Array:
        """The probability (d, d) of the edge j → i at ``[i, j]``.

        Where the search was cut off, graphs that differ more from the best are those that are missing. So an edge is
        no surer there than by the best graph with it against the best without it.
        """
        averaged = sum(
            (share * one.probability for share, one in zip(self.shares, self.weighed, strict=True)),
            np.zeros(self.best.present.shape),
        )
        without = np.max([np.where(one.present, -np.inf, one.evidence) for one in self.weighed], axis=0)
        return averaged if self.explored else np.minimum(averaged, expit(self.best.evidence - without))

    @cached_property
    def relations(self) -> list[Relation]:
        """Who comes before whom, in the order of their probability, while all together are more likely than not."""
        drawn, weights = self._draws()
        before = np.concatenate(drawn, axis=-1).reshape(-1, sum(map(len, weights)))
        weight = np.concatenate(weights)
        marginal = sum(w[0] * np.count_nonzero(each, axis=-1) for each, w in zip(drawn, weights, strict=True)).ravel()
        holds, found, d = np.ones(len(weight), dtype=bool), [], len(self.best.present)
        for at in np.argsort(-marginal, kind="stable"):
            holds &= before[at]
            joint = float(weight[holds].sum())
            if joint < 0.5:
                break
            found.append((int(at % d), int(at // d), joint))
        return found

    def _draws(self) -> tuple[list[BoolArray], list[Array]]:
        """Draw graphs; return of each that was weighed who is an ancestor of whom (d, d, m), and the weights (m,)."""
        d, rng = len(self.best.present), np.random.default_rng(0)
        most = min(DRAWS, max(1, DRAWN_NUMBERS // d**2))
        kept = [(share, one) for share, one in zip(self.shares, self.weighed, strict=True) if share * most > 0.5]
        total = sum(share for share, _ in kept)
        numbers = [int(np.ceil(share * most)) for share, _ in kept]
        drawn = [_draw_ancestors(one, m, rng) for m, (_, one) in zip(numbers, kept, strict=True)]
        return drawn, [np.full(m, share / m / total) for m, (share, _) in zip(numbers, kept, strict=True)]

    def runner_up(self) -> tuple[Order, float] | None:
        """Return the most probable order that turns an edge of the best graph round, and its gap in nats."""
        for one in self.weighed[1:]:
            position = np.argsort(one.graph.order)
            if any(position[j] > position[i] for i, parents in enumerate(self.best.graph.parents) for j in parents):
                return one.graph.order, self.best.evidence - one.evidence
        return None


def _draw_ancestors(one: Weighed, m: int, rng: np.random.Generator) -> BoolArray:
    """Draw m graphs in which each edge forward in the order comes and goes by itself; return ancestors (d, d, m)."""
    order, d = one.graph.order, len(one.present)
    position = np.argsort(order)
    forward = (position < position[:, None]) & (one.present | one.possible)
    prior = rng.choice(one.shares.size, m, p=one.shares.ravel() / one.shares.sum())
    odds = one.odds[:, None] + logit(one.densities)[:, None, None]
    odds = odds.reshape(-1, d, d)
    ancestors = np.zeros((d, d, -(-m // 8)), dtype=np.uint8)  # eight graphs a byte
    for i in order:
        parents = np.flatnonzero(forward[i])
        drawn = np.packbits(rng.random((m, len(parents))) < expit(odds[:, i, parents])[prior], axis=0).T
        for j, mine in zip(parents, drawn, strict=True):
            ancestors[i] |= ancestors[j] & mine
            ancestors[i, j] |= mine
    return np.unpackbits(ancestors, axis=-1, count=m).view(bool)


class Explorer:
    """Collect graphs near the best."""

    def __init__(self, design: Design, rules: Rules):
        self.design, self.rules, self.stack = design, rules, Stack(design)
        self.known: dict[Key, Weighed] = {}
        self.orders: dict[Order, Weighed | None] = {}
        self.turned: set[Key] = set()
        self.most = max(FEWEST_GRAPHS, min(GRAPHS, GRAPHS_BY_SIZE // design.d))

    @property
    def best(self) -> Weighed:
        return max(self.known.values(), key=lambda one: one.evidence)

    @property
    def is_full(self) -> bool:
        return len(self.known) >= self.most

    def enter_order(self, H: Array, order: Order) -> Weighed | None:
        """Prune and refit the graph of an order from rows H, and enter it unless it is far behind."""
        if order not in self.orders:
            self.orders[order] = self._enter_rows(H, order)
        return self.orders[order]

    def _enter_rows(self, H: Array, order: Order) -> Weighed | None:
        rows, far = perfect_rows(self.design, H, order), self.best.graph.score - NEAR if self.known else -np.inf
        parents = prune(self.design, rows, order, self.rules, far)
        known = None if parents is None else self.known.get(key(parents))
        if parents is not None and known is None:
            graph = fit_pruned(self.design, rows, order, self.rules, rounds=2, gain_tol=GAIN_OF_SEEDS, at_least=far)
            known = None if graph is None else self.enter(graph)
        return known

    def enter(self, graph: FittedGraph) -> Weighed | None:
        """Weigh a graph; then add and drop single edges while its evidence grows."""
        one = self._weigh(graph)
        return self.climb(one) if one is not None and all_adapt(self.design) else one

    def _weigh(self, graph: FittedGraph) -> Weighed | None:
        name = key(graph.parents)
        if name not in self.known:
            if not graph.optimum.gain <= GAIN_OF_EDGES:
                polished = fit_graph(
                    self.design, graph.optimum.H, graph.parents, graph.order, self.rules, gain_tol=GAIN_OF_EDGES
                )
                if polished is None:
                    return None
                graph = polished
            self.known[name] = weigh(self.design, graph, self.rules)
        return self.known[name]

    def climb(self, one: Weighed, barred: tuple[int, int] | None = None) -> Weighed:
        """Add or drop single edges but the barred one, each judged after a refit, while the evidence grows.

        An edge may be added against the order if that closes no cycle; the order then follows.
        """
        sure, changed, tried, first = all_adapt(self.design), True, set[tuple[int, int]](), one
        while changed or (one is not first and not sure):
            if not changed:  # once more, now that the other edges are better
                tried, first = set(), one
            changed = False
            for i, j in self._borderline(one):
                if (i, j) == barred or ((i, j) in tried and not sure):  # there are too many to try them at once again
                    continue
                tried.add((i, j))
                toggled = self._toggle(one, i, j)
                if toggled is not None and toggled.evidence > one.evidence + GAIN_OF_A_MOVE:
                    one, changed = toggled, True
                    if not sure:  # what the others are worth has changed too much
                        break
        return one

    def _borderline(self, one: Weighed) -> list[tuple[int, int]]:
        """Return the pairs (child, parent) whose edge may be better dropped or added, most promising first."""
        drop, add = (0.0, 0.0) if all_adapt(self.design) else TRY_IF_ONE_ADAPTS
        odds = logit(one.probability)
        loss = np.where(one.present, odds - drop * self.rules.penalty, -odds - add * self.rules.penalty)
        near = (loss < 0) & (one.present | one.possible) & ~self.rules.required
        return [(int(i), int(j)) for _, i, j in sorted((loss[i, j], i, j) for i, j in np.argwhere(near))]

    def _toggle(self, one: Weighed, i: int, j: int) -> Weighed | None:
        """Return the graph with the edge j → i added, or dropped if it is there; None if it is far behind."""
        toggled = self._fit_toggled(one, i, j, at_least=one.graph.score - NEAR)
        return None if toggled is None else self._weigh(toggled)

    def _fit_toggled(self, one: Weighed, i: int, j: int, at_least: float = -np.inf) -> FittedGraph | None:
        graph, parents = one.graph, list(one.graph.parents)
        parents[i] = np.setxor1d(parents[i], [j]).astype(np.intp)
        order = graph.order if one.present[i, j] else order_with_edge(graph.order, graph.parents, i, j)
        if order is None:
            return None
        if key(parents) in self.known:
            return self.known[key(parents)].graph
        return fit_graph(self.design, graph.optimum.H, parents, order, self.rules, GAIN_OF_EDGES, at_least)

    def kick(self, most: int) -> None:
        """Leave the maximum of the best graph: walk latents past each other, and turn the rows of two in their plane.

        At most so many of either, the walks that promise most and pairs at random; and every plane in which the
        likelihood without an order has another maximum.
        """
        rng, pairs = np.random.default_rng(0), np.argwhere(np.tri(self.design.d, k=-1))
        for turned in (EXCHANGE, HALFWAY) if most else ():
            for H, order in reversals(self.stack, self.best.graph, self.rules, self.orders, most, every=True):
                self.enter_order(H, order)
            graph, noises = self._noises()
            for pair in rng.permutation(pairs)[:most]:
                H = graph.optimum.H.copy()
                H[pair] = turned @ noises[pair]
                self._enter_rows(H, graph.order)
        left: Weighed | None = None
        while left is not self.best:
            left, (graph, noises) = self.best, self._noises()
            for rows in turned_rows(self.design, noises, LOSE_AT_MOST):
                self._enter_rows(rows, graph.order)
                if self.best is not left:
                    break

    def _noises(self) -> tuple[FittedGraph, Array]:
        """Return the best graph, and the noise rows (d, r) of its latents where they are left alone."""
        graph = self.best.graph
        return graph, graph.optimum.rows[: self.design.d] @ graph.optimum.H

    def turn(self) -> bool:
        """Turn edges of the most probable graphs round until no near one is left; False if there were too many."""
        while not self.is_full:
            near = [one for one in self.known.values() if one.evidence > self.best.evidence - TURN_WITHIN]
            left = [one for one in near if one.key not in self.turned]
            if not left:
                return True
            one = max(left, key=lambda one: one.evidence)
            self.turned.add(one.key)
            for H, order in reversals(self.stack, one.graph, self.rules, self.orders, self.most, LOSE_AT_MOST):
                if self.is_full:
                    break
                self.enter_order(H, order)
        return False

    def doubt(self) -> None:
        """Look for the best graph without each edge of the best graph."""
        one = self.best
        for i, j in np.argwhere(one.present & ~self.rules.required & (one.gain < SURE)):
            without = self._toggle(one, i, j)
            if without is not None:
                self.climb(without, barred=(int(i), int(j)))

    def posterior(self, explored: bool) -> Posterior:
        """Return all graphs that were weighed."""
        return _ranked(self.known.values(), explored)

    def explored(self) -> Posterior:
        """Look for the graphs that the data leave open, and return all with edges as sure as refits without them say.

        Every doubtful edge is refitted once, in the most probable graph that has it. In others it gains the same share
        of what was estimated there.
        """
        everything = self.turn()
        if not all_adapt(self.design):
            return self.posterior(everything)
        self.doubt()
        found = self.posterior(everything)
        return replace(found, weighed=tuple(self._refitted(found)))

    def _refitted(self, found: Posterior) -> Iterator[Weighed]:
        kept, told = np.full(found.best.present.shape, np.nan), 0.0
        for share, one in zip(found.shares, found.weighed, strict=True):
            doubtful = one.present & ~self.rules.required & (one.gain < SURE)
            for i, j in np.argwhere(doubtful & np.isnan(kept)) if told < REFIT_WITHIN else ():
                without = self._fit_toggled(one, i, j)
                if without is not None:
                    kept[i, j] = (one.graph.optimum.value - without.optimum.value) / one.gain[i, j]
            told += share
            too_sure = np.where(doubtful & (kept < 1), 1 - np.maximum(kept, 0.0), 0.0)
            yield replace(one, odds=one.odds - too_sure * one.gain)


def merge(posteriors: Iterable[Posterior]) -> Posterior:
    """Return the graphs of several searches together."""
    several = list(posteriors)
    known = {one.key: one for posterior in reversed(several) for one in posterior.weighed}
    return _ranked(known.values(), all(posterior.explored for posterior in several))


def _ranked(known: Iterable[Weighed], explored: bool) -> Posterior:
    return Posterior(tuple(sorted(known, key=lambda one: (-one.evidence, one.key))), explored)


def order_with_edge(order: Order, parents: Sequence[IntArray], i: int, j: int) -> Order | None:
    """Return an order of the graph with j → i added, near the present one; None if the edge closes a cycle."""
    first, last = order.index(i), order.index(j)
    if last < first:
        return order
    behind = {i}
    for x in order[first : last + 1]:
        if behind.intersection(parents[x].tolist()):
            behind.add(x)
    if j in behind:
        return None
    stretch = order[first : last + 1]
    moved = (*(x for x in stretch if x not in behind), *(x for x in stretch if x in behind))
    return (*order[:first], *moved, *order[last + 1 :])
