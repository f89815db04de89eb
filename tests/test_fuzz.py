"""Malformed input always ends with one line and a non-zero exit code, never with a traceback.

`benchmarks/fuzz.py` does the same ten thousand times.
"""

import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

from formats import Data, written
from fuzzing import arguments, damaged_copy

KINDS = ("csv", "tsv.gz", "parquet", "h5ad", "zarr", "mtx")


def valid_files(folder):
    """The same small screen in every format, and its moments."""
    truth = ld.simulate.random_model(2, 3, rng=0)
    X, contexts = ld.simulate.sample(truth, 30, rng=0)
    labels = np.array(contexts)
    obs = pd.DataFrame({"context": labels}, index=[f"cell{i}" for i in range(len(labels))])
    data = Data(X, labels, list(truth.feature_names), obs)
    paths = []
    for kind in KINDS:
        (folder / kind).mkdir()
        paths.append(written(data, kind, folder / kind)[0])
    ld.Moments.from_samples(X, labels, control="control").save(folder / "m.npz")
    return [*paths, folder / "m.npz"]


def complaint(result):
    """What is wrong with how a command ended, or None."""
    if result.exit_code == 0 or (result.exit_code == 3 and not result.stderr):
        return None  # the damage did no harm, or the data were read and speak against the model
    if result.exit_code != 2:
        return f"exit code {result.exit_code}: {result.exception!r}"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    if "Traceback" in result.output + result.stderr:
        return "a traceback"
    if not lines or (len(lines) > 1 and not result.stderr.startswith("Usage:")):
        return f"{len(lines)} lines on stderr"
    return None


def fuzz(folder, cases, seed):
    """Run the commands on damaged files; returns complaints as (case, arguments, what), and how many were refused."""
    (folder / "valid").mkdir()
    paths, found, refused = valid_files(folder / "valid"), [], 0
    for case in cases:
        rng = np.random.default_rng([seed, case])
        place = folder / "case"
        place.mkdir()
        damaged = damaged_copy(paths[int(rng.integers(len(paths)))], place, rng)
        given = arguments(damaged, place, rng)
        result = CliRunner().invoke(app, given)
        refused += result.exit_code != 0
        what = complaint(result)
        if what:
            found.append((case, given, what))
        shutil.rmtree(place)
    return found, refused


@pytest.mark.filterwarnings("ignore")
def test_malformed_input_never_ends_in_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, refused = fuzz(tmp_path, range(150), seed=1)
    assert found == []
    assert refused > 75  # the damage is real
