"""What an experiment is: cells, rows, a summary, figures and a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What identifies one independent piece of work, and one line of its result: plain values by name.
Cell = Mapping[str, Any]
Row = dict[str, Any]

#: A table of the summary: plain values by column.
Table = list[dict[str, Any]]


@dataclass(frozen=True)
class Settings:
    """What a user chooses.

    Attributes
    ----------
    models : int
        Random models per setting.
    seed : int
        Of all random numbers.
    quick : bool
        A smaller grid, to see that everything runs.
    fit : Path or None
        For ``semisynthetic``: a saved fit to generate data from.
    """

    models: int
    seed: int = 0
    quick: bool = False
    fit: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    findings : sentences
        What a reader should take home, with its numbers.
    tables : mapping of title to table
    """

    findings: Sequence[str]
    tables: Mapping[str, Table]


def mean_or_none(values: pd.Series) -> float | None:
    """Return the mean of the known values, or None where there are none.

    Examples
    --------
    >>> mean_or_none(pd.Series([True, False, None])), mean_or_none(pd.Series([None]))
    (0.5, None)
    """
    known = values.dropna().astype(float)
    return float(known.mean()) if len(known) else None


def nothing_shared(settings: Settings) -> Any:
    return None


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes
    ----------
    name, title : str
    question : str
        A paragraph for the page: what is asked and how.
    models, quick_models : int
        Random models per setting, by default and with ``--quick``.
    cells : Settings → list of cells
        In canonical order. A cell must hold everything that its rows depend on, apart from ``shared``.
    run : (cell, shared) → rows
        Pure: the same cell always gives the same rows.
    summarize : (rows, settings) → Outcome
    draw : (rows, settings) → figures by name
    chunk : int
        Cells that are done between two writes to disk, some seconds of work.
    shared : Settings → anything
        What all cells need and is slow to make.
    timed : names of columns
        Those that measure time or memory of this run, and so differ from run to run.
    unit : str
        What ``models`` counts.
    command : str
        What runs it, before its name; the page names it.
    """

    name: str
    title: str
    question: str
    models: int
    quick_models: int
    cells: Callable[[Settings], list[dict[str, Any]]]
    run: Callable[[Cell, Any], list[Row]]
    summarize: Callable[[pd.DataFrame, Settings], Outcome]
    draw: Callable[[pd.DataFrame, Settings], "dict[str, Figure]"]
    chunk: int = 10
    shared: Callable[[Settings], Any] = nothing_shared
    timed: tuple[str, ...] = ()
    unit: str = "model"
    command: str = "latentdag reproduce"

    def settings(
        self, models: int | None = None, seed: int = 0, quick: bool = False, fit: Path | None = None
    ) -> Settings:
        """The user's choices, with this experiment's defaults for what was left open."""
        default = self.quick_models if quick else self.models
        return Settings(default if models is None else models, seed, quick, fit)
