"""The default fit with many latents: time, score and edges, of two versions of the library on the same moments.

    .venv/bin/python benchmarks/many_latents.py [--old /path/to/another/src] [--quick]

Every fit runs in a fresh process on one BLAS thread, the versions in turns. Models are of convention "text" with
d = p = K and 2.5 parents on average. The score is the likelihood of the best graph less log(N)/2 nats an edge; the
table gives how much higher the new one is. Sizes from 300 on run with the new version only.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

#: Latents, samples per context, and how many models.
CELLS = [(83, 1_000, 2), (83, 20_000, 2), (150, 20_000, 1), (300, 20_000, 1)]
FIRST_SEED, OLD_UP_TO = 5000, 299


def fit(d, n, seed):
    """Fit one model; print what was found as JSON."""
    import numpy as np

    import latentdag as ld

    rng = np.random.default_rng([seed, d])
    truth = ld.simulate.random_model(d, d, 5 / (d - 1), "text", rng)
    m = ld.simulate.sample_moments(truth, n, rng)
    warnings.simplefilter("ignore")
    ld.fit(ld.simulate.sample_moments(ld.simulate.random_model(2, 2, 1.0, rng=0), 100, rng=0))  # imports
    began = time.process_time()
    found = ld.fit(m)
    seconds = time.process_time() - began
    began = time.process_time()
    found.edges()
    edges = time.process_time() - began if d < 200 else None
    true, got = set(truth.graph.edges), set(found.fitted_graph.edges)
    score = found.loglik - 0.5 * float(np.log(sum(found.counts))) * len(got)
    right = bool(ld.metrics.order_correct(truth, found))
    print(json.dumps([seconds, edges, score, len(true), len(true - got), len(got - true), right]))


def child(source, *cell):
    """Run one fit with one version in a fresh process; return what it found."""
    alone = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    call = [sys.executable, __file__, "--fit", *map(str, cell)]
    env = {**os.environ, **alone, "PYTHONPATH": str(source)}
    return json.loads(subprocess.run(call, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)


def line(name, found):
    """Return one row of the table."""
    seconds, tests, _, true, missed, extra, right = found
    later = "       –" if tests is None else f"{tests:8.1f}"
    edges = f"{true - missed:4d} of {true}, {extra:3d} others"
    return f"{name:4s} {seconds:8.1f} {later}   {edges}   {'yes' if right else 'no':3s}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", help="the other version's source, for example a git worktree's src")
    parser.add_argument("--quick", action="store_true", help="one model of 20 latents")
    parser.add_argument("--fit", nargs=3, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.fit:
        fit(*asked.fit)
        return
    here = Path(__file__).resolve().parents[1] / "src"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"seeds from {FIRST_SEED}; CPU seconds, one BLAS thread; commit {commit}")
    print("   d      n  seed        fit    edges()   edges                order right   score beyond the old")
    for d, n, models in [(20, 5_000, 1)] if asked.quick else CELLS:
        for seed in range(FIRST_SEED, FIRST_SEED + models):
            new = child(here, d, n, seed)
            old = child(asked.old, d, n, seed) if asked.old and d <= OLD_UP_TO else None
            if old:
                print(f"{d:4d} {n:6d} {seed:5d}  {line('old', old)}")
            gained = f"{new[2] - old[2]:16.2f}" if old else ""
            print(f"{d:4d} {n:6d} {seed:5d}  {line('new', new)} {gained}", flush=True)
    print(f"load of the machine at the end {os.getloadavg()[0]:.1f} of 2 cores")


if __name__ == "__main__":
    main()
