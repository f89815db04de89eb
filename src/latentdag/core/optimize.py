"""Maximum likelihood in H for a given DAG: Newton steps with the expected information, and a line search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from latentdag.core.effort import CONVERGED, GAIN_TOLERANCE, MEMORY
from latentdag.core.jacobian import Point, optimiser_point
from latentdag.core.likelihood import Design, Evaluation, Mechanism, evaluate
from latentdag.core.linalg import Array, IntArray, complement
from latentdag.core.newton import newton_step, outside_information
from latentdag.core.noisy import State, climb_noisy, initial_state


@dataclass(frozen=True)
class Optimum:
    """The maximum for one DAG.

    Attributes
    ----------
    H : (d, r), rows of unit variance over all contexts
    value : float
        ℓ(H) up to the constant common to all DAGs.
    rows : structural rows of all mechanisms
    gain : float
        What a further Newton step promises, in nats.
    converged : bool
    state : all that was fitted, where the features are noisy
    """

    H: Array
    value: float
    rows: Array
    gain: float
    converged: bool
    state: State | None = None


@np.errstate(all="ignore")  # steps that leave the numbers are turned down like any that lead nowhere
def maximize(
    design: Design,
    H: Array,
    parents: Sequence[IntArray],
    gain_tol: float = GAIN_TOLERANCE,
    max_iter: int = 60,
    at_least: float = -np.inf,
) -> Optimum | None:
    """Maximise ℓ over H for fixed parents; None if the start has no likelihood.

    Also None as soon as Newton's model promises less than ``at_least``, with room for the model's error.

    Fisher scoring: near the optimum each step multiplies the distance by about ``n^{-1/2}``, so a handful suffice.
    """
    mechanisms = design.mechanisms(parents)
    H = unit_rows(design, H)
    if design.noisy is not None:
        return _maximize_noisy(design, H, mechanisms, gain_tol, max_iter, at_least)
    now = evaluate(design, H, mechanisms)
    if now is None:
        return None
    gain, stalls = np.inf, 0
    for iteration in range(max_iter):
        step = _newton_step(design, H, now, optimiser_point(design, mechanisms, now.rows, H), gain_tol)
        gain = 0.5 * float(np.vdot(now.gradient, step))
        if iteration and now.value + 2 * gain + 1 < at_least:
            return None
        if not gain > gain_tol:
            break
        moved = _line_search(design, H, now, step, gain, mechanisms)
        stalls += moved is None or moved[1].value - now.value < 0.05 * gain
        if moved is not None:
            H, now = moved
        if stalls == 4:
            # far from the model the expected information can be far from the curvature: let the gradients tell it
            H, now = _quasi_newton(design, H, now, mechanisms)
        elif moved is None or stalls > 12:
            break
    return Optimum(H, now.value, now.rows, gain, bool(gain <= max(gain_tol, CONVERGED, 1e-9 * abs(now.value))))


def _maximize_noisy(
    design: Design, H: Array, mechanisms: Sequence[Mechanism], gain_tol: float, max_iter: int, at_least: float
) -> Optimum | None:
    start = initial_state(design, H, mechanisms)
    found = None if start is None else climb_noisy(design, start, mechanisms, gain_tol, max_iter, at_least)
    if found is None:
        return None
    state, value, gain = found
    state, d, r = state.of_unit_variance(design.S_bar), len(H), H.shape[1]
    rows = np.vstack([state.rows[:d, :d], state.rows[r:, :d]])
    return Optimum(state.H[:d], value, rows, gain, bool(gain <= max(gain_tol, CONVERGED, 1e-9 * abs(value))), state)


def _quasi_newton(
    design: Design, H: Array, now: Evaluation, mechanisms: Sequence[Mechanism], max_iter: int = 500
) -> tuple[Array, Evaluation]:
    """Maximise by L-BFGS where Newton's method with the expected information does not climb.

    In coordinates where all contexts together have unit variance: contexts that shift a mean far make others narrow.
    """
    F = np.linalg.cholesky(design.S_bar)
    F_inv = np.asarray(np.linalg.inv(F), dtype=np.float64)

    def negative(x: Array) -> tuple[float, Array]:
        at = evaluate(design, x.reshape(H.shape) @ F_inv, mechanisms)
        if at is None:
            return 1e10, np.zeros_like(x)
        return -at.value / design.N, -(at.gradient @ F_inv.T).ravel() / design.N

    found = optimize.minimize(
        negative,
        (H @ F).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxcor": MEMORY, "ftol": 1e-15, "gtol": 1e-10},
    )
    moved = unit_rows(design, found.x.reshape(H.shape) @ F_inv)
    new = evaluate(design, moved, mechanisms)
    return (moved, new) if new is not None and new.value > now.value else (H, now)


def unit_rows(design: Design, H: Array) -> Array:
    """Scale every row to unit variance over all contexts; the likelihood does not care, the arithmetic does."""
    return np.asarray(H / np.sqrt(np.einsum("ij,ij->i", H @ design.S_bar, H))[:, None])


def _newton_step(design: Design, H: Array, now: Evaluation, point: Point, gain_tol: float) -> Array:
    M = point.B @ H
    step = newton_step(point, now.gradient @ M.T, gain_tol) @ M
    if H.shape[0] < H.shape[1]:
        # directions that carry nothing of the latents, of unit variance and uncorrelated with them
        N = complement((M @ design.S_bar).T)
        rest = np.linalg.inv(np.linalg.cholesky(N.T @ design.S_bar @ N)) @ N.T
        # few samples can leave directions without information: no step along those
        inverse = np.linalg.pinv(outside_information(point), rcond=1e-9, hermitian=True)
        step = step + inverse @ now.gradient @ rest.T @ rest
    return np.asarray(step)


def _line_search(
    design: Design, H: Array, now: Evaluation, step: Array, gain: float, mechanisms: Sequence[Mechanism]
) -> tuple[Array, Evaluation] | None:
    size = 1.0
    while size > 1e-6:
        moved = H + size * step
        new = evaluate(design, moved, mechanisms)
        if new is not None and new.value >= now.value + 1e-4 * size * gain:
            scaled = unit_rows(design, moved)
            factor = np.linalg.norm(moved, axis=1) / np.linalg.norm(scaled, axis=1)
            return scaled, Evaluation(new.value, new.gradient * factor[:, None], new.rows * factor)
        size /= 2
    return None
