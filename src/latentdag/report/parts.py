"""The lists of a report: contexts, latents with their features, edges and total effects, one plain record each."""

import unicodedata
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.second_pass import Samples
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit
from latentdag.report.findings import Evidence
from latentdag.report.layout import Layout, layered

Record = dict[str, Any]

LABEL = 14  # characters of a name that a node shows
MOST_PER_LATENT = 3  # edges per latent up to which a graph is first shown whole


def plain(value: Any) -> Any:
    """As JSON has it: Python's own types, text keys; what is not finite becomes ``None``."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return str(value)


def signed(value: float, digits: int = 3) -> str:
    """``−0.56``: with a real minus sign."""
    return f"{value:.{digits}g}".replace("-", "−")


def context_records(fit: Fit, m: Moments | None, evidence: Evidence) -> list[Record]:
    """One record per context, the control first."""
    labels: list[Hashable] = list(m.contexts if m is not None else fit.model.contexts)
    counts = dict(zip(fit.model.contexts, fit.counts, strict=True))
    counts |= {} if m is None else {c: int(n) for c, n in zip(m.contexts, m.counts, strict=True)}
    shrinkage = fit.details.get("shrinkage", {})
    fitted = dict(zip(fit.model.contexts, lb.text_names(fit.model.contexts), strict=True))
    summary = None if evidence.membership is None else evidence.membership.summary
    records = []
    for text, context in zip(lb.text_names(labels), labels, strict=True):
        change = fit.model.interventions.get(context)
        role = "control" if context == fit.model.control else change.kind if change else "left out of the fit"
        record = {
            "context": text,
            "role": role,
            "samples": counts[context],
            "targets": list(change.targets) if change else [],
            "directions": evidence.directions(context),
            "p_rank_0": evidence.p_value(context, 0),
            "p_rank_1": evidence.p_value(context, 1),
            "p_allowed": evidence.p_value(context, evidence.allowed.get(context, 2)),
            "decision": "",
            "reason": "",
            "shrinkage": shrinkage.get(fitted.get(context)),
        }
        if summary is not None and context in summary.index:
            row = lb.row_of(summary, context)
            record |= {"decision": row["decision"], "reason": row["reason"], "rho": row["rho"]}
        records.append(record)
    return plain(records)


def edge_records(
    fit: Fit, level: float, data: Samples | None, bootstrap: Bootstrap | None
) -> tuple[list[Record], list[Record], str]:
    """Edges, strongest first; total effects likewise; and what to know about their errors."""
    uncertainty = fit.uncertainty(data)
    table = fit.edges(level, data)
    scaled = uncertainty.intervals(level, "unit-variance", ["weight", "total_effect"])
    within = {(row.quantity, row.column, row.row): row for row in scaled.itertuples()}
    share = _frequencies(bootstrap)
    edges = []
    for row in table.to_dict("records"):
        both = within["weight", row["source"], row["target"]]
        bounds = {"standardized_lower": both.lower, "standardized_upper": both.upper}
        more = {"bootstrap_frequency": share.get((row["source"], row["target"]))} if share else {}
        edges.append({**row, **bounds, **more})
    effects = [
        {"source": r.column, "target": r.row, "effect": r.estimate, "lower": r.lower, "upper": r.upper,
         "direct": fit.graph.has_edge(r.column, r.row)}
        for (quantity, _, _), r in within.items()
        if quantity == "total_effect"
    ]  # fmt: skip
    edges.sort(key=lambda edge: -abs(edge["standardized_weight"]))
    effects.sort(key=lambda effect: -abs(effect["effect"]))
    return plain(edges), plain(effects), str(table.attrs.get("note", ""))


def _frequencies(bootstrap: Bootstrap | None) -> dict[tuple[str, str], float]:
    if bootstrap is None:
        return {}
    table: pd.DataFrame = bootstrap.edges
    return dict(zip(zip(table["source"], table["target"], strict=True), table["frequency"], strict=True))


def latent_records(fit: Fit, edges: list[Record], n_features: int) -> list[Record]:
    """One record per latent, sources first, with its equation and strongest features."""
    scaled = fit.model.rescaled("unit-variance")
    sd_features = np.sqrt(np.clip(np.diagonal(scaled.covariance()), 0.0, None))
    loading = scaled.covariance() @ scaled.unmixing.T  # (p, d): covariance of feature and latent
    correlation = np.divide(loading, sd_features[:, None], out=np.zeros_like(loading), where=sd_features[:, None] > 0)
    closure = fit.closure
    records = []
    for name in fit.order:
        i = scaled.latents.index(name)
        causes = [edge for edge in edges if edge["target"] == name]
        top = np.argsort(-np.abs(correlation[:, i]), kind="stable")[:n_features]
        records.append(
            {
                "latent": name,
                "contexts": [str(c) for c, v in fit.model.interventions.items() if name in v.targets],
                "equation": _equation(name, causes, float(np.sqrt(scaled.noise_variance[i]))),
                "causes": [edge["source"] for edge in causes],
                "effects": [edge["target"] for edge in edges if edge["source"] == name],
                "ancestors": sum(1 for _ in closure.predecessors(name)) if name in closure else 0,
                "descendants": sum(1 for _ in closure.successors(name)) if name in closure else 0,
                "explained": 1.0 - float(scaled.noise_variance[i]) if causes else 0.0,
                "noise_variance": float(fit.model.noise_variance[fit.model.latents.index(name)]),
                "interventions": _interventions(fit, scaled, name),
                "features": [
                    {
                        "feature": scaled.feature_names[j],
                        "correlation": correlation[j, i],
                        "mixing": scaled.mixing[j, i],
                        "unmixing": fit.model.unmixing[fit.model.latents.index(name), j],
                    }
                    for j in top
                ],
            }
        )
    return plain(records)


def _equation(name: str, causes: list[Record], noise: float) -> str:
    """In standard deviations: ``c3 = −0.65·c1 + 0.76·noise``."""
    text = f"{name} ="
    for k, edge in enumerate(causes):
        weight = edge["standardized_weight"]
        sign = ("−" if weight < 0 else "") if k == 0 else ("− " if weight < 0 else "+ ")
        text += f" {sign}{abs(weight):.2f}·{edge['source']}"
    return f"{text} + {noise:.2f}·noise" if causes else f"{text} noise"


def _interventions(fit: Fit, scaled: Any, name: str) -> list[Record]:
    """What each context does to a latent, in its standard deviations."""
    found = []
    own = float(scaled.noise_variance[scaled.latents.index(name)])
    for context, value in scaled.interventions.items():
        change = value.changes.get(name)
        if change is None:
            continue
        variance = own if change.variance is None else change.variance
        found.append(
            {"context": str(context), "kind": change.kind, "noise_sd": float(np.sqrt(variance)), "shift": change.shift,
             "noise_sd_control": float(np.sqrt(own))}
        )  # fmt: skip
    return found


def graph_drawing(latents: list[Record], edges: list[Record]) -> Record:
    """Boxes and curves of the latent graph, ready to be drawn as SVG."""
    names = [record["latent"] for record in latents]
    position = {name: i for i, name in enumerate(names)}
    short = [shorten(name) for name in names]
    widths = [max(44.0, round(20 + 8.6 * text_width(text), 1)) for text in short]
    pairs = [(position[edge["source"]], position[edge["target"]]) for edge in edges]
    drawing: Layout = layered(len(names), pairs, widths)
    nodes = [
        {"latent": name, "label": short[i], "x": round(float(drawing.x[i]), 1), "y": round(float(drawing.y[i]), 1),
         "width": widths[i], "layer": int(drawing.layer[i])}
        for i, name in enumerate(names)
    ]  # fmt: skip
    return {
        "width": round(drawing.width, 1),
        "height": round(drawing.height, 1),
        "threshold": _first_threshold(edges, len(names)),
        "nodes": nodes,
        "paths": [_curve(points) for points in drawing.paths],
    }


def _first_threshold(edges: list[Record], n: int) -> float:
    """Where the slider starts: at zero, unless there are more edges than an eye can follow."""
    if len(edges) <= MOST_PER_LATENT * n:
        return 0.0
    strength = sorted((abs(edge["standardized_weight"]) for edge in edges), reverse=True)
    return float(np.floor(100 * strength[2 * n]) / 100)


def _curve(points: list[tuple[float, float]]) -> str:
    """A smooth SVG path that leaves and enters vertically."""
    (x, y), *rest = points
    text = f"M{x:g},{y:g}"
    for a, b in rest:
        middle = round((y + b) / 2, 1)
        text += f"C{x:g},{middle:g} {a:g},{middle:g} {a:g},{b:g}"
        x, y = a, b
    return text


def text_width(text: str) -> int:
    """In columns: wide characters of East Asian scripts count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(name: str, limit: int = LABEL) -> str:
    """What fits in a node; the full name is in its details."""
    name = " ".join(name.split())
    if text_width(name) <= limit:
        return name
    kept = ""
    for c in name:
        if text_width(kept + c) > limit - 1:
            break
        kept += c
    return kept + "…"
