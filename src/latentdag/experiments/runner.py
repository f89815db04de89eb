"""Run the cells of an experiment: in parallel, and so that a killed run goes on where it was.

Cells are dealt into chunks in their canonical order. A finished chunk is written whole, as one JSON file named by its
number, so what a run has done is what is on disk. The rows are read from these files in the order of the numbers, so
neither the number of workers nor an interruption can change them.
"""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from latentdag import __version__
from latentdag.data.store import read_json, write_atomically
from latentdag.errors import LatentDAGWarning
from latentdag.experiments.base import Experiment, Row, Settings
from latentdag.inference.replicates import read_if_whole
from latentdag.optional import optional
from latentdag.progress import Progress

Chunk = tuple[int, list[dict[str, Any]]]  #: number, and cells

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
    folder = chunk_folder(experiment, settings, kept)
    chunks = [
        (number, cells[start : start + experiment.chunk])
        for number, start in enumerate(range(0, len(cells), experiment.chunk))
    ]
    todo = [chunk for chunk in chunks if not _finished(_path(folder, chunk[0]))]
    if todo:
        shared = experiment.shared(settings) if experiment.shared else None
        with Progress(f"{experiment.command} {experiment.name}", sum(len(part) for _, part in todo), progress) as bar:
            for number, rows in _run(experiment, todo, shared, jobs, scheduler):
                _write(_path(folder, number), rows)
                bar.advance(len(chunks[number][1]))
    rows = [row for number, _ in chunks for row in read_json(_path(folder, number), _ROWS)]
    return pd.DataFrame(rows)


def chunk_folder(experiment: Experiment, settings: Settings, kept: Path) -> Path:
    """Return the folder for finished chunks, named by the work, so that other cells, data or versions have another."""
    data = "" if settings.fit is None else hashlib.sha256(settings.fit.read_bytes()).hexdigest()
    cells = experiment.cells(settings)
    said = [__version__, experiment.name, settings.seed, settings.quick, experiment.chunk, data, cells]
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
    return kept / f"{experiment.name}-{key}"


def run_chunk(experiment: Experiment, chunk: Chunk, shared: Any) -> tuple[int, list[Row]]:
    """Run one chunk with one BLAS thread, because the last digits depend on the number of threads."""
    number, cells = chunk
    with warnings.catch_warnings(), threadpool_limits(1):
        # what a fit warns of is in its row: converged or not
        warnings.simplefilter("ignore", LatentDAGWarning)
        return number, [row for cell in cells for row in experiment.run(cell, shared)]


def _run(
    experiment: Experiment, todo: Sequence[Chunk], shared: Any, jobs: int, scheduler: str | None
) -> Iterable[tuple[int, list[Row]]]:
    """Return finished chunks as they come, in any order."""
    if scheduler is not None:
        return _on_cluster(experiment, todo, shared, scheduler)
    if jobs == 1:
        return (run_chunk(experiment, chunk, shared) for chunk in todo)
    workers = Parallel(n_jobs=jobs, return_as="generator_unordered")
    return iter(workers(delayed(run_chunk)(experiment, chunk, shared) for chunk in todo))


def _on_cluster(
    experiment: Experiment, todo: Sequence[Chunk], shared: Any, address: str
) -> Iterator[tuple[int, list[Row]]]:
    distributed = optional("distributed", "big", "--scheduler")
    with distributed.Client(address) as client:
        everywhere = client.scatter(shared, broadcast=True)
        # pure=False: a chunk that is asked for again is one that was lost
        futures = [client.submit(run_chunk, experiment, chunk, everywhere, pure=False) for chunk in todo]
        for future in distributed.as_completed(futures):
            yield future.result()
            future.release()


def _path(folder: Path, number: int) -> Path:
    return folder / f"chunk-{number:06d}.json"


def _finished(path: Path) -> bool:
    """Return True if a chunk is there and can be read; one that cannot is computed again."""
    return read_if_whole(lambda: read_json(path, _ROWS)) is not None


def _write(path: Path, rows: list[Row]) -> None:
    # repr of a float is read back as the same float, so the detour through text changes nothing
    text = json.dumps(rows, ensure_ascii=False)
    write_atomically(path, lambda file: file.write(text.encode()))
