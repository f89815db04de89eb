"""Order and graph right, by number of latents: is the ninth latent any different from the eighth?

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/sizes.py [--models 100] [--seed 1] [--quick]

Only public names are called, so that two versions of the library can be compared on the same draws: run it once with
each on PYTHONPATH. A row is one kind of model; every version sees the same models and moments.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time

import numpy as np

import latentdag as ld

#: Latents, density of the graph, samples per context; share of the models asked for, since large ones are slow.
CELLS = [
    (5, 0.75, 1_000, 1.0),
    (6, 0.3, 1_000, 1.0),
    (8, 0.5, 1_000, 0.5),
    (9, 0.5, 1_000, 1.0),
    (10, 0.6, 1_000, 1.0),
    (12, 0.3, 500, 1.0),
    (12, 0.5, 2_500, 0.5),
    (16, 0.2, 1_000, 0.5),
    (20, 0.2, 1_000, 0.3),
]


def cell(convention, d, density, n, models, seed):
    """Print how often the order and the graph are right, with standard errors, and the CPU time of a fit."""
    order, graph, seconds = [], [], []
    for s in range(models):
        rng = np.random.default_rng([seed, d, round(100 * density), s])
        truth = ld.simulate.random_model(d, d, density, convention, rng)
        m = ld.simulate.sample_moments(truth, n, rng)
        start = time.process_time()
        fit = ld.fit(m)
        seconds.append(time.process_time() - start)
        order.append(ld.metrics.order_correct(truth, fit))
        graph.append(ld.metrics.shd(truth, fit) == 0)
    shares = [f"{np.mean(x):6.3f} ± {np.sqrt(np.mean(x) * (1 - np.mean(x)) / models):.3f}" for x in (order, graph)]
    row = (
        f"{convention:8s} {d:3d} {density:5.2f} {n:6d} {models:6d}   {shares[0]}  {shares[1]}  {np.mean(seconds):8.3f}"
    )
    print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="4 models a cell, up to nine latents")
    options = parser.parse_args()
    print(f"seed {options.seed}, one thread")
    print("convention d density   n    models   order right      graph right     CPU s a fit")
    for d, density, n, share in CELLS[:4] if options.quick else CELLS:
        for convention in ("figures", "text"):
            models = 4 if options.quick else max(1, round(share * options.models))
            cell(convention, d, density, n, models, options.seed)


if __name__ == "__main__":
    main()
