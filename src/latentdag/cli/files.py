"""Single files that the commands write, each whole or not at all."""

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from pandas.api.types import is_numeric_dtype

from latentdag import pl
from latentdag.data.store import to_plain, write_atomically
from latentdag.optional import optional


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
