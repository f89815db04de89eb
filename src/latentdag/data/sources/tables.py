"""Tables with one row per sample: pandas, polars and pyarrow in memory; parquet, .csv and .tsv on disk."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from pandas.io.common import get_handle

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
    check_columns(where, names, named)
    return [name for name in names if name not in (*named, *row_names)]


def check_columns(where: str, names: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Complain about columns that a table does not have."""
    for column in wanted:
        if column not in names:
            raise ValueError(f"{where} has no column {column!r}; its columns are {lb.listed(names)}")


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
        groups = [(file, group) for file in self.files for group in range(file.metadata.num_row_groups)]
        while groups and skip >= (rows := groups[0][0].metadata.row_group(groups[0][1]).num_rows):
            skip, groups = skip - rows, groups[1:]  # whole row groups before the start need not be read
        pieces = (
            numbers(_columns_of(batch, wanted), self.name)
            for file, group in groups
            for batch in file.iter_batches(batch_size=min(step, 16384), row_groups=[group], columns=wanted)
        )
        yield from rebatch(pieces, step, skip)

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        check_columns(self.name, self.files[0].schema_arrow.names, names)
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


#: Values parsed at a time.
_VALUES = 4_000_000

#: Texts that stand for a missing number.
_GAPS = ("", "NA", "NaN", "nan", "N/A", "null")

#: Options with which pandas reads numbers to the last digit. By default it was off by one now and then, so that csv and
#: parquet of the same data differed. Since 3.1 it is always exact, and has no such option.
_ALWAYS_EXACT = tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)
EXACT: dict[str, Any] = {} if _ALWAYS_EXACT else {"float_precision": "round_trip"}

_UNREADABLE = (ValueError, OSError, EOFError, pd.errors.ParserError)

#: Characters that separate columns, here and elsewhere.
_MARKS = ",;\t|"


def is_delimited(path: Path) -> bool:
    """Return True if the name says that this is a text table."""
    return any(suffix in (".csv", ".tsv", ".txt") for suffix in path.suffixes[-2:])


def separator(path: Path) -> str:
    """Return a comma if the name says .csv, else a tab."""
    return "," if ".csv" in path.suffixes else "\t"


class _Checked:
    """A file of bytes in which NUL is an error. Without this, pandas would end the cell there and go on."""

    def __init__(self, file: Any):
        self.file, self.done = file, 0

    def __iter__(self) -> Iterator[bytes]:  # or pandas takes it for no file
        return iter(self.file)

    def read(self, size: int = -1) -> bytes:
        part: bytes = self.file.read(size)
        place = part.find(b"\0")
        if place >= 0:
            raise ValueError(f"byte {self.done + place} is NUL: remove it; or, if the file is UTF-16, save it as UTF-8")
        self.done += len(part)
        return part


@contextmanager
def _parsing(path: Path, gaps: Sequence[str], **options: Any) -> Iterator[Any]:
    """Yield what pandas makes of a text table, also compressed, while its file is open."""
    with get_handle(path, "rb", compression="infer", is_text=False) as opened:
        file: Any = _Checked(opened.handle)
        try:
            missing = {"keep_default_na": False, "na_values": list(gaps)}
            made = pd.read_csv(file, sep=separator(path), **EXACT, **missing, **options)
        except _UNREADABLE as error:
            raise ValueError(f"{path} cannot be read as a table: {one_line(error)}") from None
        yield made


def read_table(path: Path, gaps: Sequence[str] = ("",), **options: Any) -> pd.DataFrame:
    """Read a text table whole, or some of its columns; only the texts in ``gaps`` are missing values."""
    with _parsing(path, gaps, **options) as table:
        return cast(pd.DataFrame, table)


def read_header(path: Path) -> list[str]:
    """Return the names in the first line, before pandas could rename any.

    Raises
    ------
    ValueError
        If there is one name only, and it holds what others separate columns by.
    """
    names = [str(name) for name in read_table(path, (), header=None, nrows=1, dtype=str).iloc[0]]
    other = next((mark for mark in _MARKS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        raise ValueError(
            f"{path} should be separated by {separator(path)!r}, but its header is {names[0][:60]!r}: is it separated "
            f"by {other!r}? Write it with commas as .csv, or with tabs as .tsv"
        )
    return names


class DelimitedReader(Reader):
    """Rows of a text table with a header. Labels stay text: a context called "007" or "NA" is no number and no gap.

    Parameters
    ----------
    path : file
        See :func:`separator`.
    contexts : name of a column, or (n,) labels
    others : names of columns that are not features either
    """

    selects = True

    def __init__(self, path: Path, contexts: Any, others: Sequence[str] = ()):
        self.path, self.name = path, str(path)
        self.names = read_header(path)
        self.all_features = feature_columns(self.name, self.names, contexts, others)
        if lb.is_single(contexts):
            self.labels = self._aligned(read_table(path, usecols=[contexts], dtype=str))[contexts]
            self.n_rows = len(self.labels)
        else:
            self.labels, self.n_rows = contexts, len(contexts)

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        size = max(1, min(step, _VALUES // max(len(self.wanted), 1)))
        # Lines are not rows where text is quoted, so rows before the start are read and dropped, not skipped.
        yield from rebatch(self._pieces(self.wanted, size), step, start)

    def _pieces(self, wanted: Sequence[str], size: int) -> Iterator[np.ndarray]:
        # Lines with too many fields are found only where all columns are read; so are most, unless few are wanted.
        some = wanted if 2 * len(wanted) < len(self.names) else None
        with _parsing(self.path, _GAPS, usecols=some, chunksize=size) as chunks:
            row = 0
            while True:
                try:
                    part = next(chunks)
                except StopIteration:
                    return
                except _UNREADABLE as error:
                    raise ValueError(f"{self.path} cannot be read after row {row}: {one_line(error)}") from None
                yield self._numbers(self._aligned(part)[wanted], row)
                row += len(part)

    def _aligned(self, part: pd.DataFrame) -> pd.DataFrame:
        """Return the part; refuse lines with more fields than the header, which pandas would take for row names."""
        if not isinstance(part.index, pd.RangeIndex):
            raise ValueError(
                f"{self.path}: rows have more fields than the header has names ({len(self.names)}): name every column, "
                "or write the table without row names"
            )
        return part

    def _numbers(self, part: pd.DataFrame, first: int) -> np.ndarray:
        for name, dtype in part.dtypes.items():
            if not pd.api.types.is_numeric_dtype(dtype):
                bad = pd.to_numeric(part[name], errors="coerce").isna() & part[name].notna()
                row = int(np.argmax(bad))
                raise ValueError(
                    f"{self.path}: feature column {name!r} holds {part[name].iloc[row]!r} in row {first + row}, not a "
                    "number: correct it, drop the column, or choose features with features=[…], --features or --drop"
                )
        return part.to_numpy(dtype=float)

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        check_columns(self.name, self.names, names)
        return read_table(self.path, _GAPS, usecols=list(names))[list(names)]


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
