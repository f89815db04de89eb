"""Algorithms 4–6: ours against a literal transcription, same input, same run, one BLAS thread.

Prints CPU times, their ratio, whether the answers agree, and growth exponents in d and in p fitted on our times.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/projection.py [--quick]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import sys
import time

import numpy as np

from latentdag.core.linalg import inverse, max_entry_scale, range_basis, symmetrize
from latentdag.core.projection import iterative_difference_projection_finite_sample as ours
from latentdag.model.simulate import random_model, sample_moments

from literal import iterative_difference_projection_finite_sample as literal

SEED = 20230601
SAMPLES = 10**6


def problem(d, p, seed):
    """Sample precision matrices of a random sparse model (about two parents per latent), full p × p."""
    rng = np.random.default_rng([SEED, d, p, seed])
    model = random_model(d, p, density=min(0.75, 4 / d), rng=rng)
    m = sample_moments(model, SAMPLES, rng)
    U = range_basis(m.pooled_covariance())
    Theta = [U @ inverse(symmetrize(U.T @ S @ U), k) @ U.T for k, S in enumerate(m.covariances)]
    return np.array(Theta)


def run_ours(Theta):
    """What ``ld.fit(m, method="projection")`` does with precision matrices: go to their range, then Algorithm 6."""
    U = range_basis(Theta[0])
    H, _, contexts, order = ours(np.array([symmetrize(U.T @ T @ U) for T in Theta]))
    H = H @ U.T
    return H / max_entry_scale(H)[:, None], np.argsort(contexts), order


def cpu(function, *args, repeats=1):
    """Best CPU time of a few runs, and the answer."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        answer = function(*args)
        best = min(best, time.process_time() - start)
    return best, answer


def compare(d, p):
    Theta = problem(d, p, 0)
    seconds, (H, target, order) = cpu(run_ours, Theta, repeats=3)
    literal_seconds, (H_lit, _, target_lit, order_lit) = cpu(literal, Theta)
    same = np.array_equal(target, target_lit) and np.array_equal(order, order_lit)
    gap = np.abs(H - H_lit).max()
    print(f"{d:4d} {p:4d} {literal_seconds:11.2f} {seconds:9.3f} {literal_seconds / seconds:7.0f}×  "
          f"{'same order and targets' if same else 'DIFFERENT'}, largest difference in H {gap:.1e}")  # fmt: skip


def exponent(sizes, seconds):
    return np.polyfit(np.log(sizes), np.log(seconds), 1)[0]


def growth(sizes, shape):
    return [cpu(run_ours, problem(*shape(size), 1), repeats=3)[0] for size in sizes]


def main(quick):
    pairs = [(10, 20), (20, 50)] if quick else [(10, 20), (20, 100), (40, 200), (83, 83)]
    print(f"n = {SAMPLES:,} samples per context, about two parents per latent, seed {SEED}; CPU seconds, one thread")
    print("   d    p     literal      ours   ratio")
    for d, p in pairs:
        compare(d, p)
    ds = [10, 20] if quick else [40, 60, 83, 120]
    seconds = growth(ds, lambda d: (d, d))
    print(f"growth in d (p = d = {ds}): exponent {exponent(ds, seconds):.2f}; the paper's K²p³ has 5")
    ps = [20, 40] if quick else [200, 400, 800]
    seconds = growth(ps, lambda p: (10 if quick else 40, p))
    print(f"growth in p (d = {10 if quick else 40}, p = {ps}): exponent {exponent(ps, seconds):.2f}; the paper's has 3")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
