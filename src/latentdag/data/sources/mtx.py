"""Folders with ``matrix.mtx``, ``barcodes.tsv``, ``features.tsv`` (or ``genes.tsv``) and a table of labels.

The table of labels is the one other .csv or .tsv file of the folder: barcodes in its first column, and a column of
contexts. Any of the files may be gzipped. The matrix is features × cells, as 10x Genomics writes it, or the other way
round; entries in the order of the cells are streamed, others are read whole (as a sparse matrix).
"""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from latentdag.data import labels as lb
from latentdag.data.sources.reader import Reader, digest, rebatch
from latentdag.data.sources.tables import EXACT, feature_columns, is_delimited, one_line, read_header, read_table

#: Entries parsed at a time.
_ENTRIES = 2_000_000

#: Lines of numbers, read to the last digit; the line of sizes, the first that is no comment, stands as a heading.
_PLAIN: dict[str, Any] = {"sep": r"\s+", "comment": "%", "header": 0, **EXACT}


def find_packed(folder: Path, *names: str) -> Path | None:
    """Return the first of these files that a folder has, as it is or gzipped, or None."""
    paths = (folder / (name + end) for name in names for end in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


class MtxReader(Reader):
    """Cells of a folder of matrix, barcodes, features and labels.

    Parameters
    ----------
    folder : path
    contexts : name of a column of the table of labels, or (n,) labels
    """

    sparse = True

    def __init__(self, folder: Path, contexts: Any):
        self.folder, self.name = folder, str(folder)
        self.path = self._need("matrix.mtx")
        self.barcodes = self._names("barcodes.tsv", "cells.tsv", column=0)
        self.all_features = self._names("features.tsv", "genes.tsv", column=1)
        self.n_rows = len(self.barcodes)
        self.labels = self._labelled([contexts], [contexts])[contexts] if lb.is_single(contexts) else contexts
        self._read_header()
        self.whole: Any = None

    def _need(self, *names: str) -> Path:
        found = find_packed(self.folder, *names)
        if found is None:
            raise ValueError(f"{self.folder} has no {names[0]} (or {names[0]}.gz)")
        return found

    def _names(self, *files: str, column: int) -> list[str]:
        table = read_table(self._need(*files), (), header=None, dtype=str)
        # Features have an identifier, then a name, where there are two columns. Names repeat now and then.
        names = table[min(column, table.shape[1] - 1)]
        if column and not names.is_unique:
            names = table[0]
        return list(names)

    def _read_header(self) -> None:
        """Read the size and the kind of the matrix."""
        from scipy import io  # slow to import, and few need it

        try:
            rows, columns, _, form, field, symmetry = io.mminfo(self.path)
        except ValueError as error:
            raise ValueError(
                f"{self.path} is no general coordinate matrix; its header should give the matrix's size: {error}"
            ) from None
        if (form, symmetry) != ("coordinate", "general"):
            raise ValueError(f"{self.path} is no general coordinate matrix: its header says {form} and {symmetry}")
        expected = (len(self.all_features), self.n_rows)
        if (rows, columns) not in (expected, expected[::-1]):
            raise ValueError(
                f"{self.path} is {rows} × {columns}, but there are {expected[0]} features and {expected[1]} barcodes"
            )
        self.pattern, self.cells_in_columns = field == "pattern", (rows, columns) == expected

    def _blocks(self, step: int, start: int) -> Iterator[Any]:
        if self.whole is None and not self._sorted_by_cell():
            self.whole = self._rows(pd.concat(self._entries()), 0, self.n_rows)
        if self.whole is not None:
            yield from (self.whole[first : first + step] for first in range(start, self.n_rows, step))
        else:
            yield from rebatch(self._pieces(), step, start)

    def _sorted_by_cell(self) -> bool:
        entries = self._entries()
        first = next(entries, None)
        entries.close()
        return first is None or bool(first["cell"].is_monotonic_increasing)

    def _entries(self) -> Generator[pd.DataFrame]:
        """Yield cell, feature (both from one) and value of the entries, a piece at a time."""
        names = ["feature", "cell", "value"] if self.cells_in_columns else ["cell", "feature", "value"]
        try:
            with pd.read_csv(self.path, names=names, chunksize=_ENTRIES, **_PLAIN) as parts:
                yield from (self._checked(part) for part in parts if len(part))
        except (OSError, EOFError, TypeError, pd.errors.ParserError) as error:
            raise ValueError(f"{self.path} cannot be read: {one_line(error)}") from None

    def _checked(self, part: pd.DataFrame) -> pd.DataFrame:
        for name, dtype in part.dtypes.items():
            if not pd.api.types.is_numeric_dtype(dtype) or (name != "value" and dtype.kind not in "iu"):
                bad = part.index[~pd.to_numeric(part[name], errors="coerce").mod(1).eq(0)][0]
                raise ValueError(f"{self.path} cannot be read: entry {bad + 1} has the {name} {part[name][bad]!r}")
        for name, size in (("cell", self.n_rows), ("feature", len(self.all_features))):
            outside = part[name][~part[name].between(1, size)]
            if len(outside):
                raise ValueError(f"{self.path} has an entry for {name} {outside.iloc[0]}, but there are {size}")
        return part.assign(value=1.0 if self.pattern else part["value"].astype(float))

    def _pieces(self) -> Iterator[Any]:
        """Yield rows of complete cells, as far as the entries read so far go."""
        done = 0  # cells handed out
        held = pd.DataFrame({"cell": np.empty(0, int), "feature": np.empty(0, int), "value": np.empty(0)})
        for more in self._entries():
            held = pd.concat([held, more])
            if not held["cell"].is_monotonic_increasing:
                raise ValueError(
                    f"{self.path}: entries are in the order of the cells at first, but not throughout: sort them"
                )
            last = int(held["cell"].iloc[-1])  # this cell may go on in the next piece
            cut = int(held["cell"].searchsorted(last))
            if last - 1 > done:
                yield self._rows(held[:cut], done, last - 1)
                done, held = last - 1, held[cut:]
        yield self._rows(held, done, self.n_rows)

    def _rows(self, part: pd.DataFrame, first: int, stop: int) -> Any:
        """Return the cells from ``first`` up to ``stop`` (both from zero) as csr."""
        at = part["cell"].to_numpy() - 1 - first, part["feature"].to_numpy() - 1
        return sparse.csr_matrix((part["value"].to_numpy(), at), shape=(stop - first, len(self.all_features)))

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        return self._labelled(names, text=())

    def _labelled(self, names: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
        """Return columns of the table of labels, in the order of the barcodes; those in ``text`` as text."""
        path = self._labels_file()
        header = read_header(path)
        header[0] = header[0] or "barcode"  # row names need none
        feature_columns(str(path), header, (), names)  # refuses bad names, and columns that are not there
        table = read_table(path, header=0, names=header, dtype=dict.fromkeys((header[0], *text), str))
        table.index = pd.Index(table[header[0]])
        if not table.index.is_unique:
            raise ValueError(f"{path}: barcode {table.index[table.index.duplicated()][0]!r} occurs more than once")
        without = set(self.barcodes) - set(table.index)
        if without:
            first = next(code for code in self.barcodes if code in without)
            raise ValueError(f"{path} has no row for {len(without)} of {self.n_rows} barcodes (the first is {first!r})")
        return table.loc[self.barcodes, list(names)].reset_index(drop=True)

    def _labels_file(self) -> Path:
        known = ("matrix.", "barcodes.", "cells.tsv", "features.", "genes.")
        found = [p for p in sorted(self.folder.iterdir()) if is_delimited(p) and not p.name.startswith(known)]
        if len(found) != 1:
            listed = ", ".join(p.name for p in found) or "none"
            raise ValueError(
                f"{self.folder} must have one .csv or .tsv table of labels beside its matrix, found {listed}: or pass "
                "one label per barcode as contexts"
            )
        return found[0]

    def identity(self) -> dict[str, str]:
        return {**super().identity(), "barcodes": digest(self.barcodes)}
