"""The folder that a fit leaves behind: its files, and reading them again."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd

from latentdag.cli.files import write_csv, write_figure, write_text
from latentdag.cli.place import check_settled
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.schema import whole
from latentdag.data.store import read_json, write_atomically
from latentdag.errors import FileError
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit

#: Files of a result; those of TABLES are in ``tables``, as csv and parquet, those of FIGURES in ``figures``.
TABLES = ("edges", "unmixing", "intervals", "targets", "stability")
FIGURES = ("latent-graph", "mixing", "spectra", "edges", "order-stability")
MARKS = ("parameters.json", "fit.npz")
FILES = (
    *MARKS, "model.npz", "moments.npz", "bootstrap.npz", "summary.txt", "graph.graphml", "graph.dot", "report.html",
)  # fmt: skip


def file_names(files: Iterable[str], tables: Iterable[str], figures: Iterable[str]) -> list[str]:
    """Where files, tables and figures of a result are in its folder."""
    return [
        *files,
        *(f"tables/{name}.{kind}" for name in tables for kind in ("csv", "parquet")),
        *(f"figures/{name}.{kind}" for name in figures for kind in ("svg", "png")),
    ]


def write_result(
    folder: Path, found: Fit, m: Moments, parameters: Mapping[str, Any], bootstrap: Bootstrap | None = None
) -> list[str]:
    """Write everything about a fit into an empty folder; returns the names of the files, in order."""
    found.save(folder / "fit.npz")
    found.model.save(folder / "model.npz")
    m.save(folder / "moments.npz")
    write_text(folder / "parameters.json", json.dumps(parameters, indent=1) + "\n")
    write_text(folder / "summary.txt", found.summary() + "\n")
    for name, table in tables(found, bootstrap).items():
        write_table(folder / "tables" / name, table)
    write_graph(folder, found)
    write_figures(folder / "figures", found, m, bootstrap)
    if bootstrap is not None:
        bootstrap.save(folder / "bootstrap.npz")
    write_report(folder / "report.html", found, m, bootstrap, parameters)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def read_result(folder: Path) -> tuple[Fit, Moments, Bootstrap | None, dict[str, Any]]:
    """What :func:`write_result` wrote.

    Raises
    ------
    ValueError, OSError
        If it is no such folder, or damaged (:class:`~latentdag.errors.FileError`).
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no such folder: {folder}")
    check_settled(folder)
    if not all((folder / name).is_file() for name in MARKS):
        raise ValueError(f"{folder} is not a folder written by 'latentdag fit': it has no fit.npz and parameters.json")
    parameters = read_json(folder / "parameters.json", {"seed?": whole, str: object})
    kept = folder / "bootstrap.npz"
    bootstrap = Bootstrap.load(kept) if kept.is_file() else None
    found, m = Fit.load(folder / "fit.npz"), Moments.load(folder / "moments.npz")
    if set(found.model.contexts) != set(m.contexts) or tuple(found.model.feature_names) != m.feature_names:
        raise FileError(folder / "moments.npz", "contexts", "not those of fit.npz: run 'latentdag fit' again")
    if bootstrap is not None and bootstrap.latents != found.order:
        raise FileError(kept, "latents", "not those of fit.npz: run 'latentdag fit' again")
    return found, m, bootstrap, parameters


def tables(found: Fit, bootstrap: Bootstrap | None) -> dict[str, pd.DataFrame]:
    """All tables of a result, by name."""
    changes = found.model.interventions
    texts = lb.text_names(found.model.contexts)[1:]
    made = {
        "edges": found.edges(level=0.95),
        "unmixing": pd.DataFrame(found.model.unmixing, columns=list(found.model.feature_names)).assign(
            latent=list(found.latents)
        ),
        "intervals": found.confidence_intervals(),
        "targets": pd.DataFrame(
            [(text, name) for text, hit in zip(texts, changes.values(), strict=True) for name in hit.targets],
            columns=["context", "latent"],
        ),
    }
    made["unmixing"] = made["unmixing"][["latent", *found.model.feature_names]]
    if bootstrap is not None:
        made["stability"] = bootstrap.summary.reset_index()
    return made


def write_table(path: Path, table: pd.DataFrame) -> None:
    """As csv (see :func:`latentdag.cli.files.write_csv`), and as parquet where pyarrow is there."""
    write_csv(path.with_suffix(".csv"), table)
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return
    text = table.copy()
    for column in text.columns[[dtype.kind == "O" for dtype in text.dtypes]]:
        text[column] = text[column].astype(str)
    text.attrs = {}  # notes are for people, and not all of them are JSON
    made = pyarrow.Table.from_pandas(text, preserve_index=False)
    write_atomically(path.with_suffix(".parquet"), lambda file: parquet.write_table(made, file))


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
