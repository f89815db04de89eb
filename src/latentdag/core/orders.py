"""Full orders of latents, and moves between them, judged after the rows have adapted (docs/math.md, The search).

If every earlier latent may be a parent, a latent's row can be changed by any multiple of earlier rows without changing
the likelihood: its regression on the earlier ones absorbs it, in the contexts that leave it alone and in those that
target it. So the likelihood of a full order depends only on the *flag*, the growing spans of its rows.

Two neighbours x, y with predecessors A share a plane modulo A; the flag only says which line of it comes first. Let Σ
be the 2 × 2 covariance of the pair after regressing out A, one for each mechanism of either latent, and w the first
line. With x first, the pair's part of the likelihood is

    −½ Σ_{mechanisms of x} n log wᵀΣw  −  ½ Σ_{mechanisms of y} n (log det Σ − log wᵀΣw),

a function of one angle. Its maximum for x first and for y first settles both the swap and the best line: a Jacobi
rotation that may also exchange the two. Walking one latent through the order by such steps judges a move *after* the
rows have adapted.

All these Σ come from one Cholesky factor L per mechanism, of the latents' covariance in the order as it stands. A
latent that walks left is a combination c of the rows it has passed, with coordinates ``c L``. One that walks right is
known by what its new predecessors leave out: they are the kernel of a functional f on the rows passed, and
``L^{-1} f`` is normal to them. So all latents walk at once, one step per round, and moves over disjoint stretches of
the order add up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from latentdag.core.effort import DEEP, GAIN_OF_A_MOVE, GAIN_OF_ORDERS, NEAR, WORTH_A_SWEEP, WORTHWHILE
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, IntArray
from latentdag.core.optimize import maximize

Order = tuple[int, ...]  # rows, sources first


@dataclass(frozen=True)
class Flag:
    """A full order, its rows, and its likelihood (relative, where only moves were made)."""

    value: float
    H: Array
    order: Order


def full_parents(order: Order) -> tuple[IntArray, ...]:
    """Return all predecessors of each latent, in index order."""
    parents: list[IntArray] = [np.empty(0, dtype=np.intp)] * len(order)
    for t, i in enumerate(order):
        parents[i] = np.array(sorted(order[:t]), dtype=np.intp)
    return tuple(parents)


def fit_flag(design: Design, H: Array, order: Order, at_least: float = -np.inf) -> Flag | None:
    """Fit one full order by maximum likelihood; None if it has none, or promises less than ``at_least``."""
    soft = replace(design, soft=(False, *(True,) * (len(design.n) - 1)))
    fitted = maximize(soft, H, full_parents(order), gain_tol=GAIN_OF_ORDERS, at_least=at_least)
    return None if fitted is None else Flag(fitted.value, fitted.H, order)


class Stack:
    """Every latent's mechanisms, alone first and then targeted, as arrays: S (d, q, r, r), n (d, q).

    Latents with fewer mechanisms than others are padded with some of weight zero.
    """

    def __init__(self, design: Design):
        hits = design.targeting
        q = 1 + max(len(mine) for mine in hits)
        self.n = np.zeros((design.d, q))
        self.S = np.repeat(design.S_minus[:, None], q, axis=1)
        self.n[:, 0] = design.n_minus
        for i, mine in enumerate(hits):
            self.n[i, 1 : 1 + len(mine)] = design.n[mine]
            self.S[i, 1 : 1 + len(mine)] = design.S[mine]


def cholesky(G: Array) -> Array:
    """Return Cholesky factors of covariances (…, d, d); of slightly larger ones where rows all but coincide."""
    jitter = 0.0
    while True:
        try:
            return np.asarray(np.linalg.cholesky(G), dtype=np.float64)
        except np.linalg.LinAlgError:
            jitter = max(100 * jitter, 1e-12)
            if jitter > 1e-3:
                raise
            G = G + jitter * np.einsum("...ii->...i", G)[..., None] * np.eye(G.shape[-1])


def _matrices(A: Array) -> Array:
    """Return a stack (…, d, d) as one list of matrices."""
    return A.reshape(-1, *A.shape[-2:])


class Factors:
    """Cholesky factors L and their inverses, (d, q, d, d), of all mechanisms' covariances of the latents in one order.

    Everything is by position in the order: ``L[t]`` belongs to the mechanisms of the latent at position t.
    """

    def __init__(self, stack: Stack, H: Array, order: Order):
        rows = H[list(order)]
        self.n = stack.n[list(order)]
        self.L = cholesky((rows @ stack.S @ rows.T)[list(order)])
        self._inverse: Array | None = None

    @property
    def L_inv(self) -> Array:
        if self._inverse is None:
            self._inverse = np.empty_like(self.L)
            for L, L_inv in zip(_matrices(self.L), _matrices(self._inverse), strict=True):
                L_inv[:] = lapack.dtrtri(L, lower=1)[0]
        return self._inverse

    def rotate(self) -> tuple[Array, Array]:
        """Return the best line of each pair of neighbours that stay in place: nats gained (d−1,), and w (d−1, 2)."""
        t, s = np.arange(len(self.L) - 1), np.arange(1, len(self.L))

        def entries(i: IntArray, j: IntArray) -> Array:
            """Return single entries (d−1, 2q) of the factors of both neighbours."""
            return np.concatenate([self.L[t, :, i, j], self.L[s, :, i, j]], axis=1)

        xx, yx = entries(t, t), entries(s, t)
        yy = entries(s, s) ** 2 + yx**2
        return _best_lines(xx**2, xx * yx, yy, self.n[:-1], self.n[1:], swap=False)

    def turn(self, parity: int, J: Array) -> None:
        """Follow the rows of neighbours, at positions of one parity, to ``J`` (m, 2, 2) times them, in place.

        A Givens rotation of two columns makes each factor triangular again.
        """
        first, second = slice(parity, len(self.L) - 1, 2), slice(parity + 1, None, 2)
        rows = J.transpose(1, 2, 0)[..., None]
        for L in self.L:  # one latent's stay in the cache
            x, y = L[:, first].copy(), L[:, second].copy()
            L[:, first], L[:, second] = (a * x + b * y for a, b in rows)
            a, b = (np.einsum("qmm->qm", L[:, first, columns])[:, None] for columns in (first, second))
            size = np.hypot(a, b)
            c, s = a / size, b / size
            left, right = L[..., first].copy(), L[..., second].copy()
            right_now = c * right - s * left
            right_now *= np.sign(np.einsum("qmm->qm", right_now[:, second]))[:, None]
            L[..., first], L[..., second] = c * left + s * right, right_now
            np.einsum("qmm->qm", L[:, first, second])[:] = 0.0

    def walk_left(self) -> "Walks":
        """Walk all latents to the left at once, and return what each gains at each step.

        The walker from a that meets y is a combination c of the rows between, so only the factors' block of these
        rows counts: what is gathered grows with the steps of those who still walk.
        """
        d = len(self.L)
        walks = Walks(np.full((max(d - 1, 0), d), -np.inf), np.zeros((max(d - 1, 0), d, 2)))
        a = np.arange(1, d)  # where each walker started
        c, v_x, total = np.ones((d - 1, 1)), self.L[a, :, a], np.zeros(d - 1)
        for s in range(d - 1):
            y = a - s - 1
            columns = y[:, None] + np.arange(s + 2)  # y, and the rows passed
            block = y[:, None, None], columns[:, 1:, None], columns[:, None]
            v_y = np.stack([(c[:, None] @ L[block])[:, 0] for L in self.L.swapaxes(0, 1)], axis=1)
            v = np.concatenate([v_y, np.take_along_axis(v_x, columns[:, None], axis=2)], axis=1)
            L_yy = np.concatenate([self.L[y, :, y, y], self.L[a, :, y, y]], axis=1)
            xx = np.einsum("wqm,wqm->wq", v, v)
            gain, w = _best_lines(L_yy**2, v[:, :, 0] * L_yy, xx, self.n[y], self.n[a], swap=True)
            total = total + gain
            walks.gain[s, a], walks.w[s, a] = total, w
            on = (total > -DEEP) & (y > 0)
            w = w / np.abs(w).max(axis=1)[:, None]
            v_x = w[:, 1, None, None] * v_x + w[:, 0, None, None] * self.L[a, :, y]
            c = np.hstack([w[:, :1], w[:, 1:] * c])
            a, c, v_x, total = a[on], c[on], v_x[on], total[on]
            if not len(a):
                break
        return walks

    def walk_right(self) -> "Walks":
        """Walk all latents to the right at once, and return what each gains at each step."""
        d = len(self.L)
        walks = Walks(np.full((max(d - 1, 0), d), -np.inf), np.zeros((max(d - 1, 0), d, 2)))
        a = np.arange(d - 1)
        f, q_x, total = np.ones((d - 1, 1)), self.L_inv[a, :, a, a][:, :, None], np.zeros(d - 1)
        for s in range(d - 1):
            z = a + s + 1
            columns = a[:, None] + np.arange(s + 2)  # the rows passed, and z
            before = columns[:, :-1]
            block = z[:, None, None], before[:, :, None], before[:, None]
            q_z = np.stack([(L_inv[block] @ f[..., None])[..., 0] for L_inv in self.L_inv.swapaxes(0, 1)], axis=1)
            q = np.concatenate([q_x, q_z], axis=1)
            L_z = np.concatenate([self.L[a, :, z], self.L[z, :, z]], axis=1)
            L_z = np.take_along_axis(L_z, columns[:, None], axis=2)
            qq, ql = np.einsum("wqm,wqm->wq", q, q), np.einsum("wqm,wqm->wq", q, L_z[:, :, :-1])
            gain, w = _best_lines(1 / qq, ql / qq, ql**2 / qq + L_z[:, :, -1] ** 2, self.n[a], self.n[z], swap=True)
            total = total + gain
            walks.gain[s, a], walks.w[s, a] = total, w
            on = (total > -DEEP) & (z < d - 1)
            w = w / np.abs(w).max(axis=1)[:, None]
            f = np.hstack([w[:, 1:] * f, -w[:, :1]])
            last = np.einsum("wmq,wm->wq", self.L_inv[a[:, None], :, z[:, None], columns], f)
            q_x = np.concatenate([w[:, 1, None, None] * q_x, last[:, :, None]], axis=2)
            a, f, q_x, total = a[on], f[on], q_x[on], total[on]
            if not len(a):
                break
        return walks


@dataclass(frozen=True)
class Walks:
    """What all latents gain by walking one way.

    Attributes
    ----------
    gain : (d−1, d)
        ``[s, a]`` after the latent at position a has passed s + 1 neighbours; −inf beyond where it gave up.
    w : (d−1, d, 2)
        The first line of each swap: parts of the neighbour that was first, and of the other one. When walking right,
        the first is the walker, as an element on which the functional f is one.
    """

    gain: Array
    w: Array

    def best(self) -> tuple[Array, IntArray]:
        """Return each latent's largest gain, and how many neighbours it passes for it."""
        if not len(self.gain):
            return np.zeros(self.gain.shape[1]), np.zeros(self.gain.shape[1], dtype=np.intp)
        return self.gain.max(axis=0), 1 + self.gain.argmax(axis=0)


def _best_lines(xx: Array, xy: Array, yy: Array, n_x: Array, n_y: Array, swap: bool) -> tuple[Array, Array]:
    """Return the gain (p,) and the first line (p, 2) of p pairs of neighbours, x first as they are.

    Parameters
    ----------
    xx, xy, yy : (p, 2q) residual covariances under the mechanisms of x, then of y
    n_x, n_y : (p, q)
    swap : whether y is to come first
    """
    s_x, s_y = np.sqrt(xx[:, :1]), np.sqrt(yy[:, :1])
    xx, xy, yy = xx / s_x**2, xy / (s_x * s_y), yy / s_y**2
    weight = 0.5 * np.concatenate([-n_x, n_y], axis=1)
    log_det = np.log(np.maximum(xx * yy - xy**2, 1e-300))
    now = np.einsum("pm,pm->p", weight, np.log(xx))
    if swap:  # what the second latent owes to the determinants goes from y to x
        now = now - np.einsum("pm,pm->p", weight, log_det)
        weight = -weight
    value, angle = _best_angles(xx, xy, yy, weight)
    return value - now, np.column_stack([np.cos(angle) / s_x[:, 0], np.sin(angle) / s_y[:, 0]])


def _best_angles(a: Array, b: Array, c: Array, weight: Array) -> tuple[Array, Array]:
    """Maximise ``Σ weight · log wᵀΣw`` over lines w of each plane: a grid, refined around its best point."""
    mean, half = 0.5 * (a + c), 0.5 * (a - c)
    everyone = np.arange(len(a))
    low, width, points = np.zeros(len(a)), np.pi, 48
    for _ in range(6):
        theta = low[:, None] + width * np.arange(points + 1) / points
        form = mean[:, None] + np.cos(2 * theta)[..., None] * half[:, None] + np.sin(2 * theta)[..., None] * b[:, None]
        value = (np.log(np.maximum(form, 1e-300)) @ weight[..., None])[..., 0]
        best = np.argmax(value, axis=1)
        low, width, points = theta[everyone, best] - width / points, 2 * width / points, 12
    return value[everyone, best], theta[everyone, best]


def move_left(H: Array, order: Order, a: int, w: Array) -> tuple[Array, Order]:
    """Return rows and order after the latent at position a has passed one neighbour to its left per line in w."""
    H, now = H.copy(), list(order)
    for t, (first, second) in zip(range(a - 1, -1, -1), w / np.abs(w).max(axis=1)[:, None], strict=False):
        y, x = now[t], now[t + 1]
        row = first * H[y] + second * H[x]
        if abs(first) * np.linalg.norm(H[y]) > abs(second) * np.linalg.norm(H[x]):
            H[y] = H[x]
        H[x] = row
        now[t], now[t + 1] = x, y
    return H, tuple(now)


def move_right(H: Array, order: Order, a: int, w: Array) -> tuple[Array, Order]:
    """Return rows and order after the latent at position a has passed one neighbour to its right per line in w."""
    H, now, f = H.copy(), list(order), 1.0
    for t, (first, second) in zip(range(a, len(order)), w / np.abs(w).max(axis=1)[:, None], strict=False):
        x, y = now[t], now[t + 1]
        row = first / f * H[x] + second * H[y]
        f *= second
        if abs(first) * np.linalg.norm(H[x]) > abs(f) * np.linalg.norm(H[y]):
            H[x], f = H[y], -first
        H[y] = row
        now[t], now[t + 1] = y, x
    return H, tuple(now)


def climb(design: Design, H: Array, order: Order, permit: Callable[[Order], bool], sweeps: int = 20) -> Flag:
    """Walk every latent to its best place, rows adapting on the way, until nothing moves."""
    stack, total = Stack(design), 0.0
    for _ in range(sweeps):
        H, factors, rotated = _rotate(stack, H, order)
        H, order_new, walked = _walk(factors, H, order, permit)
        total += rotated + walked
        moved, order = order_new != order, order_new
        if rotated + walked < (WORTH_A_SWEEP * len(order) * (len(order) - 1) / 2 if moved else 0.1):
            break
    return Flag(total, H, order)


def _rotate(stack: Stack, H: Array, order: Order) -> tuple[Array, Factors, float]:
    """Turn the lines of neighbours, at even positions and then at odd ones: walks then judge better."""
    H, gained = H.copy(), 0.0
    factors = Factors(stack, H, order)
    for parity in (0, 1):
        gain, w = (each[parity::2] for each in factors.rotate())
        J = np.repeat(np.eye(2)[None], len(gain), axis=0)
        for t in np.flatnonzero(gain > 1e-3):
            both = list(order[parity + 2 * t : parity + 2 * t + 2])
            size = np.linalg.norm(w[t, :, None] * H[both], axis=1)
            # the row that leans least on the first line completes the plane
            J[t] = w[t], [1.0, 0.0] if size[1] > size[0] else [0.0, 1.0]
            H[both] = J[t] @ H[both]
            gained += float(gain[t])
        factors.turn(parity, J)
    return H, factors, gained


def _walk(factors: Factors, H: Array, order: Order, permit: Callable[[Order], bool]) -> tuple[Array, Order, float]:
    """Make the moves that gain most, over stretches of the order that do not overlap."""
    left, right = factors.walk_left(), factors.walk_right()
    moves = [
        (-gain, a, step, int(passed))
        for step, walks in ((-1, left), (1, right))
        for a, (gain, passed) in enumerate(zip(*walks.best(), strict=True))
        if gain > WORTHWHILE
    ]
    taken, gained = np.zeros(len(order), dtype=bool), 0.0
    for loss, a, step, passed in sorted(moves):
        stretch = slice(a - passed, a + 1) if step < 0 else slice(a, a + passed + 1)
        if taken[stretch].any():
            continue
        move, walks = (move_left, left) if step < 0 else (move_right, right)
        moved, order_new = move(H, order, a, walks.w[:passed, a])
        if permit(order_new):
            H, order, gained = moved, order_new, gained - loss
            taken[stretch] = True
    return H, order, gained


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
            if flag.value > best.value + GAIN_OF_A_MOVE:
                best = flag
                break
        else:
            return best


def _reach(design: Design, flag: Flag, order: Order) -> float:
    """Return minus the number of places by which latents move; near moves are tried first."""
    position = {x: t for t, x in enumerate(flag.order)}
    return -float(sum(abs(position[x] - t) for t, x in enumerate(order)))


def _insertions(order: Order) -> Iterator[Order]:
    """Yield all orders in which one latent is moved."""
    for a, x in enumerate(order):
        rest = order[:a] + order[a + 1 :]
        for b in range(len(order)):
            if b not in (a, a + 1):  # moving one place to the right is moving the neighbour to the left
                yield (*rest[:b], x, *rest[b:])
