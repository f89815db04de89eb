"""What every edge is worth in nats, all rows of the unmixing adapting to it: no refits, one factorisation.

At the maximum of the likelihood for one DAG, an absent edge promises ``½ s² / I`` (the score test, or modification
index) and a present one of weight β is worth ``½ β² I`` (the Wald test), where s is the slope of the likelihood in the
edge's weight, and I its information with all other parameters profiled out: rows of H, weights of the other edges,
noise variances.

The information is that of :mod:`latentdag.core.information`, here as a matrix. All mechanisms' noise rows together,
those of the control and then the intervened ones, move by ``V = rows X + β B^{-1}``, and in each context

    Ω_k = (the rows of V at work there) D_k^{-1},   information Σ_k n_k/2 ‖Ω_k + Ω_kᵀ‖².

Both maps have a few coefficients per entry, so that everything but the factorisation is sparse.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.linalg import lapack, solve_triangular

from latentdag.core.information import Information
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray, IntArray
from latentdag.core.optimize import Optimum
from latentdag.core.orders import cholesky

#: Added to the information, relative to its diagonal: directions that the data leave free must not stop the rest.
RIDGE = 1e-9

#: Part of its information below which a weight counts as free: a change of rows does the same.
FREE = 1e-6


def edge_worth(design: Design, optimum: Optimum, parents: Sequence[IntArray], absent: BoolArray) -> Array:
    """Nats (d, d) that the edge j → i is worth, at ``[i, j]``; zero for what is neither an edge nor in ``absent``.

    Parameters
    ----------
    design : without soft interventions, which give an edge a weight in each of their contexts
    optimum : the maximum for the DAG of ``parents``
    absent : (d, d) bool
        Further edges to consider, none of which alone may close a cycle.
    """
    d, mechanisms = design.d, design.mechanisms(parents)
    information, profile = _profiled(design, optimum, parents)
    worth = 0.5 * np.square(optimum.rows[:d]) * information
    for i, others in enumerate(map(np.flatnonzero, absent)):
        residual = optimum.rows[i] @ optimum.H @ mechanisms[i].S
        slopes = -mechanisms[i].w * optimum.H[others] @ residual
        worth[i, others] = profile.gains(i, others, slopes)
    return worth


def weight_information(design: Design, optimum: Optimum, parents: Sequence[IntArray]) -> Array:
    """Information (d, d) on the entry of ``B_0`` of each edge, all else profiled out; zero where there is no edge."""
    return _profiled(design, optimum, parents)[0]


def _profiled(design: Design, optimum: Optimum, parents: Sequence[IntArray]) -> tuple[Array, "_Profile"]:
    d, mechanisms = design.d, design.mechanisms(parents)
    edges = [(i, int(j)) for i, mine in enumerate(parents) for j in mine]
    # besides X: the edges' weights, and the intervened rows' own entries
    weights = edges + [(q, mechanism.latent) for q, mechanism in enumerate(mechanisms[d:], start=d)]
    operator = Information(design, mechanisms, optimum.rows, optimum.H)
    B_inv = np.asarray(operator.B_inv, dtype=np.float64)
    profile = _Profile(information_by_noise_rows(operator), noise_rows_by_parameters(operator, weights), B_inv)
    information = np.zeros((d, d))
    for edge, variance in zip(edges, profile.variance[: len(edges)], strict=True):
        information[edge] = 1 / variance
    return information, profile


def noise_rows_by_parameters(operator: Information, weights: Sequence[tuple[int, int]]) -> sparse.csr_array:
    """V, row by row, for each entry of X and then for each of the weights (mechanism, parent)."""
    d, rows = len(operator.B), np.vstack([operator.B, operator.b])
    of_X = sparse.kron(sparse.csr_array(rows), sparse.eye_array(d))
    q, j = np.array(weights, dtype=np.intp).reshape(-1, 2).T
    entry = (q[:, None] * d + np.arange(d)).ravel(), np.repeat(np.arange(len(q)), d)
    of_weights = sparse.csr_array((operator.B_inv[j].ravel(), entry), shape=(rows.size, len(q)))
    return sparse.csr_array(sparse.hstack([of_X, of_weights]))


def information_by_noise_rows(operator: Information) -> sparse.csr_array:
    """The quadratic form of all contexts in V."""
    d, q = len(operator.B), len(operator.n)
    forms = []
    for n, members in [(operator.n_alone, []), *((operator.n[mine[0]], mine) for mine in operator.contexts)]:
        t = operator.target[members]
        D_inv = np.eye(d)
        D_inv[t] -= operator.G[members]
        at_work = np.arange(d)
        at_work[t] = d + np.array(members, dtype=np.intp)
        c, b = np.nonzero(D_inv)  # Ω_ab = Σ_c V_ac (D_k^{-1})_cb
        a = np.repeat(np.arange(d), len(c))
        value, b, column = np.tile(D_inv[c, b], d), np.tile(b, d), (at_work[:, None] * d + c).ravel()
        # each entry of Ω + Ωᵀ once: those beside the diagonal count twice in the norm
        low, high = np.minimum(a, b), np.maximum(a, b)
        entry, weight = low * d + high, np.sqrt(np.where(low < high, n, 2 * n))
        forms.append(sparse.csr_array((value * weight, (entry, column)), shape=(d * d, (d + q) * d)))
        if operator.shift[members].any():  # a shifted target makes errors in the other noises visible in the mean
            shift = np.zeros(d)
            shift[t] = operator.shift[members]
            seen = ~np.isin(a, t)
            value = (np.sqrt(n) * value * shift[b])[seen]
            forms.append(sparse.csr_array((value, (a[seen], column[seen])), shape=(d, (d + q) * d)))
    J = sparse.vstack(forms, format="csr")
    return sparse.csr_array(J.T @ J)


class _Profile:
    """Parameters J (see `noise_rows_by_parameters`) of the quadratic form, and what they leave to weights beside them.

    Attributes
    ----------
    variance : of the weights in J
    """

    def __init__(self, form: sparse.csr_array, J: sparse.csr_array, B_inv: Array):
        d = len(B_inv)
        self.form, self.B_inv = form, B_inv
        across = sparse.csr_array(J.T @ form)
        A = (across @ J).toarray()
        scale = np.sqrt(np.maximum(np.diagonal(A), np.finfo(float).tiny))
        A /= scale[:, None]
        A /= scale
        A.flat[:: len(A) + 1] += RIDGE
        L = np.asfortranarray(cholesky(A))
        half = lapack.dtrtri(np.asfortranarray(L[d * d :, d * d :]), lower=1)[0] / scale[d * d :]
        self.variance = np.square(half).sum(axis=0)
        # the tests need L^{-1} times the parameters' information on V, whichever weights are tested
        self.L, self.across = L, across.multiply(1 / scale[:, None]).tocsc()

    def gains(self, child: int, parents: IntArray, slopes: Array) -> Array:
        """Nats that absent edges of one child promise, given the slopes of the likelihood in their weights."""
        d, P = len(self.B_inv), self.B_inv[parents]
        row = slice(child * d, child * d + d)
        information = np.einsum("mb,bc,mc->m", P, self.form[row, row].toarray(), P)
        right = np.asfortranarray(self.across[:, row].toarray() @ P.T)
        explained = solve_triangular(self.L, right, lower=True, overwrite_b=True, check_finite=False)
        left = information - np.square(explained).sum(axis=0)
        return np.asarray(
            np.where(left > FREE * information, 0.5 * slopes**2 / np.maximum(left, FREE * information), 0.0)
        )
