"""Covariance of the fitted parameters: Fisher information with the means in it, its inverse, and the sandwich.

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
with ``δ_k = D_k^{-1} τ_k``, and the score of one sample is an outer product, entry by entry:

    X: −(B_kᵀ e)(M x)ᵀ,   β, β_q: −e_i z_j,   ν, τ: e_i.

**More dimensions than latents.** With ``w = W x`` the white remainder, uncorrelated with the latents, ``dH`` has a
further part V W, the regression of w on the latents a part Y and its mean a part κ. Each of the r − d coordinates of w
has the same information about its column of V, its row of Y and its κ, and none about anything else:

    Σ_k n_k ‖B_k v + D_k^{-T} y‖² + Σ_k n_k (κ − y δ_k)².

Directions without information (soft interventions leave H free inside the ancestor relation) are found by a pivoted
Cholesky factorisation and kept, so that a quantity that moves along one of them is said to be unknown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from latentdag.core.information import Direction, Information
from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array, BoolArray, IntArray

#: Share of a parameter's information that must be left once the others are unknown too; below, it is not identified.
NO_INFORMATION = 1e-10

#: A quantity is unknown if this share of its gradient (parameters in units of their own information) has none.
UNKNOWN_SHARE = 1e-5


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


class Inverse:
    """The inverse of an information matrix, as far as there is one.

    Attributes
    ----------
    C : (P, P) covariance; of directions without information, one choice of zero variance
    null : (P, m) directions without information, in units of each parameter's own information
    scale : (P,) square root of each parameter's own information
    """

    def __init__(self, total: Array):  # overwritten: at d = 83 it takes half a gigabyte
        diagonal = np.diagonal(total).copy()
        self.scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        total /= self.scale[:, None]
        total /= self.scale
        # total.T is the same matrix in the memory order of LAPACK, so that the factor takes its place
        factor, pivot, rank, _ = lapack.dpstrf(total.T, tol=NO_INFORMATION, lower=1, overwrite_a=1)
        pivot = np.asarray(pivot) - 1
        P = len(pivot)
        self.null = np.zeros((P, P - rank))
        if rank < P:
            L_11, L_21 = np.tril(factor[:rank, :rank]), factor[rank:, :rank]
            self.null[pivot[:rank]] = -linalg.solve_triangular(L_11, L_21.T, lower=True, trans=1)
            self.null[pivot[rank:]] = np.eye(P - rank)
            factor = np.asfortranarray(factor[:rank, :rank])
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0] if rank else np.zeros((0, 0))
        _mirror(inverse)
        place = np.argsort(pivot)
        known = np.flatnonzero(place < rank)
        if rank == P:
            self.C = np.asarray(inverse[np.ix_(place, place)])
        else:
            self.C = np.zeros((P, P))
            self.C[np.ix_(known, known)] = inverse[np.ix_(place[known], place[known])]
        self.C /= self.scale[:, None]
        self.C /= self.scale

    def knows(self, J: Array) -> BoolArray:
        """Which of the quantities with gradients J (m, P) the data determine."""
        if not self.null.shape[1]:
            return np.ones(len(J), dtype=bool)
        scaled = J / self.scale
        along = np.abs(scaled @ (self.null / np.linalg.norm(self.null, axis=0))).max(axis=1)
        return np.asarray(along <= UNKNOWN_SHARE * np.linalg.norm(scaled, axis=1))


def _mirror(A: Array, step: int = 512) -> None:
    """Copy the lower triangle to the upper, in place."""
    for start in range(0, len(A), step):
        stop = min(start + step, len(A))
        own = A[start:stop, start:stop]
        own[:] = np.tril(own) + np.tril(own, -1).T
        A[start:stop, stop:] = A[stop:, start:stop].T


@dataclass(frozen=True, eq=False)
class Gradient:
    """Gradients of m quantities: (m, P), and in the columns of (V, Y, κ) a sum of outer products c vᵀ.

    ``outer`` lists pairs c (m, 2d + 1 or 2d) and v (m, r − d).
    """

    inner: Array
    outer: tuple[tuple[Array, Array], ...] = ()

    def __getitem__(self, rows: "IntArray | BoolArray | slice | Sequence[int]") -> "Gradient":
        return Gradient(self.inner[rows], tuple((c[rows], v[rows]) for c, v in self.outer))

    def __add__(self, other: "Gradient") -> "Gradient":
        return Gradient(self.inner + other.inner, self.outer + other.outer)

    def times(self, factor: "Array | float") -> "Gradient":
        """Each quantity's gradient times a number of its own."""
        f = np.broadcast_to(np.asarray(factor, dtype=float), (len(self.inner),))[:, None]
        return Gradient(f * self.inner, tuple((f * c, v) for c, v in self.outer))

    def dense(self) -> Array:
        """(m, P + columns × (r − d)), for a covariance of all parameters at once."""
        parts = [np.einsum("mc,ms->mcs", c, v).reshape(len(c), -1) for c, v in self.outer]
        return np.hstack([self.inner, sum(parts[1:], parts[0])]) if parts else self.inner


class ParameterCovariance:
    """Covariance of the parameters at a point.

    Parameters
    ----------
    point : Point
    rest : int
        r − d, the dimensions that the latents leave.
    """

    def __init__(self, point: Point, rest: int = 0):
        self.point, self.rest = point, rest
        self.inverse = Inverse(information(point))
        self.outer_inverse = Inverse(outer_information(point)) if rest else None
        self.C = self.inverse.C
        self.full: Array | None = None  # of all parameters at once, for the sandwich with a rest

    def robust(self, score_covariance: Array) -> "ParameterCovariance":
        """The sandwich ``C J C`` with J the covariance of the total score."""
        made = object.__new__(ParameterCovariance)
        made.point, made.rest = self.point, self.rest
        made.inverse, made.outer_inverse = self.inverse, self.outer_inverse
        made.full = None
        if self.outer_inverse is None:
            made.C = self.C @ score_covariance @ self.C
            return made
        whole = linalg.block_diag(self.C, np.kron(self.outer_inverse.C, np.eye(self.rest)))
        made.full = whole @ score_covariance @ whole
        made.C = made.full[: self.point.size, : self.point.size]
        return made

    def knows(self, g: Gradient) -> BoolArray:
        """Which quantities the data determine."""
        known = self.inverse.knows(g.inner)
        for c, _ in g.outer if self.outer_inverse is not None else ():
            known &= self.outer_inverse.knows(c)  # type: ignore[union-attr]
        return known

    def covariance(self, g: Gradient) -> Array:
        """Covariance (m, m) of quantities, whether determined or not."""
        if self.full is not None and g.outer:
            J = g.dense()
            return np.asarray(J @ self.full[: J.shape[1], : J.shape[1]] @ J.T)
        used = np.flatnonzero(g.inner.any(axis=0))
        J = g.inner[:, used]
        total = J @ self.C[np.ix_(used, used)] @ J.T
        if self.outer_inverse is not None:
            for c, v in g.outer:
                for c_2, v_2 in g.outer:
                    total += (c @ self.outer_inverse.C @ c_2.T) * (v @ v_2.T)
        return np.asarray(total)

    def variance(self, g: Gradient) -> Array:
        """Variance (m,) of quantities; infinite where the data do not determine them."""
        if self.full is not None and g.outer:
            J = g.dense()
            variance = np.einsum("mi,mi->m", J @ self.full, J)
        else:
            used = np.flatnonzero(g.inner.any(axis=0))
            J = g.inner[:, used]
            variance = np.einsum("mi,mi->m", J @ self.C[np.ix_(used, used)], J)
            if self.outer_inverse is not None:
                for c, v in g.outer:
                    for c_2, v_2 in g.outer:
                        variance += np.einsum("mi,mi->m", c @ self.outer_inverse.C, c_2) * np.einsum("ms,ms->m", v, v_2)
        return np.where(self.knows(g), np.maximum(variance, 0.0), np.inf)


def scores(point: Point, k: int, z: Array, w: Array | None = None) -> Array:
    """Scores (n, P) of samples of context k: latents z (n, d) and remainder w (n, r − d), both from the offset.

    Where means are free, both must be measured from the context's own mean.
    """
    n, members = len(z), point.members(k)
    B_k = point.structural(k)
    e = z @ B_k.T
    hit = point.target[members]
    if point.tau is not None:
        e[:, hit] -= point.tau[members]
    m, g = z @ point.B.T, e @ B_k
    ends = np.cumsum([0, *point.sizes])
    extra = 0 if w is None else (2 * point.d + (point.tau is not None)) * w.shape[1]
    out = np.zeros((n, point.size + extra))
    out[:, : ends[1]] = -(g[:, :, None] * m[:, None, :]).reshape(n, -1)
    i, j = np.nonzero(point.edge)
    out[:, ends[1] : ends[2]] = -(e[:, i] * z[:, j]) * point.alone[k, i]
    q, j = np.nonzero(point.free)
    here = np.flatnonzero(np.isin(q, members))
    out[:, ends[2] + here] = -e[:, point.target[q[here]]] * z[:, j[here]]
    if point.tau is not None:
        out[:, ends[3] : ends[4]] = e * point.alone[k]
        out[:, ends[4] + members] = e[:, hit]
    if w is not None:
        parts = [-g, -m] if point.tau is None else [-g, -m, np.ones((n, 1))]
        out[:, ends[5] :] = (np.hstack(parts)[:, :, None] * w[:, None, :]).reshape(n, -1)
    return out


def score_covariance(point: Point, blocks: Iterable[tuple[int, Array, Array | None]]) -> Array:
    """Covariance of the total score, each context about its own mean score.

    Parameters
    ----------
    blocks : of (context, latents, remainder or None), in any order
    """
    total: Array | None = None
    sums: dict[int, Array] = {}
    counts: dict[int, int] = {}
    for k, z, w in blocks:
        s = scores(point, k, z, w)
        total = np.zeros((s.shape[1], s.shape[1])) if total is None else total
        total += s.T @ s
        sums[k] = sums.get(k, 0.0) + s.sum(axis=0)
        counts[k] = counts.get(k, 0) + len(s)
    if total is None:
        raise ValueError("there are no samples")
    for k, each in sums.items():
        total -= np.outer(each, each) / counts[k]
    return total
