"""What data becomes: one count, mean and covariance per context.

Everything after this file works from moments. That is why data can be streamed, merged from shards, kept inside the
hospital, resampled without a second pass, and replaced by exact population moments in tests.

Covariances are about each context's own mean, with divisor n − 1, as ``numpy.cov`` and pandas give them.
"""

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from latentdag.core.linalg import range_basis, symmetrize
from latentdag.data import labels as lb
from latentdag.data.collinear import FineScale, two_sum
from latentdag.data.schema import Layout
from latentdag.data.store import load_arrays, naming_file, save_arrays


class _NotGiven:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Any = _NotGiven()

#: Standard deviations that are taken, and the largest mean: sums of fourth powers of them are float64 numbers.
SMALLEST, LARGEST = 1e-70, 1e70

#: What is left of a square that is too small to be a number: far less than ``SMALLEST**2``, and not zero.
VANISHED = 1e-300

#: Count, mean in two parts (2, p), scatter of the features, and scatter along axes, whole or lower triangles.
Sums = tuple[int, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Moments:
    """Per-context count, mean and covariance of the observed features.

    Build one with :meth:`from_samples` or :meth:`from_covariances`; merge shards of the same data with ``+``.

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

    def __post_init__(self) -> None:
        if self.rests is None:
            object.__setattr__(self, "rests", np.zeros_like(self.means))
        for name in ("counts", "means", "covariances", "rests"):
            getattr(self, name).flags.writeable = False

    # ---- building -------------------------------------------------------------------------------------------

    @classmethod
    def from_samples(
        cls,
        X: Any,
        contexts: Any,
        control: Hashable | None = REQUIRED,
        feature_names: Iterable[str] | None = None,
        adjust: Any = None,
    ) -> "Moments":
        """Moments of samples (rows) grouped by context; the same as :func:`latentdag.stream.moments`, in memory.

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
        """
        from latentdag.data import stream

        if isinstance(X, str | os.PathLike):
            raise ValueError(
                f"X must be a matrix of numbers, got the path {os.fspath(X)!r}: see latentdag.stream.moments"
            )
        if lb.is_single(contexts):
            raise ValueError(f"contexts must hold one label per row of X, got the single value {contexts!r}")
        through = stream.dask_moments if hasattr(X, "dask") else stream.moments
        return through(X, contexts, control, feature_names=feature_names, adjust=adjust)

    @classmethod
    def from_anndata(
        cls,
        adata: Any,
        context_key: str,
        control: Hashable | None = REQUIRED,
        layer: str | None = None,
        mask_var: Any = None,
        adjust: Any = None,
        **options: Any,
    ) -> "Moments":
        """Moments of the cells of an AnnData object; backed and lazy ones are read a block of cells at a time.

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
        **options
            ``min_cells`` (2), and those of :func:`latentdag.stream.moments`.
        """
        from latentdag.data.cells import anndata_moments

        return anndata_moments(adata, context_key, control, layer, mask_var, adjust, **options)

    @classmethod
    def from_covariances(
        cls,
        covariances: Any,
        counts: Any,
        contexts: Sequence[Hashable] | None = None,
        control: Hashable | None = None,
        means: Any = None,
        feature_names: Iterable[str] | None = None,
    ) -> "Moments":
        """Moments that were computed elsewhere, or exact population moments.

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
        """
        S = np.array(covariances, dtype=float)
        if S.ndim != 3 or S.shape[1] != S.shape[2]:
            raise ValueError(f"covariances must have shape (K+1, p, p), got {S.shape}")
        size, p = S.shape[:2]
        names = named_features(feature_names, p)
        present: list[Hashable] = [lb.as_label(c) for c in (range(size) if contexts is None else contexts)]
        if len(present) != size:
            raise ValueError(f"{size} covariances but {len(present)} context labels")
        _check_labels(present)
        n = _check_counts(counts, present)
        mu = np.zeros((size, p)) if means is None else np.array(means, dtype=float)
        if mu.shape != (size, p):
            raise ValueError(f"means must have shape {(size, p)} to match the covariances, got {mu.shape}")
        for k, label in enumerate(present):
            _check_covariance(S[k], mu[k], label, names)
        control = present[0] if control is None else check_control(control, present, n)
        return cls._control_first(present, control, n, mu, symmetrize(S), names)

    @classmethod
    def _control_first(
        cls,
        present: Sequence[Hashable],
        control: Hashable | None,
        counts: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        names: tuple[str, ...],
        fine: FineScale | None = None,
        rests: np.ndarray | None = None,
    ) -> "Moments":
        order = list(range(len(present)))
        if control is not None:
            order.sort(key=lambda k: present[k] != control)
        labels = tuple(present[k] for k in order)
        fine = None if fine is None else fine.select(order)
        rests = np.zeros_like(means) if rests is None else rests
        return cls(labels, control, counts[order], means[order], covariances[order], names, fine, rests[order])

    # ---- using ----------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @property
    def n_contexts(self) -> int:
        """K, the number of contexts other than the control."""
        return len(self.contexts) - (self.control is not None)

    def index(self, context: Hashable) -> int:
        """Position of a context in all the arrays."""
        try:
            return self.contexts.index(context)
        except ValueError:
            raise ValueError(f"no context {context!r}; present: {lb.count_table(self.contexts, self.counts)}") from None

    def select(self, contexts: Iterable[Hashable]) -> "Moments":
        """Only these contexts; the control stays if there is one."""
        rows = [0] if self.control is not None else []
        rows += [self.index(label) for label in contexts if self.control is None or label != self.control]
        return Moments(
            tuple(self.contexts[k] for k in rows),
            self.control,
            self.counts[rows],
            self.means[rows],
            self.covariances[rows],
            self.feature_names,
            None if self.fine is None else self.fine.select(rows),
            self.rests[rows],
        )

    def pooled_covariance(self) -> np.ndarray:
        """Covariance within contexts, pooled over all of them."""
        return np.einsum("k,kij->ij", self.counts / self.counts.sum(), self.covariances)

    @cached_property
    def range(self) -> np.ndarray:
        """Orthonormal basis (p, r) of the directions in which the features vary within contexts."""
        return range_basis(self.pooled_covariance())

    def __add__(self, other: "Moments") -> "Moments":
        if not isinstance(other, Moments):
            return NotImplemented
        return _merge(self, other)

    def __radd__(self, other: Any) -> "Moments":
        return self if other == 0 else NotImplemented  # so that sum(shards) works

    def __repr__(self) -> str:
        parts = [f"{len(self.contexts)} contexts, {self.n_features} features"]
        rest = list(zip(self.contexts, self.counts, strict=True))
        if self.control is not None:
            parts.append(f"control {self.contexts[0]!r} ({self.counts[0]})")
            rest = rest[1:]
        if rest:
            parts.append(lb.count_table([r[0] for r in rest], [r[1] for r in rest], limit=6))
        return f"Moments({'; '.join(parts)})"

    # ---- files ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        meta = {
            "contexts": [lb.to_json(label) for label in self.contexts],
            "has_control": self.control is not None,
            "feature_names": list(self.feature_names),
        }
        arrays = {"counts": self.counts, "means": self.means, "covariances": self.covariances, "rests": self.rests}
        if self.fine is not None:
            arrays |= {"fine_axes": self.fine.axes, "fine_covariances": self.fine.covariances}
        save_arrays(path, _FILE, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Moments":
        """Read what :meth:`save` wrote; raises :class:`~latentdag.errors.FileError` for a damaged file."""
        arrays, meta = load_arrays(path, _FILE)
        with naming_file(path, "feature_names"):
            names = named_features(meta["feature_names"], len(meta["feature_names"]))
        with naming_file(path, "contexts"):
            contexts = _check_labels([lb.from_json(value) for value in meta["contexts"]])
            if not contexts or not names:
                raise ValueError("there must be a context and a feature at least")
        with naming_file(path, "counts"):
            counts = _check_counts(arrays["counts"], contexts)
        S, means = arrays["covariances"], arrays["means"]
        with naming_file(path, "covariances"):
            for k, label in enumerate(contexts):
                _check_values(S[k], means[k], label, names)
            check_sizes(means, S, contexts, names)
        fine = None
        with naming_file(path, "fine"):
            if ("fine_axes" in arrays) != ("fine_covariances" in arrays):
                raise ValueError("there must be both fine_axes and fine_covariances, or neither")
            if "fine_axes" in arrays:
                fine = FineScale(arrays["fine_axes"], arrays["fine_covariances"])
                fine.check(S)
        control = contexts[0] if meta["has_control"] else None
        return cls(tuple(contexts), control, counts, means, S, names, fine, arrays.get("rests", np.zeros_like(means)))


def merge(moments: Iterable[Moments]) -> Moments:
    """Merge any number of shards; the same as ``+`` between them."""
    return reduce(_merge, moments)


def _merge(a: Moments, b: Moments) -> Moments:
    """Exact moments of the union of two sets of rows (Chan's update of mean and scatter)."""
    if a.feature_names != b.feature_names:
        differing = [f"{x!r} / {y!r}" for x, y in zip(a.feature_names, b.feature_names, strict=False) if x != y]
        raise ValueError(
            f"cannot merge moments of different features ({a.n_features} and {b.n_features} of them"
            + (f", first difference {differing[0]})" if differing else ")")
        )
    if a.control is not None and b.control is not None and a.control != b.control:
        raise ValueError(f"cannot merge: the control is {a.control!r} on one side and {b.control!r} on the other")
    lb.told_apart((*a.contexts, *b.contexts))
    present = lb.canonical_order(set(a.contexts) | set(b.contexts))
    control = a.control if a.control is not None else b.control
    axes, finer = np.zeros((0, a.n_features)), None
    if a.fine is not None and b.fine is not None:
        axes, finer = a.fine.axes, b.fine.along(a.fine.axes)
    found = []
    for label in present:
        shards = ((m, m.contexts.index(label), fine) for m, fine in ((a, a.fine), (b, finer)) if label in m.contexts)
        found.append(merged_sums([_sums(m, i, fine if len(axes) else None) for m, i, fine in shards], axes))
    counts, means, scatters, along = (np.array(part) for part in zip(*found, strict=True))
    freedom = np.maximum(counts - 1, 1)[:, None, None]
    fine = FineScale(axes, along / freedom) if len(axes) else None
    names, covariances = a.feature_names, scatters / freedom
    check_sizes(means[:, 0], covariances, present, names)
    return Moments._control_first(present, control, counts, means[:, 0], covariances, names, fine, means[:, 1])


def _sums(m: Moments, i: int, fine: FineScale | None) -> Sums:
    """The sums behind one context of moments."""
    n, mean = int(m.counts[i]), np.array([m.means[i], m.rests[i]])
    along = np.zeros((0, 0)) if fine is None else (n - 1) * fine.covariances[i]
    return n, mean, (n - 1) * m.covariances[i], along


@np.errstate(over="ignore", invalid="ignore")  # what overflows is complained about in the end
def merged_sums(parts: Sequence[Sums], axes: np.ndarray) -> Sums:
    """Count, mean and scatters of several sets of rows together (Chan's update); axes may be none (0, p)."""
    n, mean, scatter, along = parts[0]
    for m, other, more, further in parts[1:]:
        gap = (other - mean).sum(axis=0)  # exactly zero for a feature that is constant
        weight = n * m / (n + m)
        scatter = scatter + more + _outer(gap, weight, scatter.ndim)
        along = along + further + _outer(axes @ gap, weight, along.ndim)
        mean = two_sum(mean[0], mean[1] + gap * (m / (n + m)))
        n += m
    return n, mean, scatter, along


def _outer(x: np.ndarray, weight: float, ndim: int) -> np.ndarray:
    """``weight · x xᵀ`` (p, p), or its lower triangle; squares that vanish leave a trace."""
    outer = weight * np.outer(x, x)
    np.einsum("ii->i", outer)[:] += VANISHED * (x != 0)
    return outer if ndim == 2 else outer[np.tril_indices(len(x))]


# ---- checking what users give -----------------------------------------------------------------------------------


def named_features(names: Iterable[str] | None, p: int) -> tuple[str, ...]:
    """One distinct name per feature; ``x0, x1, …`` where none are given."""
    given = tuple(names) if names is not None else tuple(f"x{j}" for j in range(p))
    if len(given) != p:
        raise ValueError(f"{p} features but {len(given)} feature names")
    lb.check_names(given, "feature")
    return tuple(map(str, given))


def check_control(control: Any, present: Sequence[Hashable], counts: Any) -> Hashable | None:
    """The control as one of the labels present, or ``None`` where the user says that it is not."""
    if control is REQUIRED:
        raise ValueError(
            f"name the control context with control=…; the labels present are {lb.count_table(present, counts)}"
        )
    control = lb.as_label(control)
    if control is None:
        return None
    try:
        return present[present.index(control)]  # as it is among the labels: 1 finds 1.0
    except (ValueError, TypeError):  # an array, or what is neither equal nor unequal to anything
        raise ValueError(
            f"control {control!r} is not among the contexts; the labels present are {lb.count_table(present, counts)}"
        ) from None


def _check_labels(present: list[Hashable]) -> list[Hashable]:
    lb.check_labels(present)
    repeated = [label for label, times in Counter(present).items() if times > 1]
    if repeated:
        raise ValueError(f"context label {repeated[0]!r} occurs more than once: merge its moments with + first")
    return present


def check_sizes(means: np.ndarray, covariances: np.ndarray, contexts: Sequence[Hashable], names: Sequence[str]) -> None:
    """Complain about a feature whose mean or deviation, in any context (K, p), is too large or too small."""
    variances = np.abs(np.diagonal(covariances, axis1=1, axis2=2))  # rounding can leave residuals below zero
    large = ~(variances <= LARGEST**2) | ~(np.abs(means) <= LARGEST)
    small = (variances < SMALLEST**2) & (variances != 0)
    for wrong, what in ((large, "large"), (small, "small")):
        if wrong.any():
            k, j = np.argwhere(wrong)[0]
            raise ValueError(
                f"context {contexts[k]!r}: the values of feature {names[j]!r} are too {what} (mean {means[k, j]:.3g}, "
                f"standard deviation {np.sqrt(variances[k, j]):.3g}; {SMALLEST:g} to {LARGEST:g} can be worked with): "
                "give it other units"
            )


def _check_counts(counts: Any, present: Sequence[Hashable]) -> np.ndarray:
    n = np.asarray(counts)
    n = np.full(len(present), n) if n.ndim == 0 else n
    if n.shape != (len(present),):
        raise ValueError(f"counts must be one number or one per context ({len(present)}), got shape {n.shape}")
    for label, count in zip(present, n, strict=True):
        if not (np.isfinite(count) and count >= 1 and count == int(count)):
            raise ValueError(f"context {label!r}: the count must be a positive whole number, got {count}")
    return n.astype(np.int64)


def _check_values(S: np.ndarray, mean: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    """Check that a mean and a covariance are finite, and the covariance symmetric."""
    if not np.isfinite(mean).all():
        j = int(np.argmax(~np.isfinite(mean)))
        raise ValueError(f"context {label!r}: the mean of feature {names[j]!r} is {mean[j]}")
    if not np.isfinite(S).all():
        i, j = np.argwhere(~np.isfinite(S))[0]
        raise ValueError(f"context {label!r}: the covariance of {names[i]!r} and {names[j]!r} is {S[i, j]}")
    check_sizes(mean[None], S[None], [label], names)
    scale = np.sqrt(np.abs(np.diagonal(S)))
    with np.errstate(over="ignore"):
        gap = np.abs(S - S.T)
    if (gap > 1e-8 * np.maximum(np.outer(scale, scale), 1e-300)).any():
        i, j = divmod(int(np.argmax(gap)), len(S))
        raise ValueError(
            f"context {label!r}: the covariance is not symmetric: [{names[i]!r}, {names[j]!r}] is {S[i, j]:.6g} but "
            f"[{names[j]!r}, {names[i]!r}] is {S[j, i]:.6g}"
        )


def _check_covariance(S: np.ndarray, mean: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    """Check what users give; files are not asked for eigenvalues, which take longer than reading them."""
    _check_values(S, mean, label, names)
    scale = np.sqrt(np.abs(np.diagonal(S)))
    safe = np.where(scale > 0, scale, 1.0)
    smallest = np.linalg.eigvalsh(symmetrize(S) / np.outer(safe, safe))[0]
    if smallest < -1e-8:
        raise ValueError(
            f"context {label!r}: the covariance is not positive semi-definite (smallest eigenvalue of the "
            f"correlation matrix {smallest:.3g}); was it rounded, or a precision matrix given instead?"
        )


_FILE = Layout(
    "Moments",
    {"contexts": [lb.from_json], "has_control": bool, "feature_names": [str]},
    {
        "counts": "i k", "means": "f kp", "rests?": "f kp", "covariances": "f kpp", "fine_axes?": "f pp",
        "fine_covariances?": "f kpp",
    },
    {"k": "contexts", "p": "feature_names"},
)  # fmt: skip
