"""Size and power of every test, on the paper's synthetic models.

Size: the share of true nulls rejected at 5 %; it should lie in [.03, .07]. Rank tests are sized on contexts whose
target has parents, which change exactly two directions (one on a source changes only one, and is rejected less often).
The omnibus test is sized with the true graph given, on many models, and after a full search, on fewer. The verdict of
the membership test is sized as a whole, search included: "verdict" on data of the model, "intruder" with one context
that hits a second latent. Both draw from seeds that nothing was tuned on.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/calibration_tests.py [--models 1000] [--sections rank robust …]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
from scipy import stats

import latentdag as ld
from latentdag.inference.control import observational_context_test
from latentdag.inference.membership import membership_test
from latentdag.inference.omnibus import omnibus_test
from latentdag.inference.ranks import latent_dimension_test, rank_test
from latentdag.inference.shared_targets import target_groups

CONVENTIONS = ("figures", "text")
CELLS = [(d, n) for d in (5, 10) for n in (500, 2500)]
NOISES = ("laplace", "exponential", "uniform")


def size(p):
    return float(np.mean(np.asarray(p) < 0.05))


def row(*cells):
    print("  ".join(f"{c:.3f}" if isinstance(c, float) else f"{c!s:>11}" for c in cells), flush=True)


def rank_two(model, rng):
    """A random context that changes exactly two directions, or None."""
    inside = [c for c, t in model.targets.items() if model.graph.in_degree(t)]
    return inside[rng.integers(len(inside))] if inside else None


def one_context(d, n, s, convention="figures", noise="gaussian", n_targets=1):
    """Samples of the control and of one context."""
    rng = np.random.default_rng([s, d, n])
    model = ld.simulate.random_model(d, d, convention=convention, rng=rng, n_targets=n_targets)
    context = rank_two(model, rng) if n_targets == 1 else model.contexts[1]
    if context is None:
        return None
    X = np.vstack([model.sample(n, c, rng, noise) for c in (None, context)])
    labels = ["control"] * n + ["k"] * n
    return ld.Moments.from_samples(X, labels, control="control"), (X, labels)


def rank_sizes(models):
    print("\nRank ≤ 2, Gaussian samples: size, and power against two targets")
    row("convention", "d", "n", "size", "power")
    for convention in CONVENTIONS:
        for d, n in CELLS:
            p, power = [], []
            for s in range(models):
                for kept, targets in ((p, 1), (power, 2)):
                    rng = np.random.default_rng([s, d, n, targets])
                    model = ld.simulate.random_model(d, d, convention=convention, rng=rng, n_targets=targets)
                    context = rank_two(model, rng) if targets == 1 else model.contexts[1]
                    if context is not None:
                        m = ld.simulate.sample_moments(model, n, rng=rng).select([context])
                        kept.append(rank_test(m)["p_value"].iloc[0])
            row(convention, d, n, size(p), size(power))


def robust_sizes(models):
    print("\nRank ≤ 2, other samples: size of the Gaussian and of the robust test, and power of the robust one")
    row("noise", "d", "n", "Gaussian", "robust", "power")
    for noise in ("gaussian", *NOISES):
        for d, n in CELLS:
            drawn = [one_context(d, n, s, noise=noise) for s in range(models)]
            tables = [rank_test(m, data=data) for m, data in filter(None, drawn)]
            power = []
            for s in range(models // 4):
                m, data = one_context(d, n, s, noise=noise, n_targets=2)
                power.append(rank_test(m, data=data)["robust_p_value"].iloc[0])
            p = [[t[c].iloc[0] for t in tables] for c in ("p_value", "robust_p_value")]
            row(noise, d, n, size(p[0]), size(p[1]), size(power))


def auc(inside, outside):
    """Probability that a model in the class scores higher."""
    return float(stats.mannwhitneyu(inside, outside).statistic / (len(inside) * len(outside)))


def membership(models):
    """As in the paper: 500 models with one target per context, 500 with two; d = 5, p = 10, n = 2500."""
    print("\nMembership, n = 2500: area under the curve by smallest p-value and by smallest ρ₂ of a model's contexts")
    row("convention", "test", "rho_2", "verdict: in kept", "out rejected")
    for convention in CONVENTIONS:
        p, rho, kept = {}, {}, {}
        for targets in (1, 2):
            tables = []
            for s in range(models // 2):
                model = ld.simulate.random_model(convention=convention, n_targets=targets, rng=[s, targets])
                m = ld.simulate.sample_moments(model, 2500, rng=s)
                tables.append(rank_test(m))
            # on a log scale: p-values of rejected models underflow
            p[targets] = [-(t["statistic"] / t["dof"]).max() for t in tables]
            rho[targets] = [t["rho"].min() for t in tables]
            kept[targets] = np.mean([t["p_value"].min() * len(t) > 0.05 for t in tables])
        row(convention, auc(p[1], p[2]), auc(rho[1], rho[2]), float(kept[1]), float(1 - kept[2]))


#: Verdict: d, p, n, convention, whether counts are unequal (a fifth of n to five times n), whether there are means, and
#: what share of the models is drawn: fits with many latents take long.
VERDICTS = [
    (5, 5, 500, "text", False, True, 1.5), (10, 10, 500, "text", False, True, 0.4),
    (5, 10, 2500, "figures", False, True, 1.5), (15, 15, 2500, "figures", False, True, 0.1),
    (5, 5, 10000, "text", False, True, 1.5), (10, 20, 2500, "figures", True, True, 0.3),
    (5, 5, 2500, "text", True, False, 1.0), (15, 15, 500, "text", False, True, 0.1),
    (5, 5, 500, "figures", True, True, 1.0), (10, 10, 10000, "text", False, False, 0.2),
]  # fmt: skip
FIRST_SEED = 200_000


def with_error(hits):
    """A share, with its standard error."""
    share = float(np.mean(hits))
    return f"{share:.3f} ± {np.sqrt(max(share * (1 - share), 1 / len(hits) / 4) / len(hits)):.3f}"


def without_means(m):
    """The same moments as someone gives them who has covariances only."""
    return ld.Moments.from_covariances(m.covariances, m.counts, contexts=m.contexts, control=m.control)


def verdict(models):
    print("\nVerdict on data of the model, order and graph searched: refused at 5 %, by either part, and models")
    row("d", "p", "n", "convention", "counts", "means", "refused", "omnibus", "rank", "models", "s per model")
    for d, p, n, convention, unequal, means, share in VERDICTS:
        began, refused, parts = time.perf_counter(), [], []
        for s in range(FIRST_SEED, FIRST_SEED + round(models * share)):
            rng = np.random.default_rng([s, d, p, n])
            model = ld.simulate.random_model(d, p, convention=convention, rng=rng)
            spread = rng.uniform(-1.0, 1.0, d + 1) * unequal
            m = ld.simulate.sample_moments(
                model, dict(zip(model.contexts, (n * 5**spread).astype(int), strict=True)), rng=rng
            )
            found = membership_test(m if means else without_means(m))
            refused.append(not found.in_model)
            parts.append((found.omnibus.p_value <= 0.04, found.summary["reject_fwer"].any()))
        said = np.mean(parts, axis=0).tolist()
        counts = "unequal" if unequal else "equal"
        seconds = (time.perf_counter() - began) / len(refused)
        row(d, p, n, convention, counts, "yes" if means else "no", with_error(refused), *said, len(refused), seconds)


def intruder(models):
    print("\nOne context with a second target: found; named, and no other, if found; others named; mean of the largest")
    print("misfit, in standard deviations")
    row("convention", "d", "n", "found", "named", "others named", "misfit", "models")
    for convention in CONVENTIONS[::-1]:
        for d, n in CELLS:
            found, named, wrong, size = [], [], [], []
            for s in range(FIRST_SEED, FIRST_SEED + models // (3 if d == 5 else 10)):
                rng = np.random.default_rng([s, d, n])
                model = ld.simulate.random_model(d, d, convention=convention, rng=rng)
                context = model.contexts[1 + rng.integers(d)]
                target, other = (
                    model.targets[context],
                    rng.choice([x for x in model.latents if x != model.targets[context]]),
                )
                drawn = rng.uniform(6.0, 8.0, 2) ** (1 if convention == "text" else -2)
                hit = ld.Intervention([target, str(other)], variance=drawn.tolist())
                model = replace(model, interventions={**model.interventions, context: hit})
                test = membership_test(ld.simulate.sample_moments(model, n, rng=rng))
                found.append(not test.in_model)
                if found[-1]:
                    named.append(test.drop == (context,))
                    wrong.append(bool(test.drop) and context not in test.drop)
                    size.append(max(test.omnibus.misfit.values()))
            row(
                convention,
                d,
                n,
                with_error(found),
                with_error(named),
                float(np.mean(wrong)),
                float(np.mean(size)),
                len(found),
            )


def true_graph(model):
    """Over the names that a fit gives the latents."""
    name = {target: context for context, target in model.targets.items()}
    graph = nx.DiGraph()
    graph.add_nodes_from(model.targets)
    graph.add_edges_from((name[a], name[b]) for a, b in model.graph.edges)
    return graph


def omnibus(models):
    print("\nOmnibus, Gaussian samples: size (number of models), by whether means are used")
    row("graph", "d", "n", "means", "no means", "models")
    for searched in (False, True):
        for d, n in CELLS:
            number = models // ((5 if d == 5 else 25) if searched else (1 if d == 5 else 5))
            p = {True: [], False: []}
            for s in range(number):
                model = ld.simulate.random_model(d, d, rng=[s, d])
                m = ld.simulate.sample_moments(model, n, rng=[s, d, n])
                for means, kept in p.items():
                    if searched and not means:
                        continue
                    given = {} if searched else {"graph": true_graph(model)}
                    kept.append(omnibus_test(ld.fit(m, means=means, **given), m).p_value)
            row("searched" if searched else "given", d, n, size(p[True]), size(p[False]) if p[False] else "-", number)


def omnibus_robust(models):
    print("\nOmnibus, other samples, d = 5, true graph: size of the Gaussian and of the robust test")
    row("noise", "n", "Gaussian", "robust", "models")
    for noise in NOISES:
        for n in (500, 2500):
            p = {False: [], True: []}
            for s in range(models // 4):
                model = ld.simulate.random_model(5, 5, rng=[s, n])
                X, labels = ld.simulate.sample(model, n, rng=s, noise=noise)
                m = ld.Moments.from_samples(X, labels, control="control")
                found = ld.fit(m, graph=true_graph(model))
                for robust, kept in p.items():
                    kept.append(omnibus_test(found, m, (X, labels) if robust else None).p_value)
            row(noise, n, size(p[False]), size(p[True]), models // 4)


def omnibus_power(models):
    print(
        "\nOmnibus against what rank cannot see: empty graph, two targets per context, d = 5 (rank 2 in every context)"
    )
    row("n", "rank rejects", "omnibus rejects")
    for n in (500, 2500):
        by_rank, by_fit = [], []
        for s in range(models // 20):
            model = ld.simulate.random_model(5, 5, density=0.0, n_targets=2, rng=s)
            m = ld.simulate.sample_moments(model, n, rng=s)
            by_rank.append(float(rank_test(m)["p_value"].min() * 5 < 0.05))
            by_fit.append(omnibus_test(ld.fit(m), m).p_value)
        row(n, float(np.mean(by_rank)), size(by_fit))


def dimension(models):
    print("\nLatent dimension with measurement noise, twice as many features as latents: right, too many, too few")
    row("d", "n", "right", "too many", "too few")
    for d, n in CELLS:
        found = []
        for s in range(models // 5):
            rng = np.random.default_rng([s, d, n])
            model = ld.simulate.random_model(d, 2 * d, convention="text", rng=rng)
            X, labels = ld.simulate.sample(model, n, rng)
            X = X + 0.5 * rng.standard_normal(X.shape)
            found.append(latent_dimension_test(ld.Moments.from_samples(X, labels, control="control")).n_latents - d)
        found = np.array(found)
        row(d, n, float(np.mean(found == 0)), float(np.mean(found > 0)), float(np.mean(found < 0)))


def twice_hit(d, convention, rng):
    """A model in which every latent has two contexts, of different strength."""
    model = ld.simulate.random_model(d, d, convention=convention, rng=rng)
    again = {
        f"{c}'": ld.Intervention(v.target, variance=v.changes[v.target].variance * rng.uniform(1.5, 3.0))
        for c, v in model.interventions.items()
    }
    return ld.LatentModel(
        model.unmixing, model.weights, model.noise_variance, model.interventions | again, latents=model.latents
    )


def grouping(models):
    print("\nTwo contexts per target: size and power of the pairwise test, cosines (5th percentile of same, 95th of")
    print("different targets), share of models with all groups right")
    row("convention", "d", "n", "size", "power", "same", "different", "right")
    for convention in CONVENTIONS:
        for d, n in CELLS:
            p, cosine, right = {True: [], False: []}, {True: [], False: []}, []
            for s in range(models // 10):
                rng = np.random.default_rng([s, d, n])
                model = twice_hit(d, convention, rng)
                found = target_groups(ld.simulate.sample_moments(model, n, rng=rng))
                for pair in found.summary.itertuples():
                    same = model.targets[pair.context] == model.targets[pair.other]
                    p[same].append(pair.p_value)
                    cosine[same].append(pair.cosine)
                pure = all(len({model.targets[c] for c in group}) == 1 for group in found.groups)
                right.append(float(pure and len(found.groups) == d))
            low, high = float(np.quantile(cosine[True], 0.05)), float(np.quantile(cosine[False], 0.95))
            row(convention, d, n, size(p[True]), size(p[False]), low, high, float(np.mean(right)))


def control(models):
    print("\nThe control among all contexts, d = 4: truth best, truth in the 95 % set, truth alone in it")
    row("convention", "n", "best", "in the set", "alone", "models")
    for convention in CONVENTIONS:
        for n in (500, 2500):
            found = []
            for s in range(models // 40):
                model = ld.simulate.random_model(4, 4, convention=convention, rng=s)
                table = observational_context_test(ld.simulate.sample_moments(model, n, rng=s))
                kept = table.attrs["plausible"]
                found.append((table.index[0] == "control", "control" in kept, kept == ("control",)))
            row(convention, n, *np.mean(found, axis=0).tolist(), models // 40)


SECTIONS = {
    "rank": rank_sizes, "robust": robust_sizes, "membership": membership, "grouping": grouping, "omnibus": omnibus,
    "verdict": verdict, "intruder": intruder, "omnibus-robust": omnibus_robust, "omnibus-power": omnibus_power,
    "dimension": dimension, "control": control,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--sections", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ld.errors.LatentDAGWarning)
    for name in options.sections:
        began = time.perf_counter()
        SECTIONS[name](options.models)
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
