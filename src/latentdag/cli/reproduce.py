"""``latentdag reproduce``: run experiments and write what they found, one folder each.

Finished parts are kept in ``OUT/.progress`` until everything that was asked for is written: a run that was killed goes
on there, whichever experiment it was in, and its ``runs.parquet`` is the same byte for byte.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd

from latentdag import experiments
from latentdag.cli.files import write_figure, write_text
from latentdag.experiments.base import Experiment, Settings
from latentdag.experiments.page import page, summary
from latentdag.experiments.runner import chunk_folder, run_cells
from latentdag.storage import write_atomically
from latentdag.stream.optional import optional


def chosen(name: str) -> list[Experiment]:
    """One experiment, or all."""
    everything = (*experiments.NAMES, *experiments.STUDIES)
    return [experiments.load(each) for each in (everything if name == "all" else (name,))]


def reproduce(
    name: str,
    out: Path,
    *,
    models: int | None = None,
    seed: int = 0,
    quick: bool = False,
    fit: Path | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> list[tuple[Path, list[str]]]:
    """Run and write; returns each folder with its findings. Of "all", studies without their data are left out."""
    asked = chosen(name)
    if fit is not None and name != "semisynthetic":
        raise ValueError("--fit is the generative model of 'semisynthetic'; no other experiment takes one")
    for package, extra in (("pyarrow", "big"), ("matplotlib", "plot")):
        optional(package, extra, "latentdag reproduce")  # complain before the work, not after it
    kept, done, parts = out / ".progress", [], []
    for experiment in asked:
        settings = experiment.settings(models, seed, quick, fit)
        parts.append(chunk_folder(experiment, settings, kept))
        try:
            rows = run_cells(experiment, settings, kept, jobs=jobs, scheduler=scheduler, progress=progress)
        except FileNotFoundError as absent:
            if name != "all" or experiment.name not in experiments.STUDIES:
                raise
            done.append((out / experiment.name, [f"skipped: {absent}"]))
            continue
        done.append((out / experiment.name, write_outcome(out / experiment.name, experiment, settings, rows)))
    for folder in parts:
        shutil.rmtree(folder, ignore_errors=True)
    if not any(kept.iterdir()):  # another run may be at work in the same place
        kept.rmdir()
    return done


def write_outcome(folder: Path, experiment: Experiment, settings: Settings, rows: pd.DataFrame) -> list[str]:
    """Every run, the summary, figures and the page; the page last, so that it never points to what is not there."""
    outcome = experiment.summarize(rows, settings)
    write_parquet(folder / "runs.parquet", rows)
    said = summary(experiment, settings, outcome)
    write_text(folder / "summary.json", json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    figures = experiment.draw(rows, settings)
    for name, figure in figures.items():
        for kind in ("svg", "png"):
            write_figure(folder / f"{name}.{kind}", figure)
    write_text(folder / "README.md", page(experiment, settings, said, list(figures)))
    return list(outcome.findings)


def write_parquet(path: Path, rows: pd.DataFrame) -> None:
    """The same bytes for the same rows: nothing of the moment, the machine or the version of pandas goes in."""
    pyarrow: Any = optional("pyarrow", "big", "a parquet file")
    parquet: Any = optional("pyarrow.parquet", "big", "a parquet file")
    table = pyarrow.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)

    def write(file: IO[bytes]) -> None:
        parquet.write_table(table, file, version="2.6", compression="snappy", row_group_size=2**20)

    write_atomically(path, write)


def said_of(done: Sequence[tuple[Path, list[str]]]) -> str:
    """Findings for the terminal."""
    return "\n\n".join("\n".join([f"{folder.name}:", *(f"  {line}" for line in lines)]) for folder, lines in done)
