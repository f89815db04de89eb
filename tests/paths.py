"""Where things are: the repository, and the real data beside it, which tests may read and skip without."""

import os
from pathlib import Path

from latentdag.datasets.containers import ENVIRONMENT

ROOT = Path(__file__).parents[1]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"
SHARED = Path(os.environ.get(ENVIRONMENT) or ROOT.parent / "shared" / "data")
