import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import rq

import latentdag as ld
from latentdag.model.posets import order_matrix

from strategies import seeds


@st.composite
def posets(draw, max_size=8):
    """A random partial order in a random labelling."""
    d = draw(st.integers(1, max_size))
    rng = np.random.default_rng(draw(seeds))
    relation = np.triu(rng.random((d, d)) < draw(st.floats(0, 1)), k=1)
    shuffle = rng.permutation(d)
    return order_matrix(relation[np.ix_(shuffle, shuffle)]), rng


@given(posets(), st.integers(0, 4))
def test_decomposition_meets_its_definition(poset, extra):
    order, rng = poset
    d = len(order)
    H = rng.uniform(-2, 2, (d, d + extra))
    R, Q = ld.partial_order_rq(H, order)
    np.testing.assert_allclose(R @ Q, H, atol=1e-10 * np.abs(H).max())
    assert (np.diagonal(R) > 0).all()
    assert not R[~order & ~np.eye(d, dtype=bool)].any()
    np.testing.assert_allclose(np.linalg.norm(Q, axis=1), 1, rtol=1e-12)
    assert np.abs((Q @ Q.T)[order]).max(initial=0) < 1e-9


@given(posets())
def test_decomposition_is_unique(poset):
    """Recompose any R, Q of the defined shape: the algorithm must give back the very same."""
    order, rng = poset
    d = len(order)
    Q = np.zeros((d, d + 1))
    for i in sorted(range(d), key=lambda i: order[i].sum()):
        above = Q[order[i]]
        q = rng.normal(size=d + 1)
        q -= np.linalg.pinv(above) @ (above @ q) if len(above) else 0
        Q[i] = q / np.linalg.norm(q)
    R = np.where(order, rng.uniform(-1, 1, (d, d)), 0) + np.diag(rng.uniform(0.5, 2, d))
    R_found, Q_found = ld.partial_order_rq(R @ Q, order)
    scale = np.linalg.cond(R) * np.linalg.cond(Q)
    np.testing.assert_allclose(R_found, R, atol=1e-12 * scale)
    np.testing.assert_allclose(Q_found, Q, atol=1e-12 * scale)


@given(seeds, st.integers(1, 8), st.integers(0, 4))
def test_total_order_is_the_ordinary_rq(seed, d, extra):
    H = np.random.default_rng(seed).uniform(-2, 2, (d, d + extra))
    R, Q = ld.partial_order_rq(H, np.triu(np.ones((d, d), bool), k=1))
    R_ref, Q_ref = rq(H, mode="economic")
    sign = np.sign(np.diagonal(R_ref))
    np.testing.assert_allclose(R, R_ref * sign, atol=1e-9)
    np.testing.assert_allclose(Q, Q_ref * sign[:, None], atol=1e-9)


@given(posets(max_size=6))
def test_relabelling_the_rows_relabels_the_factors(poset):
    order, rng = poset
    H = rng.uniform(-2, 2, (len(order), len(order) + 2))
    R, Q = ld.partial_order_rq(H, order)
    s = rng.permutation(len(order))
    R_s, Q_s = ld.partial_order_rq(H[s], order[np.ix_(s, s)])
    np.testing.assert_allclose(R_s, R[np.ix_(s, s)], atol=1e-9)
    np.testing.assert_allclose(Q_s, Q[s], atol=1e-9)


def test_graphs_and_matrices_say_the_same():
    H = np.random.default_rng(0).normal(size=(3, 4))
    by_graph = ld.partial_order_rq(H, nx.DiGraph([(2, 0), (0, 1)]))  # 2 → 0 → 1, so 2 is above 1 too
    by_matrix = ld.partial_order_rq(H, [[0, 0, 1], [1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(by_graph[0], by_matrix[0])


def test_bad_input():
    with pytest.raises(ValueError, match="lie on a cycle"):
        ld.partial_order_rq(np.eye(2), [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="does not have full row rank"):
        ld.partial_order_rq(np.ones((2, 3)), [[0, 1], [0, 0]])
    with pytest.raises(ValueError, match="at least as many columns as rows"):
        ld.partial_order_rq(np.ones((3, 2)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="2 elements where 3 are needed"):
        ld.partial_order_rq(np.eye(3), np.zeros((2, 2)))
