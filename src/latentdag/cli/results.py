"""The folder that a fit leaves: writing it, and reading it again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd

from latentdag import report
from latentdag.cli.files import write_csv, write_figure, write_parquet, write_text
from latentdag.cli.place import Place, check_settled, reserved
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.schema import whole
from latentdag.data.store import read_json
from latentdag.errors import FileError
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit
from latentdag.report import Results

#: Files of a result; those of TABLES are in ``tables``, as csv and parquet, those of FIGURES in ``figures``.
TABLES = ("edges", "unmixing", "intervals", "targets", "stability")
FIGURES = ("latent-graph", "mixing", "spectra", "edges", "order-stability")
MARKS = ("parameters.json", "fit.npz")
FILES = (
    *MARKS, "model.npz", "moments.npz", "bootstrap.npz", "summary.txt", "graph.graphml", "graph.dot", "report.html",
)  # fmt: skip


def file_names(files: Iterable[str], tables: Iterable[str], figures: Iterable[str]) -> list[str]:
    """Return where files, tables and figures of a result are in its folder."""
    return [
        *files,
        *(f"tables/{name}.{kind}" for name in tables for kind in ("csv", "parquet")),
        *(f"figures/{name}.{kind}" for name in figures for kind in ("svg", "png")),
    ]


def fit_folder(
    out: Path, pages: Sequence[str] = (), tables: Sequence[str] = (), figures: Sequence[str] = ()
) -> AbstractContextManager[Place]:
    """Reserve a folder for a fit, and for what else is written beside it."""
    names = file_names((*FILES, *pages), (*TABLES, *tables), (*FIGURES, *figures))
    return reserved(out, "fit", names, MARKS)


def write_result(folder: Path, results: Results, told: Mapping[str, Any], page: Results | None = None) -> list[str]:
    """Write everything about a fit into an empty folder, and return the names of the files, in order.

    Nothing is computed here: every file is read from ``results``, the report from ``page`` where that is given.
    ``parameters.json`` says what the command was ``told``, and what made the numbers.
    """
    found = results.fit
    made = {"method": found.method, "seed": results.seed, "versions": report.versions(), "moments": results.digest}
    found.save(folder / "fit.npz")
    found.model.save(folder / "model.npz")
    write_text(folder / "parameters.json", json.dumps({**told, **made}, indent=1) + "\n")
    write_text(folder / "summary.txt", results.summary + "\n")
    write_tables(folder / "tables", results.tables)
    write_graph(folder, found)
    write_figures(folder / "figures", results.figures())
    for name, part in (("moments.npz", results.moments), ("bootstrap.npz", results.bootstrap)):
        if part is not None:
            part.save(folder / name)
    write_report(folder / "report.html", page or results)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def read_result(folder: Path) -> tuple[Fit, Moments, Bootstrap | None, dict[str, Any]]:
    """Read what :func:`write_result` wrote: fit, moments, bootstrap and parameters.

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
    if set(found.model.contexts) != set(m.contexts) or tuple(found.model.feature_names) != m.source_features:
        raise FileError(folder / "moments.npz", "contexts", "not those of fit.npz: run 'latentdag fit' again")
    if bootstrap is not None and bootstrap.latents != found.order:
        raise FileError(kept, "latents", "not those of fit.npz: run 'latentdag fit' again")
    return found, m, bootstrap, parameters


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as csv (see :func:`latentdag.cli.files.write_csv`), and as parquet where pyarrow is installed."""
    for name, table in tables.items():
        write_csv(folder / f"{name}.csv", table)
        if find_spec("pyarrow"):
            text = {name: column.astype(str) for name, column in table.items() if column.dtype.kind == "O"}
            write_parquet(folder / f"{name}.parquet", table.assign(**text))


def write_graph(folder: Path, found: Fit) -> None:
    """Write the latent graph as GraphML and as DOT."""
    graph: nx.DiGraph = nx.DiGraph()
    for position, name in enumerate(found.order):
        hit = [str(c) for c, value in found.model.interventions.items() if name in value.targets]
        graph.add_node(_xml(name), order=position, contexts=_xml(", ".join(hit)), idle=name in found.idle_latents)
    for source, target, weight in found.graph.edges(data="weight"):
        graph.add_edge(_xml(source), _xml(target), weight=float(weight))
    write_text(folder / "graph.graphml", "\n".join(nx.generate_graphml(graph)) + "\n")
    lines = ["digraph latents {"]
    grey = " [color=gray, fontcolor=gray]"
    lines += [f"  {_quoted(name)}{grey if name in found.idle_latents else ''};" for name in found.order]
    lines += [
        f"  {_quoted(source)} -> {_quoted(target)} [weight={abs(weight):.6g}, label={_quoted(f'{weight:.2g}')}];"
        for source, target, weight in found.graph.edges(data="weight")
    ]
    write_text(folder / "graph.dot", "\n".join([*lines, "}"]) + "\n")


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _xml(text: str) -> str:
    """Return text with question marks for the characters that XML cannot hold."""
    return "".join(c if c in "\t\n\r" or 0x20 <= ord(c) <= 0xD7FF or ord(c) >= 0xE000 else "?" for c in text)


def write_figures(folder: Path, figures: Iterable[tuple[str, Any]]) -> None:
    """Write figures, after their names, as svg and png, where matplotlib is installed."""
    if find_spec("matplotlib"):
        for name, figure in figures:
            write_figure(folder / name, figure)


def write_report(path: Path, results: Results) -> None:
    """Write the page, where jinja2 is installed."""
    if find_spec("jinja2"):
        report.write(results, path)


def said_of_fit(results: Results) -> dict[str, Any]:
    """Return what a program is told about a fit."""
    found = results.fit
    texts = lb.text_names(found.model.contexts)[1:]
    return {
        "method": found.method,
        "verdict": str(results.verdict[1]),
        "reasons": list(results.verdict[1].reasons),
        "idle": lb.text_names(found.idle),
        "order": list(found.order),
        "targets": dict(zip(texts, (list(v.targets) for v in found.model.interventions.values()), strict=True)),
        "edges": results.edges.drop(columns=["lower", "upper"]).to_dict("records"),
        "loglik": found.loglik,
        "bic": found.bic,
        "converged": bool(found.converged),
    }
