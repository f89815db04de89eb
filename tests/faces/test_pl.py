"""Figures show what they say, and nothing in them covers anything else."""

import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch

import latentdag as ld
from latentdag import pl, tl
from latentdag.estimator import LatentDAG
from latentdag.inference.bootstrap import bootstrap
from latentdag.inference.shared_targets import target_groups
from latentdag.methods.result import Fit
from latentdag.pl.eigenvalues import eigenvalues, null_band
from latentdag.pl.graph import arranged
from latentdag.uncertainty.held_out import score

GENES = ["STAT1", "HSP90AA1", "NFKBIA"]


@pytest.fixture(scope="module")
def truth():
    drawn = ld.simulate.random_model(3, 6, density=1, rng=2)
    return replace(drawn.renamed(dict(zip(drawn.latents, GENES, strict=True))), control="NT")


@pytest.fixture(scope="module")
def m(truth):
    return ld.simulate.sample_moments(truth, 800, rng=0)


@pytest.fixture(scope="module")
def fit(m):
    return ld.fit(m)


@pytest.fixture(scope="module")
def replicates(m, fit):
    return bootstrap(m, 10, fit=fit)


@pytest.fixture(scope="module")
def held_out(truth):
    both = truth.intervene(dict.fromkeys(truth.latents[:2])).sample(500, rng=1)
    return ld.Moments.from_samples(both, ["both"] * 500, control=None, feature_names=truth.feature_names)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def contexts_of(fit, names):
    return [next(c for c, target in fit.targets.items() if target == name) for name in names]


@pytest.fixture(scope="module")
def learned(m):
    return ld.fit(m, targets="learn")


@pytest.fixture
def figures(m, fit, learned, replicates, held_out):
    parts = contexts_of(fit, fit.latents[:2])
    return {
        "latent_graph": lambda ax: pl.latent_graph(fit, ax),
        "mixing": lambda ax: pl.mixing(fit, ax),
        "spectra": lambda ax: pl.spectra(m, ax),
        "edges": lambda ax: pl.edges(fit, ax),
        "order_stability": lambda ax: pl.order_stability(replicates, ax),
        "predicted": lambda ax: pl.predicted(fit.predict(parts), held_out, "both", ax),
        "scores": lambda ax: pl.scores(score(fit, m), ax),
        "sensitivity": lambda ax: pl.sensitivity(fit.sensitivity(), ax),
        "target_groups": lambda ax: pl.target_groups(target_groups(m), ax),
        "targets": lambda ax: pl.targets(learned, ax),
        "power_curve": lambda ax: pl.power_curve(fit, ax=ax, totals=[600, 6_000], searched=False),
    }


@pytest.mark.parametrize("name", pl.__all__)
def test_every_figure_draws_on_given_axes_or_makes_its_own(figures, name):
    _, ax = plt.subplots()
    assert figures[name](ax) is ax
    made = figures[name](None)
    assert made is not ax
    made.figure.canvas.draw()


@pytest.mark.parametrize("name", pl.__all__)
def test_without_matplotlib_they_say_what_to_install(figures, name, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'latentdag\[plot\]'"):
        figures[name](None)


# ---- the latent graph -----------------------------------------------------------------------------------------------


def name_boxes(ax):
    """Rectangles, in pixels, of everything that is written."""
    ax.figure.canvas.draw()
    return {text.get_text(): text.get_bbox_patch().get_window_extent() for text in ax.texts if text.get_bbox_patch()}


def big_model(d, several=False):
    model = ld.simulate.random_model(d, d, density=3 / d, rng=1)
    names = {name: f"GENE{i}{'LONGER'[: i % 6]}" for i, name in enumerate(model.latents)}
    model = model.renamed(names)
    more = {f"{c}_second": v for c, v in list(model.interventions.items())[::3]} if several else {}
    return replace(model, interventions={**model.interventions, **more})


@pytest.mark.parametrize(("d", "several"), [(5, False), (20, True), (83, False), (83, True)])
def test_names_neither_overlap_nor_leave_the_figure(d, several):
    ax = pl.latent_graph(big_model(d, several), contexts=several)
    boxes, page = list(name_boxes(ax).values()), ax.figure.bbox
    assert len(boxes) == d * (2 if several else 1)
    for i, a in enumerate(boxes):
        assert page.contains(*a.min)
        assert page.contains(*a.max)
        # a box of contexts touches its own name, by a hair
        assert not any(a.shrunk(0.98, 0.8).overlaps(b.shrunk(0.98, 0.8)) for b in boxes[:i])
    assert min(text.get_fontsize() for text in ax.texts) >= 6


@pytest.mark.parametrize("d", [5, 20, 83])
def test_edges_run_down_and_between_the_names(d):
    graph = big_model(d).graph
    room = dict.fromkeys(graph, 0.8)
    layout = arranged(graph, room)
    at = np.array(list(layout.place.values()))
    for (cause, effect), bends in layout.bends.items():
        heights = [y for _, y in (layout.place[cause], *bends, layout.place[effect])]
        assert (np.diff(heights) < 0).all()
        for x, y in bends:
            beside = at[np.isclose(at[:, 1], y), 0]
            assert (np.abs(beside - x) > 0.4).all()
    assert set(layout.bends) == set(graph.edges)


@pytest.mark.parametrize("d", [5, 20, 83])
def test_edges_leave_and_enter_names_upright_and_side_by_side(d):
    graph = big_model(d).graph
    layout = arranged(graph, dict.fromkeys(graph, 0.8))
    edges, widths = list(graph.edges), dict.fromkeys(graph, 0.6)
    routes = layout.routes(edges, widths, dict.fromkeys(graph, (0.1, 0.2)), 0.1)
    for (cause, effect), route in zip(edges, routes, strict=True):
        # y is negative: an edge leaves at the lower side of its cause, and enters at the upper side of its effect
        assert route[0][1] == pytest.approx(layout.place[cause][1] - 0.1)
        assert route[-1][1] == pytest.approx(layout.place[effect][1] + 0.2)
        assert (np.diff([y for _, y in route]) <= 0).all()
        for i in range(0, len(route) - 1, 3):
            assert (route[i][0], route[i + 2][0]) == (route[i + 1][0], route[i + 3][0])
    ends = [(edge[0], route[0]) for edge, route in zip(edges, routes, strict=True)]
    ends += [(edge[1], route[-1]) for edge, route in zip(edges, routes, strict=True)]
    assert len(set(ends)) == len(ends)
    assert all(abs(x - layout.place[name][0]) <= 0.3 for name, (x, _) in ends)


def test_loners_come_last():
    graph = nx.DiGraph([("a", "b"), ("b", "c")])
    graph.add_node("alone")
    layout = arranged(graph, dict.fromkeys(graph, 0.5))
    assert min(layout.place, key=lambda name: layout.place[name][1]) == "alone"


def arrows(ax):
    return [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]


def test_edges_that_are_not_significant_are_dashed(fit, monkeypatch):
    table = fit.edges().copy()
    table["q_value"] = [0.2, *[0.001] * (len(table) - 1)]
    monkeypatch.setattr(Fit, "edges", lambda self, level=None, data=None: table)
    dashed = [arrow.get_linestyle() not in ("solid", "-") for arrow in arrows(pl.latent_graph(fit))]
    assert sorted(dashed) == [False] * (len(table) - 1) + [True]
    assert not any(arrow.get_linestyle() not in ("solid", "-") for arrow in arrows(pl.latent_graph(fit, level=None)))
    table["q_value"] = np.nan  # a method without tests
    assert not any(arrow.get_linestyle() not in ("solid", "-") for arrow in arrows(pl.latent_graph(fit)))


def test_width_is_weight_and_small_ones_can_go(truth):
    scaled = truth.rescaled("unit-variance")
    sizes = sorted(np.abs(scaled.weights[scaled.weights != 0]))
    widths = sorted(arrow.get_linewidth() for arrow in arrows(pl.latent_graph(truth)))
    np.testing.assert_allclose(widths, [0.5 + 2.6 * min(size, 1.0) for size in sizes])
    assert len(arrows(pl.latent_graph(truth, min_weight=sizes[1]))) == len(sizes) - 1


def test_two_graphs_with_latents_in_the_same_places(truth):
    _, (left, right) = plt.subplots(1, 2)
    pl.latent_graph(truth, left, contexts=False)
    other = replace(truth, weights=np.where(truth.weights == truth.weights.max(), 0, truth.weights))
    pl.latent_graph(other, right, like=truth, contexts=False, title="found")
    places = [{text.get_text(): text.get_position() for text in ax.texts} for ax in (left, right)]
    assert places[0] == places[1]
    with pytest.raises(ValueError, match="like= has other latents"):
        pl.latent_graph(truth, like=truth.renamed({"STAT1": "IRF1"}))


def test_boxes_list_contexts_where_names_do_not(truth):
    named_alike = replace(truth, interventions={v.target: v for v in truth.interventions.values()})
    assert set(name_boxes(pl.latent_graph(named_alike))) == set(GENES)
    many = {f"guide {k} of STAT1": ld.Intervention("STAT1", variance=2.0) for k in range(9)}
    assert "guide 0 of STAT1 +8" in name_boxes(pl.latent_graph(replace(truth, interventions=many)))


def test_names_for_show(truth):
    assert "the first" in name_boxes(pl.latent_graph(truth, names={"STAT1": "the first"}, contexts=False))


def test_names_are_never_formulas(m, fit):
    odd = dict(zip(fit.latents, ["$x_{$", "a\nb", "$\\frac$ <script>"], strict=True))
    model = fit.model.renamed(odd)
    assert "$x_{$" in name_boxes(pl.latent_graph(model))
    pl.mixing(model).figure.canvas.draw()
    named = replace(m, contexts=("NT", "$a$b$", "$_$", "c"))
    pl.spectra(named).figure.canvas.draw()


# ---- where fits are ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The .* option is deprecated")
def test_fits_are_found_in_estimators_and_anndata(m, fit):
    ad = pytest.importorskip("anndata")
    estimator = LatentDAG().fit_moments(m)
    assert len(arrows(pl.latent_graph(estimator))) == fit.graph.number_of_edges()
    adata = ad.AnnData(np.zeros((1, 6)), uns={"mine": tl.to_uns(fit)})
    assert len(arrows(pl.latent_graph(adata, key="mine"))) == fit.graph.number_of_edges()
    pl.mixing(adata, key="mine")
    pl.edges(adata, key="mine")
    with pytest.raises(TypeError, match="nothing to draw in int"):
        pl.mixing(3)
    with pytest.raises(TypeError, match="has no uncertainty"):
        pl.edges(fit.model)


# ---- the others -------------------------------------------------------------------------------------------------------


def test_the_graph_says_what_signs_mean(fit):
    legend = pl.latent_graph(fit, level=None).get_legend()
    assert legend.get_title().get_text().startswith("Each latent grows")
    assert pl.latent_graph(fit.model).get_legend().get_title().get_text() == ""


def test_mixing_shows_the_strongest_features(fit):
    ax = pl.mixing(fit, top=1)
    shown = [text.get_text() for text in ax.get_xticklabels()]
    best = np.abs(fit.model.correlations).argmax(axis=0)  # the same features as in the table of latents
    assert set(shown) == {fit.model.feature_names[j] for j in best}
    assert "correlation" in ax.get_xlabel()
    assert [text.get_text() for text in ax.get_yticklabels()] == list(fit.order)
    chosen = [text.get_text() for text in pl.mixing(fit, features=["x3", "x1"]).get_xticklabels()]
    assert chosen == ["x3", "x1"]
    with pytest.raises(ValueError, match="no feature 'y'"):
        pl.mixing(fit, features=["y"])


@pytest.mark.parametrize(("r", "nu_0", "nu_k"), [(2, 100, 60), (6, 300, 80), (15, 200, 400)])
def test_the_null_band_holds_all_eigenvalues_as_often_as_it_says(r, nu_0, nu_k):
    rng = np.random.default_rng(0)
    low, high = null_band(r, nu_0, nu_k)
    inside = 0
    for _ in range(600):
        A, B = rng.normal(size=(nu_0, r)), rng.normal(size=(nu_k, r))
        values = np.linalg.eigvals(np.linalg.solve(A.T @ A / nu_0, B.T @ B / nu_k)).real
        inside += low <= values.min() and values.max() <= high
    assert 0.925 < inside / 600 < 0.975  # two and a half standard errors


def test_spectra_of_exact_moments_have_rank_two(truth):
    values = eigenvalues(truth.moments())
    assert (np.abs(values - 1) > 1e-6).sum(axis=1).max() == 2
    with pytest.raises(ValueError, match=r"level must be one of \[0.9, 0.95"):
        pl.spectra(truth.moments(), level=0.5)
    few = ld.Moments.from_covariances([np.eye(3)] * 2, [3, 100])
    with pytest.raises(ValueError, match="the control 0 has 3 samples in 3 dimensions"):
        pl.spectra(few)


def test_the_forest_has_every_edge_with_its_interval(fit, replicates):
    table = fit.edges(level=0.95)
    ax = pl.edges(fit)
    assert len(ax.get_yticks()) == len(table)
    points = sorted(line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o")
    np.testing.assert_allclose(points, sorted(table["standardized_weight"]))
    assert pl.edges(fit, n=1).get_title() == f"1 of {len(table)} edges, the surest"
    assert len(pl.edges(replicates).get_yticks()) == len(table)
    assert "no intervals" in pl.edges(replace(fit, options=ld.Options("closed-form"))).get_xlabel()


def test_order_stability_is_the_precedence(replicates):
    image = pl.order_stability(replicates).images[0]
    np.testing.assert_array_equal(image.get_array(), replicates.precedence.to_numpy())


@pytest.mark.parametrize("quantity", ["mean", "variance"])
def test_predictions_fall_on_the_line(fit, held_out, quantity):
    prediction = fit.predict(contexts_of(fit, fit.latents[:2]))
    ax = pl.predicted(prediction, held_out, quantity=quantity)
    x = np.concatenate([part.lines[0].get_xdata() for part in ax.containers])
    assert len(x) == held_out.n_features
    with pytest.raises(ValueError, match="quantity must be 'mean' or 'variance'"):
        pl.predicted(prediction, held_out, quantity="mode")


def test_which_context_was_predicted_must_be_clear(m, fit):
    with pytest.raises(ValueError, match=r"say which context was predicted: context=…, one of \['NT'"):
        pl.predicted(fit.predict(list(fit.targets)[:2]), m)
