"""Partial interventions: graphs and errors at known strengths, what sensitivity claims, and causes under soft ones.

Models are the paper's with density .5, five latents, ten features. ``n`` samples in every context. Strengths are
uniform between .5 and .9, one for each context.

*Known.* The exact graph with strengths known, and declared perfect; at the true graph the mean squared error of
standardised weights over the variance that the Fisher information promises, and coverage of 95 % intervals. *Interval*:
strengths known up to ± .1, the truth uniform in it.

*Sensitivity.* Fits that were told nothing; strengths between .5 and 1. How often the band holds the true weight; claims
of an edge that is direct down to .5 or to any strength, of causes, and edges at q < .05 as a fit without sensitivity
calls them; how many of each are false.

*Soft.* Fits that were told that interventions are soft, which scale all weights ("scaled") or each by a number of its
own between −.4 and .6 ("generic"). Tests at 5 %: power for ancestors, size for unrelated pairs in the direction that
the search chose; relations of ``partial_order(0.95)``: how many of the true ones, and in how many models one is false.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/strength.py [--models 40] [--seed 100000] [--parts known,interval,…]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import subprocess
from dataclasses import replace

import networkx as nx
import numpy as np

import latentdag as ld

SETTINGS = [("text", 2_500), ("figures", 2_500), ("text", 10_000)]


def drawn(convention, seed, low=0.5, high=0.9, kind="scaled"):
    """Draw a model of partial interventions, and their strengths; "generic" ones are soft with weights of their own."""
    truth = ld.simulate.random_model(5, 10, 0.5, convention, rng=seed)
    rng = np.random.default_rng([seed, 1])
    strength = {c: float(rng.uniform(low, high)) for c in truth.interventions}

    def changed(c, name, change):
        if kind == "scaled":
            return replace(change, strength=strength[c])
        row = truth.weights[truth.index(name)] * rng.uniform(-0.4, 0.6, truth.n_latents)
        weights = {truth.latents[j]: float(row[j]) for j in np.flatnonzero(row)}
        return replace(change, kind="soft", weights=weights) if weights else change

    made = {
        c: ld.Intervention.of_changes({name: changed(c, name, change) for name, change in value.changes.items()})
        for c, value in truth.interventions.items()
    }
    return replace(truth, interventions=made), strength


# Moments are drawn with seeds of their own: from the stream of the model's numbers they would depend on it.


def share(hits, among=None):
    """Return "mean ± standard error" of hits per model, or of hits among so many, models being the units."""
    hits = np.asarray(hits, dtype=float)
    among = np.ones(len(hits)) if among is None else np.asarray(among, dtype=float)
    mean = hits.sum() / max(among.sum(), 1)
    error = np.sqrt(np.sum((hits - mean * among) ** 2)) / max(among.sum(), 1)
    return f"{mean:.3f} ± {error:.3f}"


def weight_rows(fit, truth):
    """Return (squared error over bound, inside) of all standardised weights."""
    true = truth.rescaled("unit-variance")
    mine = fit.model.reordered(true.latents).rescaled("unit-variance").mixing
    sign = dict(zip(true.latents, np.sign((true.mixing * mine).sum(axis=0)), strict=True))
    at, found = true.latents.index, []
    for row in fit.uncertainty().intervals(0.95, "unit-variance", ["weight"]).itertuples():
        value = true.weights[at(row.row), at(row.column)] * sign[row.row] * sign[row.column]
        found.append((((row.estimate - value) / row.std_error) ** 2, row.lower <= value <= row.upper))
    return np.array(found).reshape(-1, 2)


def known(models, seed):
    for convention, n in SETTINGS:
        exact, rows = {"strengths known": [], "declared perfect": []}, []
        for s in range(seed, seed + models):
            truth, strength = drawn(convention, s)
            m = ld.simulate.sample_moments(truth, n, rng=[s, 3])
            for name, told in (("strengths known", strength), ("declared perfect", None)):
                exact[name].append(set(ld.fit(m, strength=told).graph.edges) == set(truth.graph.edges))
            rows.append(weight_rows(ld.fit(m, strength=strength, graph=truth.graph), truth))
        told = "  ".join(f"{name}: exact graph {share(hits)}" for name, hits in exact.items())
        errors_over_bounds(f"{convention} n={n}  {told}", rows)


def errors_over_bounds(name, rows):
    rows = [each for each in rows if len(each)]
    among = [len(each) for each in rows]
    squares, inside = ([each[:, column].sum() for each in rows] for column in (0, 1))
    root = np.sqrt(sum(squares) / sum(among))
    print(
        f"{name}  rms error/bound {root:.3f}  squared {share(squares, among)}  coverage {share(inside, among)}",
        flush=True,
    )


def interval(models, seed):
    for convention, n in SETTINGS:
        exact, found = [], {"middle taken as known": [], "interval": []}
        for s in range(seed, seed + models):
            truth, strength = drawn(convention, s)
            rng = np.random.default_rng([s, 2])
            middle = {c: float(x + rng.uniform(-0.1, 0.1)) for c, x in strength.items()}
            m = ld.simulate.sample_moments(truth, n, rng=[s, 3])
            ends = {c: (x - 0.1, min(x + 0.1, 1.0)) for c, x in middle.items()}
            exact.append(set(ld.fit(m, strength=ends).graph.edges) == set(truth.graph.edges))
            for name, told in (("middle taken as known", {c: np.mean(e) for c, e in ends.items()}), ("interval", ends)):
                found[name].append(weight_rows(ld.fit(m, strength=told, graph=truth.graph), truth))
        for name, rows in found.items():
            errors_over_bounds(f"{convention} n={n}  {name}: exact graph {share(exact)}", rows)


def sensitivity(models, seed):
    for convention, n, low in [(*setting, 0.5) for setting in SETTINGS] + [("text", 10_000, 1.0)]:
        counts = []
        for s in range(seed, seed + models):
            truth, _ = drawn(convention, s, low, 0.9 if low < 1 else 1.0)
            fit = ld.fit(ld.simulate.sample_moments(truth, n, rng=[s, 3]))
            counts.append(judged(fit, truth, fit.sensitivity((0.5, 1.0)).table))
        c = np.array(counts).T
        drawn_from = ".5 to .9" if low < 1 else "1"
        lines = (
            f"{convention} n={n} strengths {drawn_from}",
            f"band holds the truth {share(c[0], c[1])} of {c[1].sum()}",
            f"direct down to .5: false {share(c[2], c[3])} of {c[3].sum()} (there are {c[8].sum()} edges)",
            f"direct at every strength: false {share(c[4], c[5])} of {c[5].sum()}",
            f"direct down to a strength that all have: false {share(c[11], c[12])} of {c[12].sum()}",
            f"causes: false {share(c[6], c[7])} of {c[7].sum()}",
            f"edges at q < .05 without sensitivity: false {share(c[9], c[10])} of {c[10].sum()}",
        )
        print("\n    ".join(lines), flush=True)


def judged(fit, truth, table):
    """Return band holds, pairs, false and all claims down to .5, at every strength, of causes; edges; naive claims."""
    M = fit.model.structural() @ fit.model.unmixing
    N = (truth.structural() @ truth.unmixing)[[truth.index(name) for name in fit.latents]]
    sign = np.sign(np.einsum("ij,jk,ik->i", M, truth.covariance(), N))
    sd, sd_true = np.sqrt(fit.model.noise_variance), np.sqrt(truth.noise_variance)
    holds, claims, every, cause, naive, own = 0, [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]
    ancestors = nx.transitive_closure_dag(truth.graph)
    weakest = min(next(iter(v.changes.values())).strength for v in truth.interventions.values())
    for row in table.itertuples():
        i, j = (fit.latents.index(name) for name in (row.target, row.source))
        k, m = (truth.index(name) for name in (row.target, row.source))
        true = truth.weights[k, m] * sd_true[m] / sd_true[k] * sd[i] / sd[j] * sign[i] * sign[j]
        holds += row.low <= true <= row.high
        direct, wrong = row.reading.startswith("direct"), not true * row.weight > 0
        for told, count, false in (
            (direct and row.breakdown <= 0.5, claims, wrong),
            (direct and row.breakdown == 0, every, wrong),
            (direct and row.breakdown <= weakest, own, wrong),
            ("every" in row.reading, cause, not ancestors.has_edge(row.source, row.target)),
        ):
            count[0] += told and false
            count[1] += told
    edges = fit.edges()
    for row in edges[edges["q_value"] < 0.05].itertuples():
        naive[0] += not truth.graph.has_edge(row.source, row.target)
        naive[1] += 1
    return holds, len(table), *claims, *every, *cause, truth.graph.number_of_edges(), *naive, *own


def soft(models, seed):
    for kind in ("scaled", "generic"):
        for convention, n in SETTINGS:
            counts = []
            for s in range(seed, seed + models):
                truth, _ = drawn(convention, s, kind=kind)
                fit = ld.fit(ld.simulate.sample_moments(truth, n, rng=[s, 3]), intervention="soft")
                counts.append(relations(fit, truth))
            c = np.array(counts).T
            print(
                f"{kind} {convention} n={n}  power {share(c[0], c[1])} of {c[1].sum()}  size {share(c[2], c[3])} of "
                f"{c[3].sum()}  partial_order(.95): true ones found {share(c[4], c[1])}, models with a false one "
                f"{share(c[5])}",
                flush=True,
            )


def relations(fit, truth):
    """Return ancestors found and all, unrelated pairs refused and all, relations that hold, whether one does not."""
    ancestors = set(nx.transitive_closure_dag(truth.graph).edges)
    p = fit.relations()
    called = {(row.source, row.target) for row in p.itertuples() if row.p_value < 0.05}
    pairs = set(zip(p["source"], p["target"], strict=True))
    unrelated = {(u, v) for u, v in pairs if (u, v) not in ancestors and (v, u) not in ancestors}
    sure = set(fit.partial_order(0.95).edges)
    return (
        len(called & ancestors), len(ancestors), len(called & unrelated), len(unrelated),
        len(sure & ancestors), bool(sure - ancestors),
    )  # fmt: skip


PARTS = {"known": known, "interval": interval, "sensitivity": sensitivity, "soft": soft}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    told = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    print(f"latentdag {ld.__version__}, commit {commit.strip()}, seed {told.seed}, {told.models} models, mean ± s.e.")
    for part in told.parts.split(","):
        print(f"\n{part}", flush=True)
        PARTS[part](told.models, told.seed)


if __name__ == "__main__":
    main()
