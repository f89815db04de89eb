"""Fisher information of a latent DAG as an operator, and Newton steps with it (MATH.md 3.5).

In context k the noise rows are ``F_k = B_k H``. A change of parameters moves them by ``dF_k = Ω_k F_k``, and the expected
information of the Gaussian likelihood is the quadratic form ``Σ_k n_k/2 ‖Ω_k + Ω_kᵀ‖²``. Write ``M = F_0`` for the noise
rows of the control, ``dH = X M`` and ``dB = β`` on the support of the DAG. Then

    Ω_0 = B X + β B^{-1} =: T,
    Ω_k = (T with row i replaced by  b_k X + β_k B^{-1}) D_k^{-1},   D_k = I with row i replaced by c_k = b_k B^{-1},

for a context k with target i and intervened row b_k (λ e_i if perfect). D_k^{-1} differs from the identity by rank one, so
``Ω_k − T`` has rank two, and one product with the information costs a few matrix products of size d, not one per context.

Directions outside the span of M (more dimensions r than latents d) do not mix with the others, and all share one d × d
information matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array


@dataclass(frozen=True)
class Direction:
    """A change of parameters: X (d, d) of H, β (d, d) of B_0, β_k (q, d) of the q intervened rows."""

    X: Array
    beta: Array
    beta_k: Array

    def dot(self, other: "Direction") -> float:
        return float(np.vdot(self.X, other.X) + np.vdot(self.beta, other.beta) + np.vdot(self.beta_k, other.beta_k))

    def plus(self, step: float, other: "Direction") -> "Direction":
        return Direction(self.X + step * other.X, self.beta + step * other.beta, self.beta_k + step * other.beta_k)

    def times(self, other: "Direction") -> "Direction":
        return Direction(self.X * other.X, self.beta * other.beta, self.beta_k * other.beta_k)


class Information:
    """The information operator at one model.

    Parameters
    ----------
    design : Design
    mechanisms : as from ``design.mechanisms``
    rows : (len(mechanisms), d)
        Structural rows, noise variance one: B_0 first, then the intervened rows.
    """

    def __init__(self, design: Design, mechanisms: Sequence[Mechanism], rows: Array):
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
        self.onto = np.eye(d)[self.target]  # (q, d), the unit vector of each target
        self.contexts = _contexts(design, hit)
        self.G = self._elimination_rows()

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
        R = self.b @ v.X + v.beta_k @ self.B_inv  # the intervened rows, before D_k^{-1}
        sym = T + T.T
        if len(self.contexts) == len(self.n):
            grad_T, grad_R = self._single_targets(T, sym, R)
        else:
            grad_T, grad_R = self._any_targets(T, R)
        grad_T += (self.N - sum(self.n[members[0]] for members in self.contexts)) * sym
        return Direction(
            self.B.T @ grad_T + self.b.T @ grad_R,
            (grad_T @ self.B_inv.T) * self.free,
            (grad_R @ self.B_inv.T) * self.free_k,
        )

    def _single_targets(self, T: Array, sym: Array, R: Array) -> tuple[Array, Array]:
        """Σ_k of the adjoint of ``Ω_k`` applied to ``n_k (Ω_k + Ω_kᵀ)``, all contexts at once; one target each."""
        i, n, G = self.target, self.n[:, None], self.G
        q = np.arange(len(i))
        t = R - T[i]  # Ω_k = T + e_i tᵀ − c gᵀ
        c = T[:, i].T.copy()
        c[q, i] += t[q, i]
        g_i, t_i, c_i = G[q, i][:, None], t[q, i][:, None], c[q, i][:, None]
        A_i = n * (sym[i] + t - c_i * G - g_i * c)  # row i of n_k (Ω + Ωᵀ), up to …
        A_i[q, i] += n[:, 0] * t_i[:, 0]
        dot = lambda x, y: np.einsum("kj,kj->k", x, y)[:, None]  # noqa: E731
        A_g = n * (G @ sym + t * g_i - c * dot(G, G) - G * dot(c, G))  # n_k (Ω + Ωᵀ) g
        A_g[q, i] += n[:, 0] * dot(t, G)[:, 0]
        grad_R = A_i.copy()
        grad_R[q, i] -= A_g[q, i]
        grad_T = n.sum() * sym - (n * c).T @ G - G.T @ (n * c)
        grad_T += self.onto.T @ (n * t - grad_R)  # e_i tᵀ, and the row that belongs to R, not T
        grad_T += (n * t - A_g).T @ self.onto  # t e_iᵀ, and − (A g) e_iᵀ from the elimination
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
            A[:, t] -= A @ G.T
            grad_R[members] = A[t]
            A[t] = 0.0
            grad_T += A
        return grad_T, grad_R

    def diagonal(self) -> Direction:
        """Roughly the diagonal, to precondition with; entries that are not parameters are infinite."""
        d = len(self.B)
        B2, inv2 = np.square(self.B), np.square(self.B_inv).sum(axis=1)
        weight = self.N * B2.sum(axis=0) + (self.n[:, None] * (np.square(self.b) - B2[self.target])).sum(axis=0)
        with np.errstate(divide="ignore"):
            return Direction(
                np.repeat(weight[:, None], d, axis=1),
                self.N * np.repeat(inv2[None], d, axis=0) / self.free,
                self.n[:, None] * inv2 / self.free_k,
            )

    def matrix(self) -> Array:
        """The information as a matrix over X, then the free entries of β, then those of β_k, row by row."""
        d, free, free_k = len(self.B), self.free > 0, self.free_k > 0
        total = np.zeros((d * d + int(free.sum() + free_k.sum()),) * 2)
        everyone = np.arange(d)
        alone = self.N - sum(self.n[members[0]] for members in self.contexts)
        for n, members in [(alone, []), *((self.n[members[0]], members) for members in self.contexts)]:
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
            J = (J + J.transpose(0, 2, 1)).reshape(len(J), -1)
            total += 0.5 * n * (J @ J.T)
        return total

    def outside(self) -> Array:
        """Information (d, d) of each direction outside the span of M, the rest's dependence on the latents profiled out.

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
    # a whiff of damping: two sources with the same information would leave the matrix singular
    scaled = total / np.outer(scale, scale) + 1e-12 * np.eye(len(total))
    return np.asarray((np.linalg.solve(scaled, right / scale) / scale)[: d * d].reshape(d, d))


def solve_iteratively(information: Information, gradient: Array, tol: float, max_iter: int) -> Array:
    """The same by conjugate gradients; weights and variances move along as nuisance parameters."""
    scale = information.diagonal()
    inverse = Direction(1 / scale.X, 1 / scale.beta, 1 / scale.beta_k)
    x = Direction(np.zeros_like(gradient), np.zeros_like(scale.beta), np.zeros_like(scale.beta_k))
    residual = Direction(gradient, x.beta, x.beta_k)
    z = residual.times(inverse)
    p, rz = z, residual.dot(z)
    stop = tol**2 * rz
    for _ in range(max_iter):
        Ap = information.product(p)
        curvature = p.dot(Ap)
        if not curvature > 0:
            break
        x, residual = x.plus(rz / curvature, p), residual.plus(-rz / curvature, Ap)
        z = residual.times(inverse)
        new = residual.dot(z)
        if new <= stop:
            break
        p, rz = z.plus(new / rz, p), new
    return x.X


def _contexts(design: Design, hit: Sequence[Mechanism]) -> list[list[int]]:
    """Positions of the intervened mechanisms of each context."""
    by_context: dict[int, list[int]] = {}
    for q, mechanism in enumerate(hit):
        by_context.setdefault(mechanism.context, []).append(q)
    return list(by_context.values())
