"""Solve for Newton steps with the Fisher information, as a matrix for few latents and as an operator for many.

The information is that of :mod:`latentdag.core.jacobian`, in the same letters. Up to `DENSE_UP_TO` latents it is a
matrix, and one step is an eigenvalue problem. Above, the step is found by conjugate gradients, which need products
only.

**Products.** ``T = B_0 X + β B_0^{-1}`` are the rows of V of mechanisms left alone, and ``R = b X + β_k B_0^{-1}``
those of the intervened ones. A context with one target i has

    Ω_k = (T with row i replaced by R_k) D_k^{-1} = T + e_i tᵀ − c gᵀ,

with t and c a row and a column that differ from those of T. So ``Ω_k − T`` has rank two, and one product with the
quadratic form costs a few matrix products of size d, not one per context. Designs with several targets per context
multiply with the sparse matrix of the form instead.

**Preconditioning.** Steps are solved for in (T, β) instead of (X, β). Then nearly all of the information sits in the
blocks of T_ij, T_ji and β_ij (as in independent component analysis), whose inverses make a good preconditioner:
contexts that leave i and j alone see only ``T_ij + T_ji``, and those that target i see
``c_i (T_ij − β_ij B^{-1}_jj) + T_ji / c_i`` with c_i the i-th entry of ``b_k B_0^{-1}``, up to terms with other entries
of ``B_0^{-1}``.

Directions outside the span of M (more dimensions r than latents d) do not mix with the others, and all share one d × d
information matrix.
"""

import numpy as np

from latentdag.core.effort import DENSE_UP_TO, UNSOLVED
from latentdag.core.jacobian import Point, information, outer_information, quadratic_form
from latentdag.core.linalg import Array


def newton_step(point: Point, gradient: Array, gain_tol: float = 0.0) -> Array:
    """Return X (d, d) of the Newton step ``dH = X M`` for the gradient (d, d) in X, all else profiled out.

    By conjugate gradients it stops where what is left promises a small share of ``gain_tol`` nats.
    """
    if point.d <= DENSE_UP_TO:
        return solve_dense(point, gradient)
    return solve_iteratively(point, gradient, tol=0.05, max_iter=60 + 4 * point.d, enough=UNSOLVED * gain_tol)


def outside_information(point: Point) -> Array:
    """Return the information (d, d) about each direction of H outside the span of M.

    How the remaining dimensions depend on the latents is profiled out; their means are left out.
    """
    d, total = point.d, outer_information(point, means=False)
    vv, vy, yy = total[:d, :d], total[:d, d:], total[d:, d:]
    return np.asarray(vv - vy @ np.linalg.solve(yy, vy.T))


def solve_dense(point: Point, gradient: Array) -> Array:
    """Return the step in X with the information as a matrix."""
    d, total = point.d, information(point)
    # the scale of each row is no parameter: pin it, which changes nothing else
    for i, h in enumerate(point.B_inv / np.linalg.norm(point.B_inv, axis=1, keepdims=True)):
        block = slice(i * d, (i + 1) * d)
        total[block, block] += point.n.sum() * np.outer(h, h)
    scale = np.sqrt(np.diagonal(total))
    right = np.zeros(len(total))
    right[: d * d] = gradient.ravel()
    # soft interventions leave directions without information, and two sources can: no step along those
    w, V = np.linalg.eigh(total / np.outer(scale, scale))
    known = w > 1e-9 * w[-1]
    step = V[:, known] @ ((V[:, known].T @ (right / scale)) / w[known]) / scale
    return np.asarray(step[: d * d].reshape(d, d))


def solve_iteratively(point: Point, gradient: Array, tol: float, max_iter: int, enough: float = 0.0) -> Array:
    """Return the same by conjugate gradients; weights and variances move along as nuisance parameters.

    They stop once the residual, in the norm of the preconditioner, is ``tol`` of the first, or its gain ``enough``.
    """
    system = _System(point)
    residual = system.pack(np.zeros_like(gradient), gradient, np.zeros(len(system.edge_k[0])))
    x, z = np.zeros_like(residual), system.precondition(residual)
    p, rz = z, float(residual @ z)
    stop = max(tol**2 * rz, 2 * enough)
    for _ in range(max_iter):
        Ap = system.product(p)
        curvature = float(p @ Ap)
        if not curvature > 0:
            break
        x += rz / curvature * p
        residual = residual - rz / curvature * Ap
        z = system.precondition(residual)
        new = float(residual @ z)
        if new <= stop:
            break
        p, rz = z + new / rz * p, new
    return system.unpack(x)[1]


class Curvature:
    """Multiply with the quadratic form in V, fast where every context has one target."""

    def __init__(self, point: Point):
        self.point, self.n = point, point.n[point.context]
        self.n_alone = point.n.sum() - sum(self.n)  # of contexts without a target
        self.single = len(np.unique(point.context)) == len(point.context)
        self.form = None if self.single else quadratic_form(point)
        self.shift = np.zeros(len(self.n)) if point.tau is None else point.tau[point.d :]
        self.GG = np.einsum("kj,kj->k", point.G, point.G)[:, None]

    def __call__(self, T: Array, R: Array) -> tuple[Array, Array]:
        """Return the gradients of half the quadratic form in T (d, d) and in R (q, d)."""
        if self.form is not None:
            out = (self.form @ np.concatenate([T, R]).ravel()).reshape(-1, T.shape[1])
            return out[: len(T)], out[len(T) :]
        i, n, G = self.point.target, self.n[:, None], self.point.G
        q, sym = np.arange(len(i)), T + T.T
        t = R - T[i]
        c = T[:, i].T.copy()
        c[q, i] += t[q, i]
        g_i, t_i, c_i = G[q, i][:, None], t[q, i], c[q, i][:, None]
        A_i = sym[i] + t - c_i * G - g_i * c  # row i of Ω + Ωᵀ
        A_i[q, i] += t_i
        A_g = G @ sym + t * g_i - c * self.GG - G * np.einsum("kj,kj->k", c, G)[:, None]  # (Ω + Ωᵀ) g
        A_g[q, i] += np.einsum("kj,kj->k", t, G)
        grad_R = n * A_i
        A_g *= n
        # a shifted target makes errors in the other noises visible in the mean: n_k s² ‖Ω_k[others, i]‖²
        E = n * np.square(self.shift)[:, None] * (1 - g_i) * c
        E[q, i] = 0.0
        A_g += E * g_i
        t *= n
        grad_R[q, i] -= A_g[q, i]
        both = (n * c).T @ G
        grad_T = self.n.sum() * sym - both - both.T
        onto = self.point.onto
        grad_T += onto @ (t - grad_R)  # e_i tᵀ, and the row that belongs to R, not T
        grad_T += (onto @ (t - A_g + E)).T  # t e_iᵀ, and − (A g) e_iᵀ from the elimination
        return grad_T + self.n_alone * sym, grad_R


class _System:
    """Hold the information over one vector: T, then the entries β of B_0 (row scales fixed), then those of b."""

    def __init__(self, point: Point):
        self.of, self.curvature, d = point, Curvature(point), point.d
        self.edge = np.nonzero(point.free[:d] & ~np.eye(d, dtype=bool))
        self.edge_k = np.nonzero(point.free[d:])
        self.split = np.cumsum([d * d, len(self.edge[0])])
        # rows of perfect interventions have one entry, λ, which saves two products of matrices
        self.perfect = len(self.edge_k[0]) == len(point.b) and point.tied is None
        self.lam = point.b[self.edge_k][:, None] if self.perfect else np.empty(0)
        self._make_blocks()

    def unpack(self, v: Array) -> tuple[Array, Array, Array]:
        """Return T, X and R; ``X = B_0^{-1} (T − β B_0^{-1})``."""
        of, (e, k) = self.of, self.split
        T, beta, beta_k = v[:e].reshape(of.B.shape), np.zeros_like(of.B), np.zeros_like(of.b)
        beta[self.edge], beta_k[self.edge_k] = v[e:k], v[k:]
        X = of.B_inv @ (T - beta @ of.B_inv)
        if of.tied is not None:
            beta_k = (of.entries @ np.vstack([beta, beta_k])[of.free]).reshape(-1, of.d)[of.d :]
        if self.perfect:
            return T, X, self.lam * X[of.target] + v[k:, None] * of.B_inv[of.target]
        return T, X, of.b @ X + beta_k @ of.B_inv

    def pack(self, grad_T: Array, grad_X: Array, grad_k: Array) -> Array:
        """Return the gradient in the vector from those in T, X and β_k."""
        back = self.of.B_inv.T @ grad_X
        grad_beta = back @ self.of.B_inv.T
        return np.concatenate([(grad_T + back).ravel(), -grad_beta[self.edge], grad_k])

    def product(self, v: Array) -> Array:
        """Return the information times a vector."""
        of = self.of
        T, _, R = self.unpack(v)
        grad_T, grad_R = self.curvature(T, R)
        if of.tied is not None:
            own = grad_R @ of.B_inv.T
            pulled = np.zeros_like(of.rows)
            pulled[of.free] = of.entries.T @ np.vstack([np.zeros_like(of.B), own]).ravel()
            packed = self.pack(grad_T, of.b.T @ grad_R, pulled[of.d :][self.edge_k])
            packed[self.split[0] : self.split[1]] += pulled[: of.d][self.edge]
            return packed
        if not self.perfect:
            return self.pack(grad_T, of.b.T @ grad_R, (grad_R @ of.B_inv.T)[self.edge_k])
        return self.pack(grad_T, of.onto @ (self.lam * grad_R), np.einsum("qj,qj->q", grad_R, of.B_inv[of.target]))

    def _make_blocks(self) -> None:
        """Keep the coefficients of the blocks: ``a T_ij² + 2 b T_ij T_ji + a' T_ji²``, β_ij and β_k once T is known."""
        of, d, n, N = self.of, self.of.d, self.curvature.n, self.of.n.sum()
        c = np.einsum("qj,qj->q", of.b, of.B_inv.T[of.target])
        own, both, other = (np.bincount(of.target, weight, d) for weight in (n * c**2, n, n / c**2))
        i, j = self.edge
        scale = np.diagonal(of.B_inv)
        tiny = 1e-6 * N
        own_ij, both_ij, other_ij = (np.repeat(x[:, None], d, axis=1) for x in (own, both, other))
        self.per_T, self.per_T_t = 1 / scale[j], (both / np.maximum(own, tiny))[i] / scale[j]
        self.d_beta = 1 / (np.maximum(own[i], tiny) * scale[j] ** 2)
        other_ij[i, j] -= both[i] ** 2 / np.maximum(own[i], tiny)
        own_ij[i, j] = both_ij[i, j] = 0.0
        rest = N - both[:, None] - both[None, :]
        a, b = rest + own_ij + other_ij.T, rest + both_ij + both_ij.T
        np.fill_diagonal(a, 4 * (N - both) + tiny)
        np.fill_diagonal(b, 0.0)
        a += 1e-9 * N
        det = np.maximum(a * a.T - b * b, 1e-6 * a * a.T)
        self.inv_a, self.inv_b = a.T / det, -b / det
        q, k = self.edge_k
        diagonal = of.target[q] == k
        self.per_T_k = np.where(diagonal, -c[q] / scale[k], 0.0)
        self.d_k = 1 / (n[q] * scale[k] ** 2 * np.where(diagonal, 4 / c[q] ** 2, 1.0))

    def precondition(self, v: Array) -> Array:
        """Return the inverse of the information, with only the blocks kept, times a vector."""
        (e, k), (i, j), own = self.split, self.edge, self.edge_k[1]
        r_T, r_beta, r_k = v[:e].reshape(self.inv_a.shape).copy(), v[e:k], v[k:]
        r_T[i, j] += self.per_T * r_beta
        r_T[j, i] += self.per_T_t * r_beta
        np.add.at(r_T, (own, own), self.per_T_k * r_k)
        T = self.inv_a * r_T + self.inv_b * r_T.T
        beta = self.d_beta * r_beta + self.per_T * T[i, j] + self.per_T_t * T[j, i]
        return np.concatenate([T.ravel(), beta, self.d_k * r_k + self.per_T_k * T[own, own]])
