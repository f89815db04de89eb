"""The page of an experiment in markdown, and its summary as plain values."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from latentdag import __version__
from latentdag.experiments.base import Experiment, Outcome, Settings
from latentdag.experiments.tables import markdown_table

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
        "tables": {title: [_plain(row) for row in table] for title, table in outcome.tables.items()},
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


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as JSON has it: no numpy types, and null for numbers that are not finite."""
    items = {k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in items.items()}
