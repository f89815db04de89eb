"""Data that the commands read, and single files that they write."""

import csv
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from latentdag.cli.limits import bounded_memory
from latentdag.data import labels as lb
from latentdag.data import stream
from latentdag.data.moments import Moments
from latentdag.data.sources.delimited import is_delimited
from latentdag.data.sources.opening import open_source
from latentdag.data.sources.reader import reading
from latentdag.data.store import write_atomically
from latentdag.model.model import LatentModel
from latentdag.model.simulate import sample


def read_moments(
    path: Path,
    context_column: str,
    control: str,
    *,
    layer: str | None = None,
    adjust: str = "",
    checkpoint: Path | None = None,
    progress: bool | None = None,
) -> Moments:
    """Moments from a ``.npz`` of moments, or from one row per sample in any format that can be streamed.

    Raises
    ------
    ValueError, OSError
        Naming the file and what is wrong with it.
    """
    if path.suffix == ".npz":
        return Moments.load(path)
    names = [name.strip() for name in adjust.split(",") if name.strip()]
    with reading(path):
        return stream.moments(
            path,
            context_column,
            _control(path, context_column, layer, control),
            layer=layer,
            adjust=names or None,
            checkpoint=checkpoint,
            progress=progress,
        )


def _control(path: Path, context_column: str, layer: str | None, control: str) -> Hashable:
    """The label that the user's text means: labels of parquet and AnnData can be numbers. Never a guess."""
    if control and is_delimited(path):
        return control  # text tables have text labels
    with bounded_memory(path):
        reader = open_source(path, context_column, layer=layer)
    try:
        counts = pd.Series(reader.labels).value_counts()
    finally:
        reader.close()
    if not control:
        listed = ", ".join(f"{str(label)!r} ({n})" for label, n in counts.items())
        raise ValueError(f"name the control context with --control; the labels present are {listed}")
    meant = [label for label in counts.index if str(label) == control]
    return lb.as_label(meant[0]) if len(meant) == 1 else control


def write_text(path: Path, text: str) -> Path:
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def write_csv(path: Path, table: pd.DataFrame) -> Path:
    """Write a table as csv that a spreadsheet shows and does not run.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return could be taken for a formula, so it
    gets an apostrophe in front, in cells and in the header. Numbers stay numbers. Parquet and JSON need no such care.
    """
    shown = table.apply(lambda column: column if is_numeric_dtype(column) else column.astype(object).map(_harmless))
    shown.columns = [_harmless(name) for name in table.columns]
    text = shown.to_csv(index=False)
    if "\r" in text:  # unquoted, it would end the row
        text = shown.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    return write_text(path, text)


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def write_figure(path: Path, figure: Any) -> Path:
    """Save a matplotlib figure in the format of the path's suffix, without wide margins, the same bytes every time."""
    kind = path.suffix[1:]
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "latentdag"}):
        metadata = {"Date": None} if kind == "svg" else None
        write_atomically(
            path, lambda file: figure.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
        )
    return path


#: Files of a simulated screen: samples, their moments, and the model they came from.
SCREEN = ("samples.csv", "moments.npz", "truth.npz")


def write_screen(folder: Path, truth: LatentModel, n: int, seed: int, noise: str) -> Moments:
    """Write samples of every context as csv, their moments, and the model they came from; returns the moments."""
    X, contexts = sample(truth, n, [seed, 1], noise)
    table = pd.DataFrame(X, columns=list(truth.feature_names))
    table.insert(0, "context", contexts)
    m = Moments.from_samples(X, contexts, control=truth.control, feature_names=truth.feature_names)
    write_csv(folder / SCREEN[0], table)
    m.save(folder / SCREEN[1])
    truth.save(folder / SCREEN[2])
    return m
