"""Is an edge that is in 95 % of the replicates of a bootstrap there? And what does a replicate cost?

    .venv/bin/python benchmarks/calibration_bootstrap.py [--models 40] [--replicates 40] [--cells d5n200]

Models are the held-out ones ("text" convention): d = 5, p = 10, density .5; d = 8, p = 10, density .5; d = 12, p = 15,
density .15. Model s has the seed 100000 + s and its data [100000 + s, n]; nothing was tuned on them. "False / seen" are
edges in at least 95 % of the replicates (of the fit or not), and how many of them the true graph does not have; the
standard error is over models. Every edge of the fit counts in the row "in the fit". The cost of a replicate is its CPU
time, draw included, over that of the fit it starts from, in one process and one thread.
"""

import argparse
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
import warnings

import numpy as np

import latentdag as ld

FIRST = 100_000
SHAPES = {5: (10, 0.5), 8: (10, 0.5), 12: (15, 0.15)}
CELLS = {f"d{d}n{n}": (d, n) for d, sizes in ((5, (200, 500, 2_500)), (8, (500,)), (12, (500,))) for n in sizes}


def one(seed, d, n, replicates, source):
    """Return the edges' frequencies, whether each is true and in the fit, the number of true ones, and the price."""
    p, density = SHAPES[d]
    truth = ld.simulate.random_model(d, p, density, convention="text", rng=seed)
    m = ld.simulate.sample_moments(truth, n, rng=[seed, n])
    began = time.process_time()
    fit = ld.fit(m)
    middle = time.process_time()
    table = ld.bootstrap(m, replicates, source=source, fit=fit, rng=seed).edges
    price = (time.process_time() - middle) / replicates / (middle - began)
    true = [edge in truth.graph.edges for edge in zip(table["source"], table["target"], strict=True)]
    return (
        table["frequency"].to_numpy(),
        np.array(true, bool),
        table["in_fit"].to_numpy(),
        len(truth.graph.edges),
        price,
    )


def ratio(counts):
    """Sum of the first column over that of the second, and its standard error over models (linearised)."""
    a, b = np.array(counts, float).T
    share = a.sum() / max(b.sum(), 1)
    return share, np.sqrt(np.sum((a - share * b) ** 2)) / max(b.sum(), 1)


def cell(name, models, replicates, source):
    """Print one cell."""
    d, n = CELLS[name]
    found = [one(FIRST + s, d, n, replicates, source) for s in range(models)]
    print(f"d = {d}, n = {n}, source = {source!r}: {models} models, {replicates} replicates each")
    cases = {"in the fit": [(f >= 0, fitted) for f, _, fitted, _, _ in found]}
    for low, high in ((0.05, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        label = "seen in ≥ 95 %" if high > 1 else f"{low:.0%} to {high:.0%}"
        cases[label] = [((f >= low) & (f < high),) * 2 for f, *_ in found]
    for label, masks in cases.items():
        counts = [(np.sum(a & b & ~t), np.sum(a & b)) for (a, b), (_, t, *_) in zip(masks, found, strict=True)]
        hits = sum(seen - false for false, seen in counts) / max(sum(total for *_, total, _ in found), 1)
        share, error = ratio(counts)
        false, seen = np.sum(counts, axis=0)
        print(f"  {label:18s}{false:5d} /{seen:5d} false = {share:.3f} ± {error:.3f}; share of true edges {hits:.2f}")
    prices = [price for *_, price in found]
    print(f"  a replicate costs {np.mean(prices):.2f} fits (at most {np.max(prices):.2f})", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--source", choices=["model", "moments"], default="model")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.cells:
        cell(name, options.models, options.replicates, options.source)
