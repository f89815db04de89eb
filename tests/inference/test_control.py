"""Finding the control on samples."""

import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.inference.control import observational_context_test


def unnamed(m, seed):
    """The same moments in another order, with no control named."""
    order = np.random.default_rng(seed).permutation(len(m.contexts))
    return ld.Moments(
        tuple(m.contexts[k] for k in order),
        None,
        m.counts[order],
        m.means[order],
        m.covariances[order],
        m.feature_names,
    )


def test_the_truth_is_found_and_its_p_values_are_uniform():
    p, alone = [], 0
    for seed in range(20):
        model = ld.simulate.random_model(2, 2, density=1.0, convention="text", rng=seed)
        m = unnamed(ld.simulate.sample_moments(model, 2_000, rng=seed), seed)
        table = observational_context_test(m)
        assert table.index[0] == "control"
        p.append(table["p_value"]["control"])
        alone += table.attrs["plausible"] == ("control",)
        assert table["gap"].iloc[0] == 0
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert alone >= 16


def test_a_single_target_leaves_two_candidates():
    model = ld.LatentModel(
        [[1.0, 0.2], [0, 1]], np.zeros((2, 2)), [1, 1], {"k": ld.Intervention("Z1", variance=5)}, ["Z1", "Z2"]
    )
    table = observational_context_test(ld.simulate.sample_moments(model, 500, rng=0))
    assert set(table.attrs["plausible"]) == {"control", "k"}
    assert table["gap"].max() < 1e-3


def test_contexts_that_share_targets_are_grouped_first():
    names = ["Z1", "Z2", "Z3"]
    A = np.array([[0, 0, 0], [1.2, 0, 0], [0.9, -1.0, 0]])
    hits = {f"{name}{v}": ld.Intervention(name, variance=v) for name in names for v in (6.0, 0.2)}
    model = ld.LatentModel(np.random.default_rng(1).standard_normal((3, 3)), A, np.ones(3), hits, latents=names)
    table = observational_context_test(
        ld.simulate.sample_moments(model, 2_000, rng=0), candidates=["control", "Z16.0", "Z20.2"]
    )
    assert table.attrs["plausible"] == ("control",)
    assert set(table.index) == {"control", "Z16.0", "Z20.2"}


def test_samples_make_it_robust():
    model = ld.simulate.random_model(3, 3, density=1.0, convention="text", rng=3)
    X, labels = ld.simulate.sample(model, 2_000, rng=0, noise="exponential")
    m = ld.Moments.from_samples(X, labels, control=None)
    assert "control" not in observational_context_test(m, candidates=["control"]).attrs["plausible"]
    table = observational_context_test(m, data=(X, labels), candidates=["control", "c1"])
    assert table.attrs["plausible"] == ("control",)
    assert "fourth moments" in table.attrs["note"]


def test_robust_moments_stay_robust_whichever_context_is_the_control():
    """The samples behind them have outlying rows, which are passed over with every candidate."""
    X, labels = ld.simulate.sample(ld.simulate.random_model(3, 4, rng=2), 800, rng=0)
    X[:5] *= 30
    m = ld.Moments.from_samples(X, labels, control="control", robust=True)
    assert m.outliers.any()
    assert observational_context_test(m, data=(X, labels)).attrs["plausible"] == ("control",)


def test_bad_input():
    m = ld.simulate.sample_moments(ld.simulate.random_model(2, 2, rng=0), 100, rng=0)
    with pytest.raises(ValueError, match="no context 'nobody'"):
        observational_context_test(m, candidates=["nobody"])
    with pytest.raises(ValueError, match="at least two are needed"):
        observational_context_test(m.select([]))
    with pytest.raises(ValueError, match="alpha is a probability"):
        observational_context_test(m, alpha=1)
