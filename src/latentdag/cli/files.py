"""Files that the commands read and write."""

from pathlib import Path
from typing import Any

import pandas as pd

from latentdag.model import LatentModel
from latentdag.moments import Moments
from latentdag.result import Fit
from latentdag.simulate import sample
from latentdag.storage import write_atomically


def read_moments(path: Path, context_column: str, control: str) -> Moments:
    """Moments from a ``.npz`` of moments, or from a table with one row per sample.

    Raises
    ------
    ValueError
        Naming the file and what is wrong with it.
    """
    if path.suffix == ".npz":
        return Moments.load(path)
    if path.suffix not in (".csv", ".tsv", ".txt", ".gz"):
        raise ValueError(f"{path}: unknown kind of file {path.suffix!r}; give .csv, .tsv or moments as .npz")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    separator = "," if ".csv" in path.suffixes else "\t"
    try:
        # labels stay text: a context called "007" or "NA" is not a number or a gap
        table = pd.read_csv(path, sep=separator, dtype={context_column: str}, keep_default_na=False, na_values=[""])
    except (ValueError, OSError, pd.errors.ParserError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    if context_column not in table.columns:
        raise ValueError(
            f"{path} has no column {context_column!r}; its columns are {', '.join(map(repr, table.columns[:12]))}"
            f"{', …' if len(table.columns) > 12 else ''}: name it with --context-column"
        )
    labels = table.pop(context_column)
    if not control:
        listed = ", ".join(f"{label!r} ({n})" for label, n in labels.value_counts().items())
        raise ValueError(f"name the control context with --control; the labels present are {listed}")
    return Moments.from_samples(table, labels, control=control)


def write_text(path: Path, text: str) -> Path:
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def write_figure(path: Path, figure: Any) -> None:
    """Save a matplotlib figure in the format of the path's suffix, without wide margins."""
    kind = path.suffix[1:]
    write_atomically(path, lambda file: figure.savefig(file, format=kind, dpi=150, bbox_inches="tight"))


def write_screen(folder: Path, truth: LatentModel, n: int, seed: int, noise: str) -> list[Path]:
    """Samples of every context as csv, their moments, and the model they came from."""
    X, contexts = sample(truth, n, [seed, 1], noise)
    table = pd.DataFrame(X, columns=list(truth.feature_names))
    table.insert(0, "context", contexts)
    paths = [folder / "samples.csv", folder / "moments.npz", folder / "truth.npz"]
    write_text(paths[0], table.to_csv(index=False))
    Moments.from_samples(X, contexts, control=truth.control, feature_names=truth.feature_names).save(paths[1])
    truth.save(paths[2])
    return paths


def write_fit(folder: Path, found: Fit) -> list[Path]:
    """The fit itself, its edges, its summary, and the latent graph where matplotlib is there."""
    paths = [folder / "fit.npz", folder / "edges.csv", folder / "summary.txt"]
    found.save(paths[0])
    write_text(paths[1], found.edges().to_csv(index=False))
    write_text(paths[2], found.summary() + "\n")
    try:
        import matplotlib
    except ImportError:
        return paths
    matplotlib.use("Agg")
    from latentdag.pl import latent_graph

    figure: Any = latent_graph(found, title="Estimated latent graph").figure
    for kind in ("svg", "png"):
        paths.append(folder / f"latent-graph.{kind}")
        write_figure(paths[-1], figure)
    return paths
