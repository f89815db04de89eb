"""The plan of a pass over the rows of a source: what is decided before the first block is summed.

A source knows the labels of all its rows before any features are read. From the labels follow the contexts and how many
rows each has; from a first look at a few rows follows which products are faster and whether features are nearly
collinear. Then it is known how much memory the covariances need, and whether there is as much.
"""

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.accumulate import SPARSE_BELOW, Accumulator, by_context, density
from latentdag.data.collinear import fine_axes
from latentdag.data.matrices import as_dense, warn_of_counts
from latentdag.data.sources.opening import covariates
from latentdag.data.sources.reader import Reader, digest, naming_source

if TYPE_CHECKING:  # weights come from a first pass
    from latentdag.data.robust import Weighing

#: Rows that a block should hold of every context: products of fewer rows are slow.
ROWS_PER_CONTEXT = 2048

#: Values in a block, at least and at most; and, where products are sparse, values that are not zero.
FEW_VALUES, BLOCK_VALUES = 2**24, 2**27
SPARSE_VALUES = 2**25

#: Rows of a block at most, and rows of the first look.
MAX_ROWS = 2**18
LOOK = 2048

#: Values of the rows that are looked at for outliers, at most.
SAMPLE_VALUES = 2**23

#: Matrices p × p at once where all rows are summed as one context: sums, correlations, and what eigenvectors take.
POOLED_MATRICES = 4

#: Share of the free memory that moments may take unless the user sets ``memory_limit``.
SHARE = 0.8


@dataclass(frozen=True)
class Plan:
    """How the rows of one source are to be summed.

    Attributes
    ----------
    contexts : K labels, the control first
    control : label or None
    codes : (n,) position of each row's context
    names : names of the features, then of the covariates
    C : (n, c) covariates, or None
    sparse_products : bool
    axes : (q, p + c) axes of nearly collinear features; q = 0 if there are none
    block_rows : rows of a block
    counted : whether the values look like raw counts
    weigh : weights of the rows, or None where all weigh the same
    divided : how many columns are counts divided by their depth; the last covariate is then 1 / depth
    pooled : whether all rows are summed as one context, with the sum of the rows of each context beside
    dimensions : where the features are shared dimensions, what these depend on besides the source; else ""
    """

    contexts: tuple[Hashable, ...]
    control: Hashable | None
    codes: np.ndarray
    names: tuple[str, ...]
    C: np.ndarray | None
    sparse_products: bool
    axes: np.ndarray
    block_rows: int
    counted: bool = False
    weigh: "Weighing | None" = None
    divided: int = 0
    pooled: bool = False
    dimensions: str = ""

    def size(self) -> tuple[int, int, int]:
        """Return how many contexts are summed, in how many columns, and how many matrices each needs at once."""
        if self.pooled:
            return 1, len(self.names), POOLED_MATRICES
        copies = 1 + bool(len(self.axes)) + (self.C is not None)
        return len(self.contexts), len(self.names), copies + 2 * (self.weigh is not None)  # what distances are by

    def accumulator(self, members: np.ndarray, threads: int = 1) -> Callable[[], Accumulator]:
        """Return what makes an empty accumulator for some of the contexts (by position)."""
        contexts, weigh = [self.contexts[k] for k in members], self.weigh and self.weigh.of(members)
        way = self.axes, weigh, self.divided, self.pooled
        return partial(Accumulator, contexts, self.names, self.sparse_products, threads, *way)

    def per(self, inverse: np.ndarray) -> "Plan":
        """Return the plan for counts that are divided by depths whose inverses (n,) these are."""
        C = inverse[:, None] if self.C is None else np.column_stack([self.C, inverse])
        names = (*self.names, "1 / depth")
        return replace(self, names=names, C=C, axes=np.zeros((0, len(names))), divided=len(names) - C.shape[1])

    def sample(self) -> np.ndarray | None:
        """Return which rows (n,) to look at for outliers, evenly spaced in each context, or None for none.

        Few values that are not zero are always far from the others, so counts and sparse data are not looked at. Nor
        are data with covariates, which may explain them.
        """
        if self.counted or self.sparse_products or self.pooled or self.weigh is not None or self.C is not None:
            return None
        most = max(1, min(LOOK, SAMPLE_VALUES // (len(self.contexts) * len(self.names))))
        chosen = np.zeros(len(self.codes), dtype=bool)
        for _, group in by_context(self.codes):
            chosen[group[:: -(-len(group) // most)]] = True
        return chosen

    def covariates(self, rows: Any) -> np.ndarray | None:
        """Return the covariates of some rows (n, c), or None if there are none."""
        return None if self.C is None else self.C[rows]

    def block_bytes(self) -> int:
        """Return the bytes of three blocks: one at work, the next being read, and its rows becoming float64.

        And of the sums of each context's rows, where those are kept.
        """
        totals = 2 * 8 * len(self.contexts) * len(self.names) if self.pooled else 0
        if self.sparse_products:
            return 12 * SPARSE_VALUES * 3 + totals
        return 3 * 8 * min(self.block_rows, len(self.codes)) * len(self.names) + totals

    def options(self) -> dict[str, str]:
        """Return everything that the sums depend on besides the source, as text by name."""
        return {
            "contexts": digest(self.contexts, self.codes),
            "features": digest(self.names),
            "covariates": "none" if self.C is None else digest(self.C),
            "rows per block": str(self.block_rows),
            "products": "sparse" if self.sparse_products else "dense",
            **({"shared dimensions": self.dimensions} if self.dimensions else {}),
            **({"sums": "of all contexts together"} if self.pooled else {}),
        }


def prepare(
    reader: Reader,
    control: Any,
    adjust: Any,
    block_rows: int | None,
    *,
    dense: bool,
    counts: bool,
    pooled: bool = False,
) -> Plan:
    """Plan the sums over a source, from its labels and its first rows; with dense products if that is asked for.

    Counts are not warned of if they are said to be that. If ``pooled``, all rows are to be summed as one context.

    Raises
    ------
    ValueError
        If the source is empty, its names or labels are not right, or the control is not among them.
    """
    n = reader.n_rows
    if n == 0 or not reader.feature_names:
        raise ValueError(f"{reader.name} is empty: {n} rows, {len(reader.feature_names)} features")
    with naming_source(reader.name):
        names = lb.named_features(reader.feature_names, len(reader.feature_names))
        codes, present = lb.factorize(reader.labels, n)
        control = lb.check_control(control, present, np.bincount(codes))
    order = sorted(range(len(present)), key=lambda k: (control is not None and present[k] != control, k))
    C, more = covariates(reader, adjust)
    first = next(reader.blocks(min(LOOK, n)))
    counted = counts or warn_of_counts(first, reader.name)
    share = density(first)
    sparse_products = share < SPARSE_BELOW and not dense
    axes = None if sparse_products or pooled else fine_axes(as_dense(first), codes[: first.shape[0]], len(more))
    if block_rows is None:
        block_rows = _rows_per_block(1 if pooled else len(present), len(names), share if sparse_products else None)
    if block_rows < 1:
        raise ValueError(f"block_rows must be a positive whole number, got {block_rows}")
    return Plan(
        contexts=tuple(present[k] for k in order),
        control=control,
        codes=np.argsort(order)[codes],
        names=(*names, *more),
        C=C,
        sparse_products=sparse_products,
        axes=np.zeros((0, len(names) + len(more))) if axes is None else axes,
        block_rows=block_rows,
        counted=counted,
        pooled=pooled,
    )


def _rows_per_block(n_contexts: int, p: int, share: float | None) -> int:
    """Return enough rows for all contexts, as far as memory allows; the same on every machine, or bits would differ."""
    if share is not None:
        return int(np.clip(SPARSE_VALUES / max(share * p, 1.0), 1, MAX_ROWS))
    wanted = np.clip(ROWS_PER_CONTEXT * n_contexts, FEW_VALUES / p, BLOCK_VALUES / p)
    return int(np.clip(wanted, 1, MAX_ROWS))


# memory


def require_memory(
    where: str, n_contexts: int, n_features: int, matrices: int, extra: int, limit: float | None, dimensions: str = ""
) -> str:
    """Check that all covariances fit in memory; return a sentence that says how much they need.

    Parameters
    ----------
    where : str
        The source, for messages.
    n_contexts, n_features : int
    matrices : int
        How many p × p matrices every context needs at the same time.
    extra : int
        Bytes for blocks of rows.
    limit : bytes, or None for 80 % of what is free now
    dimensions : not empty if the features are shared dimensions

    Raises
    ------
    ValueError
        Saying what would fit.
    """
    need = 8 * n_contexts * n_features**2 * matrices
    text = (
        f"{where}: {n_contexts} contexts × {n_features:,}² {'dimensions' if dimensions else 'features'} × 8 bytes"
        f"{f' × {matrices} copies' if matrices > 1 else ''} = {_size(need)} for covariances, "
        f"{_size(extra)} for blocks of rows"
    )
    free = available()
    if limit is None and free is None:
        return text
    allowed = limit if limit is not None else SHARE * float(free or 0)
    if need + extra <= allowed:
        return text
    fitting = int((max(allowed - extra, 0) / (8 * n_contexts * matrices)) ** 0.5)
    source = "memory_limit allows" if limit is not None else f"{SHARE:.0%} of the free memory is"
    fewer = f"Take fewer features (features=…, the most variable ones, say; about {fitting:,} fit)"
    if dimensions:
        fewer = f"Take a lower rank (about {fitting:,} fits)"
    elif n_contexts > 1:
        fewer += ", or dimensions that all contexts share (latentdag.stream.moments(…, rank=…))"
    raise ValueError(
        f"{text}, but {source} {_size(allowed)}. {fewer}, leave out contexts, merge those that belong together, or set "
        "memory_limit= (bytes) if you know better"
    )


def available() -> int | None:
    """Return the bytes that this process may still take, or None if the system does not tell."""
    found = []
    with suppress(OSError, StopIteration, ValueError):  # what Linux calls available
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):  # what is left to this process's container; "max" is no number
        group = Path("/sys/fs/cgroup")
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used -= int(counts.get("inactive_file", 0))  # cached files make room when asked
        found.append(max(limit - used, 0))
    return min(found, default=None)


def _size(size: float) -> str:
    """Return bytes as text with three digits and a unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
