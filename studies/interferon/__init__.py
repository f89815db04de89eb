"""Knock-outs of interferon-γ signalling in THP-1 cells: what a real screen lets the model say, and what not.

A real screen (Papalexi et al. 2021): THP-1 cells under interferon-γ, one gene knocked out in each, 299 genes counted.
Strict guide calls; counts divided by depth, log(1 + x), depth and replicate regressed out; moments about the mean of
the control, 'non-targeting'. Genes are chosen by their variance over all cells, without labels: “variable 20” are the
first twenty, “no targets 20” the first twenty that no guide targets; “control 20” vary most in the control, and
“responsive 20” move most under the core knock-outs, which uses the labels. Core contexts: IFNGR1, IFNGR2, JAK2, STAT1,
IRF1, SMAD4, UBE2L6. Contexts are fewer than genes: the other dimensions are taken as downstream unless a row says
“upstream”. Orders are of features taken as exact, but for rows “with noise”, which allow every gene noise of its own
if BIC prefers that (`noise="auto"`), as graphs and held-out scores do. “Robust” p-values are corrected by fourth
moments. Shuffles deal labels anew within replicates. Known, and used in no fit: IFNGR1/IFNGR2 → JAK2 → STAT1 is one
cascade, IRF1 lies downstream of it. That these four hit one latent is first tested, then told to the fit. Genes and
the regression on depth and replicate come from all cells, held-out ones included; nothing else does.

The order of the questions is the order of trust. Does each context fit the model? Which contexts hit the same latent?
Only then: what is the graph between the distinct ones, and does a fit predict cells that it did not see? Known biology
(IFNGR1/IFNGR2 → JAK2 → STAT1 is one cascade, IRF1 lies downstream of it) judges the answers and is used in no fit.

Cells and gene sets are in :mod:`.screen`, tests of contexts in :mod:`.context_tests`, fits in :mod:`.fits`, tables and
findings in :mod:`.tables`, figures in :mod:`.figures`.
"""

from typing import Any

import numpy as np
import pandas as pd

from latentdag.experiments import Cell, Experiment, Outcome, Row, Settings
from studies.interferon import context_tests as tests
from studies.interferon import fits
from studies.interferon.figures import all_figures
from studies.interferon.screen import CASCADE, CORE, GENE_SETS, MAIN, Cells, gene_sets
from studies.interferon.tables import all_tables, findings

QUICK_MAIN = "variable 10"
#: Gene sets in which everything is drawn again: with the targeted genes and without.
DRAWN = ("variable 10", "variable 20", "no targets 10", "no targets 20")
FOLDS = 5
GRAPH_DRAWS = 20  # fits of four latents take seconds each
SCORED = (("variable 10", "downstream"), ("variable 10", "upstream"), ("variable 20", "downstream"))


def main_set(settings: Settings) -> str:
    """Return the gene set that figures show."""
    return QUICK_MAIN if settings.quick else MAIN


def cells(settings: Settings) -> list[dict[str, Any]]:
    main, draws = main_set(settings), range(settings.models)
    sets = [g for g in GENE_SETS if not settings.quick or g.endswith(" 10")]
    drawn = [g for g in DRAWN if g in sets]
    plain = drawn if settings.quick else [g for g in sets if GENE_SETS[g][0] in ("variable", "no targets")]
    without = main.replace("variable", "no targets")
    made = [{"part": "membership", "genes": g, "everyone": g == main} for g in sets]
    made += [{"part": "spectrum", "genes": main, "context": c, "draws": settings.models} for c in CORE]
    made += [{"part": "pair", "genes": g} for g in sets]
    made += [{"part": "guides", "genes": g} for g in (main, without)]
    made += [{"part": "pair draw", "genes": g, "draw": b} for g in (main, without) for b in draws]
    made += [{"part": "order", "genes": g, "kind": kind} for g in plain for kind in ("all cells", "without means")]
    made += [{"part": "order splits", "genes": g} for g in drawn]
    made += [{"part": "order", "genes": g, "kind": "bootstrap", "draw": b} for g in drawn for b in draws]
    made += [
        {"part": "order", "genes": g, "kind": k, "draw": b} for g in (main, without) for k in fits.NULLS for b in draws
    ]
    made += [{"part": "order", "genes": g, "kind": f"{fits.NOISY}all cells"} for g in plain]
    few = range(1 if settings.quick else min(settings.models, GRAPH_DRAWS))
    made += [
        {"part": "order", "genes": g, "kind": fits.NOISY + k, "draw": b}
        for g in ((main,) if settings.quick else (main, without))
        for k in ("bootstrap", *fits.NULLS)
        for b in few
    ]
    made += [{"part": "graph", "genes": main, "draw": b} for b in (-1, *few)]
    scored = [each for each in SCORED if each[0] in sets][: 1 if settings.quick else None]
    for genes, form in scored:
        splits = [f"fold {f + 1}" for f in range(FOLDS)] + ["rep_1", "rep_2", "rep_3"]
        splits = [splits[0], splits[-1]] if settings.quick else splits
        made += [{"part": "score", "genes": genes, "form": form, "held_out": name} for name in splits]
    made += [{"part": "unseen", "genes": main, "context": c} for c in CASCADE[: 1 if settings.quick else None]]
    return [{**cell, "seed": settings.seed} for cell in made]


def run(cell: Cell, shared: dict[str, Cells]) -> list[Row]:
    """Run one piece of the study, on one gene set."""
    data, part = shared[cell["genes"]], cell["part"]
    rng = np.random.default_rng([cell["seed"], max(cell.get("draw", 0), 0)])
    key = {name: cell[name] for name in ("part", "genes", "kind", "draw", "form", "held_out") if name in cell}
    if part == "membership":
        rows = tests.membership_rows(data if cell["everyone"] else data.of(CORE))
    elif part == "spectrum":
        rows = tests.spectrum_rows(data, cell["context"], cell["draws"], rng)
    elif part == "pair":
        rows = tests.pair_rows(data)
    elif part == "guides":
        rows = tests.guide_rows(data)
    elif part == "pair draw":
        rows = tests.pair_draw(data, rng)
    elif part == "order":
        rows = [_order(data, cell["kind"], rng)]
    elif part == "order splits":
        key["part"] = "order"
        rows = [{"kind": kind, **fits.two_latents(part_of)} for kind, part_of in fits.splits(data.of(fits.TWO))]
    elif part == "graph":
        rows = _graph(data.of(CORE), cell["draw"], rng)
    elif part == "score":
        core = data.of(CORE)
        held_out = dict(fits.fold_masks(core, FOLDS, rng))[cell["held_out"]]
        rows = fits.score_rows(core, held_out, unintervened=cell["form"])
    else:
        rows = fits.unseen_rows(data, cell["context"])
    return [{**key, **row} for row in rows]


def _order(data: Cells, kind: str, rng: np.random.Generator) -> Row:
    plain = kind.removeprefix(fits.NOISY)
    options = {"noise": "none" if plain == kind else "auto"}
    if plain in fits.NULLS:
        return fits.two_latents(data.of(fits.TWO).shuffled(rng, fits.NULLS[plain]), **options)
    if plain == "bootstrap":
        return fits.two_latents(data.of(fits.TWO).resampled(rng), **options)
    return fits.two_latents(data, means=kind != "without means", **options)


def _graph(data: Cells, draw: int, rng: np.random.Generator) -> list[Row]:
    """Fit four latents: edges and loadings. Draw −1 is the data themselves, and adds the omnibus test."""
    used = data if draw < 0 else data.resampled(rng)
    found = fits.fitted(used.moments())
    rows = [{"what": "edge", **row} for row in fits.graph_rows(found)]
    rows += [{"what": "loading", **row} for row in fits.loading_rows(found)]
    rows.append({"what": "fit", "order": " → ".join(found.order), "converged": bool(found.converged)})
    if draw < 0:
        rows.append({"what": "omnibus", **fits.omnibus_row(used, found)})
    return rows


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    made = all_tables(rows, main_set(settings))
    return Outcome(findings(made, main_set(settings), float(rows["p_omnibus"].dropna().iloc[0])), made)


def draw(rows: pd.DataFrame, settings: Settings) -> dict[str, Any]:
    return all_figures(rows, main_set(settings))


def load(settings: Settings) -> dict[str, Cells]:
    return gene_sets()


STUDY = Experiment.of(
    __name__,
    "Interferon-γ knock-outs in THP-1 cells",
    models=40,
    quick_models=2,
    chunk=4,
    shared=load,
    unit="draw",
    command="python -m studies",
)
