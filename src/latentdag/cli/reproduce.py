"""``latentdag reproduce``: run experiments and write what they found, one folder each.

Finished parts are kept in hidden folders until everything that was asked for is written: a run that was killed goes on
there, whichever experiment it was in, and its ``runs.parquet`` is the same byte for byte.
"""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from latentdag import experiments
from latentdag.cli.files import write_figure, write_parquet, write_text
from latentdag.cli.place import reserved
from latentdag.experiments import Experiment, Settings, chunk_folder, page_of, run_cells, summary_of
from latentdag.optional import optional

#: Files of an experiment besides its figures, and those by which a folder of earlier versions is known.
FILES = ("runs.parquet", "summary.json", "README.md")
MARKS = FILES[1:]


def run(*, name: str, out: Path, **options: Any) -> None:
    """Run one experiment by name, or all, and say what they found."""
    done = reproduce(chosen(name), out, **options)
    typer.echo(said_of(done))
    for folder, _ in done:
        typer.echo(f"wrote {folder}/: start with {folder}/README.md", err=True)


def chosen(name: str) -> list[Experiment]:
    """Return one experiment by name, or all of them."""
    return [experiments.load(each) for each in (experiments.NAMES if name == "all" else (name,))]


def reproduce(
    asked: Sequence[Experiment],
    out: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: bool | None = None,
    **choices: Any,
) -> list[tuple[Path, list[str]]]:
    """Run experiments, write what they found, and return each folder with its findings.

    ``choices`` are models, seed, quick and fit: see :meth:`latentdag.experiments.Experiment.settings`.
    """
    if choices.get("fit") is not None and [each.name for each in asked] != ["semisynthetic"]:
        raise ValueError("--fit is the generative model of 'semisynthetic'; no other experiment takes one")
    for package, extra in (("pyarrow", "big"), ("matplotlib", "plot")):
        optional(package, extra, "latentdag reproduce")  # complain before the work, not after it
    done = []
    with ExitStack() as stack:
        places = [stack.enter_context(reserved(out / each.name, "reproduce", FILES, MARKS)) for each in asked]
        for experiment, place in zip(asked, places, strict=True):
            settings = experiment.settings(**choices)
            place.only(chunk_folder(experiment, settings, place.work))
            rows = run_cells(experiment, settings, place.work, jobs=jobs, scheduler=scheduler, progress=progress)
            with place.replaced() as new:
                done.append((place.out, write_outcome(new, experiment, settings, rows)))
    return done


def write_outcome(folder: Path, experiment: Experiment, settings: Settings, rows: pd.DataFrame) -> list[str]:
    """Write every run, the summary, figures and the page into an empty folder, and return the findings."""
    outcome = experiment.summarize(rows, settings)
    write_parquet(folder / "runs.parquet", rows)
    said = summary_of(experiment, settings, outcome)
    write_text(folder / "summary.json", json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    figures = experiment.draw(rows, settings)
    for name, figure in figures.items():
        write_figure(folder / name, figure)
    write_text(folder / "README.md", page_of(experiment, settings, said, list(figures)))
    return list(outcome.findings)


def said_of(done: Sequence[tuple[Path, list[str]]]) -> str:
    """Return the findings as text for the terminal."""
    return "\n\n".join("\n".join([f"{folder.name}:", *(f"  {line}" for line in lines)]) for folder, lines in done)
