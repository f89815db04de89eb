"""Run the cells of an experiment: in parallel, and so that a killed run goes on where it was.

Cells are dealt into chunks in their canonical order. A finished chunk is written whole, as one JSON file named by its
number, so what a run has done is what is on disk. The rows are read from these files in the order of the numbers, so
neither the number of workers nor an interruption can change them.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from latentdag import __version__
from latentdag.data.store import read_json, write_atomically
from latentdag.errors import LatentDAGWarning
from latentdag.experiments.base import Cell, Experiment, Row, Settings
from latentdag.inference.replicates import read_if_whole
from latentdag.optional import optional
from latentdag.progress import Progress

_ROWS = [{str: object}]  # of a chunk's file, see latentdag.data.schema


def run_cells(
    experiment: Experiment,
    settings: Settings,
    kept: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Run all cells of an experiment and return their rows, in canonical order.

    Parameters
    ----------
    experiment : Experiment
    settings : Settings
    kept : Path
        Folder for finished chunks; those of the same work that are there already are not computed again.
    jobs : int
        Processes.
    scheduler : str, optional
        Address of a Dask scheduler that runs the cells instead.
    progress : bool, optional
        A bar on stderr; by default only where that is a terminal.
    """
    cells = experiment.cells(settings)
    if not cells:
        raise ValueError(f"{experiment.name}: there is nothing to run with {settings}")
    folder, starts = chunk_folder(experiment, settings, kept), range(0, len(cells), experiment.chunk)
    chunks = {
        folder / f"chunk-{number:06d}.json": cells[start : start + experiment.chunk]
        for number, start in enumerate(starts)
    }
    todo = {path: part for path, part in chunks.items() if not _finished(path)}
    if todo:
        shared = experiment.shared(settings) if experiment.shared else None
        with Progress(f"{experiment.command} {experiment.name}", sum(map(len, todo.values())), progress) as bar:
            for path, rows in _results(partial(run_chunk, experiment, shared), todo, jobs, scheduler):
                _write(path, rows)
                bar.advance(len(todo[path]))
    return pd.DataFrame([row for path in chunks for row in read_json(path, _ROWS)])


def chunk_folder(experiment: Experiment, settings: Settings, kept: Path) -> Path:
    """Return the folder for finished chunks, named by the work, so that other cells, data or versions have another."""
    data = "" if settings.fit is None else hashlib.sha256(settings.fit.read_bytes()).hexdigest()
    cells = experiment.cells(settings)
    said = [__version__, experiment.name, settings.seed, settings.quick, experiment.chunk, data, cells]
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
    return kept / f"{experiment.name}-{key}"


def run_chunk(experiment: Experiment, shared: Any, path: Path, cells: Sequence[Cell]) -> tuple[Path, list[Row]]:
    """Run one chunk with one BLAS thread, because the last digits depend on the number of threads."""
    with warnings.catch_warnings(), threadpool_limits(1):
        # what a fit warns of is in its row: converged or not
        warnings.simplefilter("ignore", LatentDAGWarning)
        return path, [row for cell in cells for row in experiment.run(cell, shared)]


def _results(
    call: Callable[..., tuple[Path, list[Row]]], todo: Mapping[Path, Sequence[Cell]], jobs: int, scheduler: str | None
) -> Iterator[tuple[Path, list[Row]]]:
    """Yield what a call returns for each chunk, as they come: from processes, or from a Dask cluster."""
    if scheduler is None:
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(call)(*chunk) for chunk in todo.items()
        )
        return
    distributed = optional("distributed", "big", "--scheduler")
    with distributed.Client(scheduler) as client:
        # pure=False: a chunk that is asked for again is one that was lost
        futures = client.map(call, list(todo), list(todo.values()), pure=False)
        for _, result in distributed.as_completed(futures, with_results=True):
            yield result


def _finished(path: Path) -> bool:
    """Return True if a chunk is there and can be read; one that cannot is computed again."""
    return read_if_whole(lambda: read_json(path, _ROWS)) is not None


def _write(path: Path, rows: list[Row]) -> None:
    # repr of a float is read back as the same float, so the detour through text changes nothing
    text = json.dumps(rows, ensure_ascii=False)
    write_atomically(path, lambda file: file.write(text.encode()))
