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

from latentdag import experiments
from latentdag.cli.app import app

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


def test_synthetic(tmp_path):
    done = run(app, ["reproduce", "synthetic", "--quick", "--models", "2", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows, said = check_folder(tmp_path / "synthetic", 40)
    assert set(rows["convention"]) == {"figures", "text"}
    assert (rows["failure"] == "").all()
    # the same truth at every n, and the bound falls as n to the power one half
    floor = rows[rows["method"] == "Cramér–Rao bound"].pivot(
        index=["convention", "model"], columns="n", values="unmixing_error"
    )
    assert floor[2_500].to_numpy() / floor[25_000].to_numpy() == pytest.approx(10**0.5, rel=1e-3)
    assert [line["published"] for line in said["tables"]["Against the published panels"]][:2] == [0.53, 0.84]
    assert not (tmp_path / ".progress").exists()


def test_a_killed_run_goes_on_and_gives_the_same_bytes(tmp_path, monkeypatch):
    experiment = experiments.load("synthetic")
    monkeypatch.setattr(type(experiment), "chunk", 1, raising=False)
    whole = start(tmp_path / "whole")
    cut = start(tmp_path / "cut")
    chunks = tmp_path / "cut/.progress"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and cut.poll() is None and not list(chunks.glob("*/chunk-*.json")):
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    cut.wait()
    assert not (tmp_path / "cut/synthetic").exists()
    before = {path: path.stat().st_mtime_ns for path in chunks.glob("*/chunk-*.json")}
    assert before
    assert whole.wait() == 0


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
