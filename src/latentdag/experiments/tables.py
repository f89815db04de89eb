"""Tables of a summary: computed from the rows of a run, and shown in markdown."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

#: A table: its lines, each with values by column.
Table = list[dict[str, Any]]

#: A column of a table, computed from the rows of one group.
Column = Callable[[pd.DataFrame], Any]


def table_by(rows: pd.DataFrame, by: Sequence[str], columns: Mapping[str, Column]) -> Table:
    """Group rows, in the order in which groups appear, and compute every column of each group.

    Examples
    --------
    >>> table_by(pd.DataFrame({"n": [2, 1, 2]}), ["n"], {"rows": len})
    [{'n': 2, 'rows': 2}, {'n': 1, 'rows': 1}]
    """
    return [
        {**dict(zip(by, values, strict=True)), **{name: column(part) for name, column in columns.items()}}
        for values, part in rows.groupby(list(by), sort=False)
    ]


def mean_or_none(values: pd.Series) -> float | None:
    """Return the mean of the known values, or None where there are none.

    Examples
    --------
    >>> mean_or_none(pd.Series([True, False, None])), mean_or_none(pd.Series([None]))
    (0.5, None)
    """
    known = values.dropna().astype(float)
    return float(known.mean()) if len(known) else None


def mean_of(name: str) -> Column:
    """Return the column of a table with the mean of the known values of a column of the rows."""
    return lambda rows: mean_or_none(rows[name])


def markdown_table(table: Table) -> list[str]:
    """Return the lines of a table."""
    if not table:
        return ["(empty)"]
    columns = list(table[0])
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(_shown(row.get(name)) for name in columns) for row in table]
    return [f"| {line} |" for line in lines]


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|")
