"""How time and memory grow with the number of latents and features, beside the paper's K²p³.

Moments of 100,000 samples per context, about two parents per latent. One sweep grows latents, contexts and features
together, where the paper's bound K²p³ has exponent 5; the other only features, where it has 3. Exponents are slopes on
logarithmic scales from d = 20 or p = 50 on, of medians over models. Seconds are of one processor core; memory is the
most that a fit holds beyond its data. The paper's algorithm is measured in the implementation here, which gives the
same answer with fewer operations than the bound counts.

Time is that of the processor, on one thread. Memory is measured in a second run, since watching memory takes time.
"""

import time
import tracemalloc
from typing import Any

import numpy as np
import pandas as pd

from latentdag import metrics, simulate
from latentdag.experiments import Cell, Experiment, Outcome, Row, Settings, Table, attempt, figure, share_legend, tidy
from latentdag.experiments.draw import Figures, number_ticks
from latentdag.experiments.fits import METHODS
from latentdag.experiments.synthetic import CURVES

SAMPLES = 100_000

#: Sizes of the two sweeps, and the largest d of each method: it decides how long the experiment takes.
LATENTS = (5, 10, 20, 40, 80, 150, 300)
FEATURES = (10, 20, 50, 100, 200, 400)
LARGEST = {"projection": 300, "closed-form": 300, "likelihood": 80}
FIXED_LATENTS = 10

#: The paper's exponents, by sweep.
PAPER = {"latents": 5, "features": 3}

#: Exponents are fitted to sizes from here on: smaller ones measure the interpreter.
LARGE = {"latents": 20, "features": 50}


def cells(settings: Settings) -> list[dict[str, Any]]:
    latents, features = (LATENTS[:1], FEATURES[:1]) if settings.quick else (LATENTS, FEATURES)
    sizes = [{"sweep": "latents", "d": d, "p": d} for d in latents]
    sizes += [{"sweep": "features", "d": FIXED_LATENTS, "p": p} for p in features]
    made = [{**cell.pop("size"), **cell} for cell in settings.grid(size=sizes, method=METHODS)]
    return [cell for cell in made if cell["d"] <= LARGEST[cell["method"]]]


def run(cell: Cell, shared: None) -> list[Row]:
    """Fit twice: once for the time, once for the memory."""
    d, p = cell["d"], cell["p"]
    rng = np.random.default_rng([cell["seed"], cell["model"], d, p])
    truth = simulate.random_model(d, p, density=min(0.75, 4 / d), rng=rng)
    m = simulate.sample_moments(truth, SAMPLES, rng)
    began = time.process_time()
    found, failure = attempt(m, cell["method"])
    seconds = time.process_time() - began
    tracemalloc.start()
    try:
        attempt(m, cell["method"])
        peak = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    scores: Row = {"order_correct": None, "correlation": None, "failure": failure}
    if found is not None:
        scores["order_correct"] = bool(metrics.order_correct(truth, found))
        scores["correlation"] = float(metrics.latent_correlations(truth, found).mean())
    data = m.covariances.nbytes / 2**20
    return [{**cell, **scores, "data_mb": data, "seconds": seconds, "peak_mb": peak}]


def exponent(sizes: np.ndarray, values: np.ndarray) -> float | None:
    """Return the slope on logarithmic scales; None for fewer than two sizes.

    Examples
    --------
    >>> round(exponent(np.array([10, 20, 40]), np.array([1.0, 8.0, 64.0])), 6)
    3.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0]) if len(set(sizes.tolist())) > 1 else None


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    growth: Table = []
    table: Table = []
    for (sweep, method), part in rows.groupby(["sweep", "method"], sort=False):
        axis = "d" if sweep == "latents" else "p"
        middle = part.groupby(axis)[["seconds", "peak_mb"]].median()
        large = middle[middle.index >= LARGE[sweep]]
        growth.append(
            {
                "sweep": "p = d = K" if sweep == "latents" else f"p, with d = {FIXED_LATENTS}",
                "method": method,
                "sizes": f"{large.index.min()} to {large.index.max()}" if len(large) else "–",
                "exponent of time": exponent(large.index.to_numpy(), large["seconds"].to_numpy()),
                "the paper's K²p³": PAPER[sweep],
                "exponent of memory": exponent(large.index.to_numpy(), large["peak_mb"].to_numpy()),
            }
        )
        for size, line in middle.iterrows():
            here = part[part[axis] == size]
            d, p, data = here[["d", "p", "data_mb"]].iloc[0]
            measured = {"seconds": line["seconds"], "peak memory (MB)": line["peak_mb"], "data (MB)": data}
            right = float(here["order_correct"].astype(float).mean())
            table.append({"method": method, "d": int(d), "p": int(p), **measured, "order right": right})
    return Outcome(_findings(table), {"Growth": growth, "All sizes": table})


def _findings(table: Table) -> list[str]:
    said = []
    for method in METHODS:
        largest = max((line for line in table if line["method"] == method), key=lambda line: line["d"])
        said.append(
            f"{CURVES[method]['label'].capitalize()}: d = p = {largest['d']} takes {largest['seconds']:.2g} s of one "
            f"core and {_megabytes(largest['peak memory (MB)'])} beyond the data ({_megabytes(largest['data (MB)'])})."
        )
    return said


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB" if value >= 10 else f"{value:.2g} MB"


def draw(rows: pd.DataFrame, settings: Settings) -> Figures:
    made = figure(9.5, 7.2)
    axes = made.subplots(2, 2)
    labels = {"latents": "d = p = K", "features": f"p, with d = K = {FIXED_LATENTS}"}
    for column, (sweep, label) in enumerate(labels.items()):
        part = rows[rows["sweep"] == sweep]
        axis = "d" if sweep == "latents" else "p"
        for ax, measure, title in (
            (axes[0, column], "seconds", "seconds of one core"),
            (axes[1, column], "peak_mb", "peak memory beyond the data (MB)"),
        ):
            middle = {method: fits.groupby(axis)[measure].median() for method, fits in part.groupby("method")}
            for method in METHODS:
                ax.plot(middle[method].index, middle[method], **{"marker": "o", **CURVES[method]})
            if measure == "seconds":
                _reference(ax, middle["projection"], PAPER[sweep])
            ax.set(xscale="log", yscale="log", xlabel=label, title=title)
            number_ticks(ax, sorted(part[axis].unique()))
            tidy(ax)
    share_legend(made, list(axes.flat), columns=4)
    return {"scaling": made}


def _reference(ax: Any, middle: pd.Series, power: int) -> None:
    """Draw the paper's growth through the first point, cut where it would dwarf what was measured."""
    x = middle.index.to_numpy(dtype=float)
    y = middle.iloc[0] * (x / x[0]) ** power
    shown = y < 100 * middle.max()
    ax.plot(x[shown], y[shown], color="#8a8a8a", ls="--", label="growth of K²p³")


STUDY = Experiment.of(
    __name__,
    "Time and memory",
    models=3,
    quick_models=1,
    chunk=1,
    timed=("seconds", "peak_mb"),
    command="python -m studies",
)
