"""Targets that nobody told, ``ld.fit(m, targets="learn")``: words around :mod:`latentdag.core.target_search`."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from scipy import optimize
from scipy.special import logsumexp

from latentdag.core.linalg import Array, BoolArray
from latentdag.core.target_search import Candidate, TargetSearch, Told
from latentdag.core.target_sets import ContextMoments, best_sets, prices
from latentdag.data import labels as lb
from latentdag.model.intervention import latent_names

#: Nats behind the best up to which other target sets are reported.
OPEN = 3.0


@dataclass(frozen=True)
class Learn:
    """What is known before targets are learned: ``ld.fit(m, targets=ld.Learn(...))``; ``"learn"`` knows nothing.

    Parameters
    ----------
    known : mapping of context to latent name, or names, optional
        Targets that are certain; ``()`` for none. Those of all other contexts are learned.
    at_most : int, optional
        Targets of one context, at most.
    n_latents : int, optional
        Latents that are hit, at most. By default as many as there are dimensions.
    share : mapping of context to group, optional
        Contexts that should share a target, as guides of one gene should: ``{"g1": "GENE", "g2": "GENE"}``. It is a
        place to start, not a constraint: the verdict says whether they do. Latents are named after these groups.

    Examples
    --------
    >>> Learn(known={"A": "x"}, at_most=2)
    Learn(known={'A': ('x',)}, at_most=2)
    """

    known: Mapping[Hashable, Any] = field(default_factory=dict)
    at_most: int | None = None
    n_latents: int | None = None
    share: Mapping[Hashable, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {
            lb.as_label(c): (names,) if isinstance(names, str) else tuple(names) for c, names in self.known.items()
        }
        share = {lb.as_label(c): str(group) for c, group in self.share.items()}
        for name in ("at_most", "n_latents"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | np.integer) and value > 0):
                raise ValueError(f"{name} is a positive number of latents, got {value!r}")
        for context, names in known.items():
            if self.at_most is not None and len(names) > self.at_most:
                raise ValueError(f"context {context!r} is known to hit {list(names)}, more than at_most={self.at_most}")
        for name, made in (("known", known), ("share", share)):
            object.__setattr__(self, name, {c: made[c] for c in lb.canonical_order(made)})

    def __repr__(self) -> str:
        told = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name)]
        return f"Learn({', '.join(told)})"

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        known = [[lb.to_json(c), list(names)] for c, names in self.known.items()]
        share = [[lb.to_json(c), group] for c, group in self.share.items()]
        return {"known": known, "at_most": self.at_most, "n_latents": self.n_latents, "share": share}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Learn":
        """Return what :meth:`to_json` wrote."""
        pairs = {name: {lb.from_json(c): of for c, of in value[name]} for name in ("known", "share")}
        return cls(pairs["known"], value["at_most"], value["n_latents"], pairs["share"])


@dataclass(frozen=True, eq=False)
class Learned:
    """Targets of contexts, latents with rows (d, r) and an order to start from, and what else was found."""

    targets: dict[Hashable, tuple[str, ...]]
    latents: list[str]
    H: Array
    order: tuple[str, ...]
    details: dict[str, Any]


def learn_targets(
    contexts: tuple[Hashable, ...],
    data: ContextMoments,
    soft: list[bool],
    penalty: float,
    learn: Learn,
    noisy: Any = None,
) -> Learned | None:
    """Learn which latents each perturbed context hits; None if nothing differs from the control.

    Parameters
    ----------
    contexts : labels of the perturbed contexts
    data : ContextMoments
    soft : whether the interventions of each are soft
    penalty : nats that an edge must be worth
    learn : what is known
    """
    told, names = _told(contexts, data.r, learn)
    search = TargetSearch(data, soft, penalty, told, noisy)
    best = search.run()
    if best is None:
        return None
    latents = _named(contexts, best.hit, told, names, learn)
    targets = {
        c: tuple(sorted(latents[i] for i in np.flatnonzero(row))) for c, row in zip(contexts, best.hit, strict=True)
    }
    weight, hits, rivals = _weighed(search, best)
    texts = lb.text_names(contexts)
    p = np.minimum(np.tensordot(weight, hits, axes=1), 1.0)
    share = np.minimum(sum(w * (hit @ hit.T > 0) for w, hit in zip(weight, hits.astype(float), strict=True)), 1.0)
    details = {
        "target_probability": [[texts[k], latents[i], float(p[k, i])] for k, i in np.argwhere(p >= 1e-3).tolist()],
        "shared_probability": [
            [texts[a], texts[b], float(share[a, b])] for a, b in np.argwhere(np.triu(share, 1) >= 1e-3).tolist()
        ],
        "target_rivals": [
            [
                gap,
                {
                    texts[k]: [latents[i] for i in np.flatnonzero(hit[k])]
                    for k in np.flatnonzero((hit != best.hit).any(1))
                },
            ]
            for gap, hit in rivals
        ],
        "targets_explored": search.finished,
    }
    return Learned(targets, latents, best.H, tuple(latents[i] for i in best.order), details)


def looks_otherwise(M: Array, data: ContextMoments, hits: list[tuple[int, ...]]) -> list[int]:
    """Return the perturbed contexts whose targets look different from what a fit took them for, at its noise rows."""
    told = np.zeros((len(hits), data.r), dtype=bool)
    for k, rows in enumerate(hits):
        told[k, list(rows)] = True
    price = prices(data)
    found = best_sets(data, M, price, data.r, data.r)
    return [k for k in range(len(hits)) if found[k].any() and (found[k] != told[k]).any()]


def _told(contexts: tuple[Hashable, ...], r: int, learn: Learn) -> tuple[Told, list[str]]:
    """Return what is known as arrays, and the names of the latents that are known."""
    for what, given in (("known", learn.known), ("share", learn.share)):
        unknown = [c for c in given if c not in contexts]
        if unknown:
            raise ValueError(f"{what} names {unknown[0]!r}, which is no context but the control: {list(contexts)[:6]}")
    names = sorted({name for mine in learn.known.values() for name in mine})
    n_latents = r if learn.n_latents is None else learn.n_latents
    for number, whose in ((n_latents, f"n_latents={n_latents}"), (len(names), f"the {len(names)} known latents")):
        if number > r:
            raise ValueError(f"the data have only {r} dimensions, fewer than {whose}: ask for at most {r}")
    if len(names) > n_latents:
        raise ValueError(f"known names {len(names)} latents, more than n_latents={n_latents}: {names[:6]}")
    for group in set(learn.share.values()):
        known = {learn.known[c] for c, g in learn.share.items() if g == group and c in learn.known}
        if len(known) > 1:
            raise ValueError(
                f"share puts contexts into {group!r} that are known to hit different latents: {sorted(known)}"
            )
    fixed = np.array([c in learn.known for c in contexts])
    hit = np.array([[name in learn.known.get(c, ()) for name in names] for c in contexts], dtype=bool)
    groups = sorted(set(learn.share.values()))
    group_of = np.array([groups.index(learn.share[c]) if c in learn.share else -1 for c in contexts])
    most = min(r, learn.at_most or r)
    return Told(most, n_latents, fixed, hit.reshape(len(contexts), len(names)), group_of), names


def _named(contexts: tuple[Hashable, ...], hit: BoolArray, told: Told, names: list[str], learn: Learn) -> list[str]:
    """Return the names of latents: as known, else after the group whose contexts hit it, else after its contexts."""
    latents = latent_names(
        hit.shape[1], {c: np.flatnonzero(row).tolist() for c, row in zip(contexts, hit, strict=True)}
    )
    latents = [_cut(name) for name in latents]
    groups = {group: np.array([learn.share.get(c) == group for c in contexts]) for group in set(learn.share.values())}
    for group, mine in sorted(
        groups.items(), key=lambda item: (int(item[1].sum()), item[0])
    ):  # larger ones have the say
        hits = hit[mine].sum(axis=0)
        if 2 * hits.max() > mine.sum():
            latents[int(hits.argmax())] = group
    fixed = told.fixed
    for column, name in zip(told.hit.T, names, strict=True):
        agree = [(int((hit[fixed, i] == column[fixed]).sum()), i) for i in range(hit.shape[1])]
        latents[max(agree)[1]] = name
    for i, name in enumerate(latents):  # different latents that hit alike, or share a name that was cut
        if name in latents[:i]:
            latents[i] = f"{name} #{1 + latents[:i].count(name)}"
    return latents


def _cut(name: str, longest: int = 4) -> str:
    """Shorten the name of a latent that many contexts hit."""
    parts = name.split("|")
    return name if len(parts) <= longest else "|".join([*parts[: longest - 1], f"+{len(parts) - longest + 1}"])


def _weighed(search: TargetSearch, best: Candidate) -> tuple[Array, BoolArray, list[tuple[float, BoolArray]]]:
    """Return the weight of target sets that were fitted or are a move away, and their targets (m, K, d) by latent.

    And those that were fitted and come near, with the nats that they are behind.
    """
    K, d = best.hit.shape
    scores, hits = [], []
    M = search.noise_rows(best)
    for one in search.candidates:
        match = np.abs(search.noise_rows(one)[: one.hit.shape[1]] @ np.linalg.inv(M))[:, :d]
        rows, columns = optimize.linear_sum_assignment(-match)
        aligned = np.zeros((K, d), dtype=bool)
        aligned[:, columns] = one.hit[:, rows]
        scores.append(one.score)
        hits.append(aligned)
    near = [(best.score - score, hit) for score, hit in zip(scores, hits, strict=True) if best.score - score < OPEN]
    seen = {hit.tobytes() for hit in hits}
    for k, i, j, promise in search.moves(best):
        moved = best.hit.copy()
        moved[k, [x for x in (i, j) if x >= 0]] ^= True
        if moved.tobytes() not in seen:
            scores.append(best.score + promise)
            hits.append(moved)
    rivals = [(float(gap), hit) for gap, hit in near if (hit != best.hit).any()]
    return np.exp(np.array(scores) - logsumexp(scores)), np.array(hits), rivals
