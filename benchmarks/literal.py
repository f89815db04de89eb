"""Algorithms 4–6 word by word: full p-dimensional projections and singular value decompositions.

Only here to be measured against. It takes precision matrices (K+1, p, p), the control first, and follows the
pseudocode line by line, with the two-sided projection of the published code. The one addition keeps it alive where the
published code dies with "SVD did not converge": a second try with the slower, sturdier LAPACK driver.
"""

import numpy as np
from scipy.linalg import null_space, orth
from scipy.linalg import svd as sturdy_svd


def iterative_difference_projection_finite_sample(Theta, gamma=0.99):
    """Algorithm 6. Returns H in the paper's scaling, B_0, the row of each context and the closed order of the rows."""
    K, p = len(Theta) - 1, Theta.shape[1]
    Q, order = identify_partial_order_finite_sample(Theta, gamma)
    Q_inv = np.linalg.pinv(Q)
    C = [np.linalg.cholesky(Q_inv.T @ T @ Q_inv).T for T in Theta]
    free = list(range(K))
    R, target = np.eye(K), []
    for k in range(1, K + 1):
        D = C[k] - C[0]
        i = max(free, key=lambda i: np.linalg.norm(D[i]))
        free.remove(i)
        target.append(i)
        R[i] = D[i] + C[0][i]
    H = R @ Q
    H = H / H[np.arange(K), np.argmax(np.abs(H), axis=1)][:, None]
    H_inv = np.linalg.pinv(H)
    assert H.shape == (K, p)
    return H, np.linalg.cholesky(H_inv.T @ Theta[0] @ H_inv).T, np.array(target), order


def identify_partial_order_finite_sample(Theta, gamma):
    """Algorithm 4."""
    K, p = len(Theta) - 1, Theta.shape[1]
    rows = {}
    ancestors = {}
    for _ in range(K):
        left = [k for k in range(1, K + 1) if k not in rows]
        scores = {k: energy(project_out(list(rows.values()), Theta[k] - Theta[0])) for k in left}
        k = max(left, key=lambda k: scores[k])
        q, A = identify_ancestors_finite_sample(Theta[k], Theta[0], rows, gamma)
        ancestors[k] = A.union(*(ancestors[a] for a in A)) if A else set()
        rows[k] = q
    found = list(rows)[::-1]
    order = np.array([[j in ancestors[i] for j in found] for i in found])
    return np.array([rows[k] for k in found]).reshape(K, p), order


def identify_ancestors_finite_sample(Theta_k, Theta_0, rows, gamma):
    """Algorithm 5."""
    A = set(rows)
    for i in rows:
        others = [q for j, q in rows.items() if j != i]
        if energy(project_out(others, Theta_k - Theta_0)) >= gamma:
            A.remove(i)
    M = project_out([rows[a] for a in A], Theta_k - Theta_0)
    return svd(M)[0][:, 0], A


def project_out(vectors, M):
    """Both sides of M projected onto the orthogonal complement of the vectors."""
    if not vectors:
        return M
    basis = null_space(orth(np.array(vectors).T).T)
    P = basis @ basis.T
    return P @ M @ P


def energy(M):
    s = svd(M)[1] ** 2
    return s[0] / s.sum()


def svd(M):
    try:
        return np.linalg.svd(M)
    except np.linalg.LinAlgError:
        return sturdy_svd(M, lapack_driver="gesvd")
