"""The integer program over S(G) against brute force, the paper's own formulation, and cases with a known answer."""

from itertools import permutations
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

from latentdag.model import matching
from latentdag.model.matching import match_to_order
from latentdag.model.posets import is_linear_extension, order_matrix


def random_order(size, density, rng):
    """A closed partial order whose elements are in no particular order."""
    upper = np.triu(rng.random((size, size)) < density, 1)
    shuffle = rng.permutation(size)
    return order_matrix(upper[np.ix_(shuffle, shuffle)])


def random_extension(order, rng):
    """The position of each element in a random linear extension."""
    left, position = np.ones(len(order), dtype=bool), np.empty(len(order), dtype=int)
    for t in range(len(order)):
        pick = rng.choice(np.flatnonzero(left & ~order[left].any(axis=0)))
        position[pick], left[pick] = t, False
    return position


def solve(order, targets, estimated):
    """Match, and check all that a matching promises except that it is the best."""
    found = match_to_order(order, targets, estimated)
    closed = order_matrix(order)
    assert sorted(found.permutation) == list(range(len(closed)))
    assert is_linear_extension(np.argsort(found.permutation).tolist(), closed)
    assert found.agreements == sum(found.permutation[i] == j for i, j in zip(targets, estimated, strict=True))
    return found


def brute_force(order, targets, estimated):
    every = np.array(list(permutations(range(len(order)))), dtype=int).reshape(-1, len(order))
    i, j = np.nonzero(order)
    extensions = every[(every[:, i] < every[:, j]).all(axis=1)]
    return int((extensions[:, targets] == estimated).sum(axis=1).max())


def paper_program(order, targets, estimated):
    """The integer program word for word: d² binary variables, all pairs i ≺ i', all j."""
    size = len(order)
    A = np.arange(size * size).reshape(size, size)
    score = np.zeros(size * size)
    np.add.at(score, A[targets, estimated], 1)
    once = np.zeros((2 * size, size * size))
    for j in range(size):
        once[j, A[:, j]] = once[size + j, A[j, :]] = 1
    pairs = np.argwhere(order)
    before = np.zeros((len(pairs), size, size * size))
    for row, (i, other) in zip(before, pairs, strict=True):
        for j in range(size):
            row[j, A[i, : j + 1]], row[j, A[other, : j + 1]] = 1, -1
    constraints = [LinearConstraint(once, 1, 1), LinearConstraint(before.reshape(-1, size * size), 0, np.inf)]
    result = milp(-score, integrality=np.ones(size * size), bounds=Bounds(0, 1), constraints=constraints)
    assert result.status == 0
    return round(-result.fun)


@st.composite
def problems(draw, max_size=7):
    """Any DAG on up to so many nodes, and any pairs."""
    size = draw(st.integers(1, max_size))
    upper = np.zeros((size, size), dtype=bool)
    above = np.triu_indices(size, 1)
    upper[above] = draw(st.lists(st.booleans(), min_size=len(above[0]), max_size=len(above[0])))
    shuffle = draw(st.permutations(range(size)))
    element = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(element, element), max_size=2 * size))
    return order_matrix(upper[np.ix_(shuffle, shuffle)]), [i for i, _ in pairs], [j for _, j in pairs]


@given(problems())
@settings(max_examples=300)
def test_is_the_best_of_all_linear_extensions(problem):
    best = brute_force(*problem)
    found = solve(*problem)
    assert found.agreements == best
    assert found.method == ("all agree" if best == len(problem[1]) else "milp")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("density", [0.05, 0.15, 0.3])
def test_solves_the_program_of_the_paper(density, seed):
    rng = np.random.default_rng(seed)
    order = random_order(14, density, rng)
    targets, estimated = rng.integers(14, size=(2, 25))
    assert solve(order, targets, estimated).agreements == paper_program(order, targets, estimated)


@pytest.mark.parametrize("seed", range(10))
def test_ideals_at_all_times_leave_nothing_to_learn(seed):
    rng = np.random.default_rng(seed)
    order = random_order(20, 0.1, rng)
    targets, estimated = np.arange(20), rng.permutation(20)
    pins = matching._Pins.of(order, targets, estimated)
    rows = [*matching._pairwise_rows(pins), *matching._ideal_rows(order, pins, list(range(19)))]
    selected = matching._select(pins.weight, 19 * 20, rows)
    assert pins.compatible(selected)
    assert pins.weight[selected].sum() == solve(order, targets, estimated).agreements


@pytest.mark.parametrize("density", [0.03, 0.1, 0.5, 1.0])
def test_as_large_as_in_the_paper_one_wrong_swap_costs_two(density):
    rng = np.random.default_rng(7)
    order = random_order(83, density, rng)
    estimated = random_extension(order, rng)
    targets = np.arange(83)
    agree = solve(order, targets, estimated)
    assert (agree.agreements, agree.method) == (83, "all agree")
    np.testing.assert_array_equal(agree.permutation, estimated)

    # no permutation misses exactly one, and not missing any puts two neighbours against their order
    sequence = np.argsort(estimated)
    neighbours = np.flatnonzero(order[sequence[:-1], sequence[1:]])
    at = neighbours[len(neighbours) // 2]
    estimated[sequence[[at, at + 1]]] = at + 1, at
    assert solve(order, targets, estimated).agreements == 81


def test_as_large_as_in_the_paper_and_close_to_an_extension():
    rng = np.random.default_rng(1)
    order = random_order(83, 0.5, rng)
    # several estimates for one position and none for others
    estimated = np.clip(random_extension(order, rng) + rng.integers(-1, 2, size=83), 0, 82)
    assert solve(order, np.arange(83), estimated).agreements == 48


def test_without_an_order_it_is_the_assignment_problem():
    rng = np.random.default_rng(2)
    targets, estimated = rng.integers(40, size=(2, 120))
    weight = np.zeros((40, 40))
    np.add.at(weight, (targets, estimated), 1)
    best = weight[linear_sum_assignment(weight, maximize=True)].sum()
    assert solve(np.zeros((40, 40)), targets, estimated).agreements == best


@given(problems(max_size=10), st.integers(0, 2**32 - 1))
def test_the_optimum_depends_on_nothing_it_should_not(problem, seed):
    order, targets, estimated = problem[0], np.array(problem[1], dtype=int), np.array(problem[2], dtype=int)
    found = solve(order, targets, estimated)

    rng = np.random.default_rng(seed)
    name = rng.permutation(len(order))
    renamed = np.empty_like(order)
    renamed[np.ix_(name, name)] = order
    assert solve(renamed, name[targets], estimated).agreements == found.agreements

    upside_down = solve(order.T, targets, len(order) - 1 - estimated)
    assert upside_down.agreements == found.agreements

    contexts = rng.permutation(len(targets))
    again = solve(order, targets[contexts], estimated[contexts])
    np.testing.assert_array_equal(again.permutation, found.permutation)


def test_takes_graphs_and_relations_that_are_not_closed():
    graph = nx.DiGraph([(3, 2), (2, 1), (1, 0)])
    relation = np.eye(4, k=1, dtype=bool)
    for order in (graph, relation, relation.tolist(), order_matrix(graph)):
        found = match_to_order(order, [0, 3, 1], [0, 3, 2])
        assert found.permutation.tolist() == [0, 1, 2, 3]
        assert found.agreements == 2


def test_several_contexts_outvote_one():
    antichain = np.zeros((2, 2))
    assert match_to_order(antichain, [0, 0, 0], [1, 0, 1]).permutation.tolist() == [1, 0]
    assert match_to_order(antichain, [0, 0, 0], [1, 0, 0]).permutation.tolist() == [0, 1]


@pytest.mark.parametrize("size", [0, 1, 5])
def test_without_contexts_any_linear_extension_will_do(size):
    found = solve(np.eye(size, k=1), [], [])
    assert (found.permutation.tolist(), found.agreements, found.method) == (list(range(size)), 0, "all agree")


@pytest.mark.parametrize(
    ("targets", "estimated", "message"),
    [
        ([0, 1], [0], "2 targets and 1 estimated"),
        ([0, 3], [0, 1], r"targets are numbered 0\.\.2 .* got \[3\]"),
        ([0, 1], [-1, 5], r"estimated are numbered 0\.\.2 .* got \[-1, 5\]"),
        ([0.5, 1], [0, 1], r"targets must be a sequence of integers, got \[0.5, 1\]"),
        ([0, 1], [[0], [1]], "estimated must be a sequence of integers"),
        (["a"], [0], "targets must be a sequence of integers"),
    ],
)
def test_says_which_pairs_are_wrong(targets, estimated, message):
    with pytest.raises(ValueError, match=message):
        match_to_order(np.eye(3, k=1), targets, estimated)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (nx.DiGraph([(0, 1), (1, 2), (2, 1)]), r"elements \[1, 2\] lie on a cycle"),
        (np.eye(2), r"elements \[0, 1\] lie on a cycle"),
        (np.zeros((2, 3)), r"got shape \(2, 3\)"),
    ],
)
def test_says_what_is_wrong_with_the_order(order, message):
    with pytest.raises(ValueError, match=message):
        match_to_order(order, [0], [0])


def test_a_failure_of_the_solver_is_not_an_answer(monkeypatch):
    monkeypatch.setattr(matching, "milp", lambda *_, **__: SimpleNamespace(status=1, message="Time limit", x=None))
    with pytest.raises(RuntimeError, match="HiGHS did not solve the matching to optimality: Time limit"):
        match_to_order(np.zeros((2, 2)), [0, 0], [0, 1])
