"""The fit of an AnnData object is the fit of its moments, and survives every file that AnnData writes."""

import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import latentdag as ld
from latentdag import tl
from latentdag.data import stream

ad = pytest.importorskip("anndata")
pytestmark = [
    # of anndata and zarr, about themselves
    pytest.mark.filterwarnings("ignore::FutureWarning:anndata"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:anndata"),
    pytest.mark.filterwarnings("ignore:The .* option is deprecated"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
]

N_GENES = 7


@pytest.fixture(scope="module")
def screen():
    """Four contexts of 300 cells; five genes carry the three latents, two are noise."""
    truth = ld.simulate.random_model(3, 5, density=1, rng=2)
    X, y = ld.simulate.sample(truth, 300, rng=0)
    rng = np.random.default_rng(1)
    X = np.hstack([X + 0.05 * rng.normal(size=X.shape), rng.normal(size=(len(X), 2))])
    cells = [f"cell{i}" for i in range(len(X))]
    var = pd.DataFrame({"chosen": [True] * 5 + [False] * 2}, index=[f"g{j}" for j in range(N_GENES)])
    return ad.AnnData(X, obs=pd.DataFrame({"guide": pd.Categorical(y)}, index=cells), var=var)


@pytest.fixture(scope="module")
def done(screen):
    return tl.latentdag(screen, "guide", control="control", mask_var="chosen", copy=True)


def test_strengths_come_from_a_column(screen):
    """Of cells, whether they were perturbed: their share is the strength."""
    adata = screen.copy()
    of_context = adata.obs.groupby("guide", observed=True).cumcount()
    adata.obs["edited"] = (of_context < 240) & (adata.obs["guide"] != "control")
    tl.latentdag(adata, "guide", control="control", mask_var="chosen", strength="edited", means=False)
    assert dict(tl.fit_of(adata).options.strength) == dict.fromkeys(("c1", "c2", "c3"), 0.8)
    adata.obs["edited"] = "yes"
    with pytest.raises(ValueError, match="must hold a number for every cell"):
        tl.latentdag(adata, "guide", control="control", mask_var="chosen", strength="edited")


def test_targets_come_from_a_column_and_name_the_latents(screen):
    """Guides of one gene share its latent; cells without a guide have no gene, and need none."""
    adata = screen.copy()
    gene = {"control": np.nan, "c1": "IRF1", "c2": "STAT1", "c3": "IRF1"}
    adata.obs["gene"] = pd.Categorical(adata.obs["guide"].astype(str).map(gene))
    with pytest.warns(ld.errors.VerdictWarning, match="These data refuse the model"):  # c1 and c3 hit two latents
        tl.latentdag(adata, "guide", control="control", mask_var="chosen", targets="gene")
    fit = tl.fit_of(adata)
    assert set(fit.latents) == {"IRF1", "STAT1"}
    assert fit.targets == {"c1": "IRF1", "c2": "STAT1", "c3": "IRF1"}
    adata.obs["gene"] = np.where(adata.obs.index == "cell400", "JAK2", adata.obs["gene"].astype(str))
    with pytest.raises(ValueError, match=r"cells of 'c1' have two targets in obs\['gene'\], 'IRF1' and 'JAK2'"):
        tl.latentdag(adata, "guide", control="control", mask_var="chosen", targets="gene")
    adata.obs["gene"] = 3
    with pytest.raises(ValueError, match="must name a target for every cell of 'c1', got 3"):
        tl.latentdag(adata, "guide", control="control", mask_var="chosen", targets="gene")


def plain_values(value, path="uns"):
    """Every leaf and key of nested dictionaries."""
    if isinstance(value, dict):
        for key, part in value.items():
            assert isinstance(key, str), path
            assert "/" not in key, path
            yield from plain_values(part, f"{path}[{key!r}]")
    else:
        yield path, value


def test_it_is_the_fit_of_the_moments(screen, done):
    X = np.asarray(screen.X)[:, :5]
    found = ld.fit(
        ld.Moments.from_samples(X, screen.obs["guide"], control="control", feature_names=screen.var_names[:5])
    )
    np.testing.assert_allclose(done.obsm["latentdag"], found.model.transform(X), atol=1e-9)
    np.testing.assert_allclose(done.varm["latentdag"][:5], found.model.unmixing.T)
    np.testing.assert_allclose(done.varm["latentdag_mixing"][:5], found.model.mixing)
    assert np.isnan(done.varm["latentdag"][5:]).all()
    written = done.uns["latentdag"]
    assert list(written["latents"]) == list(found.latents)
    assert list(written["order"]) == list(found.order)
    assert list(written["contexts"]) == ["control", "c1", "c2", "c3"]
    assert written["counts"].tolist() == [300] * 4
    assert dict(zip(written["targets"]["context"], written["targets"]["latent"], strict=True)) == found.targets
    pd.testing.assert_frame_equal(pd.DataFrame(written["edges"]), found.edges(), check_dtype=False)
    assert written["params"]["method"] == "likelihood"
    assert "latentdag" not in screen.uns  # copy=True left it alone


def test_scores_are_what_the_model_says(screen, done):
    Z = tl.fit_of(done).model.transform(np.asarray(screen.X)[:, :5])
    np.testing.assert_allclose(done.obsm["latentdag"], Z, atol=1e-9)


def test_only_arrays_and_text_are_written(done):
    for path, value in plain_values(done.uns["latentdag"]):
        assert isinstance(value, np.ndarray | str | bool | int | float), path


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_round_trip(done, tmp_path, kind):
    path = tmp_path / f"screen.{kind}"
    getattr(done, f"write_{kind}")(path)
    back = ad.read_h5ad(path) if kind == "h5ad" else ad.read_zarr(path)
    np.testing.assert_array_equal(back.obsm["latentdag"], done.obsm["latentdag"])
    np.testing.assert_array_equal(back.varm["latentdag"], done.varm["latentdag"])
    before, after = dict(plain_values(done.uns["latentdag"])), dict(plain_values(back.uns["latentdag"]))
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(np.asarray(after[name]), np.asarray(value), err_msg=name)
    same_fit(tl.fit_of(back), tl.fit_of(done))


def same_fit(a, b):
    np.testing.assert_array_equal(a.model.unmixing, b.model.unmixing)
    assert (a.order, a.targets, a.counts, a.method, a.loglik) == (b.order, b.targets, b.counts, b.method, b.loglik)
    assert nx.utils.graphs_equal(a.graph, b.graph)
    pd.testing.assert_frame_equal(a.edges(), b.edges())


def test_a_fit_without_edges_round_trips(screen, tmp_path):
    adata = screen.copy()
    tl.latentdag(adata, "guide", control="control", mask_var="chosen", penalty=1e9, key_added="empty")
    adata.write_h5ad(tmp_path / "e.h5ad")
    assert tl.fit_of(ad.read_h5ad(tmp_path / "e.h5ad"), "empty").graph.number_of_edges() == 0


def test_labels_that_would_be_bad_keys(screen, tmp_path):
    adata = screen.copy()
    adata.obs["guide"] = adata.obs["guide"].map({"control": "NT/0", "c1": "a/b", "c2": "12", "c3": "<script>"})
    tl.latentdag(adata, "guide", control="NT/0", mask_var="chosen")
    adata.write_h5ad(tmp_path / "s.h5ad")
    found = tl.fit_of(ad.read_h5ad(tmp_path / "s.h5ad"))
    assert found.model.control == "NT/0"
    assert set(found.targets) == {"a/b", "12", "<script>"}


def test_numbers_as_labels_keep_their_type(screen):
    adata = screen.copy()
    adata.obs["guide"] = adata.obs["guide"].map({"control": 0, "c1": 1, "c2": 2, "c3": 3}).astype(int)
    tl.latentdag(adata, "guide", control=0, mask_var="chosen")
    assert set(tl.fit_of(adata).targets) == {1, 2, 3}


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_backed(screen, done, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(stream, "FEW_VALUES", N_GENES * 100)  # so that there are blocks
    made = screen.copy()
    made.X = sparse.csr_matrix(made.X) if kind == "csr" else made.X
    made.write_h5ad(tmp_path / "b.h5ad")
    adata = ad.read_h5ad(tmp_path / "b.h5ad", backed="r")
    tl.latentdag(adata, "guide", control="control", mask_var="chosen")
    np.testing.assert_allclose(adata.obsm["latentdag"], done.obsm["latentdag"], atol=1e-6)
    assert adata.isbacked
    with pytest.raises(ValueError, match=r"to_memory\(\) first"):
        tl.latentdag(adata, "guide", control="control", copy=True)
    adata.file.close()


def test_layers_and_masks(screen, done):
    adata = screen.copy()
    adata.layers["scaled"], adata.X = sparse.csr_matrix(adata.X), np.zeros(adata.shape)
    tl.latentdag(adata, "guide", control="control", layer="scaled", mask_var=np.array([True] * 5 + [False] * 2))
    np.testing.assert_allclose(adata.obsm["latentdag"], done.obsm["latentdag"], atol=1e-6)


def test_cells_left_out_are_counted_and_still_scored(screen, done):
    adata = screen.copy()
    labels = adata.obs["guide"].cat.add_categories(["nobody", "rare"])
    labels.iloc[:4] = np.nan
    labels.iloc[4:6] = "rare"
    adata.obs["guide"] = labels
    said = (
        r"4 cells have no label; 1 contexts have fewer than 3 cells: 'rare' \(2\); 1 categories have no cells: 'nobody'"
    )
    with pytest.warns(tl.LabelWarning, match=said + r"\. Not in the fit: 6 of 1200 cells"):
        tl.latentdag(adata, "guide", control="control", mask_var="chosen")
    params = adata.uns["latentdag"]["params"]
    assert (params["n_cells"], params["n_unlabelled"], params["n_in_few"]) == (1194, 4, 2)
    assert np.isfinite(adata.obsm["latentdag"]).all()
    assert tl.fit_of(adata).counts == (294, 300, 300, 300)


def test_categories_without_cells_are_named_once(screen):
    adata = screen.copy()
    adata.obs["guide"] = adata.obs["guide"].cat.add_categories(["nobody"])
    with pytest.warns(ld.errors.LatentDAGWarning, match="1 categories .* 'nobody'") as said:
        tl.latentdag(adata, "guide", control="control", mask_var="chosen")
    assert sum(issubclass(each.category, ld.errors.LatentDAGWarning) for each in said) == 1


def test_covariates_are_regressed_out(screen, done):
    adata = screen.copy()
    rng = np.random.default_rng(3)
    adata.obs["depth"] = rng.normal(size=adata.n_obs)
    adata.X = np.asarray(adata.X) + np.outer(adata.obs["depth"], rng.normal(size=N_GENES))
    tl.latentdag(adata, "guide", control="control", mask_var="chosen", adjust=["depth"])
    assert adata.uns["latentdag"]["params"]["adjust"] == "depth"
    before, after = tl.fit_of(done), tl.fit_of(adata)
    X = np.asarray(screen.X)[:, :5]
    for name in before.latents:  # the same latents as without the covariate in the data
        scores = [found.model.transform(X)[:, found.latents.index(name)] for found in (before, after)]
        assert np.corrcoef(*scores)[0, 1] > 0.9999


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_key": "sgRNA"}, r"obs has no column 'sgRNA'; its columns are 'guide'"),
        ({"control": "NT"}, r"no cells of the control 'NT'; the labels present are 'c1' \(300\)"),
        ({"control": None}, r"no cells of the control None; the labels present are 'c1' \(300\)"),
        ({"key_added": "a/b"}, "text without '/'"),
        ({"min_cells": 1}, "min_cells must be at least 3, got 1"),
        ({"min_cells": 301}, "the control 'control' has 300 cells, at least 301"),
    ],
)
def test_complaints(screen, change, message):
    with pytest.raises(ValueError, match=message):
        tl.latentdag(screen, **{"context_key": "guide", "control": "control"} | change)


def test_a_fit_that_is_not_there(screen, done):
    with pytest.raises(ValueError, match=r"uns\['latentdag'\] holds no fit"):
        tl.fit_of(screen)
    with pytest.raises(ValueError, match="has no feature 'g0'"):
        tl.latent_scores(screen[:, 2:], tl.fit_of(done).model)


def test_the_stored_description_is_json(done):
    assert json.loads(done.uns["latentdag"]["fit"]["meta"])["options"]["method"] == "likelihood"
