"""Learned targets: how often all target sets are right, and the graph beside that of a fit that is told the targets.

Nine designs on unseen draws. "Sets right": every context hits exactly the latents that it truly hits, whatever those
are called; "pairs wrong" counts (context, latent) pairs. "Graph" is the exact DAG, for soft interventions who is an
ancestor of whom; the oracle is `ld.fit` with the true targets. Probabilities of pairs: how many stated below .05 and
above .95 were true.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/targets.py [--models 40] [--seed 100000] [--designs NAME …]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import subprocess
import time
import warnings
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

import latentdag as ld
from latentdag.model.intervention import Change

SEED = 100_000


def singles(d, K, rng):
    return [(k % d,) for k in range(K)]


def with_doubles(d, K, rng):
    return [(i,) for i in range(d)] + [tuple(rng.choice(d, 2, replace=False)) for _ in range(K - d)]


def with_idle(d, K, rng):
    return with_doubles(d, K - 3, rng) + [()] * 3


def only_doubles(d, K, rng):
    """Return K different pairs whose matrix has full rank."""
    pairs = list(combinations(range(d), 2))
    while True:
        sets = [pairs[i] for i in rng.choice(len(pairs), K, replace=False)]
        if np.linalg.matrix_rank([[i in mine for i in range(d)] for mine in sets]) == d:
            return sets


def many(d, K, rng):
    return singles(d, K - 25, rng) + [tuple(rng.choice(d, 2, replace=False)) for _ in range(20)] + [()] * 5


#: name: sets, d, K, samples per context, convention, kind, share of the models that are run
DESIGNS = {
    "12 guides on 5, n = 1,000, text": (singles, 5, 12, 1_000, "text", "perfect", 1),
    "6 + two doubles, n = 2,500, text": (with_doubles, 6, 8, 2_500, "text", "perfect", 1),
    "6 + two doubles, n = 2,500, figures": (with_doubles, 6, 8, 2_500, "figures", "perfect", 1),
    "+ three idle, n = 2,500, text": (with_idle, 6, 11, 2_500, "text", "perfect", 1),
    "5 + two doubles, soft, n = 10,000, text": (with_doubles, 5, 7, 10_000, "text", "soft", 1),
    "only doubles, 6 on 4, n = 100,000, figures": (only_doubles, 4, 6, 100_000, "figures", "perfect", 1),
    "only doubles, 7 on 5, n = 100,000, figures": (only_doubles, 5, 7, 100_000, "figures", "perfect", 1),
    "one clean target each, 5, n = 1,000, text": (singles, 5, 5, 1_000, "text", "perfect", 1),
    "100 on 8, n = 1,000, text": (many, 8, 100, 1_000, "text", "perfect", 0.1),
}


def truth_of(name, seed):
    """Return a random model of a design, and its moments."""
    sets, d, K, n, convention, kind, _ = DESIGNS[name]
    rng = np.random.default_rng(seed)
    base = ld.simulate.random_model(d, max(10, d), 0.75, convention, rng)
    names, place, contexts = list(base.latents), rng.permutation(d), {}
    for k, mine in enumerate(sets(d, K, rng)):
        changes = {}
        for i in place[list(mine)] if mine else ():
            drawn = rng.uniform(6, 8)
            variance, parents = drawn if convention == "text" else drawn**-2.0, np.flatnonzero(base.weights[i])
            weights = rng.uniform(0.25, 1, len(parents)) * rng.choice([-1, 1], len(parents))
            told = {names[j]: float(w) for j, w in zip(parents, weights, strict=True)}
            soft = kind == "soft" and len(parents)
            changes[names[i]] = Change("soft", variance, weights=told) if soft else Change("perfect", variance)
        contexts[f"k{k:03d}"] = ld.Intervention.of_changes(changes)
    model = ld.LatentModel(base.unmixing, base.weights, base.noise_variance, contexts, latents=names)
    return model, ld.simulate.sample_moments(model, n, rng)


def matrix(targets, latents):
    """Return which latents (K, d) each context hits."""
    sets = [(mine,) if isinstance(mine, str) else mine for mine in targets.values()]
    return np.array([[name in mine for name in latents] for mine in sets])


def compared(fit, truth):
    """Return wrong pairs, whether the graph is right, and stated probabilities of pairs with what is true."""
    true, names = matrix(truth.targets, truth.latents), list(fit.latents)
    found = matrix(fit.targets, names)
    d = max(true.shape[1], found.shape[1])
    true_wide, found = (np.pad(hit, ((0, 0), (0, d - hit.shape[1]))) for hit in (true, found))
    cost = (true_wide[:, :, None] != found[:, None]).sum(axis=0)
    rows, columns = linear_sum_assignment(cost)
    wrong = int(cost[rows, columns].sum())
    both = [(i, j) for i, j in zip(rows, columns, strict=True) if i < true.shape[1] and j < len(names)]
    called = {names[j]: truth.latents[i] for i, j in both}
    soft = any(v.kind == "soft" for v in truth.interventions.values())
    own = ld.posets.closure_graph(truth.graph) if soft else truth.graph
    mine = fit.closure if soft else fit.fitted_graph
    edges = {(called.get(a), called.get(b)) for a, b in mine.edges}
    stated = []
    if "target_probability" in fit.details:
        table = fit.target_probabilities
        for name in names:
            hit = true[:, truth.latents.index(called[name])] if name in called else np.zeros(len(table), dtype=bool)
            stated += list(zip(table[name], hit, strict=True))
    return wrong, edges == set(own.edges), stated


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--designs", nargs="*", default=list(DESIGNS))
    told = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    print(f"seed {told.seed}; commit {commit.strip()}; ± is one standard error; fits: CPU in fits told the targets")
    print(
        f"{'design':<44}{'models':>7}{'sets right':>13}{'pairs wrong':>12}{'graph':>6}{'oracle':>7}{'fits':>6}"
        f"{'true < .05':>14}{'true > .95':>14}",
        flush=True,
    )
    for name in told.designs:
        models, rows, stated = max(1, round(told.models * DESIGNS[name][-1])), [], []
        for seed in range(told.seed, told.seed + models):
            truth, m = truth_of(name, seed)
            kind = DESIGNS[name][5]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                times = [time.process_time()]
                learned = ld.fit(m, targets="learn", intervention=kind)
                times.append(time.process_time())
                oracle = ld.fit(m, targets=truth.targets, intervention=kind)
                times.append(time.process_time())
            wrong, right, probabilities = compared(learned, truth)
            rows.append((wrong == 0, wrong, right, compared(oracle, truth)[1], np.diff(times)))
            stated += probabilities
        sets, wrong, graph, told_right = (np.array([row[i] for row in rows], dtype=float) for i in range(4))
        seconds = np.array([row[4] for row in rows])
        p, true = (np.array(column) for column in zip(*stated, strict=True))
        share = f"{sets.mean():.2f} ± {sets.std() / np.sqrt(models):.2f}"
        low, high = (f"{int(true[mine].sum())}/{int(mine.sum())}" for mine in (p < 0.05, p > 0.95))
        print(
            f"{name:<44}{models:>7}{share:>13}{wrong.mean():>12.2f}{graph.mean():>6.2f}{told_right.mean():>7.2f}"
            f"{np.median(seconds[:, 0] / seconds[:, 1]):>6.1f}{low:>14}{high:>14}",
            flush=True,
        )


if __name__ == "__main__":
    main()
