"""What no amount of data can tell, and what it can all the same: on exact moments, without sampling error.

Four parts: the paper's pairs of models with equal moments; random models with one intervention missing, and all models
that fit them (:func:`latentdag.equivalent_models`); soft interventions, where the ancestor relation is identified but
the parameters are not; and models on which the paper's rule for the observational context ties or errs.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.experiments.base import Cell, Experiment, Outcome, Row, Settings
from latentdag.experiments.draw import figure, tidy
from latentdag.experiments.pair_graphs import draw_pairs
from latentdag.identification import counterexamples as ce
from latentdag.identification.equivalence import equivalent_models
from latentdag.identification.identify import identify_partial_order
from latentdag.identification.reduce import observational_contexts
from latentdag.model import simulate
from latentdag.model.model import LatentModel
from latentdag.model.posets import closure_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _chain() -> LatentModel:
    """3 → 2 → 1, every latent with a context."""
    B_0 = np.eye(3) - np.diag([0.8, 0.8], 1)
    scaled = [np.diag(np.where(np.arange(3) == i, 2.0, 1.0)) for i in range(3)]
    cut = [np.where((np.arange(3) == i)[:, None], np.eye(3), B_0) for i in range(3)]
    return ce.pairs.model_of(np.eye(3), [B_0, *(D @ B for D, B in zip(scaled, cut, strict=True))])


#: The pairs, and what is identified in spite of them.
PAIRS: dict[str, tuple[Callable[[], ce.Counterexample], str]] = {
    "motivating example": (ce.motivating_example, "the latent that the only context targets"),
    "observational only": (lambda: ce.observational_only(_chain()), "the number of latents and the space they span"),
    "missing intervention": (
        lambda: ce.missing_intervention(_chain(), "Z2"),
        "all other latents, and effects among them that do not pass through it",
    ),
    "covered edge": (lambda: ce.fully_observed(3, rng=0), "everything but the direction of that edge, H included"),
    "missing source": (ce.missing_source, "graph, target and equations; H up to one bit"),
    "soft parameters": (ce.soft_parameters, "source, noises and partial order"),
    "soft graph": (ce.soft_graph, "noises and transitive closure"),
    "non-generic soft": (ce.nongeneric_soft, "noises"),
    "gap of the soft theorem": (ce.soft_theorem_gap, "noises, and the closure of the weights that change"),
}

TIES: dict[str, Callable[[], ce.DeviationTie]] = {
    "one latent": lambda: ce.star_tie(1),
    "star, d = 2": lambda: ce.star_tie(2),
    "star, d = 4": lambda: ce.star_tie(4),
    "cancellation": ce.deviation_cancellation,
}

#: Latents of the random models with one intervention missing, and of those with soft interventions.
LATENTS = 4


def cells(settings: Settings) -> list[dict[str, Any]]:
    named = [{"part": "pair", "name": name} for name in PAIRS] + [{"part": "control", "name": name} for name in TIES]
    drawn = [
        {"part": part, "name": f"model {s}", "model": s, "seed": settings.seed}
        for part in ("missing", "soft")
        for s in range(settings.models)
    ]
    return named + drawn


def run(cell: Cell, shared: None) -> list[Row]:
    parts = {"pair": _pair, "control": _control, "missing": _missing, "soft": _soft}
    return [{**cell, **row} for row in parts[cell["part"]](cell)]


def _pair(cell: Cell) -> list[Row]:
    make, identified = PAIRS[cell["name"]]
    pair = make()
    first, second = (set(model.graph.edges) for model in (pair.first, pair.second))
    closures = [set(closure_graph(model.graph).edges) for model in (pair.first, pair.second)]
    return [
        {
            "statement": pair.statement,
            "moment_gap": pair.moment_gap(),
            "unmixing_gap": pair.unmixing_gap(),
            "edges_first": _edges(first),
            "edges_second": _edges(second),
            "same_graph": first == second,
            "same_closure": closures[0] == closures[1],
            "identified": identified,
        }
    ]


def _control(cell: Cell) -> list[Row]:
    tie = TIES[cell["name"]]()
    precisions = [tie.model.precision(context) for context in tie.model.contexts]
    return [
        {
            "statement": tie.statement,
            "scores": ", ".join(map(str, tie.scores)),
            "by_the_rule": ", ".join(map(str, tie.chosen)),
            "admissible": ", ".join(map(str, observational_contexts(precisions, tie.model.contexts))),
            "truth": str(tie.model.control),
        }
    ]


def _missing(cell: Cell) -> list[Row]:
    """Leave out each context in turn, and list all models with the moments of the others."""
    truth = simulate.random_model(LATENTS, LATENTS, rng=[cell["seed"], cell["model"]])
    rows = []
    for context, latent in truth.targets.items():
        rest = {c: v for c, v in truth.interventions.items() if c != context}
        found = equivalent_models(replace(truth, interventions=rest))
        hit = list(rest)
        orders = {frozenset(e for e in closure_graph(m.graph).edges if {*e} <= {*hit}) for m in found}
        rows.append(
            {
                "missing": latent,
                "parents": int(truth.graph.in_degree(latent)),
                "children": int(truth.graph.out_degree(latent)),
                "candidates": len(found),
                "moment_gap": max(_law_gap(found[0], other, [{c: None} for c in hit]) for other in found),
                "double_gap": max(
                    _law_gap(found[0], other, [dict.fromkeys(two) for two in combinations(hit, 2)]) for other in found
                ),
                "same_closure": len(orders) == 1,
            }
        )
    return rows


def _law_gap(a: LatentModel, b: LatentModel, changes: list[dict[str, None]]) -> float:
    """Largest difference of correlation size between the laws of two models, in the control and after changes."""
    laws = [(a.law(), b.law()), *((a.intervene(change), b.intervene(change)) for change in changes)]
    gaps = []
    for one, other in laws:
        s = np.sqrt(np.diagonal(one.covariance))
        gaps.append(float(np.abs((one.covariance - other.covariance) / np.outer(s, s)).max()))
    return max(gaps)


def _soft(cell: Cell) -> list[Row]:
    truth = simulate.random_model(LATENTS, LATENTS, kind="soft", rng=[cell["seed"], cell["model"]])
    found = identify_partial_order([truth.precision(c) for c in truth.contexts], truth.contexts)
    edges = set(truth.graph.edges)
    closure = set(closure_graph(truth.graph).edges)
    return [
        {
            "edges_first": _edges(edges),
            "closure_identified": set(found.edges) == closure,
            # edges that the closure implies whether they are there or not
            "implied_edges": sum(_implied(truth, *edge) for edge in closure),
        }
    ]


def _implied(model: LatentModel, source: str, target: str) -> bool:
    rest = model.graph.copy()
    rest.remove_edges_from([(source, target)])
    return (source, target) in closure_graph(rest).edges


def _edges(edges: set[tuple[str, str]]) -> str:
    return ", ".join(f"{source} → {target}" for source, target in sorted(edges)) or "none"


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    pairs, control, missing, soft = (rows[rows["part"] == part] for part in ("pair", "control", "missing", "soft"))
    kinds = missing["parents"].gt(0).map({True: "has parents", False: "is a source"})
    candidates = [
        {
            "latent without an intervention": kind,
            "cases": len(part),
            **{f"{k} candidates": float((part["candidates"] == k).mean()) for k in _counts(missing)},
            "order among the others known": float(part["same_closure"].astype(float).mean()),
            "largest gap of moments": float(part["moment_gap"].max()),
            "largest gap of unseen doubles": float(part["double_gap"].max()),
        }
        for kind, part in missing.groupby(kinds)
    ]
    return Outcome(
        _findings(pairs, control, missing, soft),
        {
            "Two models, equal moments": _records(
                pairs, "name", "statement", "moment_gap", "unmixing_gap", "edges_first", "edges_second", "identified"
            ),
            "One intervention missing: all models that fit": candidates,
            "Which context is observational": _records(control, "name", "scores", "by_the_rule", "admissible", "truth"),
            "Soft interventions on every latent": [
                {
                    "models": len(soft),
                    "closure identified": float(soft["closure_identified"].astype(float).mean()),
                    "edges per model that the closure leaves open": float(soft["implied_edges"].mean()),
                }
            ],
        },
    )


def _counts(missing: pd.DataFrame) -> list[int]:
    return sorted(int(k) for k in missing["candidates"].unique())


def _records(part: pd.DataFrame, *columns: str) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in part[list(columns)].to_dict("records")]


def _findings(pairs: pd.DataFrame, control: pd.DataFrame, missing: pd.DataFrame, soft: pd.DataFrame) -> list[str]:
    unique = (missing["candidates"] == 1).mean()
    wrong = control[(control["by_the_rule"] != control["truth"])]
    settled = (wrong["admissible"] == wrong["truth"]).sum()
    return [
        f"The {len(pairs)} pairs of models have equal moments up to rounding (largest gap "
        f"{pairs['moment_gap'].max():.1g}), and differ in H by up to {pairs['unmixing_gap'].max():.2f} (sine of the "
        f"angle); {int((~pairs['same_graph'].astype(bool)).sum())} of them differ in the graph.",
        f"With one of {LATENTS} interventions missing, one reduced model fits in {unique:.0%} of the cases, and never "
        f"more than {int(missing['candidates'].max())}; candidates agree on every context, and on every pair of seen "
        f"interventions together, to {missing['double_gap'].max():.0e}.",
        f"Soft interventions on every latent identify the ancestor relation in "
        f"{soft['closure_identified'].astype(float).mean():.0%} of {len(soft)} models.",
        f"The appendix's rule for the observational context ties or errs on {len(wrong)} of {len(control)} examples; "
        f"asking which context can be one at all settles {settled} of them (with a single target both can).",
    ]


def draw(rows: pd.DataFrame, settings: Settings) -> "dict[str, Figure]":
    return {
        "pairs": draw_pairs({name: make() for name, (make, _) in PAIRS.items()}),
        "candidates": _draw_candidates(rows[rows["part"] == "missing"]),
    }


def _draw_candidates(missing: pd.DataFrame) -> "Figure":
    """How many models fit when one intervention is missing."""
    made = figure(5.5, 3.6)
    ax = made.subplots()
    counts, bottom = _counts(missing), np.zeros(2)
    groups = [missing[missing["parents"] > 0], missing[missing["parents"] == 0]]
    for k, colour in zip(counts, ("#2b6cb0", "#63b3ed", "#f6ad55", "#c05621", "#742a2a"), strict=False):
        share = np.array([float((part["candidates"] == k).mean()) if len(part) else 0.0 for part in groups])
        ax.bar([0, 1], share, bottom=bottom, color=colour, width=0.6, label=f"{k} model{'s' * (k > 1)}")
        bottom += share
    ax.set_xticks([0, 1], ["the latent has parents", "the latent is a source"])
    ax.set(ylabel="fraction of cases", title="One intervention missing: models with the same moments", ylim=(0, 1.02))
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(ax)
    return made


EXPERIMENT = Experiment(
    name="identifiability",
    title="What is identified",
    question=(
        "Exact moments, no sampling error. Pairs of models that no amount of data can tell apart, and what is "
        "identified in spite of them; random models with 4 latents of which one was never intervened on, and all "
        "models with the same moments (latents without an intervention are called by their noise); soft interventions "
        "on every latent; and the search for the observational context where nobody says which it is."
    ),
    models=100,
    quick_models=10,
    cells=cells,
    run=run,
    summarize=summarize,
    draw=draw,
    chunk=25,
)
