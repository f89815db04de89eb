"""Adjusted p-values are those computed by hand; tests that were not made stay out."""

import numpy as np
import pytest
from scipy import stats

from latentdag.core.multiplicity import benjamini_hochberg, holm


def test_adjusted_p_values_by_hand():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(holm(p), [0.03, np.nan, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(benjamini_hochberg(p), [0.02, np.nan, 0.04, 0.04, 0.02])


def test_q_values_count_the_pairs_that_were_dropped():
    p = np.array([0.001, np.nan, 0.01])
    np.testing.assert_allclose(benjamini_hochberg(p, 10), [0.01, np.nan, 0.05])
    np.testing.assert_allclose(benjamini_hochberg(p, 2), benjamini_hochberg(p))  # a family is no smaller than its tests
    np.testing.assert_allclose(benjamini_hochberg(p, 0), benjamini_hochberg(p))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_without_tests_nothing_is_adjusted(adjust):
    assert np.isnan(adjust(np.array([np.nan]))).all()
    assert adjust(np.array([])).shape == (0,)
    assert adjust(np.array([0.2])).tolist() == [0.2]


def test_the_definitions_hold_for_any_p_values():
    """Holm: the running maximum of (n − i) p_(i); Benjamini and Hochberg: the running minimum of n p_(i)/i from above."""
    rng = np.random.default_rng(0)
    for n in range(1, 30):
        p = rng.uniform(size=n) ** 3
        p[rng.uniform(size=n) < 0.2] = p[0]  # ties
        ordered = np.sort(p)
        by_holm = {v: min(1, max((n - j) * ordered[j] for j in range(n) if ordered[j] <= v)) for v in p}
        by_rate = {v: min(n * ordered[j] / (j + 1) for j in range(n) if ordered[j] >= v) for v in p}
        np.testing.assert_allclose(holm(p), [by_holm[v] for v in p])
        np.testing.assert_allclose(benjamini_hochberg(p), [by_rate[v] for v in p])
        np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))
