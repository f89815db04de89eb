"""Coverage of intervals, false discoveries among edges, sizes of the tests on targets, coverage of predictions.

Run ``python benchmarks/calibration_errors.py [--models 200]``. Models are drawn by the paper's recipe (d = 5, p = 10,
density .75), each with its own seed; nothing is tuned on these seeds.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

import latentdag as ld
from latentdag.errors import NotConvergedWarning

CONVENTIONS = ("figures", "text")
SHOWN = ("unmixing", "structural", "weight", "total_effect")


def truth_of(table, model, fitted):
    """The true values of a fit's table, rows scaled at the fit's columns."""
    latents = list(fitted.latents)
    pivot = [int(np.argmax(h == 1.0)) for h in fitted.unmixing]
    model = model.reordered(latents)
    model = model.rescaled(model.unmixing[np.arange(len(latents)), pivot])
    total, B = np.linalg.inv(np.eye(len(latents)) - model.weights), model.structural()
    value = {
        "unmixing": lambda r, c: model.unmixing[latents.index(r), model.feature_names.index(c)],
        "structural": lambda r, c: B[latents.index(r), latents.index(c)],
        "weight": lambda r, c: model.weights[latents.index(r), latents.index(c)],
        "total_effect": lambda r, c: total[latents.index(r), latents.index(c)],
        "noise_variance": lambda r, c: model.noise_variance[latents.index(r)],
        "scale": lambda r, c: model.interventions[r].changes[c].variance ** -0.5,
        "shift": lambda r, c: model.interventions[r].changes[c].shift,
    }
    return np.array([value[q](r, c) for q, r, c in zip(table["quantity"], table["row"], table["column"], strict=True)])


def covered(fit, truth, data=None, level=0.95):
    """Share of numbers inside their interval, by quantity."""
    table = fit.confidence_intervals(level, data=data)
    true = truth_of(table, truth, fit.model)
    table["inside"] = (table["lower"] <= true) & (true <= table["upper"])
    return table[table["std_error"] > 0].groupby("quantity")["inside"].mean()


def moments_and_data(truth, n, noise, rng):
    if noise == "gaussian":
        return ld.simulate.sample_moments(truth, n, rng=rng), None
    X, contexts = ld.simulate.sample(truth, n, rng=rng, noise=noise)
    return ld.Moments.from_samples(X, contexts, control=truth.control), (X, contexts)


def coverage(convention, n, noise, models, search):
    """Mean coverage over models; with a search, over those whose graph is right."""
    rows = []
    for seed in range(models):
        truth = ld.simulate.random_model(convention=convention, rng=seed)
        m, data = moments_and_data(truth, n, noise, 10_000 + seed)
        fit = ld.fit(m) if search else ld.fit(m, graph=truth.graph)
        if set(fit.graph.edges) == set(truth.graph.edges):
            rows.append(covered(fit, truth, data))
    return pd.DataFrame(rows).mean(), len(rows)


def coverage_table(models):
    print("Coverage of 95 % intervals: d = 5, p = 10; given graph, and beside it searched graphs that are right")
    print(f"{'':34s}{'H':>8s}{'B_0':>8s}{'weight':>8s}{'total':>8s}{'models':>8s}")
    for noise, kind in (("gaussian", "Fisher"), ("laplace", "sandwich")):
        for convention in CONVENTIONS:
            for n in (2_500, 10_000):
                for search in (False, True):
                    share, count = coverage(convention, n, noise, models, search)
                    label = f"{noise} ({kind}) {convention} n={n} {'searched' if search else 'given'}"
                    print(f"{label:50s}" + "".join(f"{share[q]:8.3f}" for q in SHOWN) + f"{count:6d}", flush=True)


def false_discoveries(models, level=0.1):
    print(f"\nFalse discoveries among edges with q ≤ {level}: share of all found, share of the true ones found")
    for convention in CONVENTIONS:
        for n in (1_000, 2_500, 5_000, 10_000):
            wrong, power, right = [], [], []
            for seed in range(models):
                truth = ld.simulate.random_model(convention=convention, rng=seed)
                fit = ld.fit(ld.simulate.sample_moments(truth, n, rng=20_000 + seed))
                table = fit.edges()
                found = table[table["q_value"] <= level]
                true = set(truth.graph.edges)
                hits = [pair in true for pair in zip(found["source"], found["target"], strict=True)]
                wrong.append(1 - np.mean(hits) if hits else 0.0)
                power.append(sum(hits) / max(len(true), 1))
                right.append(set(fit.closure.edges) == set(ld.posets.closure_graph(truth.graph).edges))
            print(
                f"{convention:8s} n={n:6d}  FDR {np.mean(wrong):.4f} ± {np.std(wrong) / np.sqrt(models):.4f}  "
                f"power {np.mean(power):.3f}  closure right {np.mean(right):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--part", default="all")
    given = parser.parse_args()
    warnings.simplefilter("ignore", NotConvergedWarning)
    if given.part in ("all", "coverage"):
        coverage_table(given.models)
    if given.part in ("all", "fdr"):
        false_discoveries(given.models)
