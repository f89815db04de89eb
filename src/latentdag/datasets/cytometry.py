"""Flow cytometry of 11 phospho-proteins in human T cells, 14 conditions.

Sachs et al., *Causal protein-signaling networks derived from multiparameter single-cell data* (Science, 2005),
supporting data. Two controls differ from each other: compare each inhibitor with its own, never pool. In most
conditions more than one latent changes (``docs/sachs.md``): here the membership test should say no.

Read are one csv per condition (``cd3cd28_u0126.csv``), or the published spreadsheets (``6. cd3cd28+u0126.xls``, which
need the package xlrd).
"""

import os

import numpy as np
import pandas as pd

from latentdag.datasets.containers import FACTS, Screen, Source, locate
from latentdag.optional import optional

SOURCE = Source.of("sachs")
CONDITIONS: list[str] = FACTS["sachs"]["conditions"]

CONTROLS = ("cd3cd28", "cd3cd28icam2")


def sachs(
    root: str | os.PathLike[str] | None = None, control: str | None = "cd3cd28", *, log: bool = True
) -> Screen:  # fmt: skip
    """Read one control and the inhibitors that were added to it.

    Parameters
    ----------
    root : folder, optional
        With one csv per condition in a sub-folder ``sachs`` or ``sachs2005``.
    control : "cd3cd28", "cd3cd28icam2" or None
        None gives all 14 conditions, with no control named.
    log : bool
        Natural logarithms, on which the measurements are far closer to Gaussian.
    """
    if control is not None and control not in CONTROLS:
        raise ValueError(f"control must be one of {', '.join(map(repr, CONTROLS))} or None, got {control!r}")
    names = [c for c in CONDITIONS if control is None or c == control or c.startswith(f"{control}_")]
    sheets = [f"{CONDITIONS.index(name) + 1}. {name.replace('_', '+')}.xls" for name in names]
    paths = locate(SOURCE, [f"{name}.csv" for name in names], sheets, root=root)
    if list(paths) == sheets:
        optional("xlrd", "datasets", "reading the spreadsheets of Sachs et al.")
    read = pd.read_excel if list(paths) == sheets else pd.read_csv
    tables = {file: read(path) for file, path in paths.items()}
    # the same proteins in the same order, but not always spelt alike: the first file names them
    first = next(iter(tables))
    features = tuple(map(str, tables[first].columns))
    for file, table in tables.items():
        if len(table.columns) != len(features):
            raise ValueError(f"{file} has {len(table.columns)} columns, {first} has {len(features)}")
    X = np.vstack([table.to_numpy(dtype=float) for table in tables.values()])
    if log:
        if not (X > 0).all():
            raise ValueError("some measurements are not positive and have no logarithm: pass log=False")
        X = np.log(X)
    labels = np.repeat(np.array(names), [len(table) for table in tables.values()])
    return Screen("sachs", X, labels, control, features, pd.DataFrame(index=range(len(X))))
