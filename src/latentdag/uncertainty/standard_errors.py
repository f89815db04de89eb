"""Standard errors and intervals of everything in a fit (MATH.md 3.5).

The information depends on the fitted model, its graph and the counts, not on the data, so Gaussian standard errors need
no second pass. With the samples at hand, the sandwich ``C J C`` (J the covariance of the samples' scores) holds for any
noise.

They hold at the maximum of the likelihood, for the graph as it stands: nothing in them knows that the graph was chosen
from the same data. What the data do not determine has an infinite standard error, and no interval.
"""

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from latentdag.core.covariance import ParameterCovariance
from latentdag.core.linalg import pseudo_inverse, scale_free_rank, symmetrize
from latentdag.core.quantities import NAMES, Block, Quantities
from latentdag.core.sample_scores import score_covariance
from latentdag.core.uncertainty import Point
from latentdag.data.second_pass import Samples, context_blocks
from latentdag.model.model import LatentModel

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

#: A latent that is set to a value keeps this share of its variance: as good as none, and still a density.
DO_SHARE = 1e-8

#: More parameters than this, and the samples' scores no longer fit in memory.
MOST_PARAMETERS = 12_000

#: A context that takes more than this share of its covariance from the others does so visibly.
SHRUNK = 0.1

#: Scores are held this many numbers at a time.
BLOCK = 2**23

NOT_MAXIMUM = (
    "method {method!r} does not maximise the likelihood, and standard errors from Fisher information hold only at its "
    "maximum: fit with method='likelihood', or bootstrap"
)
NOT_IDENTIFIED = (
    "infinite standard errors: the data leave these quantities free (soft interventions do so inside the ancestor "
    "relation)"
)
NOT_CONVERGED = "the optimiser did not converge, so these standard errors may be off"
BORROWED = (
    "standard errors are too small for what depends on {listed}: {share:.0%} or more of their covariances is borrowed "
    "from the other contexts, for want of samples"
)


class Uncertainty:
    """How well a fit knows its parameters.

    Get one from ``fit.uncertainty(data=None)``.

    Attributes
    ----------
    fit : Fit
    robust : bool
        Whether the samples' own scores were used.
    note : str
        What to know before believing the numbers; empty if nothing.
    """

    def __init__(self, fit: "Fit", data: Samples | None = None):
        self.fit, self.robust = fit, data is not None
        self.note = "; ".join(_warnings(fit))
        self.mechanisms = [(context, name) for context, v in fit.model.interventions.items() for name in v.changes]
        self.covariance: ParameterCovariance | None = None
        point, W = point_of(fit, fit.options.means), remainder(fit.model)
        self.quantities = Quantities(point, fit.model.unmixing, W)
        if fit.method != "likelihood":
            self.note = NOT_MAXIMUM.format(method=fit.method)
            return
        self.covariance = ParameterCovariance(point, len(W))
        if data is not None:
            self.covariance = self.covariance.robust(self._scores(data, point, W))

    @property
    def point(self) -> Point:
        return self.quantities.point

    def _scores(self, data: Samples, point: Point, W: np.ndarray) -> np.ndarray:
        size = point.size + self.quantities.n_outer * len(W)
        if size > MOST_PARAMETERS:
            raise ValueError(
                f"the model has {size} parameters, whose scores need {8e-9 * size**2:.0f} GB; at most "
                f"{MOST_PARAMETERS} are possible: use fewer features (the latents leave {len(W)} dimensions), or leave "
                "out data= for Gaussian standard errors"
            )
        return score_covariance(point, self._blocks(data, point, W, max(1, BLOCK // size)))

    def _blocks(
        self, data: Samples, point: Point, W: np.ndarray, step: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
        model = self.fit.model
        centers = np.tile(model.offset, (len(model.contexts), 1))
        if point.tau is None:  # every context has a mean of its own
            centers = context_means(data, model)
        for k, X in context_blocks(data, model.contexts, model.n_features):
            for start in range(0, len(X), step):
                x = X[start : start + step] - centers[k]
                yield k, x @ model.unmixing.T, x @ W.T if len(W) else None

    def std_errors(self, name: str, scaling: str = "paper") -> Iterator[tuple[Block, np.ndarray]]:
        """Values of one quantity and their standard errors, block by block; ``nan`` away from the maximum."""
        for block in self.quantities.blocks(name, scaling):
            if self.covariance is None:
                yield block, np.full(len(block.rows), np.nan)
            else:
                yield block, np.sqrt(self.covariance.variance(block.gradient))

    def table(self, scaling: str = "paper", quantities: Any = NAMES) -> pd.DataFrame:
        """One row per number: quantity, row, column, estimate, std_error."""
        parts: dict[str, list[Any]] = {name: [] for name in ("quantity", "row", "column", "estimate", "std_error")}
        for name in quantities:
            if name not in NAMES:
                raise ValueError(f"quantities are {', '.join(map(repr, NAMES))}; got {name!r}")
            if name == "shift" and self.point.tau is None:
                continue  # without means there is no common mean to measure a shift from
            for block, error in self.std_errors(name, scaling):
                rows, columns = self._labels(name, block)
                parts["quantity"] += [name] * len(rows)
                parts["row"] += rows
                parts["column"] += columns
                parts["estimate"] += block.estimate.tolist()
                parts["std_error"] += error.tolist()
        text = {name: pd.Series(parts[name], dtype=object) for name in ("quantity", "row", "column")}
        numbers = {name: np.array(parts[name], dtype=float) for name in ("estimate", "std_error")}
        return self._finish(pd.DataFrame({**text, **numbers}))

    def _finish(self, table: pd.DataFrame) -> pd.DataFrame:
        notes = [self.note] if self.note else []
        if np.isinf(table["std_error"]).any():
            notes.append(NOT_IDENTIFIED)
        table.attrs["note"] = "; ".join(notes)
        return table

    def _labels(self, name: str, block: Block) -> tuple[list[Hashable], list[Hashable]]:
        model = self.fit.model
        if name in ("scale", "shift"):
            return [self.mechanisms[q][0] for q in block.rows], [self.mechanisms[q][1] for q in block.rows]
        columns = model.feature_names if name == "unmixing" else model.latents
        return [model.latents[i] for i in block.rows], [columns[j] for j in block.columns]

    def intervals(self, level: float = 0.95, scaling: str = "paper", quantities: Any = NAMES) -> pd.DataFrame:
        """The table with ``lower`` and ``upper``; variances and scales, which are positive, on the log scale."""
        return add_intervals(self.table(scaling, quantities), level)


def add_intervals(table: pd.DataFrame, level: float) -> pd.DataFrame:
    """``lower`` and ``upper`` beside ``estimate`` and ``std_error``; nothing where the error is not finite."""
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    z = stats.norm.ppf(0.5 + 0.5 * level)
    estimate, error = table["estimate"].to_numpy(), table["std_error"].to_numpy()
    error = np.where(np.isfinite(error), error, np.nan)
    positive = table["quantity"].isin(["scale", "noise_variance", "variance"]).to_numpy()
    half = z * error
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.exp(np.where(positive, half / estimate, 0.0))
    table["lower"] = np.where(positive, estimate / ratio, estimate - half)
    table["upper"] = np.where(positive, estimate * ratio, estimate + half)
    return table


def _warnings(fit: "Fit") -> Iterator[str]:
    """What makes standard errors doubtful."""
    if not fit.converged:
        yield NOT_CONVERGED
    few = [name for name, share in fit.details.get("shrinkage", {}).items() if share > SHRUNK]
    if few:
        listed = ", ".join(map(repr, few[:5])) + (", …" if len(few) > 5 else "")
        yield BORROWED.format(listed=listed, share=SHRUNK)


def point_of(fit: "Fit", means: bool) -> Point:
    """The fitted model as arrays; weights of contexts as in the likelihood."""
    model, latents = fit.model, list(fit.model.latents)
    d, counts = model.n_latents, np.array(fit.counts, dtype=float)
    edge = np.zeros((d, d), dtype=bool)
    for source, target in fit.graph.edges:
        edge[latents.index(target), latents.index(source)] = True
    own = np.diagonal(model.law().latent_covariance)
    rows, target, context, free, tau = [], [], [], [], []
    for k, value in enumerate(model.interventions.values(), start=1):
        for name, change in value.changes.items():
            i = latents.index(name)
            row, mask = np.zeros(d), np.zeros(d, dtype=bool)
            variance = model.noise_variance[i] if change.variance is None else change.variance
            row[i], mask[i] = 1.0, change.kind != "do"
            if change.kind == "soft":
                weights = model.weights[i] if change.weights is None else np.zeros(d)
                for parent, weight in (change.weights or {}).items():
                    weights[latents.index(parent)] = weight
                row -= weights
                mask |= edge[i]
            row /= np.sqrt(max(variance, DO_SHARE * own[i]))
            rows.append(row)
            target.append(i)
            context.append(k)
            free.append(mask)
            tau.append(change.shift * row[i])
    return Point(
        model.structural(),
        np.array(rows),
        np.array(target, dtype=np.intp),
        np.array(context, dtype=np.intp),
        edge,
        np.array(free),
        counts if means else np.maximum(counts - 1.0, 1.0),
        np.array(tau) if means else None,
    )


def remainder(model: LatentModel) -> np.ndarray:
    """W (r − d, p): what the latents leave of the features, white, in the control (and in every context)."""
    if model.residual is None:
        return np.zeros((0, model.n_features))
    covariance = model.covariance()
    H = model.unmixing
    latent = H.T @ np.linalg.solve(model.law().latent_covariance, H)
    w, V = np.linalg.eigh(symmetrize(pseudo_inverse(covariance) - latent))
    rest = scale_free_rank(covariance) - model.n_latents
    return np.asarray((V[:, len(w) - rest :] * np.sqrt(np.maximum(w[len(w) - rest :], 0.0))).T)


def context_means(data: Samples, model: LatentModel) -> np.ndarray:
    """Mean of the features in each context, (K+1, p)."""
    sums, counts = np.zeros((len(model.contexts), model.n_features)), np.zeros(len(model.contexts))
    for k, X in context_blocks(data, model.contexts, model.n_features):
        sums[k] += X.sum(axis=0)
        counts[k] += len(X)
    return np.asarray(sums / counts[:, None])
