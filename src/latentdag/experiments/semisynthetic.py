"""The paper's semi-synthetic experiment: new data from a model that was fitted on data, and the fit of those.

New data from a model that was fitted on data: by default the paper's algorithm on simulated counts of the paper's size
(10 contexts, 100 genes, 1,000 cells each, log-normalised), with `--fit` any saved fit. Structural entries up to 0.04
are cut. The published fractions (stars) are for the paper's own data, so they are for orientation only: the model
behind them is another one.

The paper fits its algorithm to single-cell counts, sets entries of the structural matrices below 0.04 to zero and draws
new data from the result. Its data cannot be shipped; the counts here are simulated when they are needed. Structural
entries are smaller than those of the synthetic models, so samples go from a million to a hundred million; moments of
that many cost no more than of few.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data.moments import Moments
from latentdag.experiments.base import Cell, Experiment, Outcome, Row, Settings, Table, table_by
from latentdag.experiments.draw import WORDS, Figures, panels
from latentdag.experiments.fits import BOUND, METHODS, error_rows, failures
from latentdag.experiments.synthetic import CENTRES, CURVES, PANELS, accuracy
from latentdag.methods.fitting import fit
from latentdag.methods.result import Fit
from latentdag.model import simulate
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel

SAID = WORDS["semisynthetic"]
SIZES = tuple(SAID["sizes"])

#: Fraction of 50 datasets with all targets right, from the paper's data.
PUBLISHED = dict(zip(SIZES, SAID["published"], strict=True))

#: Entries of B_0 up to this size are set to zero, as in the paper.
THRESHOLD = 0.04

#: The paper's size: contexts, genes, and about as many cells per context.
CONTEXTS, GENES, CELLS = 10, 100, 1_000

#: Counts are scaled to this total per cell before the logarithm, as is usual.
TOTAL = 1e4

#: How much a gene's log-rate varies between cells, and the depth of sequencing (both standard deviations of logs).
BIOLOGY, DEPTH = 0.5, 0.3


def cells(settings: Settings) -> list[dict[str, Any]]:
    return settings.grid("dataset", n=SIZES[::4] if settings.quick else SIZES)


def generative_model(settings: Settings) -> LatentModel:
    fitted = default_model(settings.seed, settings.quick) if settings.fit is None else fitted_model(settings.fit)
    return truncated(fitted).rescaled("paper")


def default_model(seed: int, quick: bool = False) -> LatentModel:
    """Fit the paper's algorithm to simulated counts, log-normalised; deterministic, a few seconds."""
    counts, labels, control = simulated_counts(seed, *((4, 20, 500) if quick else (CONTEXTS, GENES, CELLS)))
    X = np.log1p(TOTAL * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    return fit(Moments.from_samples(X, labels, control=control), "projection").model


def simulated_counts(seed: int, contexts: int, genes: int, cells: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Simulate Poisson counts of cells whose log-rates follow a latent model with one context per latent.

    Returns
    -------
    counts : (N, genes) int
    labels : (N,) contexts
    control : label
    """
    rng = np.random.default_rng([seed, contexts, genes])
    truth = simulate.random_model(contexts, genes, density=0.4, convention="text", rng=rng)
    X, labels = simulate.sample(truth, cells, rng)
    log_rate = rng.normal(0.5, 1.0, genes) + BIOLOGY * X / np.sqrt(np.diagonal(truth.covariance()))
    depth = rng.lognormal(0.0, DEPTH, len(X))
    return rng.poisson(np.exp(log_rate) * depth[:, None]), labels, str(truth.control)


def fitted_model(path: Path) -> LatentModel:
    """Return the model of a saved fit.

    Raises
    ------
    ValueError
        If a latent is not the single target of exactly one perfect intervention: the paper's algorithm needs that.
    """
    model = Fit.load(path).model
    once = sorted(name for value in model.interventions.values() for name in value.targets) == sorted(model.latents)
    if not once or any(value.kind != "perfect" or len(value.targets) > 1 for value in model.interventions.values()):
        raise ValueError(
            f"{path}: data are generated for the paper's algorithm, so every latent must be the only target of one "
            "perfect intervention; fit one context per latent, with intervention='perfect'"
        )
    return model


def truncated(model: LatentModel, threshold: float = THRESHOLD) -> LatentModel:
    """Cut a model down to what generates data: no small entries of B_0, shifts of means or further dimensions.

    Examples
    --------
    >>> model = LatentModel(np.eye(2), [[0, 0.03], [0, 0]], [1, 1], {"k": Intervention("Z1", variance=2.0, shift=1.0)})
    >>> cut = truncated(model)
    >>> cut.graph.number_of_edges(), cut.interventions["k"]
    (0, Intervention('Z1', 'perfect', variance=2))
    """
    return replace(
        model,
        weights=np.where(np.abs(model.structural()) > threshold, model.weights, 0.0),
        interventions={
            context: Intervention(value.target, variance=value.changes[value.target].variance)
            for context, value in model.interventions.items()
        },
        offset=np.zeros(model.n_features),
        loadings=None,
        residual=None,
    )


def run(cell: Cell, truth: LatentModel) -> list[Row]:
    m = simulate.sample_moments(truth, cell["n"], rng=[cell["seed"], cell["dataset"], cell["n"]])
    size = {"latents": truth.n_latents, "features": truth.n_features, "edges": truth.graph.number_of_edges()}
    return [{**cell, **size, **row} for row in error_rows(truth, m, cell["n"])]


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    table = table_by(rows, ["method", "n"], {**accuracy("datasets", published=_published), "failed": failures})
    return Outcome(_findings(rows, table, settings), {"All methods": table})


def _published(part: pd.DataFrame) -> float | None:
    return PUBLISHED.get(part["n"].iloc[0]) if part["method"].iloc[0] == "projection" else None


def _findings(rows: pd.DataFrame, table: Table, settings: Settings) -> list[str]:
    source = "simulated counts" if settings.fit is None else settings.fit.name
    said = [SAID["model"].format(source=source, row=rows.iloc[0])]
    for n in (rows["n"].min(), rows["n"].max()):
        right = {line["method"]: line["order correct"] for line in table if line["n"] == n}
        said.append(SAID["right"].format(n=n, right=right))
    return said


def draw(rows: pd.DataFrame, settings: Settings) -> Figures:
    return {
        f"semisynthetic-{centre}": panels(
            rows,
            {**PANELS, "order_correct": "all targets right (fraction of datasets, ± 2 s.e.)"},
            {name: CURVES[name] for name in (*METHODS, BOUND)},
            centre=centre,
            marks={"order_correct": PUBLISHED} if settings.fit is None else {},
            marked="published, of another model",
            title=f"{words} {settings.models} datasets",
        )
        for centre, words in CENTRES.items()
    }


EXPERIMENT = Experiment.of(
    __name__, "Semi-synthetic data", models=50, quick_models=3, chunk=4, shared=generative_model, unit="dataset"
)
