"""Second solutions for latents whose causes were never intervened on, each fitted to the end.

On exact moments :mod:`latentdag.identification.equivalence` says which latents have two solutions. On samples the
second is a start like any other: where it leads, and how far behind, says whether the data leave it open.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from latentdag.core.effort import INSERT_UP_TO
from latentdag.core.graphs import FittedGraph, Rules
from latentdag.core.linalg import Array, complement
from latentdag.core.pairs import other_solution
from latentdag.core.posterior import merge
from latentdag.core.search import Found, climb_from, conclude
from latentdag.methods.design import Prepared
from latentdag.methods.starts import Start

#: Nats behind the best up to which a solution is still reported: odds of one to twenty.
AMBIGUOUS = 3.0

#: Cosine above which two rows are one solution.
SAME = 0.9999

#: How many models are explored.
AT_MOST = 16

Rivals = Mapping[str, list[dict[str, Any]]]


def with_rivals(prepared: Prepared, found: Found, rules: Rules) -> tuple[Found, Rivals]:
    """Return the best fit once second solutions were tried too, and, by latent, those that the likelihood leaves open.

    Equal likelihood is what "open" means: the sparser of two graphs is the better guess, not the only answer.
    """
    fits = [found]
    for fit in fits:  # grows while it is walked: the second solution of one latent can open or close another's
        for i in _open_latents(prepared, fit.best):
            other = _from_other_solution(prepared, fit.best, i, rules) if len(fits) < AT_MOST else None
            if other is not None and not any(_same(prepared, other.best, known.best) for known in fits):
                top = max(known.best.optimum.value for known in fits)
                if other.best.optimum.value > top - AMBIGUOUS or other.best.score > found.best.score:
                    fits.append(other)
    best = max(fits, key=lambda fit: fit.best.score)
    rivals: dict[str, list[dict[str, Any]]] = {}
    known = {i: [row] for i, row in enumerate(best.best.optimum.H)}
    for fit in sorted(fits, key=lambda fit: -fit.best.score):
        gap = best.best.optimum.value - fit.best.optimum.value
        for i in _targeted(prepared) if gap < AMBIGUOUS else ():
            row = fit.best.optimum.H[i]
            if all(_cosine(row, other) < SAME for other in known[i]):
                known[i].append(row)
                edges = _n_edges(fit.best) - _n_edges(best.best)
                why = "its causes were never intervened on, and both candidates have the same moments"
                rival = {"unmixing": (row @ prepared.W).tolist(), "gap": float(gap), "more_edges": edges, "why": why}
                rivals.setdefault(prepared.latents[i], []).append(rival)
    together = merge(fit.posterior for fit in fits if fit.posterior is not None)
    return replace(best, posterior=together), rivals


def _same(prepared: Prepared, a: FittedGraph, b: FittedGraph) -> bool:
    return all(_cosine(a.optimum.H[i], b.optimum.H[i]) >= SAME for i in _targeted(prepared))


def _targeted(prepared: Prepared) -> list[int]:
    return sorted({i for rows in prepared.design.hits for i in rows})


def _cosine(a: Array, b: Array) -> float:
    return float(abs(a @ b) / np.sqrt((a @ a) * (b @ b)))


def _n_edges(graph: FittedGraph) -> int:
    return sum(len(parents) for parents in graph.parents)


def _open_latents(prepared: Prepared, best: FittedGraph) -> list[int]:
    """Return latents hit by one perfect intervention each; where there are many, only those without targeted causes.

    Others have no second solution, but in samples a spurious edge may hide that a latent belongs here.
    """
    design = prepared.design
    hit = [i for rows in design.hits for i in rows]
    once = [i for i in dict.fromkeys(hit) if hit.count(i) == 1]
    soft = {i for rows, is_soft in zip(design.hits, design.soft, strict=True) for i in rows if is_soft}
    once = [i for i in once if i not in soft]
    return once if design.d <= INSERT_UP_TO else [i for i in once if not set(best.parents[i]).intersection(hit)]


def _from_other_solution(prepared: Prepared, best: FittedGraph, i: int, rules: Rules) -> Found | None:
    start = _other_start(prepared, best, i, rules)
    if start is None:
        return None
    return conclude(prepared.design, [climb_from(prepared.design, start, rules)], rules, turn=False)


def _other_start(prepared: Prepared, best: FittedGraph, i: int, rules: Rules) -> Start | None:
    d, rows = prepared.design.d, best.optimum.rows
    mechanisms = prepared.design.mechanisms(best.parents)
    q = next(q for q, mechanism in enumerate(mechanisms) if q >= d and mechanism.latent == i)
    B_inv = np.linalg.inv(rows[:d])
    M = rows[:d] @ best.optimum.H
    pair = other_solution(rows[q] @ B_inv, np.eye(d)[i])
    if pair is None:
        return None
    u, m = pair
    H, free = best.optimum.H.copy(), [i, *rules.rest]
    H[i] = u @ M
    # what is left of these noises once the new one is taken out
    H[list(rules.rest)] = complement(m[free][:, None]).T @ M[free]
    order = tuple(j for j in best.order if j not in (*rules.rest, i))
    return H, (*rules.rest, i, *order)
