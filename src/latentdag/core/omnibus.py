"""The omnibus statistic under any law of the noises.

In coordinates of the noises each context's moments are off by a vector of errors: of the weighted products ``ε_i ε_j``
and, where means are used, of the ε_i. Scaled by √n_k its covariance is Γ_k, the identity if the noises are Gaussian.
The statistic is the squared norm of what the tangent map of the model (:func:`latentdag.core.goodness.tangent`) leaves
of these errors. With Q the projection on what it leaves, its mean is ``tr(QΓ)`` and its variance ``2 tr((QΓ)²)``, and a
multiple of χ² that has both takes the place of χ².
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from latentdag.core.goodness import mechanisms_of_contexts, tangent
from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array, IntArray
from latentdag.core.optimize import Optimum

#: Moments of all contexts together up to which the projection is held as a matrix.
MOMENTS_UP_TO = 4000

_CHUNK = 2**21  # numbers in one block of products


@dataclass(frozen=True)
class Noises:
    """A model whose latents fill all dimensions, with the noise rows of every context.

    Attributes
    ----------
    hits, mechanisms, rows : as for `tangent`
    intercepts : (len(mechanisms),) or None
    F : (K+1, r, r) noise rows, ``ε = F_k x − nu_k``
    nu : (K+1, r)
    """

    hits: Sequence[Sequence[int]]
    mechanisms: Sequence[Mechanism]
    rows: Array
    intercepts: Array | None
    F: Array
    nu: Array

    @property
    def n_moments(self) -> int:
        """Of each context."""
        r = int(self.F.shape[1])
        return r * (r + 1) // 2 + (r if self.intercepts is not None else 0)


def noises(design: Design, optimum: Optimum, parents: Sequence[IntArray]) -> Noises:
    """The fitted noises; dimensions beyond the latents count as latents that depend on all others, untargeted."""
    d, r = optimum.H.shape
    mechanisms = design.mechanisms(parents)
    extra = _rest(design, optimum.H)
    H = np.vstack([optimum.H, extra])
    more = [Mechanism(i, 0, np.arange(i, dtype=np.intp), design.N, design.S_bar) for i in range(d, r)]
    rows = np.zeros((len(mechanisms) + r - d, r))
    rows[: len(mechanisms), :d] = optimum.rows
    rows[np.arange(len(mechanisms), len(rows)), np.arange(d, r)] = 1.0
    mechanisms = [*mechanisms, *more]
    used = mechanisms_of_contexts(design.hits, mechanisms, r)
    F = np.array([rows[u] @ H for u in used])
    if design.means is None:
        return Noises(design.hits, mechanisms, rows, None, F, np.zeros((len(F), r)))
    intercepts = np.empty(len(mechanisms))
    for q in range(len(mechanisms)):
        weight = np.array([n * (q in u) for n, u in zip(design.n, used, strict=True)])
        intercepts[q] = rows[q] @ H @ (weight @ design.means) / weight.sum()
    return Noises(design.hits, mechanisms, rows, intercepts, F, np.array([intercepts[u] for u in used]))


def _rest(design: Design, H: Array) -> Array:
    """Rows (r − d, r) of unit variance, uncorrelated with the latents and with each other over all contexts."""
    C = linalg.null_space(H @ design.S_bar).T if H.shape[0] < H.shape[1] else np.empty((0, H.shape[1]))
    if not len(C):
        return np.asarray(C)
    return np.asarray(np.linalg.solve(np.linalg.cholesky(C @ design.S_bar @ C.T), C))


def moment_errors(eps: Array, with_means: bool) -> Iterator[Array]:
    """Weighted products of noises (n, r), and the noises themselves: what the statistic measures, sample by sample.

    In blocks of rows, since there are many more products than noises.
    """
    i, j = np.triu_indices(eps.shape[1])
    weight = np.where(i == j, np.sqrt(0.5), 1.0)
    step = max(1, _CHUNK // len(i))
    for start in range(0, len(eps), step):
        part = eps[start : start + step]
        products = part[:, i] * part[:, j] * weight
        yield np.hstack([products, part]) if with_means else products


def matched_traces(n: Array, model: Noises, Gamma: Array) -> tuple[float, float]:
    """tr(QΓ) and tr((QΓ)²), the second without the bias of having estimated Γ.

    Parameters
    ----------
    n : (K+1,)
    Gamma : (K+1, size, size) covariance of `moment_errors` in every context
    """
    J = tangent(n, model.hits, model.mechanisms, model.rows, model.intercepts)
    U, s, _ = np.linalg.svd(J / np.linalg.norm(J, axis=0), full_matrices=False)
    U = U[:, s > 1e-9 * s[0]]
    Q = np.eye(len(U)) - U @ U.T
    size = Gamma.shape[1]
    blocks = [slice(k * size, (k + 1) * size) for k in range(len(Gamma))]
    QG = np.hstack([Q[:, b] @ G for b, G in zip(blocks, Gamma, strict=True)])
    by_context = np.array([np.trace(QG[b, b]) for b in blocks])
    squared = float(np.sum(QG * QG.T)) - float(np.sum(by_context**2 / n))
    t = float(by_context.sum())
    return t, max(squared, t**2 / max(len(U) - U.shape[1], 1))
