"""How far a fit of the light tunnel is from what is known of it.

Soft contexts identify the noises, that is the rows of ``B_0 H``, and the order. A latent may have any multiple of its
ancestors added, and edges come and go with that. One way to write the answer is as if every context had cut its target
off from its causes (``intervention="perfect"``). The likelihood is the same, a latent is what is left of the true one
in its own context, and a weight is the *change* of the true weight between the control and that context. Then an edge
is there if and only if the context changed it, and that has a test and an interval.
"""

from collections.abc import Iterable

import numpy as np

from latentdag import Fit
from latentdag.experiments import Row
from studies.decompositions import best_match
from studies.light_tunnel.machine import COLOURS, CONTROL, LAMPS, LEDS, Draw, Tunnel

LEVEL = 0.05


def cosines(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the absolute cosine of each row of A with each row of B; zero for rows of zeros."""
    lengths = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
    return np.asarray(np.abs(A @ B.T) / np.where(lengths > 0, lengths, 1.0))


def fit_scores(tunnel: Tunnel, draw: Draw, fit: Fit) -> Row:
    """Score rows, latents and order. Latents are matched by the contexts that target them."""
    known = [name for name in tunnel.latents if name in fit.latents]
    ours = [fit.latents.index(name) for name in known]
    theirs = [tunnel.latents.index(name) for name in known]
    rows = (fit.model.structural() @ fit.model.unmixing @ draw.G)[ours]
    same = np.diagonal(cosines(rows, tunnel.equations[theirs]))
    place = fit.order.index
    sensors = [name for name in known if name not in LAMPS]
    return {
        "cosine": float(same.min()),
        "mean_cosine": float(same.mean()),
        "worst_latent": known[int(np.argmin(same))],
        "correlation": float(np.mean(np.diagonal(correlations(tunnel, fit.model.unmixing[ours] @ draw.G)[:, theirs]))),
        "colours_first": bool(max(map(place, COLOURS)) < min(map(place, sensors))),
        "converged": bool(fit.converged),
    }


def component_scores(tunnel: Tunnel, rows: np.ndarray) -> Row:
    """Score components without names, matched to equations and to latents as well as possible."""
    row = {}
    for name, likeness in (("cosine", cosines(rows, tunnel.equations)), ("correlation", correlations(tunnel, rows))):
        same = likeness.T[np.arange(len(rows)), best_match(likeness.T)]
        row[name] = float(same.min() if name == "cosine" else same.mean())
        if name == "cosine":
            row["mean_cosine"] = float(same.mean())
    return row


def correlations(tunnel: Tunnel, rows: np.ndarray) -> np.ndarray:
    """Return absolute correlations in the control between rows applied to the latents, and each latent."""
    Z = tunnel.Z[CONTROL]  # centred and of unit variance
    return cosines((Z @ rows.T).T, Z.T)


def edge_scores(tunnel: Tunnel, draw: Draw, fit: Fit) -> Row:
    """Count edges at 5 % of false discoveries, with errors that hold for any noise, by where they are."""
    data = (draw.X, draw.contexts)
    table = fit.edges(data=data)
    sure = table[table["q_value"] < LEVEL]
    found = set(zip(sure["source"], sure["target"], strict=True))
    true = {(u, v) for u, v in tunnel.edges() if {u, v} <= set(fit.latents)}
    main = {edge for edge in true if edge[0] in COLOURS}
    sensors = set(fit.latents) - set(LAMPS)

    def crossing(pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        return {pair for pair in pairs if set(pair) & set(COLOURS) and set(pair) & sensors}

    return {
        "edges": " ".join(sorted(f"{u}>{v}" for u, v in found)),
        "colour_edges": len(main & found) / len(main),
        "edges_exact": bool(crossing(found) == main),
        "ancestors_exact": bool(crossing(fit.partial_order(1 - LEVEL).edges) == main),
        "false_between_colours": sum({u, v} <= set(COLOURS) for u, v in found),
        "false_between_sensors": sum({u, v} <= sensors for u, v in found),
        "led_edges": sum(u in LEDS for u, _ in true & found),
        "false_with_leds": sum(bool({u, v} & set(LEDS)) for u, v in found - true),
        **weight_scores(tunnel, draw, fit),
    }


def weight_scores(tunnel: Tunnel, draw: Draw, fit: Fit) -> Row:
    """Compare effects of colours on sensors with regression; count the 95 % intervals that hold its coefficient.

    There are two regressions: in the control, and in all contexts but the sensor's own. A linear fit averages the
    latter.
    """
    table = fit.confidence_intervals(0.95, (draw.X, draw.contexts), "unit-variance")
    table = table[table["quantity"] == "weight"].set_index(["column", "row"])
    pairs = [(u, v) for u, v in table.index if u in COLOURS and tunnel.graph.has_edge(u, v)]
    estimate, error = (table.loc[pairs, name].abs().to_numpy(float) for name in ("estimate", "std_error"))
    row: Row = {"intervals": len(pairs)}
    for name in ("control", "all"):
        expected = np.array([abs(expected_weight(tunnel, u, v, name)) for u, v in pairs])
        row[f"weight_error_{name}"] = float(np.median(np.abs(estimate / expected - 1))) if pairs else None
        row[f"covered_{name}"] = int(np.sum(np.abs(estimate - expected) <= 1.96 * error))
    return row


def expected_weight(tunnel: Tunnel, source: str, target: str, where: str) -> float:
    """Return the weight between latents of unit variance by regression: its change, in units of what is left."""
    others = [CONTROL] if where == "control" else [context for context in tunnel.Z if context != target]
    here, there = tunnel.equation(target, others), tunnel.equation(target, [target])
    left = tunnel.Z[CONTROL] @ there
    return float((there - here)[tunnel.latents.index(source)] / left.std())
