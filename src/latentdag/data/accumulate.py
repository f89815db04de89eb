"""The accumulator behind every door: counts, means and scatters of several contexts, block by block, in float64.

Rows of a block are grouped by context, and every group adds ``(x − pilot)(x − pilot)ᵀ`` to the scatter of its context.
The pilot is the mean of the first rows, and moves to the mean of all rows whenever their number has doubled, so means
may dwarf deviations, and drift, without costing digits. A feature that is constant has a scatter of exactly zero.

Two ways to add, chosen once for a whole source from its values, never from its container:

* dense: a symmetric rank-k update (``dsyrk``) in place, which does half of the work of a full product, on chunks that
  stay in the cache;
* sparse, where few values are not zero: products of column panels, lower triangle only. A feature's pilot is zero
  here unless its mean dwarfs its deviation; those few columns are centred and added as dense ones.

Triangular factors merged by QR would keep twice the digits, at 4 to 18 % of the rate of ``X.T @ X`` where this keeps 75
to 94 % (p = 100 to 2,000). The few data that need them, features collinear to more than 1e-4, are summed once more
along their principal axes (:mod:`latentdag.data.collinear`).
"""

import ctypes
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cython_blas

from latentdag.data.collinear import two_sum
from latentdag.data.matrices import as_dense, check_finite, is_sparse

#: Share of values that are not zero below which sparse products are faster than dense ones (benchmarks/moments.py).
SPARSE_BELOW = 0.07

#: Rows of one context go to float64 in chunks of this many values, which stay in the cache, and at least so many rows.
CHUNK_VALUES, CHUNK_ROWS = 2**17, 256

#: Share of a block's rows in one context above which BLAS's own threads do better than one thread per context.
LARGEST_SHARE = 0.6

#: Columns of a panel in sparse products: its sums stay in the fastest cache.
PANEL = 256

#: In sparse products, how many deviations a mean must be away from zero to be worth a pilot: squared, three digits.
FAR = 30.0

#: What is left in a scatter of a deviation whose square is too small to be a number: not zero, and far less than any
#: variance that moments may have.
VANISHED = 1e-300

#: A row that weighs less is counted as outlying.
OUTLYING = 0.5

#: Silences numpy around sums of values that may be too large: the message about them names the feature.
_QUIET = np.errstate(invalid="ignore", over="ignore")


class Sums(NamedTuple):
    """Sums over all rows of K contexts: what every pass over the data returns, and what moments are made of.

    Attributes
    ----------
    counts : (K,) rows, or the sum of their weights
    means : (K, 2, p)
        Each mean is the sum of two numbers; see :mod:`latentdag.data.collinear`.
    scatters : (K, p, p) about the means
    axes : (q, p)
        Axes of nearly collinear features; none, q = 0, where nothing is collinear.
    along : (K, q, q) scatters of ``axes @ x``
    outlying : (K,) rows that weigh less than half
    totals : (G, p)
        Where all rows were summed as one context, the sum of the rows of each context; else none, G = 0.
    sample : positions of contexts (m,) and rows (m, p), or None
        Some of the rows, to look whether a few of them carry much.
    """

    counts: np.ndarray
    means: np.ndarray
    scatters: np.ndarray
    axes: np.ndarray
    along: np.ndarray
    outlying: np.ndarray
    totals: np.ndarray
    sample: tuple[np.ndarray, np.ndarray] | None = None

    def of(self, k: int) -> "ContextSums":
        """Return the sums of the context at a position."""
        return self.counts[k], self.means[k], self.scatters[k], self.along[k], self.outlying[k], self.totals

    @classmethod
    def together(cls, parts: Sequence["ContextSums"], axes: np.ndarray) -> "Sums":
        """Return the sums of several contexts, in their order."""
        counts, means, scatters, along, outlying, totals = (np.array(part) for part in zip(*parts, strict=True))
        return cls(counts, means, scatters, axes, along, outlying, totals[0])


#: Sums of one context: count, mean (2, p), scatter, scatter along axes, outlying rows, totals.
ContextSums = tuple[float, np.ndarray, np.ndarray, np.ndarray, int, np.ndarray]

#: What all rows together are called, where they are summed as one context.
EVERY_ROW = ("all rows",)

#: Returns the weights (n,) of rows (n, p) of the context at a position; see :mod:`latentdag.data.robust`.
Weigh = Callable[[int, np.ndarray], np.ndarray]


class Accumulator:
    """Running counts, totals and scatters of K contexts.

    Parameters
    ----------
    contexts : K labels
        What the codes of rows mean, and for messages.
    feature_names : p names
    sparse_products : bool
        Which of the two ways to add.
    threads : int
        Contexts worked on at the same time.
    axes : (p, p), optional
        To add up scatters of ``axes @ x`` too, where features are nearly collinear; dense products only.
    weigh : Weigh, optional
        Every row counts as much as this says; dense products only.
    divided : int
        How many columns are counts divided by their depth; then the last covariate is 1 / depth.
    pooled : bool
        All rows are summed as one context, and of each context only the sum of its rows is kept; of counts, also the
        sum of rates per depth.
    """

    #: Attributes that a checkpoint keeps.
    STATE = ("counts", "settled", "pilots", "totals", "scatters", "axes", "along", "groups")

    def __init__(
        self,
        contexts: Sequence[Hashable],
        feature_names: Sequence[str],
        sparse_products: bool,
        threads: int = 1,
        axes: np.ndarray | None = None,
        weigh: Weigh | None = None,
        divided: int = 0,
        pooled: bool = False,
    ):
        # sums of each context's rows, and of rates per depth: they need no more room than the names
        self.groups = np.zeros((len(contexts) if pooled else 0, len(feature_names) + divided))
        self.contexts = contexts = EVERY_ROW if pooled else contexts
        self.feature_names, self.sparse_products = feature_names, sparse_products
        size, p = len(contexts), len(feature_names)
        self.weigh = weigh
        self.counts = np.zeros(size, dtype=np.int64 if weigh is None else np.float64)
        self.outlying = np.zeros(size, dtype=np.int64)
        self.settled = np.zeros(size, dtype=np.int64)  # rows behind each pilot
        self.pilots = np.zeros((size, p))
        self.totals = np.zeros((size, p))  # of deviations from the pilots
        self.scatters = np.zeros((size, p, p))  # about the pilots; lower triangles
        self.axes = np.zeros((0, p)) if axes is None else axes
        self.along = np.zeros((size, len(self.axes), len(self.axes)))  # the same along the axes
        self.threads = threads
        self.chunk = max(CHUNK_ROWS, CHUNK_VALUES // p)

    def add(self, block: Any, codes: np.ndarray, rows: np.ndarray, covariates: np.ndarray | None = None) -> None:
        """Add rows.

        Parameters
        ----------
        block : (n, p − c) ndarray or csr
        codes : (n,) position of each row's context
        rows : (n,) number of each row in its source, for messages
        covariates : (n, c), optional
            More columns, right of the block's.
        """
        if len(self.groups):
            self._add_totals(block, codes, covariates)
            codes = np.zeros_like(codes)
        one = partial(self._add_dense, block, rows, covariates)
        if self.sparse_products:
            block = sparse.csr_matrix(block, dtype=float)
            if covariates is not None:
                block = sparse.hstack([block, sparse.csr_matrix(covariates)], format="csr")
            one = partial(self._add_sparse, block, rows)
        self._share(one, sorted(by_context(codes), key=lambda job: -len(job[1])))

    @_QUIET
    def _add_totals(self, block: Any, codes: np.ndarray, covariates: np.ndarray | None) -> None:
        """Add up the rows of each context; of counts, the sums of rates per depth are right of them."""
        members = sparse.csr_matrix(
            (np.ones(len(codes)), (codes, np.arange(len(codes)))), (len(self.groups), len(codes))
        )
        parts = [members @ part for part in (block, covariates) if part is not None]
        if self.groups.shape[1] > len(self.feature_names) and covariates is not None:
            parts.append(members.multiply(covariates[:, -1]).tocsr() @ block)
        self.groups += sparse.hstack([sparse.csr_matrix(part) for part in parts], format="csr").toarray()

    def _share(self, one: Callable[[tuple[int, np.ndarray]], None], jobs: list[tuple[int, np.ndarray]]) -> None:
        """Run ``one`` on every job, one thread per context: BLAS's own threads wait for each other at every step."""
        rows = sum(len(group) for _, group in jobs)
        if self.threads == 1 or rows <= self.chunk or len(jobs[0][1]) > LARGEST_SHARE * rows:
            for job in jobs:
                one(job)
            return
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # slow to import, and seldom needed

        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(one, jobs))

    def _add_dense(
        self, block: Any, rows: np.ndarray, covariates: np.ndarray | None, job: tuple[int, np.ndarray]
    ) -> None:
        """Add the rows of one context, a chunk at a time; ``job`` is its position and the places of its rows."""
        p, (k, group) = block.shape[1], job
        room = np.empty((min(self.chunk, len(group)), len(self.feature_names)))
        for start in range(0, len(group), self.chunk):
            chosen = group[start : start + self.chunk]
            part, taken = room[: len(chosen)], block[chosen]
            part[:, :p] = as_dense(taken)
            if covariates is not None:
                part[:, p:] = covariates[chosen]
            if not self._add_chunk(k, part):
                check_finite(taken, rows[chosen], self.contexts[k], self.feature_names)

    @_QUIET
    def _add_chunk(self, k: int, part: np.ndarray) -> bool:
        """Add rows of one context, overwriting them; return False if a sum of them is not finite."""
        w = None if self.weigh is None else self.weigh(k, part)
        if self.counts[k] == 0:
            self.pilots[k] = _mean_within(part if w is None else part[w > 0])
        self._settle(k, len(part))
        part -= self.pilots[k]
        total = part.sum(axis=0) if w is None else w @ part
        self.counts[k] += len(part) if w is None else w.sum()
        if w is not None:
            self.outlying[k] += np.count_nonzero(w < OUTLYING)
            part *= np.sqrt(w)[:, None]
        self.totals[k] += total
        add_gram(part, self.scatters[k])
        mark_vanished(part, self.scatters[k])
        if len(self.axes):
            add_gram(part @ self.axes.T, self.along[k])
        return bool(np.isfinite(total).all())  # a sum is finite only if all its terms are

    def _add_outer(self, scale: float, x: np.ndarray, k: int) -> None:
        add_gram(x[None], self.scatters[k], scale)
        if len(self.axes):
            add_gram((self.axes @ x)[None], self.along[k], scale)

    def _settle(self, k: int, more: int) -> None:
        """Move the pilot to the mean of the rows so far, if they have doubled since it was placed."""
        n = self.counts[k]
        if n == 0:
            self.settled[k] = more
        if n < 2 * self.settled[k] or n == 0:
            return
        self.settled[k] = n
        pilot = self.pilots[k] + self.totals[k] / n
        if self.sparse_products:
            variance = np.diagonal(self.scatters[k]) / n - (self.totals[k] / n) ** 2
            pilot = np.where(np.abs(pilot) > FAR * np.sqrt(np.maximum(variance, 0.0)), pilot, 0.0)
        rest = self.totals[k] - n * (pilot - self.pilots[k])
        # Σ (x − b)(x − b)ᵀ = Σ (x − a)(x − a)ᵀ − t tᵀ/n + u uᵀ/n, with t and u the totals about a and b
        self._add_outer(-1.0 / n, self.totals[k], k)
        self._add_outer(1.0 / n, rest, k)
        self.pilots[k], self.totals[k] = pilot, rest

    @_QUIET
    def _add_sparse(self, block: Any, rows: np.ndarray, job: tuple[int, np.ndarray]) -> None:
        """Add the rows of one context of a csr matrix (n, p); ``job`` is as for the dense ones."""
        k, group = job
        part = block[group]
        part.sum_duplicates()
        total = np.asarray(part.sum(axis=0)).ravel()
        if not np.isfinite(total).all():
            check_finite(part, rows[group], self.contexts[k], self.feature_names)
        if self.counts[k] == 0:
            full = np.flatnonzero(part.getnnz(axis=0) == len(group))
            self.pilots[k, full] = _mean_within(part[:, full].toarray())
        self._settle(k, len(group))
        self.counts[k] += len(group)
        self.totals[k] += self._add_centred(part, total, k)

    def _add_centred(self, part: Any, total: np.ndarray, k: int) -> np.ndarray:
        """Add sparse rows about the pilot, which is zero for most features; return their total about it (p,)."""
        into, pilot = self.scatters[k], self.pilots[k]
        far = np.flatnonzero(pilot)
        if not len(far):
            add_sparse_scatter(part, into)
            mark_vanished(part, into)
            return total
        dense = part[:, far].toarray() - pilot[far]
        part.data[(pilot != 0)[part.indices]] = 0.0
        part.eliminate_zeros()
        add_sparse_scatter(part, into)
        cross = part.T @ dense
        into[:, far] += cross
        into[far] += cross.T
        into[np.ix_(far, far)] += dense.T @ dense
        mark_vanished(part, into)
        total[far] = dense.sum(axis=0)
        return total

    @_QUIET
    def finish(self) -> Sums:
        """Return the sums, scatters about the means. They are centred in place: the accumulator is used up."""
        means = np.empty((len(self.counts), 2, len(self.feature_names)))
        for k, total in enumerate(self.totals):
            n = self.counts[k] or 1
            means[k] = two_sum(self.pilots[k], total / n)
            self._add_outer(-1.0 / n, total, k)
            mirror_lower(self.scatters[k])
            mirror_lower(self.along[k])
        return Sums(self.counts, means, self.scatters, self.axes, self.along, self.outlying, self.groups)


def _mean_within(part: np.ndarray) -> np.ndarray:
    """Return the mean of rows (p,), clipped to their range, so that the mean of equal values is exactly that value."""
    pilot = np.clip(part.mean(axis=0), part.min(axis=0), part.max(axis=0)) if len(part) else np.zeros(part.shape[1])
    return np.where(np.isfinite(pilot), pilot, 0.0)


def _routine(name: str, n_arguments: int) -> Any:
    """Return a routine of SciPy's BLAS. All its arguments are addresses, as Fortran wants them.

    ``scipy.linalg.blas`` has it too, but holds Python's lock while it works, so that no other thread could read the
    next block meanwhile. SciPy publishes the addresses of its BLAS for compiled code (``scipy.linalg.cython_blas``),
    and ctypes lets go of the lock during a call.
    """
    capsule = vars(cython_blas)["__pyx_capi__"][name]
    signature = ctypes.pythonapi.PyCapsule_GetName
    signature.restype, signature.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return made(address(capsule, signature(capsule)))


_syrk = _routine("dsyrk", 10)


def add_gram(X: np.ndarray, into: np.ndarray, scale: float = 1.0) -> None:
    """Add ``scale · Xᵀ X`` of rows X (n, p) to the lower triangle of a matrix (p, p); both C-ordered float64."""
    for array in (X, into):
        if array.dtype != np.float64 or not array.flags.c_contiguous:
            raise ValueError(f"BLAS needs C-ordered float64 arrays, got {array.dtype} with strides {array.strides}")
    if into.shape != (X.shape[1], X.shape[1]) or not into.flags.writeable:
        raise ValueError(f"cannot add to an array of shape {into.shape}")
    # To Fortran a C-ordered matrix is its own transpose: X is (p, n), and the lower triangle is the upper.
    upper, plain = ctypes.c_char(b"U"), ctypes.c_char(b"N")
    n, p = (ctypes.c_int(size) for size in X.shape)
    alpha, beta = ctypes.c_double(scale), ctypes.c_double(1.0)
    arguments: list[Any] = [upper, plain, p, n, alpha, X, p, beta, into, p]
    _syrk(*[a.ctypes.data if isinstance(a, np.ndarray) else ctypes.addressof(a) for a in arguments])


def mark_vanished(part: Any, S: np.ndarray) -> None:
    """Leave a trace in a scatter (p, p) of deviations (n, p) whose squares are too small to be numbers."""
    small = np.flatnonzero(np.diagonal(S) < VANISHED)
    if len(small):
        S[small, small] += VANISHED * np.asarray(part[:, small].astype(bool).sum(axis=0) > 0).ravel()


def mirror_lower(S: np.ndarray) -> None:
    """Make a matrix (p, p) symmetric in place, from its lower triangle."""
    for start in range(0, len(S), PANEL):  # in panels, or the columns would be fetched from far
        stop = start + PANEL
        corner = np.tril(S[start:stop, start:stop])
        S[start:stop, start:stop] = corner + np.tril(corner, -1).T
        S[start:stop, stop:] = S[stop:, start:stop].T


def by_context(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each code that occurs and its rows, in order."""
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    yield from zip(present.tolist(), np.split(order, starts[1:]), strict=True)


def add_sparse_scatter(part: Any, into: np.ndarray) -> None:
    """Add ``partᵀ part`` of a csr matrix (n, p) to the lower triangle of a dense matrix (p, p)."""
    columns = part.T.tocsr()
    p = columns.shape[0]
    panels = [(start, min(start + PANEL, p)) for start in range(0, p, PANEL)]
    for start, stop in panels:
        right = columns[start:stop].T.tocsr()
        # Panels at and below the diagonal: a little more than half of all products.
        into[start:, start:stop] += (columns[start:] @ right).toarray()


def density(block: Any) -> float:
    """Return the share of values that are not zero."""
    nonzero = block.count_nonzero() if is_sparse(block) else np.count_nonzero(block)
    return float(nonzero / max(block.shape[0] * block.shape[1], 1))


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- merging ----------------------------------------------------------------------------------------------------


@_QUIET
def merged_sums(parts: Sequence[ContextSums], axes: np.ndarray) -> ContextSums:
    """Return the sums of several sets of rows together (Chan's update of mean and scatter).

    Parameters
    ----------
    parts : sums of one context
    axes : (q, p)
    """
    n, mean, scatter, along, outlying, totals = parts[0]
    for m, other, more, further, beyond, others in parts[1:]:
        gap = (other - mean).sum(axis=0)  # exactly zero for a feature that is constant
        weight = n * m / (n + m)
        scatter = scatter + more + _outer(gap, weight)
        along = along + further + _outer(axes @ gap, weight)
        mean = two_sum(mean[0], mean[1] + gap * (m / (n + m)))
        n, outlying, totals = n + m, outlying + beyond, totals + others
    return n, mean, scatter, along, outlying, totals


def _outer(x: np.ndarray, weight: float) -> np.ndarray:
    """Return ``weight · x xᵀ`` (p, p); squares that vanish leave a trace."""
    outer = weight * np.outer(x, x)
    np.einsum("ii->i", outer)[:] += VANISHED * (x != 0)
    return outer
