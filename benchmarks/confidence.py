"""Is a probability of .95 right in 95 %? Edges, relations and the most probable graph, on models that were not chosen.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/confidence.py [--models 100] [--seed 100000] [--quick]
    .venv/bin/python benchmarks/confidence.py --draw docs/_static/confidence.png --json RUN.json [RUN.json …]

Every cell draws its own models (`simulate.random_model`), samples moments and fits with all defaults. Standard errors
of shares of edges are between models, since the edges of one model are right or wrong together.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import time
import warnings
from itertools import pairwise

import networkx as nx
import numpy as np

import latentdag as ld
from latentdag.errors import LatentDAGWarning

#: Convention, latents, features, density, samples per context, share of the models asked for.
CELLS = [
    ("text", 5, 10, 0.5, 100, 1.0),
    ("text", 5, 10, 0.5, 200, 1.0),
    ("text", 5, 10, 0.5, 500, 1.0),
    ("text", 5, 10, 0.5, 2_500, 1.0),
    ("figures", 5, 10, 0.5, 100, 1.0),
    ("figures", 8, 8, 0.5, 200, 0.5),
    ("text", 8, 8, 0.3, 500, 0.5),
    ("text", 12, 15, 0.15, 200, 0.5),
    ("text", 12, 15, 0.15, 500, 0.5),
    ("text", 20, 20, 0.1, 500, 0.2),
]

#: Bins of probability in the reliability table.
BINS = (0.001, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0001)


def one(cell, seed):
    """Fit one model and return what was claimed and what is true."""
    convention, d, p, density, n, _ = cell
    rng = np.random.default_rng([seed, d, n])
    truth = ld.simulate.random_model(d, p, density, convention, rng)
    m = ld.simulate.sample_moments(truth, n, rng)
    start = time.process_time()
    fit = ld.fit(m)
    seconds = time.process_time() - start
    true = {(c(truth, u), c(truth, v)) for u, v in truth.graph.edges}
    before = {(c(truth, u), c(truth, v)) for u, v in nx.transitive_closure_dag(truth.graph).edges}
    edges = fit.edges()
    called = {(row.source, row.target) for row in edges.itertuples() if row.q_value < 0.05}
    relations = set(fit.partial_order(0.95).edges)
    return {
        "called": len(called),
        "false": len(called - true),
        "edges": len(true),
        "relations": len(relations),
        "wrong": len(relations - before),
        "before": len(before),
        "exact": set(fit.graph.edges) == true,
        "shd": ld.metrics.shd(truth, fit),
        "listed": [(probability, (u, v) in true) for u, v, probability in fit.details["probability"]],
        "explored": fit.details["explored"],
        "seconds": seconds,
    }


def c(truth, latent):
    """The context that targets a latent, by which fits name it."""
    return next(context for context, name in truth.targets.items() if name == latent)


def ratio(top, bottom):
    """A ratio of sums over models with its standard error between models."""
    top, bottom = np.asarray(top, dtype=float), np.asarray(bottom, dtype=float)
    if not bottom.sum():
        return "   –         "
    share = top.sum() / bottom.sum()
    return f"{share:.3f} ± {np.sqrt(np.square(top - share * bottom).sum()) / bottom.sum():.3f}"


def report(cell, runs):
    """Print one cell."""
    column = {name: np.array([run[name] for run in runs]) for name in runs[0] if name != "listed"}
    sure = [[true for probability, true in run["listed"] if probability >= 0.95] for run in runs]
    every = np.ones(len(runs))
    shares = [
        ratio(column["false"], column["called"]),
        ratio(column["called"] - column["false"], column["edges"]),
        ratio([sum(s) for s in sure], [len(s) for s in sure]),
        ratio(column["wrong"] == 0, every),
        ratio(column["relations"] - column["wrong"], column["before"]),
        ratio(column["exact"], every),
    ]
    convention, d, p, density, n, _ = cell
    print(
        f"{convention:8s}{d:3d}{p:3d}{density:5.2f}{n:6d}{len(runs):5d}  {'  '.join(shares)}  "
        f"{column['explored'].mean():.2f}  {column['seconds'].mean():.2f}",
        flush=True,
    )


def reliability(runs):
    """Print mean probability and share of true edges, bin by bin; return the rows."""
    rows = []
    for low, high in pairwise(BINS):
        inside = [[(p, t) for p, t in run["listed"] if low <= p < high] for run in runs]
        count = [len(x) for x in inside]
        if sum(count):
            mean = sum(p for x in inside for p, _ in x) / sum(count)
            rows.append((mean, ratio([sum(t for _, t in x) for x in inside], count), sum(count)))
            print(f"   {mean:.3f}   {rows[-1][1]}   {sum(count)}")
    return rows


def draw(files, path):
    """Draw reliability of all edges, and power against false discoveries cell by cell."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cells = {}
    for name in files:
        with open(name) as file:
            cells |= json.load(file)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    left.plot([0, 1], [0, 1], color="0.7", lw=1)
    runs = [listed for cell in cells.values() for listed in cell]
    for low, high in pairwise(BINS):
        inside = [[(p, t) for p, t in listed if low <= p < high] for listed in runs]
        count = np.array([len(x) for x in inside])
        hits = np.array([sum(t for _, t in x) for x in inside])
        if count.sum():
            share = hits.sum() / count.sum()
            error = np.sqrt(np.square(hits - share * count).sum()) / count.sum()
            mean = sum(p for x in inside for p, _ in x) / count.sum()
            left.errorbar(mean, share, 2 * error, fmt="o", color="C0", capsize=3)
    left.set(xlabel="probability of an edge", ylabel="share that exist", title=f"{len(runs)} fits, ± 2 standard errors")
    for name, cell in cells.items():
        convention, d, _, _, n = name.split()
        listed = sorted(((p, t) for one in cell for p, t in one), reverse=True)
        true = np.cumsum([t for _, t in listed])
        false = 1 - true / np.arange(1, len(listed) + 1)
        least = sum(p >= 0.5 for p, _ in listed)
        style = "--" if convention == "figures" else "-"
        right.plot(false[:least], true[:least] / max(true[-1], 1), style, label=f"{convention}, d = {d}, n = {n}")
    right.axvline(0.05, color="0.7", lw=1)
    right.set(xlim=(0, 0.3), ylim=(0, 1.02), xlabel="false among the edges called", ylabel="true edges called")
    right.set_title("most probable edges first, down to ½")
    right.legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--only", type=int, nargs="*", help="cells by number")
    parser.add_argument("--json", nargs="+", help="write to the first what the figure of the docs is drawn from")
    parser.add_argument("--draw", help="draw that figure from files written before, and do nothing else")
    parser.add_argument("--quick", action="store_true", help="4 models a cell, first four cells")
    options = parser.parse_args()
    if options.draw:
        return draw(options.json, options.draw)
    warnings.simplefilter("ignore", LatentDAGWarning)
    print(f"seed {options.seed}, one thread; shares ± standard error between models")
    print(
        "convention d  p dens     n models  false at q<.05  true edges called  true at P≥.95   relations all true  "
        "relations found  graph exact     explored  CPU s"
    )
    cells = CELLS[:4] if options.quick else [CELLS[i] for i in options.only] if options.only else CELLS
    everything, by_cell = [], {}
    for cell in cells:
        models = 4 if options.quick else max(4, round(cell[-1] * options.models))
        runs = [one(cell, options.seed + s) for s in range(models)]
        report(cell, runs)
        everything += runs
        by_cell[" ".join(map(str, cell[:5]))] = [run["listed"] for run in runs]
    print("\nreliability, all cells: mean probability, share true, edges")
    reliability(everything)
    if options.json:
        with open(options.json[0], "w") as file:
            json.dump(by_cell, file)
    return None


if __name__ == "__main__":
    main()
