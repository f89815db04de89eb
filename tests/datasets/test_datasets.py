"""Loaders: the data here as their notes describe them, every public layout on small files, and what is said when offline."""

import functools
import gzip
import hashlib
import http.server
import sys
import threading
import zipfile
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse

from latentdag import datasets
from latentdag.datasets import chamber, containers, cytometry, luad, thp1, variants

from paths import SHARED


def here(name):
    """Skip unless this data set lies in a folder beside the repository, or in $LATENTDAG_DATA."""
    return pytest.mark.skipif(
        not any((SHARED / folder).is_dir() for folder in name.folders),
        reason=f"no {name.name} beside the repository; set {containers.ENVIRONMENT} to the folder that has it",
    )


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No folder of the user's, an empty cache, and nothing answers."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv(containers.ENVIRONMENT, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)

    def refuse(*args, **kwargs):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(pooch, "retrieve", refuse)


# ---- the real files, where they are ---------------------------------------------------------------------------------


@here(chamber.SOURCE)
def test_light_tunnel():
    found = datasets.light_tunnel(SHARED, columns=["red", "green", "blue", "ir_1", "ir_2", "current"])
    assert found.X.shape == (20_000, 6)
    counts = pd.Series(found.contexts).value_counts()
    assert counts["reference"] == 10_000
    assert set(counts.drop("reference")) == {1_000}
    assert found.extra["targets"]["t_ir_1_strong"] == "t_ir_1"
    m = found.moments()
    shift = (m.means[m.index("red_strong")] - m.means[0]) / np.sqrt(np.diag(m.covariances[0]))
    assert shift[0] > 3  # the context moves the colour itself
    assert np.abs(shift[1:3]).max() < 0.2  # and no other colour


@here(chamber.SOURCE)
def test_the_graph_of_the_light_tunnel_is_the_published_one():
    edges = pd.read_csv(SHARED / "light_tunnel" / "edges.csv")
    assert set(chamber.known_graph().edges) == set(zip(edges["source"], edges["target"], strict=True))


@here(thp1.SOURCE)
def test_papalexi():
    found = datasets.papalexi_thp1(SHARED)
    assert found.X.shape == (20_729, 299)
    strict = datasets.papalexi_thp1(SHARED, strict=True, genes=["STAT1", "UBE2L6", "JAK2"])
    counts = pd.Series(strict.contexts).value_counts()
    assert counts[strict.control] == 1_912
    assert counts["STAT1"] == 322
    assert strict.feature_names == ("STAT1", "UBE2L6", "JAK2")
    assert strict.obs["depth"].min() > 0
    assert (strict.obs["depth"] > strict.X.sum(axis=1).A1).all()
    knocked = strict.X[strict.contexts == "STAT1", 0].mean(), strict.X[strict.contexts == "non-targeting", 0].mean()
    assert knocked[0] < knocked[1]
    with pytest.raises(ValueError, match="has no feature 'NOPE'"):
        datasets.papalexi_thp1(SHARED, genes=["NOPE"])


@here(cytometry.SOURCE)
def test_sachs():
    for control, other in (("cd3cd28", "cd3cd28_psitect"), ("cd3cd28icam2", "cd3cd28icam2_psit")):
        found = datasets.sachs(SHARED, control)
        assert found.X.shape[1] == 11
        assert len(set(found.contexts)) == 6
        assert other in found.contexts
    assert len(set(datasets.sachs(SHARED, None).contexts)) == 14
    assert np.allclose(np.exp(found.X), datasets.sachs(SHARED, control, log=False).X)
    with pytest.raises(ValueError, match="control must be one of"):
        datasets.sachs(SHARED, "pma")


@here(luad.SOURCE)
def test_tcga_has_the_tumours_that_its_note_counts():
    found = datasets.tcga_luad(SHARED)
    assert len(found.expression) == 502
    assert found.survival["event"].sum() == 182
    assert found.expression.index.is_unique
    assert datasets.tcga_luad(SHARED, genes=["STAT1", "not a gene"]).expression.columns.tolist() == ["STAT1"]


# ---- public layouts, on small files ---------------------------------------------------------------------------------


def zipped(path, text):
    with gzip.open(path, "wt") as file:
        file.write(text)


@pytest.fixture
def geo(tmp_path):
    """GSE161824's supplementary files, small: tab-separated variants, names without a heading, cells × genes."""
    folder = tmp_path / "kras"
    folder.mkdir()
    labels = {
        "c1": "WT", "c2": "G12D", "c3": "T58T", "c4": "unassigned", "c5": "multiple", "c6": "Q61H", "c7": "WT", "x": "G12D",
    }  # fmt: skip
    table = pd.DataFrame({"G12D": 1, "Q61H": 0, "batch": "b1", "variant": labels.values(), "cell": list(labels)})
    zipped(folder / "GSE161824_A549_KRAS.variants2cell.csv.gz", table.to_csv(sep="\t", index=False))
    cells, genes = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"], ["MYC", "NA", "TP53", "EGFR"]
    zipped(folder / "GSE161824_A549_KRAS.processed.cells.csv.gz", "\n".join(cells) + "\n")
    zipped(folder / "GSE161824_A549_KRAS.processed.genes.csv.gz", "\n".join(genes) + "\n")
    X = np.arange(32.0).reshape(8, 4) - 5
    io.mmwrite(folder / "GSE161824_A549_KRAS.processed.matrix.mtx", sparse.coo_matrix(X))
    return tmp_path, X


def test_kras_reads_geos_files_as_they_are(geo):
    root, X = geo
    found = datasets.kras(root)
    assert found.obs["cell"].tolist() == ["c1", "c2", "c6", "c7"]
    assert found.contexts.tolist() == ["WT", "G12D", "Q61H", "WT"]
    assert found.feature_names == ("MYC", "NA", "TP53", "EGFR")
    assert np.array_equal(found.X, X[[0, 1, 5, 6]])
    some = datasets.kras(root / "kras", genes=["EGFR", "MYC", "BRAF"], variants=["G12D"])
    assert np.array_equal(some.X, X[[0, 1, 6]][:, [3, 0]])
    assert some.extra["not measured"] == ["BRAF"]
    with pytest.raises(ValueError, match="no cells with the variants"):
        datasets.kras(root, variants=["G13V"])


@pytest.mark.parametrize("form", ["array", "transposed", "packed"])
def test_kras_takes_the_matrix_in_any_form(geo, form):
    root, X = geo
    path = root / "kras" / "GSE161824_A549_KRAS.processed.matrix.mtx"
    if form == "array":
        io.mmwrite(path, X)
    elif form == "transposed":
        io.mmwrite(path, sparse.coo_matrix(X.T))
    else:
        zipped(path.with_suffix(".mtx.gz"), path.read_text())
        path.unlink()
    assert np.array_equal(datasets.kras(root).X, X[[0, 1, 5, 6]])


def test_kras_says_what_does_not_fit(geo):
    root, X = geo
    path = root / "kras" / "GSE161824_A549_KRAS.processed.matrix.mtx"
    io.mmwrite(path, sparse.coo_matrix(X[:5]))
    with pytest.raises(ValueError, match="5 × 4, but there are 8 cells and 4 genes"):
        datasets.kras(root)
    path.write_text("hello\n")
    with pytest.raises(ValueError, match="no MatrixMarket file"):
        datasets.kras(root)


def test_lists_of_genes_come_from_files_too(geo):
    root, _ = geo
    (root / "set.txt").write_text("MYC\nTP53\n")
    (root / "prolif").write_text('"initial_alias","converted_alias"\n"TP53","ENSG1"\n"EGFR","ENSG2"\n')
    assert datasets.kras(root, genes=root / "set.txt").feature_names == ("MYC", "TP53")
    assert datasets.kras(root, genes=root / "prolif").feature_names == ("TP53", "EGFR")
    with pytest.raises(FileNotFoundError, match="no such file"):
        datasets.kras(root, genes="nowhere.txt")


@pytest.mark.skipif(not (SHARED / "kras_lists").is_dir(), reason="no kras_lists beside the repository")
def test_the_papers_lists_are_read():
    lists = SHARED / "kras_lists"
    assert len(variants.names_in(lists / "all_variants.txt")) == 83
    assert len(variants.names_in(lists / "mixed_variants_2_each.txt")) == 10
    assert all(variants.keeps(v) for v in variants.names_in(lists / "all_variants.txt"))
    assert {"KRAS", "MYC"} <= set(variants.names_in(lists / "prolif_ensembl"))


def test_papalexi_from_geos_files(tmp_path):
    folder = tmp_path / "GSE153056"
    folder.mkdir()
    counts = pd.DataFrame([[1, 0, 2], [0, 3, 4]], index=["A1BG", "STAT1"], columns=["a", "b", "c"])
    zipped(folder / thp1.COUNTS, counts.to_csv(sep="\t"))
    guides = pd.DataFrame([[9, 1, 0], [1, 1, 6]], index=["STAT1g1", "NTg1"], columns=["a", "b", "c"])
    zipped(folder / thp1.GUIDES, guides.to_csv(sep="\t"))
    cells = pd.DataFrame(
        {"guide_ID": ["NTg1", "STAT1g1"], "gene": ["NT", "STAT1"], "replicate": ["rep1", "rep2"]}, index=["c", "a"]
    )
    zipped(folder / thp1.CELLS, cells.to_csv(sep="\t"))
    found = datasets.papalexi_thp1(tmp_path, genes=["STAT1"])
    assert found.contexts.tolist() == ["STAT1", "non-targeting"]
    assert found.X.toarray().ravel().tolist() == [0, 4]
    assert found.obs["depth"].tolist() == [1, 6]
    assert found.obs["guide_frac"].tolist() == [0.9, 1.0]
    assert found.obs["guide_umi"].tolist() == [9, 6]


def test_tcga_from_xenas_files(tmp_path):
    folder = tmp_path / "tcga_luad"
    folder.mkdir()
    samples = ["TCGA-05-4244-01A", "TCGA-05-4244-11A", "TCGA-05-4249-01A", "TCGA-05-9999-01A"]
    fpkm = pd.DataFrame(
        np.log2(1 + np.array([[1.0, 9, 3, 1], [2, 9, 5, 1], [7, 9, 8, 1]])), ["E1.2", "E2.1", "E3.4"], samples
    )
    zipped(folder / luad.FPKM, fpkm.rename_axis("Ensembl_ID").to_csv(sep="\t"))
    (folder / luad.SYMBOLS).write_text("id\tgene\tchrom\nE1.2\tMYC\tx\nE2.1\tMYC\tx\nE3.4\tKRAS\tx\n")
    (folder / luad.SURVIVAL).write_text(
        "sample\tOS\t_PATIENT\tOS.time\nTCGA-05-4244-01A\t1\tTCGA-05-4244\t30\nTCGA-05-4249-01A\t0\tTCGA-05-4249\t40\n"
        "TCGA-05-9999-01A\t1\tTCGA-05-9999\t0\n"
    )
    found = datasets.tcga_luad(tmp_path)
    assert found.expression.index.tolist() == ["TCGA-05-4244", "TCGA-05-4249"]  # no normal tissue, no time of zero
    assert np.allclose(np.exp2(found.expression[["KRAS", "MYC"]]) - 1, [[7, 3], [8, 8]])
    assert found.survival.to_numpy().tolist() == [[30.0, 1], [40.0, 0]]


# ---- downloads ------------------------------------------------------------------------------------------------------


LOADERS = {"kras": datasets.kras, "light_tunnel": datasets.light_tunnel, "papalexi_thp1": datasets.papalexi_thp1,
           "sachs": datasets.sachs, "tcga_luad": datasets.tcga_luad}  # fmt: skip


@pytest.mark.parametrize("name", LOADERS)
def test_offline_and_missing_names_address_and_layout(name, offline, tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=rf"the data set {name} is not here.*Downloading failed: Network is un.*https://.*<folder>/{name}/ .*LATENTDAG_DATA=<folder>",
    ):
        LOADERS[name]()
    with pytest.raises(FileNotFoundError, match=rf"Looked in .*{name}.*https://"):
        LOADERS[name](tmp_path)


def test_the_environment_names_the_folder(geo, offline, monkeypatch):
    monkeypatch.setenv(containers.ENVIRONMENT, str(geo[0]))
    assert datasets.kras().X.shape == (4, 4)


def test_downloads_are_kept_checked_and_written_down(tmp_path, monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv(containers.ENVIRONMENT, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(pooch.get_logger(), "disabled", True)
    public = tmp_path / "public.csv"
    public.write_text("a,b\n")
    monkeypatch.setattr(
        pooch.core,
        "choose_downloader",
        lambda url, progressbar=False: lambda u, out, p: Path(out).write_bytes(public.read_bytes()),
    )
    source = containers.Source("toy", ("toy",), "https://example.org", {"toy.csv": containers.Remote(public.as_uri())})
    first = containers.locate(source, ["toy.csv"])["toy.csv"]
    assert first.read_text() == "a,b\n"
    noted = first.with_name("toy.csv.sha256").read_text().strip()
    assert noted == hashlib.sha256(b"a,b\n").hexdigest()
    first.write_text("damaged")  # the copy in the cache: seen, and fetched again
    assert containers.locate(source, ["toy.csv"])["toy.csv"].read_text() == "a,b\n"
    first.unlink()
    public.write_text("changed at the source\n")
    with pytest.raises(FileNotFoundError, match=r"Downloading failed: .*hash"):
        containers.locate(source, ["toy.csv"])
    wrong = containers.Source(
        "toy", ("toy",), "https://example.org", {"toy.csv": containers.Remote(public.as_uri(), "md5:0")}
    )
    with pytest.raises(FileNotFoundError, match="hash"):
        containers.locate(wrong, ["toy.csv"])


def test_downloads_over_http_show_progress(tmp_path, monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv(containers.ENVIRONMENT, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(pooch.get_logger(), "disabled", True)
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "toy.csv").write_bytes(b"1234567\n" * 400_000)
    seen = []
    monkeypatch.setattr(containers.Progress, "advance", lambda self, steps=1: seen.append(steps))
    serve = functools.partial(QuietHandler, directory=tmp_path / "public")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        source = containers.Source("toy", ("toy",), address, {"toy.csv": containers.Remote(f"{address}/toy.csv")})
        assert containers.locate(source, ["toy.csv"])["toy.csv"].stat().st_size == 3_200_000
        server.shutdown()
    assert max(seen) >= 1


def test_archives_are_unpacked(tmp_path, monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv(containers.ENVIRONMENT, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(pooch.get_logger(), "disabled", True)
    archive = tmp_path / "public.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in ("reference", "red_strong"):
            made.writestr(f"lt_interventions_standard_v1/uniform_{name}.csv", "flag,red,ir_1\n1,2,3\n1,4,5\n")
    monkeypatch.setattr(
        pooch.core,
        "choose_downloader",
        lambda url, progressbar=False: lambda u, out, p: Path(out).write_bytes(archive.read_bytes()),
    )
    known = f"md5:{hashlib.md5(archive.read_bytes()).hexdigest()}"
    remote = containers.Remote(archive.as_uri(), known, unpacks=True)
    monkeypatch.setattr(
        chamber, "SOURCE", containers.Source("light_tunnel", ("light_tunnel",), "https://x", {"lt.zip": remote})
    )
    found = datasets.light_tunnel(experiments=["red_strong"])
    assert found.X.tolist() == [[2, 3], [4, 5], [2, 3], [4, 5]]
    with pytest.raises(FileNotFoundError, match=r"has no uniform_blue_mid.csv"):
        datasets.light_tunnel(experiments=["blue_mid"])


def test_without_pooch_the_message_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.delenv(containers.ENVIRONMENT, raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r"latentdag\[datasets\]"):
        datasets.kras()


def test_progress_counts_megabytes():
    bar = containers.Progress("x", 0)
    told = containers._Megabytes(bar)
    told.total = 3 * 2**20
    for _ in range(3):
        told.update(2**20)
    told.reset()
    told.close()
    assert (bar.total, bar.done) == (3, 3)


# ---- containers -----------------------------------------------------------------------------------------------------


def test_screens_become_moments_and_anndata(geo):
    pytest.importorskip("anndata")
    found = datasets.kras(geo[0])
    adata = found.to_anndata()
    assert adata.obs["context"].tolist() == found.contexts.tolist()
    assert tuple(adata.var_names) == found.feature_names
    assert "4 samples, 4 features, 3 contexts, control 'WT'" in repr(found)
    rng = np.random.default_rng(0)
    depth = rng.normal(size=90)
    screen = datasets.Screen(
        "toy",
        rng.normal(size=(90, 2)) + depth[:, None],
        np.repeat(["WT", "A", "B"], 30),
        "WT",
        ("g1", "g2"),
        pd.DataFrame({"depth": depth}),
    )
    assert screen.moments("depth").covariances[0, 0, 0] < screen.moments().covariances[0, 0, 0]


def test_cohorts_insist_on_matching_patients():
    expression = pd.DataFrame({"g": [1.0, 2]}, index=["p", "q"])
    survival = pd.DataFrame({"time": [1.0, 2], "event": [0, 1]}, index=["q", "p"])
    with pytest.raises(ValueError, match="same patients"):
        datasets.Cohort("toy", expression, survival)
    with pytest.raises(ValueError, match="'event' is missing"):
        datasets.Cohort("toy", expression, survival.loc[["p", "q"], ["time"]])
    assert "2 patients, 1 genes, 1 events" in repr(datasets.Cohort("toy", expression, survival.loc[["p", "q"]]))


def test_the_known_graph_has_no_cycle():
    assert nx.is_directed_acyclic_graph(chamber.known_graph())
