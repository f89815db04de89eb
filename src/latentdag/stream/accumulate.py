"""Counts, means and scatters of several contexts, block by block, in float64.

Rows of a block are grouped by context, and every group adds ``(x − pilot)(x − pilot)ᵀ`` to the scatter of its context,
where the pilot is the mean of the first rows seen of that context: means may dwarf the deviations without costing
digits. Two ways to add, chosen once for a whole source from its values, never from its container, so that the same
data give the same bits from every file format:

* dense: a symmetric rank-k update (``dsyrk``) in place, which does half of the work of a full product;
* sparse, where few values are not zero: products of column panels, upper triangle only, about zero.
"""

import os
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk

from latentdag.moments import check_finite, is_sparse

#: Share of values that are not zero below which sparse products are faster than dense ones (benchmarks/moments.py).
SPARSE_BELOW = 0.07

#: Rows of one context go to float64 in chunks of this many bytes.
CHUNK_BYTES = 128 * 2**20

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
    """

    def __init__(self, contexts: Sequence[Hashable], feature_names: Sequence[str], sparse_products: bool):
        self.contexts, self.feature_names, self.sparse_products = contexts, feature_names, sparse_products
        size, p = len(contexts), len(feature_names)
        self.counts = np.zeros(size, dtype=np.int64)
        self.pilots = np.zeros((size, p))
        self.totals = np.zeros((size, p))  # of deviations from the pilots
        self.scatters = np.zeros((size, p, p))  # about the pilots; lower triangles
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
        longest = int(min(self.chunk, np.bincount(codes).max(initial=0)))
        buffer = np.empty((longest, len(self.feature_names)))
        for k, group in by_context(codes):
            for start in range(0, len(group), self.chunk):
                chosen = group[start : start + self.chunk]
                part = buffer[: len(chosen)]
                taken = block[chosen]
                part[:, :p] = taken.toarray() if is_sparse(taken) else taken
                if covariates is not None:
                    part[:, p:] = covariates[chosen]
                self._add_chunk(k, part, rows[chosen])

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
        # The transpose of a C-ordered matrix is what Fortran wants, so nothing is copied.
        dsyrk(1.0, part.T, beta=1.0, c=self.scatters[k].T, overwrite_c=1)

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

        # Sparse products let other threads run, and contexts share nothing.
        with ThreadPoolExecutor(_cores()) as pool:
            list(pool.map(one, by_context(codes)))

    def centred(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (K, p) and scatters about them (K, p, p), in place: the accumulator is used up, nothing is copied."""
        means = np.empty_like(self.totals)
        for k, S in enumerate(self.scatters):
            n = max(int(self.counts[k]), 1)
            shift = self.totals[k] / n
            means[k] = self.pilots[k] + shift
            with np.errstate(invalid="ignore", over="ignore"):  # reported below
                S -= n * np.outer(shift, shift)
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
    lower = np.tril(S)
    np.add(lower, np.tril(lower, -1).T, out=S)


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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
