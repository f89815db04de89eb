"""TCGA lung adenocarcinoma: expression and overall survival (open tier; cite the TCGA Research Network).

Two layouts are read. ``expression_log2.csv.gz`` has genes (symbols) in rows and samples in columns, log2(1 + RSEM).
UCSC Xena's files, which is what is downloaded and what the paper used, are ``TCGA-LUAD.htseq_fpkm.tsv.gz``,
log2(1 + FPKM) by Ensembl identifier, and ``gencode.v22.annotation.gene.probeMap`` with the symbols. Survival is Xena's
``TCGA-LUAD.survival.tsv`` in both, with its older (``_OS``, ``_OS_IND``) or newer (``OS.time``, ``OS``) column names.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from latentdag.datasets.containers import Cohort, Source, locate

SURVIVAL, RSEM = "TCGA-LUAD.survival.tsv", "expression_log2.csv.gz"
FPKM, SYMBOLS = "TCGA-LUAD.htseq_fpkm.tsv.gz", "gencode.v22.annotation.gene.probeMap"

SOURCE = Source.of("tcga_luad")

#: Characters of a barcode that name the patient, and the two after them that tell tumour (01) from normal (11).
_PATIENT = 12

#: Xena's older and newer names of the columns of time and event.
_COLUMNS = (("_OS", "_OS_IND"), ("OS.time", "OS"))


def tcga_luad(root: str | os.PathLike[str] | None = None, genes: Iterable[str] | None = None) -> Cohort:
    """Read primary tumours with expression and survival, one per patient.

    Parameters
    ----------
    root : folder, optional
        With the files in a sub-folder ``tcga_luad``.
    genes : symbols, optional
        Only these, as far as they are measured. By default all.

    Returns
    -------
    Cohort
        ``expression``: patients × genes, log2(1 + RSEM) or log2(1 + FPKM); ``survival``: time in days, event. Of
        several tumour samples of a patient the first by barcode is taken; who has no positive time is left out.
    """
    wanted = None if genes is None else set(genes)
    paths = locate(SOURCE, [SURVIVAL, RSEM], [SURVIVAL, FPKM, SYMBOLS], root=root)
    if RSEM in paths:
        table = pd.read_csv(paths[RSEM], index_col=0)
        table = table if wanted is None else table.loc[table.index.isin(wanted)]
    else:
        table = _by_symbol(paths[FPKM], paths[SYMBOLS], wanted)
    expression = _tumours(table)
    survival = _survival(paths[SURVIVAL])
    shared = sorted(set(expression.index) & set(survival.index))
    if not shared:
        raise ValueError(f"{paths[SURVIVAL]} has no patient of the expression table: barcodes should match")
    return Cohort("tcga_luad", expression.loc[shared], survival.loc[shared])


def _tumours(table: pd.DataFrame) -> pd.DataFrame:
    """Return patients × genes of primary tumours, from genes × samples."""
    codes = table.columns.astype(str).to_series(range(table.shape[1])).str.replace(".", "-").sort_values(kind="stable")
    tumours = codes[codes.str[_PATIENT + 1 : _PATIENT + 3] == "01"].str[:_PATIENT].drop_duplicates()
    made = table.iloc[:, tumours.index].T
    made.index, made.columns.name = pd.Index(tumours, name="patient"), None
    return made.astype(float)


def _survival(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, sep="\t")
    names = next((list(pair) for pair in _COLUMNS if {*pair, "_PATIENT"} <= set(table.columns)), None)
    if names is None:
        raise ValueError(f"{path} has neither _OS and _OS_IND nor OS.time and OS; it has {list(table.columns)}")
    patients = [str(code).replace(".", "-")[:_PATIENT] for code in table["_PATIENT"]]
    made = table[names].astype(float).set_axis(["time", "event"], axis=1).set_axis(pd.Index(patients, name="patient"))
    made = made[~made.index.duplicated() & made.notna().all(axis=1) & (made["time"] > 0)]
    return made.astype({"event": int})


def _by_symbol(fpkm: Path, symbols: Path, wanted: set[str] | None) -> pd.DataFrame:
    """Return genes (symbols) × samples. Where several identifiers have one symbol, their FPKM are added."""
    names = pd.read_csv(symbols, sep="\t").set_index("id")["gene"]
    parts = []
    with pd.read_csv(fpkm, sep="\t", index_col=0, chunksize=5_000) as blocks:
        for block in blocks:
            symbol = names.reindex(block.index)
            keep = symbol.notna() & (True if wanted is None else symbol.isin(wanted or ()))
            parts.append(np.exp2(block[keep.to_numpy()]).sub(1.0).set_axis(symbol[keep].to_numpy()))
    return np.log2(pd.concat(parts).groupby(level=0).sum() + 1.0)
