"""The power of every edge of a screen, and the cells that a power needs."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from latentdag.core.planning import power as power_of
from latentdag.data.checks import check_probability
from latentdag.design.assumed import FEWEST_CELLS, Assumed
from latentdag.design.rivals import can_search, searched
from latentdag.errors import LatentDAGWarning, clear_numerics
from latentdag.methods.fitting import fit as fit_moments
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.model.simulate import sample_moments

#: Cells of all contexts beyond which nobody plans.
MOST_CELLS = 10**9

#: Power of the strongest edge in a known graph below which a search finds nothing.
BARELY = 0.3

#: Probabilities nearer to zero or one than this count as this near.
SURE = 1e-6

#: Normal quantile of the lower end of a weight: the true one is larger with probability .9.
LOWER = float(stats.norm.ppf(0.9))

GIVEN = "power is that of a known graph: the fit was given one"
NO_RIVALS = (
    "power is that of a known graph: what a search adds is not predicted where features are noisy or not all "
    "interventions are perfect; measure it with simulate=50"
)
OUT_OF_REACH = "no number of cells gives {listed} a power of {power:g}: the pilot leaves open whether there is an edge"


@clear_numerics
def power(
    fit_or_model: Fit | LatentModel,
    counts: Any,
    alpha: float = 0.05,
    *,
    searched: bool = True,
    simulate: int = 0,
    rng: Any = 0,
) -> pd.DataFrame:
    """Return how likely a new screen with these counts is to find each edge.

    Parameters
    ----------
    fit_or_model : Fit or LatentModel
        What is taken for true: a pilot, or an assumed model.
    counts : int, or mapping of context to cells
        Of the new screen, the control included; the pilot's own cells are not part of it.
    alpha : float
        An edge is found if ``fit.edges()`` gives it ``q_value`` of at most this; of a known graph, if its own test is
        significant at this level.
    searched : bool
        Whether the new screen's graph has to be searched, too. False: it is known, and only weights are tested.
    simulate : int
        Draw so many screens and fit each, instead of predicting what fits will say: slower, and no approximation.
    rng : seed or Generator of the draws

    Returns
    -------
    DataFrame
        source, target, weight (between latents of unit variance), power, half_width (of the 95 % interval of that
        weight, for alpha = .05) and ``lower``, the power if the true weight lies at the lower end of what a pilot
        leaves open (it lies above with probability .9); with ``simulate`` std_error instead. ``.attrs`` has
        ``p_order`` and ``p_graph``, the probability that order and graph come out right, ``counts`` and ``note``. A
        pilot's weights are shrunk, because edges that were found look larger than they are, and its power is the
        average over what it leaves open. Where no number of cells tells a weight, power is zero and the half-width
        infinite.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(3, 6, density=1, convention="text", rng=3)
    >>> power(truth, 400)[["source", "target", "power"]].round(1)
      source target  power
    0     c2     c3    0.1
    1     c2     c1    0.5
    2     c3     c1    1.0
    """
    assumed = Assumed.of(fit_or_model)
    check_probability("alpha", alpha)
    cells = assumed.counts(counts)
    if simulate:
        return _simulated(assumed, cells, alpha, simulate, rng)
    return predicted(assumed, cells, alpha, searched)


def predicted(assumed: Assumed, counts: Mapping[Any, int], alpha: float, search: bool) -> pd.DataFrame:
    """Return the table of :func:`power` without drawing anything."""
    (w, doubt), at_model = assumed.shrunk, assumed.edges["weight"].to_numpy()
    v = assumed.variances(counts.values())
    settled, notes, p_order, p_graph = np.ones(len(w)), [assumed.note], np.nan, np.nan
    if search and can_search(assumed.fit):
        said, p_order, p_graph = searched(assumed.fit, assumed.fit.model.moments(list(counts.values())), alpha)
        called = np.array([said[pair] for pair in assumed.pairs])
        settled = np.minimum(called / np.maximum(power_of(at_model, v, alpha), SURE), 1.0)
    elif search:
        notes.append(GIVEN if assumed.fit.options.graph is not None else NO_RIVALS)
    lower = np.maximum(np.abs(w) - LOWER * np.sqrt(doubt), 0.0)
    table = assumed.edges.reset_index(drop=True).assign(
        weight=w,
        power=settled * power_of(w, v, alpha, doubt),
        lower=settled * power_of(lower, v, alpha),
        half_width=stats.norm.isf(alpha / 2) * np.sqrt(v),
    )
    table.attrs = {
        "counts": dict(counts),
        "note": "; ".join(filter(None, notes)),
        "p_order": p_order,
        "p_graph": p_graph,
    }
    return table


def _simulated(assumed: Assumed, counts: Mapping[Any, int], alpha: float, draws: int, rng: Any) -> pd.DataFrame:
    """Return the table of :func:`power` as so many simulated screens show it."""
    fit, rng = assumed.fit, np.random.default_rng(rng)
    table = predicted(assumed, counts, alpha, False)
    found, order, graph = np.zeros((draws, len(table))), np.zeros(draws), np.zeros(draws)
    options = {name: value for name, value in fit.options.items() if name != "method"}
    for each in range(draws):
        m = sample_moments(fit.model, counts, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LatentDAGWarning)  # one screen in doubt is what is being counted
            one = fit_moments(m, progress=False, **options)
        edges = one.edges().set_index(["source", "target"])["q_value"]
        found[each] = [edges.get(pair, 1.0) <= alpha for pair in assumed.pairs]
        position = {name: i for i, name in enumerate(one.order)}
        order[each] = all(position[a] < position[b] for a, b in fit.graph.edges)
        graph[each] = set(one.graph.edges) == set(fit.graph.edges)
    share = found.mean(axis=0)
    table["power"], table["std_error"] = share, np.sqrt(share * (1 - share) / draws)
    table.attrs |= {"p_order": float(order.mean()), "p_graph": float(graph.mean()), "simulated": draws}
    return table.drop(columns="lower")


@clear_numerics
def samples_needed(
    fit_or_model: Fit | LatentModel,
    power: float = 0.8,
    *,
    alpha: float = 0.05,
    shares: Mapping[Any, float] | None = None,
    searched: bool = True,
) -> pd.DataFrame:
    """Return how many cells, in all contexts together, give each edge a power.

    Parameters
    ----------
    fit_or_model, alpha, searched
        As for :func:`power`.
    power : float
        Wanted, between alpha and one.
    shares : mapping of context to share, optional
        Of all cells, as from ``allocate``; by default all contexts get the same.

    Returns
    -------
    DataFrame
        source, target, weight, cells (infinite where no number is enough). ``.attrs`` has ``counts``, the cells of each
        context with which every edge that can have this power has it, rounded up, and ``note``.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(3, 6, density=1, convention="text", rng=3)
    >>> samples_needed(truth, 0.9, searched=False)["cells"].round(-1).tolist()
    [1010.0, 3650.0, 210.0]
    """
    assumed = Assumed.of(fit_or_model)
    check_probability("alpha", alpha)
    if not alpha < power < 1:
        raise ValueError(f"power is a probability between alpha = {alpha} and 1, got {power}")
    share = _shares(assumed, shares)
    tables = _grown(assumed, share, alpha, searched, power)
    totals = [sum(table.attrs["counts"].values()) for table in tables]
    cells = np.array([_crossing(totals, mine, power) for mine in np.array([each["power"] for each in tables]).T])
    table = tables[-1][["source", "target", "weight"]].assign(cells=cells)
    most = cells[np.isfinite(cells)].max(initial=0.0)
    far = [
        f"{a} → {b}"
        for (a, b), n, known in zip(assumed.pairs, cells, assumed.known, strict=True)
        if known > (n < np.inf)
    ]
    note = OUT_OF_REACH.format(listed=", ".join(far), power=power) if far else ""
    table.attrs = {"counts": _spread(most, share), "note": "; ".join(filter(None, (assumed.note, note)))}
    return table


@clear_numerics
def power_curve(
    fit_or_model: Fit | LatentModel,
    totals: Any = None,
    *,
    alpha: float = 0.05,
    shares: Any = None,
    searched: bool = True,
) -> pd.DataFrame:
    """Return power against cells: one row per edge and total of cells, with ``cells``, ``p_order`` and ``p_graph``.

    ``totals`` are numbers of cells in all contexts together; by default they double until every edge has power .95, or
    cannot have more. The rest is as for :func:`samples_needed`.
    """
    assumed = Assumed.of(fit_or_model)
    check_probability("alpha", alpha)
    share = _shares(assumed, shares)
    if totals is None:
        tables = _grown(assumed, share, alpha, searched, 0.95)
    else:
        tables = [predicted(assumed, _spread(total, share), alpha, searched) for total in totals]
    for table in tables:
        table["cells"] = sum(table.attrs["counts"].values())
        table["p_order"], table["p_graph"] = table.attrs["p_order"], table.attrs["p_graph"]
        table.attrs = {}
    return pd.concat(tables, ignore_index=True)


def _shares(assumed: Assumed, shares: Mapping[Any, float] | None) -> dict[Any, float]:
    """Return the share of each context, all together one."""
    given = assumed.matched(1.0 if shares is None else shares)
    for context, share in given.items():
        if not 0 < share < np.inf:
            raise ValueError(f"context {context!r}: a share of the cells is a positive number, got {share}")
    return {context: share / sum(given.values()) for context, share in given.items()}


def _spread(total: float, share: Mapping[Any, float]) -> dict[Any, int]:
    """Return whole counts of at least so many cells in these shares."""
    return {context: max(int(np.ceil(total * mine - 1e-9)), FEWEST_CELLS) for context, mine in share.items()}


def _grown(
    assumed: Assumed, share: Mapping[Any, float], alpha: float, search: bool, wanted: float
) -> list[pd.DataFrame]:
    """Return tables of power for totals that double, until every edge has what is wanted, or cannot have it."""

    def known(total: float) -> np.ndarray:
        v = assumed.variances(_spread(total, share).values())
        return power_of(assumed.shrunk[0], v, alpha, assumed.shrunk[1])

    total, in_reach, tables = 10.0 * len(share), known(MOST_CELLS) >= wanted, []
    while in_reach.any() and known(total).max() < BARELY:
        total *= 2.0
    while True:
        tables.append(predicted(assumed, _spread(total, share), alpha, search))
        if (tables[-1]["power"][in_reach] >= wanted).all() or total > MOST_CELLS:
            return tables
        total *= 2.0


def _crossing(totals: list[float], powers: np.ndarray, wanted: float) -> float:
    """Return the total at which the power is what is wanted: its normal quantile grows with the root of the total."""
    growing = np.maximum.accumulate(powers)
    if growing[-1] < wanted:
        return np.inf
    at = int(np.argmax(growing >= wanted))
    if at == 0:
        return totals[0]
    quantile = stats.norm.ppf(np.clip(growing, SURE, 1 - SURE))
    roots = np.sqrt(totals[at - 1 : at + 1])
    part = (stats.norm.ppf(wanted) - quantile[at - 1]) / (quantile[at] - quantile[at - 1])
    return float(max(roots[0] + part * (roots[1] - roots[0]), 0.0) ** 2)
