"""One model per kind of design that the likelihood takes, and random points of their parameter spaces."""

from dataclasses import replace

import networkx as nx
import numpy as np

import latentdag as ld
from latentdag.methods.design import prepare
from latentdag.methods.result import Fit, named_graph
from latentdag.model.intervention import Intervention


def with_interventions(model, interventions, **other):
    return ld.LatentModel(model.unmixing, model.weights, model.noise_variance, interventions, model.latents, **other)


def designs():
    """One model per kind of design that the likelihood takes: name, model, options of the fit."""
    base = ld.simulate.random_model(n_latents=4, n_features=6, density=0.7, rng=3)
    a, b, c, d = base.latents
    one = {f"k{i}": ld.Intervention(name, variance=0.03) for i, name in enumerate(base.latents)}
    yield "one context per latent", with_interventions(base, one), {}
    several = {**one, "k0again": ld.Intervention(a, variance=0.5), "k2again": ld.Intervention(c, variance=0.4)}
    names = {context: value.target for context, value in several.items()}
    yield "several contexts per latent", with_interventions(base, several), {"targets": names}
    double = {
        **one,
        "a+c": ld.Intervention((a, c), variance=(0.02, 0.3)),
        "b+d": ld.Intervention((b, d), variance=0.04),
    }
    names = {context: value.targets for context, value in double.items()}
    yield "combinations", with_interventions(base, double), {"targets": names}
    shifted = {k: ld.Intervention(v.target, variance=0.1, shift=0.7) for k, v in one.items()}
    yield "mean shifts", with_interventions(base, shifted, offset=np.arange(6.0)), {}
    only = {
        k: ld.Intervention(v.target, "perfect", float(base.noise_variance[i]), shift=2.0)
        for i, (k, v) in enumerate(one.items())
    }
    yield "mean shifts, same noise", with_interventions(base, only), {}
    done = {k: ld.Intervention(v.target, "do", value=0.5) for k, v in one.items()}
    yield "do", with_interventions(base, done), {"intervention": "do"}
    weaker = {k: partly(v, s) for (k, v), s in zip(one.items(), (0.6, 0.8, 0.7, 0.9), strict=True)}
    weaker["k0again"] = ld.Intervention(a, variance=0.5, strength=0.4)
    weaker["k2again"] = ld.Intervention(c, variance=0.4)
    strength = {k: v.changes[v.target].strength for k, v in weaker.items()}
    names = {context: value.target for context, value in weaker.items()}
    yield "partial", with_interventions(base, weaker), {"targets": names, "strength": strength}


def partly(intervention, strength):
    """The same perfect intervention, of this strength."""
    return Intervention.of_changes({n: replace(ch, strength=strength) for n, ch in intervention.changes.items()})


def partial_model(seed, d=4, p=6, low=0.4, high=0.9, **options):
    """A random model of partial interventions, and their strengths."""
    truth = ld.simulate.random_model(d, p, density=0.6, rng=seed, **options)
    rng = np.random.default_rng([seed, 1])
    strength = {c: float(rng.uniform(low, high)) for c in truth.interventions}
    return replace(truth, interventions={c: partly(v, strength[c]) for c, v in truth.interventions.items()}), strength


DESIGNS = {name: (model, options) for name, model, options in designs()}


def random_point(name, seed):
    truth, options = DESIGNS[name]
    prepared = prepare(ld.simulate.sample_moments(truth, 500, rng=seed), ld.Options(**options))
    rng = np.random.default_rng(seed)
    d, r = prepared.design.d, prepared.design.S.shape[1]
    parents = [np.flatnonzero(np.arange(d) > i)[rng.random(d - 1 - i) < 0.6] for i in range(d)]
    return prepared.design, rng.normal(size=(d, r)), parents, rng


def as_fit(model, counts, means=True):
    """A fit whose estimate is the model itself."""
    graph = named_graph(model, model.graph.edges)
    order = tuple(nx.topological_sort(graph))
    return Fit(model, order, graph, 0.0, tuple(counts), True, ld.Options(means=means))


def shifted(model, seed):
    rng = np.random.default_rng(seed)
    moved = {
        c: Intervention.of_changes({n: replace(ch, shift=float(rng.normal())) for n, ch in v.changes.items()})
        for c, v in model.interventions.items()
    }
    return replace(model, interventions=moved)


def with_rest(model, seed):
    """The same latents behind features that have dimensions of their own."""
    rng = np.random.default_rng(seed)
    p, d = model.n_features, model.n_latents
    N = np.eye(p) - model.mixing @ model.unmixing
    R = N @ rng.normal(size=(p, p))
    return replace(model, loadings=model.mixing + N @ rng.normal(size=(p, d)), residual=R @ R.T)
