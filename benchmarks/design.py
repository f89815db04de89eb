"""Is a plan right? Power predicted and found, cells that an allocation saves, the next context, P(order right).

Models have five latents, ten features and density .5, in both conventions; seeds from 100000. Plans are made from the
true model, but for the next context, which is chosen from a pilot.

* power, known graph: share of edges whose own test is significant at .05 when the true graph is fitted.
* power, searched: share of edges that ``fit.edges()`` calls at q ≤ .05 in a screen whose graph is searched. "order" and
  "graph" are shares of screens in which every edge points forward in the order found, and in which the graph is right.
* cells saved: share of an equal allocation's cells that the best one does without at the same least power. "Found" is
  the power of the weakest edge in simulated screens of a known graph: with an equal allocation of the N cells it needs
  for .80, with the best allocation of the N' cells that that one needs, and with an equal allocation of N'.
* next context: squared error of all standardized weights, over what a pilot of 500 cells per context is expected to
  have, in screens of the pilot's contexts and one more of 500 cells; the candidates are all sets of targets.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/design.py [--models 30] [--seed 100000] [--part power|cells|next]
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import latentdag as ld
from latentdag.design.assumed import Assumed
from latentdag.design.rivals import Exact
from latentdag.methods.assembly import model_of_graph

CONVENTIONS = ("text", "figures")
Z = 1.959964
DRAWS = 10  # screens of a known graph per model
SIZES = (100, 200, 500, 1_000)
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0001)


def model_of(convention, seed):
    truth = ld.simulate.random_model(5, 10, 0.5, convention=convention, rng=seed)
    return truth if truth.graph.number_of_edges() else None


def models_of(options):
    for seed in range(options.seed, options.seed + options.models):
        for convention in CONVENTIONS:
            truth = model_of(convention, seed)
            if truth is not None:
                yield convention, seed, truth


def said(title, lines):
    print(f"\n{title}\n{'-' * len(title)}")
    print("\n".join(lines), flush=True)


def with_error(values, models):
    """Mean, and its standard error over models, whose edges share a screen."""
    means = pd.Series(values).groupby(list(models)).mean()
    weight = pd.Series(values).groupby(list(models)).size()
    mean = float(np.mean(values))
    error = np.sqrt(np.sum((weight * (means - mean)) ** 2)) / weight.sum()
    return f"{mean:.3f} ({error:.3f})"


def known_graph(truth, counts, rng):
    """Standardized weights and z of the true graph fitted to one screen, by edge."""
    m = ld.simulate.sample_moments(truth, counts, rng)
    exact = Exact(Assumed.of(truth).fit, m)
    fitted = Assumed.of(model_of_graph(m, exact.prepared, exact.truth))
    edges = fitted.edges.set_index(["source", "target"])["weight"]
    return edges, edges / np.sqrt(fitted.variances(fitted.counts(counts).values()))


def power_rows(options):
    rows, screens = [], []
    for convention, seed, truth in models_of(options):
        graph = list(truth.graph.edges)
        for n in SIZES:
            known = ld.design.power(truth, n, searched=False).set_index(["source", "target"])["power"]
            table = ld.design.power(truth, n)
            told = table.set_index(["source", "target"])["power"]
            rng = np.random.default_rng([seed, n, 1])
            z = sum((known_graph(truth, n, rng)[1].abs() > Z).astype(float) for _ in range(DRAWS)) / DRAWS
            found = ld.fit(ld.simulate.sample_moments(truth, n, rng=[seed, n]))
            q = found.edges().set_index(["source", "target"])["q_value"]
            for edge in graph:
                row = {"convention": convention, "seed": seed, "n": n, "known": known[edge], "searched": told[edge]}
                rows.append(row | {"found known": z[edge], "found": float(q.get(edge, 1.0) <= 0.05)})
            position = {name: i for i, name in enumerate(found.order)}
            order = all(position[a] < position[b] for a, b in graph)
            right = set(found.graph.edges) == set(graph)
            screens.append(
                {
                    "convention": convention,
                    "seed": seed,
                    "n": n,
                    "p_order": table.attrs["p_order"],
                    "order": float(order),
                }
                | {"p_graph": table.attrs["p_graph"], "graph": float(right)}
            )
        print(f"{convention} {seed}", file=sys.stderr, flush=True)
    return pd.DataFrame(rows), pd.DataFrame(screens)


def compared(table, predicted, found, by):
    lines = []
    for key, part in table.groupby(by, observed=True, sort=False):
        gap = part[found] - part[predicted]
        name = " ".join(map(str, key if isinstance(key, tuple) else (key,)))
        lines.append(
            f"{name:>16}  predicted {part[predicted].mean():.3f}  "
            f"found {with_error(part[found].to_numpy(), part['seed'])}  "
            f"difference {with_error(gap.to_numpy(), part['seed'])}  of {len(part)}, {part['seed'].nunique()} models"
        )
    return lines


def power_part(options):
    edges, screens = power_rows(options)
    for predicted, found in (("known", "found known"), ("searched", "found")):
        name = f"power, {'known graph' if predicted == 'known' else 'searched'}"
        said(f"{name}: by convention and cells per context", compared(edges, predicted, found, ["convention", "n"]))
        edges["bin"] = pd.cut(edges[predicted], BINS, right=False)
        said(f"{name}: by what was predicted", compared(edges.sort_values(predicted), predicted, found, ["bin"]))
    for what in ("order", "graph"):
        said(f"P({what} right)", compared(screens, f"p_{what}", what, ["convention", "n"]))
        screens["bin"] = pd.cut(screens[f"p_{what}"], BINS, right=False)
        said(f"P({what} right): reliability", compared(screens.sort_values(f"p_{what}"), f"p_{what}", what, ["bin"]))


def weakest_found(truth, counts, edge, rng, draws):
    return float(np.mean([abs(known_graph(truth, counts, rng)[1][edge]) > Z for _ in range(draws)]))


def cells_part(options):
    rows = []
    for convention, seed, truth in models_of(options):
        needed = ld.design.samples_needed(truth, 0.8, searched=False).sort_values("cells")
        equal = int(np.ceil(needed["cells"].iloc[-1]))
        best = ld.design.allocate(truth, max(equal, 200), floor=dict.fromkeys(truth.contexts, max(10, equal // 100)))
        usual = ld.design.allocate(truth, max(equal, 200))
        saved, K = best.attrs["saved"], len(truth.contexts)
        row = {"convention": convention, "seed": seed, "saved": saved, "default": usual.attrs["saved"]}
        roots = {truth.control: np.sqrt(K - 1)} | dict.fromkeys(truth.interventions, 1.0)
        root = ld.design.samples_needed(truth, 0.8, searched=False, shares=roots)["cells"].max()
        row["root"] = root / needed["cells"].max() - 1
        if equal >= 90 * K:
            rng, edge, fewer = (
                np.random.default_rng([seed, 1]),
                tuple(needed[["source", "target"]].iloc[-1]),
                equal * (1 - saved),
            )
            shares = {c: max(int(n), 10) for c, n in (best / best.sum() * fewer).items()}
            # at the optimum several edges are weakest: the one that is weakest with equal cells is followed
            row |= {
                "equal N": weakest_found(truth, equal // K, edge, rng, DRAWS),
                "best N'": weakest_found(truth, shares, edge, rng, DRAWS),
                "equal N'": weakest_found(truth, int(fewer / K), edge, rng, DRAWS),
            }
        rows.append(row)
    table, lines = pd.DataFrame(rows), []
    for convention, part in table.groupby("convention", sort=False):
        low, mid, high = part["saved"].quantile([0.25, 0.5, 0.75])
        lines.append(
            f"{convention:>8}  saved {100 * mid:.0f} % ({100 * low:.0f} to {100 * high:.0f}), with the default floors "
            f"{100 * part['default'].median():.0f} %; control × √K needs {100 * part['root'].median():+.0f} %; "
            f"{len(part)} models"
        )
        kept = part.dropna(subset=["equal N"]) if "equal N" in part else part[:0]
        if len(kept):
            lines.append(
                " " * 10
                + "weakest edge found: "
                + ", ".join(
                    f"{name} {with_error(kept[name].to_numpy(), kept['seed'])}"
                    for name in ("equal N", "best N'", "equal N'")
                )
                + f"; {len(kept)} models, {DRAWS} screens each"
            )
    said("cells saved by allocate(), the graph known, at least power .80", lines)


def squared_error(model, truth, counts, rng):
    found, right = known_graph(model, counts, rng)[0], Assumed.of(truth).edges.set_index(["source", "target"])["weight"]
    return float(((found.abs() - right.abs()) ** 2).sum())


def next_part(options):
    n, rows = 500, []
    for convention, seed, truth in models_of(options):
        rng = np.random.default_rng([seed, 2])
        assumed = Assumed.of(truth)
        expected = float(assumed.variances(assumed.counts(n).values()).sum())
        m = ld.simulate.sample_moments(truth, n, rng)
        exact = Exact(assumed.fit, m)
        pilot = model_of_graph(m, exact.prepared, exact.truth)
        ranked = ld.design.next_context(pilot, n=n, counts=n)["targets"]
        singles = [targets for targets in ranked if len(targets) == 1]
        chosen = {
            "chosen": ranked[0],
            "random": ranked[rng.integers(len(ranked))],
            "random single": singles[rng.integers(len(singles))],
        }
        row = {"convention": convention, "seed": seed, "pilot": squared_error(truth, truth, n, rng) / expected}
        for name, targets in chosen.items():
            new = ld.Intervention.combine([truth.interventions[target] for target in targets])
            more = ld.LatentModel(
                truth.unmixing, truth.weights, truth.noise_variance, {**truth.interventions, "new": new}, truth.latents,
                truth.control, truth.feature_names, truth.offset,
            )  # fmt: skip
            row[name] = squared_error(more, truth, n, rng) / expected
        rows.append(row)
    lines = []
    for convention, part in pd.DataFrame(rows).groupby("convention", sort=False):
        names = ("pilot", "chosen", "random", "random single")
        cells = ", ".join(f"{name} {with_error(part[name].to_numpy(), part['seed'])}" for name in names)
        ratios = ", ".join(f"÷ {name} {part['chosen'].mean() / part[name].mean():.2f}" for name in names[2:])
        lines.append(f"{convention:>8}  {cells}; chosen {ratios}; {len(part)} models")
    said(
        "squared error after the next context, over that expected of the pilot (all sets of targets are candidates)",
        lines,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--part", choices=("power", "cells", "next"))
    parser.add_argument("--commit", help="of a copy without git")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    here = Path(__file__).parent
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    commit = options.commit or git.stdout.strip()
    print(
        f"design: {options.models} models per convention, seeds from {options.seed}, commit {commit}; "
        "standard errors in brackets"
    )
    for name, part in (("power", power_part), ("cells", cells_part), ("next", next_part)):
        if options.part in (None, name):
            part(options)


if __name__ == "__main__":
    main()
