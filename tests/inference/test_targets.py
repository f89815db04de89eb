"""Targets of extra contexts and off-target effects: calibrated under the null, right where there is something."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag.inference.targets import find_targets, off_targets
from latentdag.model.intervention import Intervention

from designs import shifted, with_rest


def with_contexts(truth, extra):
    """The model with further contexts ``{name: {latent: (variance ratio, shift in sd)}}``."""
    Omega = dict(zip(truth.latents, truth.noise_variance, strict=True))
    new = {
        context: Intervention(
            list(hits),
            variance=[Omega[i] * ratio for i, (ratio, _) in hits.items()],
            shift=[Omega[i] ** 0.5 * shift for i, (_, shift) in hits.items()],
        )
        for context, hits in extra.items()
    }
    return replace(truth, interventions={**truth.interventions, **new})


def known_only(m, truth):
    return m.select(truth.interventions)


def null_p_values(seeds, means=True, rest=False):
    """p-values of latents that a context leaves alone: in new contexts and in those of the fit."""
    new, old = [], []
    for seed in seeds:
        truth = shifted(ld.simulate.random_model(3, 5 if rest else 3, rng=seed), seed)
        truth = with_rest(truth, seed) if rest else truth
        first = truth.latents[seed % 3]
        full = with_contexts(truth, {"new": {first: (2.0, 0.5)}})
        m = ld.simulate.sample_moments(full, 1_000, rng=seed) if not rest else moments(full, 1_000, seed)
        fit = ld.fit(known_only(m, truth), graph=truth.graph, means=means)
        table = find_targets(fit, m).table
        new += list(table.loc[table["latent"] != first, "p_value"])
        old += list(off_targets(fit, known_only(m, truth)).table["p_value"])
    return new, old


def moments(model, n, seed, noise="gaussian"):
    X, contexts = ld.simulate.sample(model, n, rng=seed, noise=noise)
    return ld.Moments.from_samples(X, contexts, control=model.control)


@pytest.mark.parametrize("means", [True, False])
def test_p_values_are_uniform_where_a_latent_is_left_alone(means):
    for p in null_p_values(range(40), means):
        assert stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.slow
def test_p_values_are_uniform_with_remaining_dimensions():
    for p in null_p_values(range(15), rest=True):
        assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_p_values_with_samples_are_uniform_for_laplace_noise():
    new, old = [], []
    for seed in range(40):
        truth = ld.simulate.random_model(3, 3, rng=seed)
        first = truth.latents[seed % 3]
        full = with_contexts(truth, {"new": {first: (2.0, 0.0)}})
        X, contexts = ld.simulate.sample(full, 1_000, rng=seed, noise="laplace")
        m = ld.Moments.from_samples(X, contexts, control=full.control)
        fit = ld.fit(known_only(m, truth), graph=truth.graph)
        table = find_targets(fit, m, data=(X, contexts)).table
        new += list(table.loc[table["latent"] != first, "p_value"])
        old += list(off_targets(fit, known_only(m, truth), data=(X, contexts)).table["p_value"])
    for p in (new, old):
        assert stats.kstest(p, "uniform").pvalue > 1e-3


class TestFinding:
    truth = ld.simulate.random_model(5, 8, rng=4)
    a, b = truth.latents[1], truth.latents[3]
    full = with_contexts(truth, {"one": {a: (3.0, 0.0)}, "two": {a: (3.0, 0.0), b: (1.0, 0.8)}})
    m = ld.simulate.sample_moments(full, 5_000, rng=0)
    fit = ld.fit(m.select(truth.interventions))

    def test_one_several_none(self):
        none = ld.simulate.sample_moments(replace(self.truth, interventions={}), 5_000, rng=1)
        none = replace(none, contexts=("none",), control=None)
        found = find_targets(self.fit, self.m + none, alpha=1e-3)
        assert {context: set(names) for context, names in found.targets.items()} == {
            "none": set(), "one": {self.a}, "two": {self.a, self.b}
        }  # fmt: skip
        assert dict(zip(found.summary["context"], found.summary["verdict"], strict=True)) == {
            "none": "none", "one": "one", "two": "several"
        }  # fmt: skip
        assert "<table" in found._repr_html_()
        assert "several" in repr(found)

    def test_effect_sizes(self):
        table = find_targets(self.fit, self.m).table.set_index(["context", "latent"])
        assert table.loc[("one", self.a), "log_variance_ratio"] > 0.5
        assert abs(table.loc[("two", self.b), "shift"]) > 0.3
        left = [i for i in self.truth.latents if i not in (self.a, self.b)]
        assert table.loc[[("two", i) for i in left], "log_variance_ratio"].abs().max() < 0.15

    def test_a_cut_that_leaves_the_variance_is_seen_in_the_parents(self):
        truth = ld.LatentModel(
            np.eye(2), [[0, 0.5], [0, 0]], [1, 1], {"A": Intervention("A", variance=3), "B": Intervention("B", variance=3)},
            latents=["A", "B"],
        )  # fmt: skip
        # new noise and the parents' old part together have the variance of the old noise
        m = ld.simulate.sample_moments(with_contexts(truth, {"cut": {"A": (0.75, 0.0)}}), 5_000, rng=2)
        row = find_targets(ld.fit(known_only(m, truth)), m).table.set_index("latent").loc["A"]
        assert abs(row["log_variance_ratio"]) < 0.1
        assert row["parent_correlation"] == pytest.approx(-0.5, abs=0.1)
        assert row["is_target"]

    def test_off_target_effects_are_flagged(self):
        context = next(c for c, v in self.truth.interventions.items() if v.target == self.a)
        old = self.truth.interventions[context].changes[self.a]
        i = self.truth.latents.index(self.b)
        both = Intervention.of_changes(
            {self.a: old, self.b: replace(old, variance=1.5 * self.truth.noise_variance[i], shift=0.0)}
        )
        m = ld.simulate.sample_moments(
            replace(self.truth, interventions={**self.truth.interventions, context: both}), 5_000, rng=3
        )
        fit = ld.fit(m, graph=self.truth.graph)
        table = off_targets(fit, m).table.sort_values("p_value", ignore_index=True)
        assert self.b in set(table.loc[table["is_target"] & (table["context"] == context), "latent"])
        assert not off_targets(self.fit, self.m.select(self.truth.interventions), alpha=1e-3).table["is_target"].any()

    def test_invariance_to_maps_of_the_features(self):
        L = np.random.default_rng(0).normal(size=(8, 8))
        turned = ld.Moments.from_covariances(
            L @ self.m.covariances @ L.T, self.m.counts, self.m.contexts, means=self.m.means @ L.T
        )
        fit = ld.fit(turned.select(self.truth.interventions), graph=self.fit.graph)
        a = find_targets(self.fit, self.m).table.set_index(["context", "latent"])
        b = find_targets(fit, turned).table.set_index(["context", "latent"]).loc[a.index]
        np.testing.assert_allclose(a["statistic"], b["statistic"], rtol=1e-2, atol=1e-2)

    def test_bad_input(self):
        with pytest.raises(ValueError, match="part of the fit: use off_targets"):
            find_targets(self.fit, self.m, ["c1"])
        with pytest.raises(ValueError, match="part of the fit already"):
            find_targets(self.fit, self.m.select(self.truth.interventions))
        with pytest.raises(ValueError, match="they must be the same"):
            find_targets(self.fit, ld.simulate.sample_moments(ld.simulate.random_model(6, 6, rng=0), 100, rng=0))
        with pytest.raises(ValueError, match="pass the moments that were fitted"):
            off_targets(self.fit, ld.simulate.sample_moments(self.truth, 100, rng=0))
        with pytest.raises(ValueError, match="alpha"):
            find_targets(self.fit, self.m, alpha=5)
        projected = ld.fit(self.m.select(self.truth.interventions), method="projection")
        with pytest.raises(ValueError, match="need standard errors"):
            find_targets(projected, self.m)
