import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

run = CliRunner().invoke


def test_simulate_then_fit_recovers_the_truth(tmp_path):
    made = run(app, ["simulate", "--out", str(tmp_path / "s"), "--samples", "6000", "--latents", "3", "--features", "5",
                     "--seed", "4"])  # fmt: skip
    assert made.exit_code == 0, made.output
    assert sorted(p.name for p in (tmp_path / "s").glob("[!.]*")) == ["moments.npz", "samples.csv", "truth.npz"]
    results = {}
    for name, arguments in {
        "csv": [str(tmp_path / "s/samples.csv"), "--control", "control"],
        "npz": [str(tmp_path / "s/moments.npz")],
    }.items():
        out = tmp_path / name
        fitted = run(app, ["fit", *arguments, "--truth", str(tmp_path / "s/truth.npz"), "--out", str(out)])
        assert fitted.exit_code == 0, fitted.output
        assert "order correct" in fitted.output
        results[name] = ld.Fit.load(out / "fit.npz")
        assert pd.read_csv(out / "tables/edges.csv").columns.tolist()[:3] == ["source", "target", "weight"]
        for kind in ("svg", "png"):
            assert (out / f"figures/latent-graph.{kind}").stat().st_size > 1000
    truth = ld.LatentModel.load(tmp_path / "s/truth.npz")
    assert results["csv"].order == results["npz"].order
    assert ld.metrics.compare(truth, results["csv"])["order correct"] == 1


def test_strengths_on_the_command_line(tmp_path):
    truth = ld.simulate.random_model(3, 5, rng=0)
    ld.simulate.sample_moments(truth, 2_000, rng=0).save(tmp_path / "m.npz")
    told = [
        "fit",
        str(tmp_path / "m.npz"),
        "--strength",
        "c1=0.7",
        "--strength",
        "c3=0.5:0.9",
        "--out",
        str(tmp_path / "o"),
    ]
    fitted = run(app, told)
    assert fitted.exit_code == 0, fitted.output
    assert "c1 0.7 and c3 0.5 to 0.9" in fitted.output
    assert dict(ld.Fit.load(tmp_path / "o/fit.npz").options.strength) == {"c1": 0.7, "c3": (0.5, 0.9)}
    wrong = run(app, [*told[:2], "--strength", "much", "--out", str(tmp_path / "p")])
    assert wrong.exit_code == 2
    assert "must be a number above 0 and at most 1" in wrong.output


def test_demo_prints_a_table_and_writes_the_figure(tmp_path):
    done = run(app, ["demo", "--out", str(tmp_path), "--samples", "2000"])
    assert done.exit_code == 0, done.output
    assert "every cause placed before its effects" in done.output
    assert (tmp_path / "graphs.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nowhere.csv"], "no such file or folder: nowhere.csv"),
        (["fit", "nowhere.npz"], "no such file: nowhere.npz"),
        (["fit", "XLSX"], "unknown kind of file '.xlsx'"),
        (["fit", "TABLE"], "name the control context with --control; the labels present are 'A' (3), 'WT' (2)"),
        (["fit", "TABLE", "--control", "wt"], "control 'wt' is not among the contexts"),
        (["fit", "TABLE", "--control", "WT", "--context-column", "group"], "has no column 'group'; its columns are 'context', 'f'"),
        (["fit", "TABLE", "--control", "WT"], "context 'WT' has 2 samples"),
        (["fit", "EMPTY", "--control", "WT"], "cannot be read as a table"),
        (["fit", "TABLE", "--control", "WT", "--method", "magic"], "method must be one of"),
        (["simulate", "--latents", "5", "--features", "3", "--out", "OUT"], "1 ≤ n_latents ≤ n_features"),
        (["simulate", "--noise", "cauchy", "--out", "OUT"], "noise must be one of"),
    ],
)  # fmt: skip
def test_user_errors_are_one_line_and_exit_code_2(tmp_path, arguments, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("context,f,g\nWT,1,2\nWT,3,5\nA,1,1\nA,2,7\nA,4,4\n")
    (tmp_path / "e.csv").write_text("")
    (tmp_path / "d.xlsx").write_text("?")
    names = {
        "XLSX": str(tmp_path / "d.xlsx"),
        "TABLE": str(tmp_path / "t.csv"),
        "EMPTY": str(tmp_path / "e.csv"),
        "OUT": str(tmp_path / "o"),
    }
    done = run(app, [names.get(a, a) for a in arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert "damaged" not in done.stderr  # what we say ourselves is no damage
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output + done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.xlsx", "e.csv", "t.csv"]


def test_moments_fit_and_test_read_data_alike(tmp_path):
    """The options that say how data are read are declared once; counts can be tested, and ``-h`` says so."""
    rng = np.random.default_rng(3)
    rates = rng.gamma(8.0, 4.0, size=(400, 3))
    table = pd.DataFrame(rng.poisson(rates), columns=["f", "g", "h"]).assign(context=["WT"] * 200 + ["A"] * 200)
    table.to_csv(tmp_path / "t.csv", index=False)
    told = [str(tmp_path / "t.csv"), "--control", "WT", "--counts"]
    tested = run(app, ["test", *told, "--json"])
    assert tested.exit_code == 0, tested.output
    m = ld.Moments.from_counts(table[["f", "g", "h"]].to_numpy(), table["context"], control="WT")
    assert json.loads(tested.stdout)["p_value"] == pytest.approx(ld.membership_test(m).p_value)
    for command in ("moments", "fit", "test"):
        said = run(app, [command, "-h"]).stdout
        assert all(option in said for option in ("--control", "--context-column", "--layer", "--robust", "--depth"))


def test_labels_that_look_like_numbers_or_gaps_stay_text(tmp_path):
    rows = [f"{label},{(7 * i) % 11 - 5},{(5 * i) % 13 - 6}" for i, label in enumerate(["NA"] * 20 + ["007"] * 20)]
    (tmp_path / "t.csv").write_text("context,f,g\n" + "\n".join(rows) + "\n")
    done = run(app, ["fit", str(tmp_path / "t.csv"), "--control", "NA", "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    assert ld.Fit.load(tmp_path / "o/fit.npz").order == ("007",)


def test_help_and_import_load_nothing_heavy():
    """`latentdag --help` is instant because numpy, pandas and the rest are not imported for it."""
    code = (
        "import sys; sys.argv = ['latentdag', '--help']\n"
        "from latentdag.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'pandas', 'networkx', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
