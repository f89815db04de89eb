"""Moments of AnnData objects: in memory, backed and lazy, none of them read at once."""

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import latentdag as ld
from latentdag.data import prepare
from latentdag.errors import EmptyCategoryWarning

from formats import cells


def same(a, b, rtol=1e-11):
    assert a.contexts == b.contexts
    assert a.feature_names == b.feature_names
    np.testing.assert_array_equal(a.counts, b.counts)
    np.testing.assert_allclose(a.means, b.means, rtol=rtol)
    np.testing.assert_allclose(a.covariances, b.covariances, rtol=rtol, atol=rtol * np.abs(b.covariances).max())


def expected_of(data):
    return ld.Moments.from_samples(data.X, data.labels, control="WT", feature_names=data.names)


def lazy(data, path, key="X"):
    """As ``anndata.experimental.read_lazy`` makes them, which needs xarray."""
    data.adata.write_h5ad(path)
    X = ad.experimental.read_elem_lazy(h5py.File(path)[key], chunks=(200, len(data.names)))
    return ad.AnnData(X, obs=data.obs.copy(), var=pd.DataFrame(index=data.names))


def test_in_memory():
    data = cells()
    m = ld.Moments.from_anndata(data.adata, context_key="context", control="WT")
    same(m, expected_of(data))
    assert m.control == "WT"
    same(ld.Moments.from_anndata(data.adata, "context", "WT", layer="compressed"), m)


@pytest.mark.parametrize("key", ["X", "layers/compressed"])
def test_lazy(key, tmp_path):
    data = cells()
    adata = lazy(data, tmp_path / "x.h5ad", key)
    same(ld.Moments.from_anndata(adata, "context", "WT"), expected_of(data))
    assert hasattr(adata.X, "dask")
    again = ld.Moments.from_anndata(adata, "context", "WT", progress=False, checkpoint=tmp_path / "c.npz")
    same(again, expected_of(data))


def test_backed_is_read_block_by_block(tmp_path, monkeypatch):
    data = cells()
    data.adata.write_h5ad(tmp_path / "x.h5ad")
    backed = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
    monkeypatch.setattr(prepare, "LOOK", 100)
    asked = []
    read = h5py.Dataset.__getitem__

    def watched(self, args, **kwargs):
        out = read(self, args, **kwargs)
        asked.append(np.shape(out)[0] if np.ndim(out) == 2 else 0)
        return out

    monkeypatch.setattr(h5py.Dataset, "__getitem__", watched)
    same(ld.Moments.from_anndata(backed, "context", "WT", block_rows=200), expected_of(data))
    assert max(asked) == 200
    assert backed.isbacked


def test_some_cells_of_a_backed_object(tmp_path):
    data = cells()
    data.adata.write_h5ad(tmp_path / "x.h5ad")
    backed = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
    chosen = np.random.default_rng(0).permutation(len(data.X))[:900]
    m = ld.Moments.from_anndata(backed[chosen, ["g5", "g2"]], "context", "WT", block_rows=200)
    X = data.X[chosen][:, [5, 2]]
    same(m, ld.Moments.from_samples(X, data.labels[chosen], control="WT", feature_names=["g5", "g2"]))


@pytest.mark.parametrize("mask", ["good", np.arange(7) < 3, ["g0", "g1", "g2"]])
def test_some_features(mask):
    data = cells()
    adata = data.adata
    adata.var["good"] = np.arange(7) < 3
    m = ld.Moments.from_anndata(adata, "context", "WT", mask_var=mask)
    same(m, ld.Moments.from_samples(data.X[:, :3], data.labels, control="WT", feature_names=["g0", "g1", "g2"]))


@pytest.mark.parametrize("kind", ["memory", "backed", "lazy"])
def test_covariates_are_columns_of_obs(kind, tmp_path):
    data = cells()
    adata = data.adata if kind == "memory" else lazy(data, tmp_path / "x.h5ad")
    if kind == "backed":
        adata = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
    m = ld.Moments.from_anndata(adata, "context", "WT", adjust=["depth", "batch"])
    covariates = data.obs[["depth", "batch"]]
    same(m, ld.Moments.from_samples(data.X, data.labels, control="WT", feature_names=data.names, adjust=covariates))


def test_cells_without_label_are_counted():
    adata = cells().adata
    adata.obs["context"] = adata.obs["context"].where(np.arange(adata.n_obs) >= 12)
    with pytest.raises(ValueError, match=r"12 of 1500 cells have no label in obs\['context'\]: drop them with adata"):
        ld.Moments.from_anndata(adata, "context", "WT")


def test_empty_categories_are_counted_and_left_out():
    data = cells()
    adata = data.adata
    adata.obs["context"] = pd.Categorical(data.labels, categories=["Z", "WT", "A", "B", "NA", "Y"])
    with pytest.warns(EmptyCategoryWarning, match="2 categories of .* have no cells and are left out: 'Z', 'Y'"):
        m = ld.Moments.from_anndata(adata, "context", "WT")
    same(m, expected_of(data))


def test_contexts_with_too_few_cells_are_counted():
    data = cells()
    labels = data.labels.astype(object)
    labels[:3] = ["one", "two", "two"]
    adata = data.adata
    adata.obs["context"] = labels
    with pytest.raises(ValueError, match=r"1 contexts of obs\['context'\] have fewer than 2 cells: 'one' \(1\)"):
        ld.Moments.from_anndata(adata, "context", "WT")
    with pytest.raises(ValueError, match=r"2 contexts .* fewer than 5 cells: 'two' \(2\), 'one' \(1\)"):
        ld.Moments.from_anndata(adata, "context", "WT", min_cells=5)
    assert ld.Moments.from_anndata(adata, "context", "WT", min_cells=1).counts.min() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_key": "nope"}, "no column 'nope'; its columns are 'context', 'depth', 'batch'"),
        ({"control": "nope"}, r"control 'nope' is not among the contexts; the labels present are 'A' \("),
        ({"layer": "nope"}, "no layer 'nope'"),
        ({"mask_var": "nope"}, "adata.var has no column 'nope'"),
        ({"mask_var": "length"}, "must be boolean"),
        ({"adjust": ["nope"]}, "no column 'nope'"),
    ],
)
def test_what_is_not_there_is_named(options, message):
    adata = cells().adata
    adata.var["length"] = 1.0
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_anndata(adata, **{"context_key": "context", "control": "WT", **options})


def test_the_control_must_be_named():
    with pytest.raises(ValueError, match="name the control context with control=…"):
        ld.Moments.from_anndata(cells().adata, "context")


def test_an_object_without_x():
    data = cells()
    adata = ad.AnnData(obs=data.obs, var=pd.DataFrame(index=data.names), layers={"c": sparse.csr_matrix(data.X)})
    with pytest.raises(ValueError, match="name one of its layers with layer=… \\('c'\\)"):
        ld.Moments.from_anndata(adata, "context", "WT")
    same(ld.Moments.from_anndata(adata, "context", "WT", layer="c"), expected_of(data))
