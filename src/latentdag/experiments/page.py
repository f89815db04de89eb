"""The page of an experiment in markdown, and its summary as plain values."""

from collections.abc import Sequence
from typing import Any

from latentdag import __version__
from latentdag.data.store import to_plain
from latentdag.experiments.base import Experiment, Outcome, Settings, Table

#: Rows of a table that the page shows; the summary has all of them.
MOST_ROWS = 60


def summary(experiment: Experiment, settings: Settings, outcome: Outcome) -> dict[str, Any]:
    """Return what ``summary.json`` holds. Apart from measured times, nothing depends on when or where it was made."""
    return {
        "experiment": experiment.name,
        "models": settings.models,
        "seed": settings.seed,
        "quick": settings.quick,
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
