"""Are the p-values, standard errors and intervals what they say? All tables of calibration, one after the other.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/calibration.py [--models 1000] [--quick]

The two halves can be run by themselves: `calibration_tests.py` (rank, membership, groups, dimension, control, omnibus)
and `calibration_errors.py` (coverage, false discoveries, predictions, targets); `doubles.py` has double perturbations.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import warnings

from latentdag.errors import LatentDAGWarning

import calibration_errors
import calibration_tests
import doubles


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", type=int, default=1000, help="models a cell of the tests; a fifth for the intervals"
    )
    parser.add_argument("--quick", action="store_true", help="40 models a cell")
    options = parser.parse_args()
    models = 40 if options.quick else options.models
    warnings.simplefilter("ignore", LatentDAGWarning)
    for section in calibration_tests.SECTIONS.values():
        section(models)
    calibration_errors.run(max(models // 5, 8))
    doubles.run(max(models // 10, 8))


if __name__ == "__main__":
    main()
