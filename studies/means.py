"""Means of what is known, for the tables of studies."""

import pandas as pd

from latentdag.experiments import Column


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
