"""Moments of a million cells from disk: memory, rate, and how both grow.

First, rates in memory on one thread, as CPU seconds of fresh processes that take turns: this source tree, another one
(``--before PATH/TO/src``, such as an earlier commit), and a plain ``X.T @ X`` in float64 in each of them.

Then it writes float32 cells to zarr, and measures

* peak memory of the streaming process (VmHWM of a fresh process), against contexts × features² × 8 bytes;
* its floating-point rate as a share of that of a plain ``X.T @ X`` on blocks of the same data, just before and after;
* csr at 5 % density against turning all of it into dense blocks;
* the time of half the cells against all of them.

    .venv/bin/python benchmarks/moments.py [--rows 1000000] [--folder /tmp] [--before ../earlier/src]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr
from scipy import sparse

from latentdag import stream
from latentdag.data import accumulate, prepare

FEATURES = 2000
CONTEXTS = 50
CHUNK = 2000
SEED = 5
TURNS = 5

#: Rows, features, share of values that are not zero, type.
SHAPES = {
    "dense f64, p = 20": (1_000_000, 20, 1.0, "f8"),
    "dense f64, p = 100": (300_000, 100, 1.0, "f8"),
    "dense f32, p = 500": (100_000, 500, 1.0, "f4"),
    "dense f64, p = 500": (100_000, 500, 1.0, "f8"),
    "dense f64, p = 2000": (20_000, 2000, 1.0, "f8"),
    "csr 5 %, p = 500": (80_000, 500, 0.05, "f4"),
    "csr 2 %, p = 2000": (30_000, 2000, 0.02, "f4"),
}


def cpu_seconds():
    """CPU seconds of moments and of a plain product for every shape, as JSON on stdout; run with some tree's code."""
    found = {}
    for name, (n, p, share, dtype) in SHAPES.items():
        rng = np.random.default_rng(SEED)
        if share == 1:
            X = (rng.standard_normal((n, p), dtype=np.float32) + 5).astype(dtype)
        else:
            X = sparse.random(n, p, share, format="csr", dtype=np.float32, random_state=rng)
        labels = rng.integers(8, size=n)
        began = time.process_time()
        stream.moments(X, labels, 0)
        ours = time.process_time() - began
        dense = X.astype(float) if share == 1 else X.toarray().astype(float)
        began = time.process_time()
        dense.T @ dense
        found[name] = ours, time.process_time() - began
    print(json.dumps(found))


def rates_part(before):
    """Rates of two source trees as shares of a plain product, in turns."""
    trees = {"now": str(Path(stream.__file__).parents[2])} | ({"before": before} if before else {})
    found = {tree: [] for tree in trees}
    for _ in range(TURNS):
        for tree, source in trees.items():
            environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "--cpu-seconds"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            found[tree].append(json.loads(done.stdout))
    print(f"\nCPU seconds on one thread, medians of {TURNS} turns; share: plain float64 X.T @ X / moments")
    print(f"{'':<20s} {'plain':>7s} " + " ".join(f"{tree:>8s} {'share':>6s}" for tree in trees) + "  now / before")
    for name in SHAPES:
        plain = statistics.median(turn[name][1] for turns in found.values() for turn in turns)
        spent = {tree: statistics.median(turn[name][0] for turn in turns) for tree, turns in found.items()}
        cells = " ".join(f"{seconds:8.3f} {plain / seconds:6.0%}" for seconds in spent.values())
        print(f"{name:<20s} {plain:7.3f} {cells} {spent['now'] / spent.get('before', np.nan):13.2f}", flush=True)


def labels_of(rows):
    return np.random.default_rng([SEED, 1]).integers(CONTEXTS, size=rows)


def write(path, rows):
    """Correlated float32 cells with means apart from zero."""
    rng = np.random.default_rng(SEED)
    mix = rng.normal(size=(20, FEATURES)).astype(np.float32)
    array = zarr.create_array(str(path), shape=(rows, FEATURES), chunks=(CHUNK, FEATURES), dtype="float32")
    step = 10 * CHUNK
    for start in range(0, rows, step):
        n = min(step, rows - start)
        block = rng.standard_normal((n, FEATURES), dtype=np.float32)
        block += rng.standard_normal((n, 20), dtype=np.float32) @ mix
        array[start : start + n] = block + 5


def flops(rows):
    """Of a symmetric product, multiplications and additions."""
    return rows * FEATURES * (FEATURES + 1)


def plain_rate(dtype, rows=20_000, times=2):
    """Best rate of X.T @ X (numpy makes it a symmetric product too), in flops per second."""
    X = np.random.default_rng(0).standard_normal((rows, FEATURES)).astype(dtype)
    best = np.inf
    for _ in range(times):
        began = time.perf_counter()
        X.T @ X
        best = min(best, time.perf_counter() - began)
    return flops(rows) / best


def in_fresh_process(path, rows):
    """Seconds and peak memory of one streaming pass, imports left out of the seconds."""
    code = (
        "import json, sys, time; sys.path.insert(0, sys.argv[1])\n"
        "import zarr, moments as b; from latentdag import stream\n"
        "path, rows = sys.argv[2], int(sys.argv[3]); X = zarr.open(path, mode='r')\n"
        "from latentdag.data.sources.reader import ArrayReader\n"
        "class Part(ArrayReader):\n"
        "    def __init__(self, X, labels): super().__init__(X, labels); self.n_rows = rows\n"
        "began = time.perf_counter()\n"
        "m = stream.moments(Part(X, b.labels_of(rows)), None, 0)\n"
        "spent = time.perf_counter() - began\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n"
        "print(json.dumps([spent, int(status['VmHWM'].split()[0]) * 1024, int(m.counts.sum())]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(path), str(rows)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak, counted = json.loads(done.stdout)
    assert counted == rows
    return seconds, peak


def dense_part(folder, rows):
    path = folder / "cells.zarr"
    began = time.perf_counter()
    write(path, rows)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    print(f"written: {rows:,} × {FEATURES:,} float32, {size / 1e9:.1f} GB on disk, {time.perf_counter() - began:.0f} s")
    matrices = CONTEXTS * FEATURES**2 * 8
    print("\n     cells  seconds  GFlop/s  plain f64  share  plain f32  share  peak GiB  beyond K·p²·8")
    spent = {}
    for n in (rows // 2, rows):
        before = plain_rate(np.float64), plain_rate(np.float32)
        seconds, peak = in_fresh_process(path, n)
        after = plain_rate(np.float64), plain_rate(np.float32)
        double, single = ((a + b) / 2 for a, b in zip(before, after, strict=True))
        rate, spent[n] = flops(n) / seconds, seconds
        print(
            f"{n:10,d} {seconds:8.1f} {rate / 1e9:8.1f} {double / 1e9:10.1f} {rate / double:6.0%} {single / 1e9:10.1f} "
            f"{rate / single:6.0%} {peak / 2**30:9.2f} {(peak - matrices) / 2**30:10.2f} GiB",
            flush=True,
        )
    print(f"all cells took {spent[rows] / spent[rows // 2]:.2f} times as long as half of them")


def sparse_part(rows, density):
    rng = np.random.default_rng(SEED)
    per_row = int(density * FEATURES)
    indices = np.concatenate([rng.choice(FEATURES, per_row, replace=False) for _ in range(2000)])
    indices = np.tile(indices, -(-rows // 2000))[: rows * per_row].astype(np.int32)
    data = rng.integers(1, 20, size=len(indices)).astype(np.float32)
    X = sparse.csr_matrix((data, indices, np.arange(0, len(indices) + 1, per_row)), shape=(rows, FEATURES))
    labels = labels_of(rows)
    seconds = {}
    for name, below in (("sparse products", 1.0), ("dense blocks", 0.0)):
        default, accumulate_below = prepare.SPARSE_BELOW, below
        prepare.SPARSE_BELOW = accumulate_below
        began = time.perf_counter()
        found = stream.moments(X, labels, 0)
        seconds[name] = time.perf_counter() - began
        prepare.SPARSE_BELOW = default
        seconds.setdefault("trace", found.covariances.trace(axis1=1, axis2=2).sum())
        assert abs(found.covariances.trace(axis1=1, axis2=2).sum() / seconds["trace"] - 1) < 1e-10
    chosen = "sparse" if density < accumulate.SPARSE_BELOW else "dense"
    print(
        f"{density:8.0%} {rows:10,d} {seconds['sparse products']:16.1f} {seconds['dense blocks']:13.1f} "
        f"{seconds['dense blocks'] / seconds['sparse products']:8.1f}  {chosen}",
        flush=True,
    )


def main(rows, sparse_rows, parent, before):
    print(
        f"{CONTEXTS} contexts, {FEATURES:,} features, seed {SEED}; {os.cpu_count()} cores shared with other work, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    rates_part(before)
    print()
    folder = Path(tempfile.mkdtemp(prefix="latentdag-moments-", dir=parent))
    try:
        dense_part(folder, rows)
    finally:
        shutil.rmtree(folder)
    print(f"\n{'density':>8s} {'cells':>10s} {'sparse products':>16s} {'dense blocks':>13s} {'faster':>8s}  chosen")
    for density in (0.02, 0.05, 0.1):
        sparse_part(sparse_rows, density)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--sparse-rows", type=int, default=200_000)
    options.add_argument("--folder", default=None)
    options.add_argument("--before", help="another tree's src, to compare with")
    options.add_argument("--cpu-seconds", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.cpu_seconds:
        cpu_seconds()
    else:
        main(given.rows, given.sparse_rows, given.folder, given.before)
