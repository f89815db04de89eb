"""How time and memory grow with the number of latents and features, beside the paper's K²p³.

Two sweeps: latents and features together (p = d = K, where the paper's bound grows with the fifth power), and features
alone (d = 10, where it grows with the third). Time is that of the processor, on one thread. Memory is the most that a
fit holds at once beyond its data, in a second run, since watching memory takes time.
"""

import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.experiments.base import Cell, Experiment, Outcome, Row, Settings
from latentdag.experiments.draw import Curve, figure, number_ticks, share_legend, tidy
from latentdag.experiments.fits import attempt
from latentdag.experiments.synthetic import CURVES
from latentdag.model import metrics, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 100_000
METHODS = ("projection", "closed-form", "likelihood")

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
    sizes = [("latents", d, d) for d in LATENTS[: 2 if settings.quick else None]]
    sizes += [("features", FIXED_LATENTS, p) for p in FEATURES[: 2 if settings.quick else None]]
    return [
        {"sweep": sweep, "d": d, "p": p, "method": method, "model": s, "seed": settings.seed}
        for sweep, d, p in sizes
        for method in METHODS
        if d <= LARGEST[method]
        for s in range(settings.models)
    ]


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
    right = None if found is None else bool(metrics.order_correct(truth, found))
    correlation = None if found is None else float(metrics.latent_correlations(truth, found).mean())
    data = m.covariances.nbytes / 2**20
    scores = {"order_correct": right, "correlation": correlation, "failure": failure}
    return [{**cell, **scores, "data_mb": data, "seconds": seconds, "peak_mb": peak}]


def exponent(sizes: np.ndarray, values: np.ndarray) -> float | None:
    """Slope on logarithmic scales; None for fewer than two sizes.

    Examples
    --------
    >>> round(exponent(np.array([10, 20, 40]), np.array([1.0, 8.0, 64.0])), 6)
    3.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0]) if len(set(sizes.tolist())) > 1 else None


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    growth, table = [], []
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
            table.append(
                {
                    "method": method,
                    "d": int(here["d"].iloc[0]),
                    "p": int(here["p"].iloc[0]),
                    "seconds": float(line["seconds"]),
                    "peak memory (MB)": float(line["peak_mb"]),
                    "data (MB)": float(here["data_mb"].iloc[0]),
                    "order right": float(here["order_correct"].astype(float).mean()),
                }
            )
    return Outcome(_findings(table), {"Growth": growth, "All sizes": table})


def _findings(table: list[dict[str, Any]]) -> list[str]:
    said = []
    for method in METHODS:
        largest = max((line for line in table if line["method"] == method), key=lambda line: line["d"])
        said.append(
            f"{CURVES[method].label.capitalize()}: d = p = {largest['d']} takes {largest['seconds']:.2g} s of one core "
            f"and {_megabytes(largest['peak memory (MB)'])} beyond the data ({_megabytes(largest['data (MB)'])})."
        )
    return said


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB" if value >= 10 else f"{value:.2g} MB"


def draw(rows: pd.DataFrame, settings: Settings) -> "dict[str, Figure]":
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
            for method in METHODS:
                middle = part[part["method"] == method].groupby(axis)[measure].median()
                _line(ax, middle, CURVES[method])
            if measure == "seconds":
                _reference(ax, part[part["method"] == "projection"].groupby(axis)[measure].median(), PAPER[sweep])
            ax.set(xscale="log", yscale="log", xlabel=label, title=title)
            number_ticks(ax, sorted(part[axis].unique()))
            tidy(ax)
    share_legend(made, list(axes.flat), columns=4)
    return {"scaling": made}


def _line(ax: Any, middle: pd.Series, curve: Curve) -> None:
    if len(middle):
        ax.plot(middle.index, middle, color=curve.colour, marker=curve.marker, label=curve.label)


def _reference(ax: Any, middle: pd.Series, power: int) -> None:
    """The paper's growth, through the first point; cut where it would dwarf what was measured."""
    x = middle.index.to_numpy(dtype=float)
    y = middle.iloc[0] * (x / x[0]) ** power
    shown = y < 100 * middle.max()
    ax.plot(x[shown], y[shown], color="#8a8a8a", ls="--", label="growth of K²p³")


EXPERIMENT = Experiment(
    name="scaling",
    title="Time and memory",
    question=(
        "Moments of 100,000 samples per context, about two parents per latent. One sweep grows latents, contexts and "
        "features together, where the paper's bound K²p³ has exponent 5; the other only features, where it has 3. "
        "Exponents are slopes on logarithmic scales from d = 20 or p = 50 on, of medians over models. Seconds are of "
        "one processor core; memory is the most that a fit holds beyond its data. The paper's algorithm is measured in "
        "the implementation here, which gives the same answer with fewer operations than the bound counts."
    ),
    models=3,
    quick_models=1,
    cells=cells,
    run=run,
    summarize=summarize,
    draw=draw,
    chunk=1,
    timed=("seconds", "peak_mb"),
)
