"""Text tables, .csv and .tsv, also compressed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentdag import labels as lb
from latentdag.stream.reader import Reader, file_identity, rebatch
from latentdag.stream.tables import feature_columns

#: Values parsed at a time.
_VALUES = 4_000_000

#: What a missing number looks like.
_GAPS = ("", "NA", "NaN", "nan", "N/A", "null")

_UNREADABLE = (ValueError, OSError, EOFError, pd.errors.ParserError)


def is_delimited(path: Path) -> bool:
    """Whether the name says that this is a text table."""
    return any(suffix in (".csv", ".tsv", ".txt") for suffix in path.suffixes[-2:])


class DelimitedReader(Reader):
    """Rows of a text table with a header. Labels stay text: a context called "007" or "NA" is no number and no gap.

    Parameters
    ----------
    path : file
        Separated by commas if its name says .csv, else by tabs.
    contexts : name of a column, or (n,) labels
    others : names of columns that are not features either
    """

    def __init__(self, path: Path, contexts: Any, others: Sequence[str] = ()):
        self.path, self.name = path, str(path)
        self.separator = "," if ".csv" in path.suffixes else "\t"
        self.names = [str(name) for name in self._read(nrows=0).columns]
        self._check_header()
        self.all_features = feature_columns(self.name, self.names, contexts, others)
        if lb.is_single(contexts):
            self.labels = self._aligned(self._read(usecols=[contexts], dtype=str))[contexts]
            self.n_rows = len(self.labels)
        else:
            self.labels, self.n_rows = contexts, len(contexts)

    def _read(self, gaps: Sequence[str] = ("",), **options: Any) -> Any:
        try:
            return pd.read_csv(self.path, sep=self.separator, keep_default_na=False, na_values=list(gaps), **options)
        except _UNREADABLE as error:
            raise ValueError(f"{self.path} cannot be read as a table: {_one_line(error)}") from None

    def _check_header(self) -> None:
        """Complain about names that repeat: pandas would number them."""
        header = self._read(header=None, nrows=1, dtype=str).iloc[0].dropna()
        if header.duplicated().any():
            raise ValueError(f"{self.path}: column {header[header.duplicated()].iloc[0]!r} occurs more than once")

    def _chosen_already(self) -> bool:
        return True

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        wanted = list(self.all_features) if self.chosen is None else [self.all_features[j] for j in self.chosen]
        size = max(1, min(step, _VALUES // max(len(wanted), 1)))
        # Lines are not rows where text is quoted, so rows before the start are read and dropped, not skipped.
        yield from rebatch(self._pieces(wanted, size), step, start)

    def _pieces(self, wanted: Sequence[str], size: int) -> Iterator[np.ndarray]:
        # The default parser is off by a last digit now and then; then csv and parquet of the same data would differ.
        # Lines with too many fields are found only where all columns are read; so are most, unless few are wanted.
        some = wanted if 2 * len(wanted) < len(self.names) else None
        with self._read(_GAPS, usecols=some, chunksize=size, float_precision="round_trip") as chunks:
            row = 0
            while True:
                try:
                    part = next(chunks)
                except StopIteration:
                    return
                except _UNREADABLE as error:
                    raise ValueError(f"{self.path} cannot be read after row {row}: {_one_line(error)}") from None
                yield self._numbers(self._aligned(part)[wanted], row)
                row += len(part)

    def _aligned(self, part: pd.DataFrame) -> pd.DataFrame:
        """Where lines have more fields than the header, pandas takes the first ones as row names: not here."""
        if not isinstance(part.index, pd.RangeIndex):
            raise ValueError(f"{self.path}: rows have more fields than the header has names ({len(self.names)})")
        return part

    def _numbers(self, part: pd.DataFrame, first: int) -> np.ndarray:
        for name, dtype in part.dtypes.items():
            if not pd.api.types.is_numeric_dtype(dtype):
                bad = pd.to_numeric(part[name], errors="coerce").isna() & part[name].notna()
                row = int(np.argmax(bad))
                raise ValueError(
                    f"{self.path}: feature column {name!r} holds {part[name].iloc[row]!r} in row {first + row}, not a "
                    "number: correct it, drop the column, or choose the features with features=[…]"
                )
        return part.to_numpy(dtype=float)

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        return self._read(_GAPS, usecols=list(names), float_precision="round_trip")[list(names)]

    def identity(self) -> dict[str, str]:
        return file_identity(self.path)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
