"""Run one study from the root of the repository: ``python -m studies interferon --out runs``."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from latentdag.cli.reproduce import reproduce, said_of
from latentdag.experiments import Experiment

NAMES = ("identifiability", "robustness", "scaling", "interferon", "light_tunnel")


def load(name: str) -> Experiment:
    """Return a study by name."""
    study: Experiment = import_module(f"studies.{name}").STUDY
    return study


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study that the command line names; returns the exit code, 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m studies", description="Run one study.")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="folder for results (%(default)s)")
    parser.add_argument("--models", type=int, help="random draws per setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small grid, to see that it runs")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--scheduler", help="address of a Dask scheduler instead of processes")
    asked = vars(parser.parse_args(arguments))
    study, out = load(asked.pop("name")), asked.pop("out")
    try:
        done = reproduce([study], out, **asked)
    except (ValueError, OSError) as error:  # absent data among them: the message says where to get them
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{said_of(done)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
