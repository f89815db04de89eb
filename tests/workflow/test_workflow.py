"""The workflow: choices and adjustment are what they say, scores follow genes by name, and one command does it all."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse
from typer.testing import CliRunner

import latentdag as ld
from latentdag import datasets, workflow
from latentdag.cli.app import app
from latentdag.datasets import containers
from latentdag.workflow.survival import cox_table

from paths import DOCS, SHARED

lifelines = pytest.importorskip("lifelines")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

run = CliRunner().invoke


@pytest.fixture(scope="module")
def truth():
    return ld.simulate.random_model(3, 6, rng=3)


@pytest.fixture(scope="module")
def screen(truth):
    X, contexts = ld.simulate.sample(truth, 500, rng=4)
    rng = np.random.default_rng(5)
    batch = rng.integers(0, 2, len(X))
    obs = pd.DataFrame({"batch": np.array(["b0", "b1"])[batch]})
    X = np.hstack([X + 3.0 * batch[:, None], 1e-3 * rng.normal(size=(len(X), 2))])
    names = (*(f"g{j}" for j in range(6)), "quiet1", "quiet2")
    return datasets.Screen("toy", X, np.array(contexts), "control", names, obs)


@pytest.fixture(scope="module")
def cohort(truth):
    """Patients whose hazard follows the first latent, measured in other units."""
    rng = np.random.default_rng(6)
    X = truth.sample(250, rng=7)
    Z = truth.transform(X)[:, 0]
    names = [f"p{i}" for i in range(250)]
    time = rng.exponential(np.exp(-1.2 * (Z - Z.mean()) / Z.std()))
    survival = pd.DataFrame({"time": time + 1e-9, "event": rng.integers(0, 4, 250) > 0}, index=names).astype(
        {"event": int}
    )
    expression = pd.DataFrame(X * 7 + 100, index=names, columns=[f"g{j}" for j in range(6)])
    return datasets.Cohort("patients", expression.assign(other=1.0), survival)


@pytest.fixture(scope="module")
def found(screen, cohort):
    return workflow.run(screen, cohort, n_genes=6, counts=False, adjust=["batch"], n_random=20)


def test_chosen_genes_are_the_most_variable_that_both_have(screen):
    chosen = workflow.choose(screen, n_genes=4, among=["g0", "g1", "g2", "quiet1", "nowhere"], counts=False)
    spread = {name: screen.X[:, screen.feature_names.index(name)].std() for name in ("g0", "g1", "g2")}
    assert chosen.genes == (*sorted(spread, key=lambda name: -spread[name]), "quiet1")
    assert workflow.choose(screen, genes=["g3", "g5"], counts=False).X.shape == (2000, 2)
    assert any("Only 2 genes" in note for note in workflow.choose(screen, genes=["g3", "g5"], counts=False).notes)


def test_adjusted_cells_have_the_moments_of_the_adjustment(screen):
    chosen = workflow.choose(screen, counts=False, adjust=["batch"])
    through = screen.select(features=chosen.genes).moments(adjust=["batch"])
    ours = chosen.moments()
    assert np.allclose(ours.covariances, through.covariances)
    assert np.allclose(ours.means - ours.means[0], through.means - through.means[0])


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
def test_counts_are_brought_to_one_depth():
    rng = np.random.default_rng(0)
    depth = rng.uniform(100, 2000, size=600)
    X = rng.poisson(depth[:, None] * np.array([0.1, 0.2, 0.3, 0.4]))
    labels = np.repeat(["NT", "A"], 300)
    screen = datasets.Screen("toy", X, labels, "NT", ("a", "b", "c", "d"), pd.DataFrame(index=range(600)))
    chosen = workflow.choose(screen)  # whole numbers, so counts
    assert "log depth" in chosen.notes[-1]
    assert np.abs(np.corrcoef(np.column_stack([chosen.X, np.log(X.sum(axis=1))]).T)[-1, :-1]).max() < 0.05
    raw = workflow.choose(screen, counts=False)
    assert np.corrcoef(raw.X[:, 0], X.sum(axis=1))[0, 1] > 0.9


def test_choices_complain_clearly(screen):
    for options, said in (
        ({"contexts": ["c1", "nope"]}, r"no cells of the contexts \['nope'\]"), ({"adjust": ["nope"]}, "no column 'nope'"),
        ({"min_cells": 1000}, "the control 'control' has 500 cells"), ({"genes": ["nope"]}, "0 genes are left"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            workflow.choose(screen, counts=False, **options)
    few = screen.select(np.r_[0:520, 1000:2000])
    assert workflow.choose(few, counts=False).left_out == {"c1": 20}


def test_scores_follow_genes_by_name_and_not_their_units(truth, cohort):
    names = [f"g{j}" for j in range(6)]
    model = ld.LatentModel(
        truth.unmixing,
        truth.weights,
        truth.noise_variance,
        truth.interventions,
        latents=truth.latents,
        feature_names=names,
    )
    scores = workflow.transfer_scores(model, cohort.expression)
    shuffled = cohort.expression[cohort.expression.columns[::-1]] * [1.0, 2, 3, 4, 5, 6, 7] - 5
    assert np.allclose(scores, workflow.transfer_scores(model, shuffled))
    assert np.allclose(scores.std(), 1)
    true = model.transform((cohort.expression[names].to_numpy() - 100) / 7)
    assert min(abs(np.corrcoef(true[:, i], scores.iloc[:, i])[0, 1]) for i in range(3)) > 0.95
    plain = workflow.transfer_scores(model, cohort.expression, "none")
    assert np.allclose(np.abs(np.corrcoef(true[:, 0], plain.iloc[:, 0])[0, 1]), 1)
    with pytest.raises(ValueError, match="2 of 6 genes of the model are not in the cohort"):
        workflow.transfer_scores(model, cohort.expression.drop(columns=["g0", "g1"]))
    with pytest.raises(ValueError, match="'g2' does not vary"):
        workflow.transfer_scores(model, cohort.expression.assign(g2=0.0))
    with pytest.raises(ValueError, match="scaling must be"):
        workflow.transfer_scores(model, cohort.expression, "nope")


def test_the_latent_behind_survival_is_found(found, truth, cohort):
    hit = next(str(c) for c, change in truth.interventions.items() if truth.latents[0] in change.targets)
    assert found.latents["p_value"].idxmin() == f"Z({hit})"
    assert f"Z({hit})" in found.significant
    assert set(found.genes.index) == {f"g{j}" for j in range(6)}
    again = cox_table(found.scores, cohort.survival)
    assert np.allclose(found.latents["p_value"], again["p_value"])
    assert found.membership.in_model
    assert {name for edge in found.fit.graph.edges for name in edge} <= set(found.latents.index)


def test_sentences_say_what_the_tables_say(found):
    said = " ".join(found.sentences())
    assert f"Of 3 latents, {len(found.significant)} " in said
    assert "250 patients" in said
    assert "20 random mixtures" in said


def test_what_speaks_against_a_latent_is_said(found):
    assert not any(text.startswith("Of these") for text in found.sentences())
    name = found.significant[0]
    hit = next(c for c, latent in found.fit.targets.items() if latent == name)
    silent = replace(found, unchanged=found.unchanged.where(found.unchanged.index != hit, 0.8))
    assert any(text.startswith(f"Of these, {name}") and "nothing was seen" in text for text in silent.sentences())
    decided = found.membership.summary.assign(decision=lambda table: np.where(table.index == hit, "drop", "keep"))
    refused = replace(found, membership=replace(found.membership, summary=decided, alpha=1.0))
    assert any(text.startswith(f"Of these, {name}") and "more than one" in text for text in refused.sentences())
    assert "do not fit the model" in workflow.to_html(refused)
    assert "do not fit the model" not in workflow.to_html(found)


def test_cells_that_are_far_out_change_nothing_if_told_so(screen, cohort, found):
    X = screen.X.copy()
    X[::400] += 50.0 * np.random.default_rng(8).normal(size=X[::400].shape)
    told = {"n_genes": 6, "counts": False, "adjust": ["batch"], "n_random": 2}
    again = workflow.run(replace(screen, X=X), cohort, robust=True, noise="auto", **told)
    assert again.moments.outliers.sum() >= len(X[::400])
    assert set(again.fit.graph.edges) == set(found.fit.graph.edges)
    assert f"{again.moments.outliers.sum()} cells far from" in again.sentences()[1]
    assert again.fit.options.noise == "auto"
    assert set(again.fit.verdict.notes) <= set(again.sentences())


def test_no_more_latents_than_genes(screen, cohort):
    with pytest.raises(ValueError, match="3 latents behind 2 genes"):
        workflow.run(screen, cohort, n_genes=2, counts=False, n_random=0)


def test_pages_are_complete_and_harmless(found, tmp_path):
    odd = replace(found, screen="<script>alert(1)</script>", cohort="a|b")
    page = workflow.to_html(odd, "report.html")
    assert "<script" not in page
    assert page.count("<img") == 3
    assert "http://" not in page.replace("http://www.w3.org", "")
    text = workflow.to_markdown(odd)
    assert "<script>" not in text
    assert "a\\|b" in text
    for name in found.latents.index:
        assert name in page
    assert workflow.write(found, tmp_path / "w.md").read_text().startswith("# toy")
    with pytest.raises(ValueError, match=r"ends in .html or .md"):
        workflow.write(found, tmp_path / "w.pdf")


def test_figures_mark_what_is_significant(found):
    graph = workflow.survival_graph(found)
    red = {
        t.get_text()
        for t in graph.texts
        if t.get_bbox_patch()
        and t.get_bbox_patch().get_edgecolor()[0] > 0.6
        and t.get_bbox_patch().get_edgecolor()[1] < 0.2
    }
    assert red == set(found.significant)
    assert {"c1", "c2", "c3"} <= {t.get_text() for t in graph.texts}  # boxes of the contexts
    forest = workflow.hazard_forest(found.genes, n=4)
    assert [t.get_text() for t in forest.get_yticklabels()] == found.genes.sort_values("p_value").index[:4].tolist()
    low, high = forest.get_xlim()
    assert low * high == pytest.approx(1)
    plt.close("all")


@pytest.fixture
def files(screen, cohort, tmp_path):
    adata = screen.to_anndata("guide")
    adata.write_h5ad(tmp_path / "screen.h5ad")
    cohort.expression.T.to_csv(tmp_path / "expression.csv")  # genes in rows: found out by the patients' names
    cohort.survival.rename(columns={"time": "days"}).to_csv(tmp_path / "survival.tsv", sep="\t")
    return tmp_path


def test_one_command_does_it_all(files):
    command = [
        "workflow", str(files / "screen.h5ad"), "--context-column", "guide", "--control", "control", "--adjust", "batch",
        "--cohort", str(files / "expression.csv"), "--survival", str(files / "survival.tsv"), "--time-column", "days",
        "--n-genes", "6", "--random", "5", "--out", str(files / "out"), "--json",
    ]  # fmt: skip
    done = run(app, command)
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["latents"]) == 3
    assert said["in_model"] is True
    out = files / "out"
    table = pd.read_csv(out / "tables" / "survival-latents.csv")
    assert table["q_value"].tolist() == pytest.approx([row["q_value"] for row in said["latents"]])
    assert "Before you trust it" in (out / "workflow.html").read_text()
    assert "<html" in (out / "report.html").read_text()
    for name in ("latent-graph-survival", "hazard-latents", "hazard-genes"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 1000
    assert ld.Fit.load(out / "fit.npz").latents
    assert run(app, ["report", str(out), "--out", str(files / "r.md")]).exit_code == 0


def test_kras_goes_through_the_same_command(files, screen):
    """GEO's files as they are, here with simulated cells, from the folder that root names."""
    folder = files / "data" / "kras"
    folder.mkdir(parents=True)
    start = folder / "GSE161824_A549_KRAS"
    names = {"control": "WT", "c1": "G12D", "c2": "Q61H", "c3": "T58T"}
    cells = [f"cell{i}" for i in range(len(screen.contexts))]
    table = pd.DataFrame({"batch": "b", "variant": [names[c] for c in screen.contexts], "cell": cells})
    table.to_csv(f"{start}.variants2cell.csv.gz", sep="\t", index=False)
    Path(f"{start}.processed.cells.csv").write_text("\n".join(cells))
    Path(f"{start}.processed.genes.csv").write_text("\n".join(screen.feature_names))
    io.mmwrite(f"{start}.processed.matrix.mtx", sparse.coo_matrix(screen.X))
    (files / "set.txt").write_text("\n".join(f"g{j}" for j in range(6)))
    command = [
        "workflow", "kras", "--root", str(files / "data"), "--genes", str(files / "set.txt"), "--n-genes", "5",
        "--cohort", str(files / "expression.csv"), "--survival", str(files / "survival.tsv"), "--time-column", "days",
        "--random", "0", "--out", str(files / "out"), "--json",
    ]  # fmt: skip
    done = run(app, command)
    assert done.exit_code == 0, done.stderr
    assert {row["latent"] for row in json.loads(done.stdout)["latents"]} == {"Z(G12D)", "Z(Q61H)"}  # T58T is synonymous


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--control": ""}, "name the column"), ({"--control": "nope"}, "the control 'nope' has 0 cells"),
        ({"--survival": ""}, "name the table of survival"), ({"--time-column": "nope"}, "has no column nope"),
        ({"--cohort": "nowhere.csv"}, "neither a file nor a data set"), ({"--genes": "nowhere.txt"}, "no such file"),
    ],
)  # fmt: skip
def test_the_command_complains_in_one_line(files, change, said):
    options = {
        "--context-column": "guide", "--control": "control", "--cohort": str(files / "expression.csv"),
        "--survival": str(files / "survival.tsv"), "--time-column": "days", "--out": str(files / "out"), **change,
    }  # fmt: skip
    given = [part for name, value in options.items() if value for part in (name, value)]
    done = run(app, ["workflow", str(files / "screen.h5ad"), *given])
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert run(app, ["workflow", "nothing"]).exit_code == 2


# ---- real data, where they are --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(
    not (SHARED / "papalexi_thp1").is_dir() or not (SHARED / "tcga_luad").is_dir(),
    reason=f"no papalexi_thp1 and tcga_luad beside the repository; set {containers.ENVIRONMENT} to the folder that has them",
)
def test_from_knock_outs_to_patients():
    screen, cohort = datasets.papalexi_thp1(SHARED, strict=True), datasets.tcga_luad(SHARED)
    found = workflow.run(
        screen, cohort, contexts=["IFNGR2", "JAK2", "STAT1", "UBE2L6"], n_genes=12, adjust=["rep"], n_random=20
    )
    tested = found.membership.summary["reject_fwer"]
    assert tested[["IFNGR2", "JAK2"]].all()  # receptor and kinase: more than one latent changes
    assert not tested["UBE2L6"]
    assert found.membership.omnibus.unexplained > 0.3
    assert len(found.scores) == 502
    direct = lifelines.CoxPHFitter().fit(found.scores[["Z(STAT1)"]].join(cohort.survival), "time", "event")
    assert found.latents["p_value"]["Z(STAT1)"] == pytest.approx(direct.summary["p"].iloc[0], rel=1e-5)


@pytest.mark.skipif(
    not (SHARED / "sachs2005").is_dir() and not (SHARED / "sachs").is_dir(),
    reason=f"no sachs beside the repository; set {containers.ENVIRONMENT} to the folder that has it",
)
@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
@pytest.mark.parametrize(
    ("control", "refused", "kept"),
    [
        ("cd3cd28", {"aktinhib", "g0076", "u0126"}, {"ly", "psitect"}),
        ("cd3cd28icam2", {"aktinhib", "g0076", "ly", "u0126"}, {"psit"}),
    ],
)
def test_the_library_says_no_to_sachs(control, refused, kept):
    screen = datasets.sachs(SHARED, control)
    test = ld.membership_test(screen.moments(), data=(screen.X, screen.contexts))
    by_rank = test.summary["reject_fwer"].rename(lambda c: c.removeprefix(f"{control}_"))
    assert set(by_rank.index[by_rank]) == refused
    assert set(by_rank.index[~by_rank]) == kept
    assert f"{control}_g0076" in test.drop  # takes most of the misfit with it
    assert not test.in_model
    assert test.omnibus.unexplained > 0.2
    gaussian = ld.membership_test(screen.moments(), fit=False)
    assert len(gaussian.drop) == 5  # taken as Gaussian, which they are not, all five are refused
    above = {c for c, rho in test.summary["rho"].items() if rho > 0.99}  # the paper's measure accepts one of ten
    assert above == ({"cd3cd28_u0126"} if control == "cd3cd28" else set())
    rows = test.summary["p_value"].rename(lambda c: c.removeprefix(f"{control}_")).to_dict()
    page = (DOCS / "sachs.md").read_text()
    for name, shown in zip(("aktinhib", "g0076", "ly", "psit", "u0126"), page_column(page, control), strict=True):
        p = next(value for key, value in rows.items() if key.startswith(name))
        assert float(shown.replace("−", "-")) == pytest.approx(p, rel=0.5 if p < 1e-100 else 0.08), name


def page_column(page, control):
    """The p-values that docs/sachs.md shows for one control."""
    lines = page.split("| inhibitor |")[-1].split("\n\n")[0].splitlines()[2:]  # the first is the template
    return [line.split("|")[2 if control == "cd3cd28" else 4].strip() for line in lines]


@pytest.mark.skipif(
    not (SHARED / "sachs2005").is_dir() and not (SHARED / "sachs").is_dir(),
    reason=f"no sachs beside the repository; set {containers.ENVIRONMENT} to the folder that has it",
)
def test_and_not_to_halves_of_a_control():
    screen = datasets.sachs(SHARED, "cd3cd28")
    X = screen.X[screen.contexts == "cd3cd28"]
    rng, robust, gaussian = np.random.default_rng(0), [], []
    for _ in range(40):
        labels = np.where(rng.permutation(len(X)) < len(X) // 2, "control", "half")
        m = ld.Moments.from_samples(X, labels, "control")
        robust.append(ld.rank_test(m, rank=0, data=(X, labels))["robust_p_value"].iloc[0])
        gaussian.append(ld.rank_test(m, rank=0)["p_value"].iloc[0])
    assert np.mean(np.array(robust) < 0.05) < 0.15
    assert np.mean(np.array(gaussian) < 0.05) > 0.3
