"""What the model of noisy features says about real data: noise = none, auto and features side by side.

*Data sets.* One line per data set, preparation and kind of noise: seconds of processor time, factors, by how much BIC
prefers noise to exact features (auto), whether the optimiser arrived, edges of the graph, those at q < .05 and with
probability .95, how many of those at q < .05 are false where the truth is known, the p-value of one model for all
contexts (omnibus), the log-likelihood per held-out row of the perturbed contexts (fitted to a random half, scored on
the other; not comparable between kinds that give the features different numbers of dimensions, which is marked), and
how edges that either half calls at q < .05 fare in the other: called as well, or contradicted (its fit has the edge
reversed). An error of a fit is a result, too. "features" is fitted where auto takes features as exact.

*Light tunnel.* Its colours and sensors, behind a random map to p features, with noise of a share of each feature's
deviation added. Of effects it is known that colours act on sensors and nothing else on anything.
*Sachs.* Logarithms of 11 proteins. *Papalexi.* The first genes by variance, prepared as studies/interferon does: core
knock-outs with a latent each (7), or one for the four of the cascade (4). "Counts": the same cells and genes from their
counts, depth known. *Semisynthetic.* The paper's experiment, a million rows a context.

*Nulls.* Real rows, in which nothing happened: a control that was split into a control and four fake contexts, or labels
that were dealt anew among the perturbed rows. Screens with any edge at q < .05, as fits are (contexts in which
nothing is seen to change carry no edges), and without that mask.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/real_noise.py [--only tunnel] [--kinds auto] [--nulls 8]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import latentdag as ld
from latentdag.errors import LatentDAGWarning
from latentdag.experiments import semisynthetic
from latentdag.experiments.base import Settings
from studies.interferon import screen as interferon
from studies.interferon.fits import targets
from studies.light_tunnel import machine

KINDS = ("none", "auto", "features")
HEADER = (
    f"{'data set':<44}{'noise':<9}{'s':>6} {'factors':>7} {'gap':>7} {'arrived':>7} {'edges':>5} {'q<.05':>5} "
    f"{'P≥.95':>5} {'false':>5} {'omnibus p':>9} {'held out':>9} {'again':>6} {'against':>7}"
)


@dataclass(frozen=True)
class Rows:
    """Rows of a data set: their contexts, what a fit is told, and which edges are true where that is known."""

    X: Any
    contexts: np.ndarray
    control: Any
    options: dict = field(default_factory=dict)
    true: set | None = None
    depth: np.ndarray | None = None

    def take(self, rows):
        depth = None if self.depth is None else self.depth[rows]
        return replace(self, X=self.X[rows], contexts=self.contexts[rows], depth=depth)

    @property
    def data(self):
        if self.depth is None:
            return self.X, self.contexts
        return ld.stream.pieces(self.X, self.contexts, counts=True, depth=self.depth)

    def moments(self):
        if self.depth is None:
            return ld.Moments.from_samples(self.X, self.contexts, self.control)
        return ld.Moments.from_counts(self.X, self.contexts, self.control, depth=self.depth)

    def fit(self, noise, m=None):
        return ld.fit(self.moments() if m is None else m, noise=noise, data=self.data, progress=False, **self.options)

    def halves(self, seed=0):
        """Two halves of the rows of every context."""
        rng, half = np.random.default_rng(seed), np.zeros(len(self.contexts), dtype=bool)
        for context in np.unique(self.contexts):
            rows = rng.permutation(np.flatnonzero(self.contexts == context))
            half[rows[: len(rows) // 2]] = True
        return self.take(half), self.take(~half)


# ---- the data sets --------------------------------------------------------------------------------------------------


def tunnel(p, noise, name=machine.MAIN, seed=0):
    """The light tunnel behind a random map to p features, with added noise."""

    def load():
        there = machine.read(machine.SETS[name])
        rng = np.random.default_rng([seed, p, round(100 * noise)])
        hidden = there.draw(p, 1.0, rng)
        X = hidden.X + noise * hidden.X.std(axis=0) * rng.normal(size=hidden.X.shape)
        return Rows(X, hidden.contexts, machine.CONTROL, true=there.edges())

    return load


def sachs(control):
    def load():
        screen = ld.datasets.sachs(control=control)
        return Rows(screen.X, screen.contexts, control)

    return load


def papalexi(n_genes, latents, counts=False):
    """Core knock-outs: the first genes by variance of log(1 + x), with depth and replicate regressed out, or counts."""

    def load():
        screen = ld.datasets.papalexi_thp1(strict=True)
        chosen = ld.workflow.choose(screen, n_genes=n_genes, counts=True, adjust=["rep"], contexts=interferon.CORE)
        named = {c: c for c in interferon.CORE} if latents == 7 else targets(interferon.CORE)
        options = {"targets": named}
        if not counts:
            return Rows(chosen.X, chosen.contexts.astype(str), interferon.CONTROL, options)
        kept = screen.select(np.isin(screen.contexts.astype(str), [interferon.CONTROL, *interferon.CORE]))
        depth = kept.obs["depth"].to_numpy(dtype=float)
        X = kept.select(features=chosen.genes).X.toarray()
        return Rows(X, kept.contexts.astype(str), interferon.CONTROL, options, depth=depth / depth.mean())

    return load


CASES = {
    **{f"light tunnel, p = {p}, noise {e:g}": tunnel(p, e) for p in (6, 7, 8, 12, 200) for e in (0.0, 0.5)},
    "light tunnel, p = 12, noise 0.2": tunnel(12, 0.2),
    "light tunnel, 10 latents, p = 20, noise 0": tunnel(20, 0.0, "all ten contexts"),
    "light tunnel, 10 latents, p = 20, noise 0.5": tunnel(20, 0.5, "all ten contexts"),
    "Sachs, cd3cd28": sachs("cd3cd28"),
    "Sachs, cd3cd28icam2": sachs("cd3cd28icam2"),
    **{f"Papalexi, {p} genes, {d} latents": papalexi(p, d) for p in (10, 20, 40) for d in (4, 7)},
    "Papalexi, 200 genes, 4 latents": papalexi(200, 4),
    **{f"Papalexi counts, {p} genes, 4 latents": papalexi(p, 4, True) for p in (20, 40)},
}


# ---- one line -------------------------------------------------------------------------------------------------------


def called(found):
    """Edges with a q-value below .05, as pairs."""
    table = found.edges()
    table = table[table["q_value"] < 0.05]
    return set(zip(table["source"], table["target"], strict=True))


def gap(found):
    """By how much BIC prefers noise to exact features; None where it was not asked."""
    bic = dict(found.details.get("noise_bic", {}))
    exact = bic.pop("exact", None)
    return None if exact is None or not bic else exact - min(bic.values())


def attempt(make, *arguments):
    """What a function returns, or the first words of its error."""
    try:
        return make(*arguments), ""
    except Exception as error:  # any error of a fit is a result here
        return None, f"{type(error).__name__}: {error}"[:100]


def line(rows, m, noise):
    """Everything that is said of one data set with one kind of noise, and whether noise was found."""
    began = time.process_time()
    found, failure = attempt(rows.fit, noise, m)
    seconds = time.process_time() - began
    if found is None:
        return f"{seconds:6.1f} {failure}", noise != "none"
    table, failure = attempt(found.edges)
    if table is None:
        return f"{seconds:6.1f} {failure}", noise != "none"
    sure = called(found)
    false = "–" if rows.true is None else f"{len(sure - rows.true)}"
    test, _ = attempt(ld.omnibus_test, found, m, rows.data)
    p = "–" if test is None else f"{test.p_value:.1g}"
    by, factors = gap(found), found.details.get("n_factors", "–")
    return (
        f"{seconds:6.1f} {factors!s:>7} {'–' if by is None else f'{by:.0f}':>7} "
        f"{'yes' if found.converged else 'NO':>7} "
        f"{len(table):>5} {len(sure):>5} {(table['probability'] >= 0.95).sum():>5} {false:>5} {p:>9} "
        f"{by_halves(rows, noise)}"
    ), found.noise_variance is not None


def by_halves(rows, noise):
    """Held-out log-likelihood, and how edges that one half calls fare in the other."""
    halves, failed, scores, again, against, n = rows.halves(), 0, [], 0, 0, 0
    moments = [half.moments() for half in halves]
    fits = [attempt(h.fit, noise, m)[0] for h, m in zip(halves, moments, strict=True)]
    for one, other, there in zip(fits, fits[::-1], moments[::-1], strict=True):
        table, _ = attempt(ld.score, one, there) if one is not None else (None, "")
        if table is None:
            failed += 1
            continue
        scores.append(table.attrs["total"]["model"])
        if other is None:
            continue
        sure, graph = attempt(called, one)[0] or set(), other.graph
        n += len(sure)
        again += len(sure & (attempt(called, other)[0] or set()))
        against += sum(graph.has_edge(v, u) for u, v in sure)
    exact = scores and not failed and np.linalg.matrix_rank(fits[0].model.covariance()) < moments[0].n_features
    held = f"{np.mean(scores):.3f}{'*' if exact else ''}" if scores else "–"
    return f"{held:>9} {f'{again}/{n}':>6} {against:>7}" + (f"  {failed} of 2 halves failed" if failed else "")


def tables(only, kinds):
    print("* a density in the fewer dimensions that exact features have: not comparable with the others")
    print(HEADER, flush=True)
    for name, load in CASES.items():
        if only and only.lower() not in name.lower():
            continue
        try:
            rows = load()
        except FileNotFoundError as error:
            print(f"{name:<44}skipped, no data: {str(error)[:60]}")
            continue
        m = rows.moments()
        noisy = False
        for noise in kinds:
            same = noise == "features" and noisy
            said, noisy = ("   the same as auto", noisy) if same else line(rows, m, noise)
            print(f"{name:<44}{noise:<9}{said}", flush=True)


# ---- the paper's semisynthetic model --------------------------------------------------------------------------------


def semi(n=10**6, seed=0):
    """Draws of the paper's semisynthetic model, exact and with noise of half a deviation."""
    plain = semisynthetic.generative_model(Settings(models=1, seed=seed))
    psi = 0.25 * np.diagonal(plain.covariance())
    noisy = replace(plain, loadings=plain.mixing, residual=np.diag(psi))
    print(f"\nSemisynthetic, {plain.n_latents} latents, {plain.n_features} features, {n} rows a context")
    print("features        noise     s      factors  edges  right  false at q < .05")
    for name, model in (("exact", plain), ("noise of .5", noisy)):
        m = ld.simulate.sample_moments(model, n, rng=seed)
        true = set(plain.graph.edges)
        for noise in ("none", "auto"):
            began = time.process_time()
            found, failure = attempt(partial(ld.fit, m, noise=noise, progress=False))
            seconds = time.process_time() - began
            if found is None:
                print(f"{name:<16}{noise:<9}{seconds:6.1f} {failure}")
                continue
            edges = set(found.graph.edges)
            print(
                f"{name:<16}{noise:<9}{seconds:6.1f} {found.details.get('n_factors', '–')!s:>8} {len(edges):>6} "
                f"{len(edges & true):>6} {len(called(found) - true):>6}",
                flush=True,
            )


# ---- nulls ----------------------------------------------------------------------------------------------------------


def split(rows, rng):
    """The control's rows only, split into a control and four fake contexts."""
    control = rows.take(rows.contexts == rows.control)
    labels = rng.permutation(np.arange(len(control.contexts)) % 5)
    names = np.array(["control", *(f"fake {k}" for k in range(1, 5))])
    return replace(control, contexts=names[labels], control="control", options={})


def dealt(rows, rng):
    """Labels of the perturbed rows dealt anew among them."""
    contexts = rows.contexts.copy()
    moved = np.flatnonzero(contexts != rows.control)
    contexts[moved] = contexts[rng.permutation(moved)]
    return replace(rows, contexts=contexts)


def with_and_without_mask(found):
    """Edges that are called, and those that would be if no context were taken as idle."""
    return called(found), called(replace(found, idle=()))


NULLS = {
    "light tunnel, p = 12, noise 0.5": tunnel(12, 0.5),
    "Sachs, cd3cd28": sachs("cd3cd28"),
    "Papalexi, 20 genes, 4 latents": papalexi(20, 4),
}


def nulls(screens, only, seed=100_000):
    print(f"\nNull screens with any edge at q < .05, {screens} of each kind (in brackets: without the mask)")
    print(f"{'data set':<44}{'null':<18}{'noise':<7}{'screens with an edge':>20} {'took noise':>11} {'failed':>7}")
    for name, load in NULLS.items():
        if only and only.lower() not in name.lower():
            continue
        try:
            rows = load()
        except FileNotFoundError:
            print(f"{name:<44}skipped, no data")
            continue
        for what, made in (("control split", split), ("labels dealt anew", dealt)):
            drawn = [made(rows, np.random.default_rng([seed, s])) for s in range(screens)]
            for noise in ("none", "auto"):
                fits = [attempt(d.fit, noise)[0] for d in drawn]
                told = [attempt(with_and_without_mask, f)[0] for f in fits if f is not None]
                told = [each for each in told if each is not None]
                hits, bare = (sum(bool(each[j]) for each in told) for j in (0, 1))
                took = sum(f is not None and f.noise_variance is not None for f in fits)
                shown = f"{hits} ({bare}) of {len(told)}"
                print(f"{name:<44}{what:<18}{noise:<7}{shown:>20} {took:>11} {screens - len(told):>7}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="folder of the data; by default $LATENTDAG_DATA")
    parser.add_argument("--only", help="data sets whose name holds this")
    parser.add_argument("--nulls", type=int, default=8, help="null screens of each kind; 0 for none")
    parser.add_argument("--parts", default="tables,semi,nulls")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of noise, in the tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore", LatentDAGWarning)
    if options.data:
        os.environ["LATENTDAG_DATA"] = options.data
    parts = options.parts.split(",")
    if "tables" in parts:
        tables(options.only, options.kinds.split(","))
    if "semi" in parts and not options.only:
        semi()
    if "nulls" in parts and options.nulls:
        nulls(options.nulls, options.only)


if __name__ == "__main__":
    main()
