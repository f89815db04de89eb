"""How far an estimate is from the truth.

A model is identified only up to S(G): the paper therefore aligns an estimate with the truth by the order-preserving
relabelling that makes most intervention targets agree, and then takes Frobenius distances. Those numbers are here
(:func:`unmixing_error`, :func:`structural_error`, :func:`targets_correct`), together with ones that do not jump when
two entries of a row nearly tie for the largest: distances in the truth's own row scaling, angles between rows and
correlations between latents, where latents are paired by the contexts that target them.

Every function takes the true :class:`LatentModel` first and an estimate, a model or a :class:`Fit`, second.

Examples
--------
>>> from latentdag import metrics, simulate
>>> truth = simulate.random_model(n_latents=3, n_features=4, rng=3)
>>> other_units = truth.rescaled("unit-variance")
>>> metrics.order_correct(truth, other_units), metrics.targets_correct(truth, other_units)
(True, 1.0)
>>> metrics.shd(truth, other_units), round(metrics.unmixing_error(truth, other_units), 9)
(0, 0.0)
"""

from typing import TYPE_CHECKING, Literal

import networkx as nx
import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from latentdag.core.linalg import max_entry_scale
from latentdag.model.matching import Matching, match_to_order
from latentdag.model.model import LatentModel
from latentdag.model.posets import closure_graph, is_linear_extension, linear_extension, order_matrix

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

    Estimate = LatentModel | Fit


def match_targets(truth: LatentModel, estimate: "Estimate") -> Matching:
    """Match true with estimated intervention targets over S(G) (appendix "Optimizing over S(G)").

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


def targets_correct(truth: LatentModel, estimate: "Estimate") -> float:
    """Return the fraction of contexts whose target agrees after matching; 1.0 is the paper's "order correct"."""
    contexts = [c for c, target in truth.targets.items() if isinstance(target, str)]
    return match_targets(truth, estimate).agreements / len(contexts)


def order_correct(truth: LatentModel, estimate: "Estimate") -> bool:
    """Return True if the estimated order puts every cause before its effects; contexts say which latent is which."""
    pairs = paired_latents(truth, estimate)
    position = {name: i for i, name in enumerate(_sources_last(estimate))}
    order = sorted(range(truth.n_latents), key=lambda i: position[pairs[truth.latents[i]]])
    return is_linear_extension(order, truth.weights != 0)


def unmixing_error(
    truth: LatentModel, estimate: "Estimate", scaling: Literal["paper", "truth-index"] = "paper"
) -> float:
    """Return ‖Ĥ − H‖_F after matching over S(G).

    Parameters
    ----------
    scaling : "paper" or "truth-index"
        Scale each row by its own largest entry, as the paper does, or by the entry that is largest in the *true* row.
    """
    true, model = _matched(truth, estimate, scaling)
    return float(np.linalg.norm(model.unmixing - true.unmixing))


def structural_error(
    truth: LatentModel, estimate: "Estimate", scaling: Literal["paper", "truth-index"] = "paper"
) -> float:
    """Return ‖B̂_0 − B_0‖_F after matching over S(G), in the scaling of :func:`unmixing_error`."""
    true, model = _matched(truth, estimate, scaling)
    return float(np.linalg.norm(model.structural() - true.structural()))


def row_angles(truth: LatentModel, estimate: "Estimate") -> pd.Series:
    """Return the angle in degrees between true and estimated row of H, per latent; sign and scale do not matter."""
    cosine = _cosines(*_paired_rows(truth, estimate))
    return pd.Series(np.degrees(np.arccos(np.clip(cosine, 0, 1))), index=list(truth.latents), name="angle")


def latent_correlations(truth: LatentModel, estimate: "Estimate") -> pd.Series:
    """Return the absolute correlation in the control between true and estimated latent, per latent."""
    H, H_hat = _paired_rows(truth, estimate)
    law = truth.law()
    L = np.hstack([law.factor, law.residual_factor])  # a correlation is the cosine of two rows times this factor
    return pd.Series(_cosines(H @ L, H_hat @ L), index=list(truth.latents), name="correlation")


def shd(truth: LatentModel, estimate: "Estimate") -> int:
    """Return the structural Hamming distance of the latent graphs: edges to add, remove or turn round."""
    names = {theirs: ours for ours, theirs in paired_latents(truth, estimate).items()}
    true, found = truth.graph, nx.relabel_nodes(estimate.graph, names)
    return sum(
        (true.has_edge(u, v), true.has_edge(v, u)) != (found.has_edge(u, v), found.has_edge(v, u))
        for i, u in enumerate(truth.latents)
        for v in truth.latents[:i]
    )


def closure_precision_recall(truth: LatentModel, estimate: "Estimate") -> tuple[float, float]:
    """Return precision and recall of the ancestor relation; 1.0 where there is nothing to find or nothing was found."""
    pairs = {theirs: ours for ours, theirs in paired_latents(truth, estimate).items()}
    closure = closure_graph(estimate.graph) if isinstance(estimate, LatentModel) else estimate.closure
    true = set(closure_graph(truth.graph).edges)
    found = {(pairs.get(u), pairs.get(v)) for u, v in closure.edges}
    hits = len(true & found)
    return hits / len(found) if found else 1.0, hits / len(true) if true else 1.0


def compare(truth: LatentModel, estimate: "Estimate") -> pd.Series:
    """Return all of the above in one table."""
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


def paired_latents(truth: LatentModel, estimate: "Estimate") -> dict[str, str]:
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


def _model(estimate: "Estimate") -> LatentModel:
    """Return the model of a fit, or the model itself."""
    return estimate if isinstance(estimate, LatentModel) else estimate.model


def _sources_last(estimate: "Estimate") -> list[str]:
    """Return the latent names of an estimate in the paper's order."""
    if isinstance(estimate, LatentModel):
        return [estimate.latents[i] for i in linear_extension(estimate.weights != 0)]
    return list(reversed(estimate.order))


def _matched(truth: LatentModel, estimate: "Estimate", scaling: str) -> tuple[LatentModel, LatentModel]:
    """Return the truth in the paper's scaling, and the estimate with rows matched to it and scaled alike."""
    names = _sources_last(estimate)
    model = _model(estimate).reordered([names[i] for i in match_targets(truth, estimate).permutation])
    true = truth.rescaled("paper")
    if scaling == "paper":
        return true, model.rescaled("paper")
    if scaling == "truth-index":
        index = np.argmax(np.isclose(true.unmixing, max_entry_scale(true.unmixing)[:, None]), axis=1)
        return true, model.rescaled(model.unmixing[np.arange(len(index)), index])
    raise ValueError(f"scaling must be 'paper' or 'truth-index', got {scaling!r}")


def _paired_rows(truth: LatentModel, estimate: "Estimate") -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (d, p) of both unmixings, paired by their contexts."""
    pairs = paired_latents(truth, estimate)
    return truth.unmixing, _model(estimate).reordered([pairs[name] for name in truth.latents]).unmixing


def _cosines(U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return the absolute cosine between each row of U and the same row of V."""
    return np.asarray(np.abs(np.sum(U * V, axis=1)) / np.linalg.norm(U, axis=1) / np.linalg.norm(V, axis=1))
