"""The paper's finite-sample method: Algorithms 4–6, one hyperparameter γ.

======================================================  =====================================================
in the paper (numbers as the code counts)               here
======================================================  =====================================================
Algorithm 4, IdentifyPartialOrderFiniteSample           :func:`identify_partial_order_finite_sample`
Algorithm 5, IdentifyAncestorsFiniteSample              :func:`identify_ancestors_finite_sample`
Algorithm 6, IterativeDifferenceProjectionFiniteSample  :func:`iterative_difference_projection_finite_sample`
======================================================  =====================================================

Their exact versions, Algorithms 1–3, are in :mod:`latentdag.core.exact`.

At each step the context whose difference ``Θ_k − Θ_0``, projected off the rows found so far, is nearest to rank one
comes next; its ancestors are the rows that cannot be left out without losing rank one at level γ; its own row of Q is
the leading singular vector after projecting off those ancestors. As in the published code the projection acts on both
sides, so every projected matrix is symmetric and its singular values are absolute eigenvalues.

Same decisions, less work than a literal transcription:

* everything happens in the r-dimensional range of the data, and projected matrices are ``NᵀΔ_kN`` with N a basis of the
  complement of the rows found so far, which loses one column per step;
* projecting further never increases the largest singular value, and the Frobenius norm can be downdated, so the score
  of every open context has an upper bound that costs one matrix-vector product. Only contexts whose bound still beats
  the best score are looked at again;
* leaving row i out of the projection borders the chosen ``NᵀΔN`` by one row. Whether the bordered matrix still has
  spectral energy ≥ γ in its first singular value is a question about its inertia, answered by one Schur complement per
  row instead of one singular value decomposition per row;
* Cholesky factors of ``(Q†)ᵀ Θ_k Q†`` come from QR factors of ``F_k Q†``, ``F_kᵀF_k = Θ_k``, which cannot break down.
"""

import numpy as np

from latentdag.core.context_error import ContextError
from latentdag.core.exact import with_new_row
from latentdag.core.linalg import (
    Array,
    BoolArray,
    IntArray,
    complement,
    right_inverse,
    triangular_of_product,
    upper_factor,
)

_TINY = 1e-200


def iterative_difference_projection_finite_sample(
    Theta: Array, gamma: float = 0.99
) -> tuple[Array, Array, IntArray, BoolArray]:
    """Return unmixing, structural matrix, targets and order from noisy precision matrices (Algorithm 6).

    Parameters
    ----------
    Theta : (K+1, r, r)
        Precision matrices, the control first, all positive definite, K ≤ r.
    gamma : float
        Share of the squared singular values that the first must have for a matrix to count as rank one.

    Returns
    -------
    U : (d, r)
        Rows ``u = λ h``: the unmixing in the scaling where every λ is one.
    B_0 : (d, d)
        Upper triangular structural matrix of the control in that scaling.
    contexts : (d,)
        The context 1..K assigned to each latent by the largest row of ``C_k − C_0``.
    order : (d, d) bool
        The partial order of Algorithm 4 between the latents.
    """
    K = len(Theta) - 1
    factors = np.array([upper_factor(T, context=k) for k, T in enumerate(Theta)])
    Q, order = identify_partial_order_finite_sample(Theta[1:] - Theta[0], gamma)
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
    return U, B_0, contexts, order


def identify_partial_order_finite_sample(Delta: Array, gamma: float) -> tuple[Array, BoolArray]:
    """Return the factor Q and the partial order from the differences ``Θ_k − Θ_0`` (K, r, r) (Algorithm 4).

    Returns
    -------
    Q : (K, r), newest row first
    order : (K, K) bool, closed, between the rows of Q
    """
    K, r = Delta.shape[:2]
    # scores are ratios: a power of two for each context keeps squares in range, and every digit
    Delta = np.ldexp(Delta, -np.frexp(np.abs(Delta).max(axis=(1, 2)))[1][:, None, None])
    Q = np.empty((0, r))
    order = np.zeros((0, 0), dtype=bool)
    span = FoundSpan(r)
    scores = ScoreBounds(Delta)
    for _ in range(K):
        k, w, V = scores.best(span.N)
        q, A = identify_ancestors_finite_sample(Delta[k], w, V, span, Q, gamma)
        if not span.add(q):
            raise ContextError(
                k + 1,
                "the direction found for it lies in the span of the directions found before: its data cannot be told "
                "from the other contexts' by this method (try a larger gamma or more samples)",
            )
        order = with_new_row(order, A)
        Q = np.vstack([q, Q])
        scores.remove(k, span)
    return Q, order


def identify_ancestors_finite_sample(
    Delta_k: Array, w: Array, V: Array, span: "FoundSpan", Q: Array, gamma: float
) -> tuple[Array, BoolArray]:
    """Return the new row ``q_k`` (r,) and which of the t rows found so far it needs (t,) (Algorithm 5).

    ``w, V`` are the eigenvalues and eigenvectors of ``NᵀΔ_kN``, with N of ``span``.
    """
    if len(Q) == 0:
        return V[:, np.argmax(np.abs(w))], np.zeros(0, dtype=bool)
    # The complement of {q_j : j ≠ i} is that of Q plus one direction: the dual vector of q_i, normalised.
    dual = span.dual(Q)
    image = Delta_k @ dual
    border = V.T @ (span.N.T @ image)
    corner = np.einsum("ri,ri->i", dual, image)
    A = ~_rank_one_at_level(w, border, corner, gamma)
    if A.all():
        return span.N @ V[:, np.argmax(np.abs(w))], A
    N_A = complement(Q[A].T)
    w, V = np.linalg.eigh(N_A.T @ Delta_k @ N_A)
    return N_A @ V[:, np.argmax(np.abs(w))], A


class FoundSpan:
    """Orthonormal bases of the span of the rows found so far (``B``) and of its complement (``N``)."""

    def __init__(self, r: int):
        self.B = np.empty((r, 0))
        self.N = np.eye(r)

    def add(self, q: Array) -> bool:
        """Take the part of q outside the span into B and out of N; False if there is none."""
        z = self.N.T @ q
        length = np.linalg.norm(z)
        if length < 1e-10:
            return False
        v = z / length
        new = self.N @ v
        # the Householder reflection that sends v to the first axis leaves the complement in the other columns
        v[0] += 1.0 if v[0] >= 0 else -1.0
        v *= np.sqrt(2.0 / (v @ v))
        self.N = self.N[:, 1:] - np.outer(self.N @ v, v[1:])
        self.B = np.column_stack([self.B, new])
        return True

    def dual(self, Q: Array) -> Array:
        """Return unit vectors (r, t) of the span, the i-th orthogonal to every row of Q but the i-th."""
        D = self.B @ np.linalg.inv(Q @ self.B)
        return np.asarray(D / np.linalg.norm(D, axis=0))


class ScoreBounds:
    """Upper bounds on the scores ``ρ_k = σ_1²/Σσ²`` of the open contexts, so that few need their eigenvalues.

    For each context a unit vector x follows the leading eigenvector of the projected matrix T. With ``θ = xᵀTx`` and
    ``r = Tx − θx``, what is left of T after x has norm at most ``s``, ``s² = Σσ² − θ² − 2‖r‖²``, so σ_1 is at most the
    larger eigenvalue of ``[[|θ|, ‖r‖], [‖r‖, s]]``: nearly exact where T is nearly of rank one. Σσ² is downdated.
    """

    def __init__(self, Delta: Array):
        self.Delta = Delta.copy()  # the open contexts first
        self.context = np.arange(len(Delta))  # which context each of them is
        w = np.linalg.eigvalsh(Delta)
        self.top = np.square(w[:, [0, -1]]).max(axis=1)  # at least σ_1² of the projected matrix
        self.total = np.square(w).sum(axis=1)  # Σσ² of the projected matrix
        self.start = self.total.copy()
        powers = np.matmul(Delta, Delta)
        longest = np.argmax(np.einsum("kij,kij->kj", powers, powers), axis=1)
        self.x = powers[np.arange(len(powers)), :, longest]

    def best(self, N: Array) -> tuple[int, Array, Array]:
        """Return the context with the largest score, and the eigendecomposition of its ``NᵀΔN``."""
        # downdating may have lost the last digits of Σσ²; a score is at most one in any case
        bound = np.minimum(self.top, self.total) / np.maximum(self.total - 1e-12 * self.start, _TINY)
        bound = np.minimum(bound, 2.0)
        exact: dict[int, tuple[int, Array, Array]] = {}
        while True:
            q = int(np.argmax(bound))
            if q in exact:
                return exact[q]
            w, V = np.linalg.eigh(N.T @ self.Delta[q] @ N)
            leading = int(np.argmax(np.abs(w)))
            self.x[q], self.top[q], self.total[q] = N @ V[:, leading], w[leading] ** 2, max(np.square(w).sum(), _TINY)
            bound[q] = self.top[q] / self.total[q]
            exact[q] = int(self.context[q]), w, V

    def remove(self, k: int, span: FoundSpan) -> None:
        """Close context k and take the newest direction of the span out of all the others."""
        self._close(int(np.flatnonzero(self.context == k)[0]))
        b, B = span.B[:, -1], span.B
        image = self.Delta @ b
        inside = image @ B[:, :-1]
        outside = np.square(image).sum(axis=1) - np.square(inside).sum(axis=1)  # ‖[N b]ᵀ Δ b‖²
        self.total -= 2 * outside - np.square(image @ b)
        x = self.x - np.outer(self.x @ b, b)
        for _ in range(2):  # a step of the power method keeps x on the leading eigenvector
            self.x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), _TINY)
            x = np.matmul(self.Delta, self.x[:, :, None])[:, :, 0]
            x -= (x @ B) @ B.T
        theta = np.abs(np.einsum("ki,ki->k", self.x, x))
        r2 = np.maximum(np.square(x).sum(axis=1) - theta**2, 0.0)
        s = np.sqrt(np.maximum(self.total - theta**2 - 2 * r2, 0.0) + 1e-12 * self.start)
        top = np.square(0.5 * (theta + s) + np.sqrt(0.25 * np.square(theta - s) + r2))
        self.top = np.minimum(self.top, top * (1 + 1e-12))

    def _close(self, q: int) -> None:
        """Put the last open context in the place of context q, so that the open ones stay together."""
        last = len(self.context) - 1
        for array in (self.Delta, self.context, self.top, self.total, self.start, self.x):
            array[q] = array[last]
        self.Delta, self.context, self.x = self.Delta[:last], self.context[:last], self.x[:last]
        self.top, self.total, self.start = self.top[:last], self.total[:last], self.start[:last]


def _rank_one_at_level(w: Array, border: Array, corner: Array, gamma: float) -> BoolArray:
    """Tell which bordered matrices ``[[diag(w), b_i], [b_iᵀ, c_i]]`` have ``σ_1² ≥ γ Σσ²``, (t,) bool.

    Equivalently, an eigenvalue beyond ±τ with ``τ² = γ ‖·‖²_F``. By Sylvester's law the number of eigenvalues above τ
    is the number of ``w > τ`` plus one if the Schur complement ``c − τ − Σ b²/(w − τ)`` is positive; likewise below −τ.
    """
    squares = np.square(border)
    tau = np.sqrt(gamma * (np.square(w).sum() + 2.0 * squares.sum(axis=0) + np.square(corner)))
    with np.errstate(divide="ignore", invalid="ignore"):
        schur_above = corner - tau - (squares / (w[:, None] - tau)).sum(axis=0)
        schur_below = corner + tau - (squares / (w[:, None] + tau)).sum(axis=0)
    above = (w[:, None] > tau).any(axis=0) | (schur_above >= 0)
    below = (w[:, None] < -tau).any(axis=0) | (schur_below <= 0)
    return np.asarray(above | below)
