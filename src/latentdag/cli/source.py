"""Data that the commands read: which rows, which features, and what the texts of their options mean."""

import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from latentdag.cli.place import Place
from latentdag.data import labels as lb
from latentdag.data import stream
from latentdag.data.moments import Moments
from latentdag.data.sources.opening import open_source, positions
from latentdag.data.sources.reader import Reader, naming_source, reading
from latentdag.data.stream import Samples
from latentdag.errors import LabelWarning

#: Address space that opening a file may take at least, and per byte on disk.
LEAST, PER_BYTE = 2**30, 30

#: Options that choose among features.
CHOOSE = ("features", "drop", "top_variable")


def read_data(
    path: Path, source: Mapping[str, Any], targets: str = "", place: Place | None = None, progress: bool | None = None
) -> tuple[Moments, Samples | None, Any]:
    """Read a ``.npz`` of moments, or one row per sample in any format that can be streamed.

    Parameters
    ----------
    path : the file
    source : how to read it
        What the options of :func:`latentdag.cli.app.reading` say.
    targets : "learn", a file, or the column with the target of each row's context
    place : where a killed run finds how far it came
    progress
        As for :func:`latentdag.stream.moments`.

    Returns
    -------
    moments, the samples behind them (None where the file holds moments), and targets as ``fit`` takes them

    Raises
    ------
    ValueError, OSError
        Naming the file and what is wrong with it.
    """
    column = targets if targets not in ("", "learn") and not Path(targets).is_file() else ""
    told = None if column else read_targets(targets)
    if path.suffix == ".npz":
        return _saved_moments(path, source, column), None, told
    kept = None
    if place is not None and not source["robust"]:
        kept = place.unfinished("moments", [str(path.resolve()), source])
    said: dict[str, Any] = {"adjust": listed_names(source["adjust"]) or None, "depth": source["depth"] or None}
    said["layer"] = source["layer"]
    with reading(path):
        with bounded_memory(path):
            opened = open_source(path, source["context_column"], **said)
        with closing(opened):
            control, only = _contexts(opened, source)
            rows = open_source(opened, None, only=only)
            if column:
                with naming_source(f"--targets {column} is neither 'learn' nor a file"):
                    names = rows.columns([column])[column]
                told = lb.named_targets(rows.labels, names, control, f"column {column!r} of {path}", "row")
            said |= {"features": _features(rows, source, column), "only": only, "counts": source["counts"]}
            samples = stream.pieces(path, source["context_column"], **said)
            if source["top_variable"]:
                said["features"] = _most_variable(rows, said["features"], samples, source["top_variable"])
                samples = stream.pieces(path, source["context_column"], **said)
            options: dict[str, Any] = {"robust": source["robust"], "checkpoint": kept, "progress": progress}
            found = stream.moments(opened, None, control, **options, **said)
    missing = opened.n_rows - sum(lb.counted(opened.labels).values())
    if missing:  # said once the data are read: of damaged ones there is one sentence, and no other
        which = f"{missing} of {opened.n_rows} rows of {path} have no label in {source['context_column']!r}"
        warnings.warn(f"{which}, and take no part", LabelWarning, stacklevel=2)
    return found, samples, told


def _contexts(reader: Reader, source: Mapping[str, Any]) -> tuple[Hashable, list[Hashable] | None]:
    """Return the control, and the contexts whose rows take part; None for all.

    They are the labels that the user's texts mean: labels of parquet and AnnData can be numbers. Never a guess.
    """
    counts = lb.counted(reader.labels)
    if not source["control"]:
        listed = ", ".join(f"{str(label)!r} ({n})" for label, n in counts.items())
        raise ValueError(f"name the control context with --control; the labels present are {listed}")
    meant: dict[str, list[Hashable]] = {}
    for label in counts:
        meant.setdefault(str(label), []).append(label)
    control, *wanted = (
        meant[text][0] if len(meant.get(text, ())) == 1 else text
        for text in (source["control"], *listed_names(source["contexts"]))
    )
    return control, [control, *wanted] if wanted else list(counts) if sum(counts.values()) < reader.n_rows else None


def _features(reader: Reader, source: Mapping[str, Any], column: str) -> list[str] | None:
    """Return the features that take part, the most variable not yet chosen; None for all. A column of targets is none.

    Raises
    ------
    ValueError
        Naming a feature that is not there.
    """
    if not column and not any(source[name] for name in CHOOSE):
        return None
    every = [name for name in reader.feature_names if name != column]
    kept, dropped = listed_names(source["features"]) or every, listed_names(source["drop"])
    for names in (kept, dropped):
        if names:
            positions(names, every, reader.name)
    return [name for name in kept if name not in dropped]


def _most_variable(reader: Reader, names: list[str], samples: Samples, n: int) -> list[str]:
    """Return the ``n`` features that vary most about the means of their contexts, in the order of the source."""
    if n > len(names):
        raise ValueError(f"--top-variable {n}: {reader.name} has {len(names)} features to choose from")
    spread = stream.spread_within(samples, list(lb.counted(reader.labels)), len(names))
    first = np.sort(np.argsort(-spread, kind="stable")[:n])
    kept = [names[j] for j in first]
    said = f"{n} of {len(names)} features are kept, those that vary most about the means of their contexts"
    typer.echo(f"latentdag: {said}: {lb.listed(kept)}", err=True)
    return kept


def _saved_moments(path: Path, source: Mapping[str, Any], column: str) -> Moments:
    """Return the moments in a file, or those of some of its contexts."""
    found = Moments.load(path)
    if source["robust"] and found.outliers is None:
        raise ValueError(f"{path} holds moments, and rows cannot be weighed any more: use --robust on the rows")
    if source["counts"] and found.noise is None:
        raise ValueError(f"{path} holds moments without the noise of counts: use --counts on the rows")
    for option in (*(name for name in CHOOSE if source[name]), *(["targets"] if column else [])):
        said = f"holds moments, without columns: --{option.replace('_', '-')} is for rows"
        raise ValueError(f"{path} {said}, or when the moments are made")
    labels = dict(zip(lb.text_names(found.contexts), found.contexts, strict=True))
    wanted = [labels.get(text, text) for text in listed_names(source["contexts"])]
    with naming_source(str(path)):
        return found.select(wanted) if wanted else found


def read_targets(told: str) -> Any:
    """Return the targets that ``--targets`` names: "learn", or the pairs of a csv with a context and a latent a row.

    A context without a latent hits none.
    """
    if told in ("", "learn"):
        return told or None
    with reading(Path(told)):
        table = pd.read_csv(told)
    if table.shape[1] != 2:
        raise ValueError(
            f"{told} must have two columns, contexts and the latents that they hit; it has {table.shape[1]}"
        )
    context, latent = table.columns
    return {label: tuple(mine.dropna().astype(str)) for label, mine in table.groupby(context, sort=False)[latent]}


def listed_names(text: str) -> list[str]:
    """Return the names in a list that is separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def bounded_memory(path: Path) -> Iterator[None]:
    """Bound memory in proportion to a file's size while it is opened, where the system can.

    A damaged header can ask for terabytes: then the command should say so, not be killed by the system.
    """
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = sum(part.stat().st_size for part in (path, *path.rglob("*")) if part.is_file())  # of a file or a folder
    wanted = used + max(LEAST, PER_BYTE * size)
    wanted = min([wanted, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path} is damaged: opening it would take far more memory than it has bytes") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
