"""A fit knows how it was made: one object, read-only, the same after a file, and in every face."""

import json
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentdag as ld
from latentdag.methods.options import TAKES, Options

TRUTH = ld.simulate.random_model(n_latents=3, n_features=4, rng=3)
M = ld.simulate.sample_moments(TRUTH, 400, rng=0)

LABELS = st.one_of(st.text(max_size=3), st.integers(-5, 5), st.tuples(st.text(max_size=2), st.integers(0, 3)))
NAMES = st.text("abc", min_size=1, max_size=2)
PAIRS = st.one_of(st.none(), st.lists(st.tuples(NAMES, NAMES), max_size=3))
LIKELIHOOD = st.fixed_dictionaries(
    {},
    optional={
        "targets": st.dictionaries(
            LABELS, st.one_of(NAMES, st.lists(NAMES, min_size=1, max_size=3, unique=True)), max_size=3
        ),
        "intervention": st.one_of(
            st.sampled_from(["perfect", "soft", "do"]),
            st.dictionaries(LABELS, st.sampled_from(["perfect", "soft"]), max_size=3),
        ),
        "means": st.booleans(),
        "shrinkage": st.booleans(),
        "unintervened": st.sampled_from(["downstream", "upstream"]),
        "graph": PAIRS,
        "order": st.one_of(st.none(), st.lists(NAMES, max_size=3)),
        "forbidden": PAIRS,
        "required": PAIRS,
        "penalty": st.one_of(st.sampled_from(["bic", "aic"]), st.floats(0, 100)),
    },
)


@given(LIKELIHOOD)
def test_there_and_back(told):
    """Through JSON, another process, and itself as keywords: nothing is forgotten."""
    options = Options(**told)
    assert Options.from_json(json.loads(json.dumps(options.to_json()))) == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert Options(**options) == options
    assert repr(Options(**options)) == repr(options)
    assert set(options) == {"method", *TAKES["likelihood"]}
    assert {name for name in told if told[name] is not None} >= set(options.told)


@pytest.mark.parametrize("method", TAKES)
def test_every_fit_keeps_all_its_options(method, tmp_path):
    moments = TRUTH.moments(1_000) if method == "exact" else M
    found = ld.fit(moments, method)
    assert found.options == Options(method)
    assert dict(found.options) == {"method": method} | {name: getattr(Options(), name) for name in TAKES[method]}
    found.save(tmp_path / "f.npz")
    assert ld.Fit.load(tmp_path / "f.npz").options == found.options
    again = ld.fit(moments, **found.options)
    assert again.order == found.order
    np.testing.assert_array_equal(again.model.unmixing, found.model.unmixing)


def test_nobody_can_change_them():
    options = ld.fit(M, targets={"c1": "a", "c2": "b", "c3": "b"}).options
    with pytest.raises(AttributeError):
        options.means = False
    with pytest.raises(TypeError):
        options["means"] = False
    with pytest.raises(TypeError):
        options["targets"]["c1"] = "b"


def test_the_order_in_which_they_were_said_does_not_matter():
    a = Options(targets={"B": ["y", "x"], "A": "x"}, forbidden={("x", "y"), ("y", "z")}, graph=nx.DiGraph([("x", "y")]))
    b = Options(targets={"A": ["x"], "B": ("y", "x")}, forbidden=[("y", "z"), ("x", "y")], graph=[("x", "y")])
    assert a == b
    assert repr(a) == repr(b)


def test_the_estimator_takes_them_all():
    params = set(ld.LatentDAG().get_params())
    assert params == {*Options.__dataclass_fields__, "control", "n_jobs", "robust"}
    defaults = {
        name: value for name, value in ld.LatentDAG().get_params().items() if name in Options.__dataclass_fields__
    }
    assert {name: field.default for name, field in Options.__dataclass_fields__.items()} == defaults
    found = ld.LatentDAG(intervention={"c1": "soft"}, forbidden=[("c1", "c2")]).fit_moments(M).fit_
    assert found.options == Options(intervention={"c1": "soft"}, forbidden=[("c1", "c2")])


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"method": "magic"}, r"method must be one of 'likelihood', .* got 'magic'"),
        ({"method": "exact", "gamma": 0.9}, r"method 'exact' has no option gamma=0\.9"),
        ({"method": "projection", "targets": {"c1": "a"}}, "method 'projection' has no option targets"),
        ({"means": "yes"}, "means must be True or False, got 'yes'"),
        ({"means": None}, "means must be True or False, got None"),
        ({"penalty": "cheap"}, "penalty must be 'bic', 'aic' or a number of nats, got 'cheap'"),
        ({"penalty": float("nan")}, "penalty must be .* got nan"),
        ({"penalty": -1}, "penalty must be .* got -1"),
        ({"penalty": True}, "penalty must be .* got True"),
        ({"intervention": "hard"}, "the kind of intervention is one of perfect, soft, do, got 'hard'"),
        ({"intervention": {"c1": "hard"}}, "context 'c1': the kind of intervention"),
        ({"targets": {"c1": ["a", "a"]}}, "distinct latents"),
        ({"targets": {"c1": [3]}}, "by name"),
        ({"targets": "c1"}, "targets must map contexts to latent names"),
        ({"order": "c1"}, "order must be a list of latent names"),
        ({"forbidden": ["ab"], "required": None}, None),
        ({"forbidden": [("a", "b", "c")]}, r"forbidden must be \(source, target\) pairs"),
        ({"graph": [("a", 1)]}, r"graph must be \(source, target\) pairs"),
        ({"unintervened": "aside"}, "unintervened must be 'downstream' or 'upstream', got 'aside'"),
        ({"method": "projection", "gamma": 2}, "gamma is a fraction of spectral energy between 0 and 1, got 2"),
        ({"method": "exact", "tol": 0}, "tol is a relative size between 0 and 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(told, message):
    if message is None:
        assert Options(**told).forbidden == (("a", "b"),)
        return
    with pytest.raises(ValueError, match=message):
        Options(**told)


def test_a_kind_for_a_context_that_is_not_there():
    with pytest.raises(ValueError, match="intervention names 'c9'"):
        ld.fit(M, intervention={"c9": "soft"})
