"""Fisher information of all parameters of a fit, means included (MATH.md 3.5).

Row scale is no parameter, so the diagonal of ``B_0`` is held fixed; what a user calls the scaling of rows is then a
function of the parameters like any other (see :mod:`latentdag.core.quantities`). The parameters are, in this order,

* X (d, d), with ``dH = X M`` and ``M = B_0 H`` the noise rows of the control;
* β, the entries of ``B_0`` on the edges of the graph;
* β_q, the free entries of every intervened row ``b_q`` (its diagonal if perfect, the parents too if soft);
* if means are used, ν (d), the mean of each noise in all contexts that leave it alone, and τ_q, that of each
  intervened mechanism. Features are measured from the model's offset, so that ν = 0 at the fitted point.

In context k, ``F_k = B_k H`` moves by ``dF_k = Ω_k F_k`` and a sample has ``F_k x = e + τ_k`` with e white, so

    I = Σ_k n_k/2 ‖Ω_k + Ω_kᵀ‖² + Σ_k n_k ‖dτ_k − Ω_k τ_k‖².

The rows of ``Ω_k D_k`` (``D_k = B_k B_0^{-1}``) are ``T_i = (B_0 X + β B_0^{-1})_i`` where i is left alone and
``R_q = b_q X + β_q B_0^{-1}`` where mechanism q replaces it. Hence ``Ω_k τ_k`` has entries ``T_i δ_k`` and ``R_q δ_k``
with ``δ_k = D_k^{-1} τ_k``.

**More dimensions than latents.** With ``w = W x`` the white remainder, uncorrelated with the latents, ``dH`` has a
further part V W, the regression of w on the latents a part Y and its mean a part κ. Each of the r − d coordinates of w
has the same information about its column of V, its row of Y and its κ, and none about anything else:

    Σ_k n_k ‖B_k v + D_k^{-T} y‖² + Σ_k n_k (κ − y δ_k)².
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latentdag.core.information import Direction, Information
from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array, BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Point:
    """A model in arrays, with all that its information depends on.

    Attributes
    ----------
    B : (d, d) structural matrix B_0
    b : (q, d) intervened rows
    target, context : (q,) which row of which context each of them replaces; the control is context 0
    edge : (d, d) bool, ``[i, j]`` iff j → i is an edge
    free : (q, d) bool, the free entries of each intervened row
    n : (K+1,) weight of each context
    tau : (q,) mean noise of each intervened mechanism in standard deviations, or None where means are free
    """

    B: Array
    b: Array
    target: IntArray
    context: IntArray
    edge: BoolArray
    free: BoolArray
    n: Array
    tau: Array | None

    @property
    def d(self) -> int:
        return len(self.B)

    @cached_property
    def B_inv(self) -> Array:
        return np.asarray(np.linalg.inv(self.B))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of parameters: X, β, β_q, ν, τ."""
        means = (0, 0) if self.tau is None else (self.d, len(self.b))
        return (self.d**2, int(self.edge.sum()), int(self.free.sum()), *means)

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def members(self, k: int) -> IntArray:
        """The intervened mechanisms of context k."""
        return np.flatnonzero(self.context == k)

    def structural(self, k: int) -> Array:
        """B_k (d, d)."""
        members, B_k = self.members(k), self.B.copy()
        B_k[self.target[members]] = self.b[members]
        return B_k

    @cached_property
    def delta(self) -> Array:
        """δ_k (K+1, d): the mean of ``M x`` in each context."""
        delta = np.zeros((len(self.n), self.d))
        for k in np.unique(self.context) if self.tau is not None else ():
            members, tau_k = self.members(k), np.zeros(self.d)
            tau_k[self.target[members]] = self.tau[members]  # type: ignore[index]
            delta[k] = self.B @ np.linalg.solve(self.structural(k), tau_k)
        return delta

    @cached_property
    def alone(self) -> BoolArray:
        """(K+1, d): which latents each context leaves alone."""
        alone = np.ones((len(self.n), self.d), dtype=bool)
        alone[self.context, self.target] = False
        return alone

    def pack(
        self,
        X: Array | None = None,
        beta: Array | None = None,
        beta_q: Array | None = None,
        nu: Array | None = None,
        tau: Array | None = None,
        rows: int = 1,
    ) -> Array:
        """Gradients (m, P) from gradients in each block, shapes (m, d, d), (m, d, d), (m, q, d), (m, d), (m, q)."""
        given = [g for g in (X, beta, beta_q, nu, tau) if g is not None]
        m = len(given[0]) if given else rows
        out, ends = np.zeros((m, self.size)), np.cumsum([0, *self.sizes])
        if X is not None:
            out[:, : ends[1]] = X.reshape(m, -1)
        if beta is not None:
            out[:, ends[1] : ends[2]] = beta[:, self.edge]
        if beta_q is not None:
            out[:, ends[2] : ends[3]] = beta_q[:, self.free]
        if self.tau is not None and nu is not None:
            out[:, ends[3] : ends[4]] = nu
        if self.tau is not None and tau is not None:
            out[:, ends[4] : ends[5]] = tau
        return out

    def pull(self, T: Array, R: Array, nu: Array | None = None, tau: Array | None = None) -> Array:
        """Gradients (m, P) from gradients (m, d, d) in T and (m, q, d) in R."""
        X = self.B.T @ T + self.b.T @ R
        return self.pack(X, T @ self.B_inv.T, R @ self.B_inv.T, nu, tau)


def information(point: Point) -> Array:
    """Expected Fisher information (P, P), one product of the information operator per parameter."""
    operator = _operator(point)
    d, q = point.d, len(point.b)
    total = np.zeros((point.size, point.size))
    ends = np.cumsum([0, *point.sizes])
    edges, entries = np.argwhere(point.edge), np.argwhere(point.free)
    zero, zero_q = np.zeros((d, d)), np.zeros((q, d))
    for a in range(ends[3]):
        X, beta, beta_q = zero, zero, zero_q
        if a < ends[1]:
            X = zero.copy()
            X.flat[a] = 1.0
        elif a < ends[2]:
            beta = zero.copy()
            beta[tuple(edges[a - ends[1]])] = 1.0
        else:
            beta_q = zero_q.copy()
            beta_q[tuple(entries[a - ends[2]])] = 1.0
        out = operator.product(Direction(X, beta, beta_q))
        total[a] = point.pack(out.X[None], out.beta[None], out.beta_k[None])[0]
    if point.tau is not None:
        _add_means(total, point, int(ends[3]))
    return total


def _add_means(total: Array, point: Point, first: int) -> None:
    """The means' part that the operator leaves out: rows of the targets, and the means as parameters."""
    d, n_q = point.d, point.n[point.context]
    # Σ_k n_k (dν_i − T_i δ_k)² over the contexts that leave i alone; the operator has the term without ν
    T = np.zeros((d, d, d))
    T[np.arange(d), np.arange(d)] = (point.n[:, None] * point.alone).T @ point.delta
    cross = point.pull(T, np.zeros((d, len(point.b), d)))[:, :first]
    R = np.zeros((len(point.b), len(point.b), d))
    q = np.arange(len(point.b))
    R[q, q] = point.delta[point.context]
    cross_q = point.pull(np.zeros((len(q), d, d)), R)[:, :first]
    total[:first, :first] += (cross_q.T * n_q) @ cross_q
    nu, tau = slice(first, first + d), slice(first + d, None)
    total[nu, :first], total[tau, :first] = -cross, -n_q[:, None] * cross_q
    total[:first, nu], total[:first, tau] = total[nu, :first].T, total[tau, :first].T
    total[nu, nu], total[tau, tau] = np.diag(point.n @ point.alone), np.diag(n_q)


def _operator(point: Point) -> Information:
    """The information operator of the optimiser, at this point; it needs no data."""
    none = np.zeros((0, 0))
    n_minus = point.n @ point.alone
    hits = tuple(tuple(point.target[point.members(k)].tolist()) for k in range(len(point.n)))
    design = Design(
        point.n, np.zeros((len(point.n), 0, 0)), hits, (False,) * len(hits), n_minus, np.zeros((point.d, 0, 0)), none
    )
    mechanisms = [Mechanism(i, 0, np.flatnonzero(point.edge[i]), float(n_minus[i]), none) for i in range(point.d)]
    mechanisms += [
        Mechanism(int(i), int(k), np.flatnonzero(free), float(point.n[k]), none)
        for i, k, free in zip(point.target, point.context, point.free, strict=True)
    ]
    operator = Information(design, mechanisms, np.vstack([point.B, point.b]))
    if point.tau is not None:
        operator.shift = point.tau
    return operator


def outer_information(point: Point) -> Array:
    """Information (2d + 1, 2d + 1) of a column of V, a row of Y and its κ; (2d, 2d) where means are free."""
    d = point.d
    total = np.zeros((2 * d + 1, 2 * d + 1))
    for k, n in enumerate(point.n):
        B_k = point.structural(k)
        J = np.hstack([B_k, np.linalg.solve(B_k.T, point.B.T), np.zeros((d, 1))])
        mean = np.concatenate([np.zeros(d), -point.delta[k], [1.0]])
        total += n * (J.T @ J + np.outer(mean, mean))
    return total if point.tau is not None else total[:-1, :-1]
