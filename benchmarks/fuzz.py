"""Random arrays and tables through every door, and damaged files of every format: how many do not end as they should.

Every array or table goes through `from_samples`, blocks, sums of shards and four of the 24 others in tests/doors.py. A
call is right if it agrees with exact rational arithmetic to 1e-9 of the standard deviations, or is refused with one
clear sentence where there is no right answer. Of a damaged file, the answer must be what another reader sees, or a
refusal.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/fuzz.py [--cases 10000] [--files 3000] [--seed 0]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import faulthandler
import json
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

CHUNK = 250  # cases per process: what a library leaks over a damaged file goes with it
PATIENCE = 120  # seconds for one case; beyond, its process is stuck in a library, where no signal reaches it
ENDS = ("accepted", "refused", "disagreement", "raw error", "foreign warning", "hang")


def some_cases(what, first, last, seed):
    """Results of some cases, a line of JSON each."""
    warnings.simplefilter("ignore")
    if what == "arrays":
        from differential import many_cases as many
    else:
        from damaged import many_files as many
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        for result in many(seed, range(first, last), Path(folder)):
            print(json.dumps(result), flush=True)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
        os.chdir("/")


def in_own_process(what, first, last, seed):
    """Results of some cases; a case that takes the process down with it counts once, and the next one begins anew."""
    results = []
    while first + len(results) < last:
        start = first + len(results)
        command = [sys.executable, str(Path(__file__).resolve()), "--seed", str(seed)]
        command += ["--chunk", what, str(start), str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        results += [json.loads(line) for line in done.stdout.splitlines()]
        number = first + len(results)
        if number < last:
            how = "hang" if "Timeout" in done.stderr else "raw error"
            said = " ".join(done.stderr.split())[-300:]
            results.append(([(what, "cases"), (what, how)], [(number, what, "a whole process", how, said)]))
    return results


def table(title, counts):
    """One line per kind, and their sum."""
    kinds = sorted({kind for kind, _ in counts})
    lines = [f"{title:<16s} {'cases':>7s} " + " ".join(f"{how:>15s}" for how in ENDS)]
    for kind in kinds:
        lines.append(f"{kind:<16s} {counts[kind, 'cases']:7d} " + " ".join(f"{counts[kind, how]:15d}" for how in ENDS))
    whole = {how: sum(counts[kind, how] for kind in kinds) for how in ("cases", *ENDS)}
    return [*lines, f"{'all':<16s} {whole['cases']:7d} " + " ".join(f"{whole[how]:15d}" for how in ENDS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chunk", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.chunk:
        some_cases(options.chunk[0], *map(int, options.chunk[1:]), options.seed)
        return
    from differential import together

    began = time.monotonic()
    print(f"benchmarks/fuzz.py --cases {options.cases} --files {options.files} --seed {options.seed}")
    complaints = []
    for what, size, title in (("arrays", options.cases, "arrays, tables"), ("files", options.files, "damaged files")):
        jobs = [(what, i, min(i + CHUNK, size), options.seed) for i in range(0, size, CHUNK)]
        with ThreadPoolExecutor(2) as pool:
            counts, bad = together(chain.from_iterable(pool.map(lambda job: in_own_process(*job), jobs)))
        complaints += bad
        print("\n" + "\n".join(table(title, counts)), flush=True)
    print(f"\n{time.monotonic() - began:.0f} seconds on two processes; {len(complaints)} calls ended badly")
    for number, kind, door, how, said in complaints:
        print(f"  case {number}, {kind}, {door}: {how}: {said}")


if __name__ == "__main__":
    main()
