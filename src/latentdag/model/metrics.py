"""How far an estimate is from the truth.

A model is identified only up to S(G): the paper therefore aligns an estimate with the truth by the order-preserving
relabelling that makes most intervention targets agree, and then takes Frobenius distances. Those numbers are here
(:func:`unmixing_error`, :func:`structural_error`, :func:`targets_correct`), together with ones that do not jump when
two entries of a row nearly tie for the largest: distances in the truth's own row scaling, angles between rows and
correlations between latents, where latents are paired by the contexts that target them.

Every function takes the true :class:`LatentModel` first and an estimate, a model or a :class:`Fit`, second.
"""

from typing import Literal

import networkx as nx
import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from latentdag.core.linalg import max_entry_scale
from latentdag.methods.result import Fit
from latentdag.model.matching import Matching, match_to_order
from latentdag.model.model import LatentModel
from latentdag.model.posets import closure_graph, is_linear_extension, linear_extension, order_matrix

Estimate = LatentModel | Fit


def match_targets(truth: LatentModel, estimate: Estimate) -> Matching:
    """The paper's matching over S(G) between true and estimated intervention targets.

    ``permutation[i]`` is the row of the estimate, in its own order with sources last, that the i-th latent of the truth
    is compared with.
    """
    names = _sources_last(estimate)
    theirs = _model(estimate).targets
    shared = [c for c, target in truth.targets.items() if isinstance(target, str) and isinstance(theirs.get(c), str)]
    if not shared:
        raise ValueError("truth and estimate share no context with a single target, so they cannot be compared")
    return match_to_order(
        order_matrix(truth.weights != 0),
        [truth.latents.index(truth.targets[c]) for c in shared],
        [names.index(theirs[c]) for c in shared],
    )


def targets_correct(truth: LatentModel, estimate: Estimate) -> float:
    """Fraction of contexts whose target agrees after matching; 1.0 is the paper's "order correct"."""
    contexts = [c for c, target in truth.targets.items() if isinstance(target, str)]
    return match_targets(truth, estimate).agreements / len(contexts)


def order_correct(truth: LatentModel, estimate: Estimate) -> bool:
    """Whether the estimated order, latents identified by their contexts, puts every cause before its effects."""
    pairs = paired_latents(truth, estimate)
    position = {name: i for i, name in enumerate(_sources_last(estimate))}
    order = sorted(range(truth.n_latents), key=lambda i: position[pairs[truth.latents[i]]])
    return is_linear_extension(order, truth.weights != 0)


def unmixing_error(truth: LatentModel, estimate: Estimate, scaling: Literal["paper", "truth-index"] = "paper") -> float:
    """‖Ĥ − H‖_F after matching over S(G).

    Parameters
    ----------
    scaling : "paper" or "truth-index"
        Scale each row by its own largest entry, as the paper does, or by the entry that is largest in the *true* row.
    """
    H, H_hat, _, _ = _matched(truth, estimate, scaling)
    return float(np.linalg.norm(H_hat - H))


def structural_error(
    truth: LatentModel, estimate: Estimate, scaling: Literal["paper", "truth-index"] = "paper"
) -> float:
    """‖B̂_0 − B_0‖_F after matching over S(G), in the scaling of :func:`unmixing_error`."""
    _, _, B, B_hat = _matched(truth, estimate, scaling)
    return float(np.linalg.norm(B_hat - B))


def row_angles(truth: LatentModel, estimate: Estimate) -> pd.Series:
    """Angle in degrees between true and estimated row of H, per latent; sign and scale do not matter."""
    H, H_hat = _paired_rows(truth, estimate)
    cosine = np.abs(np.sum(H * H_hat, axis=1)) / np.linalg.norm(H, axis=1) / np.linalg.norm(H_hat, axis=1)
    return pd.Series(np.degrees(np.arccos(np.clip(cosine, 0, 1))), index=list(truth.latents), name="angle")


def latent_correlations(truth: LatentModel, estimate: Estimate) -> pd.Series:
    """Absolute correlation in the control between true and estimated latent, per latent."""
    H, H_hat = _paired_rows(truth, estimate)
    Sigma = truth.covariance()
    between = np.einsum("ij,jk,ik->i", H, Sigma, H_hat)
    sd = np.sqrt(np.einsum("ij,jk,ik->i", H, Sigma, H)), np.sqrt(np.einsum("ij,jk,ik->i", H_hat, Sigma, H_hat))
    return pd.Series(np.abs(between) / sd[0] / sd[1], index=list(truth.latents), name="correlation")


def shd(truth: LatentModel, estimate: Estimate) -> int:
    """Structural Hamming distance of the latent graphs: edges to add, remove or turn round."""
    true, found = _graphs(truth, estimate)
    return sum(
        (true.has_edge(u, v), true.has_edge(v, u)) != (found.has_edge(u, v), found.has_edge(v, u))
        for i, u in enumerate(truth.latents)
        for v in truth.latents[:i]
    )


def closure_precision_recall(truth: LatentModel, estimate: Estimate) -> tuple[float, float]:
    """Precision and recall of the ancestor relation; 1.0 where there is nothing to find or nothing was found."""
    pairs = {theirs: ours for ours, theirs in paired_latents(truth, estimate).items()}
    closure = estimate.closure if isinstance(estimate, Fit) else closure_graph(estimate.graph)
    true = set(closure_graph(truth.graph).edges)
    found = {(pairs.get(u), pairs.get(v)) for u, v in closure.edges}
    hits = len(true & found)
    return hits / len(found) if found else 1.0, hits / len(true) if true else 1.0


def compare(truth: LatentModel, estimate: Estimate) -> pd.Series:
    """All of the above in one table."""
    precision, recall = closure_precision_recall(truth, estimate)
    angles, correlations = row_angles(truth, estimate), latent_correlations(truth, estimate)
    return pd.Series(
        {
            "order correct": float(order_correct(truth, estimate)),
            "targets correct": targets_correct(truth, estimate),
            "‖Ĥ − H‖": unmixing_error(truth, estimate),
            "‖Ĥ − H‖, truth's index": unmixing_error(truth, estimate, "truth-index"),
            "‖B̂ − B‖": structural_error(truth, estimate),
            "‖B̂ − B‖, truth's index": structural_error(truth, estimate, "truth-index"),
            "mean angle (°)": angles.mean(),
            "largest angle (°)": angles.max(),
            "mean latent correlation": correlations.mean(),
            "SHD": float(shd(truth, estimate)),
            "closure precision": precision,
            "closure recall": recall,
        }
    )


def paired_latents(truth: LatentModel, estimate: Estimate) -> dict[str, str]:
    """Pair each true latent with the estimated one that most of the same contexts target."""
    model = _model(estimate)
    if model.n_latents != truth.n_latents:
        raise ValueError(f"the truth has {truth.n_latents} latents, the estimate {model.n_latents}")
    shared = np.zeros((truth.n_latents, model.n_latents))
    for context, value in truth.interventions.items():
        if context in model.interventions:
            ours = [truth.latents.index(t) for t in value.targets]
            theirs = [model.latents.index(t) for t in model.interventions[context].targets]
            shared[np.ix_(ours, theirs)] += 1 / len(ours) / len(theirs)
    rows, columns = linear_sum_assignment(-shared)
    return {truth.latents[i]: model.latents[j] for i, j in zip(rows.tolist(), columns.tolist(), strict=True)}


def _model(estimate: Estimate) -> LatentModel:
    return estimate.model if isinstance(estimate, Fit) else estimate


def _sources_last(estimate: Estimate) -> list[str]:
    """Latent names of an estimate in the paper's order."""
    if isinstance(estimate, Fit):
        return list(reversed(estimate.order))
    return [estimate.latents[i] for i in linear_extension(estimate.weights != 0)]


def _matched(truth: LatentModel, estimate: Estimate, scaling: str) -> tuple[np.ndarray, ...]:
    model = _model(estimate).reordered(_sources_last(estimate))
    rows = match_targets(truth, estimate).permutation
    model = model.reordered([model.latents[i] for i in rows])
    true = truth.rescaled("paper")
    if scaling == "paper":
        model = model.rescaled("paper")
    elif scaling == "truth-index":
        index = np.argmax(np.isclose(true.unmixing, max_entry_scale(true.unmixing)[:, None]), axis=1)
        model = model.rescaled(model.unmixing[np.arange(len(index)), index])
    else:
        raise ValueError(f"scaling must be 'paper' or 'truth-index', got {scaling!r}")
    return true.unmixing, model.unmixing, true.structural(), model.structural()


def _paired_rows(truth: LatentModel, estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    pairs = paired_latents(truth, estimate)
    return truth.unmixing, _model(estimate).reordered([pairs[name] for name in truth.latents]).unmixing


def _graphs(truth: LatentModel, estimate: Estimate) -> tuple[nx.DiGraph, nx.DiGraph]:
    """Both graphs over the true latents' names."""
    back = {theirs: ours for ours, theirs in paired_latents(truth, estimate).items()}
    return truth.graph, nx.relabel_nodes(estimate.graph, back)
