"""Accuracy of every method on the paper's synthetic models, in one run on the same draws.

For each convention and sample size: fraction of models with the order right, with the whole graph right, mean
correlation between true and estimated latents, and RMS error of H (rows scaled by the entry that is largest in the true
row) over the Cramér–Rao bound. PCA, factor analysis and FastICA see all samples of all contexts, and their components
are matched to the true latents by correlation, which is generous.

Of the likelihood's wrong orders it says in how many the true order, all edges allowed and refitted from the truth, has
the higher likelihood: the search missed it, or another order has more evidence. A second table compares with fits
started at the truth.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/accuracy.py [--models 200] [--seed 1] [--quick]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for the folder studies

import networkx as nx
import numpy as np

import latentdag as ld
from latentdag import metrics
from latentdag.core.jacobian import fitted_point, information
from latentdag.core.search import search
from latentdag.methods.assembly import finish
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.starts import given_start
from studies.decompositions import best_match, decompose

METHODS = ("likelihood", "closed-form", "projection")


def bound(truth, m):
    """Cramér–Rao bound on E‖Ĥ − H‖², rows scaled by the entry that is largest in the true row, on the true graph."""
    prepared = prepare(truth.moments(m.counts), ld.Options(means=False, shrinkage=False))
    model = truth.rescaled("paper").reordered(prepared.latents)
    H = model.unmixing @ np.linalg.pinv(prepared.W)
    parents = [np.flatnonzero(row) for row in model.weights]
    mechanisms = prepared.design.mechanisms(parents)
    B = model.structural()
    rows = [B[i] for i in range(len(B))]
    rows += [model.structural(m.contexts[q.context])[q.latent] for q in mechanisms[len(B) :]]
    point = fitted_point(prepared.design, mechanisms, np.array(rows))
    d = len(B)
    total = np.linalg.pinv(information(point), rcond=1e-11, hermitian=True)[: d * d, : d * d]
    back = (B @ H) @ prepared.W  # dH in features = X · back
    variance = 0.0
    for i in range(d):
        j = int(np.argmax(np.abs(model.unmixing[i])))
        # the row is divided by its j-th entry, so its error along itself does not count
        J = back.T - np.outer(model.unmixing[i], back[:, j])
        V = total[i * d : (i + 1) * d, i * d : (i + 1) * d]
        variance += np.trace(J @ V @ J.T)
    return variance


def components(truth, X, n_latents):
    """Mean absolute correlation with the true latents of three classical decompositions, matched generously."""
    Z = truth.transform(X)
    scores = {}
    for name, W in decompose(X, n_latents).items():
        C = np.abs(np.corrcoef(Z.T, W @ X.T)[:n_latents, n_latents:])
        scores[name] = C[np.arange(n_latents), best_match(C)].mean()
    return scores


def cell(convention, n, models, seed, methods=METHODS, with_components=False):
    results = {name: [] for name in methods}
    classical = {}
    wrong = missed = 0
    for s in range(models):
        rng = np.random.default_rng([seed, s])
        truth = ld.simulate.random_model(convention=convention, rng=rng)
        m = ld.simulate.sample_moments(truth, n, rng)
        least = bound(truth, m)
        for name in methods:
            start = time.process_time()
            fit = ld.fit(m, method=name)
            seconds = time.process_time() - start
            if name == "likelihood" and not metrics.order_correct(truth, fit):
                wrong += 1
                missed += true_order_is_better(truth, m, fit)
            results[name].append(
                (
                    metrics.order_correct(truth, fit),
                    metrics.shd(truth, fit) == 0,
                    metrics.latent_correlations(truth, fit).mean(),
                    metrics.unmixing_error(truth, fit, "truth-index") ** 2 / least,
                    seconds,
                )
            )
        if with_components and s < 20:
            X, _ = ld.simulate.sample(truth, n, rng)
            for name, score in components(truth, X, truth.n_latents).items():
                classical.setdefault(name, []).append(score)
    for name, rows in results.items():
        order, graph, correlation, ratio, seconds = np.mean(rows, axis=0)
        rms = np.sqrt(ratio) if np.all(np.isfinite([row[3] for row in rows])) else np.nan
        median = np.sqrt(np.median([row[3] for row in rows]))
        print(
            f"{convention:8s} {n:7d}  {name:15s} {order:6.3f} {graph:6.3f}  {correlation:8.4f}  {rms:9.2f} "
            f"{median:9.2f} {seconds:8.3f}",
            flush=True,
        )
    print(
        f"{convention:8s} {n:7d}  wrong orders {wrong}, of which the true order is more likely in {missed}", flush=True
    )
    for name, scores in classical.items():
        print(f"{convention:8s} {n:7d}  {name:15s}      –      –  {np.mean(scores):8.4f}          –         –        –")


def true_order_is_better(truth, m, fit):
    """Whether the right order has the higher likelihood, all edges allowed, than the wrong one that was chosen."""
    names = {truth.targets[c]: fit.targets[c] for c in m.contexts[1:]}
    right = [names[name] for name in nx.lexicographical_topological_sort(truth.graph)]
    started = truth.renamed(names)
    values = [ld.fit(m, order=order, penalty=0.0, start=started).loglik for order in (right, list(fit.order))]
    return values[0] > values[1] + 0.01


def from_the_truth(truth, m):
    """The fit that starts at the truth and nowhere else."""
    prepared = prepare(m)
    rules = edge_rules(prepared, 0.5 * np.log(prepared.design.N))
    found = search(prepared.design, [given_start(prepared, truth)], rules)
    return finish(m, prepared, found, ld.Options(), rules.penalty, {})


def against_truth(convention, d, density, models, seed, n=2_500):
    """How often the likelihood is at least that of the fit started at the truth, with 0.5 nats of slack."""
    reached = []
    for s in range(models):
        rng = np.random.default_rng([seed, d, s])
        truth = ld.simulate.random_model(d, max(d, 10), density=density, convention=convention, rng=rng)
        m = ld.simulate.sample_moments(truth, n, rng)
        reached.append(ld.fit(m).loglik >= from_the_truth(truth, m).loglik - 0.5)
    print(f"{convention:8s} {n:7d} {d:5d} {density:8.2f} {models:7d} {np.mean(reached):8.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="10 models a cell")
    options = parser.parse_args()
    models = 10 if options.quick else options.models
    print(f"d = 5, p = 10, density 0.75, {models} models a cell, seed {options.seed}, one thread")
    print("convention     n  method           order  graph  corr.     RMS/CRB  median/CRB  seconds")
    for convention in ("figures", "text"):
        for n in (1_000, 2_500, 10_000):
            cell(convention, n, models, options.seed, with_components=n == 2_500)
    print("\nlog-likelihood at least that of the fit started at the truth (0.5 nats slack)")
    print("convention     n     d  density  models  fraction")
    for convention in ("figures", "text"):
        for d, density, share in ((5, 0.75, 1), (20, 0.3, 5), (40, 0.15, 20)):
            against_truth(convention, d, density, max(models // share, 2), options.seed)


if __name__ == "__main__":
    main()
