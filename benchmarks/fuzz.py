"""Ten thousand malformed inputs to the readers and the command line: how many end in anything but one clear line.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/fuzz.py [--cases 10000] [--seed 0]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_fuzz import fuzz


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found, refused = fuzz(Path(folder), options.cases, options.seed)
    print(f"{options.cases} malformed inputs, seed {options.seed}: {refused} refused, {len(found)} badly")
    for case, given, what in found:
        print(f"  case {case}: {what}: latentdag {' '.join(given)}")


if __name__ == "__main__":
    main()
