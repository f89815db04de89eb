"""One fit and how far it is from the truth, as plain values; and how near any estimator can come.

The Cramér–Rao bound on a true model says how accurate any unbiased estimator can be at best (docs/math.md, section
Information and standard errors).
"""

from collections.abc import Callable, Iterable
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.data.moments import Moments
from latentdag.experiments.base import Row
from latentdag.methods.fitting import fit
from latentdag.methods.options import Options
from latentdag.methods.result import Fit, named_graph
from latentdag.model import metrics
from latentdag.model.model import LatentModel

#: Methods that every experiment on models compares, and what the row of the bound is called.
METHODS = ("projection", "closed-form", "likelihood")
BOUND = "Cramér–Rao bound"

#: What :func:`error_row` measures of a fit, given the truth.
MEASURES: dict[str, Callable[[LatentModel, Fit], Any]] = {
    "order_correct": lambda truth, found: bool(metrics.targets_correct(truth, found) == 1.0),
    "unmixing_error": metrics.unmixing_error,
    "structural_error": metrics.structural_error,
    "unmixing_error_fixed": lambda truth, found: metrics.unmixing_error(truth, found, "truth-index"),
    "structural_error_fixed": lambda truth, found: metrics.structural_error(truth, found, "truth-index"),
    "correlation": lambda truth, found: float(metrics.latent_correlations(truth, found).mean()),
    "shd": metrics.shd,
    "converged": lambda truth, found: bool(found.converged),
}


def attempt(m: Moments, method: str, **options: Any) -> tuple[Fit | None, str]:
    """Return a fit, or why there is none: off the model and with few samples a method may give up."""
    try:
        return fit(m, method, **options), ""
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return None, f"{type(error).__name__}: {error}"


def error_row(truth: LatentModel, found: Fit | None, failure: str = "") -> Row:
    """Return the paper's three measures, and ones that do not jump; None where there is no fit.

    ``order_correct`` is the paper's: all targets agree after matching over S(G).
    """
    measured = {name: None if found is None else measure(truth, found) for name, measure in MEASURES.items()}
    return {**measured, "failure": failure}


def error_rows(truth: LatentModel, m: Moments, n: int, more: Iterable[tuple[str, Fit]] = ()) -> list[Row]:
    """Return the errors of every method, of further fits by name, and the bound for n samples per context."""
    rows = [{"method": method, **error_row(truth, *attempt(m, method))} for method in METHODS]
    rows += [{"method": name, **error_row(truth, found)} for name, found in more]
    least = {f"{name}_error": value for name, value in cramer_rao(truth, n).items()}
    fixed = {f"{name}_fixed": value for name, value in least.items()}
    return [*rows, {"method": BOUND, **error_row(truth, None), **least, **fixed}]


def failures(rows: pd.DataFrame) -> int:
    """Return how many fits gave no answer."""
    return int((rows["failure"] != "").sum())


def cramer_rao(truth: LatentModel, n: int) -> dict[str, float]:
    """Return the root of the bound on E‖Ĥ − H‖² and E‖B̂_0 − B_0‖², for n samples per context and a known graph.

    The bound is for second moments alone, which is what the paper's data hold. Rows of H are scaled by the entry that
    is largest in the *true* row: the paper's own scaling jumps where two entries nearly tie, and no bound covers that.

    Returns
    -------
    dict with "unmixing" and "structural"

    Examples
    --------
    Four times the samples, half the error:

    >>> from latentdag import simulate
    >>> truth = simulate.random_model(rng=0)
    >>> few, many = cramer_rao(truth, 1_000), cramer_rao(truth, 4_001)
    >>> round(few["unmixing"] / many["unmixing"], 2)
    2.0
    """
    # the standard errors of the truth, taken for a fit to so many samples, are the bound
    order = list(nx.lexicographical_topological_sort(truth.graph))
    model = truth.rescaled("paper").reordered(order[::-1])
    graph, counts = named_graph(model, model.graph.edges), (int(n),) * len(truth.contexts)
    as_fit = Fit(model, tuple(order), graph, float("nan"), counts, options=Options(means=False))
    table = as_fit.uncertainty().table(quantities=("unmixing", "structural"))
    squares = (table["std_error"] ** 2).groupby(table["quantity"]).sum()
    return {name: float(np.sqrt(squares[name])) for name in ("unmixing", "structural")}
