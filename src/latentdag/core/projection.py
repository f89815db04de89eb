"""The paper's finite-sample method: Algorithms 4–6, one hyperparameter γ.

At each step the context whose difference ``Θ_k − Θ_0``, projected off the rows found so far, is nearest to rank one comes
next; its ancestors are the rows that cannot be left out without losing rank one at level γ; its own row of Q is the
leading singular vector after projecting off those ancestors. As in the published code the projection acts on both sides,
so every projected matrix is symmetric and its singular values are absolute eigenvalues.

Same decisions, less work than a literal transcription:

* everything happens in the r-dimensional range of the data, and the projected matrices ``NᵀΔ_kN`` shrink by one row and
  column per step (a Householder reflection, O(r²) per context);
* the scores of all open contexts come from one batched call for symmetric eigenvalues;
* leaving row i out of the projection borders the chosen ``NᵀΔN`` by one row. Whether the bordered matrix still has
  spectral energy ≥ γ in its first singular value is a question about its inertia, answered by one Schur complement per
  row instead of one singular value decomposition per row;
* Cholesky factors of ``(Q†)ᵀ Θ_k Q†`` come from QR factors of ``F_k Q†``, ``F_kᵀF_k = Θ_k``, which cannot break down.
"""

from dataclasses import dataclass

import numpy as np

from latentdag.core.errors import ContextError
from latentdag.core.linalg import (
    Array,
    BoolArray,
    IntArray,
    complement,
    right_inverse,
    triangular_of_product,
    upper_factor,
)


@dataclass(frozen=True)
class Projection:
    """What Algorithm 6 returns, in the row scaling where every λ is one.

    Attributes
    ----------
    U : (d, r)
        Unmixing rows ``u = λ h``.
    B_0 : (d, d)
        Upper triangular structural matrix of the control.
    contexts : (d,)
        The context 1..K assigned to each latent by the largest row of ``C_k − C_0``.
    order : (d, d) bool
        The partial order of Algorithm 4 between the latents.
    """

    U: Array
    B_0: Array
    contexts: IntArray
    order: BoolArray


def iterative_difference_projection(Theta: Array, gamma: float = 0.99) -> Projection:
    """Algorithm 6 on precision matrices (K+1, r, r), all positive definite, K ≤ r."""
    K = len(Theta) - 1
    factors = np.array([upper_factor(T, context=k) for k, T in enumerate(Theta)])
    Q, order = identify_partial_order(Theta[1:] - Theta[0], gamma)
    C = triangular_of_product(factors @ right_inverse(Q))
    R = np.empty((K, K))
    contexts = np.zeros(K, dtype=np.intp)
    free = np.ones(K, dtype=bool)
    for k in range(1, K + 1):
        size = np.linalg.norm(C[k] - C[0], axis=1)
        i = int(np.argmax(np.where(free, size, -1.0)))
        free[i] = False
        contexts[i], R[i] = k, C[k, i]
    U = R @ Q
    B_0 = triangular_of_product(factors[0] @ right_inverse(U))
    return Projection(U, B_0, contexts, order)


def identify_partial_order(Delta: Array, gamma: float) -> tuple[Array, BoolArray]:
    """Algorithm 4 on the differences ``Θ_k − Θ_0`` (K, r, r).

    Returns
    -------
    Q : (K, r), newest row first
    order : (K, K) bool, closed, between the rows of Q
    """
    K, r = Delta.shape[:2]
    Q = np.empty((0, r))
    order = np.zeros((0, 0), dtype=bool)
    left = np.arange(K)
    N, T = np.eye(r), Delta  # basis of the complement of Q, and NᵀΔN of the contexts left
    for _ in range(K):
        w = np.linalg.eigvalsh(T)
        energy = np.square(w)
        total = np.maximum(energy.sum(axis=1), np.finfo(float).tiny)
        pick = int(np.argmax(np.maximum(energy[:, 0], energy[:, -1]) / total))
        k = left[pick]
        q, A = identify_ancestors(Delta[k], T[pick], N, Q, gamma)
        z = N.T @ q
        if np.linalg.norm(z) < 1e-10:
            raise ContextError(
                int(k) + 1,
                "the direction found for it lies in the span of the directions found before: its data cannot be told "
                "from the other contexts' by this method (try a larger gamma or more samples)",
            )
        closure = A | order[A].any(axis=0)
        order = np.block([[np.zeros((1, 1), bool), closure[None]], [np.zeros((len(A), 1), bool), order]])
        Q, left = np.vstack([q, Q]), np.delete(left, pick)
        N, T = _shrink(N, np.delete(T, pick, axis=0), z)
    return Q, order


def identify_ancestors(Delta_k: Array, T_k: Array, N: Array, Q: Array, gamma: float) -> tuple[Array, BoolArray]:
    """Algorithm 5: the new row ``q_k`` and which of the rows found so far it needs.

    ``T_k = NᵀΔ_kN`` with N a basis of the complement of the rows of ``Q``.
    """
    t = len(Q)
    if t == 0:
        w, V = np.linalg.eigh(T_k)
        return N @ V[:, np.argmax(np.abs(w))], np.zeros(0, dtype=bool)
    # The complement of {q_j : j ≠ i} is that of Q plus one direction: the dual vector of q_i, normalised.
    dual = right_inverse(Q)
    dual /= np.linalg.norm(dual, axis=0)
    w, V = np.linalg.eigh(T_k)
    image = Delta_k @ dual
    border = (N @ V).T @ image
    corner = np.einsum("ri,ri->i", dual, image)
    A = ~_rank_one_at_level(w, border, corner, gamma)
    N_A = complement(Q[A].T)
    w, V = np.linalg.eigh(N_A.T @ Delta_k @ N_A)
    return N_A @ V[:, np.argmax(np.abs(w))], A


def _rank_one_at_level(w: Array, border: Array, corner: Array, gamma: float) -> BoolArray:
    """Which bordered matrices ``[[diag(w), b_i], [b_iᵀ, c_i]]`` have ``σ_1² ≥ γ Σσ²``.

    Equivalently, an eigenvalue beyond ±τ with ``τ² = γ ‖·‖²_F``. By Sylvester's law the number of eigenvalues above τ is
    the number of ``w > τ`` plus one if the Schur complement ``c − τ − Σ b²/(w − τ)`` is positive; likewise below −τ.
    """
    squares = np.square(border)
    tau = np.sqrt(gamma * (np.square(w).sum() + 2.0 * squares.sum(axis=0) + np.square(corner)))
    with np.errstate(divide="ignore", invalid="ignore"):
        schur_above = corner - tau - (squares / (w[:, None] - tau)).sum(axis=0)
        schur_below = corner + tau - (squares / (w[:, None] + tau)).sum(axis=0)
    above = (w[:, None] > tau).any(axis=0) | (schur_above >= 0)
    below = (w[:, None] < -tau).any(axis=0) | (schur_below <= 0)
    return np.asarray(above | below)


def _shrink(N: Array, T: Array, z: Array) -> tuple[Array, Array]:
    """Take direction ``N z`` out of the basis N and out of every ``NᵀΔN`` in T, by one Householder reflection."""
    v = z / np.linalg.norm(z)
    v[0] += 1.0 if v[0] >= 0 else -1.0
    v *= np.sqrt(2.0 / (v @ v))
    N = N - np.outer(N @ v, v)
    Tv = T @ v
    s = 0.5 * (Tv @ v)
    y = Tv - s[:, None] * v
    T = T - y[:, :, None] * v - v[:, None] * y[:, None, :]
    return N[:, 1:], T[:, 1:, 1:]
