"""Each pair has the same moments and is not the same model; the paper's numbers; the condition of Liu et al."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentdag import counterexamples as ce
from latentdag import posets, simulate
from latentdag.errors import NotInModelError
from latentdag.identification.identify import identify, identify_partial_order
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel

SEEDS = range(20)
FIXED = {
    "motivating_example": ce.motivating_example,
    "nongeneric_soft": ce.nongeneric_soft,
    "soft_theorem_gap": ce.soft_theorem_gap,
}
RANDOM = {
    "observational_only": lambda seed: ce.observational_only(simulate.random_model(rng=seed)),
    "missing_intervention": lambda seed: ce.missing_intervention(simulate.random_model(rng=seed), _child(seed)),
    "missing_source": ce.missing_source,
    "soft_parameters": ce.soft_parameters,
    "soft_graph": ce.soft_graph,
}
CASES = [(name, None) for name in FIXED] + [(name, seed) for name in RANDOM for seed in SEEDS]


def _child(seed):
    """A latent with parents, of the default random model."""
    model = simulate.random_model(rng=seed)
    return model.latents[int(np.flatnonzero(model.weights.any(axis=1))[0])]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case)))
def pair(request):
    name, seed = request.param
    return FIXED[name]() if seed is None else RANDOM[name](seed)


def _order(graph):
    return set(posets.closure_graph(graph).edges)


def _precisions(model):
    return [model.precision(context) for context in model.contexts]


def _same_moments(one, other, tol=1e-11):
    return all(
        np.allclose(a, b, rtol=0, atol=tol * np.abs(a).max())
        for a, b in ((one.covariance, other.covariance), (one.precision, other.precision))
    ) and np.allclose(one.mean, other.mean, rtol=0, atol=tol * (1 + np.abs(one.mean).max()))


# every pair


def test_pair_is_indistinguishable(pair):
    assert pair.first.contexts == pair.second.contexts
    assert pair.first.latents == pair.second.latents
    assert pair.moment_gap() < 1e-12


def test_pair_differs_up_to_order_and_units(pair):
    assert pair.unmixing_gap() > 1e-3
    # and in the paper's own scaling no order of the rows matches
    H, H_hat = pair.first.rescaled("paper").unmixing, pair.second.rescaled("paper").unmixing
    assert np.abs(H[:, None] - H_hat).max(axis=2).min(axis=1).max() > 1e-3


def test_both_models_are_dags_with_the_same_targets(pair):
    assert pair.first.targets == pair.second.targets
    for model in (pair.first, pair.second):
        assert nx.is_directed_acyclic_graph(model.graph)
        assert all(len(value.targets) == 1 for value in model.interventions.values())


def test_latent_map_takes_one_to_the_other(pair):
    T = pair.latent_map
    np.testing.assert_allclose(T @ pair.first.unmixing, pair.second.unmixing, atol=1e-12)
    for context in pair.first.contexts:
        B, B_hat = pair.first.structural(context), pair.second.structural(context)
        rotation = B_hat @ T @ np.linalg.inv(B)
        np.testing.assert_allclose(rotation.T @ rotation, np.eye(len(T)), atol=1e-11)
        if pair.name != "missing source":  # the noises are the same, not only their covariance
            np.testing.assert_allclose(rotation, np.eye(len(T)), atol=1e-11)


def test_gaps_see_a_difference():
    model = simulate.random_model(rng=0)
    shifted = replace(model, offset=model.offset + 1e-3)
    louder = replace(model, noise_variance=model.noise_variance * 1.001)
    assert ce.Counterexample("", "", model, model).moment_gap() == 0
    assert ce.Counterexample("", "", model, shifted).moment_gap() > 1e-5
    assert ce.Counterexample("", "", model, louder).moment_gap() > 1e-5
    rotated = replace(model, unmixing=model.unmixing[[1, 2, 0, 4, 3]] * [[2.0], [-1.0], [5.0], [1e-6], [1.0]])
    assert ce.Counterexample("", "", model, rotated).unmixing_gap() < 1e-14


# the paper's numbers


def test_motivating_example_has_the_papers_numbers():
    pair = ce.motivating_example()
    for model in (pair.first, pair.second):
        np.testing.assert_allclose(model.covariance(0), [[20, -16], [-16, 13]], rtol=1e-13)
        np.testing.assert_allclose(model.covariance(1), [[8, -7], [-7, 25 / 4]], rtol=1e-13)
        np.testing.assert_allclose(model.law(1).noise_variance, [1, 1 / 4])
    np.testing.assert_allclose(pair.first.mixing, [[-2, 2], [2, -1]])
    np.testing.assert_allclose(pair.second.mixing, [[-2, 4], [2, -3]])
    np.testing.assert_array_equal(pair.first.law(1).weights, [[0, -1], [0, 0]])
    np.testing.assert_array_equal(pair.second.law(1).weights, np.zeros((2, 2)))


def test_motivating_example_is_a_missing_intervention():
    pair = ce.motivating_example()
    again = ce.missing_intervention(pair.first)
    np.testing.assert_allclose(again.second.unmixing, pair.second.unmixing)
    np.testing.assert_allclose(again.second.weights, pair.second.weights)


def test_nongeneric_soft_has_the_papers_numbers():
    pair = ce.nongeneric_soft()
    for model in (pair.first, pair.second):
        np.testing.assert_allclose(model.precision(0), [[1, 1], [1, 2]])
        np.testing.assert_allclose(model.precision(1), [[4, 4], [4, 5]])
        np.testing.assert_allclose(model.precision(2), [[1, 1], [1, 5]])
    np.testing.assert_allclose(pair.second.mixing, [[1, -1], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(pair.first.structural(1)[0], 2 * pair.first.structural(0)[0])
    assert not pair.second.graph.edges


# soft interventions


@pytest.mark.parametrize("entry", [-3.0, 0.0, 0.7, 50.0])
@pytest.mark.parametrize("seed", range(5))
def test_soft_parameters_any_entry_fits(seed, entry):
    pair = ce.soft_parameters(seed, entry)
    assert pair.second.unmixing[0, 1] == entry
    # the condition number of the second unmixing grows with the square of the entry
    assert pair.moment_gap() < 1e-14 * (10 + entry**2) ** 2
    assert {v.kind for v in pair.second.interventions.values()} <= {"soft", "perfect"}
    assert pair.second.interventions[1].kind == "soft"
    np.testing.assert_array_equal(pair.first.unmixing[1], pair.second.unmixing[1])


@pytest.mark.parametrize("context", [0, 1])
def test_soft_parameters_two_entries_lose_the_edge_in_one_context(context):
    first = ce.soft_parameters(3).first
    B = first.structural(context)
    pair = ce.soft_parameters(3, first.unmixing[0, 1] + B[0, 1] / B[0, 0])
    assert abs(pair.second.structural(context)[0, 1]) < 1e-12
    assert abs(pair.second.structural(1 - context)[0, 1]) > 0.1


@pytest.mark.parametrize("entry", [None, -1.0, 0.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_soft_graph_loses_an_edge_and_keeps_the_order(seed, entry):
    pair = ce.soft_graph(seed, entry)
    assert pair.moment_gap() < 1e-11
    assert set(pair.first.graph.edges) - set(pair.second.graph.edges) == {("Z3", "Z1")}
    assert set(pair.second.graph.edges) == {("Z2", "Z1"), ("Z3", "Z2")}
    assert _order(pair.first.graph) == _order(pair.second.graph)
    for model in (pair.first, pair.second):
        assert model.targets == {1: "Z1", 2: "Z2", 3: "Z3"}
        assert [model.interventions[k].kind for k in (1, 2)] == ["soft", "soft"]
        for k in (1, 2, 3):  # Assumption 1(a): every context has the support of the control
            np.testing.assert_array_equal(model.law(k).weights != 0, model.weights != 0)


def test_soft_graph_order_is_what_algorithm_2_finds():
    pair = ce.soft_graph(0)
    found = identify_partial_order(_precisions(pair.first), pair.first.contexts)
    expected = {(int(a[1]), int(b[1])) for a, b in _order(pair.second.graph)}
    assert {(int(a), int(b)) for a, b in found.edges} == expected


def test_soft_theorem_gap_is_generic_and_changes_the_order():
    pair = ce.soft_theorem_gap()
    B_0, B_1 = pair.first.structural(0)[0], pair.first.structural(1)[0]
    assert np.linalg.matrix_rank(np.array([B_0, B_1])) == 2
    assert _order(pair.first.graph) == {("Z2", "Z1"), ("Z3", "Z1")}
    assert _order(pair.second.graph) == {("Z2", "Z1")}
    found = identify_partial_order(_precisions(pair.first), pair.first.contexts)
    assert set(found.edges) == {("2", "1")}


@pytest.mark.parametrize("seed", SEEDS)
def test_constant_weights_are_lost_and_nothing_else(seed):
    """The general form of the gap: with C the constant weights, the closure of (A − C)(I − C)^{-1} is identified."""
    rng = np.random.default_rng(seed)
    d = 5
    first = simulate.random_model(d, d, rng=rng, kind="soft")
    constant = (first.weights != 0) & (rng.random((d, d)) < 0.5)
    C = np.where(constant, first.weights, 0.0)
    interventions = {}
    for context, name in first.targets.items():
        row = first.latents.index(name)
        redrawn = np.where(constant[row], first.weights[row], 2.0 * first.law(context).weights[row])
        weights = {first.latents[j]: float(redrawn[j]) for j in np.flatnonzero(redrawn)}
        interventions[context] = Intervention(name, "soft", float(rng.uniform(0.1, 0.2)), weights=weights)
    first = replace(first, interventions=interventions)
    absorbed = (first.weights - C) @ np.linalg.inv(np.eye(d) - C)
    order = posets.transitive_closure(np.abs(absorbed) > 1e-9)
    found = identify_partial_order(_precisions(first), first.contexts)
    assert set(found.edges) == {(first.latents[j], first.latents[i]) for i, j in np.argwhere(order)}


# too few interventions


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 12), st.sampled_from(["perfect", "soft"]), st.data())
def test_missing_intervention_for_any_latent_with_parents(seed, d, kind, data):
    model = simulate.random_model(d, d + 2, rng=seed, kind=kind)
    candidates = [name for name, row in zip(model.latents, model.weights, strict=True) if row.any()]
    if not candidates:
        return
    latent = data.draw(st.sampled_from(candidates))
    pair = ce.missing_intervention(model, latent)
    scale = max(np.linalg.cond(H / np.linalg.norm(H, axis=1, keepdims=True)) for H in _unmixings(pair))
    assert pair.moment_gap() < 1e-14 * d * scale**2
    assert latent not in pair.first.targets.values()
    assert len(pair.first.interventions) == d - 1
    assert pair.unmixing_gap() > 1e-4
    assert not list(pair.second.graph.predecessors(latent))
    lost = {(a, latent) for a in nx.ancestors(pair.first.graph, latent)}
    assert _order(pair.second.graph) == _order(pair.first.graph) - lost
    others = [name for name in model.latents if name != latent]
    for name in others:
        row = model.latents.index(name)
        np.testing.assert_array_equal(pair.first.unmixing[row], pair.second.unmixing[row])
    assert [v.kind for v in pair.first.interventions.values()] == [v.kind for v in pair.second.interventions.values()]


def _unmixings(pair):
    return pair.first.unmixing, pair.second.unmixing


def test_missing_intervention_predicts_perfect_interventions_on_all_others():
    model = simulate.random_model(5, 7, density=1.0, rng=4)
    latent = model.latents[2]
    pair = ce.missing_intervention(model, latent)
    others = [name for name in model.latents if name != latent]
    changes = {name: {"variance": 0.3, "shift": 0.5} for name in others[:2]} | {others[2]: {"kind": "do", "value": 2.0}}
    assert _same_moments(pair.first.intervene(changes), pair.second.intervene(changes))
    new = {latent: {"variance": 0.3}}
    assert not _same_moments(pair.first.intervene(new), pair.second.intervene(new), tol=1e-3)


def test_missing_intervention_rewrites_every_kind_of_intervention():
    # 4 → 3 → 2 → 1 and 4 → 2, all of it around the missing 3
    A = np.zeros((4, 4))
    A[0, 1], A[1, 2], A[2, 3], A[1, 3] = 0.5, -1.5, 2.0, 0.7
    contexts = {
        "perfect": Intervention("Z2", variance=0.1, shift=1.0),
        "soft": Intervention("Z2", "soft", 0.5, shift=-1.0, weights={"Z3": 0.4}),
        "rewired": Intervention("Z1", "soft", weights={"Z3": 2.0, "Z4": -1.0}),
        "same weights": Intervention("Z2", "soft", 3.0),
        "do": Intervention("Z2", "do", value=2.0),
        "two": Intervention(["Z2", "Z4"], variance=[0.2, 0.3], shift=[0.0, 1.0]),
        "dropped": Intervention(["Z3", "Z4"], variance=0.2),
    }
    H = np.random.default_rng(0).normal(size=(4, 6))
    model = LatentModel(H, A, [1.0, 2.0, 3.0, 4.0], contexts, offset=np.arange(6.0))
    pair = ce.missing_intervention(model, "Z3")
    assert pair.first.contexts == ("control", *list(contexts)[:-1])
    assert pair.moment_gap() < 1e-12
    assert pair.second.interventions["perfect"] == contexts["perfect"]
    assert pair.second.interventions["soft"].changes["Z2"].weights == pytest.approx({"Z3": 0.4, "Z4": 0.8})
    assert pair.second.interventions["rewired"].changes["Z1"].weights == pytest.approx({"Z3": 2.0, "Z4": 3.0})


def test_missing_intervention_chooses_an_untargeted_latent_with_parents():
    model = simulate.random_model(4, 5, density=1.0, rng=0)
    middle = model.latents[1]
    without = replace(model, interventions={c: v for c, v in model.interventions.items() if v.target != middle})
    assert not ce.missing_intervention(without).second.weights[1].any()


def test_missing_intervention_says_why_not():
    model = simulate.random_model(3, 4, density=1.0, rng=0)
    with pytest.raises(ValueError, match="has no parents"):
        ce.missing_intervention(model, model.latents[-1])
    with pytest.raises(ValueError, match="name the latent"):
        ce.missing_intervention(model)
    with pytest.raises(ValueError, match="no latent 'nobody'"):
        ce.missing_intervention(model, "nobody")
    cyclic = LatentModel(np.eye(2), [[0, 0.5], [0.5, 0]], [1, 1])
    with pytest.raises(ValueError, match="cycle"):
        ce.missing_intervention(cyclic)


def test_observational_only_is_every_intervention_missing():
    model = replace(simulate.random_model(5, 8, density=1.0, rng=1), interventions={})
    direct = ce.observational_only(model).second
    for _ in range(4):
        model = ce.missing_intervention(model).second
    np.testing.assert_allclose(model.unmixing, direct.unmixing, atol=1e-12)
    assert not model.graph.edges
    with pytest.raises(ValueError, match="independent already"):
        ce.observational_only(model)


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_source_keeps_the_equations_and_is_settled_by_the_missing_context(seed):
    pair = ce.missing_source(seed)
    for context in pair.first.contexts:
        np.testing.assert_array_equal(pair.first.structural(context), pair.second.structural(context))
    assert pair.first.interventions[1].kind == "perfect"
    # an involution: there is one other model, not a chain of them
    np.testing.assert_allclose(pair.latent_map @ pair.latent_map, np.eye(2), atol=1e-12)
    new = {"Z2": {"variance": 10.0 * pair.first.noise_variance[1]}}
    assert not _same_moments(pair.first.intervene(new), pair.second.intervene(new), tol=1e-3)


# which context is the control


@pytest.mark.parametrize("d", range(1, 8))
def test_star_ties(d):
    star = ce.star_tie(d)
    assert star.model.n_latents == d
    assert star.scores[0] == star.scores[d] == 2 * d - 1
    assert star.chosen == (0, d)


def test_star_of_two_has_the_known_scores():
    assert ce.star_tie().scores == (3, 4, 3)
    with pytest.raises(ValueError, match="at least one"):
        ce.star_tie(0)


def test_cancellation_picks_the_wrong_context():
    example = ce.deviation_cancellation()
    assert example.scores == (3, 3, 2)
    assert example.chosen == (2,)
    np.testing.assert_allclose(example.model.precision(1) - example.model.precision(2), [[3, -3], [-3, 3]])
    assert {v.kind for v in example.model.interventions.values()} == {"perfect"}


@pytest.mark.parametrize("example", [ce.star_tie(), ce.star_tie(3), ce.deviation_cancellation()])
def test_no_other_context_can_be_the_control(example):
    model, contexts = example.model, example.model.contexts
    identify(_precisions(model), contexts)
    for wrong in contexts[1:]:
        order = [wrong, *(c for c in contexts if c != wrong)]
        with pytest.raises(NotInModelError):
            identify([model.precision(c) for c in order], order)


@pytest.mark.parametrize("seed", SEEDS)
def test_scores_tie_only_in_stars(seed):
    model = simulate.random_model(4, 6, density=0.5, rng=seed)
    scores = ce.deviation_scores(_precisions(model))
    parents = [set(model.graph.predecessors(name)) for name in model.latents]
    sources = [name for name in model.latents if model.graph.in_degree(name) == 0]
    is_star = len(sources) == 1 and all(p in (set(), set(sources)) for p in parents)
    assert scores[0] == 2 * 4 - len(sources)
    assert (np.sum(scores == scores.min()) > 1) == is_star
    assert scores.argmin() == 0


@pytest.mark.parametrize("seed", range(5))
def test_scores_do_not_depend_on_coordinates(seed):
    rng = np.random.default_rng(seed)
    model = simulate.random_model(4, 4, rng=seed)
    Theta = np.array(_precisions(model))
    M = rng.normal(size=(4, 4)) * 10.0 ** rng.integers(-5, 5, size=4)
    np.testing.assert_array_equal(ce.deviation_scores(Theta), ce.deviation_scores(M.T @ Theta @ M))
    np.testing.assert_array_equal(ce.deviation_scores(Theta[::-1]), ce.deviation_scores(Theta)[::-1])


def test_scores_of_equal_contexts_and_of_nonsense():
    np.testing.assert_array_equal(ce.deviation_scores([np.eye(3)] * 3), [0, 0, 0])
    with pytest.raises(ValueError, match="shape"):
        ce.deviation_scores(np.eye(3))


# Liu et al.


def _with_contexts(graph, counts, kind, seed):
    """A random model on the graph, with so many contexts on each latent."""
    rng = np.random.default_rng(seed)
    latents = [str(node) for node in graph]
    A = nx.to_numpy_array(graph, weight=None).T * rng.uniform(0.5, 2.0, size=(len(latents), len(latents)))
    interventions = {}
    for i, node in enumerate(graph):
        parents = [str(j) for j in graph.predecessors(node)]
        for r in range(counts[node]):
            variance = float(rng.uniform(0.2, 3.0))
            weights = {j: float(rng.uniform(-2, 2)) for j in parents}
            soft = kind == "soft" and parents
            interventions[f"{latents[i]}.{r}"] = (
                Intervention(latents[i], "soft", variance, weights=weights)
                if soft
                else Intervention(latents[i], variance=variance)
            )
    return LatentModel(rng.normal(size=A.shape), A, rng.uniform(0.5, 2, len(A)), interventions, latents=latents)


CHAIN = nx.DiGraph([(3, 2), (2, 1)])
FORK = nx.DiGraph([(3, 2), (3, 1)])
COLLIDER = nx.DiGraph([(3, 1), (2, 1)])
COMPLETE = nx.DiGraph([(3, 2), (3, 1), (2, 1)])


@pytest.mark.parametrize(("graph", "holds"), [(CHAIN, True), (FORK, True), (COLLIDER, False), (COMPLETE, False)])
def test_liu_with_two_perfect_interventions_each(graph, holds):
    model = _with_contexts(graph, dict.fromkeys(graph, 2), "perfect", 0)
    assert ce.liu_condition(model) == ce.liu_possible(graph) == holds


def test_liu_fails_where_the_paper_does_not():
    """One context per latent on a dense graph: Theorem 2 identifies it, condition (iii) does not hold."""
    model = simulate.random_model(4, 5, density=1.0, rng=0)
    assert not ce.liu_condition(model)
    found = identify(_precisions(model), model.contexts)
    np.testing.assert_allclose(found.reordered(model.latents).unmixing, model.unmixing, atol=1e-8)


def test_liu_matrix_counts_married_parents():
    model = _with_contexts(COLLIDER, {1: 2, 2: 1, 3: 1}, "perfect", 0)
    L = ce.liu_matrix(model)
    assert L.shape == (3 + 3, 4)
    assert ("3", "2") in L.index or ("2", "3") in L.index
    B_0, B_k = model.structural(), model.structural("1.0")
    i, j = model.latents.index("3"), model.latents.index("1")
    pair = ("3", "1") if ("3", "1") in L.index else ("1", "3")
    assert L.loc[pair, "1.0"] == pytest.approx((B_k.T @ B_k - B_0.T @ B_0)[i, j])
    assert ce.liu_matrix(_with_contexts(CHAIN, dict.fromkeys(CHAIN, 1), "perfect", 0)).shape == (3 + 2, 3)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 5),
    st.floats(0, 1),
    st.sampled_from(["perfect", "soft"]),
    st.integers(1, 12),
    st.integers(0, 10**6),
)
def test_liu_possible_is_the_generic_condition(d, density, kind, most, seed):
    rng = np.random.default_rng(seed)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(d))
    graph.add_edges_from((j, i) for i in range(d) for j in range(i + 1, d) if rng.random() < density)
    counts = {i: int(rng.integers(most // 2, most + 1)) for i in graph}
    model = _with_contexts(graph, counts, kind, seed)
    assert ce.liu_condition(model) == ce.liu_possible(graph, counts, kind)
    if kind == "perfect":
        assert ce.liu_rank(model) == sum(min(counts[i], 2 if graph.in_degree(i) else 1) for i in graph)


def test_liu_possible_perfect_means_a_forest_with_fewer_than_d_edges():
    for d in range(1, 5):
        pairs = [(j, i) for i in range(d) for j in range(i + 1, d)]
        for chosen in range(2 ** len(pairs)):
            graph = nx.DiGraph()
            graph.add_nodes_from(range(d))
            graph.add_edges_from(pair for bit, pair in enumerate(pairs) if chosen >> bit & 1)
            possible = ce.liu_possible(graph, 100)
            assert possible == nx.is_branching(graph)
            assert not possible or nx.moral_graph(graph).number_of_edges() < d
            assert ce.liu_possible(graph, 100, "soft")


def test_liu_does_not_depend_on_the_units_of_latents():
    model = _with_contexts(CHAIN, dict.fromkeys(CHAIN, 2), "perfect", 0)
    for scaling in (np.array([1e5, 1.0, 1e-5]), np.array([1e-4, 1e6, 1.0])):
        assert ce.liu_condition(model.rescaled(scaling))


def test_liu_possible_rejects_nonsense():
    with pytest.raises(ValueError, match="acyclic"):
        ce.liu_possible(nx.DiGraph([(1, 2), (2, 1)]))
    with pytest.raises(ValueError, match="kind"):
        ce.liu_possible(CHAIN, 2, "do")
    assert not ce.liu_possible(CHAIN, {1: 2, 2: 2})


@pytest.mark.parametrize("d", range(2, 8))
@pytest.mark.parametrize("seed", range(5))
def test_proposition_4_two_contexts_too_few_leave_an_edge_open_with_nothing_hidden(d, seed):
    pair = ce.fully_observed(d, rng=seed)
    assert len(pair.first.interventions) == d - 2
    for model in (pair.first, pair.second):
        np.testing.assert_array_equal(np.sort(model.unmixing, axis=0)[:-1], 0)  # a permutation
        assert nx.is_directed_acyclic_graph(model.graph)
        assert model.graph.number_of_edges() == d * (d - 1) // 2
    assert pair.moment_gap() < 1e-11
    ends = (f"Z{d}", f"Z{d - 1}")
    assert set(pair.first.graph.edges) ^ set(pair.second.graph.edges) == {ends, ends[::-1]}


@pytest.mark.parametrize("seed", SEEDS)
def test_one_context_more_settles_a_covered_edge(seed):
    pair = ce.fully_observed(4, rng=seed)
    for latent in ("Z3", "Z4"):
        context = Intervention(latent, variance=3.0)
        one, other = (replace(m, interventions=m.interventions | {"more": context}) for m in (pair.first, pair.second))
        assert not _same_moments(one.law("more"), other.law("more"), tol=1e-3)


def test_only_covered_edges_can_be_turned_round():
    model = simulate.random_model(3, density=1.0, rng=0)
    source, middle, sink = nx.topological_sort(model.graph)
    with pytest.raises(ValueError, match="not covered"):
        ce.covered_edge(model, source, sink)
    with pytest.raises(ValueError, match="no edge"):
        ce.covered_edge(model, sink, source)
    with pytest.raises(ValueError, match="no latent 'Z9'"):
        ce.covered_edge(model, "Z9", sink)
    assert ce.covered_edge(model, middle, sink).moment_gap() < 1e-9  # hidden or not
