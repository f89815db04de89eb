"""Double perturbations predicted from singles, and how often bootstrap intervals cover.

First table: models are fitted to the control and the single contexts (n = 2,500 each), then all pairs of contexts are
sampled from the truth and scored. "wins" is the fraction of models whose predicted mean and covariance have a higher
held-out log-likelihood than the reference, over all pairs of the model; gains are nats per sample, median over models;
"to saturated" is what a better prediction could still gain. "mean alone" compares the two predicted means only, both
judged in the true covariance of the pair, so that the additive reference does not lose by its covariance.

Second table: coverage of percentile intervals for edge weights, in the row scaling of the fit.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/doubles.py [--models 100] [--seed 4] [--quick]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import warnings
from dataclasses import replace

import numpy as np

import latentdag as ld
from latentdag.inference.bootstrap import bootstrap
from latentdag.uncertainty.held_out import score

N = 2_500


def shifted(model, size, rng):
    """Every intervention also moves the mean of its target's noise, by ± ``size``/2 to ``size`` latent deviations."""
    sd = dict(zip(model.latents, np.sqrt(np.diagonal(model.law().latent_covariance)), strict=True))
    changed = {}
    for context, value in model.interventions.items():
        shift = float(rng.choice([-1, 1]) * rng.uniform(0.5, 1.0) * size * sd[value.target])
        changed[context] = ld.Intervention.of_changes({value.target: replace(value.changes[value.target], shift=shift)})
    return replace(model, interventions=changed)


def pairs_of(model):
    singles = list(model.interventions)
    return {f"{a}+{b}": (a, b) for i, a in enumerate(singles) for b in singles[:i]}


def mean_loss(truth, fit, train, pairs):
    """½ δᵀ Σ⁻¹ δ of the predicted and of the additive mean, averaged over pairs, Σ being the true covariance."""
    losses = []
    for parts in pairs.values():
        law = truth.intervene({truth.targets[c]: None for c in parts})
        predicted = fit.model.intervene({fit.targets[c]: None for c in parts}).mean
        additive = sum(train.means[train.index(c)] for c in parts) - train.means[0]
        losses.append([0.5 * (x - law.mean) @ law.precision @ (x - law.mean) for x in (predicted, additive)])
    return np.mean(losses, axis=0)


def doubles(convention, size, models, seed):
    rows = []
    for s in range(models):
        rng = np.random.default_rng([seed, s])
        truth = shifted(ld.simulate.random_model(convention=convention, rng=rng), size, rng)
        train = ld.simulate.sample_moments(truth, N, rng)
        pairs = pairs_of(truth)
        both = {name: ld.Intervention.combine(truth.interventions[c] for c in parts) for name, parts in pairs.items()}
        held_out = ld.simulate.sample_moments(replace(truth, interventions=both), N, rng)
        fit = ld.fit(train)
        table = score(fit, held_out, train, combinations=pairs)
        total = table.attrs["total"]
        each = table.drop(index=truth.control)["gain_over_additive"] > 0
        predicted, additive = mean_loss(truth, fit, train, pairs)
        rows.append(
            (
                total["gain_over_additive"],
                total["gain_over_control"],
                total["saturated"] - total["model"],
                each.mean(),
                additive - predicted,
            )
        )
    additive, control, left, each, mean = np.array(rows).T
    print(
        f"{convention:8s} {size:6.1f}   {np.mean(additive > 0):6.2f}  {np.mean(control > 0):6.2f}  {np.mean(each):6.3f}"
        f"   {np.median(additive):8.3f} {additive.min():8.3f}  {np.median(control):8.3f}  {np.median(left):8.4f} "
        f"{left.max():8.4f}   {np.mean(mean > 0):6.2f}",
        flush=True,
    )


def coverage(convention, kind, noise, search, models, replicates, seed, level=0.95):
    inside, found, failed = [], [], 0
    for s in range(models):
        rng = np.random.default_rng([seed, 1, s])
        truth = ld.simulate.random_model(3, 6, convention=convention, rng=rng)
        X, contexts = ld.simulate.sample(truth, N, rng, noise=noise)
        m = ld.Moments.from_samples(X, contexts, control=truth.control)
        options = {} if search else {"graph": truth.graph}
        fit = ld.fit(m, **options)
        data = {"data": (X, contexts), "n_blocks": 100} if kind == "samples" else {}
        result = bootstrap(m, replicates, kind, fit=fit, rng=s, **data, **options)
        failed += len(result.failures)
        # the truth in the units of the fit: the same entry of every row is one
        model = truth.reordered(fit.latents)
        pivot = np.argmax(np.abs(fit.model.unmixing), axis=1)
        model = model.rescaled(model.unmixing[np.arange(len(pivot)), pivot])
        intervals = {(row.source, row.target): (row.low, row.high) for row in result.intervals(level).itertuples()}
        for source, target in truth.graph.edges:
            found.append((source, target) in intervals)
            if found[-1]:
                low, high = intervals[source, target]
                weight = model.weights[model.latents.index(target), model.latents.index(source)]
                inside.append(low <= weight <= high)
    error = np.sqrt(level * (1 - level) / len(inside))
    print(
        f"{convention:8s} {kind:11s} {noise:9s} {'searched' if search else 'known':9s} {np.mean(inside):6.3f} ± "
        f"{error:.3f}  {len(inside):5d}  {np.mean(found):6.3f}  {failed:4d}",
        flush=True,
    )


def run(models=100, seed=4, replicates=100):
    """Print both tables."""
    warnings.simplefilter("ignore")
    print(f"Doubles from singles: d = 5, p = 10, n = {N}, {models} models a row, 10 pairs each, seed {seed}")
    print("                   wins of the model over           gain (nats per sample)                         wins,")
    print("convention shift additive control  pairs    additive    least   control  to saturated   most    mean alone")
    for convention in ("figures", "text"):
        for size in (0.0, 1.0, 3.0):
            doubles(convention, size, models, seed)
    print(f"\nCoverage of 95 % percentile intervals for weights: d = 3, p = 6, n = {N}, {replicates} replicates")
    print("convention kind      noise     graph      coverage       edges  found  failed replicates")
    for convention in ("figures", "text"):
        for kind, noise in (("parametric", "gaussian"), ("samples", "laplace"), ("parametric", "laplace")):
            coverage(convention, kind, noise, False, max(models * 2 // 5, 2), replicates, seed)
        coverage(convention, "parametric", "gaussian", True, max(models // 6, 2), replicates, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="few models and replicates")
    options = parser.parse_args()
    run(5 if options.quick else options.models, options.seed, 20 if options.quick else 100)


if __name__ == "__main__":
    main()
