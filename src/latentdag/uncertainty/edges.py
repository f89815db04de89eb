"""Say how sure the edges of a fit are, and which latent certainly comes before which.

The *probability* of an edge is that it is in the graph, order and search included: the fit weighed all graphs that came
near the best (:mod:`latentdag.core.posterior`). The Wald test takes the graph as given. An edge is called only if both
agree: its p- and q-value are the test's, or one minus its probability if that is larger.

The search drops an edge whose likelihood is worth less than its penalty, so every edge that is left looks good. Testing
only those, as if they had been named beforehand, would be too sure; the family of tests is therefore every pair forward
in the order, with p = 1 for pairs that were dropped. That is Benjamini and Hochberg's procedure with the p-values of
the dropped pairs raised, which can only make it more careful.

A weight is in the units of its two latents, and those depend on the scaling of the rows of H, which differs from one
set of features to another that says the same. A Wald test depends on such units wherever the weight is not zero. So it
is the *standardized* weight that is tested, between latents of unit variance: the same for any invertible map of X.
"""

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pandas as pd
from scipy import stats

from latentdag.core.multiplicity import benjamini_hochberg, holm
from latentdag.data.checks import check_probability
from latentdag.model.posets import closure_graph
from latentdag.uncertainty.standard_errors import Uncertainty
from latentdag.uncertainty.strength import responses_of

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

COLUMNS = ["source", "target", "weight", "std_error", "z", "p_value", "q_value", "probability", "standardized_weight"]

NOT_EXPLORED = (
    "more graphs are near the best than could be weighed: probabilities may be too sure, and more samples would help"
)
NOT_ARRIVED = "the optimiser stopped before the maximum, where no test holds: no edge is called"
OF_RELATIONS = (
    "where the error is infinite, z, p_value, q_value and probability are not of the weight, but of source being a "
    "cause of target at all"
)
NO_RELATIONS = "the fit did not weigh other orders, so nothing is known about how sure this one is"


def edge_table(fit: "Fit", uncertainty: Uncertainty, level: float | None = None) -> pd.DataFrame:
    """Return the edges of a fit with tests; see :meth:`latentdag.Fit.edges`."""
    found = uncertainty.table("paper", ["weight"])
    table = pd.DataFrame({"source": found["column"], "target": found["row"]})
    table["weight"], table["std_error"] = found["estimate"], found["std_error"]
    standardized = uncertainty.table("unit-variance", ["weight"])
    table["standardized_weight"], error = standardized["estimate"], standardized["std_error"]
    table["z"] = np.where(np.isfinite(error), table["standardized_weight"] / error, np.nan)
    p_value = 2 * stats.norm.sf(np.abs(table["z"]))
    n_pairs = fit.model.n_latents * (fit.model.n_latents - 1) // 2
    table["probability"] = _probabilities(fit, table)
    why_not = "" if fit.converged else NOT_ARRIVED
    doubt = 1.0 if why_not else 1 - table["probability"].fillna(1.0)
    open_ends = [_between_twins(fit, *pair) for pair in zip(table["source"], table["target"], strict=True)]
    p_value, doubt = np.where(open_ends, 1.0, p_value), np.where(open_ends, 1.0, doubt)
    table["p_value"] = np.maximum(p_value, doubt)
    table["q_value"] = np.maximum(benjamini_hochberg(p_value, n_pairs), doubt)
    table = table[COLUMNS]
    if level is not None:
        both = uncertainty.intervals(level, "paper", ["weight"])  # the same rows, in the same order
        table = table.assign(lower=both["lower"], upper=both["upper"])
    table = edges_in_order(fit, table).reset_index(drop=True)
    soft = "ancestors" in fit.details and "responses" in fit.details and table["z"].isna()
    if np.any(soft):
        table = _with_relations(fit, table, soft)
    notes = [found.attrs["note"], "" if fit.details.get("explored", True) else NOT_EXPLORED, why_not]
    notes += [OF_RELATIONS] if np.any(soft) else []
    table.attrs["note"] = "; ".join(filter(None, notes))
    return table


def edges_in_order(fit: "Fit", table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of edges that the graph has (idle latents carry none), in the order of the fit."""
    shown = [fit.graph.has_edge(*pair) for pair in zip(table["source"], table["target"], strict=True)]
    position = {name: i for i, name in enumerate(fit.order)}
    return table.loc[shown].sort_values(["source", "target"], key=lambda names: names.map(position))


def _between_twins(fit: "Fit", source: str, target: str) -> bool:
    """Return True if no data tell an edge, because the same contexts hit its ends, or one that looks like another."""
    ends = {source, target}
    return any(ends <= set(names) or (not told and ends.intersection(names)) for names, told in fit.twins.items())


def _with_relations(fit: "Fit", table: pd.DataFrame, soft: pd.Series) -> pd.DataFrame:
    """Return the table with tests of the relation in place of those of weights that soft interventions leave open."""
    tested = responses_of(fit).relations().set_index(["source", "target"])
    pairs = list(zip(table.loc[soft, "source"], table.loc[soft, "target"], strict=True))
    known = {(source, target): share for source, target, share in fit.details["ancestors"]}
    share = np.array([known.get(pair, 0.0) for pair in pairs])
    doubt = 1 - share if fit.converged else np.ones(len(share))
    table = table.copy()
    table.loc[soft, "z"], table.loc[soft, "probability"] = tested.loc[pairs, "z"].to_numpy(), share
    for name in ("p_value", "q_value"):
        table.loc[soft, name] = np.maximum(tested.loc[pairs, name].to_numpy(), doubt)
    return table


def _soft_relations(fit: "Fit") -> list[tuple[str, str, float]]:
    """Return the relations of a fit with soft interventions, each with the level at which all as sure hold together."""
    tested = responses_of(fit).relations()
    known = {(source, target): share for source, target, share in fit.details["ancestors"]}
    single = tested["p_value"].to_numpy() / 2
    adjusted = holm(np.concatenate([single, np.ones(len(single))]))[: len(single)]  # both directions of every pair
    pairs = list(zip(tested["source"], tested["target"], strict=True))
    return [(*pair, min(1 - p, known.get(pair, 0.0))) for pair, p in zip(pairs, adjusted, strict=True)]


def _probabilities(fit: "Fit", table: pd.DataFrame) -> list[float]:
    """Return the probability of each edge; one where the graph was given, ``nan`` where nothing is known."""
    if fit.options.graph is not None:
        return [1.0] * len(table)
    if "probability" not in fit.details:
        return [np.nan] * len(table)
    known = {(source, target): probability for source, target, probability in fit.details["probability"]}
    return [known.get(pair, 0.0) for pair in zip(table["source"], table["target"], strict=True)]


def supported_order(fit: "Fit", level: float) -> nx.DiGraph:
    """Return which latent certainly comes before which; see :meth:`latentdag.Fit.partial_order`."""
    check_probability("level", level)
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(fit.order)
    if fit.options.graph is not None:
        graph.add_edges_from(fit.graph.edges)
    why_not, idle = "" if fit.converged else NOT_ARRIVED, set(fit.idle_latents)
    known = fit.details.get("relations", [])
    if "ancestors" in fit.details and "responses" in fit.details:
        known = _soft_relations(fit)
    known = [] if why_not else [pair for pair in known if not _between_twins(fit, *pair[:2])]
    graph.add_edges_from((u, v) for u, v, joint in known if joint >= level and idle.isdisjoint((u, v)))
    closed = closure_graph(graph)
    told = {"relations", "ancestors"}.intersection(fit.details)
    closed.graph["note"] = why_not if told or fit.options.graph is not None else NO_RELATIONS
    return closed
