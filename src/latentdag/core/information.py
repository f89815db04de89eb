"""Fisher information of a latent DAG as an operator, and Newton steps with it (MATH.md 3.5).

In context k the noise rows are ``F_k = B_k H``. A change of parameters moves them by ``dF_k = Ω_k F_k``, and the
expected information of the Gaussian likelihood is the quadratic form ``Σ_k n_k/2 ‖Ω_k + Ω_kᵀ‖²``. Write ``M = F_0`` for
the noise rows of the control, ``dH = X M`` and ``dB = β`` on the support of the DAG. Then

    Ω_0 = B X + β B^{-1} =: T,
    Ω_k = (T with row i replaced by  b_k X + β_k B^{-1}) D_k^{-1},   D_k = I with row i replaced by c_k = b_k B^{-1},

for a context k with target i and intervened row b_k (λ e_i if perfect). D_k^{-1} differs from the identity by rank one,
so ``Ω_k − T`` has rank two, and one product with the information costs a few matrix products of size d, not one per
context.

Newton steps are solved for by conjugate gradients in (T, β) instead of (X, β). Then nearly all of the information sits
in the blocks of T_ij, T_ji and β_ij (as in independent component analysis), whose inverses make a good preconditioner:
contexts that leave i and j alone see only ``T_ij + T_ji``, and those that target i see
``c_i (T_ij − β_ij B^{-1}_jj) + T_ji / c_i`` with c_i the i-th entry of c_k, up to terms with other entries of B^{-1}.

Directions outside the span of M (more dimensions r than latents d) do not mix with the others, and all share one d × d
information matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array, IntArray


@dataclass(frozen=True)
class Direction:
    """A change of parameters: X (d, d) of H, β (d, d) of B_0, β_k (q, d) of the q intervened rows."""

    X: Array
    beta: Array
    beta_k: Array


class Information:
    """The information operator at one model.

    Parameters
    ----------
    design : Design
    mechanisms : as from ``design.mechanisms``
    rows : (len(mechanisms), d)
        Structural rows, noise variance one: B_0 first, then the intervened rows.
    """

    def __init__(self, design: Design, mechanisms: Sequence[Mechanism], rows: Array, H: Array | None = None):
        d = design.d
        hit = mechanisms[d:]
        self.B, self.b = rows[:d], rows[d:]
        self.B_inv = np.linalg.inv(self.B)
        self.target = np.array([m.latent for m in hit], dtype=np.intp)
        self.n = np.array([m.w for m in hit])
        self.N = design.N
        self.free = np.zeros((d, d))
        self.free_k = np.zeros((len(hit), d))
        for m in mechanisms[:d]:
            self.free[m.latent, [*m.parents, m.latent]] = 1.0
        for q, m in enumerate(hit):
            self.free_k[q, [*m.parents, m.latent]] = 1.0
        self.contexts = _contexts(design, hit)
        self.n_alone = design.N - sum(self.n[members[0]] for members in self.contexts)
        self.G = self._elimination_rows()
        self.shift = np.zeros(len(hit))  # of each target's mean noise, in standard deviations
        if design.means is not None and H is not None:
            self.shift = np.array([b @ H @ design.means[m.context] for b, m in zip(self.b, hit, strict=True)])
        self.GG = np.einsum("kj,kj->k", self.G, self.G)[:, None]

    def _elimination_rows(self) -> Array:
        """g (q, d) with ``D_k^{-1} = I − Σ_i e_i g_i``, one row per intervened mechanism of a context."""
        C = self.b @ self.B_inv
        G = np.zeros_like(C)
        for members in self.contexts:
            t = self.target[members]
            change = C[members].copy()
            change[np.arange(len(t)), t] -= 1.0
            G[members] = np.linalg.solve(np.eye(len(t)) + change[:, t], change)
        return G

    def product(self, v: Direction) -> Direction:
        """Information times a direction."""
        T = self.B @ v.X + v.beta @ self.B_inv
        grad_T, grad_R = self.curvature(T, self.b @ v.X + v.beta_k @ self.B_inv)
        return Direction(
            self.B.T @ grad_T + self.b.T @ grad_R,
            (grad_T @ self.B_inv.T) * self.free,
            (grad_R @ self.B_inv.T) * self.free_k,
        )

    def curvature(self, T: Array, R: Array) -> tuple[Array, Array]:
        """Gradient of half the quadratic form in T and in the intervened rows R (q, d), before D_k^{-1}."""
        sym = T + T.T
        single = len(self.contexts) == len(self.n)
        grad_T, grad_R = self._single_targets(T, sym, R) if single else self._any_targets(T, R)
        grad_T += self.n_alone * sym
        return grad_T, grad_R

    def _single_targets(self, T: Array, sym: Array, R: Array) -> tuple[Array, Array]:
        """Σ_k of the adjoint of ``Ω_k`` applied to ``n_k (Ω_k + Ω_kᵀ)``, all contexts at once; one target each."""
        i, n, G = self.target, self.n[:, None], self.G
        q = np.arange(len(i))
        t = R - T[i]  # Ω_k = T + e_i tᵀ − c gᵀ
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
        _add_rows(grad_T, i, t - grad_R)  # e_i tᵀ, and the row that belongs to R, not T
        _add_rows(grad_T.T, i, t - A_g + E)  # t e_iᵀ, and − (A g) e_iᵀ from the elimination
        return grad_T, grad_R

    def _any_targets(self, T: Array, R: Array) -> tuple[Array, Array]:
        """The same, context by context, for any number of targets."""
        grad_T, grad_R = np.zeros_like(T), np.zeros_like(R)
        for members in self.contexts:
            t, G = self.target[members], self.G[members]
            Omega = T.copy()
            Omega[t] = R[members]
            Omega -= Omega[:, t] @ G
            A = self.n[members[0]] * (Omega + Omega.T)
            moved = self.n[members[0]] * Omega[:, t] @ self.shift[members]
            moved[t] = 0.0
            A[:, t] += np.outer(moved, self.shift[members])
            A[:, t] -= A @ G.T
            grad_R[members] = A[t]
            A[t] = 0.0
            grad_T += A
        return grad_T, grad_R

    def matrix(self) -> Array:
        """The information as a matrix over X, then the free entries of β, then those of β_k, row by row."""
        d, free, free_k = len(self.B), self.free > 0, self.free_k > 0
        total = np.zeros((d * d + int(free.sum() + free_k.sum()),) * 2)
        everyone = np.arange(d)
        for n, members in [(self.n_alone, []), *((self.n[members[0]], members) for members in self.contexts)]:
            t = self.target[members] if len(members) else np.empty(0, dtype=np.intp)
            B_k, D_inv = self.B.copy(), np.eye(d)
            B_k[t] = self.b[members] if len(members) else B_k[t]
            D_inv[t] -= self.G[members] if len(members) else 0.0
            E = self.B_inv @ D_inv
            J_X = np.einsum("ai,jb->ijab", B_k, D_inv)
            J_beta, J_k = np.zeros((d, d, d, d)), np.zeros((len(self.n), d, d, d))
            kept = np.setdiff1d(everyone, t)
            J_beta[kept, :, kept] = E
            J_k[members, :, t] = E
            J = np.concatenate([J_X.reshape(-1, d, d), J_beta[free], J_k[free_k]])
            if len(members):
                moved = J[:, :, t] @ self.shift[members]
                moved[:, t] = 0.0
                total += n * (moved @ moved.T)
            J = (J + J.transpose(0, 2, 1)).reshape(len(J), -1)
            total += 0.5 * n * (J @ J.T)
        return total

    def outside(self) -> Array:
        """Information (d, d) of each direction outside the span of M; how the rest depends on latents is profiled out.

        Along one such direction, ``Ω_k`` has the column ``B_k v`` and the free row ``y D_k^{-1}`` of the rest.
        """
        d = len(self.B)
        vv, vy, yy = self.N * self.B.T @ self.B, self.N * self.B.T, self.N * np.eye(d)
        for members in self.contexts:
            t, n = self.target[members], self.n[members[0]]
            B_k, D_inv = self.B.copy(), np.eye(d)
            B_k[t] = self.b[members]
            D_inv[t] -= self.G[members]
            vv += n * (B_k.T @ B_k - self.B.T @ self.B)
            vy += n * (B_k.T @ D_inv.T - self.B.T)
            yy += n * (D_inv @ D_inv.T - np.eye(d))
        return np.asarray(vv - vy @ np.linalg.solve(yy, vy.T))


def _add_rows(total: Array, target: IntArray, rows: Array) -> None:
    if len(np.unique(target)) == len(target):
        total[target] += rows
    else:
        np.add.at(total, target, rows)


def solve_dense(information: Information, gradient: Array) -> Array:
    """The Newton step in H, ``dH = X M``, with the information as a matrix; for small d."""
    d = len(gradient)
    total = information.matrix()
    # the scale of each row is no parameter: pin it, which changes nothing else
    for i in range(d):
        block = slice(i * d, (i + 1) * d)
        h = information.B_inv[i] / np.linalg.norm(information.B_inv[i])
        total[block, block] += information.N * np.outer(h, h)
    scale = np.sqrt(np.diagonal(total))
    right = np.zeros(len(total))
    right[: d * d] = gradient.ravel()
    # soft interventions leave directions without information, and two sources can: no step along those
    w, V = np.linalg.eigh(total / np.outer(scale, scale))
    known = w > 1e-9 * w[-1]
    step = V[:, known] @ ((V[:, known].T @ (right / scale)) / w[known]) / scale
    return np.asarray(step[: d * d].reshape(d, d))


def solve_iteratively(information: Information, gradient: Array, tol: float, max_iter: int) -> Array:
    """The same by conjugate gradients; weights and variances move along as nuisance parameters."""
    system = _System(information)
    residual = system.pack(np.zeros_like(gradient), gradient, np.zeros(len(system.edge_k[0])))
    x, z = np.zeros_like(residual), system.precondition(residual)
    p, rz = z, float(residual @ z)
    stop = tol**2 * rz
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


class _System:
    """The information over one vector: T, then the free entries of β (row scales fixed), then those of β_k."""

    def __init__(self, information: Information):
        self.of, d = information, len(information.B)
        self.edge = np.nonzero(information.free - np.eye(d))
        self.edge_k = np.nonzero(information.free_k)
        self.split = np.cumsum([d * d, len(self.edge[0])])
        self.perfect = len(self.edge_k[0]) == len(information.n)
        self.lam = information.b[self.edge_k][:, None] if self.perfect else np.empty(0)
        self._make_blocks()

    def unpack(self, v: Array) -> tuple[Array, Array, Array]:
        """T, X and R; ``X = B^{-1}(T − β B^{-1})``."""
        of, (e, k) = self.of, self.split
        T, beta = v[:e].reshape(of.B.shape), np.zeros_like(of.B)
        beta[self.edge] = v[e:k]
        X = of.B_inv @ (T - beta @ of.B_inv)
        if self.perfect:
            return T, X, self.lam * X[of.target] + v[k:, None] * of.B_inv[of.target]
        beta_k = np.zeros_like(of.b)
        beta_k[self.edge_k] = v[k:]
        return T, X, of.b @ X + beta_k @ of.B_inv

    def pack(self, grad_T: Array, grad_X: Array, grad_k: Array) -> Array:
        """From gradients in T, X and β_k to one in the parameters."""
        back = self.of.B_inv.T @ grad_X
        grad_beta = back @ self.of.B_inv.T
        return np.concatenate([(grad_T + back).ravel(), -grad_beta[self.edge], grad_k])

    def product(self, v: Array) -> Array:
        of = self.of
        T, _, R = self.unpack(v)
        grad_T, grad_R = of.curvature(T, R)
        if not self.perfect:
            return self.pack(grad_T, of.b.T @ grad_R, (grad_R @ of.B_inv.T)[self.edge_k])
        grad_X = np.zeros_like(T)
        _add_rows(grad_X, of.target, self.lam * grad_R)
        return self.pack(grad_T, grad_X, np.einsum("qj,qj->q", grad_R, of.B_inv[of.target]))

    def _make_blocks(self) -> None:
        """Coefficients of the blocks: ``a T_ij² + 2 b T_ij T_ji + a' T_ji²``, β_ij and β_k once T is known."""
        of, d = self.of, len(self.of.B)
        c = np.einsum("qj,qj->q", of.b, of.B_inv.T[of.target])
        own, both, other = np.zeros(d), np.zeros(d), np.zeros(d)
        np.add.at(own, of.target, of.n * c**2)
        np.add.at(both, of.target, of.n)
        np.add.at(other, of.target, of.n / c**2)
        i, j = self.edge
        scale = np.diagonal(of.B_inv)
        tiny = 1e-6 * of.N
        own_ij = np.repeat(own[:, None], d, axis=1)
        both_ij, other_ij = np.repeat(both[:, None], d, axis=1), np.repeat(other[:, None], d, axis=1)
        self.per_T, self.per_T_t = 1 / scale[j], (both / np.maximum(own, tiny))[i] / scale[j]
        self.d_beta = 1 / (np.maximum(own[i], tiny) * scale[j] ** 2)
        other_ij[i, j] -= both[i] ** 2 / np.maximum(own[i], tiny)
        own_ij[i, j] = both_ij[i, j] = 0.0
        rest = of.N - both[:, None] - both[None, :]
        a, b = rest + own_ij + other_ij.T, rest + both_ij + both_ij.T
        np.fill_diagonal(a, 4 * (of.N - both) + tiny)
        np.fill_diagonal(b, 0.0)
        a += 1e-9 * of.N
        det = np.maximum(a * a.T - b * b, 1e-6 * a * a.T)
        self.inv_a, self.inv_b = a.T / det, -b / det
        q, k = self.edge_k
        diagonal = of.target[q] == k
        self.k_own, self.per_T_k = k[diagonal], -(c[q] / scale[k])[diagonal]
        self.where_own = np.flatnonzero(diagonal)
        self.d_k = 1 / (of.n[q] * scale[k] ** 2 * np.where(diagonal, 4 / c[q] ** 2, 1.0))

    def precondition(self, v: Array) -> Array:
        """Inverse of the information with only the blocks kept."""
        (e, k), (i, j), own = self.split, self.edge, self.k_own
        r_T, r_beta, r_k = v[:e].reshape(self.inv_a.shape).copy(), v[e:k], v[k:]
        r_T[i, j] += self.per_T * r_beta
        r_T[j, i] += self.per_T_t * r_beta
        np.add.at(r_T, (own, own), self.per_T_k * r_k[self.where_own])
        T = self.inv_a * r_T + self.inv_b * r_T.T
        beta = self.d_beta * r_beta + self.per_T * T[i, j] + self.per_T_t * T[j, i]
        beta_k = self.d_k * r_k
        beta_k[self.where_own] += self.per_T_k * T[own, own]
        return np.concatenate([T.ravel(), beta, beta_k])


def _contexts(design: Design, hit: Sequence[Mechanism]) -> list[list[int]]:
    """Positions of the intervened mechanisms of each context."""
    by_context: dict[int, list[int]] = {}
    for q, mechanism in enumerate(hit):
        by_context.setdefault(mechanism.context, []).append(q)
    return list(by_context.values())
