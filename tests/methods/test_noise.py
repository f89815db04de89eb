"""Fits of features that are measured with noise."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import latentdag as ld
from latentdag.core.covariance import score_covariance
from latentdag.core.jacobian import information, outer_information
from latentdag.methods import fitting


def population(seed, d=4, p=8, convention="text", background=0, counts=10**6):
    """Exact moments of noisy features, the model without the noise, and the noise."""
    rng = np.random.default_rng(seed)
    model = ld.simulate.random_model(d, p, density=0.5, convention=convention, rng=rng)
    psi = rng.uniform(0.2, 0.8, p) * np.diagonal(model.covariance())
    B = 0.5 * rng.normal(size=(p, background))
    extra = np.diag(psi) + B @ B.T
    laws = [model.law(c) for c in model.contexts]
    names = {"contexts": model.contexts, "control": model.control, "feature_names": model.feature_names}
    m = ld.Moments.from_covariances(
        [law.covariance + extra for law in laws], counts, means=[law.mean for law in laws], **names
    )
    return model, psi, m


@pytest.mark.parametrize("convention", ["text", "figures"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_moments_give_the_model(seed, convention):
    """Graph, noise and mixing are those of the model; "auto" finds out that there is noise."""
    model, psi, m = population(seed, convention=convention)
    fit = ld.fit(m, noise="auto")
    assert set(fit.graph.edges) == set(model.graph.edges)
    np.testing.assert_allclose(fit.noise_variance, psi, rtol=0.02)
    found, true = (each.reordered(model.latents).rescaled("unit-variance") for each in (fit.model, model))
    cosine = (found.mixing * true.mixing).sum(axis=0) / np.linalg.norm(found.mixing, axis=0)
    np.testing.assert_allclose(np.abs(cosine), np.linalg.norm(true.mixing, axis=0), rtol=1e-3)
    np.testing.assert_allclose(found.unmixing @ found.mixing, np.eye(4), atol=1e-8)
    for context in m.contexts:  # the noise is part of the model's law
        np.testing.assert_allclose(fit.model.covariance(context), m.covariances[m.index(context)], rtol=0.05, atol=0.02)


def test_noise_is_looked_for_unless_it_is_told_not_to_be_there():
    model, psi, m = population(0, counts=5_000)
    fit, told = ld.fit(m), ld.fit(m, noise="none")
    np.testing.assert_allclose(fit.noise_variance, psi, rtol=0.2)
    assert set(fit.graph.edges) == set(model.graph.edges)
    assert "BIC prefers this to exact features" in str(fit.verdict)
    assert told.noise_variance is None
    assert "BIC" not in str(told.verdict)
    exact = ld.simulate.sample_moments(ld.simulate.random_model(4, 8, rng=1), 2_500, rng=0)
    assert not ld.fit(exact).verdict.notes


@pytest.mark.parametrize(
    "options", [{"unintervened": "upstream"}, {"intervention": "do"}, {"intervention": {"c1": "do"}}]
)
def test_where_nothing_tells_noise_from_exact_features_they_are_exact(options):
    model = ld.simulate.random_model(3, 6, rng=2)
    rng = np.random.default_rng(0)
    X = np.vstack([model.sample(400, c, rng) for c in model.contexts])
    X = X + 0.3 * X.std(axis=0) * rng.normal(size=X.shape)
    m = ld.Moments.from_samples(X, np.repeat(list(model.contexts), 400), control="control")
    fit = ld.fit(m, **options)
    assert fit.noise_variance is None
    assert fit.options.noise == "auto"


def test_background_factors_are_counted():
    model, psi, m = population(3, p=12, background=2)
    fit = ld.fit(m, noise="auto")
    assert fit.details["n_factors"] == 6
    assert set(fit.graph.edges) == set(model.graph.edges)
    np.testing.assert_allclose(fit.noise_variance, psi, rtol=0.05)
    assert "2 factors that no context targets" in str(fit.verdict)


@pytest.mark.parametrize("seed", range(2))
def test_units_of_features_do_not_matter(seed):
    _, _, m = population(seed, counts=3000)
    units = np.exp(np.random.default_rng(seed).uniform(-7, 7, 8))
    names = {"contexts": m.contexts, "control": m.control, "feature_names": m.feature_names}
    scaled = ld.Moments.from_covariances(
        m.covariances * units[:, None] * units, m.counts, means=m.means * units, **names
    )
    one, other = ld.fit(m, noise="auto"), ld.fit(scaled, noise="auto")
    assert set(one.graph.edges) == set(other.graph.edges)
    np.testing.assert_allclose(other.noise_variance / units**2, one.noise_variance, rtol=1e-8)
    a, b = (fit.model.reordered(one.latents).rescaled("unit-variance") for fit in (one, other))
    np.testing.assert_allclose(np.abs(b.unmixing * units), np.abs(a.unmixing), rtol=1e-8)  # signs are a convention
    np.testing.assert_allclose(np.abs(b.weights), np.abs(a.weights), atol=1e-8)


def test_order_of_features_and_contexts_does_not_matter():
    _, _, m = population(5, counts=3000)
    rng = np.random.default_rng(0)
    k, j = [0, *(1 + rng.permutation(4))], rng.permutation(8)
    mixed = ld.Moments.from_covariances(
        m.covariances[np.ix_(k, j, j)],
        m.counts[k],
        contexts=[m.contexts[i] for i in k],
        control=m.control,
        means=m.means[np.ix_(k, j)],
        feature_names=[m.feature_names[i] for i in j],
    )
    one, other = ld.fit(m, noise="auto"), ld.fit(mixed, noise="auto")
    assert set(one.graph.edges) == set(other.graph.edges)
    np.testing.assert_allclose(other.noise_variance, one.noise_variance[j], rtol=1e-5)


def test_exact_features_have_no_noise():
    """Fewer dimensions than features, or dimensions downstream of the latents: the same fit as with noise='none'."""
    model = ld.simulate.random_model(4, 8, convention="text", rng=1)
    m = ld.simulate.sample_moments(model, 2_500, rng=0)
    assert ld.fit(m, noise="auto").noise_variance is None
    rng = np.random.default_rng(2)
    beside = np.linalg.svd(model.unmixing)[2][4:].T
    A = rng.normal(size=(4, 4))
    downstream = ld.LatentModel(
        model.unmixing, model.weights, model.noise_variance, model.interventions, model.latents, model.control,
        loadings=model.mixing + beside @ rng.normal(size=(4, 4)), residual=beside @ A @ A.T @ beside.T,
    )  # fmt: skip
    m = ld.simulate.sample_moments(downstream, 2_500, rng=0)
    fit = ld.fit(m, noise="auto")
    assert fit.noise_variance is None
    assert "taken as exact" in str(fit.verdict)
    assert fit.loglik == ld.fit(m, noise="none").loglik


@pytest.mark.parametrize("means", [True, False])
def test_scores_have_the_information_as_covariance(means):
    """Of Gaussian samples, the covariance of the scores is the information, with and without means."""
    model = ld.simulate.random_model(2, 5, convention="text", rng=3)
    rng, n = np.random.default_rng(0), 20_000
    X = np.vstack([model.sample(n, c, rng) for c in model.contexts])
    X = X + 0.5 * X.std(axis=0) * rng.normal(size=X.shape)
    contexts = np.repeat(list(model.contexts), n)
    m = ld.Moments.from_samples(X, contexts, control="control")
    u = ld.fit(m, noise="features", n_latents=2, graph=model.graph, means=means).uncertainty()
    J = score_covariance(u.point, u._blocks((X, contexts), u.quantities.W, 5_000))
    outer = np.kron(outer_information(u.point), np.eye(len(u.quantities.W)))
    P, inner = u.point.size, information(u.point)
    scale = np.sqrt(np.concatenate([np.diagonal(inner), np.diagonal(outer)]))
    off = J / scale / scale[:, None]
    off[:P, :P] -= inner / scale[:P] / scale[:P, None]
    off[P:, P:] -= outer / scale[P:] / scale[P:, None]
    assert np.abs(off).max() < 0.06


def test_predictions_hold_the_noise():
    model, psi, m = population(4, p=10, counts=20_000)
    both = ld.fit(m, noise="auto", graph=model.graph).predict(["c1", "c2"])
    true = model.intervene({"c1": None, "c2": None})
    off = (both.covariance - true.covariance - np.diag(psi)) / both.covariance_std_error
    assert np.abs(off).max() < 1  # exact moments: only rounding and the floor are left


def test_latents_of_rows_are_posterior_means():
    """The posterior mean is the best linear estimate, and its error is as large as it says."""
    model, psi, m = population(6, p=12)
    fit = ld.fit(m, noise="auto").model.reordered(model.latents)
    rng = np.random.default_rng(0)
    Z, X = [], []
    for context in model.contexts:
        law = model.law(context)
        Z.append(law.latent_mean + rng.normal(size=(4_000, 4)) @ law.noise_response.T)
        X.append(model.offset + Z[-1] @ model.mixing.T + rng.normal(size=(4_000, 12)) * np.sqrt(psi))
    Z, found = np.vstack(Z), fit.transform(np.vstack(X))
    slope = (Z * found).sum(axis=0) / (found**2).sum(axis=0)  # one, but for units and signs
    error = np.std(Z / slope - found, axis=0)
    np.testing.assert_allclose(error, fit.latent_std_error, rtol=0.05)


def test_soft_relations_under_noise():
    model, _, m = population(2, counts=20_000)
    relations = set(ld.fit(m, noise="auto", intervention="soft").partial_order(0.95).edges)
    assert relations <= set(nx.transitive_closure_dag(model.graph).edges)
    assert relations


def test_the_test_of_the_model_accepts_noise():
    _, _, m = population(0, counts=5_000)
    verdict = ld.membership_test(m, fit=ld.fit(m, noise="auto"))
    assert verdict.in_model
    assert np.isfinite(verdict.omnibus.p_value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": "loud"}, "noise must be"),
        ({"noise": {"x0": -1.0}}, "positive variance"),
        ({"noise": {"x0": 1e9}}, "its variance is only"),
        ({"noise": {"nobody": 1.0}}, "no feature"),
        ({"noise": "features", "n_latents": 3}, "at least 4"),
        ({"noise": "features", "n_latents": 8}, "at most 6: more cannot be told from noise"),
        ({"noise": "auto", "n_latents": 2.5}, "number of latents"),
    ],
)
def test_bad_input_is_said(options, words):
    _, _, m = population(0)
    with pytest.raises(ValueError, match=words):
        ld.fit(m, **options)


def test_too_few_features_are_said():
    _, _, m = population(0, p=4)
    with pytest.raises(ValueError, match="at least 5 features"):
        ld.fit(m, noise="features")


def test_known_noise_is_kept():
    _, psi, m = population(1)
    known = {"x0": psi[0], "x3": psi[3]}
    fit = ld.fit(m, noise=known)
    np.testing.assert_allclose(fit.noise_variance[[0, 3]], [psi[0], psi[3]], rtol=1e-9)


def test_counts_are_fitted_with_their_noise(tmp_path):
    model = ld.simulate.random_model(3, 20, convention="text", rng=2)
    rng, n = np.random.default_rng(0), 4_000
    rates = np.vstack([model.sample(n, c, rng) for c in model.contexts])
    rates = 8 * np.maximum(1 + 0.3 * rates / rates.std(axis=0), 0)
    contexts = np.repeat(list(model.contexts), n)
    m = ld.Moments.from_counts(rng.poisson(rates), contexts, control="control", depth=1)
    fit = ld.fit(m)
    assert set(fit.graph.edges) == set(model.graph.edges)
    assert (fit.noise_variance >= 0.99 * m.noise.mean(axis=0)).all()
    fit.save(tmp_path / "fit.npz")
    again = ld.Fit.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(again.noise_variance, fit.noise_variance)
    assert str(again.verdict) == str(fit.verdict)


def test_bic_compares_noise_with_exact_features():
    """Both count all parameters of all features' second moments, so that the smaller one is the better model."""
    _, _, m = population(0, counts=5_000)
    assert ld.fit(m, noise="auto").bic < ld.fit(m, noise="none").bic


def test_features_of_fewer_dimensions_are_said():
    truth = ld.simulate.random_model(3, 6, rng=0)
    with pytest.raises(ValueError, match="6 features have only 3 dimensions"):
        ld.fit(ld.simulate.sample_moments(truth, 1_000, rng=0), noise="features")


def test_a_fit_that_did_not_arrive_calls_no_edge():
    m = ld.simulate.sample_moments(ld.simulate.random_model(rng=1), 10_000, rng=1)
    table = replace(ld.fit(m), converged=False).edges()
    assert (table["q_value"] == 1).all()
    assert "stopped before the maximum" in table.attrs["note"]


def test_tests_of_targets_know_the_noise():
    """Of exact moments nothing is left to see but the target of a context that was not in the fit."""
    model, psi, _ = population(1, d=3, p=8)
    model = replace(model, interventions={**model.interventions, "?": ld.Intervention("c2", variance=4.0)})
    noisy = replace(model, loadings=model.mixing, residual=np.diag(psi))
    m = noisy.moments(20_000)
    known = m.select([c for c in m.contexts if c != "?"])
    fit = ld.fit(known, noise="features", graph=model.graph)
    assert ld.off_targets(fit, known).table["p_value"].min() > 0.5
    assert ld.find_targets(fit, m).targets == {"?": ("c2",)}


def test_noise_of_counting_that_differs_is_no_change():
    """Two contexts with the same law of rates, one counted less deeply: neither changed nor targeted."""
    model, psi, _ = population(1, d=3, p=8)
    noisy = replace(model, loadings=model.mixing, residual=np.diag(psi))
    m = noisy.moments(20_000)
    k = [*range(len(m.contexts)), 0]
    counting = np.outer([1.0] * len(m.contexts) + [3.0], 0.2 * psi)
    S = m.covariances[k] + np.einsum("kp,pq->kpq", counting, np.eye(8))
    names = {"contexts": [*m.contexts, "idle"], "control": m.control, "feature_names": m.feature_names}
    counted = ld.Moments.from_covariances(S, 20_000, means=m.means[k], noise=counting, **names)
    assert ld.changed(counted)["idle"].to_dict()["idle"]
    fit = ld.fit(counted.select(m.contexts), graph=model.graph)
    assert ld.find_targets(fit, counted).targets == {"idle": ()}
    with pytest.raises(ValueError, match="pass moments of all contexts"):
        ld.find_targets(fit, counted.select(["idle"]))


def test_groups_are_those_beneath_the_noise():
    model, psi, _ = population(3, d=3, p=10)
    again = {f"{c}'": ld.Intervention(v.targets[0], variance=3.0) for c, v in model.interventions.items()}
    model = replace(model, interventions={**model.interventions, **again})
    noisy = replace(model, loadings=model.mixing, residual=np.diag(psi))
    m = noisy.moments(5_000)
    found = ld.target_groups(m, noise="auto")
    assert sorted(map(sorted, found.groups)) == [[c, f"{c}'"] for c in sorted(model.interventions)[::2]]
    assert np.diagonal(found.cosines.to_numpy(), 3).min() > 0.99
    assert np.diagonal(found.p_values.to_numpy(), 3).min() > 0.5


def test_the_control_is_found_among_noisy_contexts():
    model, psi, _ = population(2, d=2, p=6)
    noisy = replace(model, loadings=model.mixing, residual=np.diag(psi))
    m = noisy.moments(20_000)
    assert ld.observational_context_test(m, noise="features").attrs["plausible"] == ("control",)


def test_a_feature_that_is_all_noise_is_named():
    model, _, m = population(1, counts=5_000)
    S = np.pad(m.covariances, ((0, 0), (0, 1), (0, 1)))
    S[:, 8, 8] = 2.0
    names = {"contexts": m.contexts, "control": m.control, "feature_names": [*m.feature_names, "silent"]}
    m = ld.Moments.from_covariances(S, m.counts, means=np.pad(m.means, ((0, 0), (0, 1))), **names)
    fit = ld.fit(m, noise="features", graph=model.graph)
    assert "nothing but noise: 'silent'" in str(fit.verdict)


def test_where_as_many_background_factors_as_can_be_told_apart_are_not_enough_features_are_exact():
    """Every context changes much more than its target, so factors are needed without end: that is not noise."""
    rng = np.random.default_rng(4)
    model = ld.simulate.random_model(4, 7, rng=4)
    S = model.moments().covariances + np.array([A @ A.T for A in rng.normal(size=(5, 7, 7))])
    fit = ld.fit(ld.Moments.from_covariances(S, 5_000))
    assert fit.noise_variance is None
    assert "something else than noise is amiss" in str(fit.verdict)
    assert any("refuse the model" in reason for reason in fit.verdict.reasons)
    assert ld.fit(ld.Moments.from_covariances(S, 5_000), noise="none").graph.edges == fit.graph.edges


@pytest.mark.parametrize("seed", range(3))
def test_with_background_factors_noise_is_taken_only_if_the_fit_explains_more_than_one_to_exact_features(seed):
    """Contexts that change the background, too, are no noise, whatever a criterion says that lets them."""
    rng = np.random.default_rng([6, seed])
    model = ld.simulate.random_model(3, 12, rng=rng)
    B = rng.normal(size=(12, 3))
    S = [model.covariance(c) + B @ np.diag(rng.uniform(0.2, 4.0, 3)) @ B.T + 0.3 * np.eye(12) for c in model.contexts]
    m = ld.Moments.from_covariances(np.array(S), 2_000)
    fit, exact = ld.fit(m), ld.fit(m, noise="none")
    assert fit.bic <= exact.bic + 1e-6 * abs(exact.bic)
    assert fit.options.noise == "auto"
    if fit.noise_variance is None and "noise_bic" in fit.details:
        assert "taken as exact" in str(fit.verdict)


def test_where_noise_leads_to_no_model_features_are_exact_and_other_errors_stay(monkeypatch):
    _, _, m = population(1, counts=2_000)
    usual = fitting.fit_likelihood

    def fails_with_noise(m, options, **rest):
        if options.noise != "none":
            raise np.linalg.LinAlgError("Singular matrix")
        return usual(m, options, **rest)

    monkeypatch.setattr(fitting, "fit_likelihood", fails_with_noise)
    fit = ld.fit(m)
    assert fit.noise_variance is None
    assert fit.options.noise == "auto"
    assert "leads to no model" in str(fit.verdict)
    with pytest.raises(ld.errors.NumericalError):
        ld.fit(m, noise="features")
    with pytest.raises(ValueError, match="names no latent"):
        ld.fit(m, required=[("nobody", "c1")])
