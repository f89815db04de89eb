"""What no amount of data can tell, and what it can all the same: on exact moments, without sampling error.

Exact moments, no sampling error. Pairs of models that no amount of data can tell apart, and what is identified in spite
of them; random models with 4 latents of which one was never intervened on, and all models with the same moments
(latents without an intervention are called by their noise); soft interventions on every latent; and the search for the
observational context where nobody says which it is.

All models that fit are listed by :func:`latentdag.equivalent_models`. Soft interventions identify the ancestor relation
but not the parameters. The paper's rule for the observational context ties or errs on some models.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag import LatentModel, equivalent_models, identify_partial_order, observational_contexts, simulate
from latentdag import counterexamples as ce
from latentdag.experiments import Cell, Experiment, Outcome, Row, Settings, figure, tidy
from latentdag.experiments.draw import Figures
from latentdag.identification.equivalence import relative_gap
from latentdag.model.posets import closure_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _chain() -> LatentModel:
    """Return the model 3 → 2 → 1, in which every latent has a context."""
    B_0 = np.eye(3) - np.diag([0.8, 0.8], 1)
    scaled = [np.diag(np.where(np.arange(3) == i, 2.0, 1.0)) for i in range(3)]
    cut = [np.where((np.arange(3) == i)[:, None], np.eye(3), B_0) for i in range(3)]
    return LatentModel.from_structural(
        np.eye(3), B_0, {k: D @ B for k, (D, B) in enumerate(zip(scaled, cut, strict=True), 1)}, control=0
    )


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

#: Where latents 1, 2, 3 are drawn: effects at the bottom, and no edge through a node. Inches of a pair; colours.
PLACES = ((0.5, 0.12), (0.82, 0.5), (0.5, 0.88))
WIDTH, HEIGHT = 4.4, 2.0
FILL, EDGE = "#cfe3f7", "#2b6cb0"

#: Latents of the random models with one intervention missing, and of those with soft interventions.
LATENTS = 4


def cells(settings: Settings) -> list[dict[str, Any]]:
    named = [{"part": "pair", "name": name} for name in PAIRS] + [{"part": "control", "name": name} for name in TIES]
    drawn = settings.grid(part=("missing", "soft"))
    return named + [{"part": cell["part"], "name": f"model {cell['model']}", **cell} for cell in drawn]


def run(cell: Cell, shared: None) -> list[Row]:
    parts = {"pair": _pair, "control": _control, "missing": _missing, "soft": _soft}
    return [{**cell, **row} for row in parts[cell["part"]](cell)]


def _pair(cell: Cell) -> Iterator[Row]:
    make, identified = PAIRS[cell["name"]]
    pair = make()
    first, second = (set(model.graph.edges) for model in (pair.first, pair.second))
    closures = [set(closure_graph(model.graph).edges) for model in (pair.first, pair.second)]
    yield {
        "statement": pair.statement,
        "moment_gap": pair.moment_gap(),
        "unmixing_gap": pair.unmixing_gap(),
        "edges_first": _edges(first),
        "edges_second": _edges(second),
        "same_graph": first == second,
        "same_closure": closures[0] == closures[1],
        "identified": identified,
    }


def _control(cell: Cell) -> Iterator[Row]:
    tie = TIES[cell["name"]]()
    precisions = [tie.model.precision(context) for context in tie.model.contexts]
    yield {
        "statement": tie.statement,
        "scores": ", ".join(map(str, tie.scores)),
        "by_the_rule": ", ".join(map(str, tie.chosen)),
        "admissible": ", ".join(map(str, observational_contexts(precisions, tie.model.contexts))),
        "truth": str(tie.model.control),
    }


def _missing(cell: Cell) -> Iterator[Row]:
    """Leave out each context in turn, and list all models with the moments of the others."""
    truth = simulate.random_model(LATENTS, LATENTS, rng=[cell["seed"], cell["model"]])
    for context, latent in truth.targets.items():
        rest = {c: v for c, v in truth.interventions.items() if c != context}
        found = equivalent_models(replace(truth, interventions=rest))
        orders = {frozenset(closure_graph(m.graph).subgraph(rest).edges) for m in found}
        singles, doubles = ([dict.fromkeys(hit) for hit in combinations(rest, k)] for k in (1, 2))
        yield {
            "missing": latent,
            "parents": int(truth.graph.in_degree(latent)),
            "children": int(truth.graph.out_degree(latent)),
            "candidates": len(found),
            "moment_gap": max(_law_gap(found[0], other, singles) for other in found),
            "double_gap": max(_law_gap(found[0], other, doubles) for other in found),
            "same_closure": len(orders) == 1,
        }


def _law_gap(a: LatentModel, b: LatentModel, changes: list[dict[str, None]]) -> float:
    """Return the largest difference, on the scale of correlations, between the laws of two models."""
    laws = [(a.law(), b.law()), *((a.intervene(change), b.intervene(change)) for change in changes)]
    return max(relative_gap(one.covariance, other.covariance) for one, other in laws)


def _soft(cell: Cell) -> Iterator[Row]:
    truth = simulate.random_model(LATENTS, LATENTS, kind="soft", rng=[cell["seed"], cell["model"]])
    found = identify_partial_order([truth.precision(c) for c in truth.contexts], truth.contexts)
    closure = closure_graph(truth.graph)
    # the closure leaves open whether an edge is there where a longer path implies it too
    yield {
        "edges_first": _edges(set(truth.graph.edges)),
        "closure_identified": set(found.edges) == set(closure.edges),
        "implied_edges": closure.number_of_edges() - nx.transitive_reduction(closure).number_of_edges(),
    }


def _edges(edges: set[tuple[str, str]]) -> str:
    return ", ".join(f"{source} → {target}" for source, target in sorted(edges)) or "none"


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    pairs, control, missing, soft = (rows[rows["part"] == part] for part in ("pair", "control", "missing", "soft"))
    kinds = missing["parents"].gt(0).map({True: "has parents", False: "is a source"})
    counts = sorted(missing["candidates"].astype(int).unique())
    candidates = [
        {
            "latent without an intervention": kind,
            "cases": len(part),
            **{f"{k} candidates": float((part["candidates"] == k).mean()) for k in counts},
            "order among the others known": float(part["same_closure"].astype(float).mean()),
            "largest gap of moments": float(part["moment_gap"].max()),
            "largest gap of unseen doubles": float(part["double_gap"].max()),
        }
        for kind, part in missing.groupby(kinds)
    ]
    shown = ["name", "statement", "moment_gap", "unmixing_gap", "edges_first", "edges_second", "identified"]
    ties = ["name", "scores", "by_the_rule", "admissible", "truth"]
    return Outcome(
        _findings(pairs, control, missing, soft),
        {
            "Two models, equal moments": pairs[shown].to_dict("records"),
            "One intervention missing: all models that fit": candidates,
            "Which context is observational": control[ties].to_dict("records"),
            "Soft interventions on every latent": [
                {
                    "models": len(soft),
                    "closure identified": float(soft["closure_identified"].astype(float).mean()),
                    "edges per model that the closure leaves open": float(soft["implied_edges"].mean()),
                }
            ],
        },
    )


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


def draw(rows: pd.DataFrame, settings: Settings) -> Figures:
    return {
        "pairs": _draw_pairs({name: make() for name, (make, _) in PAIRS.items()}),
        "candidates": _draw_candidates(rows[rows["part"] == "missing"]),
    }


def _draw_pairs(pairs: dict[str, ce.Counterexample]) -> "Figure":
    """Draw both graphs of every pair, two pairs in a line; latents that a context targets are filled."""
    lines = (len(pairs) + 1) // 2
    made = figure(2 * WIDTH, lines * HEIGHT + 0.3)
    parts = made.subfigures(lines, 2, squeeze=False).ravel()
    for part, (name, pair) in zip(parts, pairs.items(), strict=False):
        part.suptitle(f"{name}: {_difference(pair)}", fontsize=10)
        for ax, model in zip(part.subplots(1, 2), (pair.first, pair.second), strict=True):
            _draw_graph(ax, model)
    said = "Filled: targeted by some context. The two models of a pair have the same moments in every context."
    made.text(0.5, -0.01, said, ha="center", va="top", fontsize=9)
    return made


def _difference(pair: ce.Counterexample) -> str:
    """Say what the two models disagree about, besides H."""
    if set(pair.first.graph.edges) != set(pair.second.graph.edges):
        return "other graph"
    return "only H differs" if np.allclose(pair.first.weights, pair.second.weights) else "other weights"


def _draw_graph(ax: Any, model: LatentModel) -> None:
    """Draw up to three latents, with the weight on every edge."""
    hit = {name for value in model.interventions.values() for name in value.targets}
    places = dict(zip(model.latents, PLACES, strict=False))
    style = {"edgecolors": EDGE, "edge_color": EDGE, "linewidths": 1.4, "width": 1.4, "node_size": 420, "font_size": 9}
    colours = [FILL if name in hit else "white" for name in model.graph]
    nx.draw_networkx(model.graph, places, ax=ax, node_color=colours, **style)
    weights = {(source, target): f"{weight:.2g}" for source, target, weight in model.graph.edges(data="weight")}
    nx.draw_networkx_edge_labels(model.graph, places, weights, ax=ax, font_size=8, rotate=False)
    ax.set(xlim=(0.1, 1.1), ylim=(-0.1, 1.1))
    ax.set_axis_off()


def _draw_candidates(missing: pd.DataFrame) -> "Figure":
    """Draw how many models fit when one intervention is missing."""
    made = figure(5.5, 3.6)
    ax = made.subplots()
    kinds = missing["parents"].gt(0).map({True: "the latent has parents", False: "the latent is a source"})
    shares = pd.crosstab(kinds, missing["candidates"].astype(int), normalize="index")
    shares.columns = [f"{k} model{'s' * (k > 1)}" for k in shares.columns]
    colours = ("#2b6cb0", "#63b3ed", "#f6ad55", "#c05621", "#742a2a")
    shares.plot.bar(stacked=True, ax=ax, color=colours, width=0.6, rot=0, xlabel="", ylabel="fraction of cases")
    ax.set(title="One intervention missing: models with the same moments", ylim=(0, 1.02))
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(ax)
    return made


STUDY = Experiment.of(
    __name__, "What is identified", models=100, quick_models=10, chunk=25, command="python -m studies"
)
