"""Counts, means and scatters of several contexts, block by block, in float64.

Rows of a block are grouped by context, and every group adds ``(x − pilot)(x − pilot)ᵀ`` to the scatter of its context,
where the pilot is the mean of the first rows seen of that context: means may dwarf the deviations without costing
digits. Two ways to add, chosen once for a whole source from its values, never from its container, so that the same
data give the same bits from every file format:

* dense: a symmetric rank-k update (``dsyrk``) in place, which does half of the work of a full product;
* sparse, where few values are not zero: products of column panels, upper triangle only, about zero.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from latentdag.rows import check_finite, is_sparse
from latentdag.stream.blas import add_gram, add_outer

#: Share of values that are not zero below which sparse products are faster than dense ones (benchmarks/moments.py).
SPARSE_BELOW = 0.07

#: Rows of one context go to float64 in chunks of this many bytes.
CHUNK_BYTES = 64 * 2**20

#: Share of a block's rows in one context above which BLAS's own threads do better than one thread per context.
LARGEST_SHARE = 0.6

#: Columns of a panel in sparse products: its sums stay in the fastest cache.
PANEL = 256


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
    """

    def __init__(
        self, contexts: Sequence[Hashable], feature_names: Sequence[str], sparse_products: bool, threads: int = 1
    ):
        self.contexts, self.feature_names, self.sparse_products = contexts, feature_names, sparse_products
        size, p = len(contexts), len(feature_names)
        self.counts = np.zeros(size, dtype=np.int64)
        self.pilots = np.zeros((size, p))
        self.totals = np.zeros((size, p))  # of deviations from the pilots
        self.scatters = np.zeros((size, p, p))  # about the pilots; lower triangles
        self.threads, self._local, self._blas = threads, threading.local(), ThreadpoolController()
        self.chunk = max(1, CHUNK_BYTES // (8 * p))

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
        if self.sparse_products:
            self._add_sparse(block, codes, rows, covariates)
        else:
            self._add_dense(block, codes, rows, covariates)

    def _add_dense(self, block: Any, codes: np.ndarray, rows: np.ndarray, covariates: np.ndarray | None) -> None:
        p = block.shape[1]

        def one(job: tuple[int, np.ndarray]) -> None:
            k, group = job
            for start in range(0, len(group), self.chunk):
                chosen = group[start : start + self.chunk]
                part = self._buffer(len(chosen))
                taken = block[chosen]
                part[:, :p] = taken.toarray() if is_sparse(taken) else taken
                if covariates is not None:
                    part[:, p:] = covariates[chosen]
                self._add_chunk(k, part, rows[chosen])

        self._share(one, list(by_context(codes)))

    def _share(self, one: Callable[[tuple[int, np.ndarray]], None], jobs: list[tuple[int, np.ndarray]]) -> None:
        """Contexts share nothing, so threads take one each; BLAS's own threads wait for each other at every step."""
        jobs.sort(key=lambda job: -len(job[1]))
        if self.threads == 1 or len(jobs[0][1]) > LARGEST_SHARE * sum(len(group) for _, group in jobs):
            for job in jobs:
                one(job)
            return
        with self._blas.limit(limits=1, user_api="blas"), ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(one, jobs))

    def _buffer(self, n: int) -> np.ndarray:
        """Room for n rows in float64, the same for every call of a thread."""
        if not hasattr(self._local, "buffer") or len(self._local.buffer) < n:
            self._local.buffer = np.empty((n, len(self.feature_names)))
        return self._local.buffer[:n]

    def _add_chunk(self, k: int, part: np.ndarray, rows: np.ndarray) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite are reported below
            if self.counts[k] == 0:
                pilot = part.mean(axis=0)
                self.pilots[k] = np.where(np.isfinite(pilot), pilot, 0.0)
            part -= self.pilots[k]
            total = part.sum(axis=0)
        if not np.isfinite(total).all():  # a sum is finite only if all its terms are
            check_finite(part + self.pilots[k], rows, self.contexts[k], self.feature_names)
        self.counts[k] += len(part)
        self.totals[k] += total
        add_gram(part, self.scatters[k])

    def _add_sparse(self, block: Any, codes: np.ndarray, rows: np.ndarray, covariates: np.ndarray | None) -> None:
        block = sparse.csr_matrix(block, dtype=float)
        if covariates is not None:
            block = sparse.hstack([block, sparse.csr_matrix(covariates)], format="csr")

        def one(job: tuple[int, np.ndarray]) -> None:
            k, group = job
            part = block[group]
            total = np.asarray(part.sum(axis=0)).ravel()
            if not np.isfinite(total).all():
                check_finite(part, rows[group], self.contexts[k], self.feature_names)
            self.counts[k] += len(group)
            self.totals[k] += total
            add_sparse_scatter(part, self.scatters[k])

        self._share(one, list(by_context(codes)))

    def centred(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (K, p) and scatters about them (K, p, p), in place: the accumulator is used up, nothing is copied."""
        means = np.empty_like(self.totals)
        for k, S in enumerate(self.scatters):
            n = max(int(self.counts[k]), 1)
            shift = self.totals[k] / n
            means[k] = self.pilots[k] + shift
            add_outer(-float(n), shift, S)
            mirror_lower(S)
            self._check_size(k, np.diagonal(S))
        return means, self.scatters

    def _check_size(self, k: int, squares: np.ndarray) -> None:
        if not np.isfinite(squares).all():
            feature = self.feature_names[int(np.argmax(~np.isfinite(squares)))]
            raise ValueError(
                f"context {self.contexts[k]!r}: the values of feature {feature!r} are too large to be squared: give it "
                "other units"
            )

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (K, p) and covariances (K, p, p) with divisor n − 1, also in place."""
        means, scatters = self.centred()
        for S, n in zip(scatters, self.counts, strict=True):
            S /= max(int(n) - 1, 1)
        return means, scatters


def mirror_lower(S: np.ndarray) -> None:
    """Make a matrix (p, p) symmetric in place, from its lower triangle."""
    for start in range(0, len(S), PANEL):  # in panels, or the columns would be fetched from far
        stop = start + PANEL
        corner = np.tril(S[start:stop, start:stop])
        S[start:stop, start:stop] = corner + np.tril(corner, -1).T
        S[start:stop, stop:] = S[stop:, start:stop].T


def by_context(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each code that occurs, and its rows in their order."""
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
    """Share of values that are not zero."""
    nonzero = block.count_nonzero() if is_sparse(block) else np.count_nonzero(block)
    return float(nonzero / max(block.shape[0] * block.shape[1], 1))


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
