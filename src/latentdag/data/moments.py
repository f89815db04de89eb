"""Moments: one count, mean and covariance per context.

Everything after this file works from moments. That is why data can be streamed, merged from shards, kept inside the
hospital, resampled without a second pass, and replaced by exact population moments in tests.

Covariances are about each context's own mean, with divisor n − 1, as ``numpy.cov`` and pandas give them.
"""

import html
import os
import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.linalg import PooledWhitening, range_axes, range_basis, symmetrize, whiten_pooled
from latentdag.data import labels as lb
from latentdag.data.accumulate import EVERY_ROW, ContextSums, Sums, merged_sums
from latentdag.data.adjust import adjusted
from latentdag.data.basis import Basis, Rank, Shared, check_rank, layout
from latentdag.data.checks import check_counts, check_covariance, check_distinct, check_noise, check_sizes, check_values
from latentdag.data.collinear import FineScale
from latentdag.data.counts import inverse_depths, log_rates, rates_of, with_counting_noise
from latentdag.data.passes import Walk
from latentdag.data.prepare import Plan, prepare, require_memory
from latentdag.data.robust import again, pilot_weighing, warn_of_outliers
from latentdag.data.schema import Layout
from latentdag.data.sources.annotated import AnnDataReader, check_cells, chosen_features, obs_column
from latentdag.data.sources.opening import open_source
from latentdag.data.sources.reader import Reader, digest, naming_source
from latentdag.data.store import load_arrays, naming_file, save_arrays
from latentdag.errors import ConfoundedCovariateWarning

#: Partial results of a Dask array that meet in one task.
SPLIT_EVERY = 4


@dataclass(frozen=True, eq=False)
class Moments:
    """Per-context count, mean and covariance of the observed features.

    Build one with :meth:`from_samples`, :meth:`from_counts` or :meth:`from_covariances`; merge shards of the same data
    with ``+``.

    Attributes
    ----------
    contexts : tuple of labels
        The control first, the others in the order of their labels (or as given to :meth:`from_covariances`).
    control : label or None
        The context in which nothing was perturbed; ``None`` where it is not known.
    counts : (K+1,) int
    means : (K+1, p)
    covariances : (K+1, p, p)
        About each context's own mean, divisor n − 1.
    feature_names : tuple of str
    fine : FineScale or None
        Where features are so collinear that the covariances cannot tell; see :mod:`latentdag.data.collinear`.
    rests : (K+1, p)
        What rounding took off the means; ``+`` needs it where means dwarf deviations.
    outliers : (K+1,) int, or None
        Rows that are outlying, and not among the counts, where moments are robust; None where they are not.
    noise : (K+1, p), or None
        Variances of measurement noise, where they are known. They are part of the covariances, which are those of what
        was measured. See :meth:`from_counts` and :meth:`with_noise`. Factors have covariances of noise (K+1, p, p).
    basis : Basis or None
        Where the features here are dimensions that all contexts share: those of which features, and the way back. See
        :mod:`latentdag.data.basis`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> m = Moments.from_samples(X, ["WT"] * 200 + ["A"] * 100, control="WT", feature_names=["g1", "g2"])
    >>> m
    Moments(2 contexts, 2 features; control 'WT' (200); 'A' (100))
    >>> shards = Moments.from_samples(X[:150], ["WT"] * 150, control="WT"), Moments.from_samples(
    ...     X[150:], ["WT"] * 50 + ["A"] * 100, control="WT")
    >>> bool(np.allclose((shards[0] + shards[1]).covariances, m.covariances))
    True
    """

    contexts: tuple[Hashable, ...]
    control: Hashable | None
    counts: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    feature_names: tuple[str, ...]
    fine: FineScale | None = None
    rests: np.ndarray = None  # type: ignore[assignment]
    outliers: np.ndarray | None = None
    noise: np.ndarray | None = None
    basis: Basis | None = None

    def __post_init__(self) -> None:
        if self.rests is None:
            object.__setattr__(self, "rests", np.zeros_like(self.means))
        for name in self._stacked():
            getattr(self, name).flags.writeable = False

    def _stacked(self) -> tuple[str, ...]:
        """Return the names of the arrays with one entry per context."""
        optional = (name for name in ("outliers", "noise") if getattr(self, name) is not None)
        return ("counts", "means", "covariances", "rests", *optional)

    # ---- building -------------------------------------------------------------------------------------------

    @classmethod
    def from_samples(
        cls,
        X: Any,
        contexts: Any,
        control: Hashable | None = lb.REQUIRED,
        feature_names: Iterable[str] | None = None,
        adjust: Any = None,
        robust: bool = False,
    ) -> "Moments":
        """Return the moments of samples (rows) in memory; :func:`latentdag.stream.moments` takes files as well.

        Parameters
        ----------
        X : (n, p) ndarray, scipy sparse matrix, Dask array, or table (pandas, polars or pyarrow)
        contexts : (n,) labels
            The context of each row: strings, numbers, tuples, anything hashable.
        control : label
            The unperturbed context. Pass ``None`` only where it is not among these rows (a shard of a larger data set)
            or not known (see :func:`latentdag.observational_contexts`).
        feature_names : optional
            Defaults to the columns of a DataFrame, else ``x0, x1, …``.
        adjust : table with one row per sample, or names of columns of a DataFrame, optional
            Covariates to regress out within contexts; see :mod:`latentdag.data.adjust`.
        robust : bool
            Rows far from the others of their context weigh less; see :mod:`latentdag.data.robust`.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> X[[3, 250]] += 40
        >>> labels = ["WT"] * 200 + ["A"] * 100
        >>> Moments.from_samples(X, labels, control="WT", robust=True).outliers
        array([1, 1])
        """
        return _of_rows(X, contexts, control, feature_names=feature_names, adjust=adjust, robust=robust)

    @classmethod
    def from_counts(
        cls,
        X: Any,
        contexts: Any,
        control: Hashable | None = lb.REQUIRED,
        depth: Any = None,
        scale: str = "linear",
        feature_names: Iterable[str] | None = None,
        adjust: Any = None,
    ) -> "Moments":
        """Return the moments of rates behind counts, with the noise that counting adds.

        A count is Poisson given the rate of its feature and the depth of its row. Covariances are those of what was
        measured; :attr:`noise` is the part of them that counting made. See docs/noise.md.

        Parameters
        ----------
        X : (n, p) whole numbers from 0 on
            As for :meth:`from_samples`; for files, ``latentdag.stream.moments(…, counts=True)``.
        contexts, control, feature_names
            As for :meth:`from_samples`.
        depth : (n,) positive numbers, one number for all rows, the name of a column of a DataFrame, or None
            How much of each row was counted; rates are counts per unit of it. By default the sums of the rows over all
            features, relative to their mean. That is not enough where features are few, or where a few of them carry
            most of the counts: what one gains, the others seem to lose. Nor for shards, whose means differ.
        scale : "linear" or "log"
            Of rates, or of their logarithms, for rates that are log-normal; see :meth:`log_rates`.
        adjust : optional
            Covariates to regress out of rates; not of their logarithms.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> depth, rate = rng.uniform(0.5, 2, 4000), rng.gamma(4, size=(4000, 2))
        >>> X = rng.poisson(depth[:, None] * rate)
        >>> m = Moments.from_counts(X, ["NT"] * 2000 + ["A"] * 2000, control="NT", depth=depth)
        >>> m
        Moments(2 contexts, 2 features; control 'NT' (2000); 'A' (2000); with known noise)
        >>> (np.diagonal(m.covariances, axis1=1, axis2=2) - m.noise).round()  # variances of the rates are 4
        array([[4., 4.],
               [4., 4.]])
        """
        options = {"depth": depth, "scale": scale, "feature_names": feature_names, "adjust": adjust}
        return _of_rows(X, contexts, control, counts=True, **options)

    @classmethod
    def from_anndata(
        cls,
        adata: Any,
        context_key: str,
        control: Hashable | None = lb.REQUIRED,
        layer: str | None = None,
        mask_var: Any = None,
        adjust: Any = None,
        *,
        min_cells: int = 2,
        **options: Any,
    ) -> "Moments":
        """Return the moments of the cells of an AnnData object; backed and lazy ones are read block by block.

        Parameters
        ----------
        adata : AnnData
        context_key : column of ``.obs`` with the context of each cell
        control : label
            The unperturbed context.
        layer : optional
            Instead of ``.X``.
        mask_var : optional
            Only these features: a boolean column of ``.var``, a mask, or names.
        adjust : names of columns of ``.obs``, or a table with one row per cell, optional
            Covariates to regress out within contexts; see :mod:`latentdag.data.adjust`.
        min_cells : int
            Contexts must have at least this many cells.
        **options
            Those of :func:`latentdag.stream.moments`, such as ``robust``; or ``counts=True`` with ``layer="counts"``.

        Raises
        ------
        ValueError
            If cells have no label, or contexts have fewer than ``min_cells`` cells, by count.
        """
        labels = obs_column(adata, context_key)
        check_cells(labels, context_key, min_cells)
        reader, features = AnnDataReader(adata, labels, layer), chosen_features(adata, mask_var)
        options = {"features": features, "adjust": adjust, "split_every": SPLIT_EVERY, **options}
        return moments(reader, labels, control, **options)

    @classmethod
    def from_covariances(
        cls,
        covariances: Any,
        counts: Any,
        contexts: Sequence[Hashable] | None = None,
        control: Hashable | None = None,
        means: Any = None,
        feature_names: Iterable[str] | None = None,
        noise: Any = None,
    ) -> "Moments":
        """Return moments that were computed elsewhere, or exact population moments.

        Parameters
        ----------
        covariances : (K+1, p, p)
            Positive semi-definite; the control first, unless ``control`` names another of the ``contexts``.
        counts : int or (K+1,)
            Samples behind each covariance.
        contexts : labels, optional
            Defaults to 0 (the control), 1, …, K.
        control : label, optional
        means : (K+1, p), optional
            Zero unless given.
        feature_names : optional
        noise : optional
            As for :meth:`with_noise`.
        """
        S = np.array(covariances, dtype=float)
        if S.ndim != 3 or S.shape[1] != S.shape[2]:
            raise ValueError(f"covariances must have shape (K+1, p, p), got {S.shape}")
        size, p = S.shape[:2]
        names = lb.named_features(feature_names, p)
        present: list[Hashable] = [lb.as_label(c) for c in (range(size) if contexts is None else contexts)]
        if len(present) != size:
            raise ValueError(f"{size} covariances but {len(present)} context labels")
        check_distinct(present)
        n = check_counts(counts, present)
        mu = np.zeros((size, p)) if means is None else np.array(means, dtype=float)
        if mu.shape != (size, p):
            raise ValueError(f"means must have shape {(size, p)} to match the covariances, got {mu.shape}")
        for k, label in enumerate(present):
            check_covariance(S[k], mu[k], label, names)
        control = present[0] if control is None else lb.check_control(control, present, n)
        made = cls(tuple(present), control, n, mu, symmetrize(S), names)
        return (made if noise is None else made.with_noise(noise))._control_first()

    def with_noise(self, noise: Any) -> "Moments":
        """Return the same moments, with known variances of measurement noise, which are part of the covariances.

        Parameters
        ----------
        noise : mapping of feature to variance, (p,), or (K+1, p)
            From replicates, or from what is known of an instrument. Features that a mapping does not name have none.

        Examples
        --------
        >>> m = Moments.from_covariances([np.diag([4.0, 9.0]), np.diag([4.0, 1.0])], counts=100)
        >>> m.with_noise({"x1": 0.5}).noise
        array([[0. , 0.5],
               [0. , 0.5]])
        """
        known = check_noise(noise, self.covariances, self.counts, self.contexts, self.feature_names)
        return replace(self, noise=known)

    def with_shared_noise(self) -> "Moments":
        """Return the moments as if the noise that is known were the same in all contexts, that of their mean.

        Noise of counting grows with the counts, so a context that changes means changes it, too; what latents do to
        covariances is then free of it.
        """
        if self.noise is None:
            return self
        shared = np.average(self.noise, axis=0, weights=self.counts)
        covariances = self.covariances.copy()
        at = covariances if self.basis is not None else np.einsum("kii->ki", covariances)  # the diagonals, in place
        at -= self.noise - shared
        return replace(self, covariances=covariances, noise=np.broadcast_to(shared, self.noise.shape).copy())

    def log_rates(self) -> "Moments":
        """Return the moments of logarithms of rates, from those of the rates of counts; for rates that are log-normal.

        Moments of shards are merged before: ``sum(shards).log_rates()``.

        With m the means of rates, M those of their products (of a feature with itself, of pairs of its counts) and D
        the noise, covariances are log(M / (m mᵀ)) + D / m², means log m − ½ log(M / m²), and the noise D / m².

        Raises
        ------
        ValueError
            If a feature has no two counts in one row of a context, or two features none in the same row.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.poisson(np.exp(1.5 + rng.normal(size=(20_000, 1)) * [0.5, -0.5]))
        >>> m = Moments.from_counts(X, ["NT"] * 20_000, control="NT", depth=1).log_rates()
        >>> (m.covariances[0] - np.diag(m.noise[0])).round(2)
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        if self.noise is None or (self.means < 0).any():
            raise ValueError("log rates are of counts: make the moments with Moments.from_counts, scale='linear'")
        return log_rates(self)

    # ---- using ----------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number p of features."""
        return len(self.feature_names)

    @property
    def source_features(self) -> tuple[str, ...]:
        """Names of the features that were measured, and that fits are in: those behind dimensions."""
        return self.feature_names if self.basis is None else self.basis.feature_names

    @property
    def n_contexts(self) -> int:
        """Number K of contexts other than the control."""
        return len(self.contexts) - (self.control is not None)

    @property
    def has_means(self) -> bool:
        """Whether contexts differ in their means; where all are the same to the last digit, nobody measured them."""
        return bool((self.means != self.means[0]).any())

    def index(self, context: Hashable) -> int:
        """Return the position of a context in all the arrays."""
        try:
            return self.contexts.index(context)
        except ValueError:
            raise ValueError(f"no context {context!r}; present: {lb.count_table(self.contexts, self.counts)}") from None

    def select(self, contexts: Iterable[Hashable]) -> "Moments":
        """Return the moments of these contexts only; the control stays if there is one."""
        rows = [0] if self.control is not None else []
        rows += [self.index(label) for label in contexts if self.control is None or label != self.control]
        return self._rows(rows)

    def _rows(self, rows: Sequence[int]) -> "Moments":
        """Return the moments of the contexts at these positions, in this order."""
        rows = list(rows)
        return replace(
            self,
            contexts=tuple(self.contexts[k] for k in rows),
            fine=None if self.fine is None else replace(self.fine, covariances=self.fine.covariances[rows]),
            **{name: getattr(self, name)[rows] for name in self._stacked()},
        )

    def _control_first(self) -> "Moments":
        return self._rows(sorted(range(len(self.contexts)), key=lambda k: self.contexts[k] != self.control))

    def pooled_covariance(self) -> np.ndarray:
        """Return the covariance within contexts (p, p), pooled over all of them with weights n_k / n."""
        return np.einsum("k,kij->ij", self.counts / self.counts.sum(), self.covariances)

    @cached_property
    def range(self) -> np.ndarray:
        """Orthonormal basis (p, r) of the directions in which the features vary within contexts; computed once."""
        return range_basis(self.pooled_covariance())

    @cached_property
    def whitened(self) -> PooledWhitening:
        """Covariances (K+1, r, r) in coordinates ``W x``, W (r, p), in which the pooled covariance is the identity.

        Computed once: the tests, the report and the plots all work in these coordinates. They exist whatever the units
        of the features and however few samples one context has. Directions that only :attr:`fine` can tell from
        rounding count where there would be fewer dimensions than contexts without them.

        Examples
        --------
        >>> m = Moments.from_covariances([np.diag([4.0, 9.0]), np.diag([4.0, 1.0])], counts=100)
        >>> np.tensordot(m.counts / m.counts.sum(), m.whitened.S, axes=1).round(9)
        array([[1., 0.],
               [0., 1.]])
        """
        axes = range_axes(self.pooled_covariance())
        S = axes @ self.covariances @ axes.T
        if len(axes) < self.n_contexts and self.fine is not None:
            axes, S = self.fine.varying(self.counts)
        with lb.naming_contexts(self.contexts):
            return whiten_pooled(axes, S, self.counts / self.counts.sum())

    def __add__(self, other: "Moments") -> "Moments":
        if not isinstance(other, Moments):
            return NotImplemented
        return _merge(self, other)

    def __radd__(self, other: Any) -> "Moments":
        return self if other == 0 else NotImplemented  # so that sum(shards) works

    def __repr__(self) -> str:
        size = f"{self.n_features} features"
        if self.basis is not None:
            several = "" if self.n_features == 1 else "s"
            size = f"{self.n_features} dimension{several} of {len(self.basis.feature_names):,} features"
        parts = [f"{len(self.contexts)} contexts, {size}"]
        rest = list(zip(self.contexts, self.counts, strict=True))
        if self.control is not None:
            parts.append(f"control {self.contexts[0]!r} ({self.counts[0]})")
            rest = rest[1:]
        if rest:
            parts.append(lb.count_table([r[0] for r in rest], [r[1] for r in rest], limit=6))
        if self.outliers is not None:
            parts.append(f"{self.outliers.sum()} outlying rows left out")
        if self.noise is not None:
            parts.append("with known noise")
        return f"Moments({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        table = pd.DataFrame({"context": lb.text_names(self.contexts), "samples": self.counts})
        if self.outliers is not None:
            table["outlying rows"] = self.outliers
        return f"<p>{html.escape(repr(self))}</p>{table.to_html(index=False, border=0, max_rows=20)}"

    # ---- files ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        meta = {
            "contexts": [lb.to_json(label) for label in self.contexts],
            "has_control": self.control is not None,
            "feature_names": list(self.feature_names),
        }
        arrays = {name: getattr(self, name) for name in self._stacked()}
        if self.fine is not None:
            arrays |= {"fine_axes": self.fine.axes, "fine_covariances": self.fine.covariances}
        if self.basis is not None:
            arrays |= self.basis.arrays()
            meta["source_features"] = list(self.basis.feature_names)
            if self.noise is not None:
                arrays["noise_covariances"] = arrays.pop("noise")
        save_arrays(path, _FILE, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Moments":
        """Read what :meth:`save` wrote; raises :class:`~latentdag.errors.FileError` for a damaged file."""
        arrays, meta = load_arrays(path, _FILE)
        with naming_file(path, "feature_names"):
            names = lb.named_features(meta["feature_names"], len(meta["feature_names"]))
        with naming_file(path, "contexts"):
            contexts = check_distinct([lb.from_json(value) for value in meta["contexts"]])
            if not contexts or not names:
                raise ValueError("there must be a context and a feature at least")
        with naming_file(path, "counts"):
            counts = check_counts(arrays["counts"], contexts)
        S, means = arrays["covariances"], arrays["means"]
        with naming_file(path, "covariances"):
            for k, label in enumerate(contexts):
                check_values(S[k], means[k], label, names)
        fine = None
        with naming_file(path, "fine"):
            if ("fine_axes" in arrays) != ("fine_covariances" in arrays):
                raise ValueError("there must be both fine_axes and fine_covariances, or neither")
            if "fine_axes" in arrays:
                fine = FineScale(arrays["fine_axes"], arrays["fine_covariances"])
                fine.check(S)
        control, outliers = contexts[0] if meta["has_control"] else None, arrays.get("outliers")
        with naming_file(path, "outliers"):
            if outliers is not None and (outliers < 0).any():
                raise ValueError("there cannot be fewer than none")
        rests, noise = arrays.get("rests", np.zeros_like(means)), arrays.get("noise")
        with naming_file(path, "noise"):
            if noise is not None:
                noise = check_noise(noise, S, counts, contexts, names)
        with naming_file(path, "basis"):
            basis = Basis.of(arrays, meta.get("source_features"))
            noise = arrays.get("noise_covariances", noise)
            if noise is not None and noise.ndim > 2 and (basis is None or basis.psi is None or np.isnan(noise).any()):
                raise ValueError("noise_covariances are of factors only, and finite")
        return cls(tuple(contexts), control, counts, means, S, names, fine, rests, outliers, noise, basis)


def _of_rows(X: Any, contexts: Any, control: Hashable | None, **options: Any) -> Moments:
    """Return the moments of rows in memory."""
    if isinstance(X, str | os.PathLike):
        raise ValueError(f"X must be a matrix of numbers, got the path {os.fspath(X)!r}: see latentdag.stream.moments")
    if lb.is_single(contexts):
        raise ValueError(f"contexts must hold one label per row of X, got the single value {contexts!r}")
    return moments(X, contexts, control, split_every=SPLIT_EVERY, **options)


def moments(
    source: Any,
    contexts: Any,
    control: Hashable | None = lb.REQUIRED,
    *,
    feature_names: Iterable[str] | None = None,
    layer: str | None = None,
    features: Any = None,
    adjust: Any = None,
    only: Iterable[Hashable] | None = None,
    robust: bool = False,
    counts: bool = False,
    depth: Any = None,
    scale: str = "linear",
    block_rows: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    memory_limit: float | None = None,
    split_every: int | None = None,
    rank: "Rank | Basis | None" = None,
    noise: str = "none",
) -> Moments:
    """Return the moments of a matrix, table, AnnData object, file or folder, read a block of rows at a time.

    Every way from data to moments leads through this function.

    Parameters
    ----------
    source
        * a matrix: ndarray, memmap, scipy sparse matrix, zarr, HDF5 or Dask array;
        * a table: pandas or polars DataFrame, pyarrow Table;
        * an AnnData object, in memory, backed or lazy;
        * a path: ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet`` or a folder of such files, ``.h5ad``, ``.zarr``
          (AnnData, or an array, or a group of arrays), ``.npy``, or a folder with ``matrix.mtx``.
    contexts : name, or (n,) labels
        The column that holds the context of each row (for AnnData in ``.obs``; for a zarr group an array), or the
        labels themselves.
    control : label
        The unperturbed context; ``None`` only where it is not among these rows or not known.
    feature_names : optional
        Instead of the names that the source has for all its features.
    layer : str, optional
        Of an AnnData object or store, instead of X; of a plain zarr group, the array.
    features : names, positions or mask, optional
        Only these features.
    adjust : names of columns, or a table with one row per sample, optional
        Covariates to regress out within contexts, in the same pass; see :mod:`latentdag.data.adjust`.
    only : labels, optional
        Only the rows of these contexts; the others, and rows without a label, are passed over.
    robust : bool
        Rows far from the others of their context weigh less; see :mod:`latentdag.data.robust`. The rows are read three
        times, and once more where a context has more than a thousand; a small sample of them stays in memory.
    counts : bool
        The values are counts, and moments are those of rates; see :meth:`latentdag.Moments.from_counts`.
    depth, scale
        Of counts, as there; ``depth`` can also name a column. Where it is not given, the rows are read once more, and
        the sums are over all features, also those that ``features`` leaves out.
    block_rows : int, optional
        Rows of a block; by default so many that products are fast and blocks stay under about a gigabyte.
    checkpoint : path, optional
        A file to keep the sums in. A later call with the same source and options goes on where the last one stopped,
        and gives the same answer to the last bit; if the source changed in between, it begins anew with a
        :class:`~latentdag.errors.SourceChangedWarning`. It stays there: delete it once the moments are saved. Not for
        robust moments, which are made in several passes.
    checkpoint_seconds : float
        Seconds between two writings, at least.
    progress : bool, optional
        True or False to force the bar on stderr; by default it shows in a terminal.
    memory_limit : bytes, optional
        Refuse to begin where more is needed; by default 80 % of the memory that is free.
    split_every : int, optional
        Sum a Dask array where its chunks are, this many partial results meeting in one task; see :func:`dask_moments`.
        By default, or with a checkpoint or ``block_rows``, its blocks come here in order.
    rank : int, "auto" or Basis, optional
        The moments are those of so many dimensions that all contexts share, found in a pass of its own, so that K
        contexts need memory for K · rank² numbers and not for K · p²; see :mod:`latentdag.data.basis`. "auto" takes
        what stands out of noise. The basis of other moments (``m.basis``) is taken as it is: so shards can be merged.
    noise : "none" or "features"
        With a rank: whether features have noise of their own. The dimensions are then factors. Counts always have.

    Returns
    -------
    Moments

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> moments(X, ["WT"] * 200 + ["A"] * 100, control="WT", block_rows=100)
    Moments(2 contexts, 2 features; control 'WT' (200); 'A' (100))
    >>> wide = X[:, :1] + np.random.default_rng(1).normal(size=(300, 40))
    >>> moments(wide, ["WT"] * 200 + ["A"] * 100, control="WT", rank="auto")
    Moments(2 contexts, 1 dimension of 40 features; control 'WT' (200); 'A' (100))
    """
    if robust not in (False, True):
        raise ValueError(f"robust must be True or False, got {robust!r}")
    if robust and checkpoint is not None:
        raise ValueError(
            "a checkpoint keeps the sums of one pass, and robust=True needs several: leave one of them away"
        )
    _check_counted(counts, depth, scale, adjust, robust)
    chosen = {"feature_names": feature_names, "layer": layer, "features": features, "only": only}
    reader = open_source(source, contexts, **chosen, adjust=adjust, depth=depth)
    in_place = reader.dask is not None and checkpoint is None and block_rows is None
    asked = _Asked(control, adjust, robust, counts, depth, scale, block_rows)
    walk = Walk(checkpoint, checkpoint_seconds, progress, memory_limit, split_every if in_place else None)
    try:
        if rank is not None:
            return _in_dimensions(reader, asked, walk, rank, noise)
        if noise != "none":
            raise ValueError(f"noise={noise!r} is for moments of a rank: say rank=…, or ld.fit(m, noise={noise!r})")
        return _of_reader(reader, asked, walk)
    finally:
        reader.close()


@dataclass(frozen=True)
class _Asked:
    """What is asked of a reader: the options of :func:`moments` of these names. The last two are for :class:`Plan`."""

    control: Hashable | None
    adjust: Any
    robust: bool
    counts: bool
    depth: Any
    scale: str
    block_rows: int | None
    dimensions: str = ""
    counted: bool = False

    def plan(self, reader: Reader, pooled: bool = False) -> Plan:
        """Return the plan of a pass."""
        options = {"dense": self.robust and not pooled, "counts": self.counts, "pooled": pooled}
        plan = prepare(reader, self.control, self.adjust, self.block_rows, **options)
        return replace(plan, dimensions=self.dimensions, counted=plan.counted or self.counted)

    def rates(self, reader: Reader, plan: Plan, walk: Walk) -> tuple[Reader, Plan]:
        """Return a reader of rates and the plan of a pass over them, where counts are asked for."""
        if not self.counts:
            return reader, plan
        inverse = inverse_depths(reader, self.depth, partial(walk.map, reader, plan))
        return rates_of(reader, inverse, plan.block_rows), plan.per(inverse)


def _of_reader(reader: Reader, asked: _Asked, walk: Walk) -> Moments:
    """Return the moments of a reader's features."""
    plan = asked.plan(reader)
    n_covariates = 0 if plan.C is None else plan.C.shape[1]
    reader, plan = asked.rates(reader, plan, walk)
    if asked.robust:
        plan = replace(plan, weigh=pilot_weighing(reader, plan, partial(walk.map, reader, plan), walk.memory_limit))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfoundedCovariateWarning)  # it comes with the moments in the end
            plan = replace(plan, weigh=again(_of_all_columns(reader, plan, walk), n_covariates))
    made = _of_all_columns(reader, plan, walk)
    if asked.counts:
        made = with_counting_noise(made, len(reader.feature_names))
    if n_covariates:
        made = adjusted(made, n_covariates)
    if asked.counts:
        with naming_source(reader.name):
            check_noise(made.noise, made.covariances, made.counts, made.contexts, made.feature_names)
            made = made.log_rates() if asked.scale == "log" else made
    return made


def _of_all_columns(reader: Reader, plan: Plan, walk: Walk) -> Moments:
    """Return the moments of all columns of one pass, covariates included."""
    sums = walk.sums(reader, plan)
    with naming_source(reader.name):
        if plan.weigh is not None:
            sums = plan.weigh.consistent(sums, np.bincount(plan.codes), plan.contexts)
        made = _of_sums(plan.contexts, plan.control, plan.names, sums, plan.weigh is not None)
    if sums.sample is not None and len(sums.sample[0]):
        warn_of_outliers(made, *sums.sample)
    return made


def _in_dimensions(reader: Reader, asked: _Asked, walk: Walk, rank: "Rank | Basis", noise: str) -> Moments:
    """Return moments in dimensions that all contexts share, in two passes."""
    before = None if reader.path is None else reader.identity()
    _check_dimensions(reader, asked, rank, noise)
    plan, apart = asked.plan(reader, pooled=True), None
    n, quiet = np.bincount(plan.codes), plan.counted or plan.sparse_products  # no single rows to warn of
    if rank != "auto":  # said before the first pass, and not after it
        r = len(rank.W) if isinstance(rank, Basis) else int(rank)
        require_memory(reader.name, len(n), r, 1, 0, walk.memory_limit, "dimensions")
    rows, plan = asked.rates(reader, plan, walk)
    if isinstance(rank, Basis):
        basis, told = rank, digest(*rank.arrays().values())
    else:
        sums, told = walk.sums(rows, plan), f"{rank}, noise {noise}"
        with naming_source(reader.name):
            check_sizes(sums.means[:, 0], sums.scatters / len(plan.codes), EVERY_ROW, plan.names)
            shared = Shared.of(sums, n, len(reader.feature_names), asked.counts)
            basis = shared.basis(rank, asked.counts or noise == "features", reader.feature_names)
            apart = shared.counting_apart()
    asked = replace(asked, counts=False, depth=None, dimensions=told, counted=quiet)
    if walk.checkpoint is not None:
        walk = replace(walk, checkpoint=f"{os.fspath(walk.checkpoint)}.second")
    made = _of_reader(basis.reader(rows, plan.block_rows), asked, walk)
    if before is not None and reader.identity() != before:
        raise ValueError(f"{reader.name} changed while it was read: its two passes do not belong together. Run again")
    return replace(made, basis=basis, noise=basis.noise(len(n), apart))


def _check_dimensions(reader: Reader, asked: _Asked, rank: "Rank | Basis", noise: str) -> None:
    """Complain about options that do not go with dimensions, or dimensions that are not of these features."""
    names = tuple(reader.feature_names)
    if noise not in ("none", "features"):
        raise ValueError(f"with a rank, noise must be 'none' or 'features', got {noise!r}")
    if asked.scale == "log":
        raise ValueError("rank is not for scale='log': logarithms of rates are known of whole contexts only")
    if not isinstance(rank, Basis):
        check_rank(rank, len(names))
        return
    if asked.counts:
        raise ValueError("the noise of counts is found in the first pass, which a given basis leaves out: give a rank")
    if rank.feature_names != names:
        raise ValueError(
            f"{reader.name}: the basis is of {len(rank.feature_names):,} features, from {rank.feature_names[0]!r} on, "
            f"and these are {len(names):,}, from {names[0]!r} on: give the same features"
        )


def _check_counted(counts: bool, depth: Any, scale: str, adjust: Any, robust: bool) -> None:
    """Complain about options that do not go with counts, or without them."""
    if scale not in ("linear", "log"):
        raise ValueError(f"scale must be 'linear' or 'log', got {scale!r}")
    if not counts and (depth is not None or scale == "log"):
        raise ValueError(f"{'depth' if scale == 'linear' else 'scale'} is of counts: say counts=True")
    if counts and robust:
        raise ValueError("robust=True is not for counts: rows that weigh less do not have the noise that counting adds")
    if scale == "log" and adjust is not None:
        raise ValueError("adjust is not for scale='log': single rows have no logarithms of rates to be regressed")


def _of_sums(
    contexts: Sequence[Hashable], control: Hashable | None, names: tuple[str, ...], sums: Sums, robust: bool
) -> Moments:
    """Return the moments of all columns, covariates included; scatters are divided in place."""
    for scatters in (sums.scatters, sums.along):
        scatters /= np.maximum(sums.counts - 1, 1)[:, None, None]
    check_sizes(sums.means[:, 0], sums.scatters, contexts, names)
    means, rests = np.ascontiguousarray(sums.means.transpose(1, 0, 2))
    fine = FineScale(sums.axes, sums.along) if len(sums.axes) else None
    outliers = sums.outlying if robust else None
    return Moments(tuple(contexts), control, sums.counts, means, sums.scatters, names, fine, rests, outliers)


def _merge(a: Moments, b: Moments) -> Moments:
    """Return the exact moments of two sets of rows together (Chan's update of mean and scatter)."""
    if a.feature_names != b.feature_names:
        differing = [f"{x!r} / {y!r}" for x, y in zip(a.feature_names, b.feature_names, strict=False) if x != y]
        raise ValueError(
            f"cannot merge moments of different features ({a.n_features} and {b.n_features} of them"
            + (f", first difference {differing[0]})" if differing else ")")
        )
    if a.control is not None and b.control is not None and a.control != b.control:
        raise ValueError(f"cannot merge: the control is {a.control!r} on one side and {b.control!r} on the other")
    if a.basis is not b.basis and (a.basis is None or not a.basis.same(b.basis)):
        raise ValueError(
            "cannot merge moments in different dimensions: make the second shard with the basis of the first, "
            "rank=first.basis"
        )
    if (a.outliers is None) != (b.outliers is None):
        raise ValueError("cannot merge robust moments with others: make all shards with robust=True, or none")
    if (a.noise is None) != (b.noise is None):
        raise ValueError(
            "cannot merge moments with known noise and moments without: make all shards of counts, or none; or state "
            "the noise of all with with_noise"
        )
    lb.told_apart((*a.contexts, *b.contexts))
    present = lb.canonical_order(set(a.contexts) | set(b.contexts))
    control = a.control if a.control is not None else b.control
    axes = np.zeros((0, a.n_features))
    shards: list[tuple[Moments, FineScale | None]] = [(a, None), (b, None)]
    if a.fine is not None and b.fine is not None:
        axes, shards = a.fine.axes, [(a, a.fine), (b, b.fine.along(a.fine.axes))]
    found = []
    for label in present:
        parts = [_sums(m, m.contexts.index(label), fine) for m, fine in shards if label in m.contexts]
        found.append(merged_sums(parts, axes))
    sums = Sums.together(found, axes)
    counts, made = sums.counts, _of_sums(present, control, a.feature_names, sums, a.outliers is not None)
    if a.noise is not None and b.noise is not None:
        total = np.zeros((len(present), *a.noise.shape[1:]))
        for m, noise in ((a, a.noise), (b, b.noise)):
            total[[present.index(label) for label in m.contexts]] += (m.counts * noise.T).T
        made = replace(made, noise=(total.T / counts).T)
    return replace(made, basis=a.basis)._control_first()


def _sums(m: Moments, i: int, fine: FineScale | None) -> ContextSums:
    """Return the sums behind one context of moments."""
    n, mean, none = int(m.counts[i]), np.array([m.means[i], m.rests[i]]), np.zeros((0, 0))
    along = none if fine is None else (n - 1) * fine.covariances[i]
    return n, mean, (n - 1) * m.covariances[i], along, 0 if m.outliers is None else int(m.outliers[i]), none


_FILE = Layout(
    "Moments",
    {"contexts": [lb.from_json], "has_control": bool, "feature_names": [str], "source_features?": [str]},
    {
        "counts": "i k", "means": "f kp", "rests?": "f kp", "covariances": "f kpp", "fine_axes?": "f pp",
        "fine_covariances?": "f kpp", "outliers?": "i k", "noise?": "f kp", "noise_covariances?": "f kpp",
        **layout("p", "q"),
    },
    {"k": "contexts", "p": "feature_names"},
)  # fmt: skip
