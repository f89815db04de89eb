"""Tables with one row per sample: pandas, polars and pyarrow in memory, parquet on disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.matrices import numbers
from latentdag.data.sources.reader import Reader, naming_source, path_identity, rebatch
from latentdag.optional import optional


def feature_columns(
    where: str, names: Sequence[Any], contexts: Any, others: Sequence[str], row_names: Sequence[str] = ()
) -> list[Any]:
    """Return the columns of a table that are neither contexts nor covariates nor row names.

    Raises
    ------
    ValueError
        If the table has no such context or covariate, or columns without a name or with the same one.
    """
    with naming_source(where):
        lb.check_names([name for name in names if name not in row_names], "column")
    named = ([contexts] if lb.is_single(contexts) else []) + list(others)
    for column in named:
        if column not in names:
            raise ValueError(f"{where} has no column {column!r}; its columns are {lb.listed(names)}")
    return [name for name in names if name not in (*named, *row_names)]


class TableReader(Reader):
    """Rows of a table in memory.

    Parameters
    ----------
    table : DataFrame (pandas or polars) or pyarrow Table
    contexts : name of a column, or (n,) labels
    others : names of columns that are not features either
    """

    selects = True

    def __init__(self, table: Any, contexts: Any, others: Sequence[str] = ()):
        self.name = "the table"
        self.table = table
        self.n_rows = len(table)
        self.arrow = hasattr(table, "column_names")
        if getattr(getattr(table, "columns", None), "nlevels", 1) > 1:
            raise ValueError(
                "the table has columns with names of several levels: join them first, for instance "
                "table.columns = ['.'.join(map(str, name)) for name in table.columns]"
            )
        names = list(table.column_names if self.arrow else table.columns)
        index = _index_columns(table.schema) if self.arrow else ()
        self.all_features = feature_columns(self.name, names, contexts, others, index)
        self.labels = self.labelled(contexts)

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        if isinstance(self.table, pd.DataFrame):
            frame = pd.DataFrame({name: self.table[name] for name in self.wanted})  # [wanted] fails on foreign bytes
            parts = (frame.iloc[first : first + step] for first in range(start, self.n_rows, step))
        else:
            table = self.table.select(self.wanted)
            parts = (_columns_of(table.slice(first, step), self.wanted) for first in range(start, self.n_rows, step))
        yield from (numbers(part, self.name) for part in parts)

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        found = {name: self.table[name] for name in names}
        if isinstance(self.table, pd.DataFrame):
            return pd.DataFrame(found).reset_index(drop=True)
        return pd.DataFrame({name: c.to_pandas() if self.arrow else c.to_list() for name, c in found.items()})


class ParquetReader(Reader):
    """Rows of a parquet file, or of all parquet files of a folder in the order of their names.

    Parameters
    ----------
    path : file or folder
    contexts : name of a column, or (n,) labels
    others : names of columns that are not features either
    """

    selects = True

    def __init__(self, path: Path, contexts: Any, others: Sequence[str] = ()):
        self.path, self.name = path, str(path)
        parquet = optional("pyarrow.parquet", "big", f"reading {path}")
        self.paths = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        self.files = [parquet.ParquetFile(file) for file in self.paths]
        schema = self.files[0].schema_arrow
        for file, part in zip(self.paths, self.files, strict=True):
            if part.schema_arrow.names != schema.names:
                raise ValueError(f"{file} has other columns than {self.paths[0]}: all files must be alike")
        self.n_rows = sum(file.metadata.num_rows for file in self.files)
        self.all_features = feature_columns(self.name, schema.names, contexts, others, _index_columns(schema))
        self.labels = self.labelled(contexts)

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        wanted, skip = self.wanted, start
        groups: list[tuple[Any, int]] = []
        for file in self.files:  # whole row groups before the start need not be read
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if skip >= rows and not groups:
                    skip -= rows
                else:
                    groups.append((file, group))
        pieces = (
            numbers(_columns_of(batch, wanted), self.name)
            for file, group in groups
            for batch in file.iter_batches(batch_size=min(step, 16384), row_groups=[group], columns=wanted)
        )
        yield from rebatch(pieces, step, skip)

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        return pd.concat([file.read(columns=list(names)).to_pandas() for file in self.files], ignore_index=True)

    def identity(self) -> dict[str, str]:
        return path_identity(self.path, self.paths)

    def close(self) -> None:
        for file in self.files:
            file.close()


def _index_columns(schema: Any) -> Sequence[str]:
    """Return the columns in which pandas keeps its row names."""
    meta = schema.pandas_metadata or {}
    return [column for column in meta.get("index_columns", []) if isinstance(column, str)]


def _columns_of(part: Any, names: Sequence[Any]) -> pd.DataFrame:
    """Return a piece of a polars or pyarrow table as a DataFrame; nulls become NaN."""
    if type(part).__module__.startswith("pyarrow"):
        return part.to_pandas()
    return pd.DataFrame({name: part[name].to_numpy() for name in names})
