"""Choose which cells, contexts and genes take part; normalise the cells and regress covariates out."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.adjust import coefficients, design
from latentdag.data.matrices import as_rows, is_sparse
from latentdag.data.moments import Moments
from latentdag.data.sources.annotated import obs_column
from latentdag.datasets.containers import Screen

if TYPE_CHECKING:
    from anndata import AnnData  # type: ignore[import-untyped]

#: Fewer cells than this say too little about a covariance of tens of genes.
MIN_CELLS = 200

#: A gene that is seen in a smaller share of the cells is mostly noise of counting.
MIN_DETECTED = 0.05


@dataclass(frozen=True, eq=False)
class Choice:
    """Cells that go into the fit.

    Attributes
    ----------
    X : (n, p)
        Chosen cells × genes; covariates regressed out within contexts.
    contexts : (n,) labels
    control : label
    genes : tuple of str, the most variable first
    table : DataFrame
        Genes by standard deviation, most variable first, with the share of cells in which they were seen.
    left_out : mapping of context to its number of cells
        Contexts with too few cells.
    notes : tuple of sentences
        What was decided on the way.
    robust : bool
        Whether cells far from the others of their context weigh less.
    """

    X: np.ndarray
    contexts: np.ndarray
    control: Hashable
    genes: tuple[str, ...]
    table: pd.DataFrame
    left_out: dict[str, int]
    notes: tuple[str, ...]
    robust: bool = False

    def samples(self, contexts: Iterable[Hashable]) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells (n, p) of these contexts, and the context of each (n,)."""
        rows = np.isin(self.contexts, np.array(list(contexts)))
        return self.X[rows], self.contexts[rows]

    def moments(self) -> Moments:
        """Return count, mean and covariance of every context."""
        return Moments.from_samples(self.X, self.contexts, self.control, self.genes, robust=self.robust)


def screen_of(adata: "AnnData", context_key: str, control: Hashable, layer: str | None = None) -> Screen:
    """Return a screen from AnnData; cells without a label are left out."""
    labels = obs_column(adata, context_key)
    if not adata.var_names.is_unique:
        raise ValueError("names of genes occur more than once: adata.var_names_make_unique()")
    labelled = adata[labels.notna().to_numpy()]
    X = labelled.X if layer is None else labelled.layers[layer]
    if X is None:
        raise ValueError("adata.X is empty: name a layer")
    texts = labels.dropna().astype(str).to_numpy(dtype=str)
    names = tuple(str(name) for name in labelled.var_names)
    return Screen("screen", X, texts, str(control), names, labelled.obs.reset_index(drop=True))


def choose(
    screen: Screen,
    *,
    genes: Iterable[str] | None = None,
    among: Iterable[str] | None = None,
    n_genes: int = 30,
    contexts: Iterable[str] | None = None,
    min_cells: int = MIN_CELLS,
    counts: bool | None = None,
    adjust: Iterable[str] = (),
    robust: bool = False,
) -> Choice:
    """Choose contexts and genes, normalise, and regress covariates out.

    Parameters
    ----------
    screen : Screen
    genes : names, optional
        The gene set to choose from; by default all genes of the screen.
    among : names, optional
        Further restriction: the genes that the second cohort has.
    n_genes : int
        So many of them, with the largest standard deviation over all chosen cells (as in the paper).
    contexts : labels, optional
        By default all with at least ``min_cells`` cells.
    counts : bool, optional
        Whether X holds counts: they are then divided by the cell's depth (``obs["depth"]`` where there is one, else the
        sum of its counts), brought to the median depth, log(1 + x), and the logarithm of the depth is regressed out. By
        default X holds counts if all of its values are whole and none is negative.
    adjust : names of columns of ``obs``
        Further covariates to regress out, such as replicate or batch.
    robust : bool
        Cells far from the others of their context weigh less; see :mod:`latentdag.data.robust`.
    """
    labels, left_out = _contexts(screen, contexts, min_cells)
    kept = screen.select(np.isin(screen.contexts.astype(str), labels))
    notes = []
    covariates = kept.obs[_columns(kept, adjust)].copy()
    is_counts = _whole_numbers(kept.X) if counts is None else counts
    X = as_rows(kept.X)
    if is_counts:
        depth = np.asarray(kept.obs["depth"] if "depth" in kept.obs else X.sum(axis=1), dtype=float).ravel()
        if not (depth > 0).all():
            raise ValueError(f"{int((depth <= 0).sum())} cells have no counts at all: drop them")
        covariates["log depth"] = np.log(depth)
        notes.append("Counts were divided by each cell's depth and taken to log(1 + x) at the median depth.")
    else:
        depth = np.ones(X.shape[0])
        notes.append("Expression was used as it is, without normalisation.")
    table, X = _variable(X, kept.feature_names, depth, is_counts, genes, among, n_genes, notes)
    if len(covariates.columns):
        X = _residuals(X, kept, covariates, robust)
        notes.append(f"Regressed out within contexts: {', '.join(map(str, covariates.columns))}.")
    names = tuple(table.index[:n_genes])
    return Choice(X, kept.contexts, screen.control, names, table, left_out, tuple(notes), robust)


def _contexts(screen: Screen, wanted: Iterable[str] | None, min_cells: int) -> tuple[list[str], dict[str, int]]:
    counts = pd.Series(screen.contexts.astype(str)).value_counts()
    control = str(screen.control)
    listed = lb.count_table(list(counts.index), counts.to_numpy())
    if counts.get(control, 0) < min_cells:
        raise ValueError(
            f"the control {control!r} has {counts.get(control, 0)} cells, fewer than {min_cells}; {listed}"
        )
    asked = [str(c) for c in wanted] if wanted is not None else [c for c in counts.index if c != control]
    unknown = [c for c in asked if c not in counts.index]
    if unknown:
        raise ValueError(f"no cells of the contexts {unknown[:5]}; present are {listed}")
    enough = [c for c in asked if counts[c] >= min_cells and c != control]
    if not enough:
        raise ValueError(f"no context has {min_cells} cells or more: {listed}; lower min_cells")
    return [control, *enough], {c: int(counts[c]) for c in asked if counts[c] < min_cells}


def _columns(screen: Screen, names: Iterable[str]) -> list[str]:
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in screen.obs]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r} to regress out; there are {list(screen.obs.columns)}")
    return names


def _whole_numbers(X: Any) -> bool:
    values = np.asarray(X.data if is_sparse(X) else X)
    return bool(values.min(initial=0) >= 0 and (values == np.round(values)).all())


def _variable(
    X: Any, names: tuple[str, ...], depth: np.ndarray, counts: bool, genes: Any, among: Any, n: int, notes: list[str]
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return candidates by standard deviation, and the first n of them (cells × n)."""
    candidates = list(names)
    for what, chosen in (("in the gene set", genes), ("in the second cohort too", among)):
        if chosen is not None:
            before, allowed = len(candidates), {str(name) for name in chosen}
            candidates = [name for name in candidates if name in allowed]
            notes.append(f"{len(candidates)} of {before} genes are {what}.")
    place = {name: j for j, name in enumerate(names)}
    picked = X[:, [place[name] for name in candidates]]
    dense = np.asarray(picked.todense() if is_sparse(picked) else picked, dtype=float)
    detected = (dense != 0).mean(axis=0)
    if counts:
        dense = np.log1p(dense * (np.median(depth) / depth)[:, None])
    spread = dense.std(axis=0)
    usable = (spread > 0) & (detected >= MIN_DETECTED)
    table = pd.DataFrame({"std": spread, "detected": detected}, index=pd.Index(candidates, name="gene"))
    order = [j for j in np.argsort(-spread, kind="stable") if usable[j]]
    if len(order) < 2:
        raise ValueError(
            f"{len(order)} genes are left to choose from ({len(candidates)} by name, of them seen in at least "
            f"{MIN_DETECTED:.0%} of the cells): check how genes are spelt, first of the screen {list(names[:3])}"
        )
    if len(order) < n:
        notes.append(f"Only {len(order)} genes could be used, fewer than the {n} asked for.")
    return table.iloc[order], dense[:, order[:n]]


def _residuals(X: np.ndarray, screen: Screen, covariates: pd.DataFrame, robust: bool) -> np.ndarray:
    """Regress covariates out of cells within contexts; moments are those of :mod:`latentdag.data.adjust`."""
    C, names = design(covariates, len(X))
    features = [*(f"x{j}" for j in range(X.shape[1])), *names]
    joint = Moments.from_samples(np.hstack([X, C]), screen.contexts, screen.control, features, robust=robust)
    return X - (C - C.mean(axis=0)) @ coefficients(joint, C.shape[1])
