"""ld.fit(m, targets="learn"): target sets, latents, order and graph together."""

import numpy as np
import pytest

import latentdag as ld
from latentdag.methods.options import Options

NAMES = ["Z1", "Z2", "Z3", "Z4"]


def truth_of(sets, seed=0, kind="perfect", p=6):
    """Return a model in which every context hits the latents of its set; an empty one changes nothing."""
    rng = np.random.default_rng(seed)
    weights = np.tril(rng.uniform(0.4, 1, (4, 4)) * rng.choice([-1, 1], (4, 4)), -1)
    soft = {name: {NAMES[j]: 0.3 for j in range(i)} for i, name in enumerate(NAMES)}

    def intervention(k, rows):
        variance = [8.0 + k] * len(rows)
        names = [NAMES[i] for i in rows]
        if kind == "perfect" or not rows:
            return ld.Intervention(names, variance=variance)
        return ld.Intervention(
            names, "soft", variance, weights={n: soft[n] for n in names} if len(names) > 1 else soft[names[0]]
        )

    contexts = {f"c{k}": intervention(k, rows) for k, rows in enumerate(sets)}
    return ld.LatentModel(rng.standard_normal((4, p)), weights, np.full(4, 2.0), contexts, latents=NAMES)


def names_in(targets):
    return (targets,) if isinstance(targets, str) else tuple(targets)


def columns(targets):
    """Return, for every latent, the contexts that hit it: what does not depend on names."""
    latents = {name for mine in targets.values() for name in names_in(mine)}
    return {latent: frozenset(c for c, mine in targets.items() if latent in names_in(mine)) for latent in latents}


def same(fit, truth):
    found, true = columns(fit.targets), columns(truth.targets)
    if sorted(map(sorted, found.values())) != sorted(map(sorted, true.values())):
        return False
    name = {hits: latent for latent, hits in true.items()}
    edges = {(name[found[a]], name[found[b]]) for a, b in fit.graph.edges}
    return edges == set(truth.graph.edges)


GUIDES = [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (3,)]
MIXED = [(0,), (1,), (2,), (3,), (0, 2), (1, 3), ()]
PAIRS = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3)]


@pytest.mark.parametrize(("sets", "n"), [(GUIDES, 2_000), (MIXED, 4_000), (PAIRS, 20_000)])
@pytest.mark.parametrize("seed", [101, 102])
def test_targets_and_graph_are_learned(sets, n, seed):
    truth = truth_of(sets, seed)
    fit = ld.fit(ld.simulate.sample_moments(truth, n, rng=seed), targets="learn")
    assert same(fit, truth)
    assert fit.options.targets == "learn"
    assert fit.idle == tuple(c for c, mine in truth.targets.items() if mine == ())
    assert ("do not know those that the search missed" in str(fit.verdict)) == (sets is PAIRS)
    hit = fit.target_probabilities
    for context, mine in fit.targets.items():
        assert (hit.loc[context, list(names_in(mine))] > 0.95).all()


def test_the_answer_does_not_depend_on_the_order_of_contexts_or_on_units(tmp_path):
    truth = truth_of(MIXED, 7)
    m = ld.simulate.sample_moments(truth, 4_000, rng=7)
    fit = ld.fit(m, targets="learn")
    scale = np.array([1e-3, 1, 10, 1, 100, 1])
    kept = ["c5", "c6", "c0", "c3", "c1", "c4", "c2"]
    other = ld.Moments.from_covariances(
        np.array([m.covariances[m.index(c)] for c in ["control", *kept]]) * scale * scale[:, None],
        [int(m.counts[m.index(c)]) for c in ["control", *kept]],
        contexts=["control", *kept],
        control="control",
        means=np.array([m.means[m.index(c)] for c in ["control", *kept]]) * scale,
    )
    again = ld.fit(other, targets="learn")
    assert columns(again.targets) == columns(fit.targets)
    assert set(again.graph.edges) == set(fit.graph.edges)
    fit.save(tmp_path / "fit.npz")
    loaded = ld.Fit.load(tmp_path / "fit.npz")
    assert loaded.targets == fit.targets
    assert loaded.target_probabilities.equals(fit.target_probabilities)
    assert loaded.shared_targets.equals(fit.shared_targets)


def test_soft_targets_are_learned():
    truth = truth_of(MIXED, 103, "soft")
    fit = ld.fit(ld.simulate.sample_moments(truth, 20_000, rng=1), targets="learn", intervention="soft")
    assert sorted(map(sorted, columns(fit.targets).values())) == sorted(map(sorted, columns(truth.targets).values()))


def test_fewer_latents_than_dimensions_and_noise():
    truth = truth_of(GUIDES, 104, p=9)
    X, contexts = ld.simulate.sample(truth, 4_000, rng=2)
    X = X + 0.3 * X.std(axis=0) * np.random.default_rng(3).normal(size=X.shape)
    m = ld.Moments.from_samples(X, contexts, control="control")
    fit = ld.fit(m, targets="learn", noise="features")
    assert sorted(map(sorted, columns(fit.targets).values())) == sorted(map(sorted, columns(truth.targets).values()))
    assert fit.noise_variance is not None


def test_what_is_known_is_kept_and_suppositions_are_tested():
    truth = truth_of(MIXED, 105)
    m = ld.simulate.sample_moments(truth, 4_000, rng=5)
    told = ld.Learn(known={"c0": "gene", "c6": ()}, share={"c1": "B", "c5": "B", "c2": "C", "c3": "C"}, at_most=2)
    fit = ld.fit(m, targets=told)
    assert fit.targets["c0"] == "gene"
    assert fit.targets["c6"] == ()
    assert same(fit, truth)
    assert "As supposed, the contexts of B share a target." in str(fit.verdict)
    assert any("The contexts of C do not share a target: c2 hits" in reason for reason in fit.verdict.reasons)
    assert Options.from_json(fit.options.to_json()).targets == told


def test_a_fit_that_was_told_nothing_says_that_contexts_share_targets():
    truth = truth_of([(0,), (1,), (2,), (3,), (0, 3)], 106, p=4)
    m = ld.simulate.sample_moments(truth, 4_000, rng=1)
    told = ld.fit(m, targets=truth.targets)
    assert "targets='learn'" not in str(told.verdict)
    alone = ld.fit(m.select(["c0", "c1", "c2", "c4"]))  # c4 hits two
    assert "c4" in str(alone.verdict)
    assert "targets='learn'" in str(alone.verdict)
    with pytest.raises(ValueError, match=r"targets='learn'"):
        ld.fit(m)  # five contexts, four dimensions


@pytest.mark.filterwarnings("ignore::latentdag.errors.FewSamplesWarning")
@pytest.mark.parametrize("learned", [True, False])
def test_latents_that_the_same_contexts_hit_carry_no_edge_that_nothing_tells(learned):
    truth = truth_of([(0,), (1,), (2, 3)], 108)
    m = ld.simulate.sample_moments(truth, 5_000, rng=1)
    fit = ld.fit(m, targets="learn" if learned else truth.targets)
    assert sorted(map(sorted, columns(fit.targets).values())) == [["c0"], ["c1"], ["c2"], ["c2"]]
    (twins,) = fit.twins
    edges = fit.edges()
    touched = edges["source"].isin(twins) | edges["target"].isin(twins)
    assert touched.any()
    assert (edges.loc[touched, "q_value"] == 1).all()
    assert not {*twins}.intersection(*map(set, zip(*fit.partial_order(0.5).edges, strict=True)))
    assert not fit.verdict.ok
    assert "nothing tells them apart" in fit.verdict.reasons[0]


def test_replicates_keep_the_targets_that_were_learned():
    m = ld.simulate.sample_moments(truth_of(GUIDES, 107), 2_000, rng=1)
    fit = ld.fit(m, targets="learn")
    stability = ld.bootstrap(m, 2, fit=fit, rng=0)
    assert set(stability.latents) == set(fit.latents)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (ld.Learn(n_latents=9), "only 4 dimensions, fewer than n_latents=9: ask for at most 4"),
        (ld.Learn(known={"c9": "x"}), "known names 'c9', which is no context"),
        (ld.Learn(share={"c9": "x"}), "share names 'c9'"),
        (ld.Learn(known={"c0": "x", "c1": "y"}, n_latents=1), "known names 2 latents, more than n_latents=1"),
        (ld.Learn(known={"c0": "x", "c1": "y"}, share={"c0": "g", "c1": "g"}), "known to hit different latents"),
    ],
)
def test_contradictions_are_refused(told, message):
    m = ld.simulate.sample_moments(truth_of(MIXED, 0), 500, rng=0)
    with pytest.raises(ValueError, match=message):
        ld.fit(m, targets=told)


def test_what_cannot_be_learned_is_refused():
    m = ld.simulate.sample_moments(truth_of(MIXED, 0), 500, rng=0)
    with pytest.raises(ValueError, match="graph names latents"):
        ld.fit(m, targets="learn", graph=[("a", "b")])
    with pytest.raises(ValueError, match="unintervened='downstream' only"):
        ld.fit(m, targets="learn", unintervened="upstream")
    with pytest.raises(ValueError, match="learn the targets first"):
        ld.fit(m, targets="learn", strength={"c0": 0.7})
    with pytest.raises(ValueError, match="perfect and soft"):
        ld.fit(m, targets="learn", intervention={"c0": "do"})
    with pytest.raises(ValueError, match="at_most is a positive number"):
        ld.Learn(at_most=0)
    with pytest.raises(ValueError, match="more than at_most=1"):
        ld.Learn(known={"c0": ("a", "b")}, at_most=1)
    idle = ld.simulate.sample_moments(truth_of([(), (), ()], 1), 500, rng=1)
    with pytest.raises(ValueError, match="no context differs from the control"):
        ld.fit(idle, targets="learn")
    with pytest.raises(ValueError, match="given, not learned"):
        ld.fit(m.select(["c0", "c1"]), targets={"c0": "a", "c1": "b"}).target_probabilities  # noqa: B018
