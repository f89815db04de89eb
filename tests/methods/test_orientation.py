"""A latent grows where its own perturbation moves it; where nothing shifts it, as in the paper."""

from dataclasses import replace

import numpy as np
import pytest

import latentdag as ld


def shifted(seed, by, n_latents=5):
    """Return a random model whose perturbations all move what they target by so many deviations of its noise."""
    model = ld.simulate.random_model(n_latents, 2 * n_latents, rng=seed)
    deviation = dict(zip(model.latents, np.sqrt(model.noise_variance), strict=True))
    moved = {
        context: ld.Intervention.of_changes(
            {name: replace(change, shift=by * deviation[name]) for name, change in value.changes.items()}
        )
        for context, value in model.interventions.items()
    }
    return replace(model, interventions=moved)


def signs(graph):
    return {(source, target): np.sign(weight) for source, target, weight in graph.edges(data="weight")}


@pytest.mark.parametrize("by", [1.0, -1.0])
@pytest.mark.parametrize("seed", range(40, 46))
def test_where_all_perturbations_move_their_targets_alike_edges_have_the_signs_of_the_truth(seed, by):
    truth = shifted(seed, by)
    fit = ld.fit(truth.moments(50_000))
    assert set(fit.orientation.values()) == {"perturbation"}
    assert signs(fit.graph) == signs(truth.graph)


@pytest.mark.parametrize("method", ["likelihood", "closed-form"])
def test_every_table_has_the_signs_of_the_graph(method):
    fit = ld.fit(shifted(7, -1.0).moments(50_000), method)
    H = fit.model.unmixing
    assert (np.abs(H).max(axis=1) == 1.0).all()  # the paper's units
    assert (H.max(axis=1) < 1.0).any()  # with another sign
    table = fit.standard_errors()
    weights = table[table["quantity"] == "weight"]
    assert {(r.column, r.row): np.sign(r.estimate) for r in weights.itertuples()} == signs(fit.graph)
    entries = table[table["quantity"] == "unmixing"]["estimate"].to_numpy().reshape(H.shape)
    np.testing.assert_allclose(entries, H, atol=1e-9)
    if method == "likelihood":
        edges = fit.edges(0.95)
        assert {(r.source, r.target): np.sign(r.weight) for r in edges.itertuples()} == signs(fit.graph)
        assert ((edges["lower"] < edges["weight"]) & (edges["weight"] < edges["upper"])).all()
        bands = fit.sensitivity((0.9, 1.0)).table.set_index(["source", "target"])["weight"]
        assert all(np.sign(bands[edge]) == sign for edge, sign in signs(fit.graph).items())


def test_without_shifts_a_latent_grows_with_what_weighs_most_in_it():
    m = ld.simulate.random_model(rng=9).moments(10_000)
    fit = ld.fit(m)
    assert set(fit.orientation.values()) == {"feature"}
    assert (fit.model.unmixing.max(axis=1) == 1.0).all()
    free = ld.fit(shifted(9, 1.0).moments(10_000), means=False)
    assert set(free.orientation.values()) == {"feature"}


def test_the_sign_of_features_does_not_matter_and_files_keep_the_orientation(tmp_path):
    truth = shifted(11, -0.5)
    m, sign = truth.moments(20_000), np.where(np.arange(10) % 3 == 0, -1.0, 1.0)
    flipped = ld.Moments.from_covariances(
        m.covariances * np.outer(sign, sign), m.counts, m.contexts, m.control, m.means * sign, m.feature_names
    )
    one, two = ld.fit(m), ld.fit(flipped)
    assert signs(one.graph) == signs(two.graph)
    np.testing.assert_allclose(two.model.unmixing, one.model.unmixing * sign, atol=1e-4)
    one.save(tmp_path / "fit.npz")
    assert ld.Fit.load(tmp_path / "fit.npz").orientation == one.orientation


def test_of_several_contexts_those_that_hit_a_latent_alone_have_the_say():
    truth = shifted(13, 1.0)
    a, b = truth.latents[:2]
    both = ld.Intervention.of_changes(
        {name: replace(truth.interventions[name].changes[name], shift=-9.0) for name in (a, b)}
    )
    truth = replace(truth, interventions={**truth.interventions, "both": both})
    targets = {c: value.targets for c, value in truth.interventions.items()}
    assert signs(ld.fit(truth.moments(50_000), targets=targets).graph) == signs(truth.graph)
