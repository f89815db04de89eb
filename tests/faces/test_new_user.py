"""What a new user does in the first minutes, step by step: a csv with row names and guides, AnnData, scikit-learn."""

import inspect

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

pytestmark = pytest.mark.filterwarnings("always::latentdag.errors.LabelWarning")

GENES = {"IRF1-a": "IRF1", "IRF1-b": "IRF1", "STAT1-a": "STAT1", "MYC-a": "MYC"}


@pytest.fixture(scope="module")
def screen():
    """Cells with row names, guides, some without; the graph IRF1 → STAT1 ⊣ MYC, and perturbations that lower all."""
    guides = {guide: ld.Intervention(gene, variance=0.3, shift=-2) for guide, gene in GENES.items()}
    truth = ld.LatentModel(
        np.random.default_rng(3).normal(size=(3, 6)), [[0, 0, 0], [0.8, 0, 0], [0, -0.9, 0]], [1, 1, 1], guides,
        latents=["IRF1", "STAT1", "MYC"], control="NT", feature_names=[f"gene{i}" for i in range(6)],
    )  # fmt: skip
    X, labels = ld.simulate.sample(truth, 500, rng=0)
    table = pd.DataFrame(X, columns=list(truth.feature_names), index=[f"AAAC-{i}" for i in range(len(X))])
    table.insert(0, "guide", np.array(labels, dtype=object))
    table.insert(1, "target", [GENES.get(guide) for guide in table["guide"]])
    table.loc[table.index[::50], ["guide", "target"]] = np.nan
    return table


def command(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    return done.exit_code, done.stdout, done.stderr.strip().splitlines()


def right(fit):
    """The graph and its signs: perturbing IRF1 moves STAT1 as its own does, and MYC the other way."""
    edges = {(a, b): np.sign(weight) for a, b, weight in fit.graph.edges(data="weight")}
    return edges == {("IRF1", "STAT1"): 1, ("STAT1", "MYC"): -1}


def test_csv_on_the_command_line_every_error_says_the_next_step(screen, tmp_path):
    path, out = tmp_path / "screen.csv", tmp_path / "out"
    screen.to_csv(path)  # with the index, as pandas does unless told otherwise
    code, _, said = command("fit", path, "--out", out, "--context-column", "guide")
    assert code == 2
    assert "column 1 has no name" in said[-1]
    assert "index=False" in said[-1]
    screen.to_csv(path, index_label="cell")
    code, _, said = command("fit", path, "--out", out, "--context-column", "guide")
    assert "name the control context with --control; the labels present are" in said[-1]
    told = ["fit", path, "--out", out, "--context-column", "guide", "--control", "NT"]
    code, _, said = command(*told, "--targets", "target")
    assert "feature column 'cell' holds 'AAAC-0' in row 0, not a number" in said[-1]
    code, printed, said = command(*told, "--drop", "cell", "--targets", "target")
    assert "have no label in 'guide', and take no part" in said[0]
    assert code == 0, said
    assert said[-1].endswith(f"start with {out}/report.html")
    assert printed.rstrip().endswith("Nothing speaks against this fit.")
    assert right(ld.Fit.load(out / "fit.npz"))


def test_the_table_in_python_as_the_readme_says(screen, tmp_path):
    screen.to_csv(tmp_path / "screen.csv")
    table = pd.read_csv(tmp_path / "screen.csv", index_col=0)
    with pytest.raises(
        TypeError, match=r"fit takes Moments, got DataFrame: make them with latentdag.Moments.from_samp"
    ):
        ld.fit(table.drop(columns="guide"), table["guide"])
    X = table.drop(columns=["guide", "target"])
    with pytest.raises(ValueError, match="50 rows have no context label"):
        ld.Moments.from_samples(X, table["guide"], control="NT")
    kept = table["guide"].notna()
    m = ld.Moments.from_samples(X[kept], table["guide"][kept], control="NT")
    fit = ld.fit(m, targets=GENES)
    assert fit.verdict.ok
    assert fit.summary().endswith(str(fit.verdict))
    assert right(fit)
    assert set(fit.grows_with.values()) == {"its perturbation"}


def test_anndata_with_guides_and_cells_without(screen, tmp_path):
    obs = screen[["guide", "target"]]
    adata = ad.AnnData(screen.filter(like="gene").to_numpy(), obs=obs, var=pd.DataFrame(index=screen.columns[2:]))
    with pytest.warns(ld.errors.LabelWarning, match="50 cells have no label"):
        ld.tl.latentdag(adata, "guide", control="NT", targets="target")
    adata.write_h5ad(tmp_path / "screen.h5ad")
    fit = ld.tl.fit_of(ad.read_h5ad(tmp_path / "screen.h5ad"))
    assert right(fit)
    assert adata.obsm["latentdag"].shape == (len(screen), 3)
    double = fit.predict(["IRF1-a", "MYC-a"], as_anndata=True)
    assert double.shape == (1, 6)
    told = ["--control", "NT", "--context-column", "guide", "--targets", "target", "--out", tmp_path / "out"]
    code, _, said = command("fit", tmp_path / "screen.h5ad", *told)
    assert code == 0, said
    again = ld.Fit.load(tmp_path / "out/fit.npz")
    assert (again.order, again.targets, again.loglik) == (fit.order, fit.targets, fit.loglik)


def test_a_scikit_learn_pipeline(screen):
    kept = screen[screen["guide"].notna()]
    X, y = kept.drop(columns=["guide", "target"]), kept["guide"]
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), ld.LatentDAG(control="NT", targets=GENES))
    Z = model.fit_transform(X, y)
    assert right(model[-1].fit_)
    assert model[-1].verdict_.ok
    guessed = make_pipeline(model, LogisticRegression()).fit(X, y).score(X, y)
    assert guessed > 0.35  # five labels; guides of one gene cannot be told apart
    assert Z.shape == (len(X), 3)


def test_help_and_names_lead_on():
    text = inspect.getdoc(ld.fit)
    for name in ld.Options.__dataclass_fields__:
        assert f"{name} :" in text or f"{name}, required :" in text or ", required :" in text
    assert not [name for name in dir(ld) if name.startswith("_") and name != "__version__"]
    assert issubclass(ld.errors.VerdictWarning, ld.errors.LatentDAGWarning)
