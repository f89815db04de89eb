"""What an experiment is: cells, rows, a summary of tables and figures; and its page in markdown."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentdag import __version__
from latentdag.data.store import to_plain

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


#: Rows of a table that the page shows; the summary has all of them.
MOST_ROWS = 60


def summary(experiment: Experiment, settings: Settings, outcome: Outcome) -> dict[str, Any]:
    """Return what ``summary.json`` holds. Apart from measured times, nothing depends on when or where it was made."""
    return {
        "experiment": experiment.name,
        **{name: getattr(settings, name) for name in ("models", "seed", "quick")},
        "fit": None if settings.fit is None else settings.fit.name,
        "version": __version__,
        "findings": list(outcome.findings),
        "tables": to_plain(outcome.tables),
    }


def page(experiment: Experiment, settings: Settings, said: dict[str, Any], figures: Sequence[str]) -> str:
    """Return ``README.md``: the question, what was run, what was found, figures, tables."""
    lines = [f"# {experiment.title}", "", experiment.question, ""]
    count = f"{settings.models} {experiment.unit}{'s' * (settings.models != 1)} per setting, seed {settings.seed}"
    lines += [f"{count}, latentdag {said['version']}. Again with:", "", f"    {command(experiment, settings)}", ""]
    lines += [f"* {sentence}" for sentence in said["findings"]]
    for name in figures:
        lines += ["", f"![{name.replace('-', ' ')}]({name}.svg)"]
    for title, table in said["tables"].items():
        lines += ["", f"## {title}", "", *markdown_table(table[:MOST_ROWS])]
        if len(table) > MOST_ROWS:
            lines += ["", f"The first {MOST_ROWS} of {len(table)} rows; all are in `summary.json`."]
    last = "Every run is in `runs.parquet`"
    if experiment.timed:
        last += f"; its columns {', '.join(f'`{name}`' for name in experiment.timed)} were measured in this run, and "
        last += "differ from run to run. Everything else does not"
    return "\n".join([*lines, "", f"{last}.", ""])


def command(experiment: Experiment, settings: Settings) -> str:
    """Return the command that gives this page again."""
    words = [experiment.command, experiment.name, f"--models {settings.models}", f"--seed {settings.seed}"]
    words += ["--quick"] * settings.quick + ([f"--fit {settings.fit.name}"] if settings.fit is not None else [])
    return " ".join(words)


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
