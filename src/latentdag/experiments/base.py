"""What an experiment is: cells, rows, a summary of tables, figures and a page."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What identifies one independent piece of work, and one line of its result: plain values by name.
Cell = Mapping[str, Any]
Row = dict[str, Any]

#: A table: its lines, each with values by column.
Table = list[dict[str, Any]]

#: A column of a table, computed from the rows of one group.
Column = Callable[[pd.DataFrame], Any]

#: The two readings of the paper's numbers; see :mod:`latentdag.simulate`.
CONVENTIONS = ("figures", "text")


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

    def grid(self, unit: str = "model", **axes: Iterable[Any]) -> list[dict[str, Any]]:
        """Return one cell per combination of values and per random model, the last axis fastest.

        Examples
        --------
        >>> Settings(models=2, seed=7).grid(n=[10])
        [{'n': 10, 'model': 0, 'seed': 7}, {'n': 10, 'model': 1, 'seed': 7}]
        """
        every: dict[str, Iterable[Any]] = {**axes, unit: range(self.models), "seed": [self.seed]}
        return [dict(zip(every, values, strict=True)) for values in product(*every.values())]


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


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes
    ----------
    name, title : str
    about : str
        The docstring of its module. Its second paragraph opens the page: what is asked and how.
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
    about: str | None
    models: int
    quick_models: int
    cells: Callable[[Settings], list[dict[str, Any]]]
    run: Callable[[Cell, Any], list[Row]]
    summarize: Callable[[pd.DataFrame, Settings], Outcome]
    draw: Callable[[pd.DataFrame, Settings], "dict[str, Figure]"]
    chunk: int = 10
    shared: Callable[[Settings], Any] | None = None
    timed: tuple[str, ...] = ()
    unit: str = "model"
    command: str = "latentdag reproduce"

    @classmethod
    def of(cls, module: str, title: str, models: int, quick_models: int, **options: Any) -> "Experiment":
        """Return the experiment of a module: its functions ``cells``, ``run``, ``summarize`` and ``draw``.

        Parameters
        ----------
        module : str
            Its ``__name__``; the last part is the name of the experiment.
        title, models, quick_models, **options
            See the attributes.
        """
        own = sys.modules[module]
        functions = (own.cells, own.run, own.summarize, own.draw)
        return cls(module.rpartition(".")[2], title, own.__doc__, models, quick_models, *functions, **options)

    @property
    def question(self) -> str:
        """The second paragraph of the module's docstring, in one line."""
        paragraphs = (self.about or "").split("\n\n")
        return " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""

    def settings(
        self, models: int | None = None, seed: int = 0, quick: bool = False, fit: Path | None = None
    ) -> Settings:
        """Return the user's choices, with this experiment's defaults for what was left open."""
        default = self.quick_models if quick else self.models
        return Settings(default if models is None else models, seed, quick, fit)


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
