"""Contexts by target: p-values of the exact claim, cosines of the approximate one, and one fit of the groups."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

import latentdag as ld
from latentdag import pl as pl_groups
from latentdag.inference.shared_targets import target_groups

A = np.array([[0, 0, 0, 0], [1.0, 0, 0, 0], [-0.8, 0.9, 0, 0], [0.7, 0, -1.0, 0]])
NAMES = ["Z1", "Z2", "Z3", "Z4"]


def model(interventions, seed=0):
    H = np.random.default_rng(seed).standard_normal((4, 5))
    return ld.LatentModel(H, A, np.ones(4), interventions, latents=NAMES)


def twice(kind="perfect", scale=(5.0, 0.1)):
    """Every latent hit by two contexts of different strength."""
    return {f"{name}{v}": ld.Intervention(name, kind, variance=v) for name in NAMES for v in scale}


def by_target(truth, found):
    return sorted(sorted({truth.targets[c] for c in group}) for group in found.groups)


@pytest.mark.parametrize("n", [600, 50])
def test_p_values_of_contexts_with_one_target_are_uniform(n):
    p = []
    for seed in range(25):
        truth = model(twice(), seed)
        found = target_groups(ld.simulate.sample_moments(truth, n, rng=seed))
        p += [found.p_values.loc[f"{name}5.0", f"{name}0.1"] for name in NAMES]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_groups_are_found_and_enter_one_fit():
    truth = model(twice())
    m = ld.simulate.sample_moments(truth, 3_000, rng=1)
    found = target_groups(m)
    assert by_target(truth, found) == [[name] for name in NAMES]
    targets = found.targets()
    assert targets["Z15.0"] == targets["Z10.1"] == "Z15.0|Z10.1"
    fit = ld.fit(m, targets=targets)
    assert len(fit.latents) == 4
    assert len(fit.model.interventions) == 8
    rename = {targets[f"{name}5.0"]: name for name in NAMES}
    assert {(rename[a], rename[b]) for a, b in fit.graph.edges} == set(truth.graph.edges)
    # the noise rows are those of the truth, up to scale
    M = truth.structural() @ truth.unmixing
    for context, row in zip(found.contexts, found.rows, strict=True):
        m_true = M[NAMES.index(truth.targets[context])]
        S = truth.covariance()
        cosine = abs(row @ S @ m_true) / np.sqrt((row @ S @ row) * (m_true @ S @ m_true))
        assert cosine > 0.95


def test_nearly_the_same_target_is_said_as_such():
    """With enough cells the exact claim is rejected; the cosine says how nearly it holds."""
    almost = twice(scale=(5.0,))
    truth = model(almost)
    m = ld.simulate.sample_moments(truth, 50_000, rng=0)
    # a second guide on Z2 that also raises the noise of Z4 a little
    off_target = [ld.Intervention("Z2", variance=6.0), ld.Intervention("Z4", "soft", variance=1.2)]
    leaky = model({**almost, "Z2 leaky": ld.Intervention.combine(off_target)})
    m = m + ld.simulate.sample_moments(leaky, 50_000, rng=1).select(["Z2 leaky"])
    found = target_groups(m)
    assert {"Z25.0", "Z2 leaky"} in map(set, found.groups)
    pair = found.summary.set_index(["context", "other"]).loc[[("Z2 leaky", "Z25.0")]].iloc[0]
    assert pair["p_value"] < 1e-4
    assert pair["reading"] == f"nearly the same target, cosine {pair['cosine']:.2f}"
    assert 0.9 < pair["cosine"] < 1


def test_soft_interventions_on_one_target_differ_by_rank_two():
    soft = {
        f"{name} {w}": ld.Intervention(name, "soft", variance=2.0, weights={p: w * A[i, j] for j, p in enumerate(NAMES) if A[i, j]})
        for i, name in enumerate(NAMES) if i for w in (0.2, -1.0)
    }  # fmt: skip
    p = {"perfect": [], "soft": []}
    for seed in range(25):
        m = ld.simulate.sample_moments(model(soft, seed), 1_000, rng=seed)
        for kind, kept in p.items():
            found = target_groups(m, intervention=kind)
            kept += [found.p_values.loc[f"{name} 0.2", f"{name} -1.0"] for name in NAMES[1:]]
    assert (np.array(p["perfect"]) < 0.05).mean() > 0.9
    assert (np.array(p["soft"]) < 0.05).mean() < 0.12


def test_the_answer_does_not_depend_on_order_or_units():
    m = ld.simulate.sample_moments(model(twice()), 1_000, rng=5)
    want = target_groups(m)
    T = np.random.default_rng(3).standard_normal((5, 5))
    turned = ld.Moments.from_covariances(T @ m.covariances @ T.T, m.counts, m.contexts, m.control, m.means @ T.T)
    got = target_groups(turned.select(m.contexts[:0:-1]))
    order = list(want.cosines.index)
    np.testing.assert_allclose(got.cosines.loc[order, order], want.cosines, atol=1e-5)
    np.testing.assert_allclose(got.p_values.loc[order, order], want.p_values, atol=1e-6)
    assert {frozenset(g) for g in got.groups} == {frozenset(g) for g in want.groups}


def test_one_context_few_samples_and_words():
    one = target_groups(ld.simulate.sample_moments(model({"<i>": ld.Intervention("Z1", variance=9.0)}), 100, rng=0))
    assert one.groups == (("<i>",),)
    assert one.linkage.shape == (0, 4)
    assert one.summary.empty
    assert "&lt;i&gt;" in one._repr_html_()
    assert "<i>" not in one._repr_html_()
    few = target_groups(ld.simulate.sample_moments(model(twice()), {"control": 500} | dict.fromkeys(twice(), 4), rng=0))
    assert np.isnan(few.p_values.to_numpy()).all()
    assert few.cosines.to_numpy().min() >= 0
    assert repr(few).startswith("TargetGroups(8 contexts")


def test_the_figure_shows_matrix_and_dendrogram(monkeypatch):
    found = target_groups(ld.simulate.sample_moments(model(twice()), 1_000, rng=5))
    ax = pl_groups.target_groups(found)
    assert ax.images[0].get_array().shape == (8, 8)
    assert len(ax.child_axes[0].lines) == 8  # seven joints and the cut
    assert len(ax.patches) == len(found.groups)
    ax.figure.canvas.draw()
    one = target_groups(ld.simulate.sample_moments(model({"k": ld.Intervention("Z1", variance=9.0)}), 100, rng=0))
    assert pl_groups.target_groups(one, plt.figure().subplots()).images
    plt.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # as if it were not installed, however it is asked for
    with pytest.raises(ImportError, match=r"pip install 'latentdag\[plot\]'"):
        pl_groups.target_groups(found)


def test_bad_input():
    m = ld.simulate.sample_moments(model(twice()), 100, rng=0)
    with pytest.raises(ValueError, match="threshold is a cosine"):
        target_groups(m, threshold=1.5)
    with pytest.raises(ValueError, match="intervention must be one of 'perfect', 'soft', got 'do'"):
        target_groups(m, intervention="do")
