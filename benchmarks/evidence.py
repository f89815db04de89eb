"""How often the order is right: the likeliest one against the one with most evidence, on the same draws.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/evidence.py [--models 200] [--seed 1] [--quick]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse

import numpy as np

import latentdag as ld
from latentdag import metrics
from latentdag.core import search

USUAL = (0.25, 1.0)
CELLS = [
    # convention, latents, density, samples in each context, sizes of the weights
    ("figures", 4, 0.5, 300, USUAL),
    ("figures", 5, 0.75, 1_000, USUAL),
    ("figures", 5, 0.75, 2_500, USUAL),
    ("text", 3, 0.75, 300, USUAL),
    ("text", 4, 0.4, 300, USUAL),
    ("text", 5, 0.75, 300, USUAL),
    ("text", 6, 0.3, 1_000, USUAL),
    ("text", 5, 0.75, 1_000, USUAL),
    ("text", 5, 0.75, 2_500, USUAL),
    ("figures", 5, 0.75, 10_000, (0.05, 0.3)),
    ("text", 5, 0.75, 10_000, (0.05, 0.3)),
    ("figures", 5, 0.75, 1_000, (0.0, 0.6)),
    ("text", 5, 0.75, 1_000, (1.0, 3.0)),
]


def cell(convention, d, density, n, sizes, models, seed):
    """Fraction of orders right by likelihood and by evidence, and in how many models only one of them is."""
    near, right = search.NEAR_ORDERS, np.zeros((models, 2), dtype=bool)
    for s in range(models):
        rng = np.random.default_rng([seed, d, s])
        truth = ld.simulate.random_model(d, 2 * d, density, convention, rng, weight_range=sizes)
        m = ld.simulate.sample_moments(truth, n, rng)
        for column, search.NEAR_ORDERS in enumerate((0.0, near)):
            right[s, column] = metrics.order_correct(truth, ld.fit(m))
    only = (right[:, 0] & ~right[:, 1]).sum(), (right[:, 1] & ~right[:, 0]).sum()
    rates = right.mean(axis=0)
    print(
        f"{convention:8s} {d:3d} {density:8.2f} {n:7d}  {sizes[0]:4.2f} to {sizes[1]:4.2f}  {rates[0]:10.3f} "
        f"{rates[1]:9.3f}  {only[0]:10d} {only[1]:9d}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="10 models a cell, the three cheapest")
    options = parser.parse_args()
    models = 10 if options.quick else options.models
    print(f"order right; {models} models a cell, seed {options.seed}, one thread")
    print("convention d  density       n  |weights|     likelihood  evidence   only first    second")
    for values in CELLS[:1] + CELLS[3:5] if options.quick else CELLS:
        cell(*values, models, options.seed)


if __name__ == "__main__":
    main()
