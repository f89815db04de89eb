"""Derive once how a model's moments move with its parameters, and from that its Fisher information.

docs/math.md, section "Information and standard errors", has the same in formulas.

**The point.** A latent DAG has *mechanisms*: one structural row per latent in the contexts that leave it alone
(together ``B_0``), and one more for each latent that a context targets. Number them 0 … d − 1 and d … d + q − 1.
Context k puts d of them to work, one per latent, and their rows make ``B_k``. Its noise rows are ``F_k = B_k H``:
applied to a sample they give ``F_k x = e + τ_k`` with e white and τ_k the mean noise of these mechanisms.

**The parameters** are, in this order,

* X (d, d), with ``dH = X M`` and ``M = B_0 H`` the noise rows of the control;
* β, the free entries of the mechanisms' rows: weights of edges, and own entries (noise variances) where they are free.
  Scaling a row of H changes no law, so whoever inverts the information must hold the diagonal of ``B_0`` fixed;
  A partial intervention has its own entry only: its weights are tied to those of ``B_0``, and move with both;
* if means are used, τ, the mean noise of every mechanism. Features are measured from the model's offset, so that the
  first d of them are 0 at a fitted point.

**First map.** All mechanisms' rows of ``B H`` together move by ``V M`` with

    V = rows X + β B_0^{-1}      (d + q, d).

Most parameters move few rows, so this map is sparse (`Point.rows_by_parameters`).

**Second map.** In context k the noise rows move by ``dF_k = Ω_k F_k``, where

    Ω_k = V_k D_k^{-1},   V_k the rows of V at work there,   D_k = B_k B_0^{-1}.

``D_k`` is the identity but for the rows of the targets, and so is its inverse: ``D_k^{-1} = I − Σ_i e_i g_i``. In the
coordinates of the noises, covariances move by ``−(Ω_k + Ω_kᵀ)`` and means by ``dτ_k − Ω_k τ_k = dτ_k − V_k δ_k`` with
``δ_k = D_k^{-1} τ_k``. This map has a few coefficients per entry, too (`moments_by_rows`).

**All else follows.** With J the product of both maps, each context weighted by √n_k,

* J is the tangent map of the model, which tests of the model against free moments need (`tangent`);
* the expected information of Gaussian samples is JᵀJ, that is ``Σ_k n_k/2 ‖Ω_k + Ω_kᵀ‖² + Σ_k n_k ‖dτ_k − Ω_k τ_k‖²``
  (`information`). The second map's part of it, `quadratic_form`, serves for edges that are not in the model, too;
* a sample's score is −e (M x)ᵀ in V, up to a constant, and the transpose of the first map brings it to the parameters
  (`scores`);
* Newton's method multiplies with the information many times, and does so without a matrix where d is large
  (:mod:`latentdag.core.newton`).

**More dimensions than latents.** With ``w = W x`` the white remainder, uncorrelated with the latents, ``dH`` has a
further part V W, the regression of w on the latents a part Y and its mean a part κ. Each of the r − d coordinates of w
has the same information about its column v of V, its row y of Y and its κ, and none about anything else
(`outer_information`):

    Σ_k n_k ‖B_k v + D_k^{-T} y‖² + Σ_k n_k (κ − y δ_k)².
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from latentdag.core.likelihood import Design, Mechanism, Noise, Span
from latentdag.core.linalg import Array, BoolArray, IntArray

#: A full or a sparse matrix: both multiply with @.
Matrix = Any

#: Numbers in the second map up to which both are faster as full arrays than as sparse ones: ten latents, ten contexts.
SMALL = 250_000

#: Columns of a large information matrix that are made at a time.
COLUMNS = 512


@dataclass(frozen=True, eq=False)
class Point:
    """Hold a model in arrays, with all that its information depends on.

    Attributes
    ----------
    rows : (d + q, d) structural rows of the mechanisms, noise variance one: ``B_0``, then the intervened rows
    target, context : (q,) the latent and the context of each intervened mechanism; the control is context 0
    free : (d + q, d) bool, the entries of ``rows`` that are parameters
    n : (K + 1,) weight of each context
    tau : (d + q,) mean noise of each mechanism in standard deviations, or None where every context has a free mean
    fits_means : bool
        Whether τ are parameters. The optimiser says no: it holds those of mechanisms left alone at their value, and
        profiles out the others, each of which explains one mean alone.
    noise : Noise of the latents, or None where the features are exact
    tied : (q,) share of its target's weights that each intervened mechanism keeps, 0 if none; None if all are 0
    strength_sd : (q,) standard deviation of ``1 − tied``, or None where all are known
        Those that are not known exactly are parameters, after the entries of rows: not estimated, but moving the rest.
    """

    rows: Array
    target: IntArray
    context: IntArray
    free: BoolArray
    n: Array
    tau: Array | None = None
    fits_means: bool = True
    noise: Noise | None = None
    tied: Array | None = None
    strength_sd: Array | None = None

    @property
    def d(self) -> int:
        return int(self.rows.shape[1])

    @property
    def B(self) -> Array:
        """B_0 (d, d)."""
        return self.rows[: self.d]

    @property
    def b(self) -> Array:
        """Intervened rows (q, d)."""
        return self.rows[self.d :]

    @cached_property
    def B_inv(self) -> Array:
        return np.asarray(np.linalg.inv(self.B))

    @cached_property
    def onto(self) -> Matrix:
        """(d, q): sums what belongs to intervened mechanisms over those of each latent."""
        q = len(self.target)
        return sparse.csr_array((np.ones(q), (self.target, np.arange(q))), shape=(self.d, q))

    @cached_property
    def at_work(self) -> IntArray:
        """(K + 1, d): the mechanism of each latent in each context."""
        at_work = np.tile(np.arange(self.d), (len(self.n), 1))
        at_work[self.context, self.target] = self.d + np.arange(len(self.target))
        return at_work

    @cached_property
    def G(self) -> Array:
        """g (q, d) with ``D_k^{-1} = I − Σ_i e_i g_i`` over the intervened mechanisms of context k."""
        q, change = np.arange(len(self.target)), self.b @ self.B_inv
        change[q, self.target] -= 1.0
        own = 1.0 + change[q, self.target]
        # one equation per context; where there are several targets, they are solved together
        G = np.asarray(np.linalg.solve(own[:, None, None], change[:, None])[:, 0], dtype=np.float64)
        for k in np.flatnonzero(np.bincount(self.context) > 1):
            mine = np.flatnonzero(self.context == k)
            t = self.target[mine]
            G[mine] = np.linalg.solve(np.eye(len(t)) + change[np.ix_(mine, t)], change[mine])
        return G

    @cached_property
    def D_inv(self) -> Array:
        """D_k^{-1} (K + 1, d, d)."""
        D_inv = np.repeat(np.eye(self.d)[None], len(self.n), axis=0)
        D_inv[self.context, self.target] -= self.G
        return D_inv

    @cached_property
    def delta(self) -> Array:
        """δ_k (K + 1, d): the mean of ``M x`` in each context; zero where means are free."""
        if self.tau is None:
            return np.zeros((len(self.n), self.d))
        return np.asarray(np.einsum("kij,kj->ki", self.D_inv, self.tau[self.at_work]))

    @property
    def small(self) -> bool:
        """Whether the maps are full arrays."""
        return len(self.n) * self.d**2 * self.rows.size <= SMALL

    @property
    def n_means(self) -> int:
        """Number of τ that are parameters."""
        return len(self.rows) if self.tau is not None and self.fits_means else 0

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return self.d**2 + self.n_entries + self.n_means + self.n_noise

    @property
    def n_entries(self) -> int:
        """Number of parameters that entries of rows move with: their own, and strengths."""
        return int(self.free.sum()) + len(self.unsure)

    @property
    def unsure(self) -> IntArray:
        """The intervened mechanisms whose strength is not known exactly."""
        return np.flatnonzero([] if self.strength_sd is None else self.strength_sd)

    @property
    def n_noise(self) -> int:
        """Number of directions in which the noise is not known."""
        return 0 if self.noise is None else len(self.noise.directions)

    @property
    def n_outer(self) -> int:
        """Number of parameters (v, y, κ) of each dimension beyond the latents; (ζ, κ) where features are noisy."""
        return self.d + 1 if self.noise is not None else 2 * self.d + (self.tau is not None)

    @property
    def outer_rows(self) -> Array:
        """How the rows of H (d, n_outer) move along a dimension beyond the latents, by its parameters."""
        return np.eye(self.d, self.n_outer) if self.noise is None else np.pad(self.noise.N[0], ((0, 0), (0, 1)))

    def pack(self, X: Array | None = None, rows: Array | None = None, tau: Array | None = None) -> Array:
        """Return gradients (m, P) from those in X (m, d, d), in the rows (m, d + q, d) and in τ (m, d + q)."""
        m = next(len(given) for given in (X, rows, tau) if given is not None)
        out, ends = np.zeros((m, self.size)), (self.d**2, self.d**2 + self.n_entries)
        if X is not None:
            out[:, : ends[0]] = X.reshape(m, -1)
        if rows is not None:
            out[:, ends[0] : ends[1]] = (
                rows[:, self.free] if self.tied is None else (self.entries.T @ rows.reshape(m, self.rows.size).T).T
            )
        if tau is not None and self.n_means:
            out[:, ends[1] : ends[1] + self.n_means] = tau
        return out

    def pull(self, V: Array, tau: Array | None = None, nu: Array | None = None) -> Array:
        """Return gradients (m, P) from those in V (m, d + q, d), τ (m, d + q) and ν: the first map, transposed."""
        flat = V.reshape(len(V), -1)
        if self.n_means:
            flat = np.hstack([flat, np.zeros((len(V), self.n_means)) if tau is None else tau])
        if self.n_noise:
            flat = np.hstack([flat, np.zeros((len(V), self.n_noise)) if nu is None else nu])
        return np.asarray((self.rows_by_parameters.T @ flat.T).T)

    @cached_property
    def entries(self) -> Matrix:
        """How the rows' entries (rows.size) move with those that are parameters, and with strengths.

        The row of a partial intervention on i, with own entry c, is ``c (e_i − f a_i)``: its weights are f c / c_0 of
        those of row i of ``B_0``, whose own entry is c_0.
        """
        d, at, size = self.d, np.flatnonzero(self.free), self.rows.size
        shape = size, size + len(self.unsure)
        move: Any = np.zeros(shape) if self.small else sparse.lil_array(shape)
        move[at, at] = 1.0
        for q in np.flatnonzero([] if self.tied is None else self.tied):
            i, own = self.target[q], (d + q) * d
            c, c_0, others = self.b[q, i], self.B[i, i], np.flatnonzero(np.arange(d) != i)
            move[own + others, i * d + others] = self.tied[q] * c / c_0  # type: ignore[index]
            for entry, sign in ((own + i, 1 / c), (i * d + i, -1 / c_0)):
                move[own + others, np.full(d - 1, entry)] = sign * self.b[q, others]
            for s in np.flatnonzero(self.unsure == q):
                move[own + others, np.full(d - 1, size + s)] = -c / c_0 * self.B[i, others]
        columns = [*at, *range(size, size + len(self.unsure))]
        return move[:, columns] if self.small else move.tocsc()[:, columns]

    def retied(self, rows: Array) -> Array:
        """Return rows (d + q, d) whose tied weights follow theirs."""
        rows = rows.copy()
        for q in np.flatnonzero([] if self.tied is None else self.tied):
            i, own = self.target[q], rows[self.d + q, self.target[q]]
            rows[self.d + q] = self.tied[q] * own / rows[i, i] * rows[i]  # type: ignore[index]
            rows[self.d + q, i] = own
        return rows

    @cached_property
    def rows_by_parameters(self) -> Matrix:
        """The first map: from parameters to the entries of V, row by row, and then to τ and ν."""
        d, at, j = self.d, np.arange(self.d), np.nonzero(self.free)
        m, i = np.nonzero(self.rows)
        rest = np.arange(self.n_means + self.n_noise)
        of_X = self.rows[m, i, None].repeat(d, axis=1), m[:, None] * d + at, i[:, None] * d + at
        entries = d**2 + np.arange(len(j[0]))[:, None].repeat(d, axis=1)
        of_beta = self.B_inv[j[1]], j[0][:, None] * d + at, entries
        if self.tied is not None:
            kron: Any = np.kron if self.small else sparse.kron
            moved = sparse.coo_array(kron(np.eye(len(self.rows)), self.B_inv.T) @ self.entries)
            of_beta = moved.data, moved.row.astype(np.intp), d**2 + moved.col.astype(np.intp)
        of_rest = np.ones(len(rest)), self.rows.size + rest, d**2 + self.n_entries + rest
        return _matrix([of_X, of_beta, of_rest], (self.rows.size + len(rest), self.size), self.small)


def fitted_point(
    design: Design,
    mechanisms: Sequence[Mechanism],
    rows: Array,
    tau: Array | None = None,
    fits_means: bool = True,
) -> Point:
    """Return the point of a design at the structural rows of its mechanisms, their own entries among the parameters."""
    free = np.zeros(rows.shape, dtype=bool)
    for mine, mechanism in zip(free, mechanisms, strict=True):
        mine[mechanism.latent] = True
        mine[mechanism.parents[: mechanism.n_weights]] = True
    hit = mechanisms[rows.shape[1] :]
    target = np.array([mechanism.latent for mechanism in hit], dtype=np.intp)
    context = np.array([mechanism.context for mechanism in hit], dtype=np.intp)
    return Point(rows, target, context, free, design.n, tau, fits_means, tied=ties(hit))


def ties(hit: Sequence[Mechanism]) -> Array | None:
    """Return the shares of their targets' weights that intervened mechanisms keep; None if none does."""
    tied = np.array([mechanism.tied for mechanism in hit])
    return tied if tied.any() else None


def optimiser_point(design: Design, mechanisms: Sequence[Mechanism], rows: Array, H: Array) -> Point:
    """Return the point at which the optimiser takes the information: mean noises are read off the data, not fitted."""
    if design.means is None:
        return fitted_point(design, mechanisms, rows)
    hit = zip(rows[design.d :], mechanisms[design.d :], strict=True)
    tau = np.array([0.0] * design.d + [row @ H @ design.means[mechanism.context] for row, mechanism in hit])
    return fitted_point(design, mechanisms, rows, tau, fits_means=False)


def _matrix(parts: Sequence[tuple[Array, IntArray, IntArray]], shape: tuple[int, int], small: bool) -> Matrix:
    """Return a matrix from values, row and column indices, none of them twice; sparse unless it is small."""
    value, row, column = (np.concatenate([part[x].ravel() for part in parts]) for x in range(3))
    if not small:
        return sparse.csr_array((value, (row, column)), shape=shape)
    full = np.zeros(shape)
    full[row, column] = value
    return full


def moments_by_rows(point: Point) -> Matrix:
    """Return the second map: from V and τ to the moments of every context in its noise coordinates, times √n_k.

    Each context has d (d + 1) / 2 entries of ``Ω_k + Ω_kᵀ``, upper triangle row by row, those on the diagonal divided
    by √2; then, if means are used, d entries of ``dτ_k − V_k δ_k``.
    """
    d, root = point.d, np.sqrt(point.n)
    n_pairs = d * (d + 1) // 2
    size = n_pairs + d * (point.tau is not None)
    # Ω_ab = Σ_c V_ac (D_k^{-1})_cb, for all a at once
    k, c, b = np.nonzero(point.D_inv)
    a = np.arange(d)[:, None]
    low, high = np.minimum(a, b), np.maximum(a, b)
    value = point.D_inv[k, c, b] * root[k] * np.where(a == b, np.sqrt(2.0), 1.0)
    parts = [(value, k * size + low * (2 * d - low - 1) // 2 + high, point.at_work[k].T * d + c)]
    if point.tau is not None:
        seen = np.ones(point.at_work.shape, dtype=bool) if point.fits_means else point.at_work < d
        k, a = np.nonzero(seen)
        entry, mechanism = k * size + n_pairs + a, point.at_work[k, a]
        columns = mechanism[:, None] * d + np.arange(d)
        parts.append((-root[k, None] * point.delta[k], entry[:, None].repeat(d, axis=1), columns))
        if point.fits_means:
            parts.append((root[k], entry, point.rows.size + mechanism))
    return _matrix(parts, (len(point.n) * size, point.rows.size + point.n_means), point.small)


def quadratic_form(point: Point) -> Matrix:
    """Return the information about V, τ and ν, to which the first map adds which of their changes are possible."""
    if point.noise is not None:
        return _noisy_form(point, point.noise)
    S = moments_by_rows(point)
    return S.T @ S


def _noisy_form(point: Point, noise: Noise) -> Array:
    """Return the quadratic form where latents are measured with noise.

    In the coordinates of the noises e, the covariance is ``A_k = I + B_k N_k B_kᵀ`` and moves by
    ``−(Ω_k + Ω_kᵀ) + Σ_j ν_j B_k directions_j B_kᵀ``; the information is that in the metric of ``A_k^{-1}``.
    """
    d, M = point.d, len(point.rows)
    V = np.zeros((M, M, d, d))  # [a, b] is the block of row a with row b
    tau, m = np.zeros((point.n_means, M, d)), point.n_noise
    tau_tau, nu, nu_nu = np.zeros((point.n_means,) * 2), np.zeros((m, M, d)), noise.precision.copy()
    for k, at_work in enumerate(point.at_work):
        B, n, D_inv, both = point.rows[at_work], point.n[k], point.D_inv[k], np.ix_(at_work, at_work)
        A_inv = np.linalg.inv(np.eye(d) + B @ noise.N[k] @ B.T)
        right = D_inv @ A_inv
        within = right @ D_inv.T
        if point.n_means:
            delta = point.delta[k]
            within = within + delta[:, None] * delta
            tau[both] -= n * A_inv[:, :, None] * delta
            tau_tau[both] += n * A_inv
        columns = right.T.copy()
        V[both] += (n * A_inv)[:, :, None, None] * within + columns[:, :, None] * (n * columns)[:, None, None]
        if m:
            seen = B @ noise.directions @ B.T
            moved = (A_inv @ seen @ A_inv).reshape(m, -1)
            nu[:, at_work] -= n * (moved.reshape(m, d, d) @ D_inv.T)
            nu_nu += 0.5 * n * moved @ seen.reshape(m, -1).T
    size, across = M * d, np.concatenate([tau.reshape(-1, M * d), nu.reshape(-1, M * d)])
    form = np.zeros((size + len(across),) * 2)
    form[:size, :size] = V.transpose(0, 2, 1, 3).reshape(size, size)
    form[size:, :size], form[:size, size:] = across, across.T
    form[size : size + len(tau), size : size + len(tau)] = tau_tau
    form[size + len(tau) :, size + len(tau) :] = nu_nu
    return form


def as_array(A: Matrix) -> Array:
    """Return a matrix as a full array."""
    return A if isinstance(A, np.ndarray) else np.asarray(A.toarray())


def tangent(point: Point) -> Array:
    """Return J, (K + 1) · (d (d + 1) / 2 [+ d]) by P: how moments in noise coordinates move with the parameters.

    Where latents are measured with noise, the coordinates are those in which what was measured has unit variance, and
    further rows hold what is known about the noise from elsewhere.
    """
    if point.noise is not None:
        return _noisy_tangent(point, point.noise)
    return as_array(moments_by_rows(point) @ point.rows_by_parameters)


def noise_roots(point: Point) -> Array:
    """Return lower triangular L_k (K + 1, d, d), ``L_k L_kᵀ`` the covariance of what context k has in e."""
    B, total = point.rows[point.at_work], np.repeat(np.eye(point.d)[None], len(point.n), axis=0)
    if point.noise is not None:
        total += B @ point.noise.N @ B.transpose(0, 2, 1)
    return np.asarray(np.linalg.cholesky(total), dtype=np.float64)


def _noisy_tangent(point: Point, noise: Noise) -> Array:
    d, (low, high) = point.d, np.triu_indices(point.d)
    exact = np.pad(as_array(moments_by_rows(point)), ((0, 0), (0, point.n_noise)))
    exact = exact.reshape(len(point.n), -1, exact.shape[1])
    unit = np.where(low == high, np.sqrt(0.5), 1.0)
    for k, L in enumerate(noise_roots(point)):
        L_inv, B = np.linalg.inv(L), point.rows[point.at_work[k]]
        moved = np.zeros((exact.shape[2], d, d))
        moved[:, low, high] = moved[:, high, low] = (exact[k, : len(low)] / unit[:, None]).T
        moved[moved.shape[0] - point.n_noise :] = -np.sqrt(point.n[k]) * B @ noise.directions @ B.T
        exact[k, : len(low)] = (L_inv @ moved @ L_inv.T)[:, low, high].T * unit[:, None]
        if point.tau is not None:
            exact[k, len(low) :] = L_inv @ exact[k, len(low) :]
    prior = np.zeros((point.n_noise, exact.shape[2]))
    prior[:, exact.shape[2] - point.n_noise :] = np.linalg.cholesky(noise.precision).T
    return np.vstack([exact.reshape(-1, exact.shape[2]), prior]) @ as_array(point.rows_by_parameters)


def information(point: Point) -> Array:
    """Return the expected Fisher information JᵀJ (P, P) of Gaussian samples."""
    P = point.rows_by_parameters
    across = P.T @ quadratic_form(point)
    if point.small:
        return np.asarray(across @ P)
    total, P = np.empty((point.size, point.size)), P.tocsc()
    for start in range(0, point.size, COLUMNS):  # the product is full, and a sparse form of it would take more memory
        stop = min(start + COLUMNS, point.size)
        total[:, start:stop] = as_array(across @ P[:, start:stop])
    return total


def outer_information(point: Point, means: bool = True) -> Array:
    """Return the information (2d + 1, 2d + 1) about a column v, a row y and its κ; (2d, 2d) without means.

    Where features are noisy, (d + 1, d + 1) about ζ and κ.
    """
    if point.noise is not None and point.noise.span is not None:
        return point.noise.span.information.copy()
    rows, N = point.rows, point.n.sum()
    weight = np.bincount(point.at_work.ravel(), np.repeat(point.n, point.d), len(rows))
    yy = np.tensordot(point.D_inv * point.n[:, None, None], point.D_inv, axes=([0, 2], [0, 2]))
    # B_kᵀ D_k^{-T} = B_0ᵀ in every context
    total = np.block([[(rows.T * weight) @ rows, N * point.B.T], [N * point.B, yy]])
    if point.tau is None or not means:
        return np.asarray(total)
    mean = np.hstack([np.zeros_like(point.delta), -point.delta, np.ones((len(point.n), 1))])
    return np.asarray(np.pad(total, (0, 1)) + (mean.T * point.n) @ mean)


def scores(point: Point, k: int, z: Array, w: Array | None = None) -> Array:
    """Return the scores (m, P [+ n_outer × (r − d)]) of single samples of context k, up to a constant.

    A sample has ``dℓ = tr Ω_k − eᵀ Ω_k (e + τ_k) + eᵀ dτ_k``, and ``D_k^{-1} (e + τ_k)`` is ``M x``. So the score is
    ``−e (M x)ᵀ`` in the rows of V at work and e in their τ; ``−(B_kᵀ e) wᵀ``, ``−w (M x)ᵀ`` and w in V, Y and κ.
    Constants drop out of a covariance about the mean.

    Parameters
    ----------
    z : (m, d)
        Latents of the samples, measured from the offset; where means are free, from the context's own mean.
    w : (m, r − d), optional
        The remainder, measured from there, too.
    """
    if point.noise is not None and point.noise.span is not None and w is not None:
        return _noisy_scores(point, point.noise, point.noise.span, k, z, w)
    at_work = point.at_work[k]
    e, x = z @ point.rows[at_work].T, z @ point.B.T
    if point.tau is not None:
        e -= point.tau[at_work]
    own = (at_work[:, None] * point.d + np.arange(point.d)).ravel()
    inner = (-e[:, :, None] * x[:, None, :]).reshape(len(z), -1)
    out = np.asarray((point.rows_by_parameters[own].T @ inner.T).T)
    if point.n_means:
        out[:, point.size - point.n_means + at_work] = e
    if w is None:
        return out
    by_w = np.hstack([-e @ point.rows[at_work], -x, np.ones((len(z), int(point.tau is not None)))])
    return np.hstack([out, (by_w[:, :, None] * w[:, None, :]).reshape(len(z), -1)])


def _noisy_scores(point: Point, noise: Noise, span: Span, k: int, z: Array, w: Array) -> Array:
    """Return the scores where latents are measured with noise; w are the white coordinates beside them.

    With ``a = A_k^{-1} (e − τ_k)`` they are −a (D_k^{-1} (a + τ_k))ᵀ in V and a in τ; what is measured of the latents
    then weighs ``t = B_kᵀ a``. A coordinate u has the score ``(C_k t + δ) u`` in ζ, where δ is how far the context's
    mean is from that of all, and the noise of features moves the covariances of latents, of both, and of the u.
    """
    at_work, m = point.at_work[k], len(z)
    B, D_inv = point.rows[at_work], point.D_inv[k]
    tau = np.zeros(point.d) if point.tau is None else point.tau[at_work]
    a = (z @ B.T - tau) @ np.linalg.inv(np.eye(point.d) + B @ noise.N[k] @ B.T)
    V, of_tau = np.zeros((m, *point.rows.shape)), np.zeros((m, len(point.rows)))
    V[:, at_work] = -a[:, :, None] * ((a + tau) @ D_inv.T)[:, None]
    of_tau[:, at_work] = a
    response = point.B_inv @ D_inv
    t, C = a @ B, response @ response.T
    beside, psi = w @ span.W, span.psi
    nu = 0.5 * psi * (t @ span.H) ** 2 + 0.5 * psi * beside**2 + ((t - t @ C @ span.J) @ span.H) * psi * beside
    delta = (point.delta[k] - point.n @ point.delta / point.n.sum()) @ point.B_inv.T
    outer = np.hstack([t @ C + delta, np.ones((m, 1))])
    inner = point.pull(V, of_tau, nu)
    return np.hstack([inner, (outer[:, :, None] * w[:, None, :]).reshape(m, -1)])
