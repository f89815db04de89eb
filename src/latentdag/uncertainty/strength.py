"""What survives if interventions are weaker than they were taken for.

Whether an intervention cuts its target off or leaves half of the parents' weight cannot be told from moments: within an
order every strength explains them equally well. So a weight is a function of the strengths, and this module says how
far it moves over a range of them, and down to which strength an edge is there at all.

What never depends on strengths: the order; which latent is a cause of which, with the sign of its total effect and the
test of it; the noises; edges with nothing between their ends, which then are direct whatever the strength, their weight
being a lower bound; and predictions of the same perturbations combined. What does: all other weights, the absence of
edges, the rows of H, and predictions of stronger perturbations.

Weights are multi-affine in the inverses of the strengths, so over a box they are extreme at its corners; only strengths
of the target and of latents between count. docs/math.md, Partial interventions, has the proofs.
"""

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

from latentdag.core.covariance import Gradient, ParameterCovariance
from latentdag.core.multiplicity import benjamini_hochberg
from latentdag.core.responses import response_point, weight_at
from latentdag.data import labels as lb
from latentdag.data.checks import check_probability
from latentdag.model.intervention import check_strength

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

#: Latents between two whose strengths are varied, each of which doubles the corners of the box.
MOST_BETWEEN = 8

#: Strengths that are looked at for the one at which an edge breaks down.
GRID = (np.arange(5, 101) / 100).tolist()

#: A relation with a larger p-value is taken for none where one asks what may lie between two latents.
NONE_BETWEEN = 0.5

READINGS = ("direct at every strength", "direct down to strength {:.2f}", "cause at every strength", "not settled")
CAPPED = "of more than {most} latents between two, only the {most} that carry most are varied"
NO_RESPONSES = (
    "this fit does not know what its contexts show of total effects: that takes method='likelihood', at most 50 "
    "latents, and a context for each"
)


@dataclass(frozen=True, eq=False)
class Responses:
    """What contexts show of total effects, with errors, for latents in the order of the fit.

    Attributes
    ----------
    latents : names, sources first
    shown : (q, d) what every intervened mechanism shows of the total effects on its target
    target : (q,) position of that
    V : (q, d, q, d) covariance of ``shown``
    """

    latents: tuple[str, ...]
    contexts: list[Hashable]
    target: np.ndarray
    shown: np.ndarray
    V: np.ndarray

    def test(self, i: int, j: int) -> tuple[float, float]:
        """Test that latent j is no cause of latent i, whatever the strengths: deviations from zero, and p-value."""
        rows = np.flatnonzero(self.target == i)
        x, V = self.shown[rows, j], self.V[rows, j][:, rows, j]
        squared = float(x @ np.linalg.solve(V, x)) if len(rows) else 0.0
        return float(np.copysign(np.sqrt(squared), x.sum())), float(stats.chi2.sf(squared, max(len(rows), 1)))

    def relations(self) -> pd.DataFrame:
        """Return the tests of all pairs in the order: source, target, z, p_value, q_value.

        The search has chosen in which direction of each pair to look. So p-values are doubled, and q-values are over
        both directions of all pairs.
        """
        rows = [(a, b, *self.test(i, j)) for i, b in enumerate(self.latents) for j, a in enumerate(self.latents[:i])]
        table = pd.DataFrame(rows, columns=["source", "target", "z", "p_value"])
        table["q_value"] = benjamini_hochberg(table["p_value"].to_numpy(dtype=float), 2 * len(table))
        return table.assign(p_value=np.minimum(1.0, 2 * table["p_value"]))


def responses_of(fit: "Fit") -> Responses:
    """Return what the contexts of a fit show of total effects."""
    if "responses" not in fit.details:
        raise ValueError(NO_RESPONSES)
    model, of = fit.model, fit.uncertainty()
    at = [model.latents.index(name) for name in fit.order]
    position = {name: t for t, name in enumerate(fit.order)}
    d, n = len(at), of.point.d
    before = np.zeros((n, n), dtype=bool)
    before[np.ix_(at, at)] = np.tri(d, k=-1, dtype=bool)
    texts = dict(zip(model.contexts, lb.text_names(model.contexts), strict=True))
    row = {(texts[context], name): q for q, (context, name) in enumerate(of.mechanisms)}
    shown = np.zeros((len(row), d))
    for context, source, target, value in fit.details["responses"]:
        shown[row[context, target], position[source]] = value
    point = response_point(of.point, before)
    target = np.array([position[name] for _, name in of.mechanisms])
    q, j = np.nonzero(np.arange(d) < target[:, None])
    gradient, own = np.zeros((len(q), *point.rows.shape)), point.b[np.arange(len(row)), point.target]
    entry = np.arange(len(q))
    gradient[entry, n + q, np.array(at)[j]] = 1 / own[q]
    gradient[entry, n + q, point.target[q]] = -shown[q, j] / own[q]
    V = np.zeros((len(row), d, len(row), d))
    found = ParameterCovariance(point).matrix(Gradient(point.pack(rows=gradient)))
    V[q[:, None], j[:, None], q, j] = found
    return Responses(fit.order, [context for context, _ in of.mechanisms], target, shown, V)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """How the edges of a fit depend on the strengths of its interventions.

    Attributes
    ----------
    table : DataFrame
        One row per edge of the fit, and per cause that is one at every strength: source, target, weight (at the
        strengths that the fit was told, and where it was told none at 1), low, high (over all strengths, errors
        included), breakdown (the smallest strength s such that with all strengths in [s, 1] the weight keeps its sign
        and is significant; 0 where nothing lies between) and reading.
    curves : DataFrame
        source, target, strength, weight, std_error: with one strength for all latents between, for figures.
    level : float
    """

    table: pd.DataFrame
    curves: pd.DataFrame
    level: float

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))

    def __repr__(self) -> str:
        return f"Sensitivity({len(self.table)} pairs, {self.table['reading'].str.startswith('direct').sum()} direct)"


def sensitivity(fit: "Fit", strengths: Any = (0.5, 1.0), level: float = 0.95) -> Sensitivity:
    """Return how the edges of a fit depend on strengths; see :meth:`latentdag.Fit.sensitivity`."""
    check_probability("level", level)
    if any(change.kind == "soft" for value in fit.model.interventions.values() for change in value.changes.values()):
        raise ValueError("soft interventions have no strength: fit.edges() and fit.partial_order() say what they tell")
    found = responses_of(fit)
    box, told = _box(fit, found, strengths)
    pooled = _Pooled.of(fit, found)
    z, d = float(stats.norm.ppf(0.5 + level / 2)), len(found.latents)
    p, q = np.ones((2, d, d))
    tested = found.relations()
    p[np.tril_indices(d, -1)], q[np.tril_indices(d, -1)] = tested["p_value"], tested["q_value"]
    known = {(source, target) for source, target, _ in fit.details.get("relations", ())} or None
    sd = np.sqrt([fit.model.noise_variance[fit.model.index(name)] for name in found.latents])
    grid = np.linspace(box[:, 0].min(), 1.0, 41)
    rows: list[tuple[Any, ...]] = []
    curves: list[tuple[Any, ...]] = []
    for j, i in combinations(range(len(sd)), 2):
        source, target, units = found.latents[j], found.latents[i], sd[i] / sd[j]
        cause = q[i, j] < 1 - level and (known is None or (source, target) in known)
        if not (cause or fit.graph.has_edge(source, target)):
            continue
        low, high = pooled.band(j, i, box, z)
        (weight,), _ = pooled.weight(j, i, pooled.strength[None])
        between = (p[i, j + 1 : i] < NONE_BETWEEN) & (p[j + 1 : i, j] < NONE_BETWEEN)
        alone = cause and not between.any()
        down_to = 0.0 if alone else pooled.breakdown(j, i, box, told, z)
        reading = READINGS[3 if not cause else 0 if down_to == 0 else 1 if down_to < 1 else 2].format(down_to)
        rows.append((source, target, units * weight, units * low, units * high, down_to, reading))
        # one strength for all latents that the fit was told nothing of
        along, errors = pooled.weight(j, i, np.where(told, pooled.strength, grid[:, None]))
        curves += zip([source] * 41, [target] * 41, grid, units * along, units * errors, strict=True)
    table = pd.DataFrame(rows, columns=["source", "target", "weight", "low", "high", "breakdown", "reading"])
    table.attrs["note"] = CAPPED.format(most=MOST_BETWEEN) if len(sd) > MOST_BETWEEN + 2 else ""
    lines = pd.DataFrame(curves, columns=["source", "target", "strength", "weight", "std_error"])
    return Sensitivity(table, lines, level)


def _box(fit: "Fit", found: Responses, strengths: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the range of each latent's strength (d, 2), and whether it was told (d,) to the fit.

    What the fit was told holds; an interval that it was told, too.
    """
    told = dict(fit.options.strength or {})
    given = dict(strengths) if isinstance(strengths, Mapping) else dict.fromkeys(found.contexts, strengths)
    for context in given:
        if context not in found.contexts:
            listed = lb.listed(dict.fromkeys(found.contexts))
            raise ValueError(f"strengths name {context!r}, which is no context but the control; those are {listed}")
    fixed = {c for c, value in fit.model.interventions.items() if value.kind == "do"}
    ranges = {c: told.get(c, given.get(c, 1.0) if c not in fixed else 1.0) for c in found.contexts}
    box = np.ones((len(found.latents), 2))
    known = np.zeros(len(found.latents), dtype=bool)
    pairs = zip(found.contexts, found.target, strict=True)
    for context, i in sorted(pairs, key=lambda pair: (pair[0] in told, float(np.mean(ranges[pair[0]])))):
        ends = np.ravel(ranges[context]).tolist()
        for end in ends:
            check_strength(end, f"the strength of context {context!r}")
        if len(ends) > 2 or ends[0] > ends[-1]:
            raise ValueError(f"strengths must be a pair (low, high), for all contexts or by context, got {strengths!r}")
        box[i], known[i] = (ends[0], ends[-1]), context in told
    return box, known


@dataclass(frozen=True, eq=False)
class _Pooled:
    """Total effects (d, d) as seen at a nominal strength of each latent, with the covariance of entries."""

    R: np.ndarray
    V: np.ndarray
    strength: np.ndarray

    @classmethod
    def of(cls, fit: "Fit", found: Responses) -> "_Pooled":
        """Put contexts of one latent together: those whose strength the fit was told, if there are any."""
        d, told = len(found.latents), fit.options.strength or {}
        L, strength = np.zeros((d, len(found.target))), np.ones(d)
        for i in range(d):
            rows = np.flatnonzero(found.target == i)
            named = [q for q in rows if found.contexts[q] in told]
            rows = np.array(named) if named else rows
            s = np.array([float(np.mean(told.get(found.contexts[q], 1.0))) for q in rows])
            precision = s**2 / np.array([np.trace(found.V[q, :i, q, :i]) + 1e-300 for q in rows])
            strength[i] = s.max(initial=0.0) or 1.0
            L[i, rows] = precision / precision.sum() * strength[i] / s
        return cls(L @ found.shown + np.eye(d), np.einsum("iq,qjrk,lr->ijlk", L, found.V, L, optimize=True), strength)

    def weight(self, j: int, i: int, strength: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weight (m,) of j on i at strengths (m, d), and its standard error."""
        at = np.arange(j, i + 1)
        a, b = np.tril_indices(len(at), -1)
        V = self.V[at[a][:, None], at[b][:, None], at[a], at[b]]
        return weight_at(self.R[np.ix_(at, at)], V, strength[:, at])

    def varied(self, j: int, i: int) -> np.ndarray:
        """Return the latents whose strengths are varied for the weight of j on i: i, and what carries most between."""
        between = np.arange(j + 1, i)
        carried = np.abs(self.R[i, between] * self.R[between, j])
        return np.append(np.sort(between[np.argsort(-carried, kind="stable")[:MOST_BETWEEN]]), i)

    def band(self, j: int, i: int, box: np.ndarray, z: float) -> tuple[float, float]:
        """Return the smallest and the largest weight over a box (d, 2) of strengths, z standard errors further out."""
        varied = self.varied(j, i)
        corners = np.array(list(product(*(sorted(set(box[t])) for t in varied))))
        strength = np.tile(self.strength, (len(corners), 1))
        strength[:, varied] = corners
        weight, error = self.weight(j, i, strength)
        return float((weight - z * error).min()), float((weight + z * error).max())

    def breakdown(self, j: int, i: int, box: np.ndarray, told: np.ndarray, z: float) -> float:
        """Return the smallest s such that the band over strengths in [s, 1] keeps its sign; ``nan`` if none does."""

        def holds(s: float) -> bool:
            low, high = self.band(j, i, np.where(told[:, None], box, [s, 1.0]), z)
            return low > 0 or high < 0

        first = bisect_left(GRID, True, key=holds)
        return 0.0 if first == 0 and told[self.varied(j, i)].all() else [*GRID, float("nan")][first]


def strength_ratios(fit: "Fit") -> pd.DataFrame:
    """Return the strengths of contexts on one target relative to each other; see :meth:`Fit.strength_ratios`."""
    found, rows = responses_of(fit), []
    for i, name in enumerate(found.latents):
        mine = np.flatnonzero(found.target == i)
        if len(mine) < 2 or not i:
            continue
        x, W = found.shown[mine, :i], np.linalg.inv(found.V[mine, :i][:, :, mine, :i].reshape((len(mine) * i,) * 2))
        clearest = int(np.argmax(np.einsum("qj,qj->q", x, x) / np.einsum("qjqj->q", found.V[mine, :i][:, :, mine, :i])))
        ratio, error, statistic = _proportions(x, W, clearest)
        dof = (len(mine) - 1) * (i - 1)
        p = float(stats.chi2.sf(statistic, dof)) if dof else 1.0
        reference = found.contexts[mine[clearest]]
        rows += [
            (name, found.contexts[q], reference, float(ratio[k]), float(error[k]), statistic, dof, p)
            for k, q in enumerate(mine)
            if k != clearest
        ]
    names = ["target", "context", "reference", "ratio", "std_error", "statistic", "dof", "p_value"]
    return pd.DataFrame(rows, columns=names)


def _proportions(x: np.ndarray, W: np.ndarray, reference: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit ``x_q = r_q p`` (k, t) by weighted least squares, r of the reference being 1: r, its errors, the distance."""
    k, root = len(x), np.linalg.cholesky(W).T
    free = np.flatnonzero(np.arange(k) != reference)
    r, error = np.ones(k), np.zeros(k)

    def away(at: np.ndarray) -> np.ndarray:
        r[free] = at[: k - 1]
        return np.asarray(root @ (x - np.outer(r, at[k - 1 :])).ravel())

    start = x @ x[reference] / (x[reference] @ x[reference])
    found = optimize.least_squares(away, np.concatenate([start[free], x[reference]]), method="lm")
    r[free] = found.x[: k - 1]
    J = np.asarray(found.jac)
    error[free] = np.sqrt(np.diagonal(np.linalg.inv(J.T @ J))[: k - 1])
    return r, error, 2 * float(found.cost)
