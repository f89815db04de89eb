"""Maximum likelihood for a given DAG where the latents are seen through noise.

docs/math.md, Features measured with noise, has the formulas.

What is measured is y with ``Cov_k(y) = H^{-1} C_k H^{-T} + N_k``. Weights and variances no longer drop out in closed
form, so Newton's method with the expected information moves them together with H, the mean noises τ, and what is not
known of the noise itself, ν. All letters are those of :mod:`latentdag.core.jacobian`.

With more dimensions r than latents d, the remaining dimensions are the business of further latents: of unit variance,
without causes or effects. What the targeted latents do to those dimensions is in the map from latents to y.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.linalg import lapack, solve_triangular

from latentdag.core.effort import GAIN_TOLERANCE, MEMORY
from latentdag.core.jacobian import Point, as_array, quadratic_form, ties
from latentdag.core.likelihood import Design, Mechanism, Noise, Noisy, evaluate
from latentdag.core.linalg import Array, complement

#: Added to the information, relative to its diagonal: directions that the data leave free must not stop the rest.
RIDGE = 1e-9

#: Information, relative to the largest, below which a direction changes no law: latents that no context targets can be
#: rotated among themselves. It counts as known, so that steps do not go there.
NO_TRACE = 1e-10


#: Nats that a step may still promise at the end of a climb that is not cut short: the maximum is then known to nine
#: digits of a standard error. And nats below which values of the likelihood are rounding, though the gradient is not.
SETTLED, ROUNDING = 1e-18, 1e-7

#: Steps of one climb that gain next to nothing, or do not halve what is left to gain, before gradients help; and how
#: often they do; in rough climbs, of which there are many, once.
STALLS, RESCUES = 6, 5

#: Variance of the measurement's noise over that of a latent's own beyond which the latter is as good as none.
MOST_HIDDEN = 1e6

#: Nats, twice over, that such a ratio of 1 costs. A variance of zero can be likeliest, and is infinitely far away in
#: these parameters: this lets it end at a ratio of some hundreds, and costs less than noise does everywhere else.
HIDING = 1e-3


@dataclass(frozen=True, eq=False)
class State:
    """A model of noisy measurements: H (r, r), rows (r + q, r), mean noises (r + q,) or None, and ν (m,)."""

    H: Array
    rows: Array
    tau: Array | None
    nu: Array

    def moved(self, point: Point, step: Array) -> "State":
        """Return the state after a step in the parameters of its point."""
        d, rows = point.d, self.rows.copy()
        ends = np.cumsum([d * d, int(point.free.sum()), point.n_means])
        X, beta, tau, nu = np.split(step, ends)
        rows[point.free] += beta
        rows = point.retied(rows)
        H = self.H + X.reshape(d, d) @ point.B @ self.H
        return State(H, rows, None if self.tau is None else self.tau + tau, self.nu + nu)

    def of_unit_variance(self, S_bar: Array) -> "State":
        """Return the same model with rows of H of unit variance."""
        scale = np.sqrt(np.einsum("ij,ij->i", self.H @ S_bar, self.H))
        return State(self.H / scale[:, None], self.rows * scale, self.tau, self.nu)


@dataclass(frozen=True, eq=False)
class Slope:
    """The log-likelihood at a state, and its gradient in V (r + q, r), τ and ν."""

    value: float
    V: Array
    tau: Array
    nu: Array


def initial_state(design: Design, H: Array, mechanisms: Sequence[Mechanism]) -> State | None:
    """Return the state at rows H (d, r) with all else as if the design's covariances were exact."""
    at = evaluate(design, H, mechanisms)
    if at is None or design.noisy is None:
        return None
    d, r = H.shape
    rows = np.zeros((r + len(at.rows) - d, r))
    rows[:d, :d], rows[r:, :d] = at.rows[:d], at.rows[d:]
    rows[d:r, d:] = np.eye(r - d)
    if d < r:  # directions that carry nothing of the latents, of unit variance and uncorrelated with them
        N = complement((H @ design.S_bar).T)
        H = np.vstack([H, np.linalg.inv(np.linalg.cholesky(N.T @ design.S_bar @ N)) @ N.T])
    tau = None
    if design.means is not None:
        hit = zip(rows[r:], mechanisms[d:], strict=True)
        tau = np.array([0.0] * r + [row @ H @ design.means[mechanism.context] for row, mechanism in hit])
    return State(H, rows, tau, np.zeros(len(design.noisy.noise.directions)))


def noisy_point(design: Design, mechanisms: Sequence[Mechanism], state: State) -> Point:
    """Return the point of a state; the own entries of rows left alone are held, which fixes the scale of H."""
    assert design.noisy is not None
    d, r = design.d, len(state.H)
    free = np.zeros(state.rows.shape, dtype=bool)
    for q, mechanism in enumerate(mechanisms):
        free[q if q < d else q + r - d, mechanism.parents[: mechanism.n_weights]] = True
    hit = mechanisms[d:]
    target = np.array([mechanism.latent for mechanism in hit], dtype=np.intp)
    context = np.array([mechanism.context for mechanism in hit], dtype=np.intp)
    free[r + np.arange(len(hit)), target] = True
    noise = noise_at(design.noisy, state)
    return Point(state.rows, target, context, free, design.n, state.tau, noise=noise, tied=ties(hit))


def noise_at(noisy: Noisy, state: State) -> Noise:
    """Return the noise of the latents of a state."""
    noise = noisy.noise
    N = noise.N + np.tensordot(state.nu, noise.directions, axes=1)
    return Noise(N, noise.directions, noise.precision).seen_by(state.H)


def slope(design: Design, state: State, point: Point) -> Slope | None:
    """Return the log-likelihood, without ``−N r/2 log 2π``, and its gradient; None beyond sense."""
    assert design.noisy is not None
    assert point.noise is not None
    n, r = design.n, len(state.H)
    F = state.rows[point.at_work]  # B_k
    A = np.eye(r) + F @ point.noise.N @ F.transpose(0, 2, 1)
    if not np.einsum("kii->ki", A).max() < MOST_HIDDEN:
        return None
    B = F @ state.H
    R = B @ design.noisy.S @ B.transpose(0, 2, 1)
    left, tau_k = None, np.zeros(point.at_work.shape)
    if state.tau is not None and design.means is not None:
        tau_k = state.tau[point.at_work]
        left = np.einsum("kij,kj->ki", B, design.means) - tau_k
        R = R + left[:, :, None] * left[:, None]
    try:
        L = np.linalg.cholesky(A)
        log_det = np.linalg.slogdet(B)[1]
    except np.linalg.LinAlgError:
        return None
    A_inv = np.linalg.inv(A)
    log_A = 2 * np.log(np.einsum("kii->ki", L)).sum(axis=1)
    fit = np.einsum("kij,kji->k", A_inv, R)
    prior = point.noise.precision @ state.nu
    value = 0.5 * float(n @ (2 * log_det - log_A - fit) - state.nu @ prior)
    if not np.isfinite(value):
        return None
    P = n[:, None, None] * (A_inv @ R @ A_inv - A_inv)
    of_omega, tau = -P, np.zeros(len(state.rows))
    if left is not None:
        pulled = n[:, None] * np.einsum("kij,kj->ki", A_inv, left)
        # P holds what the mean's error does to the covariance; its part in the mean is −A^{-1} left τᵀ
        of_omega = of_omega - pulled[:, :, None] * tau_k[:, None]
        np.add.at(tau, point.at_work, pulled)
    V = np.zeros(state.rows.shape)
    np.add.at(V, point.at_work, of_omega @ point.D_inv.transpose(0, 2, 1))
    seen = (F.transpose(0, 2, 1) @ P @ F).sum(axis=0) - HIDING * state.rows.T @ state.rows
    nu = 0.5 * np.einsum("ab,jab->j", seen, point.noise.directions) - prior
    hidden = HIDING * state.rows @ point.noise.N[0]
    return Slope(value - 0.5 * float(np.vdot(hidden, state.rows)), V - hidden @ point.B.T, tau, nu)


def gradient(point: Point, at: Slope) -> Array:
    """Return the gradient (P,) in the parameters."""
    return np.asarray(point.pull(at.V[None], at.tau[None], at.nu[None])[0])


def information_factor(point: Point) -> tuple[Array, Array]:
    """Return the scale (P,) of the parameters, and the Cholesky factor of their information in that scale."""
    assert point.noise is not None
    P, form, d = point.rows_by_parameters, quadratic_form(point), point.d
    A = as_array(P.T @ form @ P)
    scale = np.sqrt(np.maximum(np.diagonal(A), np.finfo(float).tiny))
    A = A / scale[:, None] / scale
    if d > len(np.unique(point.target)) + 1:
        w, turns = np.linalg.eigh(A)
        turns = turns[:, w < NO_TRACE * w[-1]]
        A += turns @ turns.T
    hidden = HIDING * point.B @ point.noise.N[0] @ point.B.T
    hidden = np.kron(np.eye(len(point.rows)), hidden)
    hidden = np.pad(hidden, (0, len(form) - len(hidden)))
    A += as_array(P.T @ hidden @ P) / scale[:, None] / scale
    ridge = RIDGE
    while True:
        L, singular = lapack.dpotrf(A + ridge * np.eye(len(A)), lower=1)
        if not singular or ridge > 1:
            return scale, L
        ridge *= 100


def _line_search(
    design: Design, mechanisms: Sequence[Mechanism], state: State, point: Point, now: Slope, step: Array, gain: float
) -> tuple[State, Point, Slope] | None:
    """Return where a step leads that was halved until it climbs; None if nowhere.

    Where the climb is far from what was promised, the parabola through it tells a better length.
    """

    def at(size: float) -> tuple[State, Point, Slope] | None:
        moved = state.moved(point, size * step)
        there = noisy_point(design, mechanisms, moved)
        new = slope(design, moved, there)
        return None if new is None else (moved, there, new)

    size = 1.0
    if gain < ROUNDING:
        return at(size)
    while size > 1e-6:
        found = at(size)
        rise = -np.inf if found is None else found[2].value - now.value
        if found is not None and rise >= 1e-4 * size * gain:
            best = gain * size / max(2 * gain - rise / size, 0.25 * gain)
            other = at(best) if not 0.7 < best / size < 1.5 else None
            return found if other is None or other[2].value < found[2].value else other
        size /= 2
    return None


def climb_noisy(
    design: Design, start: State, mechanisms: Sequence[Mechanism], gain_tol: float, max_iter: int, at_least: float
) -> tuple[State, float, float] | None:
    """Return the state of the maximum, its value, and what a further step promises; None as in ``maximize``."""
    state = start
    point = noisy_point(design, mechanisms, state)
    now = slope(design, state, point)
    if now is None:
        return None
    gain, last, stalls, rescues = np.inf, np.inf, 0, 0
    for iteration in range(max_iter):
        g = gradient(point, now)
        scale, L = information_factor(point)
        step = lapack.dpotrs(L, g / scale, lower=1)[0] / scale
        gain = 0.5 * float(g @ step)
        if iteration and now.value + 2 * gain + 1 < at_least:
            return None
        if not gain > gain_tol and not (gain_tol <= GAIN_TOLERANCE and SETTLED < gain < 0.5 * last):
            break
        moved = _line_search(design, mechanisms, state, point, now, step, gain) if stalls < STALLS else None
        if moved is not None:
            stalls += moved[2].value - now.value < 0.05 * gain or gain > 0.5 * last
            (state, point, now), last = moved, gain
        elif rescues == (RESCUES if gain_tol <= GAIN_TOLERANCE else 1):
            break
        else:  # far from the model the expected information can be far from the curvature: let the gradients tell it
            state, point, now = _quasi_newton(design, mechanisms, state, point, now, gain_tol)
            stalls, rescues, last = 0, rescues + 1, np.inf
    return state, now.value, gain


def _quasi_newton(
    design: Design, mechanisms: Sequence[Mechanism], state: State, point: Point, now: Slope, gain_tol: float
) -> tuple[State, Point, Slope]:
    """Maximise by L-BFGS where steps with the expected information do not climb, in coordinates where that is I."""
    scale, L = information_factor(point)
    M, r = point.B @ state.H, len(state.H)

    def at(x: Array) -> tuple[State, Point, Slope | None]:
        moved = state.moved(point, solve_triangular(L, x, trans=1, lower=True) / scale)
        there = noisy_point(design, mechanisms, moved)
        return moved, there, slope(design, moved, there)

    def negative(x: Array) -> tuple[float, Array]:
        moved, there, new = at(x)
        if new is None:
            return 1e10, np.zeros_like(x)
        g = gradient(there, new)
        # X moves H by X M from where it started, and by X times another matrix from where it is
        g[: r * r] = (g[: r * r].reshape(r, r) @ (M @ np.linalg.inv(there.B @ moved.H)).T).ravel()
        return -new.value / design.N, -solve_triangular(L, g / scale, lower=True) / design.N

    found = optimize.minimize(
        negative,
        np.zeros(point.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "maxcor": MEMORY, "ftol": 1e-3 * gain_tol / abs(now.value), "gtol": 1e-10},
    )
    moved, there, new = at(found.x)
    return (moved, there, new) if new is not None and new.value > now.value else (state, point, now)
