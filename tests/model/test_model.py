import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentdag as ld
from latentdag.core.linalg import max_entry_scale
from latentdag.model.distribution import NOISES

from strategies import models, seeds


@given(models(kind="soft"))
def test_population_law_solves_the_structural_equations(model):
    H, G = model.unmixing, model.mixing
    np.testing.assert_allclose(H @ G, np.eye(model.n_latents), atol=1e-8)
    for context in model.contexts:
        B = model.structural(context)
        noise = B @ H @ model.covariance(context) @ H.T @ B.T
        np.testing.assert_allclose(noise, np.eye(model.n_latents), atol=1e-6)  # Cov(ε) = I
        product = model.precision(context) @ model.covariance(context)
        np.testing.assert_allclose(product, G @ H, atol=1e-5)  # Θ = Σ†: the product projects on the range of G


@given(models(), st.sampled_from(["paper", "unit-variance", "unit-norm"]))
def test_rescaling_and_reordering_keep_the_law(model, scaling):
    other = model.rescaled(scaling).reordered(reversed(model.latents))
    for context in model.contexts:
        np.testing.assert_allclose(other.covariance(context), model.covariance(context), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(other.precision(context), model.precision(context), rtol=1e-8, atol=1e-10)
    check = {
        "paper": lambda m: max_entry_scale(m.unmixing),
        "unit-variance": lambda m: np.diagonal(m.law().latent_covariance),
        "unit-norm": lambda m: np.linalg.norm(m.unmixing, axis=1),
    }[scaling]
    np.testing.assert_allclose(check(other), 1.0, rtol=1e-10)


def test_ties_go_to_the_leftmost_entry_whatever_the_rounding():
    third = 1 / 3
    rows = np.array([[-1.0, 1.0, 0.5], [0.1 + 0.2, -0.3, 0.0], [0.2, -3 * third * 0.7, 0.7 * (1 + 1e-13)]])
    assert np.array_equal(max_entry_scale(rows), [-1.0, 0.1 + 0.2, -3 * third * 0.7])
    model = ld.LatentModel(rows, np.zeros((3, 3)), np.ones(3)).rescaled("paper")
    assert model.unmixing[0, 0] == 1.0
    assert model.unmixing[1, 0] == 1.0
    assert model.unmixing[2, 1] == 1.0


@given(models(max_latents=4), seeds)
def test_interventions_of_every_kind(model, seed):
    rng = np.random.default_rng(seed)
    target = model.latents[rng.integers(model.n_latents)]
    i = model.latents.index(target)
    h = model.unmixing[i]
    done = model.intervene({target: 1.5}, kind="do")
    assert h @ done.covariance @ h == pytest.approx(0, abs=1e-9)
    assert h @ (done.mean - model.offset) == pytest.approx(1.5)
    perfect = model.intervene({target: {"variance": 4.0, "shift": -2.0}})
    assert h @ perfect.covariance @ h == pytest.approx(4.0)
    assert h @ perfect.mean == pytest.approx(-2.0)
    soft = model.intervene({target: {"kind": "soft", "shift": 1.0}})  # same weights, same variance: only the mean moves
    np.testing.assert_allclose(soft.covariance, model.covariance(), rtol=1e-10)
    np.testing.assert_allclose(model.structural() @ model.unmixing @ soft.mean, np.eye(len(model.latents))[i] *
                               model.structural()[i, i], atol=1e-8)  # fmt: skip


def test_unseen_combination_is_the_union_of_its_parts():
    model = ld.simulate.random_model(rng=4)
    both = model.intervene({"c1": None, "c3": ...})
    B = model.structural()
    for c in ("c1", "c3"):
        row = model.latents.index(c)
        B[row] = model.structural(c)[row]
    np.testing.assert_allclose(both.structural, B)
    np.testing.assert_allclose(both.precision, model.unmixing.T @ B.T @ B @ model.unmixing)


def test_weights_that_belong_to_no_target_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="only a soft intervention has weights"):
        ld.Intervention(["A", "B"], weights={"P": 0.3})


def test_intervene_says_what_is_wrong():
    model = ld.simulate.random_model(rng=4)
    with pytest.raises(ValueError, match="no latent 'nobody'"):
        model.intervene({"nobody": None})
    with pytest.raises(ValueError, match="a mapping from latent names"):
        model.intervene({})
    with pytest.raises(ValueError, match="kind must be one of"):
        model.intervene({"c1": 2.0}, kind="hard")
    with pytest.raises(ValueError, match="must be positive and finite, got -1"):
        model.intervene({"c1": -1.0})
    with pytest.raises(ValueError, match="no structural matrix"):
        _ = model.intervene({"c1": 0.0}, kind="do").structural


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_samples_follow_the_law_for_every_noise(noise):
    base = ld.simulate.random_model(n_latents=3, n_features=4, convention="text", rng=11)
    model = ld.LatentModel(
        base.unmixing,
        base.weights,
        base.noise_variance,
        {
            "one": ld.Intervention(base.latents[0], variance=7.0, shift=2.0),
            "two": ld.Intervention(base.latents[:2], variance=[5.0, 6.0], shift=[1.0, -1.0]),
            "set": ld.Intervention(base.latents[2], "do", value=3.0),
        },
        latents=base.latents,
        offset=np.arange(4.0),
    )
    n = 200_000
    for context in model.contexts:
        X = model.sample(n, context, rng=5, noise=noise)
        sd = np.sqrt(np.diagonal(model.covariance(context))) + 1e-12
        np.testing.assert_array_less(np.abs(X.mean(axis=0) - model.mean(context)) / sd, 6 / np.sqrt(n))
        # sampling deviation of a covariance: 6 s.d. of the heaviest noise here (exponential, kurtosis 9)
        gap = np.abs(np.cov(X.T) - model.covariance(context)) / np.outer(sd, sd)
        assert gap.max() < 6 * np.sqrt(9 / n)
    with pytest.raises(ValueError, match="noise must be one of gaussian, laplace"):
        model.sample(3, noise="cauchy")


def test_transform_and_back():
    model = ld.simulate.random_model(n_latents=3, n_features=5, rng=0)
    X = model.sample(20, rng=1)
    Z = model.transform(X)
    np.testing.assert_allclose(model.inverse_transform(Z), X)
    frame = pd.DataFrame(X, columns=model.feature_names)[list(reversed(model.feature_names))]
    assert list(model.transform(frame).columns) == list(model.latents)
    np.testing.assert_allclose(model.transform(frame), Z)
    with pytest.raises(ValueError, match="features are missing, first 'x0'"):
        model.transform(frame.drop(columns="x0"))
    with pytest.raises(ValueError, match="X has 4 features, the model 5"):
        model.transform(X[:, :4])


def test_save_and_load_keep_everything(tmp_path):
    model = ld.simulate.random_model(kind="soft", rng=3)
    model.save(tmp_path / "m.npz")
    back = ld.LatentModel.load(tmp_path / "m.npz")
    assert back.latents == model.latents
    assert dict(back.interventions) == dict(model.interventions)
    for context in model.contexts:
        np.testing.assert_array_equal(back.precision(context), model.precision(context))


def test_a_latent_is_named_after_its_contexts():
    model = ld.simulate.random_model(rng=8)
    assert all(model.targets[c] == c for c in model.contexts[1:])
    two = ld.simulate.random_model(rng=8, n_targets=2)
    assert all(len(v.targets) == 2 for v in two.interventions.values())
    assert all(
        set(name.split(" #")[0].split("|")) == {c for c, v in two.interventions.items() if name in v.targets}
        for name in two.latents
        if not name.startswith("latent ")
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.ones((2, 2))}, "diagonal of the weights must be zero"),
        ({"weights": np.zeros((3, 3))}, r"weights must have shape \(2, 2\)"),
        ({"noise_variance": [1.0, 0.0]}, "noise variances must be positive"),
        ({"unmixing": np.ones((2, 3))}, "full row rank"),
        ({"unmixing": np.eye(2, 3) * [[1], [0]]}, "full row rank"),
        ({"unmixing": np.ones((3, 2))}, "must have shape"),
        ({"latents": ["a", "a"]}, "2 distinct latent names"),
        ({"interventions": {"k": ld.Intervention("nobody")}}, "names the latent 'nobody'"),
        ({"interventions": {"control": ld.Intervention("Z1")}}, "the control 'control' cannot have an intervention"),
    ],
)
def test_impossible_models_are_refused(change, message):
    parts = {"unmixing": np.eye(2, 3), "weights": np.zeros((2, 2)), "noise_variance": np.ones(2)}
    with pytest.raises(ValueError, match=message):
        ld.LatentModel(**{**parts, **change})
