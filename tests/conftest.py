"""Shared settings: property tests draw their examples from the test's own name, so nobody chooses the seeds."""

import sys
from pathlib import Path

import matplotlib
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

sys.path.append(str(Path(__file__).parents[1]))  # for the folder studies, which is not installed
matplotlib.use("Agg")
threadpool_limits(1)  # tests run in parallel; threads of one would only get in the way of another's
settings.register_profile(
    "latentdag", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("latentdag")
