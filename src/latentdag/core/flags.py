"""Full orders of latents, and moves between them (MATH.md 3.4, with moves judged after a refit).

If every earlier latent may be a parent, a latent's row can be changed by any multiple of earlier rows without changing the
likelihood: its regression on the earlier ones absorbs it, in the contexts that leave it alone and in those that target
it. So the likelihood of a full order depends only on the *flag*, the growing spans of its rows.

Two neighbours x, y with predecessors A share a plane modulo A; the flag only says which line of it comes first. Let Σ be
the 2 × 2 covariance of the pair after regressing out A, one for each mechanism of either latent, and w the first line.
With x first, the pair's part of the likelihood is

    −½ Σ_{mechanisms of x} n log wᵀΣw  −  ½ Σ_{mechanisms of y} n (log det Σ − log wᵀΣw),

a function of one angle. Its maximum for x first and for y first settles both the swap and the best line: a Jacobi rotation
that may also exchange the two. Walking one latent through the order by such steps judges a move *after* the rows have
adapted, at the price of a few small regressions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, IntArray
from latentdag.core.optimize import maximize

Order = tuple[int, ...]  # rows, sources first

#: Fits that promise to end this many nats behind the best are given up.
NEAR = 10.0

#: A walk through the order gives up when it has lost this many nats: deep valleys lie between good orders.
DEEP = 500.0


@dataclass(frozen=True)
class Flag:
    """A full order, its rows, and its likelihood (relative, where only moves were made)."""

    value: float
    H: Array
    order: Order


def full_parents(order: Order) -> tuple[IntArray, ...]:
    """All predecessors of each latent, in index order."""
    parents: list[IntArray] = [np.empty(0, dtype=np.intp)] * len(order)
    for t, i in enumerate(order):
        parents[i] = np.array(sorted(order[:t]), dtype=np.intp)
    return tuple(parents)


def fit_flag(design: Design, H: Array, order: Order, at_least: float = -np.inf, gain_tol: float = 1e-3) -> Flag | None:
    """Maximum likelihood for one full order."""
    soft = replace(design, soft=(False, *(True,) * (len(design.n) - 1)))
    fitted = maximize(soft, H, full_parents(order), gain_tol=gain_tol, at_least=at_least)
    return None if fitted is None else Flag(fitted.value, fitted.H, order)


class Pairs:
    """The parts of the likelihood that two neighbours in an order share."""

    def __init__(self, design: Design):
        self.S = [
            np.concatenate([design.S_minus[[i]], design.S[[k for k, rows in enumerate(design.hits) if i in rows]]])
            for i in range(design.d)
        ]
        self.n = [
            np.array([design.n_minus[i], *(design.n[k] for k, rows in enumerate(design.hits) if i in rows)])
            for i in range(design.d)
        ]

    def rotate(self, H: Array, order: list[int], t: int) -> tuple[float, float, Array, Array]:
        """Best lines for the neighbours at positions t and t + 1, staying or swapped.

        Returns
        -------
        stay, swap : float
            Nats gained by the best line with the same latent first, and with the other first.
        w_stay, w_swap : (2,)
            The first line, in coordinates of the two rows as they are.
        """
        x, y = order[t], order[t + 1]
        rows = H[[*order[:t], x, y]]
        S = np.concatenate([self.S[x], self.S[y]])
        n = np.concatenate([self.n[x], self.n[y]])
        Sigma = _given_first(rows @ S @ rows.T, t)
        scale = np.sqrt(Sigma[0, [0, 1], [0, 1]])
        Sigma = Sigma / np.outer(scale, scale)
        sign = np.where(np.arange(len(n)) < len(self.n[x]), 1.0, -1.0)
        log_det = np.log(np.maximum(Sigma[:, 0, 0] * Sigma[:, 1, 1] - Sigma[:, 0, 1] ** 2, 1e-300))
        owes = np.array([0.5 * n[sign < 0] @ log_det[sign < 0], 0.5 * n[sign > 0] @ log_det[sign > 0]])
        now = -0.5 * (sign * n) @ np.log(Sigma[:, 0, 0]) - owes[0]
        stay, w_stay = _best_angle(Sigma, -0.5 * sign * n)
        swap, w_swap = _best_angle(Sigma, 0.5 * sign * n)
        return stay - owes[0] - now, swap - owes[1] - now, w_stay / scale, w_swap / scale

    def turn(self, H: Array, order: list[int], t: int, swapped: bool, w: Array) -> None:
        """Put the line w first, in place; the second row becomes whatever completes the plane best."""
        x, y = order[t], order[t + 1]
        first = w[0] * H[x] + w[1] * H[y]
        if swapped:
            order[t], order[t + 1] = y, x
        second = order[t + 1]
        # the row that leans least on the first line
        H[second] = H[x] if abs(w[1]) * np.linalg.norm(H[y]) > abs(w[0]) * np.linalg.norm(H[x]) else H[y]
        H[order[t]] = first


def _given_first(G: Array, t: int) -> Array:
    """Covariances (m, 2, 2) of the last two given the first t, from joint ones (m, t+2, t+2)."""
    if t == 0:
        return G
    return np.asarray(G[:, t:, t:] - G[:, t:, :t] @ np.linalg.solve(G[:, :t, :t], G[:, :t, t:]))


def _best_angle(Sigma: Array, weight: Array) -> tuple[float, Array]:
    """Maximise ``Σ weight · log wᵀΣw`` over lines w of the plane: a grid, refined around its best point."""
    a, b, c = Sigma[:, 0, 0], Sigma[:, 0, 1], Sigma[:, 1, 1]
    low, width, points = 0.0, np.pi, 48
    for _ in range(6):
        theta = low + width * np.arange(points + 1) / points
        cos, sin = np.cos(theta)[:, None], np.sin(theta)[:, None]
        value = np.log(np.maximum(a * cos**2 + 2 * b * cos * sin + c * sin**2, 1e-300)) @ weight
        best = int(np.argmax(value))
        low, width, points = theta[best] - width / points, 2 * width / points, 12
    return float(value[best]), np.array([np.cos(theta[best]), np.sin(theta[best])])


def climb(design: Design, H: Array, order: Order, permit: Callable[[Order], bool], sweeps: int = 20) -> Flag:
    """Walk every latent to its best place, rows adapting on the way, until nothing moves."""
    pairs = Pairs(design)
    H, now, total = H.copy(), list(order), 0.0
    for _ in range(sweeps):
        gained = 0.0
        for t in range(len(now) - 1):  # rotations first: they make the walks' judgement better
            stay, _, w, _ = pairs.rotate(H, now, t)
            if stay > 1e-6:
                pairs.turn(H, now, t, False, w)
                gained += stay
        moved = False
        for x in tuple(now):
            for step in (-1, 1):
                gain, H_new, order_new = walk(pairs, H, now, x, step)
                if gain > 1e-3 and order_new != now and permit(tuple(order_new)):
                    H, now, moved = H_new, order_new, True
                    gained += gain
                    break
        total += gained
        if not moved and gained < 0.1:
            break
    return Flag(total, H, tuple(now))


def walk(pairs: Pairs, H: Array, order: list[int], x: int, step: int) -> tuple[float, Array, list[int]]:
    """Move x left (−1) or right (+1) past its neighbours and stop where it has gained most."""
    H_walk, walked, at = H.copy(), list(order), order.index(x)
    gain, best = 0.0, (0.0, H, order)
    while 0 <= at + step < len(order):
        t = min(at, at + step)
        _, swap, _, w = pairs.rotate(H_walk, walked, t)
        gain += swap
        if gain < -DEEP:
            break
        pairs.turn(H_walk, walked, t, True, w)
        at += step
        if gain > best[0]:
            best = (gain, H_walk.copy(), list(walked))
    return best


def climb_by_refits(
    design: Design, start: Flag, permit: Callable[[Order], bool], notice: Callable[[Flag], object]
) -> Flag:
    """Move one latent at a time, every move judged after a full refit; for few latents."""
    best, seen = start, {start.order}
    while True:
        ranked = sorted((-_reach(design, best, order), order) for order in set(_insertions(best.order)) - seen)
        for _, order in ranked:
            seen.add(order)
            flag = fit_flag(design, best.H, order, at_least=best.value - NEAR) if permit(order) else None
            if flag is None:
                continue
            notice(flag)
            if flag.value > best.value + 1e-3:
                best = flag
                break
        else:
            return best


def _reach(design: Design, flag: Flag, order: Order) -> float:
    """How near a move is: minus the number of neighbours passed; near moves are tried first."""
    position = {x: t for t, x in enumerate(flag.order)}
    return -float(sum(abs(position[x] - t) for t, x in enumerate(order)))


def _insertions(order: Order) -> Iterator[Order]:
    """All orders in which one latent is moved."""
    for a, x in enumerate(order):
        rest = order[:a] + order[a + 1 :]
        for b in range(len(order)):
            if b not in (a, a + 1):  # moving one place to the right is moving the neighbour to the left
                yield (*rest[:b], x, *rest[b:])
