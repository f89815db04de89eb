"""Regressing covariates out of moments is least squares with one intercept per context."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentdag as ld
from latentdag import stream
from latentdag.data.adjust import adjusted, coefficients, design
from latentdag.errors import ConfoundedCovariateWarning

from formats import cells
from strategies import seeds


def by_least_squares(X, labels, C):
    """Moments of residuals of an ordinary regression on context indicators and covariates (its own code path)."""
    indicators = pd.get_dummies(pd.Series(labels)).to_numpy(dtype=float)
    solution = np.linalg.lstsq(np.hstack([indicators, C]), X, rcond=None)[0]
    beta = solution[indicators.shape[1] :]
    return X - (C - C.mean(axis=0)) @ beta


def screen(seed, n=240, p=4):
    rng = np.random.default_rng(seed)
    labels = np.array(["WT", "A", "B"])[rng.integers(3, size=n)]
    depth = rng.normal(size=n) + 2 * (labels == "A")  # a perturbation that changes the depth
    batch = np.array(["b1", "b2", "b3"])[rng.integers(3, size=n)]
    effect = np.outer(depth, rng.normal(size=p)) + np.outer(batch == "b2", rng.normal(size=p))
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + effect + np.outer(labels == "A", rng.normal(size=p))
    return X, labels, pd.DataFrame({"depth": depth, "batch": batch})


@given(seeds, st.sampled_from([["depth"], ["batch"], ["depth", "batch"]]))
def test_adjusted_moments_are_those_of_least_squares_residuals(seed, names):
    X, labels, obs = screen(seed)
    C = pd.get_dummies(obs[names], drop_first=True).to_numpy(dtype=float)
    expected = ld.Moments.from_samples(by_least_squares(X, labels, C), labels, control="WT")
    for m in (
        ld.Moments.from_samples(X, labels, control="WT", adjust=obs[names]),
        stream.moments(X, labels, "WT", adjust=obs[names], block_rows=50),
        adjusted(ld.Moments.from_samples(np.hstack([X, C]), labels, control="WT"), C.shape[1]),
    ):
        np.testing.assert_allclose(m.covariances, expected.covariances, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(m.means, expected.means, rtol=1e-8, atol=1e-8)
        assert m.n_features == X.shape[1]
        assert m.contexts == ("WT", "A", "B")


@given(seeds)
def test_residuals_do_not_covary_with_covariates_within_contexts(seed):
    X, labels, obs = screen(seed)
    C = obs[["depth"]].to_numpy()
    joint = ld.Moments.from_samples(np.hstack([X, C]), labels, control="WT")
    R = np.hstack([X - C @ coefficients(joint, 1), C])
    after = ld.Moments.from_samples(R, labels, control="WT")
    pooled = np.einsum("k,kij->ij", after.counts - 1, after.covariances)
    np.testing.assert_allclose(pooled[:-1, -1], 0, atol=1e-9 * np.abs(pooled).max())


def test_the_effect_of_a_perturbation_on_the_mean_is_kept():
    rng = np.random.default_rng(0)
    labels = np.repeat(["WT", "A"], 5000)
    depth = rng.normal(size=10_000) + 3 * (labels == "A")
    X = rng.normal(size=(10_000, 2)) + np.outer(depth, [2.0, 0.0]) + np.outer(labels == "A", [1.0, 0.0])
    m = ld.Moments.from_samples(X, labels, control="WT", adjust={"depth": depth})
    np.testing.assert_allclose(m.means[1] - m.means[0], [1.0, 0.0], atol=0.15)
    np.testing.assert_allclose(m.covariances, np.broadcast_to(np.eye(2), (2, 2, 2)), atol=0.1)


def test_units_of_covariates_do_not_matter():
    X, labels, obs = screen(0)
    plain = ld.Moments.from_samples(X, labels, control="WT", adjust=obs)
    far = ld.Moments.from_samples(X, labels, control="WT", adjust=obs.assign(depth=obs["depth"] * 1e6 + 1e8))
    np.testing.assert_allclose(far.covariances, plain.covariances, rtol=1e-6, atol=1e-6)


def test_collinear_covariates_change_nothing():
    X, labels, obs = screen(0)
    plain = ld.Moments.from_samples(X, labels, control="WT", adjust=obs)
    twice = ld.Moments.from_samples(X, labels, control="WT", adjust=obs.assign(again=3 * obs["depth"] - 1, one=1.0))
    np.testing.assert_allclose(twice.covariances, plain.covariances, rtol=1e-8, atol=1e-8)


def test_a_constant_covariate_changes_nothing():
    X, labels, _ = screen(0)
    plain = ld.Moments.from_samples(X, labels, control="WT")
    m = ld.Moments.from_samples(X, labels, control="WT", adjust={"one": np.ones(len(X))})
    np.testing.assert_allclose(m.covariances, plain.covariances, rtol=1e-10, atol=1e-10)


def test_a_covariate_that_follows_the_contexts_is_left_alone_and_named():
    X, labels, obs = screen(0)
    confounded = obs[["depth"]].assign(plate=labels)
    with pytest.warns(ConfoundedCovariateWarning, match=r"2 covariates never vary within a context.*'plate\[B\]'"):
        m = ld.Moments.from_samples(X, labels, control="WT", adjust=confounded)
    plain = ld.Moments.from_samples(X, labels, control="WT", adjust=obs[["depth"]])
    np.testing.assert_allclose(m.covariances, plain.covariances, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(m.means, plain.means, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
@pytest.mark.parametrize("share", [1.0, 0.05])
def test_sparse_data_are_adjusted_alike(share):
    data = cells(share=share)
    C = pd.get_dummies(data.obs[["depth", "batch"]], drop_first=True).to_numpy(dtype=float)
    expected = ld.Moments.from_samples(by_least_squares(data.X, data.labels, C), data.labels, control="WT")
    m = stream.moments(data.X, data.labels, "WT", adjust=data.obs[["depth", "batch"]])
    np.testing.assert_allclose(m.covariances, expected.covariances, rtol=1e-8, atol=1e-8)


def test_columns_become_numbers():
    table = pd.DataFrame(
        {"depth": [1, 2, 3, 6], "batch": pd.Categorical(list("abca")), "flag": [True, False, True, True]}
    )
    C, names = design(table, 4)
    assert names == ("depth", "batch[b]", "batch[c]", "flag[True]")
    np.testing.assert_allclose(C.mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(C.std(axis=0), 1)
    assert design(pd.Series([1.0, 2.0], name="s"), 2)[1] == ("s",)
    assert design(np.ones((3, 2)) * [[1], [2], [4]], 3)[1] == ("covariate 0", "covariate 1")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"depth": [1.0, np.nan, 3.0]}, r"'depth' is missing in 1 rows \(the first is row 1\)"),
        ({"batch": ["a", None, "b"]}, "'batch' is missing in 1 rows"),
        ({"depth": [1.0, np.inf, 3.0]}, "'depth' is inf in row 1"),
        ({"depth": [1.0, 2.0]}, "2 rows but the samples are 3"),
        ({"batch": ["a", "a", "a"]}, "one level only"),
        (np.array(["a", "b", "c"]), "table of covariates"),
        (np.ones((3, 1, 1)), "table of covariates"),
    ],
)
def test_bad_covariates_are_named(columns, message):
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_samples(np.eye(3), ["WT", "A", "WT"], control="WT", adjust=columns)


def test_too_many_covariates_for_the_samples():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="5 covariates cannot be regressed out of 6 samples in 2 contexts"):
        ld.Moments.from_samples(rng.normal(size=(6, 2)), ["WT", "A"] * 3, control="WT", adjust=rng.normal(size=(6, 5)))
    with pytest.raises(ValueError, match="at least one of each"):
        adjusted(ld.Moments.from_samples(rng.normal(size=(6, 2)), ["WT", "A"] * 3, control="WT"), 2)
