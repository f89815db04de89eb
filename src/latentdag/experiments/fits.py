"""One fit and how far it is from the truth, as plain values."""

from typing import Any

import numpy as np

from latentdag.data.moments import Moments
from latentdag.experiments.base import Row
from latentdag.methods.fitting import fit
from latentdag.methods.result import Fit
from latentdag.model import metrics
from latentdag.model.model import LatentModel


def attempt(m: Moments, method: str, **options: Any) -> tuple[Fit | None, str]:
    """A fit, or why there is none: off the model and with few samples a method may give up, and that is a result."""
    try:
        return fit(m, method, **options), ""
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, f"{type(error).__name__}: {error}"


def error_row(truth: LatentModel, found: Fit | None, failure: str = "") -> Row:
    """The paper's three measures, and ones that do not jump; None where there is no fit.

    ``order_correct`` is the paper's: all targets agree after matching over S(G).
    """
    row: Row = dict.fromkeys(
        (
            "order_correct", "unmixing_error", "structural_error", "unmixing_error_fixed", "structural_error_fixed",
            "correlation", "shd", "converged",
        )
    )  # fmt: skip
    row["failure"] = failure
    if found is None:
        return row
    return row | {
        "order_correct": bool(metrics.targets_correct(truth, found) == 1.0),
        "unmixing_error": metrics.unmixing_error(truth, found),
        "structural_error": metrics.structural_error(truth, found),
        "unmixing_error_fixed": metrics.unmixing_error(truth, found, "truth-index"),
        "structural_error_fixed": metrics.structural_error(truth, found, "truth-index"),
        "correlation": float(metrics.latent_correlations(truth, found).mean()),
        "shd": metrics.shd(truth, found),
        "converged": bool(found.converged),
    }
