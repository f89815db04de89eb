"""The command line from data to result folder: every format alike, nothing lost by a kill, and answers for programs."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

from formats import Data, written

run = CliRunner().invoke


@pytest.fixture(scope="module")
def screen():
    truth = ld.simulate.random_model(3, 5, rng=4)
    X, contexts = ld.simulate.sample(truth, 400, rng=5)
    labels = np.array(contexts)
    obs = pd.DataFrame({"context": labels}, index=[f"cell{i}" for i in range(len(labels))])
    return Data(X, labels, list(truth.feature_names), obs)


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_every_format_gives_the_same_result_folder(screen, tmp_path):
    folders = {}
    for kind in ("csv", "tsv.gz", "parquet", "h5ad", "zarr", "mtx"):
        (tmp_path / kind).mkdir()
        path, column, _ = written(screen, kind, tmp_path / kind)
        out = tmp_path / f"result-{kind}"
        done = run(app, ["fit", str(path), "--control", "control", "--context-column", str(column), "--out", str(out)])
        assert done.exit_code == 0, (kind, done.output, done.stderr)
        folders[kind] = files_of(out)
    first = folders.pop("csv")
    parameters = json.loads(first.pop("parameters.json"))
    for kind, files in folders.items():
        other = json.loads(files.pop("parameters.json"))
        assert {k: v for k, v in other.items() if k not in ("data", "finished", "seconds")} == {
            k: v for k, v in parameters.items() if k not in ("data", "finished", "seconds")
        }, kind
        assert files.keys() == first.keys()
        assert [name for name in first if files[name] != first[name]] == [], kind


def test_the_result_folder_has_everything(screen, tmp_path):
    path, _, _ = written(screen, "csv", tmp_path)
    out = tmp_path / "result"
    done = run(
        app, ["fit", str(path), "--control", "control", "--bootstrap", "3", "--seed", "7", "--json", "--out", str(out)]
    )
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    fit = ld.Fit.load(out / "fit.npz")
    assert said["order"] == list(fit.order)
    assert len(said["edges"]) == fit.graph.number_of_edges()
    assert said["converged"] is True
    parameters = json.loads((out / "parameters.json").read_text())
    assert parameters["seed"] == 7
    assert set(parameters["versions"]) >= {"latentdag", "numpy"}
    graph = nx.read_graphml(out / "graph.graphml")
    assert set(graph.edges) == set(fit.graph.edges)
    assert (out / "graph.dot").read_text().startswith("digraph latents {")
    assert (
        pd.read_parquet(out / "tables/edges.parquet")["source"].tolist()
        == pd.read_csv(out / "tables/edges.csv")["source"].tolist()
    )
    assert ld.Bootstrap.load(out / "bootstrap.npz").n_replicates == 3
    for name in ("latent-graph", "mixing", "spectra", "edges", "order-stability"):
        assert (out / f"figures/{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert b"<svg" in (out / f"figures/{name}.svg").read_bytes()
    assert "<html" in (out / "report.html").read_text()
    again = run(app, ["report", str(out), "--out", str(tmp_path / "r.md"), "--title", "Mine"])
    assert again.exit_code == 0, again.stderr
    assert "Mine" in (tmp_path / "r.md").read_text()


def test_one_fit_computes_each_part_of_its_results_once(screen, tmp_path):
    """Terminal, tables, figures, summary and page read one collection; no face computes what another has computed.

    Three rank tests are the least: ranks zero and one for the report, and rank two inside the membership test.
    """
    path, _, _ = written(screen, "csv", tmp_path)
    entered = Counter()

    def count(frame, event, _):
        if event == "call" and "latentdag" in frame.f_code.co_filename:
            entered[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        done = run(app, ["fit", str(path), "--control", "control", "--json", "--out", str(tmp_path / "o")])
    finally:
        sys.setprofile(before)
    assert done.exit_code == 0, done.stderr
    once = ("edge_table", "membership_test", "all_checks", "gather", "Fit.summary")
    assert {name: entered[name] for name in once} == dict.fromkeys(once, 1)
    assert entered["rank_test"] == 3


def test_moments_then_test_then_fit(screen, tmp_path):
    path, _, _ = written(screen, "csv", tmp_path)
    made = run(app, ["moments", str(path), "--control", "control", "--json", "--out", str(tmp_path / "m.npz")])
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["counts"]["control"] == 400
    m = ld.Moments.load(tmp_path / "m.npz")
    assert np.allclose(m.covariances, ld.Moments.from_samples(screen.X, screen.labels, control="control").covariances)
    tested = run(app, ["test", str(tmp_path / "m.npz"), "--json"])
    assert tested.exit_code == (0 if json.loads(tested.stdout)["in_model"] else 3)
    assert run(app, ["test", str(tmp_path / "m.npz")]).stdout
    fitted = run(app, ["fit", str(tmp_path / "m.npz"), "--out", str(tmp_path / "f")])
    assert fitted.exit_code == 0, fitted.stderr


def test_data_against_the_model_have_an_exit_code_of_their_own(tmp_path):
    truth = ld.simulate.random_model(4, 4, rng=1)
    both = {
        f"{a}{b}": ld.Intervention.combine([truth.interventions[a], truth.interventions[b], truth.interventions[c]])
        for a, b, c in (("c1", "c2", "c3"), ("c2", "c3", "c4"), ("c1", "c3", "c4"))
    }
    model = ld.LatentModel(truth.unmixing, truth.weights, truth.noise_variance, both, latents=truth.latents)
    ld.simulate.sample_moments(model, 20_000, rng=0).save(tmp_path / "m.npz")
    done = run(app, ["test", str(tmp_path / "m.npz")])
    assert done.exit_code == 3, done.output


@pytest.mark.slow
def test_kill_during_a_bootstrap_loses_nothing(screen, tmp_path):
    path, _, _ = written(screen, "csv", tmp_path)
    command, kept = (
        ["fit", str(path), "--control", "control", "--bootstrap", "12", "--out"],
        tmp_path / "killed/.latentdag",
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-m", "latentdag.cli", *command, tmp_path / "killed"], **quiet) as process:
        limit = time.monotonic() + 120
        while not any(kept.rglob("piece-*.npz")) and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.005)
        process.kill()  # as soon as there is progress
    assert process.returncode == -signal.SIGKILL
    assert any(kept.rglob("piece-*.npz"))
    for out in ("killed", "whole"):
        done = run(app, [*command, str(tmp_path / out)])
        assert done.exit_code == 0, done.output
    assert not kept.exists()
    first, second = files_of(tmp_path / "killed"), files_of(tmp_path / "whole")
    assert [name for name in first if first[name] != second[name]] == ["parameters.json"]


def test_labels_with_quotes_and_tags_are_harmless_in_every_file(tmp_path):
    truth = ld.simulate.random_model(2, 3, rng=0)
    X, contexts = ld.simulate.sample(truth, 300, rng=0)
    names = {"control": "control", "c1": '<script>alert("x")</script>', "c2": 'a\\b"; rm -rf /'}
    table = pd.DataFrame(X, columns=["<b>", "=1+1", "x"])
    table.insert(0, "context", [names[c] for c in contexts])
    table.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "o"
    done = run(app, ["fit", str(tmp_path / "t.csv"), "--control", "control", "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    assert "<script>alert" not in (out / "report.html").read_text()
    assert set(nx.read_graphml(out / "graph.graphml")) == set(names.values()) - {"control"}
    assert '\\"; rm' in (out / "graph.dot").read_text()
    assert Path(out / "figures/latent-graph.png").stat().st_size > 1000


def test_labels_that_are_numbers_are_named_by_their_text(screen, tmp_path):
    table = pd.DataFrame(screen.X, columns=screen.names)
    table["context"] = pd.Series(screen.labels).map({"control": 0, "c1": 1, "c2": 2, "c3": 3})
    table.to_parquet(tmp_path / "t.parquet")
    done = run(app, ["moments", str(tmp_path / "t.parquet"), "--control", "0", "--out", str(tmp_path / "m.npz")])
    assert done.exit_code == 0, done.stderr
    assert ld.Moments.load(tmp_path / "m.npz").control == 0
    done = run(app, ["moments", str(tmp_path / "t.parquet"), "--control", "7", "--out", str(tmp_path / "m.npz")])
    assert done.exit_code == 2
    assert "control '7' is not among the contexts" in done.stderr
