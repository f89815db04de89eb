"""Exact identification: Algorithms 1–3 of the paper.

The algorithms only use row spans, ranks and Cholesky factors of ``Θ_k − Θ_0``, and their answer does not depend on the
coordinates of X. So they run here in coordinates where ``Θ_0 = I``: every row of ``B_0 H`` is then a unit vector, "rank
one" means the same for every context, and one tolerance serves all scales of features, mixing maps and interventions.

Two places differ from the printed pseudocode:

* Algorithm 1 prunes ancestors one at a time, which under cancellation can drop a parent whose effect another ancestor
  carries. Its set ``A`` then misses a parent, but the ancestral closure of ``A`` does not: project out the closure.
* Line "scale H" of Algorithm 3 calls the scale of ``H' → H`` Λ and then uses |Λ| as λ. The proof has ``H' = Λ H``
  with ``|Λ| = λ``, and that is what the code does.
"""

from dataclasses import dataclass

import numpy as np

from latentdag.core.context_error import NotInModelError
from latentdag.core.linalg import (
    Array,
    BoolArray,
    IntArray,
    complement,
    range_basis,
    symmetrize,
    triangular_of_product,
    upper_factor,
)

#: Singular values below this fraction of ‖P_k − I‖ count as zero. The whitened differences are known to about
#: 1e-16 times the condition number of Θ_0, so this leaves room for condition numbers up to 1e8.
TOLERANCE = 1e-7


@dataclass(frozen=True)
class WhitenedPrecisions:
    """Precision matrices in coordinates where ``Θ_0 = I``.

    ``Delta[k-1] = P_k − I`` for context k ≥ 1, and ``Θ_k = Wᵀ P_k W`` with ``W`` (d, p).
    """

    Delta: Array
    W: Array


def whiten_precisions(Theta: Array) -> WhitenedPrecisions:
    """Bring exact precision matrices (K+1, p, p) of common rank d to ``Θ_0 = I``."""
    U = range_basis(Theta[0])
    d = U.shape[1]
    F = upper_factor(symmetrize(U.T @ Theta[0] @ U), context=0)
    F_inv = np.linalg.solve(F, np.eye(d))
    for k, T in enumerate(Theta):
        outside = T - U @ (U.T @ T @ U) @ U.T
        if np.abs(outside).max() > 1e-8 * np.abs(T).max():
            raise NotInModelError(k, f"its precision matrix has another range than the control's, which has rank {d}")
    Delta = symmetrize(F_inv.T @ (U.T @ (Theta[1:] - Theta[0]) @ U) @ F_inv)
    return WhitenedPrecisions(Delta, F @ U.T)


def projected_rank(Delta_k: Array, N: Array, tol: float) -> int:
    """Dimension of ``proj_{W⊥} rowspan(Δ_k)``, with N a basis of ``W⊥``, relative to the size of ``Δ_k``."""
    if N.shape[1] == 0:
        return 0
    s = np.linalg.svd(Delta_k @ N, compute_uv=False)
    return int(np.sum(s > tol * np.linalg.norm(Delta_k, 2)))


def id_ancestors(Delta_k: Array, Q: Array, above: BoolArray, tol: float = TOLERANCE) -> tuple[Array, BoolArray]:
    """Algorithm 1: the row ``q_k`` of one context, and which of the rows found so far are its ancestors.

    Parameters
    ----------
    Delta_k : (d, d)
    Q : (t, d), rows found so far
    above : (t, t) bool, the closed order between them

    Returns
    -------
    q : (d,) unit vector, first nonzero entry positive
    ancestors : (t,) bool, ancestrally closed
    """
    t = len(Q)
    A = np.ones(t, dtype=bool)
    for i in range(t):
        N = complement(np.delete(Q, i, axis=0).T)
        A[i] = projected_rank(Delta_k, N, tol) != 1
    closure = A | above[A].any(axis=0)
    N = complement(Q[closure].T)
    q = N @ np.linalg.svd(Delta_k @ N)[2][0]
    leading = q[np.argmax(np.abs(q) > tol)]
    return q * np.sign(leading), closure


def id_partial_order(Delta: Array, tol: float = TOLERANCE) -> tuple[Array, IntArray, BoolArray]:
    """Algorithm 2: the factor Q and the partial order, also right for generic soft interventions.

    Returns
    -------
    Q : (K, d), newest row first, as in the paper
    contexts : (K,) the context 1..K that each row of Q belongs to
    order : (K, K) bool, the partial order between the rows of Q
    """
    K, d = Delta.shape[:2]
    _check_differences(Delta, tol)
    Q, found = np.empty((0, d)), np.empty(0, dtype=np.intp)
    order = np.zeros((0, 0), dtype=bool)
    for _ in range(K):
        N = complement(Q.T)
        left = np.setdiff1d(np.arange(K), found)
        ranks = np.array([projected_rank(Delta[k], N, tol) for k in left])
        if not (ranks == 1).any():
            _raise_no_rank_one(left + 1, ranks, len(found))
        k = left[np.argmax(ranks == 1)]
        q, A = id_ancestors(Delta[k], Q, order, tol)
        Q, found = np.vstack([q, Q]), np.concatenate([[k], found])
        order = np.block([[np.zeros((1, 1), bool), A[None]], [np.zeros((len(A), 1), bool), order]])
    return Q, found + 1, order


def iterative_difference_projection(Delta: Array, tol: float = TOLERANCE) -> tuple[Array, Array, IntArray, BoolArray]:
    """Algorithm 3 in whitened coordinates.

    Returns
    -------
    U : (d, d)
        Rows ``u = λ h``: the unmixing in the scaling where every λ is one.
    B_0 : (d, d)
        Upper triangular structural matrix of the control in that scaling.
    contexts : (d,)
        The context 1..K that targets each latent.
    order : (d, d) bool
        The partial order of the latents.
    """
    K, d = Delta.shape[:2]
    Q, _, order = id_partial_order(Delta, tol)
    Q_inv = np.linalg.pinv(Q)
    factors = [np.eye(d)] + [upper_factor(np.eye(d) + Delta[k], context=k + 1) for k in range(K)]
    C = triangular_of_product(np.array([F @ Q_inv for F in factors]))
    R, targets = np.eye(d), np.zeros(K, dtype=np.intp)
    for k in range(1, K + 1):
        size = np.linalg.norm(C[k] - C[0], axis=1)
        i = int(np.argmax(size))
        others = np.delete(size, i)
        if len(others) and others.max() > 1e3 * tol * size[i]:
            raise NotInModelError(
                k,
                f"it changes {1 + int(np.sum(others > 1e3 * tol * size[i]))} structural equations, where a single-node "
                "intervention changes one",
            )
        targets[k - 1], R[i] = i, C[k, i]
    _check_one_context_per_latent(targets, d)
    U = R @ Q
    B_0 = triangular_of_product(np.asarray(np.linalg.pinv(U), dtype=float))
    return U, B_0, np.argsort(targets) + 1, order


def _check_differences(Delta: Array, tol: float) -> None:
    """Proposition 1: the rank of ``Θ_k − Θ_0`` is one for a source, two otherwise."""
    for k, D in enumerate(Delta, start=1):
        if np.linalg.norm(D, 2) < tol:
            raise NotInModelError(k, "its precision matrix equals the control's, so nothing was intervened on")
        rank = projected_rank(D, np.eye(len(D)), tol)
        if rank > 2:
            raise NotInModelError(
                k, f"rank(Θ_k − Θ_0) = {rank}, but an intervention on a single latent changes it by rank 1 or 2"
            )


def _raise_no_rank_one(left: IntArray, ranks: IntArray, found: int) -> None:
    if (ranks == 0).any():
        raise NotInModelError(
            int(left[ranks == 0][0]),
            f"its row span lies in that of the {found} contexts found before it, so its target is already taken: two "
            "contexts hit the same latent (group them with latentdag.reduce_contexts) or several latents at once",
        )
    listed = ", ".join(f"{k} (rank {r})" for k, r in zip(left.tolist(), ranks.tolist(), strict=True))
    raise NotInModelError(
        int(left[0]),
        f"no context has rank one after projecting out the {found} found so far: {listed}; some parent of each "
        "remaining target was never intervened on, or the graph is cyclic",
    )


def _check_one_context_per_latent(targets: IntArray, d: int) -> None:
    if len(set(targets.tolist())) < d:
        k = next(k for k in range(len(targets)) if targets[k] in targets[:k])
        raise NotInModelError(k + 1, "it hits the same latent as an earlier context")
