"""Features measured with noise: graph, errors, coverage, what "auto" decides, and counts.

Models are the paper's with density .5. Every feature has noise of its own; its deviation is ``noise`` times that of the
feature's signal, give or take 20 %. ``n`` samples in every context.

*Graphs.* Whether the exact graph is found, edges too many and too few, false among edges at q < .05 and true among
those with probability .95 or more, by the fit with noise="auto" and with noise="none" (the default).

*Errors.* At the true graph: mean squared error of standardised weights, rows of H and noise variances over the variance
that the Fisher information of the noisy model promises (the Cramér–Rao bound), and coverage of 95 % intervals.

*Decisions.* How often "auto" takes noise where there is noise, with the right number of factors, and none where exact
features have dimensions downstream of the latents.

*Growing.* False edges as samples grow. *Background.* Factors that no context targets. *Latents.* Correlation of
estimated with true latents, beside the best linear one. *Counts.* Poisson counts of linear rates, depth gamma(10),
beside a fit of the rates themselves.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/noise.py [--models 40] [--seed 100000] [--parts graphs,errors,…]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
import warnings

import numpy as np

import latentdag as ld
from latentdag.methods.design import prepare

GRAPHS = [
    # convention, latents, features, noise, samples, share of the models
    ("text", 5, 7, 0.5, 10_000, 1.0),
    ("text", 5, 10, 0.1, 2_500, 1.0),
    ("text", 5, 10, 0.5, 1_000, 1.0),
    ("text", 5, 10, 0.5, 2_500, 1.0),
    ("text", 5, 10, 0.5, 10_000, 1.0),
    ("figures", 5, 10, 0.5, 10_000, 1.0),
    ("text", 5, 10, 1.0, 10_000, 1.0),
    ("text", 5, 50, 1.0, 10_000, 1.0),
    ("text", 5, 200, 0.5, 2_500, 0.5),
    ("text", 10, 15, 0.5, 10_000, 0.3),
    ("figures", 10, 20, 0.5, 10_000, 0.3),
]
ERRORS = [
    ("text", 5, 7, 0.3, 10_000, 1.0),
    ("text", 5, 7, 0.5, 10_000, 1.0),
    ("figures", 5, 7, 0.5, 10_000, 1.0),
    ("text", 5, 10, 0.5, 10_000, 1.0),
    ("text", 5, 12, 1.0, 10_000, 1.0),
    ("text", 5, 50, 1.0, 10_000, 0.5),
    ("figures", 10, 15, 0.5, 10_000, 0.3),
]
DECISIONS = [(5, 7), (5, 10), (5, 20), (10, 15)]
COUNTS = [(0.5, 5_000), (2.0, 1_000), (2.0, 5_000), (3.0, 5_000), (5.0, 5_000), (20.0, 1_000)]


def noisy(convention, d, p, noise, n, seed):
    """Draw a model, noise variances and moments of noisy features."""
    rng = np.random.default_rng(seed)
    truth = ld.simulate.random_model(d, p, density=0.5, convention=convention, rng=rng)
    deviation = np.sqrt(np.mean([np.diagonal(truth.covariance(c)) for c in truth.contexts], axis=0))
    psi = (noise * deviation * np.exp(rng.normal(0, 0.2, p))) ** 2
    covariances, means = [], []
    for context in truth.contexts:
        X = truth.sample(n, context, rng) + rng.normal(size=(n, p)) * np.sqrt(psi)
        covariances.append(np.cov(X.T))
        means.append(X.mean(axis=0))
    names = {"contexts": truth.contexts, "control": truth.control, "feature_names": truth.feature_names}
    return truth, psi, ld.Moments.from_covariances(covariances, n, means=means, **names)


def downstream(convention, d, p, n, seed):
    """Draw moments of exact features, with p − d dimensions that depend on the latents and on noise of their own."""
    rng = np.random.default_rng(seed)
    plain = ld.simulate.random_model(d, p, density=0.5, convention=convention, rng=rng)
    beside = np.linalg.svd(plain.unmixing)[2][d:].T
    A = rng.normal(size=(p - d, p - d))
    model = ld.LatentModel(
        plain.unmixing,
        plain.weights,
        plain.noise_variance,
        plain.interventions,
        plain.latents,
        plain.control,
        plain.feature_names,
        loadings=plain.mixing + beside @ rng.normal(size=(p - d, d)),
        residual=beside @ A @ A.T @ beside.T,
    )
    return model, ld.simulate.sample_moments(model, n, rng=rng)


def judged(truth, fit):
    """Return exact, extra, missed, false and all at q < .05, true and all with probability .95."""
    true, found, table = set(truth.graph.edges), set(fit.graph.edges), fit.edges()
    right = np.array([pair in true for pair in zip(table["source"], table["target"], strict=True)], dtype=bool)
    called, sure = (table["q_value"] < 0.05).to_numpy(), (table["probability"] >= 0.95).to_numpy()
    counted = (~right & called).sum(), called.sum(), (right & sure).sum(), sure.sum()
    return true == found, len(found - true), len(true - found), *counted


def line(name, rows, seconds=None):
    """Print one line of graphs."""
    rows = np.array(rows, dtype=float)
    exact, n = rows[:, 0].mean(), len(rows)
    extra, missed = rows[:, 1].mean(), rows[:, 2].mean()
    false, called, true, sure = rows[:, 3:7].sum(axis=0)
    spent = "" if seconds is None else f"  {seconds:5.2f} s"
    print(
        f"{name:<46}{n:>4}  exact {exact:.2f} ± {np.sqrt(exact * (1 - exact) / n):.2f}  extra {extra:5.2f}  missed "
        f"{missed:5.2f}  false at q < .05 {false / max(called, 1):.3f} of {called:4.0f}, {false / n:.2f} per model  "
        f"true at P ≥ .95 {true / max(sure, 1):.3f} of {sure:4.0f}{spent}",
        flush=True,
    )


def graphs(models, seed):
    for convention, d, p, noise, n, share in GRAPHS:
        for option in ("auto", "none"):
            rows, start = [], time.process_time()
            for s in range(round(models * share)):
                truth, _, m = noisy(convention, d, p, noise, n, seed + s)
                rows.append(judged(truth, ld.fit(m, noise=option)))
            spent = (time.process_time() - start) / len(rows)
            line(f"{convention} d={d} p={p} noise {noise} n={n} {option}", rows, spent)


def errors(models, seed):
    for convention, d, p, noise, n, share in ERRORS:
        found = {}
        for s in range(round(models * share)):
            truth, psi, m = noisy(convention, d, p, noise, n, seed + s)
            fit = ld.fit(m, noise="features", n_latents=d, graph=truth.graph)
            true = truth.rescaled("unit-variance")
            G, mine = true.mixing, fit.model.reordered(true.latents).rescaled("unit-variance").mixing
            sign = dict(zip(true.latents, np.sign((G * mine).sum(axis=0)), strict=True))
            H = np.linalg.solve(G.T / psi @ G, G.T / psi)
            at, of = true.latents.index, list(true.feature_names).index
            for row in fit.confidence_intervals(scaling="unit-variance").itertuples():
                if row.quantity == "weight":
                    value = true.weights[at(row.row), at(row.column)] * sign[row.row] * sign[row.column]
                elif row.quantity == "unmixing":
                    value = H[at(row.row), of(row.column)] * sign[row.row]
                elif row.quantity == "feature_noise":
                    value = psi[of(row.row)]
                else:
                    continue
                z = (row.estimate - value) / row.std_error
                found.setdefault(row.quantity, []).append((s, z * z, row.lower <= value <= row.upper))
        for quantity, rows in found.items():
            model, square, inside = np.array(rows).T
            means = [[x[model == s].mean() for s in np.unique(model)] for x in (square, inside)]
            spread = [np.std(x, ddof=1) / np.sqrt(len(x)) for x in means]
            name = f"{convention} d={d} p={p} noise {noise} n={n}"
            print(
                f"{name:<40}{round(models * share):>4}  {quantity:<14} error/bound {square.mean():.2f} ± "
                f"{spread[0]:.2f}  coverage {inside.mean():.3f} ± {spread[1]:.3f}  of {len(square)}",
                flush=True,
            )


def decisions(models, seed):
    for d, p in DECISIONS:
        for noise in (0.1, 0.3, 1.0, None):
            for n in (500, 2_500):
                right, number = 0, round(models / 2)
                for s in range(number):
                    convention = ("text", "figures")[s % 2]
                    if noise is None:
                        _, m = downstream(convention, d, p, n, seed + s)
                    else:
                        _, _, m = noisy(convention, d, p, noise, n, seed + s)
                    reduction = prepare(m, ld.Options(noise="auto")).reduction
                    right += reduction is None if noise is None else reduction is not None and reduction.r == d
                what = "exact, downstream" if noise is None else f"noise {noise}"
                print(f"d={d} p={p} {what:<18} n={n:<6} right in {right} of {number}", flush=True)


def growing(models, seed):
    for n in (1_000, 10_000, 100_000):
        for option in ("auto", "none"):
            draws = (noisy("text", 5, 10, 0.5, n, seed + s) for s in range(round(models / 2)))
            line(f"text d=5 p=10 noise 0.5 n={n} {option}", [judged(t, ld.fit(m, noise=option)) for t, _, m in draws])


def background(models, seed):
    rows, right = [], 0
    for s in range(round(models / 2)):
        rng = np.random.default_rng(seed + s)
        truth, psi, _ = noisy("text", 5, 20, 0.5, 2_500, seed + s)
        B = rng.normal(size=(20, 3)) * np.sqrt(psi)[:, None] * 2
        model = ld.LatentModel(
            truth.unmixing, truth.weights, truth.noise_variance, truth.interventions, truth.latents, truth.control,
            truth.feature_names, loadings=truth.mixing, residual=B @ B.T + np.diag(psi),
        )  # fmt: skip
        fit = ld.fit(ld.simulate.sample_moments(model, 2_500, rng=rng), noise="auto")
        right += fit.details.get("n_factors") == 8
        rows.append(judged(truth, fit))
    line("text d=5 p=20 noise 0.5 n=2500, 3 background", rows)
    print(f"number of factors right in {right} of {len(rows)}")


def latents(models, seed):
    for p, noise in ((10, 0.5), (200, 0.5)):
        found = {"auto": [], "none": [], "best linear": []}
        for s in range(max(4, round(models / 8))):
            truth, psi, m = noisy("text", 5, p, noise, 2_500, seed + s)
            rng = np.random.default_rng(seed + s)
            law = truth.law()
            Z = rng.normal(size=(5_000, 5)) @ law.noise_response.T
            X = truth.offset + Z @ truth.mixing.T + rng.normal(size=(5_000, p)) * np.sqrt(psi)
            Sigma = truth.covariance() + np.diag(psi)
            best = (X - truth.offset) @ np.linalg.solve(Sigma, truth.mixing @ law.latent_covariance)
            guesses = {"best linear": best}
            for option in ("auto", "none"):
                fit = ld.fit(m, noise=option)
                guesses[option] = fit.model.reordered(truth.latents).transform(X)
            for name, guess in guesses.items():
                found[name] += [abs(np.corrcoef(Z[:, i], guess[:, i])[0, 1]) for i in range(5)]
        said = ", ".join(f"{name} {np.mean(values):.3f}" for name, values in found.items())
        print(f"text d=5 p={p} noise {noise} n=2500: correlation {said} ({len(found['auto'])} latents)", flush=True)


def counts(models, seed):
    p = 60
    for mean, n in COUNTS:
        rows = {"counts": [], "log1p, none": [], "rates": []}
        for s in range(round(models / 2)):
            rng = np.random.default_rng(seed + s)
            truth = ld.simulate.random_model(5, p, density=0.5, convention="text", rng=rng)
            size = np.sqrt(np.mean([np.diagonal(truth.covariance(c)) for c in truth.contexts], axis=0))
            blocks, true_rates, labels = [], [], []
            depth = rng.gamma(10, 0.1, n * len(truth.contexts))
            for k, context in enumerate(truth.contexts):
                rate = mean * (1 + 0.3 * truth.sample(n, context, rng) / size)
                true_rates.append(rate)
                blocks.append(rng.poisson(depth[k * n : k * n + n, None] * np.maximum(rate, 0)))
                labels += [context] * n
            X, R = np.vstack(blocks), np.vstack(true_rates)
            fits = {
                "counts": ld.fit(ld.Moments.from_counts(X, labels, control=truth.control, depth=depth)),
                "log1p, none": ld.fit(
                    ld.Moments.from_samples(np.log1p(X / depth[:, None]), labels, control=truth.control), noise="none"
                ),
                "rates": ld.fit(ld.Moments.from_samples(R, labels, control=truth.control)),
            }
            for name, fit in fits.items():
                rows[name].append(judged(truth, fit))
        for name, mine in rows.items():
            line(f"counts p=60 mean {mean} n={n} {name}", mine)


PARTS = {part.__name__: part for part in (graphs, errors, decisions, growing, background, latents, counts)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"latentdag {ld.__version__}, {given.models} models, seed {given.seed}")
    for part in given.parts.split(","):
        print(f"\n{part}")
        PARTS[part](given.models, given.seed)


if __name__ == "__main__":
    main()
