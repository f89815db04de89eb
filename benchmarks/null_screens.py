"""Do screens in which nothing happened give edges, and what does the mask of idle contexts cost where something did?

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/null_screens.py [--screens 300] [--seed 100000] [--quick] [--data FOLDER]

An edge counts if its q-value is below .05. "no mask" takes all edges of the model, "mask" those that touch no idle
context, by the moments alone (Gaussian) or with the samples (robust). In brackets: how many screens.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import warnings
from dataclasses import replace

import numpy as np

import latentdag as ld
from latentdag.errors import LatentDAGWarning

LAWS = {
    "normal": lambda rng, n, r: rng.standard_normal((n, r)),
    "t5": lambda rng, n, r: rng.standard_normal((n, r)) / np.sqrt(rng.chisquare(5, (n, 1)) / 5),
    "exponential": lambda rng, n, r: rng.exponential(size=(n, r)) - 1,
}


def share(hits):
    """A share with its standard error and the number it rests on."""
    hits = np.asarray(hits, dtype=float)
    return f"{hits.mean():5.3f} ± {hits.std() / np.sqrt(len(hits)):.3f} ({len(hits)})"


def split(rng, n, K):
    """Labels of a control and K fake contexts of n rows each, in random order."""
    return rng.permutation(np.repeat(["control", *(f"fake{k}" for k in range(K))], n))


def called(found):
    """Edges with a q-value below .05, as pairs."""
    table = found.edges()
    table = table[table["q_value"] < 0.05]
    return set(zip(table["source"], table["target"], strict=True))


def edges(m, data, always):
    """Whether any edge is called: no mask, Gaussian mask, robust mask; None where no fit was made to tell.

    Fits of null screens are slow, so beyond the first screens they are made only where the robust mask leaves a pair.
    """
    tables = [ld.changed(m), ld.changed(m, data)]
    left = [(~table["idle"]).sum() for table in tables]
    if not always and left[1] < 2:
        return None, None if left[0] > 1 else False, False
    found = ld.fit(m, progress=False)
    masks = [(), *(tuple(table.index[table["idle"]]) for table in tables)]
    return tuple(bool(called(replace(found, idle=idle))) for idle in masks)


def size(screens, seed):
    """Share of screens with any context that passes, for the two questions and the two forms."""
    print(f"\nshare of null screens (K = 3) with a context that passes, Holm at .05; {screens} screens (a third at 30)")
    print("law          dims  n control  n context  Gaussian: control    others   robust: control    others")
    for law in LAWS:
        for r, n_0, n in [
            (5, 100, 40),
            (5, 500, 500),
            (10, 5000, 100),
            (10, 500, 500),
            (30, 500, 40),
            (30, 500, 500),
            (10, 500, 10),
        ]:
            hits = []
            for s in range(screens // 3 if r == 30 else screens):
                rng = np.random.default_rng([seed, r, n_0, n, s])
                X = LAWS[law](rng, n_0 + 3 * n, r) @ rng.standard_normal((r, r))
                labels = np.repeat(["control", "a", "b", "c"], [n_0, n, n, n])
                m = ld.Moments.from_samples(X, labels, control="control")
                tables = [ld.changed(m), ld.changed(m, (X, labels))]
                hits.append([(t[c] <= 0.05).any() for t in tables for c in ("p_holm", "p_apart_holm")])
            rates = np.mean(hits, axis=0)
            print(
                f"{law:12s} {r:4d} {n_0:10d} {n:10d} {rates[0]:18.3f} {rates[1]:9.3f} {rates[2]:17.3f} {rates[3]:9.3f}",
                flush=True,
            )


def null(screens, seed):
    """Fake contexts: a control that was split at random."""
    print("\nnull screens with any edge at q < .05: share ± standard error (screens)")
    print("law           K    n     no mask                  mask, Gaussian           mask, robust")
    for law in ("normal", "t5"):
        for K, n in [(4, 100), (4, 500), (6, 100), (6, 500), (10, 100), (10, 500)]:
            hits, fitted = [], max(screens // (40 if K > 6 else 10), 1)
            for s in range(screens):
                rng = np.random.default_rng([seed, K, n, s])
                X = LAWS[law](rng, (K + 1) * n, K) @ rng.standard_normal((K, K))
                labels = split(rng, n, K)
                m = ld.Moments.from_samples(X, labels, control="control")
                hits.append(edges(m, (X, labels), always=s < fitted))
            show(f"{law:10s} {K:4d} {n:5d}", hits, fitted)


def show(what, hits, fitted):
    """Print the shares; where some screens were not fitted, of the first ones, which all were."""
    columns = [column if None not in column else column[:fitted] for column in zip(*hits, strict=True)]
    print(what, "  ".join(f"{share(column):24s}" for column in columns), flush=True)


def model(rng, d, factor):
    """A model in which every context multiplies the noise variance of its target by a factor and cuts its parents."""
    return ld.simulate.random_model(d, d, 0.5, "text", rng, noise_range=(1.0, 1.0), intervened_range=(factor, factor))


def permuted(screens, seed):
    """Labels of a real screen, shuffled among its perturbed rows."""
    print("\nlabels permuted among perturbed rows, K = 6, variance × 2.4: any edge at q < .05")
    print("                n     no mask                  mask, Gaussian           mask, robust")
    for n in (100, 500):
        hits = []
        for s in range(screens):
            rng = np.random.default_rng([seed, n, s])
            X, labels = ld.simulate.sample(model(rng, 6, 2.4), n, rng)
            labels = np.array([str(label) for label in labels])
            moved = labels != "control"
            labels[moved] = rng.permutation(labels[moved])
            m = ld.Moments.from_samples(X, labels, control="control")
            hits.append(edges(m, (X, labels), always=s < screens // 10))
        show(f"{'permuted':10s} {'':4s} {n:5d}", hits, screens // 10)


def power(models, seed):
    """Real but weak contexts: how many pass, and how many edges are left."""
    print(f"\nreal effects, d = 5, density .5; {models} models a cell")
    print("share of contexts that pass; of true edges called; of false ones among those called")
    print("               Gaussian         robust           no mask        mask, Gaussian  mask, robust")
    print("variance   n   control  both    control  both    true   false   true   false    true   false")
    for factor in (1.3, 1.5, 2.4):
        for n in (100, 500):
            passes, true, false, n_true = np.zeros(4), np.zeros(3), np.zeros(3), 0
            for s in range(models):
                rng = np.random.default_rng([seed, int(10 * factor), n, s])
                truth = model(rng, 5, factor)
                X, labels = ld.simulate.sample(truth, n, rng)
                labels = np.array([str(label) for label in labels])
                m = ld.Moments.from_samples(X, labels, control="control")
                tables = [ld.changed(m), ld.changed(m, (X, labels))]
                passes += [x for t in tables for x in ((t["p_holm"] <= 0.05).mean(), (~t["idle"]).mean())]
                found = ld.fit(m, progress=False)
                real = {tuple(map(str, edge)) for edge in context_graph(truth)}
                n_true += len(real)
                for j, idle in enumerate([(), *(tuple(t.index[t["idle"]]) for t in tables)]):
                    edges = called(replace(found, idle=idle))
                    true[j] += len(edges & real)
                    false[j] += len(edges - real)
            p, t, f = passes / models, true / n_true, false / np.maximum(true + false, 1)
            print(
                f"× {factor:3.1f} {n:6d} {p[0]:9.3f} {p[1]:6.3f} {p[2]:9.3f} {p[3]:6.3f} {t[0]:8.3f} {f[0]:6.3f} "
                f"{t[1]:7.3f} {f[1]:6.3f} {t[2]:8.3f} {f[2]:6.3f}",
                flush=True,
            )


def context_graph(truth):
    """Edges of a model between the contexts that target its latents, which is how a fit names its latents."""
    by_latent = {value.targets[0]: context for context, value in truth.interventions.items()}
    return {(by_latent[u], by_latent[v]) for u, v in truth.graph.edges}


def real(splits, seed, root):
    """Controls of real data, split at random into seven."""
    print("\ncontrols of real data, split at random into a control and 6 fake contexts: any edge at q < .05")
    print("data            dims  rows     no mask                  mask, Gaussian           mask, robust")
    tunnel = ld.datasets.light_tunnel(root).select(
        features=["red", "green", "blue", "ir_1", "ir_2", "current", "vis_3"]
    )
    proteins = ld.datasets.sachs(root)
    cells = ld.datasets.papalexi_thp1(root)
    counts = cells.X[cells.contexts == cells.control].toarray()
    counts = np.log1p(counts / counts.sum(axis=1, keepdims=True) * np.median(counts.sum(axis=1)))
    sources = {
        "light tunnel": tunnel.X[tunnel.contexts == tunnel.control],
        "sachs": proteins.X[proteins.contexts == proteins.control][:, :8],
        "papalexi": counts[:, np.argsort(-counts.var(axis=0))[:8]],
    }
    for name, X in sources.items():
        hits = []
        for s in range(splits):
            rng = np.random.default_rng([seed, s])
            labels = split(rng, -(-len(X) // 7), 6)[: len(X)]
            m = ld.Moments.from_samples(X, labels, control="control")
            hits.append(edges(m, (X, labels), always=s < splits // 8))
        show(f"{name:14s} {X.shape[1]:4d} {len(X):6d}", hits, splits // 8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--screens", type=int, default=300)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--data", help="folder of the real data")
    parser.add_argument("--quick", action="store_true", help="20 screens a cell")
    options = parser.parse_args()
    screens = 20 if options.quick else options.screens
    warnings.simplefilter("ignore", LatentDAGWarning)
    print(f"seed {options.seed}, one thread")
    size(screens, options.seed)
    null(screens, options.seed + 1)
    permuted(max(screens // 5, 10), options.seed + 2)
    power(max(2 * screens // 25, 5), options.seed + 3)
    if options.data:
        real(max(2 * screens // 15, 8), options.seed + 4, options.data)


if __name__ == "__main__":
    main()
