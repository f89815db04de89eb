"""A machine whose causes are known, hidden behind random maps: what is recovered?

A physical machine (Gamella, Peters, Bühlmann, *Causal chambers as a real-world physical testbed for AI methodology*):
lamps of three colours shine on sensors, and everything is measured, so the causal graph is known. Some of its columns
are taken for latents and hidden behind a random dense map to as many features, or twice as many. What is seen: 10,000
samples of the control and 1,000 of each context. Contexts of colours and LEDs move a lamp's mean; those of sensors
change a gain, which is a soft intervention. Values are quantised and roughly uniform. Recovered rows `structural() @
unmixing @ G` are compared with the equation that least squares on the known parents gives in the control, by the cosine
between them, latents in their standard deviations. *Maps*: all samples behind one map after another. *Rows*: a random
half, or tenth, of every context behind a map of its own. Components of PCA, factor analysis and FastICA have no names
and are matched to the truth as well as can be. *Edges* are those of the likelihood written with perfect interventions,
at 5 % of false discoveries and with errors for any noise; whoever knows *roles* knows that nothing acts on a lamp and
that sensors act on nothing.

Cells of the part "maps" hide all rows behind one map after another. Cells of the part "rows" hide a random share of the
rows behind a map of their own. The data and the truth are in :mod:`.machine`, scores in :mod:`.scores`, tables and
findings in :mod:`.tables`, figures in :mod:`.figures`.
"""

from typing import Any

import numpy as np

from latentdag import Moments, membership_test
from latentdag.experiments import Cell, Experiment, Row, Settings, attempt
from studies.decompositions import decompose
from studies.light_tunnel.figures import draw
from studies.light_tunnel.machine import CONTROL, LAMPS, MAIN, SETS, TWINS, Draw, Tunnel, facts, read
from studies.light_tunnel.scores import component_scores, edge_scores, fit_scores
from studies.light_tunnel.tables import summarize

__all__ = ["STUDY", "about_the_control", "cells", "draw", "known_row", "run", "shared", "summarize"]

SOFT = {"intervention": "soft"}

#: Ways to fit: the method, its options, and the only set on which it is tried (None: all of them).
FITS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "likelihood": ("likelihood", SOFT, None),
    "closed-form": ("closed-form", SOFT, None),
    "projection": ("projection", {}, None),
    "projection, about the control": ("projection", {}, None),
    "likelihood, without means": ("likelihood", {**SOFT, "means": False}, MAIN),
    "likelihood, upstream": ("likelihood", {**SOFT, "unintervened": "upstream"}, TWINS),
}

#: What the experimenter knows: only which context is which; or also that lamps obey the computer and sensors measure.
KNOWLEDGE = ("contexts", "contexts and roles")


def cells(settings: Settings) -> list[dict[str, Any]]:
    parts = [("maps", MAIN, 1.0), *(("rows", name, 0.5) for name in SETS), ("rows", MAIN, 0.1)]
    if settings.quick:
        parts = [part for part in parts[:-1] if part[1] in (MAIN, TWINS)]
    return [
        {"part": part, "set": name, "share": share, "draw": s, "seed": settings.seed}
        for part, name, share in parts
        for s in range(settings.models)
    ] + [{"part": "facts", "set": "", "share": 1.0, "draw": 0, "seed": settings.seed}]


def shared(settings: Settings) -> dict[str, Tunnel]:
    return {name: read(latents) for name, latents in SETS.items()}


def run(cell: Cell, shared: dict[str, Tunnel]) -> list[Row]:
    """Score every method on one draw. Draws have as many features as latents, or twice as many, in turn."""
    if cell["part"] == "facts":
        return [{**cell, "method": "", **fact} for fact in facts()]
    tunnel = shared[cell["set"]]
    rng = np.random.default_rng([cell["seed"], cell["draw"], list(SETS).index(cell["set"]), round(10 * cell["share"])])
    p = len(tunnel.latents) * (1 + cell["draw"] % 2)
    hidden = tunnel.draw(p, cell["share"], rng)
    m = Moments.from_samples(hidden.X, hidden.contexts, control=CONTROL)
    key = {**cell, "features": p}
    rows = []
    for name, (method, options, only) in FITS.items():
        if only in (None, cell["set"]):
            found, failure = attempt(about_the_control(m) if name.endswith("control") else m, method, **options)
            scores = {} if found is None else fit_scores(tunnel, hidden, found)
            rows.append({**key, "method": name, "failure": failure, **scores})
    for method, W in decompose(hidden.X, len(tunnel.latents), cell["draw"]).items():
        rows.append({**key, "method": method, "failure": "", **component_scores(tunnel, W @ hidden.G)})
    return rows + [known_row(key, tunnel, hidden, m, knowledge) for knowledge in KNOWLEDGE]


def known_row(key: Cell, tunnel: Tunnel, hidden: Draw, m: Moments, knowledge: str) -> Row:
    """Score the likelihood written with perfect interventions, where edges have tests, and test the model."""
    names = list(tunnel.Z)[1:]
    # nothing acts on a lamp, and a sensor acts on nothing
    roles = [(u, v) for u in names for v in names if u != v and (v in LAMPS or u not in LAMPS)]
    found, failure = attempt(m, "likelihood", forbidden=None if knowledge == KNOWLEDGE[0] else roles)
    row = {**key, "method": "edges", "knowledge": knowledge, "failure": failure}
    if found is None:
        return row
    if knowledge == KNOWLEDGE[0]:
        row["refused"] = not membership_test(m, data=(hidden.X, hidden.contexts), fit=found).in_model
    return row | fit_scores(tunnel, hidden, found) | edge_scores(tunnel, hidden, found)


def about_the_control(m: Moments) -> Moments:
    """Return second moments about the control's mean instead of covariances, for methods that take no means."""
    shift = m.means - m.means[0]
    return Moments.from_covariances(
        m.covariances + shift[:, :, None] * shift[:, None, :], m.counts, contexts=m.contexts, control=m.control
    )


STUDY = Experiment.of(
    __name__,
    "Light tunnel",
    models=50,
    quick_models=2,
    chunk=2,
    shared=shared,
    unit="draw",
    command="python -m studies",
)
