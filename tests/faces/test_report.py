"""A report is one dict; every face of it says the same, runs nothing that came from data, and loads nothing."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentdag as ld
from latentdag import report, simulate
from latentdag.inference.bootstrap import bootstrap
from latentdag.inference.membership import membership_test
from latentdag.inference.ranks import rank_test
from latentdag.report.checks import STATUSES
from latentdag.report.records import HEIGHT, graph_drawing

#: What people, spreadsheets and attackers put into labels.
CONTEXTS = [
    "control & <b>",
    "<script>alert(1)</script>",
    '"onmouseover="alert(2)',
    "</script><img src=x onerror=alert(3)>",
    "日本語 \u2028 {{ 7*7 }}",
    "a,b \"c\" 'd'",
]
FEATURES = [
    "<script>alert(4)</script>",
    'x" onfocus="alert(5)',
    "=1+1",
    "a\nb",
    "&lt;i&gt;",
    "]]>",
    "${alert(6)}",
    "-->",
]


def relabelled(m, contexts, features):
    return ld.Moments.from_covariances(
        m.covariances, m.counts, contexts=contexts, control=contexts[0], means=m.means, feature_names=features
    )


@pytest.fixture(scope="module")
def plain():
    m = simulate.sample_moments(simulate.random_model(5, 8, rng=2), 2_500, rng=0)
    return ld.fit(m), m


@pytest.fixture(scope="module")
def nasty(plain):
    m = relabelled(plain[1], CONTEXTS, FEATURES)
    return ld.fit(m), m


class Page(HTMLParser):
    """Elements with their attributes, and the text of the page outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.scripts, self._in = [], "", [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "script":
            self.scripts.append(data)
        elif self._in != "style":
            self.text += data


def test_the_dict_is_plain_json_and_holds_what_the_fit_says(plain):
    fit, m = plain
    made = report.collect(fit, m)
    assert json.loads(report.to_json(made)) == made
    table = fit.edges(0.95).set_index(["source", "target"])
    assert len(made["edges"]) == len(table)
    for edge in made["edges"]:
        row = table.loc[(edge["source"], edge["target"])]
        for name in ("weight", "std_error", "lower", "upper", "q_value", "standardized_weight"):
            assert edge[name] == row[name]
        assert edge["standardized_lower"] < edge["standardized_weight"] < edge["standardized_upper"]
    tests = {rank: rank_test(m, rank)["p_value"] for rank in (0, 1, 2)}
    for context in made["contexts"][1:]:
        assert context["p_allowed"] == tests[2][context["context"]]
        assert context["p_rank_0"] == tests[0][context["context"]]
    assert [z["latent"] for z in made["latents"]] == list(fit.order)
    assert made["citation"]["title"] == "Linear Causal Disentanglement via Interventions"
    assert set(made["provenance"]["versions"]) >= {"latentdag", "numpy", "Python"}


def test_equations_reproduce_the_variance_of_each_latent(plain):
    """In standard deviations, causes and noise of each equation add up to variance one."""
    fit, m = plain
    made = report.collect(fit, m)
    model = fit.model.rescaled("unit-variance")
    covariance = model.law().latent_covariance
    for z in made["latents"]:
        weights = {
            edge["source"]: edge["standardized_weight"] for edge in made["edges"] if edge["target"] == z["latent"]
        }
        rows = [model.latents.index(name) for name in weights]
        w = np.array(list(weights.values()))
        assert z["explained"] == pytest.approx(float(w @ covariance[np.ix_(rows, rows)] @ w), abs=1e-9)
        assert all(name in z["equation"] for name in weights)


def test_the_page_loads_nothing(plain):
    page = report.to_html(report.collect(*plain))
    for tag, attrs in Page(page).elements:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            value = attrs.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, name, value)
    assert not re.search(
        r"url\((?!#head)|@import|fetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|insertAdjacent|eval\(", page
    )
    assert "default-src 'none'" in page


def test_labels_from_data_are_text_everywhere(nasty):
    fit, m = nasty
    made = report.collect(fit, m, title="<script>alert(9)</script>")
    text = report.to_html(made)
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.elements) == 2
    assert not any(tag in ("img", "iframe", "b", "i") for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert json.loads(page.scripts[0]) == made
    assert not re.search("[<>&\u2028\u2029]", page.scripts[0])
    for label in CONTEXTS[1:]:
        assert label in page.text
    assert "<title>&lt;script&gt;alert(9)" in text
    assert "{{ 7*7 }}" in page.text  # labels are data of the template, not part of it
    markdown = report.to_markdown(made)
    assert "<script" not in markdown
    assert "<img" not in markdown
    widths = {
        line.count("|") - line.count("\\|")
        for line in markdown.split("## Edges")[1].split("##")[0].splitlines()
        if line.startswith("|")
    }
    assert len(widths) == 1


def test_strange_labels_and_a_title_that_has_no_utf8_do_not_stop_the_report(plain, tmp_path):
    m = relabelled(plain[1], ["wt", "a\x1b[31m", "b\x7f", "c\u202e", "d", "e" * 300], [f"f{j}" for j in range(8)])
    for suffix in (".html", ".md", ".json"):
        path = report.write(ld.fit(m), tmp_path / f"r{suffix}", m, title="half a pair \ud800")
        assert "e" * 50 in path.read_text(encoding="utf-8")  # all of it is UTF-8, and the other labels are there


def test_the_same_fit_gives_the_same_bytes(plain, tmp_path):
    fit, m = plain
    first = report.write(fit, tmp_path / "a.html", m, seed=3).read_bytes()
    assert report.write(fit, tmp_path / "a.html", m, seed=3).read_bytes() == first
    fit.save(tmp_path / "f.npz")
    m.save(tmp_path / "m.npz")
    code = (
        "import sys, latentdag as ld\nfrom threadpoolctl import threadpool_limits\nthreadpool_limits(1)\n"
        "from latentdag import report\nfolder = sys.argv[1]\n"
        "report.write(ld.Fit.load(folder + '/f.npz'), folder + '/b.html', ld.Moments.load(folder + '/m.npz'), seed=3)"
    )
    env = os.environ | {"PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=env)
    assert (tmp_path / "b.html").read_bytes() == first


def test_a_date_is_shown_only_if_given(plain):
    assert report.collect(*plain)["provenance"]["created"] is None
    assert "2024-05-06" in report.to_html(report.collect(*plain, created="2024-05-06"))


def status(made, key):
    return next(check["status"] for check in made["checks"] if check["id"] == key)


def test_checks_speak_up():
    truth = simulate.random_model(5, 8, n_targets=2, rng=0)
    m = simulate.sample_moments(truth, 2_500, rng=0)
    made = report.collect(ld.fit(m), m)
    assert status(made, "rank") == "bad"
    assert status(made, "membership") == "bad"
    assert made["verdict"]["status"] == "bad"
    good = report.collect(ld.fit(m, targets={c: v.targets for c, v in truth.interventions.items()}), m)
    assert status(good, "rank") == "good"  # with both targets named, four directions may change
    assert status(good, "membership") == "open"


def test_a_perturbation_that_did_nothing_is_named(plain):
    _, m = plain
    S, counts = m.covariances.copy(), m.counts
    S[3] = simulate.sample_moments(simulate.random_model(5, 8, rng=2), 2_500, rng=9).covariances[0]
    idle = ld.Moments.from_covariances(S, counts, contexts=m.contexts, feature_names=m.feature_names)
    found = ld.fit(idle)
    made = report.collect(found, idle)
    name = str(m.contexts[3])
    assert list(found.idle) == made["idle"] == [name]
    assert status(made, "changed") == "warn"
    for text in (made["verdict"]["text"], found.summary().split("\n\n")[-1], str(found.verdict)):
        assert text.startswith(f"Nothing changed in {name}: its latent carries no edges.")
    assert made["contexts"][3]["directions"] == "0"
    assert made["contexts"][3]["p_changed"] > 0.05
    assert not any(name in (effect["source"], effect["target"]) for effect in made["edges"] + made["effects"])
    assert [z["latent"] for z in made["latents"] if z["idle"]] == [name]
    assert 'class="node idle"' in report.to_html(made)


def test_without_moments_or_tests_the_report_says_so(plain):
    fit, m = plain
    for options in ({}, {"moments": m, "tests": False}):
        made = report.collect(fit, **options)
        assert status(made, "rank") == "open"
        assert made["verdict"]["status"] == "open"
        assert [c["samples"] for c in made["contexts"]] == list(fit.counts)
    assert made["provenance"]["moments_sha256"]
    given = report.collect(fit, m, tests=membership_test(m, fit=False))
    assert status(given, "membership") == "note"


def test_with_very_many_features_only_the_hypothesis_is_tested(plain, monkeypatch):
    monkeypatch.setattr("latentdag.report.checks.TEST_UP_TO", 0)
    fit, m = plain
    made = report.collect(fit, m)
    assert made["verdict"]["status"] == "good"
    tested = rank_test(m, 2)["p_value"]
    for context in made["contexts"][1:]:
        assert context["p_rank_0"] is None
        assert context["p_allowed"] == tested[context["context"]]
        assert context["directions"] == "at most 2"


@pytest.mark.parametrize("method", ["closed-form", "projection", "exact"])
def test_methods_without_standard_errors(method):
    truth = simulate.random_model(4, 6, rng=1)
    m = truth.moments() if method == "exact" else simulate.sample_moments(truth, 5_000, rng=1)
    made = report.collect(ld.fit(m, method), m)
    assert all(edge["q_value"] is None and edge["lower"] is None for edge in made["edges"])
    assert status(made, "edges") == "open"
    assert "disabled" in report.to_html(made)
    report.to_markdown(made)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (simulate.random_model(1, 1, rng=0), {}),
        (simulate.random_model(4, 5, density=0, rng=0), {}),
        (simulate.random_model(3, 5, kind="soft", rng=0), {"intervention": "soft"}),
    ],
    ids=["one latent", "no edges", "soft"],
)
def test_small_and_odd_models(model, options):
    m = simulate.sample_moments(model, 3_000, rng=0)
    made = report.collect(ld.fit(m, **options), m)
    assert {check["status"] for check in made["checks"]} <= set(STATUSES)
    json.loads(report.to_json(made))
    Page(report.to_html(made))


def test_a_bootstrap_is_shown_with_its_seed(plain):
    fit, m = plain
    made = report.collect(fit, m, bootstrap=bootstrap(m, 5, fit=fit, rng=11, progress=False))
    assert made["provenance"]["seed"] == 11
    assert all(0 <= edge["bootstrap_frequency"] <= 1 for edge in made["edges"])
    assert {"bootstrap_summary", "bootstrap_targets"} <= {table["id"] for table in made["tables"]}
    assert "5 replicates" in report.to_html(made)


def test_bad_input_is_refused_in_words(plain, tmp_path):
    fit, m = plain
    other = simulate.sample_moments(simulate.random_model(5, 8, rng=2), 2_000, rng=0)
    cases = [
        (ValueError, "ends in .html, .json or .md, not in '.pdf'", lambda: report.write(fit, tmp_path / "r.pdf", m)),
        (ValueError, "context 'control' has 2000 samples, the fit saw 2500", lambda: report.collect(fit, other)),
        (ValueError, "the features differ", lambda: report.collect(fit, relabelled(m, m.contexts, list("abcdefgh")))),
        (ValueError, "tests=True needs the moments", lambda: report.collect(fit, tests=True)),
        (ValueError, "level is a probability", lambda: report.collect(fit, level=95)),
        (ValueError, "n_features must be", lambda: report.collect(fit, n_features=0)),
        (TypeError, "a report is about a Fit, got LatentModel", lambda: report.collect(fit.model)),
        (TypeError, "moments must be Moments", lambda: report.collect(fit, "m.npz")),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=re.escape(message)):
            call()
    assert list(tmp_path.iterdir()) == []


@st.composite
def drawn_graphs(draw):
    n = draw(st.integers(1, 14))
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    lengths = draw(st.lists(st.integers(1, 14), min_size=n, max_size=n))
    return [f"{i}".ljust(length, "x") for i, length in enumerate(lengths)], edges


@given(drawn_graphs())
def test_drawings_put_causes_above_effects_and_nothing_on_top_of_another(graph):
    names, pairs = graph
    edges = [{"source": names[i], "target": names[j], "standardized_weight": 0.5} for i, j in pairs]
    drawing = graph_drawing([{"latent": name} for name in names], edges)
    nodes = drawing["nodes"]
    for (i, j), path in zip(pairs, drawing["paths"], strict=True):
        assert nodes[i]["y"] < nodes[j]["y"]
        points = [tuple(map(float, point.split(","))) for point in re.split("[MC ]", path)[1:]]
        heights = [y for _, y in points]
        assert heights == sorted(heights)
        for end, (x, _) in ((nodes[i], points[0]), (nodes[j], points[-1])):
            assert abs(x - end["x"]) <= end["width"] / 2
        assert all(0 <= x <= drawing["width"] and 0 <= y <= drawing["height"] for x, y in points)
    for k, node in enumerate(nodes):
        assert node["width"] / 2 <= node["x"] <= drawing["width"] - node["width"] / 2
        for other in nodes[:k]:
            apart = abs(node["y"] - other["y"]) >= HEIGHT
            assert apart or abs(node["x"] - other["x"]) >= (node["width"] + other["width"]) / 2


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [("wt", 0), ("a", 1), ("a", 2), ("b", 1)], ["0", 0, 1, True + 1.5]])
def test_any_label_will_do(labels):
    m = simulate.sample_moments(simulate.random_model(3, 4, rng=3), 2_000, rng=3)
    m = relabelled(m, labels, ["a", "a ", "b", "c"])
    made = report.collect(ld.fit(m), m)
    assert len({context["context"] for context in made["contexts"]}) == 4
    assert all(context["p_allowed"] is not None for context in made["contexts"][1:])
    assert json.loads(report.to_json(made)) == made


def test_samples_make_tests_and_errors_hold_without_gaussian_noise():
    truth = simulate.random_model(3, 4, rng=1)
    X, contexts = simulate.sample(truth, 800, rng=1, noise="laplace")
    m = ld.Moments.from_samples(X, contexts, control=truth.control)
    fit = ld.fit(m)
    made = report.collect(fit, m, data=(X, contexts))
    robust = fit.edges(data=(X, contexts)).set_index(["source", "target"])["std_error"]
    assert {(e["source"], e["target"]): e["std_error"] for e in made["edges"]} == pytest.approx(robust.to_dict())
    assert not any("if the noise is Gaussian" in text for text in made["methods"])


def test_latents_that_nobody_hit_and_contexts_that_were_left_out():
    truth = simulate.random_model(5, 6, rng=2)
    m = simulate.sample_moments(truth, 4_000, rng=2)
    some = m.select(m.contexts[1:4])
    made = report.collect(ld.fit(some, unintervened="upstream"), some)
    others = [z for z in made["latents"] if not z["contexts"]]
    assert len(others) == 2
    assert "no context hits it" in report.to_html(made)
    left_out = report.collect(ld.fit(some, unintervened="upstream"), m)
    assert [c["role"] for c in left_out["contexts"]].count("left out of the fit") == 2


def test_a_latent_that_is_set_to_a_value():
    truth = simulate.random_model(3, 3, rng=2)
    changes = dict(truth.interventions)
    context = next(iter(changes))
    changes[context] = ld.Intervention(changes[context].target, "do", value=0.5)
    m = simulate.sample_moments(replace(truth, interventions=changes), 3_000, rng=1)
    made = report.collect(ld.fit(m, intervention={context: "do"}), m)
    assert made["contexts"][1]["role"] == "do"
    assert made["headline"]["loglik"] is None
    assert "no density" in next(check["text"] for check in made["checks"] if check["id"] == "membership")


def test_latents_say_what_they_grow_with_in_the_same_words_everywhere(plain):
    fit, m = plain
    made = report.collect(fit, m)
    assert {z["latent"]: z["grows_with"] for z in made["latents"]} == fit.grows_with
    assert dict(fit.latent_table()[["latent", "grows with"]].to_numpy()) == fit.grows_with
    shifted = fit.fitted_graph.edges and {**fit.details, "orientation": dict.fromkeys(fit.order, "perturbation")}
    moved = replace(fit, details=shifted, fitted_graph=None)
    assert "Each latent grows where its own perturbation moves it." in report.to_html(report.collect(moved, m))
    assert set(moved.grows_with.values()) == {"its perturbation"}
    strongest = {z["latent"]: [f["feature"] for f in z["features"][:2]] for z in made["latents"]}
    for name, features in strongest.items():
        assert [fit.model.feature_names[j] for j in fit.model.strongest(name, 2)] == features
