"""What data becomes: one count, mean and covariance per context.

Everything after this file works from moments. That is why data can be streamed, merged from shards, kept inside the
hospital, resampled without a second pass, and replaced by exact population moments in tests.

Covariances are about each context's own mean, with divisor n − 1, as ``numpy.cov`` and pandas give them.
"""

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from latentdag import labels as lb
from latentdag.core.linalg import symmetrize
from latentdag.fine import FineScale
from latentdag.storage import load_arrays, save_arrays


class _NotGiven:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Any = _NotGiven()


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
        Where features are so collinear that the covariances cannot tell; see :mod:`latentdag.fine`.

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

    def __post_init__(self) -> None:
        for name in ("counts", "means", "covariances"):
            getattr(self, name).flags.writeable = False
        lb.refuse_broken_text("context label", self.contexts)
        lb.refuse_broken_text("feature name", self.feature_names)

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
            Covariates to regress out within contexts; see :mod:`latentdag.adjustment`.
        """
        from latentdag import stream

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
            Covariates to regress out within contexts; see :mod:`latentdag.adjustment`.
        **options
            ``min_cells`` (2), and those of :func:`latentdag.stream.moments`.
        """
        from latentdag.stream.cells import anndata_moments

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
        present = [lb.plain(label) for label in contexts] if contexts is not None else list(range(size))
        if len(present) != size:
            raise ValueError(f"{size} covariances but {len(present)} context labels")
        repeated = [label for i, label in enumerate(present) if label in present[:i]]
        if repeated:
            raise ValueError(f"context label {repeated[0]!r} occurs more than once: merge its moments with + first")
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
    ) -> "Moments":
        order = list(range(len(present)))
        if control is not None:
            order.sort(key=lambda k: present[k] != control)
        labels = tuple(present[k] for k in order)
        fine = None if fine is None else fine.select(order)
        return cls(labels, control, counts[order], means[order], covariances[order], names, fine)

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
        keep = [self.control] if self.control is not None else []
        keep += [label for label in contexts if label != self.control]
        rows = [self.index(label) for label in keep]
        return Moments(
            tuple(keep),
            self.control,
            self.counts[rows],
            self.means[rows],
            self.covariances[rows],
            self.feature_names,
            None if self.fine is None else self.fine.select(rows),
        )

    def pooled_covariance(self) -> np.ndarray:
        """Covariance within contexts, pooled over all of them."""
        return np.einsum("k,kij->ij", self.counts / self.counts.sum(), self.covariances)

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
        arrays = {"counts": self.counts, "means": self.means, "covariances": self.covariances}
        if self.fine is not None:
            arrays |= {"fine_axes": self.fine.axes, "fine_covariances": self.fine.covariances}
        save_arrays(path, "Moments", arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Moments":
        """Read what :meth:`save` wrote."""
        arrays, meta = load_arrays(path, "Moments")
        try:
            contexts = tuple(lb.from_json(value) for value in meta["contexts"])
            return cls(
                contexts,
                contexts[0] if meta["has_control"] else None,
                arrays["counts"],
                arrays["means"],
                arrays["covariances"],
                tuple(meta["feature_names"]),
                FineScale(arrays["fine_axes"], arrays["fine_covariances"]) if "fine_axes" in arrays else None,
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{path} is a damaged Moments file ({type(error).__name__}: {error})") from None


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
    present = lb.canonical_order(set(a.contexts) | set(b.contexts))
    control = a.control if a.control is not None else b.control
    counts, means, covariances = _merged_arrays(a, b, present, a.covariances, b.covariances, None)
    fine = None
    if a.fine is not None and b.fine is not None:
        axes = a.fine.axes
        along = _merged_arrays(a, b, present, a.fine.covariances, b.fine.along(axes).covariances, axes)[2]
        fine = FineScale(axes, along)
    return Moments._control_first(present, control, counts, means, covariances, a.feature_names, fine)


def _merged_arrays(
    a: Moments, b: Moments, present: Sequence[Hashable], S_a: np.ndarray, S_b: np.ndarray, axes: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, means and covariances (of features, or along axes) of the contexts of two sets of rows together."""
    found = []
    for label in present:
        sums = []
        for m, S in ((a, S_a), (b, S_b)):
            if label in m.contexts:
                i = m.contexts.index(label)
                sums.append((int(m.counts[i]), m.means[i], (m.counts[i] - 1) * S[i]))
        n, mean, scatter = merged_sums(sums, axes)
        found.append((n, mean, scatter / max(n - 1, 1)))
    counts, means, covariances = zip(*found, strict=True)
    return np.array(counts, dtype=np.int64), np.array(means), np.array(covariances)


def merged_sums(
    parts: Sequence[tuple[int, np.ndarray, np.ndarray]], axes: np.ndarray | None = None
) -> tuple[int, np.ndarray, np.ndarray]:
    """Count, mean (p,) and scatter of several sets of rows together (Chan's update).

    Scatters are (p, p), or packed lower triangles (p (p + 1) / 2), of the features or along axes.
    """
    n, mean, scatter = parts[0]
    for m, other, more in parts[1:]:
        gap = other - mean  # exactly zero for a feature that is constant
        along = gap if axes is None else axes @ gap
        outer = np.outer(along, along)
        outer = outer if scatter.ndim == 2 else outer[np.tril_indices(len(gap))]
        scatter = scatter + more + (n * m / (n + m)) * outer
        mean = mean + gap * (m / (n + m))
        n += m
    return n, mean, scatter


# ---- checking what users give -----------------------------------------------------------------------------------


def named_features(names: Iterable[str] | None, p: int) -> tuple[str, ...]:
    """One distinct name per feature; ``x0, x1, …`` where none are given."""
    given = tuple(str(name) for name in names) if names is not None else tuple(f"x{j}" for j in range(p))
    if len(given) != p:
        raise ValueError(f"{p} features but {len(given)} feature names")
    if len(set(given)) < p:
        repeated = next(name for i, name in enumerate(given) if name in given[:i])
        raise ValueError(f"feature name {repeated!r} occurs more than once")
    return given


def check_control(control: Any, present: Sequence[Hashable], counts: Any) -> Hashable | None:
    """The control as one of the labels present, or ``None`` where the user says that it is not."""
    if control is REQUIRED:
        raise ValueError(
            f"name the control context with control=…; the labels present are {lb.count_table(present, counts)}"
        )
    control = lb.plain(control)
    if control is not None and control not in present:
        raise ValueError(
            f"control {control!r} is not among the contexts; the labels present are {lb.count_table(present, counts)}"
        )
    return control


def _check_counts(counts: Any, present: Sequence[Hashable]) -> np.ndarray:
    n = np.asarray(counts)
    n = np.full(len(present), n) if n.ndim == 0 else n
    if n.shape != (len(present),):
        raise ValueError(f"counts must be one number or one per context ({len(present)}), got shape {n.shape}")
    for label, count in zip(present, n, strict=True):
        if not (np.isfinite(count) and count >= 1 and count == int(count)):
            raise ValueError(f"context {label!r}: the count must be a positive whole number, got {count}")
    return n.astype(np.int64)


def _check_covariance(S: np.ndarray, mean: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    if not np.isfinite(mean).all():
        j = int(np.argmax(~np.isfinite(mean)))
        raise ValueError(f"context {label!r}: the mean of feature {names[j]!r} is {mean[j]}")
    if not np.isfinite(S).all():
        i, j = np.argwhere(~np.isfinite(S))[0]
        raise ValueError(f"context {label!r}: the covariance of {names[i]!r} and {names[j]!r} is {S[i, j]}")
    scale = np.sqrt(np.abs(np.diagonal(S)))
    gap = np.abs(S - S.T)
    if (gap > 1e-8 * np.maximum(np.outer(scale, scale), 1e-300)).any():
        i, j = divmod(int(np.argmax(gap)), len(S))
        raise ValueError(
            f"context {label!r}: the covariance is not symmetric: [{names[i]!r}, {names[j]!r}] is {S[i, j]:.6g} but "
            f"[{names[j]!r}, {names[i]!r}] is {S[j, i]:.6g}"
        )
    safe = np.where(scale > 0, scale, 1.0)
    smallest = np.linalg.eigvalsh(symmetrize(S) / np.outer(safe, safe))[0]
    if smallest < -1e-8:
        raise ValueError(
            f"context {label!r}: the covariance is not positive semi-definite (smallest eigenvalue of the "
            f"correlation matrix {smallest:.3g}); was it rounded, or a precision matrix given instead?"
        )
