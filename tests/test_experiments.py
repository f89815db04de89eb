"""Every experiment runs small, says what it found, and comes out the same after any interruption."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag import experiments
from latentdag.cli.app import app
from latentdag.experiments.bound import cramer_rao
from latentdag.experiments.runner import run_cells
from latentdag.experiments.synthetic import from_the_truth

run = CliRunner().invoke


def check_folder(folder, rows_at_least):
    """Everything that an experiment must leave behind; returns its rows and its summary."""
    rows, said = pd.read_parquet(folder / "runs.parquet"), json.loads((folder / "summary.json").read_text())
    assert len(rows) >= rows_at_least
    assert said["experiment"] == folder.name
    assert said["findings"]
    assert all(said["tables"].values())
    page = (folder / "README.md").read_text()
    assert f"{said['models']} model" in page
    assert f"seed {said['seed']}" in page
    assert all(sentence in page for sentence in said["findings"])
    figures = sorted(path.stem for path in folder.glob("*.svg"))
    assert figures
    for name in figures:
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert f"({name}.svg)" in page
    return rows, said


def start(out, *more):
    """The command in a process of its own, so that it can be killed."""
    command = [sys.executable, "-m", "latentdag.cli", "reproduce", "synthetic", "--models", "2", "--quick"]
    return subprocess.Popen([*command, "--out", str(out), *more], env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The small synthetic experiment, run through."""
    out = tmp_path_factory.mktemp("whole")
    done = run(app, ["reproduce", "synthetic", "--quick", "--models", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


def test_synthetic(whole):
    rows, said = check_folder(whole / "synthetic", 40)
    assert set(rows["convention"]) == {"figures", "text"}
    assert (rows["failure"] == "").all()
    # the same truth at every n, and the bound falls as n to the power one half
    floor = rows[rows["method"] == "Cramér–Rao bound"].pivot(
        index=["convention", "model"], columns="n", values="unmixing_error"
    )
    assert floor[2_500].to_numpy() / floor[25_000].to_numpy() == pytest.approx(10**0.5, rel=1e-3)
    assert [line["published"] for line in said["tables"]["Against the published panels"]][:2] == [0.53, 0.84]
    assert not (whole / ".progress").exists()


def test_a_killed_run_goes_on_and_gives_the_same_bytes(tmp_path, whole):
    cut = start(tmp_path / "cut")
    chunks, deadline = tmp_path / "cut/.progress", time.monotonic() + 120
    while time.monotonic() < deadline and cut.poll() is None and not list(chunks.glob("*/chunk-*.json")):
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    assert cut.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut/synthetic").exists()
    assert list(chunks.glob("*/chunk-*.json"))
    # the rest in two processes, against all of it in one
    assert start(tmp_path / "cut", "--jobs", "2").wait() == 0
    for name in ("runs.parquet", "summary.json", "README.md", "figures-mean.svg", "text-median.png"):
        assert (tmp_path / "cut/synthetic" / name).read_bytes() == (whole / "synthetic" / name).read_bytes()


def small(run, n=10, chunk=3):
    """An experiment that costs nothing."""
    return experiments.Experiment(
        "small", "Small", "?", n, n, lambda settings: [{"i": i} for i in range(settings.models)], run, None, None, chunk
    )


def test_finished_chunks_are_not_computed_again(tmp_path):
    seen = []

    def run_until(limit):
        def run(cell, shared):
            if cell["i"] >= limit:
                raise KeyboardInterrupt
            seen.append(cell["i"])
            return [{**cell, "value": cell["i"] / 3, "missing": None}]

        return run

    settings = small(None).settings()
    with pytest.raises(KeyboardInterrupt):
        run_cells(small(run_until(7)), settings, tmp_path)
    assert seen == [0, 1, 2, 3, 4, 5, 6]
    rows = run_cells(small(run_until(10)), settings, tmp_path)
    assert seen == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9]  # 6 was in a chunk that was not finished
    assert rows["value"].tolist() == [i / 3 for i in range(10)]
    # other work does not take these chunks for its own
    assert len(run_cells(small(run_until(10)), small(None).settings(models=4, seed=1), tmp_path)) == 4
    assert seen[-4:] == [0, 1, 2, 3]


def test_a_dask_cluster_gives_the_same_rows(tmp_path):
    distributed = pytest.importorskip("distributed")
    experiment = experiments.load("identifiability")
    settings = experiment.settings(models=2, quick=True)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = run_cells(experiment, settings, tmp_path / "there", scheduler=cluster.scheduler_address)
    pd.testing.assert_frame_equal(there, run_cells(experiment, settings, tmp_path / "here"))


def test_the_bound_is_reached_by_the_fit_from_the_truth():
    truth = ld.simulate.random_model(rng=3)
    squares = [
        ld.metrics.unmixing_error(
            truth, from_the_truth(truth, ld.simulate.sample_moments(truth, 50_000, rng=s)), "truth-index"
        )
        ** 2
        for s in range(20)
    ]
    assert (sum(squares) / 20) ** 0.5 == pytest.approx(cramer_rao(truth, 50_000)["unmixing"], rel=0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no experiment 'nonsense'; there are synthetic, "),
        (["synthetic", "--fit", "fit.npz"], "--fit is the generative model of 'semisynthetic'"),
    ],
)
def test_user_errors_are_one_line(tmp_path, arguments, message):
    done = run(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert message in done.output
