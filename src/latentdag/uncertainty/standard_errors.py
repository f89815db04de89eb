"""Compute standard errors and intervals of every number in a fit.

The information depends on the fitted model, its graph and the counts, not on the data, so Gaussian standard errors need
no second pass. With the samples at hand, the sandwich ``C J C`` (J the covariance of the samples' scores) holds for any
noise. docs/math.md, section "Information and standard errors", has the formulas, and the arithmetic is in three steps:
:mod:`latentdag.core.jacobian` (a point and its information), :mod:`latentdag.core.covariance` (the inverse) and
:mod:`latentdag.core.quantities` (values and gradients of what users ask about).

Standard errors hold at the maximum of the likelihood, for the graph as it stands: nothing in them knows that the graph
was chosen from the same data. What the data do not determine has an infinite standard error, and no interval.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.linalg import block_diag

from latentdag.core.covariance import ParameterCovariance, score_covariance
from latentdag.core.factors import noise_precision
from latentdag.core.jacobian import Point
from latentdag.core.likelihood import Noise, Span
from latentdag.core.linalg import pseudo_inverse, scale_free_rank, symmetrize
from latentdag.core.quantities import NAMES, POWERS, Block, Quantities
from latentdag.core.small_samples import degrees_of_freedom, models_nearby, without_winners_curse
from latentdag.data import labels as lb
from latentdag.data.checks import check_probability
from latentdag.data.stream import Samples, context_blocks
from latentdag.model.model import LatentModel

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

#: A latent that is set to a value keeps this share of its variance: as good as none, and still a density.
DO_SHARE = 1e-8

#: More parameters than this, and the samples' scores no longer fit in memory.
MOST_PARAMETERS = 12_000

#: Quantities that are positive: their intervals are symmetric in the logarithm.
POSITIVE = ("scale", "noise_variance", "feature_noise", "variance")

#: A context that takes more than this share of its covariance from the others does so visibly.
SHRUNK = 0.1

#: Scores are held this many numbers at a time.
BLOCK = 2**23

#: Variance of a background factor, in units of the noise, below which it is rounding.
BACKGROUND = 1e-9

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
    """Know how well a fit knows its parameters.

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
        self.point, H, W = point_of(fit, fit.options.means), fit.model.unmixing, remainder(fit.model)
        if fit.model.feature_noise is not None:
            self.point, H, W = noisy_point_of(fit.model, self.point)
        self.quantities = Quantities(self.point, H, W, shown=fit.model.n_latents)
        if fit.method != "likelihood":
            self.note = NOT_MAXIMUM.format(method=fit.method)
        else:
            self.covariance = ParameterCovariance(self.point, len(W), None if data is None else self._scores(data, W))

    def _scores(self, data: Samples, W: np.ndarray) -> np.ndarray:
        """Return the covariance of the samples' scores."""
        size = self.point.size + self.point.n_outer * len(W)
        if size > MOST_PARAMETERS:
            raise ValueError(
                f"the model has {size} parameters, whose scores need {8e-9 * size**2:.0f} GB; at most "
                f"{MOST_PARAMETERS} are possible: use fewer features (the latents leave {len(W)} dimensions), or leave "
                "out data= for Gaussian standard errors"
            )
        return score_covariance(self.point, self._blocks(data, W, max(1, BLOCK // size)))

    def _blocks(self, data: Samples, W: np.ndarray, step: int) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
        """Yield context, latents and remainder of some samples at a time."""
        model = self.fit.model
        centers = np.tile(model.offset, (len(model.contexts), 1))
        if self.point.tau is None:  # every context has a mean of its own
            centers = context_means(data, model)
        for k, X in context_blocks(data, model.contexts, model.n_features):
            for start in range(0, len(X), step):
                x = X[start : start + step] - centers[k]
                yield k, x @ self.quantities.H.T, x @ W.T if len(W) else None

    def table(self, scaling: str = "paper", quantities: Any = NAMES) -> pd.DataFrame:
        """Return one row per number: quantity, row, column, estimate, std_error (``nan`` away from the maximum)."""
        lines: list[tuple[Any, ...]] = []
        for name in self._known(quantities):
            for block in self.quantities.blocks(name, scaling):
                error = np.full(len(block.rows), np.nan)
                if self.covariance is not None:
                    error = np.sqrt(self.covariance.variance(block.gradient))
                lines += zip(repeat(name), *self._labels(name, block), block.estimate.tolist(), error.tolist())
        columns = ["quantity", "row", "column", "estimate", "std_error"]
        table = pd.DataFrame(lines, columns=columns, dtype=object).astype({"estimate": float, "std_error": float})
        notes = [self.note, NOT_IDENTIFIED if np.isinf(table["std_error"]).any() else ""]
        table.attrs["note"] = "; ".join(filter(None, notes))
        return table

    def _known(self, quantities: Any) -> list[str]:
        """Return those quantities that the fit has: shifts need a common mean, noise of features noisy ones."""
        for name in quantities:
            if name not in NAMES:
                raise ValueError(f"quantities are {', '.join(map(repr, NAMES))}; got {name!r}")
        left_out = {"shift"} if self.point.tau is None else set()
        left_out |= {"feature_noise"} if self.point.noise is None else set()
        return [name for name in quantities if name not in left_out]

    def _labels(self, name: str, block: Block) -> tuple[list[Hashable], list[Hashable]]:
        """Return the names of a block's rows and columns."""
        model = self.fit.model
        if name in ("scale", "shift"):
            return [self.mechanisms[q][0] for q in block.rows], [self.mechanisms[q][1] for q in block.rows]
        if name == "feature_noise":
            return [model.feature_names[i] for i in block.rows], [model.feature_names[i] for i in block.columns]
        columns = model.feature_names if name == "unmixing" else model.latents
        return [model.latents[i] for i in block.rows], [columns[j] for j in block.columns]

    def intervals(self, level: float = 0.95, scaling: str = "paper", quantities: Any = NAMES) -> pd.DataFrame:
        """Return the table with ``lower`` and ``upper``; variances and scales, which are positive, on the log scale.

        They allow for errors of the standard errors and, in the paper's scaling, for the choice of the largest entry,
        so that the estimate need not lie in the middle (docs/math.md, Intervals from few samples).
        """
        table = self.table(scaling, quantities)
        if self.covariance is None or not len(table):
            return add_intervals(table, level)
        kept = self._known(quantities)
        factor, center = np.ones(len(table)), table["estimate"].to_numpy()
        if scaling == "paper":
            factor, center = self._without_winners_curse(kept)
        near = models_nearby(self.quantities, self.covariance)
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.array([_log_errors(moved, C, kept, scaling) for moved, C in near]).reshape(-1, len(table))
            dof = np.where(np.isfinite(errors).all(axis=0), degrees_of_freedom(errors), np.inf)
        found = add_intervals(table.assign(estimate=center, std_error=factor * table["std_error"]), level, dof)
        return table.assign(lower=found["lower"], upper=found["upper"])

    def _without_winners_curse(self, names: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the factor of every number's error, and the number, once the largest entries are not too large."""
        assert self.covariance is not None
        q, p = self.quantities, self.quantities.H.shape[1]
        rows = (self.covariance.matrix(q.along(np.full(p, i), np.eye(p))) for i in range(q.point.d))
        H = np.array([without_winners_curse(h, V) for h, V in zip(q.H, rows, strict=True)])
        at = np.arange(len(H)), q.pivot
        scale, ratio = np.abs(H[at]), H[at] / q.H[at]
        factors, centers = [np.empty(0)], [np.empty(0)]
        for name in names:
            row, column = POWERS[name]
            for block in q.blocks(name, "paper"):
                i, j = block.rows, block.columns
                # rows of "scale" and "shift" are mechanisms, columns of "unmixing" features: neither has a power
                factors.append((ratio[i] ** row if row else 1.0) * (ratio[j] ** column if column else np.ones(len(j))))
                centers.append(H[i, j] / scale[i] if name == "unmixing" else factors[-1] * block.estimate)
        return np.concatenate(factors), np.concatenate(centers)


def _log_errors(q: Quantities, covariance: ParameterCovariance, names: Any, scaling: str) -> np.ndarray:
    """Return the logarithms of all standard errors at another point; of positive numbers, of the relative errors."""
    found = []
    for name in names:
        for block in q.blocks(name, scaling):
            size = np.abs(block.estimate) if name in POSITIVE else 1.0
            found.append(0.5 * np.log(covariance.variance(block.gradient)) - np.log(size))
    return np.concatenate([*found, []])


def add_intervals(table: pd.DataFrame, level: float, dof: "np.ndarray | float" = np.inf) -> pd.DataFrame:
    """Add ``lower`` and ``upper`` beside ``estimate`` and ``std_error``; nothing where the error is not finite.

    With ``dof`` degrees of freedom of the errors, the intervals are Student's.
    """
    check_probability("level", level)
    t = stats.t.ppf(0.5 + 0.5 * level, dof)
    estimate, error = table["estimate"].to_numpy(), table["std_error"].to_numpy()
    error = np.where(np.isfinite(error), error, np.nan)
    positive = table["quantity"].isin(POSITIVE).to_numpy()
    half = t * error
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.exp(np.where(positive, half / estimate, 0.0))
    table["lower"] = np.where(positive, estimate / ratio, estimate - half)
    table["upper"] = np.where(positive, estimate * ratio, estimate + half)
    return table


def _warnings(fit: "Fit") -> Iterator[str]:
    """Yield what makes standard errors doubtful."""
    if not fit.converged:
        yield NOT_CONVERGED
    few = [name for name, share in fit.details.get("shrinkage", {}).items() if share > SHRUNK]
    if few:
        yield BORROWED.format(listed=lb.listed(few, 5), share=SHRUNK)


def point_of(fit: "Fit", means: bool) -> Point:
    """Return the fitted model as arrays; weights of contexts as in the likelihood.

    Free entries are the weights of the graph's edges, and of the intervened rows what their kind leaves to estimate:
    nothing if "do", the own entry if "perfect", that and the parents' weights if "soft". A strength that was told as an
    interval counts as uniform in it.
    """
    model, own = fit.model, np.eye(fit.model.n_latents, dtype=bool)
    at, counts = {name: i for i, name in enumerate(model.latents)}, np.array(fit.counts, dtype=float)
    edge = np.zeros_like(own)
    for source, target in fit.fitted_graph.edges:
        edge[at[target], at[source]] = True
    smallest = DO_SHARE * np.diagonal(model.law().latent_covariance)
    rows, target, context, free, tau = [*model.structural()], [], [], [*edge], [0.0] * len(own)
    kept, widths = [], []
    for k, (label, value) in enumerate(model.interventions.items(), start=1):
        law = model.law(label)
        for name, change in value.changes.items():
            i = at[name]
            rows.append((own[i] - law.weights[i]) / np.sqrt(max(law.noise_variance[i], smallest[i])))
            target.append(i)
            context.append(k)
            free.append((own[i] & (change.kind != "do")) | (edge[i] & (change.kind == "soft")))
            tau.append(change.shift * rows[-1][i])
            kept.append(1.0 - change.strength)
            widths.append(np.ptp((fit.options.strength or {}).get(label, 1.0)))
    unsure = any(widths)
    return Point(
        np.array(rows),
        np.array(target, dtype=np.intp),
        np.array(context, dtype=np.intp),
        np.array(free),
        counts if means else np.maximum(counts - 1.0, 1.0),
        np.array(tau) if means else None,
        tied=np.array(kept) if unsure or any(kept) else None,
        strength_sd=np.array(widths) / np.sqrt(12) if unsure else None,
    )


def noisy_point_of(model: LatentModel, point: Point) -> tuple[Point, np.ndarray, np.ndarray]:
    """Return the point of a model of noisy features, background factors included, their unmixing and the remainder.

    Background factors are latents of unit variance without causes or effects, after all others.
    """
    psi, d = model.feature_noise, point.d
    assert psi is not None
    assert model.residual is not None
    eigenvalues, U = np.linalg.eigh((model.residual - np.diag(psi)) / np.sqrt(psi) / np.sqrt(psi)[:, None])
    extra = eigenvalues > BACKGROUND
    G = np.hstack([model.mixing, np.sqrt(psi)[:, None] * U[:, extra] * np.sqrt(eigenvalues[extra])])
    r, q = G.shape[1], len(point.target)
    Q, R = np.linalg.qr(G / np.sqrt(psi)[:, None])
    H = np.linalg.solve(R, Q.T) / np.sqrt(psi)
    rows, free, tau = np.zeros((r + q, r)), np.zeros((r + q, r), dtype=bool), None
    rows[:d, :d], rows[r:, :d], rows[d:r, d:] = point.rows[:d], point.rows[d:], np.eye(r - d)
    free[:d, :d], free[r:, :d] = point.free[:d], point.free[d:]
    if point.tau is not None:
        tau = np.concatenate([point.tau[:d], np.zeros(r - d), point.tau[d:]])
    wide = replace(point, rows=rows, free=free, tau=tau)
    # the latents' covariances and means in the coordinates of Q
    latents = R @ wide.B_inv
    C = latents @ wide.D_inv @ wide.D_inv.transpose(0, 2, 1) @ latents.T
    means = wide.delta @ latents.T
    means = means - point.n @ means / point.n.sum()
    precision, span, J = noise_precision(point.n, Q, C, (means.T * (point.n / point.n.sum())) @ means)
    directions = np.einsum("ip,jp->pij", H * psi, H)
    N = np.repeat(np.linalg.inv(R.T @ R)[None], len(point.n), axis=0)
    R_inv = np.linalg.inv(R)
    beside = np.linalg.qr(Q, mode="complete")[0][:, r:].T / np.sqrt(psi)
    known = Span(block_diag(R_inv @ span @ R_inv.T, point.n.sum()), R.T @ J @ R, H, beside, psi)
    return replace(wide, noise=Noise(N, directions, precision, known)), H, beside


def remainder(model: LatentModel) -> np.ndarray:
    """Return W (r − d, p): what the latents leave of the features, white, in the control (and in every context)."""
    if model.basis is not None:
        return remainder(model.in_dimensions()) @ model.basis.W
    if model.residual is None:
        return np.zeros((0, model.n_features))
    covariance = model.covariance()
    H = model.unmixing
    latent = H.T @ np.linalg.solve(model.law().latent_covariance, H)
    w, V = np.linalg.eigh(symmetrize(pseudo_inverse(covariance) - latent))
    rest = scale_free_rank(covariance) - model.n_latents
    return np.asarray((V[:, len(w) - rest :] * np.sqrt(np.maximum(w[len(w) - rest :], 0.0))).T)


def context_means(data: Samples, model: LatentModel) -> np.ndarray:
    """Return the mean of the features in each context, (K+1, p)."""
    sums, counts = np.zeros((len(model.contexts), model.n_features)), np.zeros(len(model.contexts))
    for k, X in context_blocks(data, model.contexts, model.n_features):
        sums[k] += X.sum(axis=0)
        counts[k] += len(X)
    return np.asarray(sums / counts[:, None])
