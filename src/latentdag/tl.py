"""AnnData in, AnnData out: the fit of a perturbation screen, written by scverse's conventions.

What is written survives h5ad and zarr: arrays, text and dictionaries of these, under keys that are names of ours and
never labels of the data. Matrices are read in blocks of rows, so a backed object stays on disk.
"""

import json
import warnings
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag import __version__
from latentdag.data import labels as lb
from latentdag.data.counts import inverse_depths
from latentdag.data.moments import Moments
from latentdag.data.passes import block_map
from latentdag.data.prepare import FEW_VALUES
from latentdag.data.schema import headers, parse_json
from latentdag.data.sources.annotated import chosen_features, obs_column
from latentdag.data.sources.opening import open_source
from latentdag.data.store import naming_file
from latentdag.data.stream import pieces
from latentdag.errors import LabelWarning, VerdictWarning
from latentdag.methods.fitting import fit
from latentdag.methods.result import FILE, Fit
from latentdag.model.model import LatentModel

if TYPE_CHECKING:
    from anndata import AnnData  # type: ignore[import-untyped]

#: Fewer cells than this give no covariance that any method can use.
MIN_CELLS = 3


def latentdag(
    adata: "AnnData",
    context_key: str,
    *,
    control: Hashable,
    layer: str | None = None,
    mask_var: Any = None,
    adjust: Any = None,
    robust: bool = False,
    counts: bool = False,
    depth: str | None = None,
    key_added: str = "latentdag",
    min_cells: int = MIN_CELLS,
    copy: bool = False,
    method: str = "likelihood",
    **options: Any,
) -> "AnnData | None":
    """Fit the latent causal model of a perturbation screen.

    Cells without a label and perturbations with fewer than ``min_cells`` cells take no part in the fit; a
    :class:`~latentdag.errors.LabelWarning` counts them. They get latent scores like all other cells.
    Where something speaks against the fit, a :class:`~latentdag.errors.VerdictWarning` says what.

    Parameters
    ----------
    adata : AnnData
        In memory or backed; dense, csr or dask.
    context_key : str
        Column of ``obs`` with the perturbation of each cell.
    control : label
        The value of that column for unperturbed cells. It is never guessed.
    layer : str, optional
        Of ``layers``; by default ``X``.
    mask_var : str or (n_vars,) bool, optional
        Genes to use: a boolean column of ``var`` or a mask. By default all.
    adjust : names of columns of ``obs``, optional
        Covariates to regress out within contexts before the fit, see :meth:`latentdag.Moments.from_anndata`. Scores
        are of the cells as they are.
    robust : bool
        Outlying cells weigh less, see :meth:`latentdag.Moments.from_samples`.
    counts : bool
        The layer holds counts: the fit is of rates, see :meth:`latentdag.Moments.from_counts`, and so are the scores.
    depth : str, optional
        Column of ``obs`` with the depth of each cell, where there are counts. By default the sums of all genes,
        relative to their mean over all cells.
    key_added : str
        Under which key results are written.
    min_cells : int
        At least 3.
    copy : bool
        Return a copy instead of writing to ``adata``.
    method, **options
        As for :func:`latentdag.fit`. ``targets`` may also name a column of ``obs`` that holds the target of each cell's
        perturbation, such as the gene of its guide: latents are called by it. ``strength`` may name one of numbers: the
        strength of each perturbation, or for each cell whether it, or what share of it, was perturbed. Their means over
        the cells of a perturbation are taken: a share of perturbed cells is exactly a strength.

    Returns
    -------
    None, or the copy. Written are, for d latents:

    ``obsm[key_added]`` : (n_obs, d)
        Latent scores of every cell, measured from the control's mean; columns as in ``uns[key_added]["latents"]``.
    ``varm[key_added]`` : (n_vars, d)
        The unmixing: scores are ``(X − mean of the control) @ varm``. ``nan`` for genes outside ``mask_var``.
    ``varm[f"{key_added}_mixing"]`` : (n_vars, d)
        The mixing: what one unit of each latent adds to each gene. ``nan`` for genes outside ``mask_var``.
    ``uns[key_added]["latents"]`` : (d,) text
    ``uns[key_added]["order"]`` : (d,) text
        The latents, sources first.
    ``uns[key_added]["contexts"]`` : (K+1,) text
        The control first, with the numbers of their cells in ``uns[key_added]["counts"]``; if ``robust``, without the
        outlying ones, whose numbers are in ``uns[key_added]["outliers"]``.
    ``uns[key_added]["targets"]`` : dict
        Arrays "context" and "latent", one entry for each latent that a context targets.
    ``uns[key_added]["edges"]`` : dict
        The columns of :meth:`latentdag.Fit.edges` as arrays.
    ``uns[key_added]["weights"]`` : (d, d)
        ``[i, j]`` is the effect of latent j on latent i.
    ``uns[key_added]["params"]`` : dict
        How it was called, and how many cells were left out.
    ``uns[key_added]["fit"]`` : dict
        All that :func:`fit_of` needs to give the :class:`~latentdag.Fit` back.
    """
    if not isinstance(key_added, str) or not key_added or "/" in key_added:
        raise ValueError(
            f"key_added must be text without '/' (h5ad and zarr take that for a folder), got {key_added!r}"
        )
    if copy:
        if adata.isbacked:
            raise ValueError("a backed AnnData has no copy in memory: use copy=False, or adata.to_memory() first")
        adata = adata.copy()
    used, left_out = _usable(adata, context_key, control, min_cells)
    cells = adata if used.all() else adata[used]
    depths = _depths(adata, layer, depth) if counts else None
    counted: dict[str, Any] = {"counts": counts, "depth": depth if depths is None else depths[used]}
    m = Moments.from_anndata(cells, context_key, control, layer, mask_var, adjust, robust=robust, **counted)
    features = chosen_features(cells, mask_var)
    rows = pieces(cells, context_key, layer=layer, features=features, adjust=adjust, **counted)
    if isinstance(options.get("strength"), str):
        options["strength"] = _strengths(cells, context_key, m, options["strength"])
    if isinstance(options.get("targets"), str) and options["targets"] != "learn":
        column = options["targets"]
        names = obs_column(cells, column)
        options["targets"] = lb.named_targets(_labels(cells, context_key), names, m.control, f"obs[{column!r}]", "cell")
    found = fit(m, method, **{"data": rows, **options})
    if not found.verdict.ok:
        warnings.warn(str(found.verdict), VerdictWarning, stacklevel=2)
    model = found.model
    where = adata.var_names.get_indexer(list(model.feature_names))
    adata.obsm[key_added] = latent_scores(adata, model, layer, depths)
    for key, loadings in ((key_added, model.unmixing.T), (f"{key_added}_mixing", model.mixing)):
        full = np.full((adata.n_vars, model.n_latents), np.nan)
        full[where] = loadings
        adata.varm[key] = full
    given: dict[str, Any] = {"context_key": context_key, "control": str(control), "layer": layer, "key": key_added}
    given["mask_var"] = mask_var
    given |= {"counts": counts, "depth": depth} if counts else {}
    given["adjust"] = ", ".join([adjust] if isinstance(adjust, str) else map(str, adjust or ())) or None
    adata.uns[key_added] = to_uns(found) | {"params": _params(given | left_out | dict(found.options))}
    if m.outliers is not None:
        adata.uns[key_added]["outliers"] = m.outliers
    return adata if copy else None


def fit_of(adata: "AnnData", key: str = "latentdag") -> Fit:
    """Return the :class:`~latentdag.Fit` that :func:`latentdag` wrote, also after h5ad or zarr."""
    stored = adata.uns.get(key)
    if not isinstance(stored, dict) or "fit" not in stored:
        raise ValueError(
            f"uns[{key!r}] holds no fit (keys of uns: {sorted(adata.uns)}): run latentdag.tl.latentdag first, or name "
            "the key it was given as key_added"
        )
    with naming_file(f"uns[{key!r}]", "fit"):
        arrays = {name: np.asarray(value) for name, value in stored["fit"].items() if name != "meta"}
        meta = parse_json(str(stored["fit"]["meta"]))
        FILE.check(meta, headers(arrays))
        return Fit.from_parts(arrays, meta)


def _strengths(cells: "AnnData", context_key: str, m: Moments, column: str) -> dict[Hashable, float]:
    """Return the mean of a column of obs over the cells of each perturbation."""
    values = obs_column(cells, column)
    if values.dtype.kind not in "fiub" or values.isna().any():
        raise ValueError(f"obs[{column!r}] must hold a number for every cell that is fitted, to be a strength")
    mean = values.astype(float).groupby(_labels(cells, context_key)).mean()
    return {context: float(mean[context]) for context in m.contexts[1:]}


def _labels(cells: "AnnData", context_key: str) -> Any:
    return obs_column(cells, context_key).map(lb.as_label).astype(object)


def _depths(adata: "AnnData", layer: str | None, depth: str | None) -> np.ndarray:
    """Return the depths (n_obs,) of all cells, also of those that take no part in the fit: they have scores too."""
    reader = open_source(adata, range(adata.n_obs), layer=layer)
    return 1 / inverse_depths(reader, depth, partial(block_map, reader, max(1, FEW_VALUES // adata.n_vars)))


def latent_scores(adata: "AnnData", model: LatentModel, layer: str | None = None, depth: Any = None) -> np.ndarray:
    """Return the latents (n_obs, d) of every cell: genes are found by name, rows are read in blocks.

    Where the layer holds counts, ``depth`` is that of every cell (n_obs,).

    Raises
    ------
    ValueError
        If genes of the model are missing, or occur twice.
    """
    counted: dict[str, Any] = {"counts": depth is not None, "depth": depth}
    genes = list(model.feature_names)
    cells = pieces(adata, np.zeros(adata.n_obs), layer=layer, features=genes, **counted)  # the labels play no part
    return np.concatenate([np.empty((0, model.n_latents)), *(model.transform(block) for block, _ in cells.pieces())])


def _usable(adata: "AnnData", context_key: str, control: Hashable, min_cells: int) -> tuple[np.ndarray, dict[str, int]]:
    """Return which cells take part in the fit, and how many do not and why; warn about those that do not."""
    if min_cells < MIN_CELLS:
        raise ValueError(f"min_cells must be at least {MIN_CELLS}, got {min_cells}")
    labels = obs_column(adata, context_key)
    counts = labels.value_counts(sort=False)  # of a categorical, also categories without cells
    control = lb.as_label(control)
    listed = f"the labels present are {lb.count_table(list(counts.index), counts)}"
    cells = dict(zip(counts.index, counts.tolist(), strict=True)).get(control, 0)
    if control is None or not cells:
        raise ValueError(f"obs[{context_key!r}] has no cells of the control {control!r}; {listed}")
    if cells < min_cells:
        raise ValueError(f"the control {control!r} has {cells} cells, at least {min_cells} are needed")
    few, empty = counts[(counts > 0) & (counts < min_cells)], counts[counts == 0]
    missing, n_few = int(labels.isna().sum()), int(few.sum())
    used = (labels.notna() & ~labels.isin(few.index)).to_numpy()
    notes = [f"{missing} cells have no label"] if missing else []
    if n_few:
        notes.append(f"{len(few)} contexts have fewer than {min_cells} cells: {lb.count_table(list(few.index), few)}")
    if len(empty) and notes:  # else from_anndata sees them too, and says so
        notes.append(f"{len(empty)} categories have no cells: {', '.join(map(repr, empty.index[:20]))}")
    if notes:
        left_out = f"Not in the fit: {(~used).sum()} of {len(used)} cells"
        warnings.warn(f"obs[{context_key!r}]: {'; '.join(notes)}. {left_out}", LabelWarning, stacklevel=3)
    return used, {"n_cells": int(used.sum()), "n_unlabelled": missing, "n_in_few": n_few}


def to_uns(found: Fit) -> dict[str, Any]:
    """Return a fit as nested dictionaries of arrays and text, which h5ad and zarr can hold."""
    model = found.model
    texts = dict(zip(model.contexts, lb.text_names(model.contexts), strict=True))
    pairs = [(texts[context], name) for context, value in model.interventions.items() for name in value.targets]
    arrays, meta = found.to_parts()
    return {
        "latents": _text(found.latents),
        "order": _text(found.order),
        "contexts": _text(texts.values()),
        "counts": np.array(found.counts),
        "targets": {"context": _text(c for c, _ in pairs), "latent": _text(name for _, name in pairs)},
        "edges": {
            name: _text(column) if column.dtype.kind in "OTU" else column.to_numpy()
            for name, column in found.edges().items()
        },
        "weights": np.array(model.weights),
        "fit": {name: np.array(array) for name, array in arrays.items()} | {"meta": json.dumps(meta)},
    }


def _text(names: Any) -> np.ndarray:
    return np.array([str(name) for name in names], dtype=object)


def _params(values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that are text or numbers, and the version."""
    plain = {name: value for name, value in values.items() if isinstance(value, str | bool | int | float)}
    return plain | {"version": __version__}
