"""Knock-outs of interferon-γ signalling in THP-1 cells, read by ECCITE-seq.

Papalexi et al., *Characterizing the molecular regulation of inhibitory immune checkpoints with multimodal single-cell
screens* (Nature Genetics, 2021), GEO GSE153056. Two layouts are read:

* ``papalexi.npz``: 299 genes as in the R package ``sceptredata`` (``lowmoi_example_data``, MIT), counts as csr arrays
  ``data``, ``indices``, ``indptr``, ``shape``, with ``label``, ``guide``, ``guide_umi``, ``guide_frac``, ``rep`` and
  ``genes``;
* GEO's own files, which is what is downloaded: counts of all genes (genes × cells) and of guides, and a table of cells.

Counts are small and depth varies: normalise them, and regress out depth and replicate.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from latentdag.datasets.containers import Screen, Source, locate

COUNTS, GUIDES = "GSM4633614_ECCITE_cDNA_counts.tsv.gz", "GSM4633618_ECCITE_GDO_counts.tsv.gz"
CELLS = "GSE153056_ECCITE_metadata.tsv.gz"
ARRAYS = "papalexi.npz"

SOURCE = Source.of("papalexi_thp1")

CONTROL = "non-targeting"

#: Genes of a block of GEO's table that is read at a time.
_BLOCK = 500


def papalexi_thp1(
    root: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    genes: Iterable[str] | None = None,
) -> Screen:
    """Read counts per cell and gene, with the knocked-out gene as context.

    Parameters
    ----------
    root : folder, optional
        With ``papalexi.npz``, or GEO's files, in a sub-folder ``papalexi_thp1``.
    strict : bool
        Only cells in which one guide has more than 80 % of the guides' counts, and at least 5 of them.
    genes : names, optional
        By default all.

    Returns
    -------
    Screen
        ``X`` csr of counts; ``obs`` has guide, guide_umi, guide_frac, rep and depth (all counts of the cell, of genes
        left out by ``genes`` too).
    """
    wanted = None if genes is None else list(genes)
    paths = locate(SOURCE, [ARRAYS], [COUNTS, GUIDES, CELLS], root=root)
    found = _from_arrays(paths[ARRAYS]) if ARRAYS in paths else _from_geo(paths, wanted)
    if wanted is not None:
        found = found.select(features=wanted)
    sure = (found.obs["guide_frac"] > 0.8) & (found.obs["guide_umi"] >= 5)
    return found.select(sure.to_numpy()) if strict else found


def _from_arrays(path: Path) -> Screen:
    try:
        with np.load(path, allow_pickle=False) as archive:
            z = {name: archive[name] for name in archive.files}
        X = sparse.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
        obs = pd.DataFrame({name: z[name] for name in ("guide", "guide_umi", "guide_frac", "rep")})
    except (OSError, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is damaged, or another file of that name ({error})") from None
    X = X.astype(np.int32)  # sums of small unsigned numbers overflow
    obs["depth"] = np.asarray(X.sum(axis=1)).ravel()
    return Screen("papalexi_thp1", X, z["label"], CONTROL, tuple(map(str, z["genes"])), obs)


def _from_geo(paths: dict[str, Path], genes: list[str] | None) -> Screen:
    cells = pd.read_csv(paths[CELLS], sep="\t", index_col=0)
    guides = pd.read_csv(paths[GUIDES], sep="\t", index_col=0).T
    X, names, depth, barcodes = _counts(paths[COUNTS], genes)
    shared = [cell for cell in barcodes if cell in cells.index and cell in guides.index]
    if not shared:
        raise ValueError(f"{paths[COUNTS]}, {paths[GUIDES]} and {paths[CELLS]} have no cell in common")
    rows = pd.Index(barcodes).get_indexer(shared)
    cells, guides = cells.loc[shared], guides.loc[shared]
    top, total = guides.max(axis=1).to_numpy(), np.maximum(guides.sum(axis=1).to_numpy(), 1)
    obs = pd.DataFrame(
        {
            "guide": cells["guide_ID"].to_numpy(), "guide_umi": top, "guide_frac": top / total,
            "rep": cells["replicate"].to_numpy(), "depth": depth[rows],
        }
    )  # fmt: skip
    labels = np.array([CONTROL if gene == "NT" else str(gene) for gene in cells["gene"]])
    return Screen("papalexi_thp1", X[rows], labels, CONTROL, names, obs)


def _counts(path: Path, genes: list[str] | None) -> tuple[sparse.csr_matrix, tuple[str, ...], np.ndarray, list[str]]:
    """Read GEO's table of genes × cells in blocks of genes: kept counts (cells × genes), names, depth and barcodes."""
    kept: list[sparse.csr_matrix] = []
    names: list[str] = []
    depth: Any = 0
    with pd.read_csv(path, sep="\t", index_col=0, chunksize=_BLOCK) as blocks:
        for block in blocks:
            depth = depth + block.sum()
            block = block if genes is None else block.loc[block.index.isin(genes)]
            kept.append(sparse.csr_matrix(block.to_numpy(dtype=np.int32)))
            names += map(str, block.index)
    if not kept:
        raise ValueError(f"{path} has no genes")
    return sparse.csr_matrix(sparse.vstack(kept).T), tuple(names), depth.to_numpy(), [str(c) for c in depth.index]
