"""What a search adds to the power of a test: other graphs that samples of a given size leave open.

Take the model for true, and its moments for exact: then the search meets each rival graph r at its best fit, a gap
``Δ_r`` below the truth. In samples the gap is Δ_r plus noise that is linear in the deviations of the moments,

    −½ Σ_k n_k tr P_rk (S_k − I) + …,    P_rk = R_rkᵀ R_rk − I,

with ``R_rk`` the rival's noise rows of context k in the coordinates of the true noises. So all gaps together are
normal, with covariance ``Σ_k n_k (½ tr P_rk P_sk + b_rk · b_sk)``, where b is what the rival gets wrong about means.
Draws of them cost next to nothing, and each draw is weighed as a fit weighs graphs (docs/math.md, Planning a screen).

In samples a refit takes back part of every gap, and there are more rivals than the exact moments show, so a fit is less
sure than this. Gaps of which only a share is left allow for both. Shares and ``LUCK`` were chosen on random models of
seeds 0 to 26 (three to five latents, both conventions, 100 to 1,000 cells per context).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np
from scipy.special import softmax

from latentdag.core.evidence import Weighed, ancestors_of
from latentdag.core.goodness import noises
from latentdag.core.graphs import FittedGraph, Rules, fit_graph, perfect_rows, reversals
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.orders import Stack, full_parents
from latentdag.core.search import Rival, conclude
from latentdag.data.moments import Moments
from latentdag.methods.design import Prepared, edge_rules, prepare
from latentdag.methods.likelihood import price_of_edge
from latentdag.methods.options import DEFAULT
from latentdag.methods.result import Fit
from latentdag.methods.starts import given_start

#: Shares of a gap that samples may leave, all equally probable.
LEFT = (0.4, 0.6, 1.0)

#: Nats by which the luckiest graph with other edges does better than any one of them.
LUCK = 1.5

#: Draws of the gaps.
DRAWS = 400


def can_search(fit: Fit) -> bool:
    """Return True if a search chooses the graph, and its rivals can be weighed."""
    kinds = {value.kind for value in fit.model.interventions.values()}
    return fit.options.graph is None and kinds == {"perfect"} and fit.model.feature_noise is None


@dataclass(frozen=True, eq=False)
class Exact:
    """A model's own graph fitted to its exact moments, as a search would see it.

    Parameters
    ----------
    fit : Fit
        The model, and what fits are told.
    m : Moments
        Its exact moments, with the counts of the plan.
    """

    fit: Fit
    m: Moments

    @cached_property
    def prepared(self) -> Prepared:
        means = self.fit.options.means and self.m.has_means
        options = replace(self.fit.options, shrinkage=False, means=means, **self.fit.settled_options)
        return prepare(self.m, options)

    @property
    def design(self) -> Design:
        return self.prepared.design

    @cached_property
    def rules(self) -> Rules:
        told = self.fit.options
        price = price_of_edge(told.penalty, self.design.N)
        return edge_rules(self.prepared, price, told.forbidden, told.required, told.penalty != DEFAULT.penalty)

    @cached_property
    def truth(self) -> FittedGraph:
        names, graph = self.prepared.latents, self.fit.fitted_graph
        H, order = given_start(self.prepared, self.fit.model)
        parents = [np.array(sorted(map(names.index, graph.predecessors(i))), dtype=np.intp) for i in names]
        return self._fitted(H, parents, order)

    @cached_property
    def edges(self) -> BoolArray:
        """(d, d), ``[i, j]`` iff j → i is in the model."""
        return nx.to_numpy_array(self.fit.fitted_graph, self.prepared.latents, weight=None).T > 0

    @cached_property
    def rivals(self) -> tuple[Weighed, ...]:
        """All graphs that a search weighs, the model's own among them."""
        found = conclude(self.design, [[Rival.of_graph(self.truth)]], self.rules)
        return () if found is None or found.posterior is None else found.posterior.weighed

    @cached_property
    def other_orders(self) -> list[FittedGraph]:
        """Full orders that turn an edge of the model round, the nearest first, however far they are."""
        design, rules, most = self.design, self.rules, 2 * int(self.edges.sum())
        found = [
            fit_graph(design, perfect_rows(design, H, order), full_parents(order), order, rules)
            for H, order in reversals(Stack(design), self.truth, rules, (self.truth.order,), most)
        ]
        return sorted((graph for graph in found if graph is not None), key=lambda graph: -graph.optimum.value)

    def forward(self, rival: Weighed) -> float:
        """Return how likely every edge of the model points forward in an order of a graph: what that leaves open is a
        coin's toss each.
        """
        ancestors = ancestors_of(rival.present, rival.graph.order)
        return 0.0 if (ancestors.T & self.edges).any() else 0.5 ** int((self.edges & ~ancestors).sum())

    def gap(self, rival: FittedGraph, seen_by: "Exact") -> float:
        """Return how many nats a rival, which was fitted to other moments of the same features, is behind here."""
        H = rival.optimum.H @ seen_by.prepared.W @ np.linalg.pinv(self.prepared.W)
        names = seen_by.prepared.latents
        at = [names.index(name) for name in self.prepared.latents]  # a new context may have sorted the latents anew
        back = np.argsort(at)
        parents = [np.sort(back[rival.parents[i]]) for i in at]
        other = self._fitted(H[at], parents, tuple(int(back[i]) for i in rival.order))
        return self.truth.optimum.value - other.optimum.value

    def _fitted(self, H: Array, parents: list[IntArray], order: tuple[int, ...]) -> FittedGraph:
        found = fit_graph(self.design, H, parents, order, self.rules)
        if found is None:
            raise ValueError("the model's own moments are too near singular for a fit: plan with fewer features")
        return found


def searched(fit: Fit, m: Moments, alpha: float) -> tuple[dict[tuple[str, str], float], float, float]:
    """Return what a search in samples of the model will say: an edge is called if its probability is 1 − alpha.

    Returns
    -------
    called : dict of (source, target) to the probability that the edge is called
    p_order, p_graph : probability that every edge points forward in the order found; that the graph is right
    """
    exact = Exact(fit, m)
    rivals, names = exact.rivals, exact.prepared.latents
    present = np.array([one.present for one in rivals])
    forward = np.array([exact.forward(one) for one in rivals])
    right = (present == exact.edges).all(axis=(1, 2))
    prior = np.array([one.evidence - one.graph.optimum.value for one in rivals])
    gaps, V = gaps_of(exact)
    gaps = gaps + np.random.default_rng(0).standard_normal((DRAWS, V.shape[1])) @ V.T
    called = np.mean(
        [np.einsum("nr,rij->nij", softmax(prior - left * gaps, axis=1), present) >= 1 - alpha for left in LEFT],
        axis=(0, 1),
    )
    first = (prior - gaps).argmax(axis=1)
    luckiest = (prior - gaps + LUCK * ((forward > 0) & ~right)).argmax(axis=1)
    by_name = {(names[j], names[i]): float(called[i, j]) for i, j in np.argwhere(exact.edges)}
    return by_name, float(np.mean(forward[first])), float(np.mean(right[luckiest]))


def gaps_of(exact: Exact) -> tuple[Array, Array]:
    """Return Δ (R,) of every rival, and V with ``V Vᵀ`` the covariance of the gaps."""
    design, gaps, V = exact.design, [], []
    n = design.n
    F_inv = np.linalg.inv(noises(design, exact.truth.optimum, exact.truth.parents).F)
    for one in exact.rivals:
        model = noises(design, one.graph.optimum, one.graph.parents)
        R, b = model.F @ F_inv, model.b
        P = np.einsum("kij,kil->kjl", R, R) - np.eye(R.shape[1])
        half = np.einsum("kii->k", P) / 2 - np.linalg.slogdet(R)[1] + np.einsum("ki,ki->k", b, b) / 2
        gaps.append(float(n @ half))
        linear = np.einsum("kij,ki->kj", R, b)
        V.append(np.hstack([P.reshape(len(n), -1) / np.sqrt(2.0), linear]) * np.sqrt(n)[:, None])
    return np.array(gaps), np.array(V).reshape(len(gaps), -1)
