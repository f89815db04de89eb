"""Moments of the cells of an AnnData object, with the complaints that single-cell labels call for."""

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.dask_pass import dask_moments
from latentdag.data.moments import Moments
from latentdag.data.passes import moments
from latentdag.data.sources.annotated import AnnDataReader, obs_column
from latentdag.data.sources.opening import names_of
from latentdag.errors import LatentDAGWarning


class EmptyCategoryWarning(LatentDAGWarning):
    """A context is declared among the categories of the labels, but no cell has it."""


def anndata_moments(
    adata: Any,
    context_key: str,
    control: Hashable | None,
    layer: str | None = None,
    mask_var: Any = None,
    adjust: Any = None,
    *,
    min_cells: int = 2,
    **options: Any,
) -> Moments:
    """See :meth:`latentdag.Moments.from_anndata`.

    Raises
    ------
    ValueError
        If cells have no label, or contexts have fewer than ``min_cells`` cells, by count.
    """
    labels = obs_column(adata, context_key)
    check_labels(labels, context_key, min_cells)
    reader = AnnDataReader(adata, labels, layer)
    features = chosen_features(adata, mask_var)
    matrix = getattr(getattr(reader, "matrix", None), "X", None)
    if not hasattr(matrix, "dask") or options.get("checkpoint") or options.get("block_rows"):
        return moments(reader, labels, control, features=features, adjust=adjust, **options)
    options.pop("progress", None)  # Dask has its own
    names = names_of(adjust)
    columns = adjust if names is None else reader.columns(names)
    return dask_moments(
        matrix, labels, control, feature_names=reader.all_features, features=features, adjust=columns, **options
    )


def check_labels(labels: pd.Series, key: str, min_cells: int) -> None:
    """Complain about cells without a label and contexts with too few cells; warn about categories without any."""
    missing = int(labels.isna().sum())
    if missing:
        raise ValueError(
            f"{missing} of {len(labels)} cells have no label in obs[{key!r}]: drop them with "
            f"adata[adata.obs[{key!r}].notna()], or label them"
        )
    counts = labels.value_counts()
    empty = [lb.as_label(label) for label in counts.index[counts == 0]]
    if empty:
        warnings.warn(
            f"{len(empty)} categories of obs[{key!r}] have no cells and are left out: {_some(empty)}",
            EmptyCategoryWarning,
            stacklevel=4,
        )
    few = counts[(counts > 0) & (counts < min_cells)]
    if len(few):
        table = lb.count_table([lb.as_label(label) for label in few.index], few.to_numpy(), limit=8)
        raise ValueError(
            f"{len(few)} contexts of obs[{key!r}] have fewer than {min_cells} cells: {table}; drop or merge them"
        )


def chosen_features(adata: Any, mask_var: Any) -> Any:
    """``mask_var`` as a mask or names; a text is a boolean column of ``.var``."""
    if not isinstance(mask_var, str):
        return mask_var
    if mask_var not in adata.var:
        raise ValueError(f"adata.var has no column {mask_var!r}; its columns are {_some(adata.var.columns)}")
    column = np.asarray(adata.var[mask_var])
    if column.dtype != bool:
        raise ValueError(f"adata.var[{mask_var!r}] must be boolean to choose features, it holds {column.dtype}")
    return column


def _some(names: Any, limit: int = 8) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:limit])) + (", …" if len(names) > limit else "") if names else "none"
