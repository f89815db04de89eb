"""The partial-order RQ decomposition (Definition 1 of the paper).

Given a partial order ≺ on the rows of a full-rank ``H`` (d, p), there is exactly one factorisation ``H = R Q`` with

* ``R[i, i] > 0`` and ``R[i, j] = 0`` unless ``i ⪯ j``;
* every row ``q_i`` of unit norm and orthogonal to ``q_j`` for all ``j ≻ i``.

For the total order 0 < 1 < … < d−1 it is the ordinary reduced RQ decomposition. Rows of incomparable elements need not
be orthogonal to each other. The rows ``q_j, j ≻ i`` span the same space as the rows ``h_j, j ≻ i``, so ``q_i`` is the
normalised residual of ``h_i`` after its ancestors; the coordinates in ``R`` then follow by triangular substitution.
"""

import numpy as np

from latentdag.core.linalg import Array, BoolArray


def partial_order_rq(H: Array, order: BoolArray) -> tuple[Array, Array]:
    """Factor ``H = R Q`` along a closed partial order (Algorithm "Partial Order RQ").

    Parameters
    ----------
    H : (d, p) array of full row rank, d ≤ p
    order : (d, d) bool, closed; ``order[i, j]`` iff ``i ≺ j``

    Returns
    -------
    R : (d, d)
    Q : (d, p)
    """
    d = len(H)
    R, Q = np.zeros((d, d)), np.zeros_like(H)
    # The paper labels the rows so that larger elements come later; any listing with ancestors first will do.
    for i in sorted(range(d), key=lambda i: int(order[i].sum())):
        above = np.flatnonzero(order[i])
        W, T = np.linalg.qr(Q[above].T)  # orthonormal basis of ⟨q_j : j ≻ i⟩, Q[above]ᵀ = W T
        residual, inside = H[i], np.zeros(len(above))
        for _ in range(2):  # twice is enough for orthogonality to working precision
            step = W.T @ residual
            residual, inside = residual - W @ step, inside + step
        R[i, i] = np.linalg.norm(residual)
        if R[i, i] <= 1e-13 * np.linalg.norm(H[i]):
            raise ValueError(
                f"H does not have full row rank: row {i} lies in the span of the rows above it {above.tolist()}"
            )
        Q[i] = residual / R[i, i]
        if len(above):
            R[i, above] = np.linalg.solve(T, inside)
    return R, Q
