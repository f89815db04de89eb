"""Other software on the draws of latentdag: hidden variables, targets and graph, each as far as it goes.

Every method sees the same samples of the paper's synthetic models. Three groups, because no other package on PyPI does
the whole task:

* latentdag: the default method, and the paper's own Algorithms 4–6 (``projection``);
* decompositions, with what they lack added in their favour: components are matched to the true latents by correlation,
  a context's target is the component whose variance it changes most, and gies finds the graph with these targets;
* ``true+…``: graph learners on the *true* latents, which is what one would have if the hidden variables were measured;
  gies is also told the targets.

Columns: mean absolute correlation with the true latents, and with their noises (what independent components look for);
share of contexts with the right target; F1 of the edges, an open direction counting as right; share of models with the
whole graph right; CPU seconds. Packages that are not installed are left out and named.

    OMP_NUM_THREADS=1 python benchmarks/comparison.py [--models 50] [--seed 1] [--json results/comparison.json]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import time
from importlib import metadata
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

import latentdag as ld
from others import GRAPHS, REPRESENTATIONS, quietly

COLUMNS = ("latents", "noises", "targets", "F1", "exact", "seconds")
PACKAGES = (
    "latentdag", "numpy", "scikit-learn", "python-picard", "pyriemann", "qndiag", "gies", "causaldag", "causal-learn",
    "lingam",
)  # fmt: skip


class Draw:
    """A model, its samples, and what is true of them."""

    def __init__(self, convention, n, seed):
        rng = np.random.default_rng(seed)
        self.truth = ld.simulate.random_model(convention=convention, rng=rng)
        self.X, self.contexts = ld.simulate.sample(self.truth, n, rng)
        self.names = self.truth.contexts
        self.edges = self.truth.weights.T != 0  # [i, j]: i → j
        self.targets = [self.truth.latents.index(self.truth.targets[c]) for c in self.names[1:]]

    def split(self, W):
        """Components by context, each with unit deviation in the control."""
        Z = self.X @ W.T
        parts = [Z[self.contexts == c] for c in self.names]
        return [part / parts[0].std(axis=0) for part in parts]

    def match(self, W, rows):
        """For each of the rows the best component, one each, and the mean of their correlations in the control."""
        S = self.truth.covariance()
        scale = np.sqrt(np.outer(np.diag(rows @ S @ rows.T), np.diag(W @ S @ W.T)))
        C = np.abs(rows @ S @ W.T) / scale
        _, place = linear_sum_assignment(-C)
        return place, float(C[np.arange(len(C)), place].mean())

    def components(self, W):
        """How well components match, and where each latent went."""
        place, latents = self.match(W, self.truth.unmixing)
        _, noises = self.match(W, self.truth.structural() @ self.truth.unmixing)
        return place, {"latents": latents, "noises": noises}

    def graph(self, found):
        """F1 of directed edges, and whether all are right; an open direction counts as right."""
        either = found & found.T
        right = (found & self.edges).sum()
        n_found = found.sum() - either.sum() / 2
        f1 = 2 * right / max(n_found + self.edges.sum(), 1) if self.edges.any() or found.any() else 1.0
        return {"F1": float(f1), "exact": float((found == self.edges).all())}


def ours(draw, method):
    m = ld.Moments.from_samples(draw.X, draw.contexts, control="control")
    fit = ld.fit(m, method=method)
    place, scores = draw.components(fit.model.unmixing)
    named = [fit.latents.index(fit.targets[c]) for c in draw.names[1:]]
    right = [place[true] == said for true, said in zip(draw.targets, named, strict=True)]
    found = fit.model.weights.T[np.ix_(place, place)] != 0
    return scores | {"targets": float(np.mean(right))} | draw.graph(found)


def decomposed(draw, method):
    W = quietly(REPRESENTATIONS[method], draw.X, draw.contexts, np.array(draw.names), draw.truth.n_latents)
    if W is None:
        return None
    place, scores = draw.components(W)
    parts = draw.split(W)
    change = np.abs(np.log([part.var(axis=0) for part in parts[1:]]))
    _, hit = linear_sum_assignment(-change)
    right = [place[true] == said for true, said in zip(draw.targets, hit, strict=True)]
    scores |= {"targets": float(np.mean(right))}
    found = quietly(GRAPHS["gies"], parts, hit.tolist())
    return scores if found is None else scores | draw.graph(found[0][np.ix_(place, place)])


def told(draw, method):
    answer = quietly(GRAPHS[method], draw.split(draw.truth.unmixing), draw.targets)
    if answer is None:
        return None
    found, hit = answer
    scores = draw.graph(found)
    if hit is not None:
        scores["targets"] = float(np.mean([said == {true} for true, said in zip(draw.targets, hit, strict=True)]))
    return scores


METHODS = {
    "latentdag": (ours, "likelihood"),
    "projection": (ours, "projection"),
    **{name: (decomposed, name) for name in REPRESENTATIONS},
    **{f"true+{name}": (told, name) for name in GRAPHS},
}


def cell(convention, n, models, seed):
    """One row per method, each the mean over models."""
    found, absent = {name: [] for name in METHODS}, set()
    for s in range(models):
        draw = Draw(convention, n, [seed, s])
        for name, (run, method) in METHODS.items():
            if name in absent:
                continue
            start = time.process_time()
            scores = run(draw, method)
            if scores is None:
                absent.add(name)
            else:
                found[name].append(scores | {"seconds": time.process_time() - start})
    for name in [name for name in METHODS if found[name]]:
        means = {c: float(np.mean([row[c] for row in found[name]])) for c in COLUMNS if c in found[name][0]}
        yield {"convention": convention, "n": n, "method": name, **means}


def installed(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    options = parser.parse_args()
    versions = {package: installed(package) for package in PACKAGES}
    print(f"d = 5, p = 10, density 0.75, {options.models} models a cell, seed {options.seed}, one thread")
    print(", ".join(f"{name} {number or 'not installed'}" for name, number in versions.items()))
    print(f"\n{'convention':10s} {'n':>6s}  {'method':17s}" + "".join(f"{c:>9s}" for c in COLUMNS))
    rows = []
    for convention in ("figures", "text"):
        for n in (2_500, 10_000):
            for row in cell(convention, n, options.models, options.seed):
                rows.append(row)
                shown = "".join(f"{row[c]:9.3f}" if c in row else f"{'–':>9s}" for c in COLUMNS)
                print(f"{convention:10s} {n:6d}  {row['method']:17s}{shown}", flush=True)
    if options.json:
        record = {"models": options.models, "seed": options.seed, "versions": versions, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
