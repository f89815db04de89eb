"""Moments drawn again: what the data might have been.

There are two ways, and neither touches the samples more than once:

* from a law: means are normal and covariances Wishart around given ones, through Bartlett's triangular factor;
* from blocks: the rows of each context are dealt into blocks once, and a replicate adds up blocks drawn with
  replacement. Sums are exact, so all blocks taken once give back the moments of the data.

A draw depends on the seed, the number of the replicate and the *label* of the context, and works on features in the
order of their names. Adding a context, or listing contexts or features in another order, changes no draw.
"""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentdag.core.linalg import range_basis, symmetrize, triangular_of_product, upper_factor
from latentdag.data import labels as lb
from latentdag.data.checks import whole_number
from latentdag.data.moments import Moments
from latentdag.data.sources.reader import digest
from latentdag.data.stream import deviations
from latentdag.errors import clear_numerics
from latentdag.model.model import LatentModel
from latentdag.model.simulate import draw_moments

#: Blocks that need more memory than this are refused before any work is done.
MAX_BYTES = 8 * 2**30

#: Moments summed over blocks must agree with those given to this many deviations.
_SAME = 1e-5

#: The same for robust moments, whose weights are those of other passes.
_SAME_WEIGHED = 0.05


def context_rng(seed: int, replicate: int, context: Hashable) -> np.random.Generator:
    """Return the random numbers of one context in one replicate, whatever the other contexts and their order."""
    word = hashlib.sha256(repr(context).encode()).digest()[:16]
    return np.random.default_rng([seed, replicate, *np.frombuffer(word, dtype="<u4").tolist()])


def canonical_factor(S: np.ndarray) -> np.ndarray:
    """Return the lower trapezoidal L (p, r) with positive diagonal and ``S = L Lᵀ``, for a covariance (p, p) of rank r.

    A Cholesky factor that also exists where there is none: S is factored inside its range, and a rotation makes the
    factor triangular, so that it does not depend on the basis of the range.
    """
    U = range_basis(S)
    if not U.shape[1]:
        return U
    F = upper_factor(symmetrize(U.T @ S @ U), context=0)
    return triangular_of_product(F @ U.T).T


@dataclass(frozen=True)
class Gaussian:
    """Draws of the moments of Gaussian samples, as many as there were.

    Attributes
    ----------
    around : Moments
        Their means and covariances are those of the Gaussian laws.
    factors : per context (p, r)
        Factors of the covariances, features in the order of their names.
    by_name : (p,) int
        The order of the names.
    """

    around: Moments
    factors: tuple[np.ndarray, ...]
    by_name: np.ndarray

    @classmethod
    def of(cls, m: Moments, model: LatentModel | None = None) -> "Gaussian":
        """Draw around the moments themselves (the saturated model), or around a model's laws in the same contexts."""
        if model is not None:
            laws = [model.seen_by(m).law(context) for context in m.contexts]
            means, covariances = np.array([law.mean for law in laws]), np.array([law.covariance for law in laws])
            m = replace(m, means=means, covariances=covariances)
        by_name = np.argsort(np.array(m.feature_names), kind="stable")
        return cls(m, tuple(canonical_factor(S[np.ix_(by_name, by_name)]) for S in m.covariances), by_name)

    def draw(self, seed: int, replicate: int) -> Moments:
        """Return the moments of one replicate."""
        m, order = self.around, self.by_name
        means, covariances = np.empty_like(m.means), np.empty_like(m.covariances)
        for k, context in enumerate(m.contexts):
            rng = context_rng(seed, replicate, context)
            mean, S = draw_moments(m.means[k][order], self.factors[k], int(m.counts[k]), rng)
            means[k, order] = mean
            covariances[k][np.ix_(order, order)] = S
        return replace(m, means=means, covariances=covariances)

    def digest(self) -> str:
        """Return a hash of everything that a draw depends on, except the seed."""
        m = self.around
        return digest("gaussian", *_names(m), m.counts, m.means, m.covariances)


@dataclass(frozen=True)
class Blocks:
    """Sums over disjoint blocks of the rows of each context, about the mean of the context.

    Attributes
    ----------
    of : Moments
        The moments of all rows together.
    counts : per context (B_k,)
        Rows in each block.
    sums : per context (B_k, p)
        Sums of deviations from the context's mean.
    scatters : per context (B_k, p (p + 1) / 2)
        Sums of products of deviations, upper triangles.
    """

    of: Moments
    counts: tuple[np.ndarray, ...]
    sums: tuple[np.ndarray, ...]
    scatters: tuple[np.ndarray, ...]

    def draw(self, seed: int, replicate: int) -> Moments:
        """Return the moments of one replicate: as many blocks of each context as there are, with replacement."""
        times = []
        for context, counts in zip(self.of.contexts, self.counts, strict=True):
            chosen = context_rng(seed, replicate, context).integers(len(counts), size=len(counts))
            times.append(np.bincount(chosen, minlength=len(counts)))
        return self.combined(times)

    def combined(self, times: list[np.ndarray]) -> Moments:
        """Return exact moments of the rows in which every block of context k occurs ``times[k]`` (B_k,) times."""
        m = self.of
        upper = np.triu_indices(m.n_features)
        counts, means, covariances = np.empty_like(m.counts), np.empty_like(m.means), np.empty_like(m.covariances)
        for k, weight in enumerate(times):
            counts[k] = n = int(weight @ self.counts[k])
            shift = weight @ self.sums[k] / n
            scatter = np.empty_like(covariances[k])
            scatter[upper] = scatter[upper[::-1]] = weight.astype(float) @ self.scatters[k]
            means[k] = m.means[k] + shift
            covariances[k] = (scatter - n * np.outer(shift, shift)) / max(n - 1, 1)
        return replace(m, counts=counts, means=means, covariances=covariances)

    def digest(self) -> str:
        """Return a hash of everything that a draw depends on, except the seed."""
        return digest("blocks", *_names(self.of), self.of.counts, *self.counts, *self.sums, *self.scatters)


def _names(m: Moments) -> tuple[Any, ...]:
    return [lb.as_label(c) for c in m.contexts], m.control, m.feature_names


@clear_numerics
def block_moments(data: Any, m: Moments, n_blocks: int = 50) -> Blocks:
    """Deal the rows of each context into blocks, in one pass over the samples.

    The i-th row of a context goes to block i mod ``n_blocks``, so the answer depends on the order of the rows within
    their context and on nothing else. A context with fewer rows than blocks has one block per row. The blocks need
    ``(K + 1) · n_blocks · p (p + 1) / 2`` numbers of 8 bytes.

    Parameters
    ----------
    data : (X, contexts), or a list of such pairs
        The samples (n, p) that ``m`` came from, features in the same order, and the context of each row.
    m : Moments
        Of K + 1 contexts and p features.
    n_blocks : int
        Standard errors from B blocks have about the precision of B − 1 degrees of freedom.

    Returns
    -------
    Blocks
        For ``latentdag.bootstrap(m, kind="samples", data=blocks)``.

    Examples
    --------
    >>> import numpy as np
    >>> X, contexts = np.random.default_rng(0).normal(size=(300, 2)), ["WT"] * 200 + ["A"] * 100
    >>> m = Moments.from_samples(X, contexts, control="WT")
    >>> blocks = block_moments((X, contexts), m, n_blocks=10)
    >>> once = blocks.combined([np.ones(10, dtype=int)] * 2)
    >>> bool(np.allclose(once.covariances, m.covariances))
    True
    """
    n_blocks = whole_number("n_blocks", n_blocks, 2)
    p = m.n_features
    _check_memory(len(m.contexts), n_blocks, p)
    sizes = [min(n_blocks, int(n)) for n in m.counts]
    counts = tuple(np.zeros(size, dtype=np.int64) for size in sizes)
    sums = tuple(np.zeros((size, p)) for size in sizes)
    scatters = tuple(np.zeros((size, p * (p + 1) // 2)) for size in sizes)
    upper = np.triu_indices(p)
    for k, rows in deviations(data, m):
        seen = counts[k].sum()
        for offset in range(min(sizes[k], len(rows))):
            b = int((seen + offset) % sizes[k])
            part = rows[offset :: sizes[k]]
            counts[k][b] += len(part)
            sums[k][b] += part.sum(axis=0)
            scatters[k][b] += (part.T @ part)[upper]
    blocks = Blocks(m, counts, sums, scatters)
    _check_same_data(blocks)
    return blocks


def _check_memory(n_contexts: int, n_blocks: int, p: int) -> None:
    """Refuse blocks that would not fit in memory."""
    need = 8 * n_contexts * n_blocks * (p * (p + 1) // 2)
    if need > MAX_BYTES:
        fits = int(n_blocks * MAX_BYTES / need)
        raise ValueError(
            f"{n_blocks} blocks of {n_contexts} contexts and {p} features need {need / 2**30:.1f} GB, more than "
            f"{MAX_BYTES / 2**30:.0f} GB: "
            + (f"use at most {fits} blocks, " if fits >= 2 else "")
            + "use fewer features, or kind='parametric', which needs none"
        )


def _check_same_data(blocks: Blocks) -> None:
    """Check that sums over all blocks are the moments that were given."""
    m = blocks.of
    again = blocks.combined([np.ones(len(counts), dtype=np.int64) for counts in blocks.counts])
    sd = np.sqrt(np.diagonal(m.covariances + again.covariances, axis1=1, axis2=2))
    sd = np.where(sd > 0, sd, 1.0)
    apart = np.abs(again.covariances - m.covariances) / (sd[:, :, None] * sd[:, None, :])
    gap = np.maximum(np.abs(again.means - m.means) / sd, apart.max(axis=1))
    k, j = np.unravel_index(np.argmax(gap), gap.shape)
    if gap[k, j] > (_SAME if m.outliers is None else _SAME_WEIGHED):
        raise ValueError(
            f"context {m.contexts[k]!r}: feature {m.feature_names[j]!r} has other moments in the data than in the "
            "moments given: pass the data they came from, its features in the same order"
        )
