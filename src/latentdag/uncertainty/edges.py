"""Test the edges of a fit, and find the partial order that they support.

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

from latentdag.core.multiplicity import benjamini_hochberg
from latentdag.model.posets import closure_graph
from latentdag.uncertainty.standard_errors import Uncertainty, add_intervals

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

COLUMNS = ["source", "target", "weight", "std_error", "z", "p_value", "q_value", "standardized_weight"]


def edge_table(fit: "Fit", uncertainty: Uncertainty, level: float | None = None) -> pd.DataFrame:
    """Return the edges of a fit with tests; see :meth:`latentdag.Fit.edges`."""
    found = uncertainty.table("paper", ["weight"])
    table = pd.DataFrame({"source": found["column"], "target": found["row"]})
    table["weight"], table["std_error"] = found["estimate"], found["std_error"]
    sd = dict(zip(fit.latents, np.sqrt(np.diagonal(fit.model.law().latent_covariance)), strict=True))
    table["standardized_weight"] = table["weight"] * table["source"].map(sd) / table["target"].map(sd)
    error = uncertainty.table("unit-variance", ["weight"])["std_error"]
    table["z"] = np.where(np.isfinite(error), table["standardized_weight"] / error, np.nan)
    table["p_value"] = 2 * stats.norm.sf(np.abs(table["z"]))
    n_pairs = fit.model.n_latents * (fit.model.n_latents - 1) // 2
    table["q_value"] = benjamini_hochberg(table["p_value"].to_numpy(), n_pairs)
    table = table[COLUMNS]
    if level is not None:
        both = add_intervals(table.rename(columns={"weight": "estimate"}).assign(quantity="weight"), level)
        table["lower"], table["upper"] = both["lower"], both["upper"]
    position = {name: i for i, name in enumerate(fit.order)}
    table = table.sort_values(["source", "target"], key=lambda column: column.map(position), ignore_index=True)
    table.attrs["note"] = found.attrs["note"]
    return table


def supported_order(fit: "Fit", edges: pd.DataFrame, level: float) -> nx.DiGraph:
    """Return which latent certainly comes before which; see :meth:`latentdag.Fit.partial_order`."""
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(fit.order)
    kept = edges[edges["q_value"] <= 1 - level]
    graph.add_edges_from(zip(kept["source"], kept["target"], strict=True))
    closed = closure_graph(graph)
    rival = fit.details.get("runner_up")
    if rival and rival["gap"] < -np.log(1 - level):
        position = {name: i for i, name in enumerate(rival["order"])}
        closed.remove_edges_from([(u, v) for u, v in list(closed.edges) if position[u] > position[v]])
    closed.graph["note"] = edges.attrs["note"]
    return closed
