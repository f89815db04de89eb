"""The folder that a fit leaves behind: written beside its place and moved there when it is complete."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd

from latentdag.cli.files import write_figure, write_text
from latentdag.inference.stability import Bootstrap
from latentdag.moments import Moments
from latentdag.result import Fit


def check_place(folder: Path) -> None:
    """Complain about the place for results before the work, not after it."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file, not a folder for results: choose another with --out")
    if folder.is_dir() and any(folder.iterdir()) and not is_ours(folder):
        raise FileExistsError(f"{folder} holds other files, which would be lost: choose another folder with --out")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``folder`` at the end; after an error the old one is untouched."""
    check_place(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def is_ours(folder: Path) -> bool:
    """Whether a folder was written by a fit before."""
    return (folder / "parameters.json").is_file() and (folder / "fit.npz").is_file()


def write_result(
    folder: Path, found: Fit, m: Moments, parameters: Mapping[str, Any], bootstrap: Bootstrap | None = None
) -> list[str]:
    """Everything about a fit; returns the names of the files, in order."""
    with whole_folder(folder) as place:
        found.save(place / "fit.npz")
        found.model.save(place / "model.npz")
        m.save(place / "moments.npz")
        write_text(place / "parameters.json", json.dumps(parameters, indent=1) + "\n")
        write_text(place / "summary.txt", found.summary() + "\n")
        for name, table in tables(found, bootstrap).items():
            write_table(place / "tables" / name, table)
        write_graph(place, found)
        write_figures(place / "figures", found, m, bootstrap)
        if bootstrap is not None:
            bootstrap.save(place / "bootstrap.npz")
        write_report(place / "report.html", found, m, bootstrap, parameters)
        names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return names


def read_result(folder: Path) -> tuple[Fit, Moments, Bootstrap | None, dict[str, Any]]:
    """What :func:`write_result` wrote.

    Raises
    ------
    ValueError, OSError
        If it is no such folder, or damaged.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no such folder: {folder}")
    if not is_ours(folder):
        raise ValueError(f"{folder} is not a folder written by 'latentdag fit': it has no fit.npz and parameters.json")
    try:
        parameters = json.loads((folder / "parameters.json").read_text())
    except ValueError as error:
        raise ValueError(f"{folder / 'parameters.json'} is damaged: {error}") from None
    kept = folder / "bootstrap.npz"
    bootstrap = Bootstrap.load(kept) if kept.is_file() else None
    return Fit.load(folder / "fit.npz"), Moments.load(folder / "moments.npz"), bootstrap, parameters


def tables(found: Fit, bootstrap: Bootstrap | None) -> dict[str, pd.DataFrame]:
    """All tables of a result, by name."""
    made = {
        "edges": found.edges(level=0.95),
        "unmixing": pd.DataFrame(found.model.unmixing, columns=list(found.model.feature_names)).assign(
            latent=list(found.latents)
        ),
        "intervals": found.confidence_intervals(),
        "targets": pd.DataFrame(
            [(str(c), name) for c, value in found.model.interventions.items() for name in value.targets],
            columns=["context", "latent"],
        ),
    }
    made["unmixing"] = made["unmixing"][["latent", *found.model.feature_names]]
    if bootstrap is not None:
        made["stability"] = bootstrap.summary.reset_index()
    return made


def write_table(path: Path, table: pd.DataFrame) -> None:
    """As csv, and as parquet where pyarrow is there."""
    write_text(path.with_suffix(".csv"), table.to_csv(index=False))
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return
    text = table.copy()
    for column in text.columns[text.dtypes == "object"]:
        text[column] = text[column].astype(str)
    text.attrs = {}  # notes are for people, and not all of them are JSON
    parquet.write_table(pyarrow.Table.from_pandas(text, preserve_index=False), path.with_suffix(".parquet"))


def write_graph(folder: Path, found: Fit) -> None:
    """The latent graph as GraphML and as DOT."""
    graph: nx.DiGraph = nx.DiGraph()
    for position, name in enumerate(found.order):
        hit = [str(c) for c, value in found.model.interventions.items() if name in value.targets]
        graph.add_node(_xml(name), order=position, contexts=_xml(", ".join(hit)))
    for source, target, weight in found.graph.edges(data="weight"):
        graph.add_edge(_xml(source), _xml(target), weight=float(weight))
    write_text(folder / "graph.graphml", "\n".join(nx.generate_graphml(graph)) + "\n")
    lines = ["digraph latents {"]
    lines += [f"  {_quoted(name)};" for name in found.order]
    lines += [
        f"  {_quoted(source)} -> {_quoted(target)} [weight={abs(weight):.6g}, label={_quoted(f'{weight:.2g}')}];"
        for source, target, weight in found.graph.edges(data="weight")
    ]
    write_text(folder / "graph.dot", "\n".join([*lines, "}"]) + "\n")


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _xml(text: str) -> str:
    """Characters that XML cannot hold, as question marks."""
    return "".join(c if c in "\t\n\r" or 0x20 <= ord(c) <= 0xD7FF or ord(c) >= 0xE000 else "?" for c in text)


def write_figures(folder: Path, found: Fit, m: Moments, bootstrap: Bootstrap | None) -> None:
    """Every figure as svg and png, where matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from latentdag import pl

    drawings = {"latent-graph": lambda: pl.latent_graph(found), "mixing": lambda: pl.mixing(found)}
    drawings["spectra"] = lambda: pl.spectra(m)
    if found.graph.number_of_edges():
        drawings["edges"] = lambda: pl.edges(found)
    if bootstrap is not None:
        drawings["order-stability"] = lambda: pl.order_stability(bootstrap)
    for name, draw in drawings.items():
        figure: Any = draw().figure
        for kind in ("svg", "png"):
            write_figure(folder / f"{name}.{kind}", figure)
        plt.close(figure)


def write_report(
    path: Path, found: Fit, m: Moments, bootstrap: Bootstrap | None, parameters: Mapping[str, Any]
) -> None:
    """The page, where jinja2 is there."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        return
    from latentdag import report

    report.write(found, path, m, bootstrap=bootstrap, seed=parameters.get("seed"))
