"""Digits that float64 would lose: far means, small directions, squares out of range; the same through every door."""

from decimal import Decimal
from fractions import Fraction

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import latentdag as ld
from latentdag import stream

from formats import cells


def collinear(seed, p=5):
    """Samples of a model, plain and through a map of condition 1e8."""
    rng = np.random.default_rng([11, seed])
    X, contexts = ld.simulate.sample(ld.simulate.random_model(p, p, rng=rng), 1_000, rng)
    left, right = (np.linalg.qr(rng.normal(size=(p, p)))[0] for _ in range(2))
    return X, X @ (left @ np.diag(np.logspace(0, -8, p)) @ right).T, contexts


@pytest.mark.parametrize("seed", range(2))
def test_small_directions_survive_every_door(seed, tmp_path):
    X, mapped, contexts = collinear(seed)
    order = ld.fit(ld.Moments.from_samples(X, contexts, control="control")).order
    np.save(tmp_path / "x.npy", mapped)
    labels, half = np.array(contexts), np.arange(len(X)) % 2 == 0
    whole = ld.Moments.from_samples(mapped, contexts, control="control")
    noise = pd.DataFrame({"depth": np.random.default_rng(seed).normal(5, 2, size=len(X))})
    for m in (
        ld.Moments.from_samples(sparse.csc_array(mapped), contexts, control="control"),
        ld.Moments.from_samples(pd.DataFrame(mapped), contexts, control="control"),
        ld.Moments.from_samples(da.from_array(mapped, chunks=(700, 2)), contexts, control="control"),
        stream.moments(tmp_path / "x.npy", contexts, "control", block_rows=333),
        ld.Moments.from_samples(mapped[half], labels[half], control="control")
        + ld.Moments.from_samples(mapped[~half], labels[~half], control="control"),
        ld.Moments.from_samples(mapped, contexts, control="control", adjust=noise),
        ld.Moments.from_samples(da.from_array(mapped, chunks=(900, 5)), contexts, control="control", adjust=noise),
    ):
        assert ld.fit(m).order == order
        ratio = m.fine.along(whole.fine.axes).covariances / whole.fine.covariances
        np.testing.assert_allclose(np.diagonal(ratio, axis1=1, axis2=2), 1, atol=0.02)  # the covariate takes a little


def test_adjusting_keeps_small_directions_of_the_residuals():
    rng = np.random.default_rng(3)
    depth, Z = rng.normal(1e4, 300, size=(500, 1)), rng.normal(size=(500, 3))
    X = np.column_stack([Z[:, 0], Z[:, 0] + 1e-7 * Z[:, 1], Z[:, 0] + Z[:, 2]]) + depth * [1e-3, 1e-3, 2e-3]
    contexts = ["WT"] * 300 + ["A"] * 200
    m = ld.Moments.from_samples(X, contexts, "WT", adjust=depth)
    within = np.column_stack([depth, pd.get_dummies(contexts)]).astype(float)
    residual = X - within @ np.linalg.lstsq(within, X, rcond=None)[0]
    expected = np.cov((residual[:300] @ m.fine.axes.T).T)
    np.testing.assert_allclose(np.diagonal(m.fine.covariances[0]), np.diagonal(expected), rtol=1e-4)


@pytest.mark.parametrize("far", [0.0, 1e6, 1e12])
def test_shards_of_far_means_have_the_covariance_of_the_whole(far):
    rng = np.random.default_rng(int(np.log10(far + 1)))
    X = far + rng.normal(size=(400, 3)) + np.linspace(0, 3, 400)[:, None]
    shards = [ld.Moments.from_samples(part, ["a"] * len(part), None) for part in np.array_split(X, [7, 100, 101, 250])]
    np.testing.assert_allclose(sum(shards).covariances[0], np.cov((X - far).T), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "word"), [(1e76, "large"), (1e-76, "small"), (1e-200, "small"), (1e200, "large")])
def test_values_out_of_range_are_refused_by_context_and_feature(size, word):
    X = np.random.default_rng(0).normal(size=(20, 2)) * [1.0, size]
    said = rf"context 'b': .* feature 'x1' are too {word} .*give it other units"
    for rows in (X, sparse.csr_matrix(X), da.from_array(X, chunks=(6, 2))):
        with pytest.raises(ValueError, match=said):
            ld.Moments.from_samples(rows, ["b"] * 20, "b")
    if 1e-150 < size < 1e150:
        with pytest.raises(ValueError, match=said):
            ld.Moments.from_covariances(np.diag([1.0, size])[None] ** 2, 20, ["b"])
    shards = [ld.Moments.from_samples(row[None], ["b"], "b") for row in (X * [1.0, 0.0])[:2]]
    assert (shards[0] + shards[1]).covariances[0, 1, 1] == 0.0  # a feature that is constant has any size


def test_a_store_with_other_columns_than_features_is_refused_with_both_numbers(tmp_path):
    data = cells(n=60)
    data.adata.write_h5ad(tmp_path / "x.h5ad")
    with h5py.File(tmp_path / "x.h5ad", "a") as file:
        del file["X"]
        file["X"] = data.X[:, :5]
    with pytest.raises(ValueError, match=r"x\.h5ad has 5 columns, but var has 7 features"):
        stream.moments(tmp_path / "x.h5ad", "context", "WT")
    with h5py.File(tmp_path / "x.h5ad", "a") as file:
        del file["X"]
        file["X"] = data.X[:50]
    with pytest.raises(ValueError, match=r"50 rows .* 60 labels"):
        stream.moments(tmp_path / "x.h5ad", "context", "WT")
    with h5py.File(tmp_path / "x.h5ad", "a") as file:
        file["layers/compressed"].attrs["shape"] = (60, 6)
    with pytest.raises(ValueError, match=r"6 columns, but var has 7 features"):
        stream.moments(tmp_path / "x.h5ad", "context", "WT", layer="compressed")


def test_tables_may_hold_any_real_numbers_and_no_others():
    table = pd.DataFrame({"a": [Fraction(1, 2), 3, Decimal("0.25")], "b": np.array([1, 2, 4], dtype=">f8")})
    m = ld.Moments.from_samples(table, ["x"] * 3, "x", feature_names=["first", "second"])
    assert m.feature_names == ("first", "second")
    np.testing.assert_allclose(m.means[0], [1.25, 7 / 3])
    with pytest.raises(ValueError, match="'a' holds the whole number 4611686018427387905"):
        ld.Moments.from_samples(pd.DataFrame({"a": [2**62 + 1, 2]}), ["x"] * 2, "x")
