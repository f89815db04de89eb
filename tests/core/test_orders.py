"""Cholesky factors of all mechanisms follow moves of rows."""

import numpy as np
import pytest

from latentdag.core.orders import Factors, Stack

from designs import DESIGNS, random_point


@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("parity", [0, 1])
def test_factors_of_turned_rows_are_those_of_the_rows(name, parity):
    design, H, _, rng = random_point(name, 4)
    order = tuple(rng.permutation(design.d).tolist())
    factors, moved = Factors(Stack(design), H, order), H.copy()
    J = rng.normal(size=((design.d - parity) // 2, 2, 2))
    for t, each in enumerate(J):
        both = list(order[parity + 2 * t : parity + 2 * t + 2])
        moved[both] = each @ H[both]
    factors.turn(parity, J)
    expected = Factors(Stack(design), moved, order)
    np.testing.assert_allclose(factors.L, expected.L, rtol=1e-8, atol=1e-9 * np.abs(expected.L).max())
    np.testing.assert_allclose(factors.L_inv @ factors.L, np.broadcast_to(np.eye(design.d), factors.L.shape), atol=1e-8)
