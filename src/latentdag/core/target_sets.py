"""Find out which contexts hit the same latent, several, or none, before any order is known.

docs/math.md, Targets unknown, has the criterion: a latent's noise keeps unit variance and zero mean, and stays
uncorrelated with the others', in every context that leaves it alone (:mod:`latentdag.core.order_free`).

1. *Spread.* In coordinates where the control is white the noise rows M are orthonormal. From random M, planes are
   turned (Jacobi rotations) so that every noise changes its variance in few contexts: each pair of both pays for
   the change, but never much more than a target costs.
2. *Alternate.* Given M, each context takes the targets that are worth their price: greedily, one by one. Given the
   targets, M climbs the order-free likelihood. Until the targets stay.
   Where no context hits a latent alone, few starts arrive where the targets are: some rows of the best are drawn anew.
3. *Mend.* Pairs of context and target are left out for once, two rows are turned in their plane, and step 2 goes on.

Different M can lead to different targets; all ends are returned, the best first. The graphs then tell which is right
(:mod:`latentdag.core.target_search`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from latentdag.core.effort import (
    ALTERNATIONS,
    GAIN_OF_A_MOVE,
    MENDED,
    REDRAWN,
    REDRAWS,
    SPREAD_SWEEPS,
    TARGET_STEPS,
    TARGET_TOLERANCE,
    TURNED,
)
from latentdag.core.likelihood import shares
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.order_free import OrderFree

TINY = float(np.finfo(float).tiny)

#: Nats that one noise pays at most for its change in one context, while planes are turned.
MOST_PAID = 15.0

#: Angles that are tried in every plane, and the refinements of the best.
ANGLES, FINER = 24, 3


@dataclass(frozen=True, eq=False)
class ContextMoments:
    """Moments in coordinates where the control has identity covariance.

    Attributes
    ----------
    n : (K + 1,)
    S : (K + 1, r, r) about each context's own mean
    about : (K + 1, r, r) about the control's mean; S again where means are not used
    means : (K + 1, r) from the control's, or None
    """

    n: Array
    S: Array
    about: Array
    means: Array | None

    @property
    def r(self) -> int:
        return int(self.S.shape[1])

    def judged(self, M: Array) -> Array:
        """Return second moments (K + 1, r, r) of noises, in which a mean counts by how well it is known.

        The control's mean is an estimate, too.
        """
        A = M @ self.S @ M.T
        if self.means is not None:
            known = np.sqrt(self.n[0] / (self.n[0] + self.n))
            away = known[:, None] * (self.means @ M.T)
            A = A + away[:, :, None] * away[:, None]
        return np.asarray(A)


@dataclass(frozen=True, eq=False)
class End:
    """Where one start led: noise rows M (r, r), and which of them each perturbed context hits, (K, r)."""

    score: float
    hit: BoolArray
    M: Array


def columns(hit: BoolArray) -> tuple[tuple[bool, ...], ...]:
    """Return the columns of a matrix of targets, sorted: what is the same whatever the latents are called."""
    return tuple(sorted(tuple(column) for column in hit.T.tolist() if any(column)))


def rows_of(hit: BoolArray) -> list[tuple[int, ...]]:
    """Return the rows that each context hits, the control first."""
    return [(), *(tuple(np.flatnonzero(mine).tolist()) for mine in hit)]


def find_sets(data: ContextMoments, at_most: int, n_latents: int, starts: int) -> list[End]:
    """Return what several starts lead to, the best first.

    Parameters
    ----------
    at_most, n_latents : targets of one context, and rows that are hit, at most
    starts : random starts, of which the best quarter goes on after the first step
    """
    rng, price = np.random.default_rng(0), prices(data)
    found: dict[tuple[tuple[bool, ...], ...], End] = {}

    def ends() -> list[End]:
        return sorted(found.values(), key=lambda one: -one.score)

    def go_on(rows: Array) -> None:
        spread, paid = spread_rows(data, rows)
        for s in np.argsort(paid, kind="stable")[: max(1, starts // 4)]:
            end = alternate(data, spread[s], price, at_most, n_latents)
            known = found.get(columns(end.hit), end)
            found[columns(end.hit)] = max(known, end, key=lambda one: one.score)

    go_on(_random_rotations(rng, starts, data.r))
    idle = 0
    while idle < REDRAWS and not (ends()[0].hit.sum(axis=1) == 1).any():
        before, top = ends()[0].score, ends()[:REDRAWN]
        go_on(np.array([_redrawn(rng, top[s % len(top)].M) for s in range(starts)]))
        idle = 0 if ends()[0].score > before + GAIN_OF_A_MOVE else idle + 1
    best = _mended(data, ends()[0], price, at_most, n_latents)
    found[columns(best.hit)] = best
    return ends()


def _random_rotations(rng: np.random.Generator, number: int, size: int) -> Array:
    return np.asarray(np.linalg.qr(rng.standard_normal((number, size, size)))[0])


def _redrawn(rng: np.random.Generator, M: Array) -> Array:
    """Return the nearest orthonormal rows, two or more of them turned at random among themselves."""
    left, _, right = np.linalg.svd(M)
    rows, size = left @ right, int(rng.integers(2, max(3, len(M))))
    some = rng.choice(len(M), min(size, len(M)), replace=False)
    rows[some] = _random_rotations(rng, 1, len(some))[0] @ rows[some]
    return np.asarray(rows)


def prices(data: ContextMoments) -> Array:
    """Return the nats (r + 1, K) that targets of a context must be worth, by their number.

    A target frees the noise's variance and mean, and its correlations with all other noises. Noise alone gains what a
    χ² of as many degrees says; none of all contexts and noises should reach the price of one.
    """
    r, n = data.r, data.n[1:]
    freed = np.arange(r, 0, -1) + (data.means is not None)
    each = 0.5 * stats.chi2.isf(1 / (len(n) * r * n), freed[:, None])
    return np.vstack([np.zeros(len(n)), np.cumsum(each, axis=0)])


def alternate(
    data: ContextMoments, M: Array, price: Array, at_most: int, n_latents: int, times: int = ALTERNATIONS
) -> End:
    """Choose targets and noise rows in turn, until the targets stay."""
    hit = np.zeros((len(data.n) - 1, data.r), dtype=bool)
    for _ in range(times):
        chosen = best_sets(data, M, price, at_most, n_latents)
        if (chosen == hit).all():
            break
        hit = chosen
        M = climb_rows(data, M, hit)[0]
    return _end(data, M, hit, price)


def climb_rows(data: ContextMoments, M: Array, hit: BoolArray) -> tuple[Array, float]:
    """Return the noise rows that are likeliest for these targets, and their order-free likelihood."""
    return _likelihood(data, hit).climb(M, TARGET_STEPS, TARGET_TOLERANCE / float(data.n.sum()))


def _likelihood(data: ContextMoments, hit: BoolArray) -> OrderFree:
    total, weight = shares(data.n, rows_of(hit), data.r)
    alone = np.tensordot(weight[:-1], data.about, axes=1)
    if data.means is not None:  # about the common mean of the contexts that leave a latent alone
        common = weight[:-1] @ data.means
        alone -= common[:, :, None] * common[:, None]
    return OrderFree(total[:-1, None, None] * alone, data.S[1:], data.n, hit)


def intervened_spans(data: ContextMoments, hit: BoolArray, M: Array) -> dict[int, Array]:
    """Return what the intervened rows of each perturbed context with targets span, (t, r)."""
    size = hit.sum(axis=1)
    by_size = [k for t in np.unique(size[size > 0]) for k in np.flatnonzero(size == t).tolist()]
    return dict(zip(by_size, _likelihood(data, hit).intervened_spans(M), strict=True))


def _end(data: ContextMoments, M: Array, hit: BoolArray, price: Array) -> End:
    value, size = _likelihood(data, hit)(M)[0], hit.sum(axis=1)
    value -= 0.5 * float(data.n[1:] @ size)
    return End(value - float(price[size, np.arange(len(size))].sum()), hit, M)


def _mended(data: ContextMoments, best: End, price: Array, at_most: int, n_latents: int) -> End:
    """Leave pairs of context and target out for once, and turn rows, and go on from what leads to something better."""
    tried: set[bytes] = set()
    improved = True
    while improved:
        improved = False
        for k, i in _weakest(data, best, price):
            hit = best.hit.copy()
            hit[k, i] = False
            if hit.tobytes() in tried:
                continue
            tried.add(hit.tobytes())
            M, _ = climb_rows(data, best.M, hit)
            rest = alternate(data, M, price, at_most, n_latents, 3)
            end = max(_end(data, M, hit, price), rest, key=lambda one: one.score)
            if end.score > best.score + 1e-3:
                best, improved = end, True
                break
        if not improved:
            turned = turned_ends(data, best, price, at_most, n_latents)[0]
            if turned.score > best.score + 1e-3:
                best, improved = turned, True
    return best


def turned_ends(data: ContextMoments, start: End, price: Array, at_most: int, n_latents: int) -> list[End]:
    """Return what turning two noise rows in their plane leads to, the best first, one end for each set of targets.

    Most wrong ends mix two rows, so that both look hit by the contexts of either. By which angle, the contexts that hit
    both tell: one that truly hits one of them alone leaves unit variance in one direction of the plane.
    """
    A, screened = data.judged(start.M)[1:], []
    for a, b in np.argwhere(np.tri(data.r, k=-1)):
        both = start.hit[:, a] & start.hit[:, b]
        for angle in (np.pi / 4, *_unchanged(A[both][:, [a, a, b], [a, b, b]])):
            M, c, s = start.M.copy(), np.cos(angle), np.sin(angle)
            M[a], M[b] = _turned(start.M[a], start.M[b], c, s)
            screened.append(_end(data, M, best_sets(data, M, price, at_most, n_latents), price))
    found: dict[tuple[tuple[bool, ...], ...], End] = {}
    for end in sorted(screened, key=lambda end: -end.score)[:TURNED]:
        led = alternate(data, end.M, price, at_most, n_latents)
        known = found.get(columns(led.hit), led)
        found[columns(led.hit)] = max(known, led, key=lambda one: one.score)
    return sorted(found.values(), key=lambda one: -one.score)


def _unchanged(plane: Array) -> Array:
    """Return the angles at which a plane has a direction of unit variance, from (xx, xy, yy) of each context."""
    xx, xy, yy = plane.T
    root = np.sqrt(np.maximum(xy**2 - (xx - 1) * (yy - 1), 0.0))
    return np.asarray(np.concatenate([np.arctan2(-xy + root, yy - 1), np.arctan2(-xy - root, yy - 1)]))


def _weakest(data: ContextMoments, end: End, price: Array) -> list[tuple[int, int]]:
    """Return pairs of context and target, those first whose target is worth least beside the context's others."""
    A, n, pairs = data.judged(end.M)[1:], data.n[1:], np.argwhere(end.hit)
    k, i = pairs.T
    without, size = end.hit[k], end.hit[k].sum(axis=1)
    without[np.arange(len(k)), i] = False
    worth = _gains(A[k], without, n[k])[np.arange(len(k)), i] - price[size, k] + price[size - 1, k]
    return [(int(k[q]), int(i[q])) for q in np.argsort(worth, kind="stable")[:MENDED]]


def best_sets(data: ContextMoments, M: Array, price: Array, at_most: int, n_latents: int) -> BoolArray:
    """Return for each perturbed context the targets (K, r) that are worth their price, given the noise rows.

    Where more rows are hit than there may be latents, those stay that gain most.
    """
    A, n = data.judged(M)[1:], data.n[1:]
    hit = _greedy_sets(A, n, price, at_most, np.ones(data.r, dtype=bool))
    if hit.any(axis=0).sum() > n_latents:
        gain = (_gains(A, np.zeros_like(hit), n) * hit).sum(axis=0)
        hit = _greedy_sets(A, n, price, at_most, gain >= np.sort(gain)[-n_latents])
    return hit


def _greedy_sets(A: Array, n: Array, price: Array, at_most: int, rows: BoolArray) -> BoolArray:
    """Free one noise after another in every context while it is worth its price, then look at each once more."""
    hit, left = np.zeros(A.shape[:2], dtype=bool), np.arange(len(A))
    for t in range(min(at_most, len(rows))):
        gain = np.where(hit[left] | ~rows, -np.inf, _gains(A[left], hit[left], n[left]))
        best = gain.argmax(axis=1)
        worth = gain[np.arange(len(left)), best] > price[t + 1, left] - price[t, left]
        left, best = left[worth], best[worth]
        hit[left, best] = True
    for k, i in np.argwhere(hit & (hit.sum(axis=1) > 1)[:, None]):
        without, size = hit[k].copy(), int(hit[k].sum())
        without[i] = False
        if size > 1 and _gains(A[[k]], without[None], n[[k]])[0, i] < price[size, k] - price[size - 1, k]:
            hit[k, i] = False
    return hit


def _gains(A: Array, hit: BoolArray, n: Array) -> Array:
    """Return what freeing one more noise gains (K, r), those that are hit being free.

    ``n/2 · (A_ii − 1 + log (A^{-1})_ii)``, A the second moments of the noises that are not free yet.
    """
    out = ~hit
    untouched = np.where(out[:, :, None] & out[:, None], A, np.eye(A.shape[1]))
    inverse = np.einsum("kii->ki", np.linalg.inv(untouched))
    return np.asarray(0.5 * n[:, None] * (np.einsum("kii->ki", A) - 1 + np.log(np.maximum(inverse, TINY))))


def spread_rows(data: ContextMoments, M: Array) -> tuple[Array, Array]:
    """Turn planes of orthonormal rows, many starts (s, r, r) at once, until each noise changes in few contexts.

    Returns
    -------
    M : (s, r, r)
    paid : (s,) what is left to pay
    """
    M, n = M.copy(), data.n[1:]
    A = np.array([data.judged(one)[1:] for one in M])  # (s, K, r, r)
    paid = _paid(np.einsum("skii->ski", A), n[:, None]).sum(axis=(1, 2))
    for _ in range(SPREAD_SWEEPS):
        for a, b in _disjoint_planes(data.r):
            angle = _best_turns(A[:, :, a, a], A[:, :, a, b], A[:, :, b, b], n)
            c, s = np.cos(angle), np.sin(angle)
            M[:, a], M[:, b] = _turned(M[:, a], M[:, b], c[..., None], s[..., None])
            A[:, :, a], A[:, :, b] = _turned(A[:, :, a], A[:, :, b], c[:, None, :, None], s[:, None, :, None])
            A[..., a], A[..., b] = _turned(A[..., a], A[..., b], c[:, None, None], s[:, None, None])
        before, paid = paid, _paid(np.einsum("skii->ski", A), n[:, None]).sum(axis=(1, 2))
        if (before - paid).max() < 0.01 * MOST_PAID:
            break
    return M, paid


def _turned(x: Array, y: Array, c: Array, s: Array) -> tuple[Array, Array]:
    return c * x + s * y, c * y - s * x


def _paid(v: Array, n: Array) -> Array:
    """Return what variances v instead of one cost in n samples, in nats; at most ``MOST_PAID`` each."""
    cost = 0.5 * n * (v - 1 - np.log(np.maximum(v, TINY)))
    return np.asarray(MOST_PAID * cost / (MOST_PAID + cost))


def _best_turns(xx: Array, xy: Array, yy: Array, n: Array) -> Array:
    """Return the angle (s, m) by which each of m planes is best turned, from its moments (s, K, m)."""
    mean, half, xy = 0.5 * (xx + yy)[..., None], 0.5 * (xx - yy)[..., None], xy[..., None]

    def paid(theta: Array) -> Array:
        off = np.cos(2 * theta)[:, None] * half + np.sin(2 * theta)[:, None] * xy
        return np.asarray((_paid(mean + off, n[:, None, None]) + _paid(mean - off, n[:, None, None])).sum(axis=1))

    width = np.pi / ANGLES
    theta = np.broadcast_to(width * (np.arange(ANGLES) - ANGLES // 2), (*xx.shape[::2], ANGLES))
    for _ in range(FINER):
        best = np.take_along_axis(theta, paid(theta).argmin(axis=-1)[..., None], axis=-1)
        theta, width = best + width * np.linspace(-1, 1, 9), width / 4
    both = paid(np.concatenate([best, np.zeros_like(best)], axis=-1))
    return np.where(both[..., 0] < both[..., 1] - 1e-6, best[..., 0], 0.0)


def _disjoint_planes(r: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield all pairs of rows in rounds, as a tournament does: nobody is in two pairs of one round."""
    seats = list(range(r + r % 2))
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = [sorted(pair) for pair in zip(seats[:half], seats[::-1][:half], strict=True)]
        a, b = np.array([pair for pair in pairs if pair[1] < r], dtype=np.intp).reshape(-1, 2).T
        yield a, b
        seats = [seats[0], seats[-1], *seats[1:-1]]
