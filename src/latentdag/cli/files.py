"""Data that the commands read, and single files that they write, each whole or not at all."""

import csv
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from pandas.api.types import is_numeric_dtype

from latentdag import pl
from latentdag.cli.place import Place
from latentdag.data import labels as lb
from latentdag.data import stream
from latentdag.data.moments import Moments
from latentdag.data.sources.opening import open_source
from latentdag.data.sources.reader import reading
from latentdag.data.sources.tables import is_delimited
from latentdag.data.store import to_plain, write_atomically
from latentdag.data.stream import Samples
from latentdag.optional import optional

#: Address space that opening a file may take at least, and per byte on disk.
LEAST, PER_BYTE = 2**30, 30


def read_moments(
    path: Path, source: Mapping[str, Any], *, place: Place | None = None, progress: bool | None = None
) -> Moments:
    """Read moments from a ``.npz`` of moments, or from one row per sample in any format that can be streamed.

    Parameters
    ----------
    path : the file
    source : how to read it
        What the options context_column, control, layer, adjust, robust, counts and depth say.
    place : where a killed run finds how far it came
    progress
        As for :func:`latentdag.stream.moments`.

    Raises
    ------
    ValueError, OSError
        Naming the file and what is wrong with it.
    """
    if path.suffix == ".npz":
        found = Moments.load(path)
        if source["robust"] and found.outliers is None:
            raise ValueError(f"{path} holds moments, and rows cannot be weighed any more: use --robust on the rows")
        if source["counts"] and found.noise is None:
            raise ValueError(f"{path} holds moments without the noise of counts: use --counts on the rows")
        return found
    kept = None
    if place is not None and not source["robust"]:
        kept = place.unfinished("moments", [str(path.resolve()), source])
    with reading(path):
        column, control, rows = source["context_column"], _control(path, source), _rows(source)
        options = {"robust": source["robust"], "checkpoint": kept, "progress": progress}
        return stream.moments(path, column, control, **options, **rows)


def read_targets(told: str) -> Any:
    """Return the targets that ``--targets`` names: "learn", or the pairs of a csv with a context and a latent a row.

    A context without a latent hits none.
    """
    if told in ("", "learn"):
        return told or None
    with reading(Path(told)):
        table = pd.read_csv(told)
    if table.shape[1] != 2:
        raise ValueError(
            f"{told} must have two columns, contexts and the latents that they hit; it has {table.shape[1]}"
        )
    context, latent = table.columns
    return {label: tuple(mine.dropna().astype(str)) for label, mine in table.groupby(context, sort=False)[latent]}


def read_samples(path: Path, source: Mapping[str, Any]) -> Samples | None:
    """Return the samples behind the moments of a file, to be read once more; None where there are only moments."""
    return None if path.suffix == ".npz" else stream.pieces(path, source["context_column"], **_rows(source))


def _rows(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a source says about single rows, for the functions of :mod:`latentdag.data.stream`."""
    said = {"adjust": listed_names(source["adjust"]) or None, "depth": source["depth"] or None}
    return {**said, "layer": source["layer"], "counts": source["counts"]}


def listed_names(text: str) -> list[str]:
    """Return the names in a list that is separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _control(path: Path, source: Mapping[str, Any]) -> Hashable:
    """Return the label that the user's text means: labels of parquet and AnnData can be numbers. Never a guess."""
    control = str(source["control"])
    if control and is_delimited(path):
        return control  # text tables have text labels
    with bounded_memory(path):
        reader = open_source(path, source["context_column"], layer=source["layer"])
    try:
        counts = pd.Series(reader.labels).value_counts()
    finally:
        reader.close()
    if not control:
        listed = ", ".join(f"{str(label)!r} ({n})" for label, n in counts.items())
        raise ValueError(f"name the control context with --control; the labels present are {listed}")
    meant = [label for label in counts.index if str(label) == control]
    return lb.as_label(meant[0]) if len(meant) == 1 else control


@contextmanager
def bounded_memory(path: Path) -> Iterator[None]:
    """Bound memory in proportion to a file's size while it is opened, where the system can.

    A damaged header can ask for terabytes: then the command should say so, not be killed by the system.
    """
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = sum(part.stat().st_size for part in (path, *path.rglob("*")) if part.is_file())  # of a file or a folder
    wanted = used + max(LEAST, PER_BYTE * size)
    wanted = min([wanted, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path} is damaged: opening it would take far more memory than it has bytes") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def tell(text: str, said: Mapping[str, Any], as_json: bool, wrote: object = "") -> None:
    """Print a result, for people or for programs, and on stderr what was written."""
    typer.echo(json.dumps(to_plain(said)) if as_json else text)
    if wrote:
        typer.echo(f"wrote {wrote}", err=True)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as csv that a spreadsheet shows and does not run.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return could be taken for a formula, so it
    gets an apostrophe in front, in cells and in the header. Numbers stay numbers. Parquet and JSON need no such care.
    """
    shown = table.apply(lambda column: column if is_numeric_dtype(column) else column.astype(object).map(_harmless))
    shown.columns = [_harmless(name) for name in table.columns]
    text = shown.to_csv(index=False)
    if "\r" in text:  # unquoted, it would end the row
        text = shown.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    write_text(path, text)


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Write a table as parquet: nothing of the moment, the machine or the version of pandas goes in."""
    pyarrow: Any = optional("pyarrow", "big", "a parquet file")
    parquet: Any = optional("pyarrow.parquet", "big", "a parquet file")
    columns = pyarrow.Table.from_pandas(pd.DataFrame(table), preserve_index=False).replace_schema_metadata(None)
    write_atomically(path, lambda file: parquet.write_table(columns, file, version="2.6", row_group_size=2**20))


def write_figure(path: Path, figure: Any, kinds: Sequence[str] = ("svg", "png")) -> None:
    """Write a matplotlib figure to files, and close it.

    Parameters
    ----------
    path : without suffix
    kinds : suffixes of the files to write
    """
    import matplotlib.pyplot as plt

    for kind in kinds:
        write_atomically(path.with_name(f"{path.name}.{kind}"), partial(pl.save, figure, kind=kind))
    plt.close(figure)
