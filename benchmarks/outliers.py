"""Outlying rows: how often the exact graph is found with plain and robust moments, and what those cost without.

First table: models of the paper, rows of every context drawn, then a share of them replaced. *scattered*: each its own
way, ten deviations in a random direction of all features; *together*: all at one place, ten deviations away, a place of
its own for every context; *single*: one feature of each is off by ten deviations; *stretched*: five times as far from
the mean as they were, so that they stay in the latents' dimensions; *in turn*: one of these four, another one in every
model. Clean rows come first: no robust fit can be better than the plain one of those.

Second table: Gaussian rows without outliers. Mean squared error of plain over that of robust moments, for means and for
all entries of the covariance, and how many rows are called outlying.

Third table: heavy tails, no outliers: noises of the latents are t with 3 degrees of freedom.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/outliers.py [--models 40] [--seed 100000] [--quick]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import warnings

import numpy as np

import latentdag as ld
from latentdag import metrics
from latentdag.errors import LatentDAGWarning

KINDS = ("scattered", "together", "single", "stretched")
CELLS = [
    # convention, latents, features, rows in each context, share of the models
    ("text", 5, 5, 2_500, 1.0),
    ("text", 5, 10, 2_500, 1.0),
    ("figures", 5, 10, 500, 1.0),
    ("figures", 8, 16, 2_500, 0.3),
]
SHARES = (0.005, 0.01, 0.03)
EFFICIENCY = [
    # features, rows, draws
    (1, 500, 2000),
    (2, 500, 1000),
    (5, 100, 500),
    (5, 500, 500),
    (5, 2500, 200),
    (10, 500, 200),
    (20, 500, 60),
    (50, 250, 20),
    (50, 500, 20),
    (50, 10000, 6),
]


def contaminated(X, contexts, share, kind, rng):
    """Replace a share of the rows of every context."""
    X = X.copy()
    for label in np.unique(contexts):
        rows = np.flatnonzero(contexts == label)
        mean, sd = X[rows].mean(axis=0), X[rows].std(axis=0)
        bad = rng.choice(rows, round(share * len(rows)), replace=False)
        size = (len(bad), X.shape[1])
        if kind == "scattered":
            X[bad] += 10 * sd * rng.normal(size=size)
        elif kind == "together":
            X[bad] = mean + 10 * sd * rng.normal(size=size[1]) + 0.1 * sd * rng.normal(size=size)
        elif kind == "stretched":
            X[bad] = mean + 5 * (X[bad] - mean)
        else:
            X[bad, rng.integers(size[1], size=len(bad))] += 10 * sd.max() * rng.choice([-1, 1], size=len(bad))
    return X


def score(truth, X, contexts, robust):
    """Return whether the exact graph is found, the number of false edges, and the outliers' share."""
    m = ld.Moments.from_samples(X, contexts, control=truth.control, feature_names=truth.feature_names, robust=robust)
    try:
        fit = ld.fit(m)
        extra = set(fit.graph.edges) - set(truth.graph.edges)
        return metrics.shd(truth, fit) == 0, len(extra), 0 if m.outliers is None else m.outliers.sum() / len(X)
    except ValueError:
        return False, np.nan, np.nan


def graphs(convention, d, p, n, models, seed):
    """Print one line for every share and kind."""
    found = {}
    for s in range(models):
        rng = np.random.default_rng([seed, d, p, n, s])
        truth = ld.simulate.random_model(d, p, 0.5, convention, rng)
        X, contexts = ld.simulate.sample(truth, n, rng)
        contexts = np.asarray(contexts)
        for robust in (False, True):
            found.setdefault((0.0, "clean", robust), []).append(score(truth, X, contexts, robust))
        for share in SHARES:
            for kind in KINDS if share == 0.01 else (KINDS[s % 4],):
                bad = contaminated(X, contexts, share, kind, rng)
                named = share, kind if share == 0.01 else "in turn"
                found.setdefault((*named, True), []).append(score(truth, bad, contexts, True))
                if share == 0.01 and kind == KINDS[s % 4]:
                    found.setdefault((share, "in turn", False), []).append(score(truth, bad, contexts, False))
    for (share, kind, robust), rows in found.items():
        exact, false, out = np.array(rows, dtype=float).T
        rate, error = exact.mean(), np.sqrt(exact.mean() * (1 - exact.mean()) / models)
        moments = "robust" if robust else "plain"
        print(
            f"{convention:8s} {d:2d} {p:3d} {n:6d} {models:7d}  {share:6.3f} {kind:10s} {moments:7s} {rate:6.3f} "
            f"±{error:.3f} {np.nanmean(false):6.2f} {np.nanmean(out):9.4f}",
            flush=True,
        )


def heavy(d, p, n, models, seed):
    """Print exact graphs where noises of latents have heavy tails."""
    found = {False: [], True: []}
    for s in range(models):
        rng = np.random.default_rng([seed, 3, d, p, n, s])
        truth = ld.simulate.random_model(d, p, 0.5, "text", rng)
        X, contexts = t_rows(truth, n, rng)
        for robust in found:
            found[robust].append(score(truth, X, contexts, robust))
    for robust in (False, True):
        exact, false, _ = np.array(found[robust], dtype=float).T
        rate, error = exact.mean(), np.sqrt(exact.mean() * (1 - exact.mean()) / models)
        moments = "robust" if robust else "plain"
        print(
            f"text     {d:2d} {p:3d} {n:6d} {models:7d}       – t3         {moments:7s} {rate:6.3f} ±{error:.3f} "
            f"{np.nanmean(false):6.2f}",
            flush=True,
        )


def t_rows(truth, n, rng):
    """Return rows of a model whose noises are t with 3 degrees of freedom, of the variances that they should have."""
    rows, labels = [], []
    G = np.linalg.pinv(truth.unmixing)
    for label in truth.contexts:
        B = truth.structural(label)  # rows divided by the noises' deviations: B z has unit variance
        noise = rng.standard_t(3, size=(n, len(B))) / np.sqrt(3)
        rows.append(np.linalg.solve(B, noise.T).T @ G.T)
        labels += [label] * n
    return np.vstack(rows), np.array(labels, dtype=object)


def efficiency(p, n, draws, seed):
    """Print the ratio of mean squared errors of plain and robust moments of Gaussian rows."""
    error = np.zeros((draws, 2, 2))
    outlying = 0
    for s in range(draws):
        rng = np.random.default_rng([seed, p, n, s])
        X = rng.normal(size=(n, p))
        for robust in (False, True):
            m = ld.Moments.from_samples(X, ["a"] * n, control=None, robust=robust)
            error[s, int(robust)] = (m.means**2).mean(), ((m.covariances - np.eye(p)) ** 2).mean()
        outlying += m.outliers.sum()
    ratio = mean, covariance = error[:, 0].mean(axis=0) / error[:, 1].mean(axis=0)
    spread = (error[:, 0] - ratio * error[:, 1]).std(axis=0) / error[:, 1].mean(axis=0) / np.sqrt(draws)
    print(
        f"{p:3d} {n:6d} {draws:6d}   {mean:5.3f} ±{spread[0]:.3f}   {covariance:5.3f} ±{spread[1]:.3f}   "
        f"{outlying / draws / n:.5f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="four models a cell, two cells")
    options = parser.parse_args()
    models = 4 if options.quick else options.models
    warnings.simplefilter("ignore", LatentDAGWarning)  # of outlying rows, and of fits to them
    print(f"exact graphs (and false edges); density 0.5, seed {options.seed}, ± one standard error, one thread")
    print("convention d  p      n  models   share kind       moments  exact         false  outlying")
    for convention, d, p, n, part in CELLS[1:3] if options.quick else CELLS:
        graphs(convention, d, p, n, max(1, round(part * models)), options.seed)
    for p in (5, 10):
        heavy(5, p, 2_500, models, options.seed)
    print("\nefficiency without outliers: squared error of plain over robust moments, ± one standard error")
    print("  p      n  draws   means          covariances    outlying")
    for p, n, draws in EFFICIENCY:
        efficiency(p, n, 3 if options.quick else draws, options.seed)


if __name__ == "__main__":
    main()
