"""Ten thousand malformed inputs to the readers and the command line: how many end in anything but one clear line.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/fuzz.py [--cases 10000] [--seed 0]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

CHUNK = 500  # cases per process: what a library leaks over a damaged file goes with it


def one_chunk(first, last, seed):
    from test_fuzz import fuzz

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(json.dumps(fuzz(Path(folder), range(first, last), seed)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chunk", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.chunk:
        one_chunk(*options.chunk, options.seed)
        return
    found, refused = [], 0
    for first in range(0, options.cases, CHUNK):
        last = min(first + CHUNK, options.cases)
        command = [sys.executable, str(Path(__file__).resolve()), "--seed", str(options.seed)]
        command += ["--chunk", str(first), str(last)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            found.append((f"{first} to {last}", [], f"the process ended with {done.returncode}: {done.stderr[-300:]}"))
            continue
        bad, number = json.loads(done.stdout.splitlines()[-1])
        found, refused = found + bad, refused + number
    print(f"{options.cases} malformed inputs, seed {options.seed}: {refused} refused, {len(found)} badly")
    for case, given, what in found:
        print(f"  case {case}: {what}: latentdag {' '.join(given)}")


if __name__ == "__main__":
    main()
