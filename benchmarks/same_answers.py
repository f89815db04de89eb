"""Do two versions of the library give the same answers? Fits over all methods, options and kinds of design.

    python benchmarks/same_answers.py write before.json      # with the old version on PYTHONPATH
    python benchmarks/same_answers.py write after.json       # with the new one
    python benchmarks/same_answers.py compare before.json after.json

Only public names are called, so that any two versions can be compared. Every answer is a list of numbers and names:
the order, edges with weights and tests, unmixing, noise variances, likelihood, what the search says about rivals, tests
of the model, predictions. Numbers are compared relative to the largest of their kind in one answer.
"""

import argparse
import json
import warnings
from pathlib import Path

import networkx as nx
import numpy as np

import latentdag as ld

TOLERANCE = 1e-9


def intervened(model, changes):
    """The model with other interventions."""
    return ld.LatentModel(model.unmixing, model.weights, model.noise_variance, changes, model.latents)


def shared(model):
    """Every second latent is hit by two contexts."""
    changes = dict(model.interventions)
    changes |= {f"{name}-again": ld.Intervention(name, variance=0.4) for name in model.latents[::2]}
    return intervened(model, changes), {context: change.target for context, change in changes.items()}


def doubles(model):
    """Some contexts hit two latents."""
    pairs = list(zip(model.latents[:-1], model.latents[1:], strict=True))[:2]
    changes = dict(model.interventions) | {f"{a}+{b}": ld.Intervention((a, b), variance=0.05) for a, b in pairs}
    return intervened(model, changes), {context: change.targets for context, change in changes.items()}


def shifted(model):
    """Interventions shift the mean of their target's noise."""
    changes = {k: ld.Intervention(v.target, variance=0.5, shift=1.5) for k, v in model.interventions.items()}
    return intervened(model, changes)


def some_missing(model, seed, n):
    """Moments without one of the contexts, so that a latent is never intervened on."""
    m = ld.simulate.sample_moments(model, n, rng=seed)
    keep = [k for k, context in enumerate(m.contexts) if context != m.contexts[-1]]
    return ld.Moments.from_covariances(
        m.covariances[keep], m.counts[keep], [m.contexts[k] for k in keep], m.control, m.means[keep], m.feature_names
    )


def cases():
    """Name, moments, method and options of every fit."""
    sizes = [(2, 2, 400), (3, 5, 300), (5, 10, 1000), (5, 5, 2500), (7, 9, 600), (8, 8, 2500), (9, 12, 1000), (12, 12, 2500)]
    for seed in range(5):
        for d, p, n in sizes:
            for convention in ("figures", "text"):
                model = ld.simulate.random_model(d, p, convention=convention, rng=[seed, d])
                m = ld.simulate.sample_moments(model, n, rng=[seed, d, 1])
                for method in ("likelihood", "closed-form") if d > 5 else ("likelihood", "closed-form", "projection"):
                    yield f"{convention} {d} {p} {n} {seed} {method}", m, method, {}
        model = ld.simulate.random_model(5, 8, rng=[seed, 100])
        m = ld.simulate.sample_moments(model, 800, rng=[seed, 101])
        yield f"exact {seed}", model.moments(), "exact", {}
        order = list(nx.lexicographical_topological_sort(model.graph))
        graph, absent = list(model.graph.edges), (order[-1], order[0])
        told = {
            "graph": {"graph": graph},
            "order": {"order": order},
            "forbidden": {"forbidden": graph[:2]},
            "required": {"required": [graph[0]]},
            "absent forbidden": {"forbidden": [absent]},
            "aic": {"penalty": "aic"},
            "penalty": {"penalty": 6.0},
            "free means": {"means": False},
            "no shrinkage": {"shrinkage": False},
            "soft": {"intervention": "soft"},
            "one soft": {"intervention": {m.contexts[1]: "soft"}},
            "do": {"intervention": "do"},
        }
        for name, options in told.items():
            yield f"{name} {seed}", m, "likelihood", options
        few = ld.simulate.sample_moments(model, 12, rng=[seed, 102])
        yield f"few samples {seed}", few, "likelihood", {}
        for make, name in ((shared, "shared"), (doubles, "doubles")):
            other, targets = make(model)
            m = ld.simulate.sample_moments(other, 900, rng=[seed, 103])
            yield f"{name} {seed}", m, "likelihood", {"targets": targets}
            yield f"{name} soft {seed}", m, "likelihood", {"targets": targets, "intervention": "soft"}
            yield f"{name} closed form {seed}", m, "closed-form", {"targets": targets}
        m = ld.simulate.sample_moments(shifted(model), 500, rng=[seed, 104])
        for method in ("likelihood", "closed-form"):
            yield f"shifted {method} {seed}", m, method, {}
        square = ld.simulate.random_model(4, 4, rng=[seed, 105])
        m = some_missing(square, [seed, 106], 2000)
        for side in ("upstream", "downstream"):
            yield f"{side} {seed}", m, "likelihood", {"unintervened": side}


def answer(m, method, options):
    """All that a fit says, by kind."""
    fit = ld.fit(m, method, **options)
    edges = fit.edges()
    said = {
        "order": list(fit.order),
        "targets": {str(context): str(latent) for context, latent in fit.targets.items()},
        "edges": [f"{u} -> {v}" for u, v in zip(edges["source"], edges["target"], strict=True)],
        "weights": fit.model.weights.ravel().tolist(),
        "unmixing": fit.model.unmixing.ravel().tolist(),
        "noise variance": fit.model.noise_variance.tolist(),
        "loglik": [fit.loglik],
        "std errors": edges["std_error"].tolist(),
        "z": edges["z"].tolist(),
        "q": edges["q_value"].tolist(),
    }
    rival = fit.details.get("runner_up")
    said["runner up"] = None if rival is None else list(rival["order"])
    said["gap"] = [] if rival is None else [rival["gap"]]
    if method == "likelihood" and "intervention" not in options:
        predicted = fit.predict([m.contexts[1], m.contexts[-1]] if len(m.contexts) > 2 else [m.contexts[1]])
        said["predicted mean"] = np.asarray(predicted.mean).tolist()
        said["predicted covariance"] = np.asarray(predicted.covariance).ravel().tolist()
    if not options and method == "closed-form":
        said["rank tests"] = ld.rank_test(m)["p_value"].tolist()
        verdict = ld.membership_test(m)
        said["membership"] = [*verdict.summary["holm"].tolist(), verdict.omnibus.p_value]
    return said


def write(path):
    answers = {}
    for name, m, method, options in cases():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                answers[name] = answer(m, method, options)
            except (ValueError, RuntimeError) as error:
                answers[name] = {"refused": type(error).__name__}
    Path(path).write_text(json.dumps(answers))
    print(f"{len(answers)} answers in {path}")


def difference(a, b):
    """0 if two parts of an answer are the same names, else the largest relative difference of their numbers."""
    if not (isinstance(a, list) and isinstance(b, list) and all(isinstance(x, int | float) for x in [*a, *b])):
        return 0.0 if a == b else np.inf
    a, b = np.array(a, dtype=float), np.array(b, dtype=float)
    if a.shape != b.shape or (np.isfinite(a) != np.isfinite(b)).any():
        return np.inf
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-300)) if len(a) else 0.0


def compare(before, after):
    old, new = (json.loads(Path(path).read_text()) for path in (before, after))
    same, kinds = 0, {}
    for name in sorted(old):
        parts = {kind: difference(old[name].get(kind), new.get(name, {}).get(kind)) for kind in old[name]}
        off = {kind: value for kind, value in parts.items() if value > TOLERANCE}
        same += not off
        for kind, value in parts.items():
            kinds[kind] = max(kinds.get(kind, 0.0), value)
        if off:
            print(f"{name:32s} " + ", ".join(f"{kind} {value:.1e}" for kind, value in off.items()))
    print(f"\n{same} of {len(old)} answers the same to {TOLERANCE:g}; largest difference by kind:")
    print("\n".join(f"  {kind:22s} {value:.1e}" for kind, value in kinds.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("files", nargs="+")
    given = parser.parse_args()
    {"write": write, "compare": compare}[given.what](*given.files)
