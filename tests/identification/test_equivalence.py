"""What is identified where some latents were never intervened on: the reduced model, and up to two candidates each."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import latentdag as ld
from latentdag.identification.equivalence import equivalent_models, reduced_model, same_law
from latentdag.model.intervention import Intervention


def partly_intervened(seed, share=0.6):
    """A random model in which only some latents have an intervention."""
    rng = np.random.default_rng([1, seed])
    d = int(rng.integers(2, 7))
    model = ld.simulate.random_model(d, d + 2, density=float(rng.uniform(0.3, 0.9)), rng=rng)
    kept = [c for c in model.contexts[1:] if rng.random() < share] or [model.contexts[1]]
    return replace(model, interventions={c: model.interventions[c] for c in kept})


def targeted(model):
    return [model.targets[c] for c in model.contexts[1:]]


def row(model, name):
    h = model.unmixing[model.latents.index(name)]
    return h / np.sqrt(h @ model.covariance() @ h)


def cosine(model, a, b):
    return abs(a @ model.covariance() @ b)


@pytest.mark.parametrize("seed", range(25))
def test_the_reduced_model_has_the_same_law_and_predicts_every_perfect_intervention(seed):
    model = partly_intervened(seed)
    reduced, names = reduced_model(model), targeted(model)
    assert same_law(model, reduced)
    for chosen in (names, names[:1], names[-2:]):
        new = Intervention(chosen, variance=0.37, shift=1.5)
        assert np.allclose(model.intervene(new).covariance, reduced.intervene(new).covariance, rtol=1e-7, atol=1e-9)
        assert np.allclose(model.intervene(new).mean, reduced.intervene(new).mean, rtol=1e-7, atol=1e-9)
    others = [i for i, name in enumerate(reduced.latents) if name not in names]
    assert not reduced.weights[others].any()
    assert np.count_nonzero(reduced.weights[:, others].any(axis=0)) <= len(names)


@pytest.mark.parametrize("seed", range(40))
def test_two_candidates_iff_not_a_source_and_no_targeted_ancestor(seed):
    model = partly_intervened(seed)
    names = targeted(model)
    found = equivalent_models(model)
    assert all(same_law(model, other) for other in found)
    for name in names:
        open_ = bool(list(model.graph.predecessors(name))) and not nx.ancestors(model.graph, name) & set(names)
        rows = [row(found[0], name)]
        for other in found[1:]:
            if all(cosine(model, row(other, name), known) < 1 - 1e-7 for known in rows):
                rows.append(row(other, name))
        assert len(rows) == (2 if open_ else 1)


def two_latents(**changes):
    """Z2 → Z1, and an intervention on Z1 alone."""
    return ld.LatentModel(np.eye(2), [[0, 1.0], [0, 0]], [1, 1], {"k": Intervention("Z1", variance=3.0, **changes)})


def test_a_shifted_mean_tells_the_two_candidates_apart():
    assert len(equivalent_models(two_latents())) == 2
    assert len(equivalent_models(two_latents(shift=0.5))) == 1


def test_a_second_noise_variance_tells_the_two_candidates_apart():
    model = two_latents()
    twice = replace(model, interventions={**model.interventions, "l": Intervention("Z1", variance=0.2)})
    assert len(equivalent_models(twice)) == 1


def test_with_every_latent_targeted_there_is_one_model():
    model = ld.simulate.random_model(rng=3)
    assert reduced_model(model) is model
    assert len(equivalent_models(model)) == 1


@pytest.mark.parametrize("given", [{"kind": "soft"}, {"strength": 0.5}])
def test_soft_and_partial_interventions_are_refused(given):
    model = replace(two_latents(), interventions={"k": Intervention("Z1", variance=2.0, **given)})
    with pytest.raises(ValueError, match="'k' is soft or partial"):
        equivalent_models(model)


@pytest.mark.parametrize("seed", range(8))
def test_fits_find_an_equivalent_model_from_exact_moments(seed):
    model = partly_intervened(seed, share=0.5)
    m = model.moments(10**8)  # so that divisors n and n − 1 agree
    fit = ld.fit(m, unintervened="upstream")
    assert fit.converged
    assert same_law(model, fit.model, tol=1e-6)
    answers = equivalent_models(model)
    best = max(
        min(cosine(model, row(fit.model, fit.targets[c]), row(answer, model.targets[c])) for c in model.contexts[1:])
        for answer in answers
    )
    assert best > 0.9999
    # every latent with two candidates is reported, with the other one
    for c in model.contexts[1:]:
        name = model.targets[c]
        rows = {tuple(np.round(np.abs(row(answer, name)), 4)) for answer in answers}
        assert (fit.targets[c] in fit.details["ambiguous"]) == (len(rows) == 2)


@pytest.mark.parametrize("seed", range(4))
def test_fits_find_an_equivalent_model_from_samples(seed):
    model = partly_intervened(seed, share=0.5)
    m = ld.simulate.sample_moments(model, 100_000, rng=seed)
    fit = ld.fit(m, unintervened="upstream")
    answers = equivalent_models(model)
    best = max(
        min(cosine(model, row(fit.model, fit.targets[c]), row(answer, model.targets[c])) for c in model.contexts[1:])
        for answer in answers
    )
    assert best > 0.98
    assert fit.order[: fit.model.n_latents - len(m.contexts) + 1] == tuple(
        name for name in fit.order if name.startswith("other ")
    )


def test_upstream_and_downstream_agree_where_the_others_are_downstream():
    chain = ld.LatentModel(
        np.linalg.inv([[1, 0.5, 0.2], [0.3, 1, -0.4], [0.2, -0.1, 1]]),
        [[0, 0, 0], [0.8, 0, 0], [0.5, 0.7, 0]],
        [1, 1, 1],
        {"a": Intervention("Z1", variance=4.0), "b": Intervention("Z2", variance=5.0)},
    )
    m = ld.simulate.sample_moments(chain, 50_000, rng=0)
    down, up = ld.fit(m), ld.fit(m, unintervened="upstream")
    for c in ("a", "b"):
        assert cosine(chain, row(down.model, down.targets[c]), row(up.model, up.targets[c])) > 0.9999
    assert up.loglik >= down.loglik - 1e-6


def test_names_of_other_latents_do_not_collide():
    model = partly_intervened(2)
    m = model.moments(10_000)
    named = ld.Moments.from_covariances(
        m.covariances, m.counts, contexts=["control", *(f"other {k}" for k in range(1, len(m.contexts)))]
    )
    assert len(set(ld.fit(named, unintervened="upstream").latents)) == model.n_latents


def test_the_option_is_checked():
    with pytest.raises(ValueError, match="'downstream' or 'upstream'"):
        ld.fit(partly_intervened(0).moments(100), unintervened="sideways")


def test_a_given_order_lists_targeted_latents_only():
    model = partly_intervened(5, share=0.5)
    m = model.moments(10_000)
    found = ld.fit(m, unintervened="upstream")
    order = [name for name in found.order if not name.startswith("other ")]
    again = ld.fit(m, unintervened="upstream", order=order)
    assert again.order == found.order
    assert again.loglik == pytest.approx(found.loglik, abs=1e-3)
    graph = found.graph.subgraph(order)
    assert ld.fit(m, unintervened="upstream", graph=graph).loglik == pytest.approx(found.loglik, abs=1e-3)


def test_the_closed_form_reports_both_candidates_and_why():
    fit = ld.fit(two_latents().moments(10_000), method="closed-form", unintervened="upstream")
    (rival, *_) = fit.details["ambiguous"]["k"]
    assert rival["context"] == "k"
    assert rival["gap"] == pytest.approx(0, abs=1e-6)
    assert "other solution" in rival["why"]
    found = [row(answer, "Z1") for answer in equivalent_models(two_latents())]
    for h in (fit.model.unmixing[fit.latents.index("k")], np.array(rival["unmixing"])):
        h = h / np.sqrt(h @ two_latents().covariance() @ h)
        assert max(cosine(two_latents(), h, other) for other in found) > 1 - 1e-5
