"""A screen end to end: counts of many perturbations, from a file on disk to moments in shared dimensions to a graph.

Counts are simulated a block at a time and written as csr to an .h5ad file: programs that act on each other, each behind
some hundred genes; perturbations that change one program each, in mean and variance, and a quarter that do nothing;
depths that differ. Then a fresh process reads the file with

    ld.stream.moments("screen.h5ad", "perturbation", "NT", counts=True, rank=30)

on one BLAS thread, tests every perturbation (``ld.changed``, without the rows), pools those of one program, and fits.
The table says how long each stage took, the peak of the process's memory (VmHWM), and what was found. At last it
measures the first pass
on dense data as a share of the rate of ``X.T @ X``, both in CPU seconds of one thread, in turns.

    .venv/bin/python benchmarks/scale.py [--contexts 2000 --features 8000 --rows 300000] [--folder /tmp]
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

import latentdag as ld
from latentdag.data import basis, passes, prepare
from latentdag.data.sources.reader import ArrayReader

SEED, PROGRAMS, IDLE = 3, 30, 0.25
GENES = 300  # of each program
MEAN_COUNTS = 0.08  # of a gene in a cell, on average
LOADING = 0.35
BLOCK = 1000
LABEL = 44  # characters
TURNS = 3
FIT_SECONDS = 300  # at most, unless --fit-seconds says otherwise


def screen(contexts):
    """Return the programs' model, and the program that each perturbation targets (None if it does nothing)."""
    rng = np.random.default_rng(SEED)
    A = np.tril(rng.uniform(0.4, 0.8, (PROGRAMS, PROGRAMS)) * rng.choice([-1, 1], (PROGRAMS, PROGRAMS)), -1)
    A *= rng.random((PROGRAMS, PROGRAMS)) < 2.0 / PROGRAMS
    target = [None if rng.random() < IDLE else int(k % PROGRAMS) for k in range(contexts)]
    hit = {f"g{k}": ld.Intervention(f"P{t}", variance=0.4, shift=1.0) for k, t in enumerate(target) if t is not None}
    names = [f"P{i}" for i in range(PROGRAMS)]
    model = ld.LatentModel(np.eye(PROGRAMS), A, np.full(PROGRAMS, 0.7), hit, names, "NT")
    return model, {f"g{k}": t for k, t in enumerate(target)}


def simulate(path, contexts, features, rows):
    """Write counts to an .h5ad file, a block of rows at a time."""
    import anndata
    import pandas as pd

    rng = np.random.default_rng(SEED + 1)
    model, target = screen(contexts)
    share = np.maximum(rng.gamma(1.0, size=features), 0.1)
    share *= MEAN_COUNTS / share.mean()
    L = np.zeros((PROGRAMS, features))
    for row in L:
        row[rng.choice(features, min(GENES, features // 5), replace=False)] = LOADING * rng.choice([-1, 1])
    labels = rng.choice(["NT"] * (contexts // 10) + list(target), size=rows)
    blocks = []
    for start in range(0, rows, BLOCK):
        here = labels[start : start + BLOCK]
        Z = np.empty((len(here), PROGRAMS))
        for label in np.unique(here):
            law = model.law(None if target.get(label) is None else label)
            noise = rng.normal(size=((here == label).sum(), PROGRAMS))
            Z[here == label] = law.latent_mean + noise @ law.noise_response.T
        rate = np.maximum(1 + Z @ L, 0.05) * share * rng.lognormal(-0.08, 0.4, (len(here), 1))
        cumulated = np.cumsum(rate)  # Poisson counts: as many events as the rates add up to, dealt by rate
        events = np.searchsorted(cumulated, np.sort(rng.random(rng.poisson(cumulated[-1]))) * cumulated[-1])
        at, count = np.unique(events, return_counts=True)
        at = np.minimum(at, rate.size - 1)
        blocks.append(sparse.csr_matrix((count.astype(np.float32), (at // features, at % features)), rate.shape))
    X = sparse.vstack(blocks, format="csr")
    del blocks
    obs = pd.DataFrame({"perturbation": pd.Categorical(labels)}, index=[f"c{i}" for i in range(rows)])
    anndata.AnnData(X, obs, pd.DataFrame(index=[f"gene{j}" for j in range(features)])).write_h5ad(path)
    return X.nnz / (rows * features)


def analyse(path, contexts, fit_seconds):
    """Read, test, pool, fit; print what was found as JSON."""
    found, clock = {}, {}

    def timed(name, function):
        def wrapped(*args, **kwargs):
            began = now()
            made = function(*args, **kwargs)
            clock.setdefault(name, []).append(now() - began)
            return made

        return wrapped

    passes.Walk.sums = timed("passes", passes.Walk.sums)
    basis.Shared.of = timed("pooled", basis.Shared.of)
    basis.Shared.basis = timed("dimensions", basis.Shared.basis)
    began = now()
    m = ld.stream.moments(path, "perturbation", "NT", counts=True, rank=PROGRAMS, progress=False)
    found["first pass"], found["second pass"] = clock["passes"]
    found["pooled covariance and dimensions"] = clock["pooled"][0] + clock["dimensions"][0]
    found["all of ld.stream.moments"] = now() - began
    found["peak"], found["dimensions"] = peak(), m.n_features
    found["moments"] = m.covariances.nbytes
    _, target = screen(contexts)
    began = now()
    table = ld.changed(m)
    changed = table["p_holm"].to_numpy() < 0.05
    idle = np.array([target[c] is None for c in table.index])
    found["tests of every perturbation"] = now() - began
    found["changed"] = f"{changed[~idle].sum()} of {(~idle).sum()}, and {changed[idle].sum()} of {idle.sum()} idle"
    began = now()
    together = m.select([])
    for i in range(PROGRAMS):
        together = together + one(m, f"P{i}", target)
    truth, found["edges"] = set(screen(contexts)[0].graph.edges), f"fit stopped after {fit_seconds} s"
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(fit_seconds)
    with warnings.catch_warnings(), suppress(TimeoutError):
        warnings.simplefilter("ignore")
        got = set(ld.fit(together, targets={f"P{i}": f"P{i}" for i in range(PROGRAMS)}).graph.edges)
        found["edges"] = f"{len(got & truth)} of {len(truth)}, and {len(got - truth)} others"
    signal.alarm(0)
    found["pooling and fit"] = now() - began
    found["peak in the end"] = peak()
    print(json.dumps({name: list(v) if isinstance(v, np.ndarray) else v for name, v in found.items()}))


def now():
    """Return wall and CPU seconds."""
    return np.array([time.monotonic(), time.process_time()])


def stop(*_):
    """End a fit that takes too long."""
    raise TimeoutError


def one(m, name, target):
    """Return the moments of all perturbations of one program as one context."""
    rows = [k for k, c in enumerate(m.contexts) if f"P{target.get(c)}" == name]
    mine = [replace(m._rows([k]), contexts=(name,), control=None) for k in rows]
    together = mine[0]
    for part in mine[1:]:
        together = together + part
    return together


def peak():
    """Return the largest memory that this process had, in bytes."""
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))


def rates(p, rows=8192):
    """Return CPU seconds of the first pass on dense rows, over those of ``X.T @ X``, in turns."""
    X = np.random.default_rng(0).standard_normal((rows, p))
    labels = np.arange(rows) % 100
    found = []
    for _ in range(TURNS):
        began = time.process_time()
        X.T @ X
        plain = time.process_time() - began
        plan = prepare.prepare(ArrayReader(X, labels), 0, None, None, dense=False, counts=False, pooled=True)
        began = time.process_time()
        passes.Walk(None, 30.0, False, None, None).sums(ArrayReader(X, labels), plan)
        found.append((plain / (time.process_time() - began), plain))
    print(json.dumps({"share": statistics.median(share for share, _ in found),
                      "gflops": rows * p**2 / statistics.median(t for _, t in found) / 1e9}))  # fmt: skip


def child(*arguments):
    """Run one part in a fresh process on one BLAS thread; return what it printed."""
    alone = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    call = [sys.executable, __file__, *map(str, arguments)]
    made = subprocess.run(call, env={**os.environ, **alone}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(made.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--contexts", type=int, default=2000)
    parser.add_argument("--features", type=int, default=8000)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--fit-seconds", type=int, default=FIT_SECONDS)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--part", nargs="*", default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        name, *rest = asked.part
        {"simulate": lambda: print(json.dumps(simulate(rest[0], *map(int, rest[1:])))),
         "analyse": lambda: analyse(rest[0], *map(int, rest[1:])),
         "rates": lambda: rates(int(rest[0]))}[name]()  # fmt: skip
        return
    sizes = asked.contexts, asked.features, asked.rows
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder) / "screen.h5ad"
        began = time.monotonic()
        density = child("--part", "simulate", path, *sizes)
        made = time.monotonic() - began
        load = os.getloadavg()[0]
        found = child("--part", "analyse", path, asked.contexts, asked.fit_seconds)
    p = min(asked.features, 4000)
    rate = child("--part", "rates", p)
    loads = f"{load:.1f} to {os.getloadavg()[0]:.1f}"
    print(f"{sizes[0]:,} perturbations x {sizes[1]:,} genes x {sizes[2]:,} cells, {density:.1%} of counts not zero;")
    print(f"{PROGRAMS} programs; rank={PROGRAMS}; seed {SEED}, one model; commit {commit}")
    print(f"wall and CPU seconds, one BLAS thread; load of the machine {loads} of 2 cores\n")
    stages = "first pass", "pooled covariance and dimensions", "second pass", "all of ld.stream.moments"
    for name in (*stages, "tests of every perturbation", "pooling and fit"):
        print(f"{name:{LABEL}} {found[name][0]:8.1f} s {found[name][1]:8.1f} s")
    whole = 8 * (sizes[0] + 1) * sizes[1] ** 2
    print(f"\n{'peak memory of the reading process':{LABEL}} {found['peak'] / 2**30:8.2f} GiB")
    print(f"{'  in the end':{LABEL}} {found['peak in the end'] / 2**30:8.2f} GiB")
    print(f"{'moments':{LABEL}} {found['moments'] / 2**20:8.1f} MiB (in features {whole / 2**30:,.1f} GiB)")
    print(f"{'perturbations found to change something':{LABEL}} {found['changed']}")
    print(f"{'edges':{LABEL}} {found['edges']}")
    print(f"(writing the file: {made:.0f} s, not counted)")
    speed = f"{rate['share']:.0%} of the rate of X.T @ X ({rate['gflops']:.0f} GFlop/s)"
    print(f"\nfirst pass on dense rows, p = {p:,}: {speed}, CPU seconds, median of {TURNS}")


if __name__ == "__main__":
    main()
