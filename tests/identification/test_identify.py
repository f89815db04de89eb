import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentdag as ld
from latentdag.errors import NotInModelError
from latentdag.model.metrics import compare
from latentdag.model.posets import closure_graph

from strategies import models, seeds


def precisions(model, contexts=None):
    return [model.precision(c) for c in contexts or model.contexts]


def assert_same_model(found, truth, rtol=1e-6):
    """Equal up to S(G): latents carry their context's name, so after reordering by name everything must agree."""
    found, truth = found.rescaled("paper").reordered(truth.latents), truth.rescaled("paper")
    np.testing.assert_allclose(found.unmixing, truth.unmixing, atol=rtol)
    for context in truth.contexts:
        B = truth.structural(context)
        np.testing.assert_allclose(found.structural(context), B, atol=rtol * np.abs(B).max())
    assert set(found.graph.edges) == set(truth.graph.edges)


@given(models())
@settings(max_examples=150)
def test_theorem_2_every_model_is_recovered_up_to_the_order(truth):
    found = ld.identify(precisions(truth), truth.contexts)
    assert_same_model(found, truth)
    # rows come sources last, so structural matrices are upper triangular, as in the paper
    assert not np.tril(found.structural(), k=-1).any()


@given(models(kind="soft"))
def test_theorem_1_soft_interventions_give_the_ancestor_relation(truth):
    found = ld.identify_partial_order(precisions(truth), truth.contexts)
    assert set(found.edges) == set(closure_graph(truth.graph).edges)


@given(models(), seeds)
def test_answer_does_not_depend_on_feature_order_context_order_or_labels(truth, seed):
    rng = np.random.default_rng(seed)
    features, contexts = rng.permutation(truth.n_features), rng.permutation(len(truth.contexts) - 1)
    shuffled = [truth.contexts[0]] + [truth.contexts[1 + k] for k in contexts]
    labels = ["WT"] + [("new", c) for c in shuffled[1:]]
    Theta = [T[np.ix_(features, features)] for T in precisions(truth, shuffled)]
    found = ld.identify(Theta, labels)
    back = found.renamed({str(("new", c)): truth.targets[c] for c in shuffled[1:]})
    np.testing.assert_allclose(
        back.rescaled("unit-norm").reordered(truth.latents).unmixing ** 2,
        truth.rescaled("unit-norm").unmixing[:, features] ** 2,
        atol=1e-6,
    )


@given(models(max_latents=5, min_latents=2), seeds)
def test_badly_scaled_features_change_nothing(truth, seed):
    scale = 10.0 ** np.random.default_rng(seed).uniform(-4, 4, truth.n_latents)
    # p = d, so that any invertible map of X keeps the model: H → H D
    square = ld.LatentModel(
        truth.unmixing[:, : truth.n_latents] + 3 * np.eye(truth.n_latents),
        truth.weights,
        truth.noise_variance,
        truth.interventions,
        truth.latents,
    )
    found = ld.identify([T * np.outer(scale, scale) for T in precisions(square)], square.contexts)
    unit = found.reordered(square.latents).unmixing / scale
    want = square.unmixing
    cosine = np.sum(unit * want, axis=1) / np.linalg.norm(unit, axis=1) / np.linalg.norm(want, axis=1)
    np.testing.assert_allclose(np.abs(cosine), 1, atol=1e-9)


def test_closure_is_projected_out_where_a_parent_is_hidden_by_cancellation():
    """3 → 2 → 1 and 3 → 1, where leaving out 2 alone or 3 alone keeps rank one for some parameters.

    Over many models with small integer weights, which make cancellations common, the answer must still be exact.
    """
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = int(rng.integers(3, 6))
        A = np.triu(rng.choice([-1.0, 0.0, 1.0], size=(d, d)), k=1)
        H = rng.choice([-1.0, 0.0, 1.0, 2.0], size=(d, d + 1))
        if np.linalg.matrix_rank(H) < d:
            continue
        names = [f"Z{i}" for i in range(d)]
        interventions = {f"k{i}": ld.Intervention(names[i], variance=float(rng.choice([0.5, 2.0]))) for i in range(d)}
        truth = ld.LatentModel(H, A, np.ones(d), interventions, latents=names)
        found = ld.identify(precisions(truth), truth.contexts).renamed({f"k{i}": names[i] for i in range(d)})
        assert set(found.graph.edges) == set(truth.graph.edges)


def test_fit_exact_reads_means_and_names():
    base = ld.simulate.random_model(n_latents=3, n_features=5, rng=9)
    shifted = ld.LatentModel(
        base.unmixing,
        base.weights,
        base.noise_variance,
        {c: ld.Intervention(v.target, variance=0.3, shift=2.0) for c, v in base.interventions.items()},
        base.latents,
        control="WT",
        feature_names=list("abcde"),
        offset=np.arange(5.0),
    )
    found = ld.fit(shifted.moments(1000), method="exact")
    assert compare(shifted, found)["SHD"] == 0
    assert found.model.feature_names == tuple("abcde")
    for context in shifted.contexts:
        np.testing.assert_allclose(found.model.mean(context), shifted.mean(context), atol=1e-8)
        np.testing.assert_allclose(found.model.covariance(context), shifted.covariance(context), rtol=1e-6, atol=1e-9)
    assert nx.is_isomorphic(found.closure, closure_graph(shifted.graph))


@given(models(kind="soft", min_latents=2))
def test_one_soft_context_per_latent_reads_as_a_perfect_one(truth):
    """Take the intervened rows as latents: the same moments, with perfect interventions. So nothing is refused."""
    found = ld.identify(precisions(truth), truth.contexts)
    for context in truth.contexts:
        Theta = truth.precision(context)
        np.testing.assert_allclose(found.precision(context), Theta, atol=1e-5 * np.abs(Theta).max())
    assert set(closure_graph(found.graph).edges) == set(closure_graph(truth.graph).edges)


class TestNotInTheModel:
    """Each failure names the context and the condition."""

    truth = ld.simulate.random_model(n_latents=4, n_features=6, density=1.0, rng=21)

    def test_two_targets(self):
        two = ld.simulate.random_model(n_latents=5, n_features=6, density=1.0, rng=3, n_targets=2)
        with pytest.raises(NotInModelError, match=r"context 'c\d': rank\(Θ_k − Θ_0\) = [34]"):
            ld.identify(precisions(two), two.contexts)

    def test_nothing_happened(self):
        Theta = precisions(self.truth)
        Theta[2] = Theta[0]
        with pytest.raises(NotInModelError, match="context 'c2': its precision matrix equals the control's"):
            ld.identify(Theta, self.truth.contexts)

    def test_too_few_contexts(self):
        with pytest.raises(NotInModelError, match="4 latent dimensions but there are only 3"):
            ld.identify(precisions(self.truth)[:4])

    def test_too_many_contexts(self):
        more = [*precisions(self.truth), self.truth.intervene({"c1": {"variance": 0.5}}).precision]
        with pytest.raises(NotInModelError, match=r"there are 5 other contexts.*reduce_contexts"):
            ld.identify(more)

    def test_same_target_twice(self):
        Theta = precisions(self.truth)
        source = self.truth.latents[-1]
        lost = self.truth.latents[0]
        Theta[self.truth.contexts.index(lost)] = self.truth.intervene({source: {"variance": 0.5}}).precision
        with pytest.raises(NotInModelError, match="target is already taken"):
            ld.identify(Theta, self.truth.contexts)

    def test_no_source_was_hit(self):
        Theta = precisions(self.truth)
        source, sink = self.truth.latents[-1], self.truth.latents[0]
        Theta[self.truth.contexts.index(source)] = self.truth.intervene({sink: {"variance": 9.0}}).precision
        with pytest.raises(NotInModelError, match="no context has rank one"):
            ld.identify(Theta, self.truth.contexts)

    def test_another_range(self):
        Theta = precisions(self.truth)
        Theta[1] = Theta[1] + np.eye(6)
        with pytest.raises(NotInModelError, match="context 'c1': its precision matrix has another range"):
            ld.identify(Theta, self.truth.contexts)

    @pytest.mark.parametrize(
        ("Theta", "message"),
        [
            (np.eye(3), r"shape \(K\+1, p, p\)"),
            ([np.eye(3)], "only the control is given"),
            ([np.eye(2), np.eye(3)], "matrices of one shape"),
            ([np.eye(2), [[1, 2], [3, 4]]], "context 1: the precision matrix is not symmetric"),
            ([np.eye(2), [[1, np.nan], [np.nan, 1]]], r"context 1: entry \[0, 1\] of the precision matrix is nan"),
        ],
    )
    def test_not_precisions_at_all(self, Theta, message):
        with pytest.raises(ValueError, match=message):
            ld.identify(Theta)


@given(models(max_latents=3), st.floats(1e-6, 1e6))
def test_overall_scale_is_irrelevant(truth, scale):
    found = ld.identify(np.array(precisions(truth)) * scale, truth.contexts)
    assert set(found.graph.edges) == set(truth.graph.edges)
