"""The paper's single-cell screen: variants of KRAS over-expressed in a lung cancer cell line.

Ursu et al., *Massively parallel phenotyping of coding variants in cancer with Perturb-seq* (Nature Biotechnology,
2022), GEO GSE161824, whose supplementary files are read as they are:

* ``GSE161824_A549_KRAS.processed.matrix.mtx.gz``: MatrixMarket, cells × genes, normalised by its authors;
* ``….processed.genes.csv.gz``, ``….processed.cells.csv.gz``: one name per line, no heading;
* ``GSE161824_A549_KRAS.variants2cell.csv.gz``: tab-separated in spite of its name, with columns ``cell`` and
  ``variant``.

As in the paper, cells without a variant ("unassigned"), with several ("multiple") and with a synonymous one (T58T) are
left out, and the wild type "WT" is the control. The matrix is read in pieces of which only wanted genes and cells stay.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import io, sparse

from latentdag.datasets.containers import Screen, Source, locate

SOURCE = Source.of("kras")

CONTROL = "WT"

#: Labels of cells that have no variant, or more than one.
UNASSIGNED = ("unassigned", "multiple")

#: Entries of the matrix parsed at a time.
_ENTRIES = 5_000_000


def kras(
    root: str | os.PathLike[str] | None = None,
    *,
    genes: Iterable[str] | str | os.PathLike[str] | None = None,
    variants: Iterable[str] | str | os.PathLike[str] | None = None,
) -> Screen:
    """Read expression per cell and gene, with the KRAS variant as context.

    Parameters
    ----------
    root : folder, optional
        With GEO's files, packed or not, in a sub-folder ``kras`` or ``GSE161824``.
    genes : names, or a file that lists them, optional
        A gene set; names that were not measured are left out, and listed in ``extra["not measured"]``. A file has one
        name per line, or is a csv with names in its first column (as the paper's ``prolif_ensembl``). By default all.
    variants : names, or a file that lists them, optional
        Besides the wild type, which always stays. By default all that change an amino acid.
    """
    paths = locate(SOURCE, list(SOURCE.remotes), root=root)
    path = {name.removeprefix("GSE161824_A549_KRAS.").removesuffix(".gz"): paths[name] for name in paths}
    all_genes, cells = (_lines(path[f"processed.{what}.csv"]) for what in ("genes", "cells"))
    labels = _labels(path["variants2cell.csv"]).reindex(cells)
    chosen = set(names_in(variants)) | {CONTROL} if variants is not None else None
    if chosen is not None and chosen - set(labels):
        raise ValueError(
            f"no cells with the variants {sorted(chosen - set(labels))[:5]}; see {path['variants2cell.csv']}"
        )
    rows = np.flatnonzero([keeps(label) and (chosen is None or label in chosen) for label in labels])
    wanted = list(dict.fromkeys(names_in(genes))) if genes is not None else all_genes
    place = {name: j for j, name in enumerate(all_genes)}
    columns = [place[name] for name in wanted if name in place]
    if not columns or not len(rows):
        raise ValueError(f"nothing is left of {path['processed.matrix.mtx']}: {len(columns)} genes, {len(rows)} cells")
    X = _matrix(path["processed.matrix.mtx"], len(cells), len(all_genes), rows, np.array(columns))
    names, obs = tuple(all_genes[j] for j in columns), pd.DataFrame({"cell": np.array(cells)[rows]})
    unmeasured = {"not measured": [name for name in wanted if name not in place]}
    return Screen("kras", X, labels.to_numpy()[rows].astype(str), CONTROL, names, obs, unmeasured)


def keeps(label: Any) -> bool:
    """Return True if a cell takes part: it has one variant, which changes an amino acid, or the wild type.

    >>> [keeps(label) for label in ("WT", "G12D", "T58T", "AG11TD", "unassigned", "multiple", float("nan"))]
    [True, True, False, True, False, False, False]
    """
    if not isinstance(label, str) or label in UNASSIGNED:
        return False
    change = re.fullmatch(r"([A-Z]+)\d+([A-Z]+)", label)
    return change is None or change[1] != change[2]


def names_in(given: Iterable[str] | str | os.PathLike[str]) -> list[str]:
    """Return names as given, or from a file: one per line, or the first column of a csv with a heading."""
    if not isinstance(given, str | os.PathLike):
        return [str(name) for name in given]
    path = Path(given)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path} (names are given as a list, or as a file that lists them)")
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if any("," in line for line in lines[:1]):
        return pd.read_csv(path).iloc[:, 0].astype(str).tolist()
    return lines


def _lines(path: Path) -> list[str]:
    """Return the only column of a table without a heading."""
    return pd.read_csv(path, header=None, dtype=str, keep_default_na=False)[0].tolist()


def _labels(path: Path) -> pd.Series:
    table = pd.read_csv(path, sep="\t", usecols=["cell", "variant"], dtype=str, keep_default_na=False)
    return table.drop_duplicates("cell").set_index("cell")["variant"]


def _matrix(path: Path, n_cells: int, n_genes: int, rows: np.ndarray, columns: np.ndarray) -> Any:
    """Read chosen cells × genes, dense if most entries are there."""
    try:
        *shape, _, form, _, _ = io.mminfo(path)
    except ValueError as error:
        raise ValueError(f"{path} is no MatrixMarket file: {error}") from None
    if shape not in ([n_cells, n_genes], [n_genes, n_cells]):
        raise ValueError(f"{path} is {shape[0]} × {shape[1]}, but there are {n_cells} cells and {n_genes} genes")
    upright = shape == [n_cells, n_genes]
    if form == "array":
        whole = np.asarray(io.mmread(path))
        return (whole if upright else whole.T)[np.ix_(rows, columns)]
    names = ["cell", "gene", "value"] if upright else ["gene", "cell", "value"]
    # the line of sizes, the first that is no comment, stands where a heading would
    with pd.read_csv(path, sep=r"\s+", comment="%", header=0, names=names, chunksize=_ENTRIES) as parts:
        found = pd.concat([part[part["cell"].isin(rows + 1) & part["gene"].isin(columns + 1)] for part in parts])
    at = found["cell"].to_numpy() - 1, found["gene"].to_numpy() - 1
    X = sparse.csr_matrix((found["value"].to_numpy(dtype=float), at), shape=(n_cells, n_genes))[rows][:, columns]
    return X.toarray() if X.nnz > 0.4 * X.shape[0] * X.shape[1] else X
