"""Latents and patients: scores of samples that were measured elsewhere, and which of them go with survival.

A latent is a weighted sum of genes, and the weights hold for expression as the screen measured it. A cohort of tumours
comes from another machine, in other units and with another spread of every gene. What is done about it:

* genes are matched by name, and every gene of the model must be there;
* each gene is centred on the cohort's own mean, since "zero" means nothing across technologies (the paper does this);
* with ``scaling="control"``, the default, each gene is also brought to the standard deviation that it has among the
  screen's control cells, so that a gene counts as much in the cohort as it did in the fit. ``scaling="none"`` leaves
  the cohort's units, as the paper did: genes that vary a lot between patients then dominate, whatever their weight.

Either way a score says how far a patient leans along a direction that was learned in a cell line. That the same latent
exists in a tumour, mixed from the same genes, is an assumption that these data cannot test.

Survival is related to scores by Cox's proportional hazards, one score at a time, with a false-discovery rate over all.
The paper does this for every latent, and for every gene as the baseline. A score is put in
units of its standard deviation, so that hazard ratios of different scores can be compared: 1.3 means that patients one
deviation higher die at a rate 30 % higher at any time. p-values depend neither on that unit nor on a latent's sign.

An association is not an effect. Patients were not randomised to anything, and a score may stand for the stage of the
disease, the share of tumour cells in the sample, or age; pass such covariates where they are known.
"""

import warnings
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentdag.core.multiplicity import benjamini_hochberg
from latentdag.model.model import LatentModel
from latentdag.optional import optional

#: The paper's false-discovery rate.
ALPHA = 0.1

#: Columns of the table, in order.
COLUMNS = (
    "coef", "std_error", "hazard_ratio", "lower", "upper", "z", "p_value", "q_value", "significant",
    "proportional_p_value",
)  # fmt: skip


def cox_table(
    scores: pd.DataFrame,
    survival: pd.DataFrame,
    *,
    covariates: pd.DataFrame | None = None,
    alpha: float = ALPHA,
    level: float = 0.95,
) -> pd.DataFrame:
    """Fit one Cox regression per score.

    Parameters
    ----------
    scores : DataFrame, patients × scores
    survival : DataFrame with ``time`` and ``event``, the same patients
    covariates : DataFrame of numbers, optional
        In every regression beside the score.
    alpha : float
        False-discovery rate below which a score is marked significant.
    level : float
        Of the intervals of the hazard ratios.

    Returns
    -------
    DataFrame, one row per score in the order given
        ``coef`` (log hazard ratio per standard deviation of the score), ``std_error``, ``hazard_ratio`` with ``lower``
        and ``upper``, ``z``, ``p_value`` (Wald), ``q_value`` (Benjamini and Hochberg over all rows), ``significant``
        (``q_value < alpha``), and ``proportional_p_value``: small where the hazard ratio changes with time, so that one
        number does not describe it. Scores that do not vary, or whose regression does not converge, are ``nan``.
        ``.attrs`` has the numbers of patients and events.

    Raises
    ------
    ValueError
        If patients differ, times are not positive, events are not 0 and 1, or nobody died.
    """
    lifelines = optional("lifelines", "survival", "Cox regression")
    _check(scores, survival, covariates, alpha, level)
    if len(set(scores.columns)) < scores.shape[1]:
        raise ValueError("names of scores occur more than once: rename them")
    rows = [_one(lifelines, scores.iloc[:, j], survival, covariates, level) for j in range(scores.shape[1])]
    table = pd.DataFrame(rows, index=pd.Index(scores.columns, name="score"), columns=list(COLUMNS), dtype=float)
    table["q_value"] = benjamini_hochberg(table["p_value"].to_numpy(dtype=float))
    table["significant"] = table["q_value"] < alpha
    table = table[list(COLUMNS)]
    table.attrs = {"patients": len(scores), "events": int(survival["event"].sum()), "alpha": alpha, "level": level}
    return table


def _one(
    lifelines: Any, score: pd.Series, survival: pd.DataFrame, covariates: pd.DataFrame | None, level: float
) -> dict[str, float]:
    values = score.to_numpy(dtype=float)
    deviation = values.std(ddof=1)
    if not deviation > 1e-12 * max(np.abs(values).max(), 1e-300):
        return dict.fromkeys(COLUMNS, np.nan)
    table = pd.DataFrame({"score": (values - values.mean()) / deviation}, index=survival.index)
    if covariates is not None:
        table = table.join(covariates.add_prefix("covariate "))
    table["time"], table["event"] = survival["time"].to_numpy(dtype=float), survival["event"].to_numpy(dtype=int)
    fitter = lifelines.CoxPHFitter(alpha=1 - level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters of them shows in the table
            fitter.fit(table, "time", "event")
            proportional = lifelines.statistics.proportional_hazard_test(fitter, table, time_transform="rank")
    except (lifelines.exceptions.ConvergenceError, np.linalg.LinAlgError, ValueError):
        return dict.fromkeys(COLUMNS, np.nan)
    ends = {f"exp(coef) {end} {100 * level:g}%": end for end in ("lower", "upper")}
    names = {"se(coef)": "std_error", "exp(coef)": "hazard_ratio", "p": "p_value", **ends}
    found = fitter.summary.loc["score"].rename(names)
    return {**found, "proportional_p_value": float(np.ravel(proportional.summary.loc[["score"], "p"])[0])}


def _check(
    scores: pd.DataFrame, survival: pd.DataFrame, covariates: pd.DataFrame | None, alpha: float, level: float
) -> None:
    if not {"time", "event"} <= set(survival.columns):
        raise ValueError(f"survival needs the columns 'time' and 'event'; it has {list(survival.columns)}")
    for what, table in (("survival", survival), ("covariates", covariates)):
        if table is not None and not scores.index.equals(table.index):
            raise ValueError(f"scores and {what} are of different patients, or in another order: join them first")
    if not 0 < alpha < 1 or not 0 < level < 1:
        raise ValueError(f"alpha and level are probabilities between 0 and 1, got {alpha} and {level}")
    numbers = scores.to_numpy(dtype=float)
    if not np.isfinite(numbers).all():
        column = scores.columns[int(np.argmax(~np.isfinite(numbers).all(axis=0)))]
        raise ValueError(f"the score {column!r} is missing or infinite for some patients: drop or fill them in")
    time, event = survival["time"].to_numpy(dtype=float), survival["event"].to_numpy(dtype=float)
    if not (np.isfinite(time) & (time > 0)).all():
        raise ValueError(f"{int((~(time > 0)).sum())} patients have no positive time: drop them")
    if not np.isin(event, (0, 1)).all():
        raise ValueError(
            f"events are 1 (died) or 0 (alive when last seen); found {sorted(set(event) - {0.0, 1.0})[:5]}"
        )
    if event.sum() < 2:
        raise ValueError(f"{int(event.sum())} events among {len(event)} patients: nothing can be compared")


def transfer_scores(
    model: LatentModel, expression: pd.DataFrame, scaling: Literal["control", "none"] = "control"
) -> pd.DataFrame:
    """Return latent scores (samples × latents) of another cohort, each with mean zero and standard deviation one.

    Parameters
    ----------
    model : LatentModel
    expression : DataFrame, samples × genes
        Named as the model's features, on the logarithmic scale; other genes are ignored.
    scaling : "control" or "none"
        See above.

    Raises
    ------
    ValueError
        If genes of the model are missing, do not vary or are not finite in the cohort.
    """
    if scaling not in ("control", "none"):
        raise ValueError(f"scaling must be 'control' or 'none', got {scaling!r}")
    missing = [name for name in model.feature_names if name not in expression.columns]
    if missing:
        raise ValueError(
            f"{len(missing)} of {model.n_features} genes of the model are not in the cohort, first {missing[0]!r}: "
            "choose genes among those of both (latentdag.workflow.choose(among=…))"
        )
    X = expression[list(model.feature_names)].to_numpy(dtype=float)
    if not np.isfinite(X).all():
        raise ValueError("expression of the second cohort has values that are missing or infinite: drop those samples")
    spread = X.std(axis=0, ddof=1)
    if not (spread > 0).all():
        raise ValueError(f"{model.feature_names[int(np.argmin(spread))]!r} does not vary in the second cohort: drop it")
    X = X - X.mean(axis=0)
    if scaling == "control":
        X = X / spread * np.sqrt(np.diagonal(model.covariance()))
    Z = X @ model.unmixing.T
    return pd.DataFrame(Z / Z.std(axis=0, ddof=1), index=expression.index, columns=list(model.latents))


def random_scores(expression: pd.DataFrame, n: int, rng: Any = None) -> pd.DataFrame:
    """Return scores (samples × n) of random mixtures of genes: latents of a fit that had learned nothing.

    Where many genes go with survival, most mixtures of them do too. A latent says something of its own only if it does
    better than these. Genes are standardised and weights are independent standard Gaussians.
    """
    X = expression.to_numpy(dtype=float)
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    Z = X @ np.random.default_rng(rng).normal(size=(X.shape[1], n))
    return pd.DataFrame(Z, index=expression.index, columns=[f"random {j + 1}" for j in range(n)])
