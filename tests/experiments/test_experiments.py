"""Every experiment runs small, says what it found, and comes out the same after any interruption."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag import experiments
from latentdag.cli.app import app
from latentdag.experiments.fits import cramer_rao
from latentdag.experiments.runner import run_cells
from latentdag.experiments.semisynthetic import default_model, truncated
from latentdag.experiments.synthetic import from_the_truth
from studies import identifiability

from runs import check_folder

run = CliRunner().invoke


SYNTHETIC = ["reproduce", "synthetic", "--models", "2", "--quick"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The small synthetic experiment, run through."""
    out = tmp_path_factory.mktemp("whole")
    done = run(app, [*SYNTHETIC, "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


@pytest.mark.slow
def test_synthetic(whole):
    rows, said = check_folder(whole / "synthetic", 40, experiments.load("synthetic"))
    assert set(rows["convention"]) == {"figures", "text"}
    assert (rows["failure"] == "").all()
    # the same truth at every n, and the bound falls as n to the power one half
    floor = rows[rows["method"] == "Cramér–Rao bound"].pivot(
        index=["convention", "model"], columns="n", values="unmixing_error"
    )
    assert floor[2_500].to_numpy() / floor[25_000].to_numpy() == pytest.approx(10**0.5, rel=1e-3)
    assert [line["published"] for line in said["tables"]["Against the published panels"]][:2] == [0.53, 0.84]
    assert not (whole / "synthetic/.latentdag").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_and_gives_the_same_bytes(tmp_path, whole):
    command = [sys.executable, "-m", "latentdag.cli", *SYNTHETIC, "--out", str(tmp_path / "cut")]
    cut = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    chunks, deadline = tmp_path / "cut/synthetic/.latentdag", time.monotonic() + 120
    while time.monotonic() < deadline and cut.poll() is None and not list(chunks.glob("*/chunk-*.json")):
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    assert cut.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut/synthetic/README.md").exists()
    assert list(chunks.glob("*/chunk-*.json"))
    # the rest in two processes, against all of it in one
    done = run(app, [*SYNTHETIC, "--out", str(tmp_path / "cut"), "--jobs", "2"])
    assert done.exit_code == 0, done.output
    for name in ("runs.parquet", "summary.json", "README.md", "figures-mean.svg", "text-median.png"):
        assert (tmp_path / "cut/synthetic" / name).read_bytes() == (whole / "synthetic" / name).read_bytes()


def quick(tmp_path, name, *more, models=2):
    done = run(app, ["reproduce", name, "--quick", "--models", str(models), "--out", str(tmp_path), *more])
    assert done.exit_code == 0, done.output
    return check_folder(tmp_path / name, models, experiments.load(name))


@pytest.mark.slow
def test_membership(tmp_path):
    rows, said = quick(tmp_path, "membership", models=2)
    assert len(rows) == 8
    areas = said["tables"]["Area under the curve"]
    for line in areas:
        # counting the class among its own false positives moves every curve half of the way to the diagonal
        assert line["AUC, as published"] == pytest.approx((line["AUC, right"] + 0.5) / 2)
    assert min(line["AUC, right"] for line in areas if line["test"] == "rank test") > 0.95


def test_semisynthetic_from_any_fit(tmp_path):
    truth = ld.simulate.random_model(3, 5, rng=2)
    ld.fit(ld.simulate.sample_moments(truth, 100_000, rng=0)).save(tmp_path / "fit.npz")
    rows, said = quick(tmp_path, "semisynthetic", "--fit", str(tmp_path / "fit.npz"))
    assert (rows["latents"] == 3).all()
    assert (rows["edges"] == truth.graph.number_of_edges()).all()
    assert "2 datasets per setting" in (tmp_path / "semisynthetic/README.md").read_text()
    assert "fit.npz" in said["findings"][0]


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
def test_the_default_generative_model_is_cut_and_always_the_same():
    first, second = (truncated(default_model(0, quick=True)) for _ in range(2))
    assert (first.unmixing == second.unmixing).all()
    B_0 = first.structural()
    off = B_0[~np.eye(len(B_0), dtype=bool)]
    assert (np.abs(off[off != 0]) > 0.04).all()


def test_a_fit_that_cannot_generate_is_refused(tmp_path):
    truth = ld.simulate.random_model(3, 3, rng=2)
    m = ld.simulate.sample_moments(truth, 1_000, rng=0)
    ld.fit(m, intervention="soft").save(tmp_path / "soft.npz")
    done = run(app, ["reproduce", "semisynthetic", "--fit", str(tmp_path / "soft.npz"), "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "perfect intervention" in done.output


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
    experiment = identifiability.STUDY
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
