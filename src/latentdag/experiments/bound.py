"""How accurate any unbiased estimator can be at best: the Cramér–Rao bound on a true model (MATH.md 3.5)."""

import networkx as nx
import numpy as np

from latentdag.methods.options import Options
from latentdag.methods.result import Fit, named_graph
from latentdag.model.model import LatentModel


def as_fit(truth: LatentModel, counts: tuple[int, ...], means: bool = False) -> Fit:
    """A true model as if it had been fitted to so many samples: its standard errors are the bound.

    ``means=False`` is the bound for second moments alone, which is what the paper's data hold.
    """
    order = list(nx.lexicographical_topological_sort(truth.graph))
    model = truth.rescaled("paper").reordered(order[::-1])
    return Fit(
        model,
        tuple(order),
        named_graph(model, model.graph.edges),
        float("nan"),
        counts,
        options=Options(means=means),
    )


def cramer_rao(truth: LatentModel, n: int) -> dict[str, float]:
    """Root of the bound on E‖Ĥ − H‖² and E‖B̂_0 − B_0‖², for n samples per context and the true graph known.

    Rows of H are scaled by the entry that is largest in the *true* row: the paper's own scaling jumps where two entries
    nearly tie, and no bound covers that.

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
    table = as_fit(truth, (int(n),) * len(truth.contexts)).uncertainty().table(quantities=("unmixing", "structural"))
    squares = (table["std_error"] ** 2).groupby(table["quantity"]).sum()
    return {name: float(np.sqrt(squares[name])) for name in ("unmixing", "structural")}
