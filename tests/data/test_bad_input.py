"""Bad input gets an error that says which context, which feature, which value, and what to do."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import latentdag as ld

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = ["WT"] * 60 + ["A"] * 40 + ["B"] * 20
S = np.array([np.cov(X[:60].T), np.cov(X[60:100].T), np.cov(X[100:].T)])


def replaced(array, where, value):
    changed = np.array(array, dtype=float)
    changed[where] = value
    return changed


def fit(X=X, y=Y, method="projection"):
    return ld.fit(ld.Moments.from_samples(X, y, control="WT", feature_names=["f", "g", "h"]), method=method)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ld.Moments.from_samples(X, Y, control="wt"), r"control 'wt' is not among .*'A' \(40\), 'B' \(20\), 'WT' \(60\)"),
        (lambda: ld.Moments.from_samples(X, ["WT"] * 60 + ["A\ud800"] * 60, "WT"), r"context label of row 60: 'A\\ud800' holds .* files cannot keep"),
        (lambda: ld.Moments.from_samples(X, Y, "WT", ["f", "\udcff", "h"]), r"feature 2: '\\udcff' holds .* files cannot keep"),
        (lambda: ld.Moments.from_samples(X, Y), r"name the control context.*'A' \(40\), 'B' \(20\), 'WT' \(60\)"),
        (lambda: fit(replaced(X, (70, 1), np.nan)), "context 'A': 1 values are not finite, the first nan in feature 'g', row 70"),
        (lambda: fit(replaced(X, (110, 2), np.inf)), "context 'B': .*the first inf in feature 'h', row 110"),
        (lambda: ld.Moments.from_samples(sparse.csr_matrix(replaced(X, (3, 0), np.nan)), Y, control="WT"),
         "context 'WT': .*feature 'x0', row 3"),
        (lambda: ld.Moments.from_samples(X, Y[:-1], control="WT"), "X has 120 rows but contexts has 119 labels"),
        (lambda: ld.Moments.from_samples(X, [None, *Y[1:]], control="WT"), r"1 rows have no context label \(the first is row 0\)"),
        (lambda: ld.Moments.from_samples(X, [[1]] * 120, control="WT"), "context labels must be hashable"),
        (lambda: ld.Moments.from_samples(X, "WT", control="WT"), "one label per row of X, got the single value 'WT'"),
        (lambda: ld.Moments.from_samples(X[:, 0], Y, control="WT"), "two dimensions"),
        (lambda: ld.Moments.from_samples(X[:, :0], Y, control="WT"), "X is empty"),
        (lambda: ld.Moments.from_samples(pd.DataFrame({"a": ["x"] * 120}), Y, control="WT"), "feature column 'a' holds"),
        (lambda: ld.Moments.from_samples([["x", "y"]], ["WT"], control="WT"), "matrix of numbers"),
        (lambda: ld.Moments.from_samples(X, Y, control="WT", feature_names=["a", "b"]), "3 features but 2 feature names"),
        (lambda: ld.Moments.from_samples(X, Y, control="WT", feature_names=["a", "b", "a"]), "'a' occurs more than once"),
        (lambda: fit(X[:60], Y[:60]), "only the context 'WT' is present"),
        (lambda: fit(replaced(X, (slice(None), 1), 4.0)), "1 features are constant in every context: drop 'g'"),
        (lambda: fit(X[:103], Y[:103]), "context 'B' has 3 samples for 3 feature dimensions"),
        (lambda: fit(method="magic"), "method must be one of 'likelihood'"),
        (lambda: ld.fit(ld.Moments.from_samples(X, Y, control=None)), r"name no control context; the contexts are 'A' \(40\)"),
        (lambda: ld.fit(ld.Moments.from_samples(X, Y, control="WT"), method="projection", gamma=2.0), "gamma is a fraction"),
    ],
)  # fmt: skip
def test_samples(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"covariances": S[0]}, r"shape \(K\+1, p, p\), got \(3, 3\)"),
        ({"covariances": replaced(S, (1, 0, 2), 9.0)}, r"context 'A': the covariance is not symmetric: \['x0', 'x2'\]"),
        ({"covariances": replaced(S, (2, 1, 1), np.nan)}, "context 'B': the covariance of 'x1' and 'x1' is nan"),
        ({"covariances": np.array([S[0], S[1], np.diag([1.0, -1.0, 1.0])])}, "context 'B': .* not positive semi-definite"),
        ({"contexts": ["WT", "A", "A"]}, "context label 'A' occurs more than once"),
        ({"contexts": ["WT", "A"]}, "3 covariances but 2 context labels"),
        ({"counts": [10, 20]}, "counts must be one number or one per context"),
        ({"counts": [10, 20, 0]}, "context 'B': the count must be a positive whole number, got 0"),
        ({"counts": [10, 20, 2.5]}, r"context 'B': the count must be a positive whole number, got 2\.5"),
        ({"means": np.zeros((2, 3))}, r"means must have shape \(3, 3\)"),
        ({"means": replaced(np.zeros((3, 3)), (1, 2), np.inf)}, "context 'A': the mean of feature 'x2' is inf"),
        ({"control": "wt"}, "control 'wt' is not among the contexts"),
        ({"feature_names": ["a"]}, "3 features but 1 feature names"),
    ],
)  # fmt: skip
def test_covariances(arguments, message):
    given = {"covariances": S, "counts": [60, 40, 20], "contexts": ["WT", "A", "B"]}
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_covariances(**{**given, **arguments})


def test_more_targets_than_dimensions():
    truth = ld.simulate.random_model(n_latents=2, n_features=4, rng=0)
    extra = [truth.intervene({"c1": {"variance": v}}).covariance for v in (3.0, 5.0)]
    m = ld.Moments.from_covariances([*(truth.covariance(c) for c in truth.contexts), *extra], 1000)
    with pytest.raises(ValueError, match="4 contexts with an intervention, but the data have only 2 dimensions"):
        ld.fit(m, method="projection")


def test_a_singular_context_is_named():
    singular = S.copy()
    singular[1] = np.diag([1.0, 1.0, 0.0])
    m = ld.Moments.from_covariances(singular, 100, ["WT", "A", "B"])
    with pytest.raises(ValueError, match="context 'A': its matrix is not positive definite"):
        ld.fit(m, method="projection")


def test_fit_wants_moments():
    with pytest.raises(TypeError, match=r"fit takes Moments, got ndarray.*from_samples"):
        ld.fit(X)
    with pytest.raises(TypeError, match=r"method 'exact' has no such option.*gamma"):
        ld.fit(ld.Moments.from_samples(X, Y, control="WT"), method="exact", gamma=0.9)


def test_merging_what_does_not_belong_together():
    a = ld.Moments.from_samples(X, Y, control="WT")
    with pytest.raises(ValueError, match=r"different features .*first difference 'x0' / 'y0'"):
        a + ld.Moments.from_samples(X, Y, control="WT", feature_names=["y0", "y1", "y2"])
    with pytest.raises(ValueError, match="the control is 'WT' on one side and 'A' on the other"):
        a + ld.Moments.from_samples(X, Y, control="A")


@pytest.mark.parametrize("seed", range(6))
def test_units_that_cannot_stand_beside_each_other(seed):
    """Refused with both features; in any units that are taken, the answer is the same."""
    truth = ld.simulate.random_model(n_latents=3, n_features=3 + seed % 2, rng=seed)
    m = ld.simulate.sample_moments(truth, 500, rng=seed)
    fit = ld.fit(m, "closed-form")

    def in_units(s):
        return ld.Moments.from_covariances(m.covariances * np.outer(s, s), m.counts, m.contexts, m.control, m.means * s)

    rng = np.random.default_rng(seed)
    s = 10.0 ** rng.uniform(-3, 3, m.n_features) * 10.0 ** rng.uniform(-60, 60)
    other = ld.fit(in_units(s), "closed-form")
    assert other.order == fit.order
    np.testing.assert_allclose(
        other.model.covariance("c1") / np.outer(s, s), fit.model.covariance("c1"), rtol=1e-4, atol=1e-6
    )
    s[0], s[1:] = 1e13, 1.0
    with pytest.raises(ValueError, match=r"features 'x\d' and 'x0' have deviations of .*: give them units"):
        ld.fit(in_units(s))
