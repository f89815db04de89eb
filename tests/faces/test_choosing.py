"""The command line chooses rows, features, targets and edges: alike for csv and h5ad, each mistake with its sentence."""

import json
import subprocess
import sys

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

pytestmark = pytest.mark.filterwarnings("always::latentdag.errors.LabelWarning")

GENES = {"c1": "IRF1", "c2": "STAT1", "c3": "IRF1"}


@pytest.fixture(scope="module")
def screen(tmp_path_factory):
    """Cells with a guide, its gene and a name: as csv, h5ad and parquet; some cells have no guide."""
    folder = tmp_path_factory.mktemp("screen")
    truth = ld.simulate.random_model(3, 5, rng=0)
    X, guides = ld.simulate.sample(truth, 400, rng=1)
    X[:, 3] *= 100.0
    table = pd.DataFrame(X, columns=list(truth.feature_names))
    obs = pd.DataFrame({"guide": guides, "gene": [GENES.get(g) for g in guides]}).astype(object)
    obs["donor"] = np.where(np.arange(len(X)) % 2, "d1", "d2")
    obs["number"] = 7
    obs.loc[obs.index[::97], ["guide", "gene"]] = None
    everything = pd.concat([obs, table], axis=1)
    everything.to_csv(folder / "screen.csv", index=False)
    everything.to_parquet(folder / "screen.parquet", index=False)
    obs.index = obs.index.astype(str)
    cells = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=table.columns))
    cells.write_h5ad(folder / "screen.h5ad")
    return folder, X, obs.reset_index(drop=True)


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, done.output + done.stderr
    return done


def read(kind):
    """Options with which a file is read: the text columns of a csv are no features."""
    return [
        "--control",
        "control",
        "--context-column",
        "guide",
        *(["--drop", "donor,gene,number"] if kind != "h5ad" else []),
    ]


@pytest.mark.parametrize("kind", ["csv", "h5ad", "parquet"])
def test_rows_and_features_are_chosen(screen, tmp_path, kind):
    folder, X, obs = screen
    told = [folder / f"screen.{kind}", *read(kind)]
    done = run("moments", *told, "--out", tmp_path / "m.npz")
    kept = obs["guide"].notna()
    same(tmp_path / "m.npz", X[kept], obs["guide"][kept])
    n = int((~kept).sum())
    assert f"warning: {n} of {len(X)} rows of {told[0]} have no label in 'guide', and take no part" in done.stderr
    run("moments", *told, "--contexts", "c2, c1", "--features", "x4,x0", "--out", tmp_path / "m.npz")
    kept = obs["guide"].isin(["control", "c1", "c2"])
    same(tmp_path / "m.npz", X[kept][:, [4, 0]], obs["guide"][kept], ["x4", "x0"])


@pytest.mark.parametrize("kind", ["csv", "h5ad"])
def test_the_most_variable_features_vary_within_contexts(screen, tmp_path, kind):
    folder, X, obs = screen
    told = [folder / f"screen.{kind}", *read(kind), "--top-variable"]
    done = run("moments", *told, 2, "--out", tmp_path / "m.npz", "--json")
    table = pd.DataFrame(X).groupby(obs["guide"].to_numpy())
    within = (table.var() * (table.size() - 1).to_numpy()[:, None]).sum().to_numpy()
    best = [f"x{j}" for j in np.sort(np.argsort(-within)[:2])]
    assert ld.Moments.load(tmp_path / "m.npz").feature_names == tuple(best)
    assert "x3" in best
    assert (
        f"2 of 5 features are kept, those that vary most about the means of their contexts: {best!r}"[:-1].replace(
            "[", ""
        )
        in done.stderr
    )
    assert json.loads(done.stdout)["features"] == 2


@pytest.mark.parametrize("kind", ["csv", "h5ad", "parquet"])
def test_targets_are_a_column_and_edges_are_named(screen, tmp_path, kind):
    folder = screen[0]
    told = ["fit", folder / f"screen.{kind}", *read(kind)]
    told = [text.replace(",gene", "") if isinstance(text, str) else text for text in told]  # not a feature, then
    run(*told, "--targets", "gene", "--required", "STAT1:IRF1", "--out", tmp_path / "o")
    fit = ld.Fit.load(tmp_path / "o/fit.npz")
    assert fit.targets == GENES
    assert fit.model.n_features == 5
    assert list(fit.graph.edges) == [("STAT1", "IRF1")]
    run(*told, "--targets", "gene", "--forbidden", "STAT1:IRF1,IRF1:STAT1", "--out", tmp_path / "o")
    assert not ld.Fit.load(tmp_path / "o/fit.npz").graph.edges
    assert json.loads((tmp_path / "o/parameters.json").read_text())["options"]["targets"]


def test_a_file_of_targets_wins_over_a_column(screen, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gene").write_text("context,latent\nc1,a\nc2,b\nc3,c\n")
    run("fit", screen[0] / "screen.h5ad", *read("h5ad"), "--targets", "gene", "--out", "o")
    assert set(ld.Fit.load(tmp_path / "o/fit.npz").latents) == {"a", "b", "c"}


@pytest.mark.parametrize("kind", ["csv", "h5ad"])
@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["--features", "x0,nine"], "has no feature 'nine'"),
        (["--drop", "nine"], "has no feature 'nine'"),
        (["--drop", "x0,x1,x2,x3,x4,donor,gene,number"], "no features are chosen"),
        (["--top-variable", "12"], "--top-variable 12: "),
        (["--contexts", "c1,c9"], "has no context 'c9'; the labels present are 'c1' (396)"),
        (["--targets", "kind"], "--targets kind is neither 'learn' nor a file: "),
        (["--targets", "donor"], "rows of 'c1' have two targets in column 'donor' of "),
        (["--targets", "number"], "must name a target for every row of 'c1', got 7"),
        (["--required", "c1-c2"], "--required takes CAUSE:EFFECT, names of latents, separated by commas; got 'c1-c2'"),
        (["--forbidden", "c1:"], "--forbidden takes CAUSE:EFFECT"),
        (["--forbidden", "c1:c9"], "c9"),
    ],
)
def test_every_mistake_has_its_sentence(screen, tmp_path, kind, told, said):
    folder = screen[0]
    base = read(kind)
    if kind == "h5ad" and "x4,donor" in told[1]:
        told = ["--drop", "x0,x1,x2,x3,x4"]
    if "--drop" in told or "--targets" in told:
        base = base[:4]  # for csv: --drop is given once
    if kind == "csv" and told[0] == "--targets" and told[1] != "gene":
        told = [*told, "--drop", ",".join({"gene", "donor", "number"} - {told[1]})]
    done = run("fit", folder / f"screen.{kind}", *base, *told, "--out", tmp_path / "o", code=2)
    last = done.stderr.strip().splitlines()[-1]
    assert said in last, last
    assert "damaged" not in last


def test_moments_have_their_features_and_still_choose_contexts(tmp_path):
    ld.simulate.sample_moments(ld.simulate.random_model(3, 5, rng=0), 500, rng=1).save(tmp_path / "m.npz")
    run("moments", tmp_path / "m.npz", "--contexts", "c3", "--out", tmp_path / "n.npz")
    assert ld.Moments.load(tmp_path / "n.npz").contexts == ("control", "c3")
    for told, said in {
        ("--features", "x0"): "holds moments, without columns: --features is for rows, or when the moments are made",
        ("--top-variable", "2"): "--top-variable is for rows",
        ("--contexts", "c7"): "m.npz: no context 'c7'; present: 'control' (500)",
    }.items():
        assert said in run("test", tmp_path / "m.npz", *told, code=2).stderr
    assert (
        "holds moments, without columns: --targets is for rows"
        in run("fit", tmp_path / "m.npz", "--targets", "gene", code=2).stderr
    )


def test_the_shell_completes_commands(tmp_path):
    import os

    say = "import sys; sys.argv[0] = 'latentdag'; from latentdag.cli import main; main()"
    words = {"_LATENTDAG_COMPLETE": "complete_bash", "COMP_WORDS": "latentdag mom", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", say], env={**os.environ, **words}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["moments"]


def test_the_version_needs_no_other_package():
    bare = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['latentdag', {}]; from latentdag.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", bare.format("'--version'")], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, f"latentdag {ld.__version__}")
    assert "pip install 'latentdag[cli]'" in done.stderr
    done = subprocess.run([sys.executable, "-c", bare.format("'fit'")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'latentdag[cli]'" in done.stderr


def same(path, X, labels, names=None):
    found = ld.Moments.load(path)
    expected = ld.Moments.from_samples(X, labels, "control", names)
    assert (found.contexts, found.feature_names) == (expected.contexts, expected.feature_names)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.covariances, expected.covariances, rtol=1e-9, atol=1e-9)
