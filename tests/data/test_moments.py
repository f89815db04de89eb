from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import latentdag as ld

from strategies import seeds


def screen(seed=0, sizes=(40, 30, 25), p=4, labels=("WT", "A", "B")):
    sizes = sizes[: len(labels)]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), p)) * rng.uniform(0.1, 50, p) + rng.normal(size=p) * 100
    y = np.empty(sum(sizes), dtype=object)
    y[:] = [label for label, size in zip(labels, sizes, strict=True) for _ in range(size)]
    shuffled = rng.permutation(len(y))
    return X[shuffled], y[shuffled]


def test_moments_are_numpys():
    X, y = screen()
    m = ld.Moments.from_samples(X, y, control="WT")
    assert m.contexts == ("WT", "A", "B")
    assert m.control == "WT"
    for k, label in enumerate(m.contexts):
        rows = X[y == label]
        np.testing.assert_allclose(m.means[k], rows.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(m.covariances[k], np.cov(rows.T), rtol=1e-10)
        assert m.counts[k] == len(rows)


@pytest.mark.parametrize("kind", ["frame", "csr", "csc", "sparse array", "list", "float32", "fortran"])
def test_every_container_gives_the_same_moments(kind):
    X, y = screen()
    X = np.round(X)
    made = {
        "frame": pd.DataFrame(X, columns=list("abcd")),
        "csr": sparse.csr_matrix(X),
        "csc": sparse.csc_matrix(X),
        "sparse array": sparse.csr_array(X),
        "list": X.tolist(),
        "float32": X.astype(np.float32),
        "fortran": np.asfortranarray(X),
    }[kind]
    expected = ld.Moments.from_samples(X, y, control="WT")
    m = ld.Moments.from_samples(made, pd.Series(y), control="WT")
    np.testing.assert_allclose(m.covariances, expected.covariances, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(m.means, expected.means, rtol=1e-12)
    assert m.feature_names == (tuple("abcd") if kind == "frame" else ("x0", "x1", "x2", "x3"))


@pytest.mark.parametrize(
    "labels",
    [
        ("WT", "A", "B"),
        (0, 2, 10),
        (("WT",), ("A", 1), ("B", "C")),
        (True, False, "x"),
        (b"w", b"a", b"b"),
        (1, "1", 2),
    ],
)
def test_labels_of_any_hashable_type(labels):
    X, y = screen(labels=labels)
    m = ld.Moments.from_samples(X, list(y), control=labels[0])
    assert m.control == labels[0] == m.contexts[0]
    assert set(m.contexts) == set(labels)
    for label, size in zip(labels, (40, 30, 25), strict=False):
        assert m.counts[m.index(label)] == size


def test_categorical_labels_leave_out_empty_categories():
    X, y = screen()
    m = ld.Moments.from_samples(X, pd.Categorical(y, categories=["unused", "A", "B", "WT"]), control="WT")
    assert m.contexts == ("WT", "A", "B")


@given(seeds, st.integers(2, 5))
def test_merging_shards_is_exact(seed, n_shards):
    X, y = screen(seed)
    rng = np.random.default_rng(seed)
    shard = rng.integers(n_shards, size=len(y))
    parts = [
        ld.Moments.from_samples(X[shard == s], y[shard == s], control="WT" if "WT" in y[shard == s] else None)
        for s in range(n_shards)
        if (shard == s).any()
    ]
    whole = ld.Moments.from_samples(X, y, control="WT")
    for merged in (reduce(add, parts), sum(parts)):
        assert merged.contexts == whole.contexts
        np.testing.assert_array_equal(merged.counts, whole.counts)
        np.testing.assert_allclose(merged.means, whole.means, rtol=1e-12)
        np.testing.assert_allclose(merged.covariances, whole.covariances, rtol=1e-9, atol=1e-9)


def test_means_far_from_zero_keep_their_digits():
    X, y = screen()
    expected = ld.Moments.from_samples(X - X.mean(axis=0), y, control="WT")
    m = ld.Moments.from_samples(X + 1e7, y, control="WT")
    np.testing.assert_allclose(m.covariances, expected.covariances, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("labels", [("WT", "A", "B"), (0, 1, 2), (("WT", 0), ("A", 1), ("B", 2))])
def test_save_and_load(tmp_path, labels):
    X, y = screen(labels=labels)
    m = ld.Moments.from_samples(X, list(y), control=labels[0], feature_names=["α", "b/c", "<d>", "e"])
    m.save(tmp_path / "m.npz")
    back = ld.Moments.load(tmp_path / "m.npz")
    assert back.contexts == m.contexts
    assert back.control == m.control
    assert back.feature_names == m.feature_names
    for name in ("counts", "means", "covariances"):
        np.testing.assert_array_equal(getattr(back, name), getattr(m, name))
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"], "no temporary file stays behind"


def test_from_covariances_puts_the_control_first():
    S = np.array([np.eye(2) * (k + 1) for k in range(3)])
    m = ld.Moments.from_covariances(S, [10, 20, 30], contexts=["A", "WT", "B"], control="WT")
    assert m.contexts == ("WT", "A", "B")
    assert m.counts.tolist() == [20, 10, 30]
    np.testing.assert_array_equal(m.covariances[0], 2 * np.eye(2))
    assert ld.Moments.from_covariances(S, 10).control == 0
    assert not ld.Moments.from_covariances(S, 10).means.any()


def test_select_keeps_the_control():
    X, y = screen()
    m = ld.Moments.from_samples(X, y, control="WT").select(["B"])
    assert m.contexts == ("WT", "B")
    assert m.n_contexts == 1


def test_arrays_cannot_be_changed_by_accident():
    X, y = screen()
    m = ld.Moments.from_samples(X, y, control="WT")
    with pytest.raises(ValueError, match="read-only"):
        m.covariances[0] = 0


def test_whitened_moments_are_computed_once_and_pool_to_the_identity():
    rng = np.random.default_rng(3)
    X, contexts = rng.normal(size=(900, 5)) @ rng.normal(size=(5, 5)), np.repeat(["WT", "A", "B"], 300)
    m = ld.Moments.from_samples(X, contexts, control="WT")
    white = m.whitened
    assert m.whitened is white
    np.testing.assert_allclose(white.W @ m.covariances @ white.W.T, white.S, atol=1e-9)
    np.testing.assert_allclose(np.tensordot(m.counts / m.counts.sum(), white.S, axes=1), np.eye(5), atol=1e-9)
    assert white.definite.all()
    assert not ld.Moments.from_samples(X[:602], contexts[:602], control="WT").whitened.definite[-1]
    flat = ld.Moments.from_samples(np.hstack([X, X[:, :2]]), contexts, control="WT")
    assert flat.whitened.W.shape == (5, 7)
    units = np.array([1e-6, 1.0, 1e6, 3.0, 1e3])
    scaled = ld.Moments.from_samples(X * units, contexts, control="WT").whitened
    np.testing.assert_allclose(np.linalg.eigvalsh(scaled.S), np.linalg.eigvalsh(white.S), atol=1e-9)
