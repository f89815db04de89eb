"""What a report lists and draws: contexts, latents with their features, edges, total effects, and the latent graph.

Lists have one record per item. The graph is boxes and curves in pixels, ready to be drawn as SVG.
"""

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from latentdag.data import labels as lb
from latentdag.design import power
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.pl import Point, layered, short, text_width

if TYPE_CHECKING:
    from latentdag.report.results import Results

Record = dict[str, Any]

#: Latents up to which a plan includes the search, at the price of about a fit per number of cells.
SEARCHED_UP_TO = 8


def context_records(results: "Results") -> list[Record]:
    """Return one record per context, the control first."""
    fit, evidence, contexts = results.fit, results.evidence, results.contexts
    membership = evidence.membership
    fitted = dict(zip(fit.model.contexts, lb.text_names(fit.model.contexts), strict=True))
    records = []
    for text, (context, samples) in zip(lb.text_names(list(contexts)), contexts.items(), strict=True):
        change = fit.model.interventions.get(context)
        tested = fit.details.get("changed", {}).get(fitted.get(context), {})
        record = {
            "context": text,
            "role": "control" if context == fit.model.control else change.kind if change else "left out of the fit",
            "samples": samples,
            "targets": list(change.targets) if change else [],
            "idle": context in fit.idle if change else None,
            "p_changed": tested.get("p_holm"),
            "p_apart": tested.get("p_apart_holm"),
            "directions": evidence.directions(context),
            **{f"p_rank_{rank}": evidence.p_value(context, rank) for rank in (0, 1)},
            "p_allowed": evidence.p_value(context, evidence.allowed.get(context, 2)),
            "misfit": None if membership is None else membership.omnibus.misfit.get(context),
            **{"gain": None, "decision": "", "reason": ""},
            "shrinkage": fit.details.get("shrinkage", {}).get(fitted.get(context)),
        }
        if membership is not None and context in membership.summary.index:
            row = lb.row_of(membership.summary, context)
            record |= {name: row[name] for name in ("gain", "decision", "reason", "rho")}
        records.append(record)
    return records


def edge_records(results: "Results") -> list[Record]:
    """Return one record per edge, the strongest first."""
    pair, ends = ["source", "target"], {"lower": "standardized_lower", "upper": "standardized_upper"}
    table = results.edges.merge(results.between("weight").rename(columns=ends)[[*pair, *ends.values()]], "left", pair)
    if results.bootstrap is not None:
        share = results.bootstrap.edges.rename(columns={"frequency": "bootstrap_frequency"})
        table = table.merge(share[[*pair, "bootstrap_frequency"]], "left", pair)
    return table.sort_values("standardized_weight", key=lambda weight: -weight.abs(), kind="stable").to_dict("records")


def plan_records(fit: Fit) -> list[Record]:
    """Return one record per edge: how likely a new screen with twice the cells finds it.

    Nothing where no plan is possible: the method has no errors, or the fit no edges.
    """
    if fit.method != "likelihood" or not fit.graph.number_of_edges():
        return []
    twice = {context: 2 * n for context, n in zip(fit.model.contexts, fit.counts, strict=True)}
    table = power(fit, twice, searched=fit.model.n_latents <= SEARCHED_UP_TO)
    table = table[np.isfinite(table["half_width"])].copy()
    table["half_width_now"] = table["half_width"] * np.sqrt(2.0)
    return table.to_dict("records")


def effect_records(results: "Results") -> list[Record]:
    """Return one record per total effect between latents of unit variance, the strongest first."""
    table, idle = results.between("total_effect"), results.fit.idle_latents
    table = table[~table["source"].isin(idle) & ~table["target"].isin(idle)].rename(columns={"estimate": "effect"})
    table["direct"] = [results.fit.graph.has_edge(*pair) for pair in zip(table["source"], table["target"], strict=True)]
    table = table.sort_values("effect", key=lambda effect: -effect.abs(), kind="stable")
    return table[["source", "target", "effect", "lower", "upper", "direct"]].to_dict("records")


def latent_records(fit: Fit, edges: list[Record], n_features: int) -> list[Record]:
    """Return one record per latent, sources first, with its equation and strongest features."""
    scaled = fit.model.rescaled("unit-variance")
    correlation = scaled.correlations
    closure = fit.closure
    records = []
    for name in fit.order:
        i, idle = scaled.latents.index(name), name in fit.idle_latents
        causes = [edge for edge in edges if edge["target"] == name]
        records.append(
            {
                "latent": name,
                "idle": idle,
                "contexts": [str(c) for c, v in fit.model.interventions.items() if name in v.targets],
                "grows_with": fit.grows_with[name],
                "equation": "" if idle else _equation(name, causes, float(np.sqrt(scaled.noise_variance[i]))),
                "causes": [edge["source"] for edge in causes],
                "effects": [edge["target"] for edge in edges if edge["source"] == name],
                "ancestors": sum(1 for _ in closure.predecessors(name)) if name in closure else 0,
                "descendants": sum(1 for _ in closure.successors(name)) if name in closure else 0,
                "explained": None if idle else 1.0 - float(scaled.noise_variance[i]) if causes else 0.0,
                "noise_variance": float(fit.model.noise_variance[fit.model.latents.index(name)]),
                "interventions": _interventions(scaled, name),
                "features": [
                    {
                        "feature": scaled.feature_names[j],
                        "correlation": correlation[j, i],
                        "mixing": scaled.mixing[j, i],
                        "unmixing": fit.model.unmixing[fit.model.latents.index(name), j],
                    }
                    for j in scaled.strongest(name, n_features)
                ],
            }
        )
    return records


def _equation(name: str, causes: list[Record], noise: float) -> str:
    """Return the equation of a latent in standard deviations: ``c3 = −0.65·c1 + 0.76·noise``."""
    text = f"{name} ="
    for k, edge in enumerate(causes):
        weight = edge["standardized_weight"]
        sign = ("−" if weight < 0 else "") if k == 0 else ("− " if weight < 0 else "+ ")
        text += f" {sign}{abs(weight):.2f}·{edge['source']}"
    return f"{text} + {noise:.2f}·noise" if causes else f"{text} noise"


def _interventions(scaled: LatentModel, name: str) -> list[Record]:
    """Return what each context does to a latent, in standard deviations of the latent."""
    own = float(scaled.noise_variance[scaled.latents.index(name)])
    changes = [(str(c), value.changes[name]) for c, value in scaled.interventions.items() if name in value.changes]
    return [
        {"context": text, "kind": change.kind,
         "noise_sd": float(np.sqrt(own if change.variance is None else change.variance)),
         "shift": change.shift, "noise_sd_control": float(np.sqrt(own))}
        for text, change in changes
    ]  # fmt: skip


#: Height of a node, room around the drawing, and room between two nodes.
HEIGHT, MARGIN, GAP = 30.0, 24.0, 16.0

#: Room that a bend takes across: at least, at most, and all those of a row together.
BEND = (10.0, 22.0, 220.0)

#: Room between edges that meet at a node.
PORT = 10.0

#: Characters of a name that a node shows; the full name is in its details.
LABEL = 14

#: Edges per latent up to which a graph is first shown whole.
MOST_PER_LATENT = 3


def graph_drawing(latents: list[Record], edges: list[Record]) -> Record:
    """Return size, nodes and paths of the latent graph; one path per edge, in the order of ``edges``."""
    labels = {record["latent"]: short(record["latent"], LABEL) for record in latents}
    widths = {name: max(44.0, round(20 + 8.6 * text_width(text), 1)) for name, text in labels.items()}
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(labels)
    pairs = [(edge["source"], edge["target"]) for edge in edges]
    graph.add_edges_from(pairs)
    layout = layered(graph, {name: width + GAP for name, width in widths.items()}, BEND)
    step = HEIGHT + min(36.0 + 2.2 * len(edges) / (layout.height + 1), 90.0)
    width, height = layout.width + 2 * MARGIN, step * layout.height + HEIGHT + 2 * MARGIN
    drawn = layout.moved(MARGIN, MARGIN + HEIGHT / 2, step, round(width, 1), round(height, 1))
    nodes = [
        {"latent": name, "label": labels[name], "x": round(drawn.place[name][0], 1),
         "y": round(drawn.place[name][1], 1), "width": widths[name], "layer": layout.place[name][1]}
        for name in labels
    ]  # fmt: skip
    reach = dict.fromkeys(labels, (HEIGHT / 2 + 2, HEIGHT / 2))
    return {
        "width": drawn.width,
        "height": drawn.height,
        "threshold": _first_threshold(edges, len(labels)),
        "nodes": nodes,
        "paths": [_svg_path(route) for route in drawn.routes(pairs, widths, reach, PORT)],
    }


def _svg_path(route: list[Point]) -> str:
    first, *rest = (f"{round(x, 1):g},{round(y, 1):g}" for x, y in route)
    return f"M{first}C{' '.join(rest)}"


def _first_threshold(edges: list[Record], n: int) -> float:
    """Return where the slider starts: at zero, unless there are more edges than an eye can follow."""
    if len(edges) <= MOST_PER_LATENT * n:
        return 0.0
    strength = sorted((abs(edge["standardized_weight"]) for edge in edges), reverse=True)
    return float(np.floor(100 * strength[2 * n]) / 100)
