"""CPU time of every method against the number of latents and features, one thread, one run.

Prints seconds, growth exponents in d, and at (d, p) = (83, 83) the time of a literal transcription of the paper's
algorithm on the same moments.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/speed.py [--quick]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import statistics
import sys
import time

import numpy as np

import latentdag as ld
from latentdag import metrics

from literal import iterative_difference_projection_finite_sample as literal

SEED = 83
SAMPLES = 10**5
METHODS = ("projection", "closed-form", "likelihood")


def problem(d, p, convention):
    rng = np.random.default_rng([SEED, d, p])
    truth = ld.simulate.random_model(d, p, density=min(0.75, 4 / d), convention=convention, rng=rng)
    return truth, ld.simulate.sample_moments(truth, SAMPLES, rng)


def seconds_of(function, *args, **kwargs):
    """CPU seconds, and the answer; the median of nine for what takes less than half a second."""
    spent, answer = [], None
    while not spent or (spent[0] < 0.5 and len(spent) < 9):
        start = time.process_time()
        answer = function(*args, **kwargs)
        spent.append(time.process_time() - start)
    return statistics.median(spent), answer


def run_literal(m):
    """From moments, like the other methods: pseudo-inverses, then the paper's algorithm word by word."""
    return literal(np.array([np.linalg.pinv(S, rcond=1e-11, hermitian=True) for S in m.covariances]))


def main(quick):
    sizes = [(5, 10), (10, 20)] if quick else [(5, 10), (10, 20), (20, 40), (40, 40), (40, 200), (83, 83)]
    print(f"n = {SAMPLES:,} per context, about two parents per latent, seed {SEED}; CPU seconds, one thread")
    print(
        "convention   d    p  "
        + "".join(f"{name:>12s}" for name in METHODS)
        + "     literal   order right (likelihood)"
    )
    for convention in ("figures", "text"):
        times = {name: [] for name in METHODS}
        for d, p in sizes:
            truth, m = problem(d, p, convention)
            ld.fit(m, method="closed-form")  # warm up
            for name in METHODS:
                spent, fit = seconds_of(ld.fit, m, method=name)
                times[name].append(spent)
            text = f"{convention:8s} {d:5d} {p:4d}  " + "".join(f"{times[name][-1]:12.3f}" for name in METHODS)
            if (d, p) in ((83, 83), (10, 20)):
                try:
                    spent = seconds_of(run_literal, m)[0]
                    text += f"{spent:12.2f} = {spent / times['closed-form'][-1]:.0f} closed forms"
                except np.linalg.LinAlgError as error:
                    text += f"  died ({error})"
            print(text, "  ", "yes" if metrics.order_correct(truth, fit) else "no", flush=True)
        square = [i for i, (d, p) in enumerate(sizes) if p <= 2 * d]
        for name in METHODS:
            slope = np.polyfit(np.log([sizes[i][0] for i in square]), np.log([times[name][i] for i in square]), 1)[0]
            print(f"{convention:8s} {name}: growth exponent in d {slope:.2f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
