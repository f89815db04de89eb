"""Coverage of intervals, false discoveries among edges, sizes of the tests on targets, coverage of predictions.

Run ``python benchmarks/calibration_errors.py [--models 200] [--parts sizes …]``. Models are drawn by the paper's recipe
(d = 5, p = 10, density .75), each with its own seed; nothing is tuned on these seeds. The part "sizes" has d = 3 to 15
with the graph given, p = max(10, d + 2), seeds from 100000 on, where intervals were never looked at before. Two
standard errors of a share that should be .95 are about .01 at 200 models, since the numbers of one model are
correlated.
"""

import argparse
import time
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd

import latentdag as ld
from latentdag.errors import NotConvergedWarning
from latentdag.inference.targets import find_targets, off_targets
from latentdag.model.intervention import Intervention

CONVENTIONS = ("figures", "text")
QUANTITIES = ("unmixing", "structural", "weight", "total_effect", "noise_variance", "scale", "shift")
SHOWN = ("unmixing", "structural", "weight", "total_effect")


def model_of(seed, convention, shift=0.0):
    """A random model whose contexts also shift the mean of their target, by ± ``shift`` standard deviations or so."""
    truth = ld.simulate.random_model(convention=convention, rng=seed)
    rng = np.random.default_rng([seed, 1])
    sd = dict(zip(truth.latents, np.sqrt(truth.noise_variance), strict=True))
    moved = {
        c: Intervention.of_changes(
            {i: replace(ch, shift=float(shift * sd[i] * rng.normal())) for i, ch in v.changes.items()}
        )
        for c, v in truth.interventions.items()
    }
    return replace(truth, interventions=moved)


def draw(truth, n, noise, rng):
    """Moments, and the samples where the noise needs them."""
    if noise == "gaussian":
        return ld.simulate.sample_moments(truth, n, rng=rng), None
    X, contexts = ld.simulate.sample(truth, n, rng=rng, noise=noise)
    return ld.Moments.from_samples(X, contexts, control=truth.control), (X, contexts)


def same_graph(fit, truth):
    return set(fit.graph.edges) == set(truth.graph.edges)


# ---- intervals ----------------------------------------------------------------------------------------------------


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


def coverage(convention, n, noise, models):
    """Mean coverage over models, with the graph given and (where it is right) with the graph searched for."""
    given, searched = [], []
    for seed in range(models):
        truth = model_of(seed, convention)
        m, data = draw(truth, n, noise, [seed, n])
        given.append(covered(ld.fit(m, graph=truth.graph), truth, data))
        found = ld.fit(m)
        if same_graph(found, truth):
            searched.append(covered(found, truth, data))
    return pd.DataFrame(given), pd.DataFrame(searched)


def coverage_table(models):
    print("Coverage of 95 % intervals: d = 5, p = 10; graph given, and beside it graphs that a search got right")
    print(f"{'':44s}{'H':>8s}{'B_0':>8s}{'weight':>8s}{'total':>8s}{'λ':>8s}{'models':>8s}")
    for noise, kind in (("gaussian", "Fisher"), ("laplace", "sandwich")):
        for convention in CONVENTIONS:
            for n in (2_500, 10_000):
                for label, part in zip(("given", "searched"), coverage(convention, n, noise, models), strict=True):
                    share = part.mean()
                    text = f"{noise} ({kind}) {convention} n={n} {label}"
                    numbers = "".join(f"{share[q]:8.3f}" for q in (*SHOWN, "scale"))
                    print(f"{text:44s}{numbers}{len(part):8d}", flush=True)


def truth_with_shifts(seed, d, convention):
    """A model of d latents whose contexts shift their target by about one deviation of its noise."""
    truth = ld.simulate.random_model(d, max(10, d + 2), convention=convention, rng=seed)
    rng, sd = np.random.default_rng([seed, 1]), dict(zip(truth.latents, np.sqrt(truth.noise_variance), strict=True))
    moved = {c: _shifted(v, rng, sd) for c, v in truth.interventions.items()}
    return replace(truth, interventions=moved)


def _shifted(intervention, rng, sd):
    changes = {i: replace(change, shift=float(sd[i] * rng.normal())) for i, change in intervention.changes.items()}
    return Intervention.of_changes(changes)


def size_table(models, sizes=(3, 5, 8, 15), first=100_000):
    print("Intervals of 95 % by size: coverage, graph given, Gaussian, Fisher; below, standard errors over models")
    print(f"{'':28s}" + "".join(f"{q[:10]:>11s}" for q in QUANTITIES) + f"{'models':>8s}")
    for convention in CONVENTIONS:
        for d in sizes:
            for n in (500, 1_000, 2_500):
                rows = []
                for seed in range(first, first + max(8, models * 5 // max(5, d**2 // 5))):
                    truth = truth_with_shifts(seed, d, convention)
                    m = ld.simulate.sample_moments(truth, n, rng=[seed, n])
                    rows.append(covered(ld.fit(m, graph=truth.graph), truth))
                part = pd.DataFrame(rows)[list(QUANTITIES)]
                text = f"{convention} d={d} n={n}"
                print(f"{text:28s}" + "".join(f"{x:11.3f}" for x in part.mean()) + f"{len(part):8d}")
                print(f"{'±':>28s}" + "".join(f"{x:11.3f}" for x in part.sem()), flush=True)


# ---- edges --------------------------------------------------------------------------------------------------------


def false_discoveries(models, level=0.1):
    print(f"\nfit.edges() with q ≤ {level}, order and graph searched for: false discoveries, and true edges found")
    print(f"{'':20s}{'FDR':>8s}{'± se':>8s}{'power':>8s}{'order':>8s}{'pairs of partial_order that are wrong':>40s}")
    for convention in CONVENTIONS:
        for n in (1_000, 2_500, 5_000, 10_000):
            wrong, power, right, partial = [], [], [], []
            for seed in range(models):
                truth = model_of(seed, convention)
                fit = ld.fit(ld.simulate.sample_moments(truth, n, rng=[seed, n]))
                table = fit.edges()
                found = table[table["q_value"] <= level]
                true = set(truth.graph.edges)
                hits = [pair in true for pair in zip(found["source"], found["target"], strict=True)]
                closure = set(ld.posets.closure_graph(truth.graph).edges)
                wrong.append(1 - np.mean(hits) if hits else 0.0)
                power.append(sum(hits) / max(len(true), 1))
                right.append(closure == set(fit.closure.edges))
                order = set(fit.partial_order(0.95).edges)
                partial.append(len(order - closure) / max(len(order), 1))
            print(
                f"{convention:8s} n={n:<10d}{np.mean(wrong):8.4f}{np.std(wrong) / np.sqrt(models):8.4f}"
                f"{np.mean(power):8.3f}{np.mean(right):8.3f}{np.mean(partial):40.4f}",
                flush=True,
            )


# ---- targets ------------------------------------------------------------------------------------------------------


def with_new_contexts(truth, rng, effect):
    """A context on one latent and one on two: noise variances times ``effect``, cut off from their parents."""
    Omega = dict(zip(truth.latents, truth.noise_variance, strict=True))
    hits = {"one": rng.choice(truth.latents, 1, replace=False), "two": rng.choice(truth.latents, 2, replace=False)}
    new = {c: Intervention(list(t), variance=[effect * Omega[i] for i in t]) for c, t in hits.items()}
    return replace(truth, interventions={**truth.interventions, **new}), {c: set(t) for c, t in hits.items()}


def target_table(models):
    print(
        "\nfind_targets (5 %): size on latents left alone, power on targets (noise variance times 1.1, cut off), sets"
    )
    print("found exactly; off_targets: size. Contexts of the fit shift their target by about half a deviation.")
    print(f"{'':36s}{'size':>8s}{'power':>8s}{'exact':>8s}{'off':>8s}")
    for noise in ("gaussian", "laplace"):
        for convention in CONVENTIONS:
            for n in (500, 2_500):
                null, alternative, exact, off = [], [], [], []
                for seed in range(models):
                    truth = model_of(seed, convention, shift=0.5)
                    full, hits = with_new_contexts(truth, np.random.default_rng([seed, 2]), 1.1)
                    m, data = draw(full, n, noise, [seed, n])
                    known = m.select(truth.interventions)
                    fit = ld.fit(known, graph=truth.graph)
                    found = find_targets(fit, m, data=data)
                    is_hit = np.array([i in hits[c] for c, i in found.table[["context", "latent"]].to_numpy()])
                    null += list(found.table.loc[~is_hit, "p_value"])
                    alternative += list(found.table.loc[is_hit, "p_value"])
                    exact += [set(found.targets[c]) == hit for c, hit in hits.items()]
                    off += list(off_targets(fit, known, data=data).table["p_value"])
                shares = [np.mean(np.array(p) < 0.05) for p in (null, alternative)]
                print(
                    f"{noise + ' ' + convention + ' n=' + str(n):36s}{shares[0]:8.3f}{shares[1]:8.3f}"
                    f"{np.mean(exact):8.3f}{np.mean(np.array(off) < 0.05):8.3f}",
                    flush=True,
                )


# ---- predictions --------------------------------------------------------------------------------------------------


def prediction_table(models):
    print(
        "\nPredicted double perturbations: coverage of 95 % intervals for means, variances and covariances of features"
    )
    print(f"{'':44s}{'mean':>8s}{'variance':>10s}{'covariance':>12s}")
    for noise, kind in (("gaussian", "Fisher"), ("laplace", "sandwich")):
        for convention in CONVENTIONS:
            rows = []
            for seed in range(models):
                truth = model_of(seed, convention, shift=1.0)
                m, data = draw(truth, 2_500, noise, [seed, 3])
                found = ld.fit(m, graph=truth.graph).predict(["c1", "c2"], data=data)
                law = truth.intervene(Intervention.combine([truth.interventions["c1"], truth.interventions["c2"]]))
                true = np.concatenate([law.mean, np.diagonal(law.covariance)])
                table = found.table
                inside = ((table["lower"] <= true) & (true <= table["upper"])).groupby(table["quantity"]).mean()
                z = np.abs(found.covariance - law.covariance) / found.covariance_std_error
                rows.append((inside["mean"], inside["variance"], np.mean(z[np.tril_indices(10, -1)] < 1.96)))
            mean, variance, covariance = np.mean(rows, axis=0)
            text = f"{noise} ({kind}) {convention} n=2500"
            print(f"{text:44s}{mean:8.3f}{variance:10.3f}{covariance:12.3f}", flush=True)


# ---- cost ---------------------------------------------------------------------------------------------------------


def cost_table(models=1):
    print("\nWhat errors cost: CPU seconds of a fit (n = 2000, three edges a latent), and edges() and")
    print("confidence_intervals() in fits; one process, the second fit of it")
    for d in (5, 20, 40, 83):
        truth = ld.simulate.random_model(d, max(10, d + 2), 3 / d, convention="text", rng=100_000 + d)
        m = ld.simulate.sample_moments(truth, 2_000, rng=d)
        if d == 5:
            ld.fit(m).confidence_intervals()  # imports and first calls
        times = [time.process_time()]
        fit = ld.fit(m)
        times.append(time.process_time())
        fit.edges()
        times.append(time.process_time())
        if d <= 40:
            fit.confidence_intervals()
        times.append(time.process_time())
        seconds, edges, intervals = np.diff(times)
        text = f"{intervals / seconds:12.2f}" if d <= 40 else ""
        print(f"d = {d:<4d}{seconds:8.2f}{edges / seconds:12.3f}{text}", flush=True)


PARTS = {
    "coverage": coverage_table,
    "sizes": size_table,
    "edges": false_discoveries,
    "targets": target_table,
    "predictions": prediction_table,
    "cost": cost_table,
}


def run(models=200, parts=tuple(PARTS)):
    """Print the tables by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        for part in parts:
            PARTS[part](models)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    run(given.models, given.parts)
