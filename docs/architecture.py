"""Draw the house from its import graph: ``python docs/architecture.py`` renews docs/architecture.md and its picture.

This file is the one place that says who may import whom (:data:`LAYERS`). The tests read it and hold the source to it
(tests/repository/test_layers.py), and the page shows it.

An import counts wherever it stands: at the top of a module, inside a function, or as ``latentdag.name`` after
``import latentdag``. Only imports under ``if TYPE_CHECKING`` do not count, because they never run. A public name,
``from latentdag import fit``, counts as an import of the module that holds it.
"""

import ast
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import networkx as nx

import latentdag

HERE = Path(__file__).parent
SOURCE = Path(latentdag.__file__).parent
PAGE, PICTURE = HERE / "architecture.md", HERE / "_static" / "architecture.svg"


@dataclass(frozen=True)
class Layer:
    """One room: what kind of room it is, what it may import, and what it is for."""

    kind: str
    may: tuple[str, ...]
    about: str


BASE = ("base", "core")
WORDS = (*BASE, "data", "model")
ANSWERS = (*WORDS, "identification", "uncertainty", "methods")
BELOW_FACES = (*ANSWERS, "inference", "design", "datasets")

#: Faces in the order in which they may use each other, and only through each other's front door.
FACES = {
    "tl": "AnnData in, AnnData out",
    "estimator": "a scikit-learn estimator",
    "pl": "figures",
    "report": "one collection of results, as HTML, markdown and JSON",
    "workflow": "from a perturbation screen to patients' survival",
    "experiments": "the paper's experiments, behind `latentdag reproduce`",
    "cli": "the command `latentdag`",
}

#: Every room, from the ground up: kind, what it may import, what it is for.
LAYERS = {
    "core": Layer("arrays", (), "arrays in, arrays out: the paper's algorithms, the likelihood, the search"),
    "base": Layer("base", ("core",), "errors and warnings, optional packages, the progress bar"),
    "data": Layer("words", BASE, "from any source to moments, and the files they are kept in"),
    "model": Layer("words", (*BASE, "data"), "the model in words: interventions, exact laws, random draws, distances"),
    "identification": Layer("answers", WORDS, "what exact moments determine, and what no amount of data can tell"),
    "uncertainty": Layer(
        "answers", WORDS, "standard errors, tests of edges, predictions and held-out scores of one fit"
    ),
    "methods": Layer("answers", ANSWERS[:-1], "the methods behind `ld.fit`, and the fit they return"),
    "inference": Layer("answers", ANSWERS, "tests of data and fits, and the bootstrap"),
    "design": Layer("answers", ANSWERS, "how many cells, shared out how, and which perturbation next"),
    "datasets": Layer("faces", WORDS, "real data, one loader each"),
    **{face: Layer("faces", (*BELOW_FACES, *list(FACES)[:i]), FACES[face]) for i, face in enumerate(FACES)},
}

#: The loose modules of the root that make up the room `base`; `latentdag` itself is the table of public names.
ROOT_MODULES = ("latentdag", "latentdag.errors", "latentdag.optional", "latentdag.progress")

#: All that the room `base` may import of the core.
BASE_OF_CORE = "latentdag.core.context_error"


@dataclass(frozen=True)
class Import:
    """One import of one module of latentdag by another."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Return every module of the package by its dotted name; a package goes by the name of its folder."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = (source.name, *path.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    """Return the room that a module belongs to.

    Examples
    --------
    >>> room_of("latentdag.core.pairs"), room_of("latentdag.errors"), room_of("latentdag")
    ('core', 'base', 'base')
    """
    return "base" if module in ROOT_MODULES else module.split(".")[1]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node that can run, so none under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in (
            getattr(node.test, "id", ""),
            getattr(node.test, "attr", ""),
        ):
            for other in node.orelse:
                yield other
                yield from statements(other)
            continue
        yield node
        yield from statements(node)


def outside(path: Path) -> set[str]:
    """Return the packages outside latentdag that a module imports, anywhere in it."""
    names = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names - {"latentdag"}


def imports(source: Path = SOURCE) -> list[Import]:
    """Return every import inside the package, function-level imports included, public names resolved."""
    known = modules(source)
    homes = {name: f"latentdag.{home}" for name, home in {**latentdag._HOME, **latentdag._MODULES}.items()}
    found: dict[Import, None] = {}
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases = set()
        for node in statements(tree):
            targets: list[str] = []
            if isinstance(node, ast.Import):
                aliases |= {alias.asname or alias.name for alias in node.names if alias.name == "latentdag"}
                targets = [alias.name for alias in node.names if alias.name in known and alias.name != "latentdag"]
            elif isinstance(node, ast.ImportFrom):
                package = origin(node, name, path)
                targets = [resolve(package, alias.name, known, homes) for alias in node.names] if package else []
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in aliases:
                targets = [homes.get(node.attr, "latentdag")]
            found |= dict.fromkeys(Import(name, target, node.lineno) for target in targets)  # type: ignore[attr-defined]
    return list(found)


def origin(node: ast.ImportFrom, module: str, path: Path) -> str | None:
    """Return the module of latentdag that a ``from … import`` names, or None for another package."""
    if node.level:
        here = module.split(".")[: len(module.split(".")) - node.level + (path.name == "__init__.py")]
        return ".".join([*here, *([node.module] if node.module else [])])
    return node.module if (node.module or "").split(".")[0] == "latentdag" else None


def resolve(package: str, name: str, known: dict[str, Path], homes: dict[str, str]) -> str:
    """Return the module that ``from package import name`` reaches."""
    if package == "latentdag" and name in homes:
        return homes[name]
    return f"{package}.{name}" if f"{package}.{name}" in known else package


def complaints(found: list[Import]) -> list[str]:
    """Return every import that the table of layers forbids, one sentence each."""
    doors = {f"latentdag.{face}" for face in FACES}
    doors |= {f"latentdag.{home}" for home in (*latentdag._HOME.values(), *latentdag._MODULES.values())}
    said = []
    for each in found:
        importer, imported = room_of(each.importer), room_of(each.imported)
        if importer == imported:
            continue
        for room, module in ((importer, each.importer), (imported, each.imported)):
            if room not in LAYERS:
                said.append(f"{module}: docs/architecture.py does not say who may import the room {room!r}")
        if importer not in LAYERS or imported not in LAYERS:
            continue
        if imported not in LAYERS[importer].may:
            said.append(f"{each}: {importer} may import {', '.join(LAYERS[importer].may) or 'nothing of latentdag'}")
        elif importer == "base" and each.imported != BASE_OF_CORE:
            said.append(f"{each}: base may import {BASE_OF_CORE} only")
        elif imported in FACES and each.imported not in doors:
            said.append(f"{each}: from another face import what its front door exports, from latentdag.{imported}")
    return sorted(set(said))


def cycles(found: list[Import]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or round several corners."""
    graph = nx.DiGraph((each.importer, each.imported) for each in found if each.importer != each.imported)
    return [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]


def arrows(found: list[Import]) -> Counter[tuple[str, str]]:
    """Return how many pairs of modules link each room to each other room."""
    pairs = {(each.importer, each.imported) for each in found}
    rooms = ((room_of(importer), room_of(imported)) for importer, imported in pairs)
    return Counter(pair for pair in rooms if pair[0] != pair[1])


# The picture: rooms stand on a diagonal, faces first. An arrow leaves a room to the right and falls on the room it
# imports; the number at its corner counts the pairs of modules. An arrow that points up would lie below the diagonal.
LEFT, TOP, STEP, WIDTH, HEIGHT = 118, 26, 44, 108, 26
STYLE = """
  .house { --ink: var(--color-foreground-primary, #1f2328); --soft: var(--color-foreground-muted, #6b7280);
           --paper: var(--color-background-primary, #fff); font-family: system-ui, sans-serif; }
  .house text { fill: var(--ink); font-size: 12.5px; }
  .house .note { fill: var(--soft); font-size: 12px; }
  .house .line { fill: none; stroke: var(--soft); opacity: .45; }
  .house .count { font-size: 10.5px; text-anchor: middle; dominant-baseline: central; }
  .house .dot { stroke: none; }
  .house .name { font-weight: 600; text-anchor: middle; dominant-baseline: central; fill: #fff; }
  .house .faces { fill: #8250a8; } .house .answers { fill: #1f6feb; } .house .words { fill: #1a7f5a; }
  .house .base { fill: #6b7280; } .house .arrays { fill: #b3541e; }
  .house .wrong .line { stroke: #d1242f; opacity: 1; }
  .house .arrow:hover .line { stroke: var(--ink); opacity: 1; stroke-width: 2; }
  @media (prefers-color-scheme: dark) { svg.house:root { --ink: #e6edf3; --soft: #9198a1; --paper: #131416; } }
"""


def picture(links: Counter[tuple[str, str]]) -> str:
    """Return the rooms and the imports between them as one SVG, which follows the theme of the page it stands in."""
    rooms = drawn_order()
    place = {room: (LEFT + STEP * i, TOP + STEP * i) for i, room in enumerate(rooms)}
    size = LEFT + STEP * len(rooms), TOP + STEP * len(rooms)
    lines, dots, boxes = [], [], []
    for (importer, imported), count in sorted(links.items()):
        (_, y), (x, end) = place[importer], place[imported]
        start, tip = place[importer][0] + 8, end - HEIGHT / 2 - 2
        kind = "arrow" if imported in LAYERS[importer].may else "arrow wrong"
        lines.append(
            f'<g class="{kind}" data-from="{importer}" data-to="{imported}"><title>{importer} imports {imported}: '
            f'{count}</title><path class="line" d="M{start} {y}H{x - 6}Q{x} {y} {x} {y + 6}V{tip}" '
            f'stroke-width="{1 + count**0.5 / 3:.1f}" marker-end="url(#house-tip)"/></g>'
        )
        radius = 7 + min(count, 50) ** 0.5 * 0.6
        dots.append(f'<circle cx="{x}" cy="{y}" r="{radius:.1f}" fill="var(--paper)"/>')
        dots.append(f'<text class="count" x="{x}" y="{y}">{count}</text>')
    for room, (x, y) in place.items():
        corner = f'x="{x + 10 - WIDTH}" y="{y - HEIGHT / 2}" width="{WIDTH}" height="{HEIGHT}" rx="6"'
        boxes.append(f'<rect class="room {LAYERS[room].kind}" data-room="{room}" {corner}/>')
        boxes.append(f'<text class="name" x="{x + 10 - WIDTH / 2}" y="{y + 0.5}">{room}</text>')
    notes = [
        "Along a row: what the room imports. Up a column: who imports it.",
        "The number counts pairs of modules. Every arrow points down.",
    ]
    said = [
        f'<text class="note" x="14" y="{size[1] - 62 + 18 * i}">{line}</text>' for i, line in enumerate(notes)
    ]  # fmt: skip
    head = (
        f'<svg class="house" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" role="img" '
        f'width="100%" aria-label="Rooms of latentdag and the imports between them">'
    )
    tip = (
        '<defs><marker id="house-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--soft)"/></marker></defs>'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", tip, *lines, *dots, *boxes, *said, "</svg>", ""])


def drawn_order() -> list[str]:
    """Return the rooms from top to bottom: the last face first, the core last."""
    ground = [
        "core",
        "base",
        "data",
        "model",
        "datasets",
        "identification",
        "uncertainty",
        "methods",
        "inference",
        "design",
    ]
    return [*reversed(FACES), *reversed(ground)]


def drawn(svg: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the rooms and the arrows of a picture."""
    rooms = set(re.findall(r'data-room="(\w+)"', svg))
    return rooms, set(re.findall(r'data-from="(\w+)" data-to="(\w+)"', svg))


class Walk:
    """The functions of latentdag that were entered, in order, by file.

    Attributes
    ----------
    entered : dict of file (relative to the package) to the names of its functions, both in the order of first entry
    """

    def __init__(self) -> None:
        self.entered: dict[str, dict[str, None]] = {}
        self._seen: dict[CodeType, None] = {}

    @property
    def n_functions(self) -> int:
        return sum(len(names) for names in self.entered.values())

    @property
    def n_files(self) -> int:
        return len(self.entered)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        self._seen[code] = None
        # bodies of modules and classes run once on import, and a comprehension belongs to its function
        if (
            code.co_flags & CO_OPTIMIZED
            and not code.co_name.startswith("<")
            and code.co_filename.startswith(str(SOURCE))
        ):
            file = Path(code.co_filename).relative_to(SOURCE).as_posix()
            self.entered.setdefault(file, {})[code.co_qualname] = None


@contextmanager
def walked() -> Iterator[Walk]:
    """Record every function of latentdag that is entered meanwhile, in all threads."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def walk_of_fit() -> Walk:
    """Walk through ``ld.fit(m)`` for five latents and 2,500 samples per context."""
    m = example()[1]
    with walked() as walk:
        latentdag.fit(m)
    return walk


def walk_of_command() -> Walk:
    """Walk through ``latentdag fit screen.h5ad --control control`` on the same data, files and report included."""
    import anndata
    import pandas as pd

    from latentdag.cli.app import app

    X, contexts = latentdag.simulate.sample(example()[0], 2_500, rng=1)
    with tempfile.TemporaryDirectory() as folder:
        screen = Path(folder) / "screen.h5ad"
        obs = pd.DataFrame({"context": contexts}, index=[f"cell {i}" for i in range(len(X))])
        anndata.AnnData(X, obs).write_h5ad(screen)
        with walked() as walk:
            app(["fit", str(screen), "--control", "control", "--out", f"{folder}/out"], standalone_mode=False)
    return walk


def example() -> tuple[Any, Any]:
    """Return a random model with five latents and ten features, and moments of 2,500 samples per context."""
    truth = latentdag.simulate.random_model(n_latents=5, n_features=10, rng=0)
    X, contexts = latentdag.simulate.sample(truth, 2_500, rng=1)
    return truth, latentdag.Moments.from_samples(X, contexts, control="control")


def table_of_layers() -> str:
    """Return the table of layers in markdown, faces first."""
    lines = ["| room | what it is for | may import |", "| --- | --- | --- |"]
    for room in drawn_order():
        layer = LAYERS[room]
        may = [other for other in drawn_order() if other in layer.may]
        listed = ", ".join(f"`{other}`" for other in may) or "numpy and scipy only"
        if room in FACES:
            before = [other for other in may if other in FACES]
            listed = ", ".join(["every room below the faces", *(f"`{other}`" for other in before)])
        elif room == "base":
            listed = "`core.context_error` only"
        lines.append(f"| `{room}` | {layer.about} | {listed} |")
    return "\n".join(lines)


def said_of_walk(walk: Walk) -> str:
    """Return one line per file: its functions in the order in which they were first entered."""
    lines = ["| file | functions, in the order in which they are first entered |", "| --- | --- |"]
    return "\n".join(
        [*lines, *(f"| `{file}` | {', '.join(f'`{n}`' for n in names)} |" for file, names in walk.entered.items())]
    )


def counts(fit: Walk, command: Walk) -> str:
    """Return the table of both counts."""
    return "\n".join(
        [
            "| | functions entered | files |",
            "| --- | --- | --- |",
            f"| `ld.fit(m)` | {fit.n_functions} | {fit.n_files} |",
            f"| `latentdag fit screen.h5ad` | {command.n_functions} | {command.n_files} |",
        ]
    )


MADE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- made end -->)", re.DOTALL)


def renewed(page: str, parts: dict[str, Callable[[], str]]) -> str:
    """Return the page with each part between ``<!-- made: name -->`` and ``<!-- made end -->`` made anew."""
    return MADE.sub(
        lambda found: f"{found[1]}\n{parts[found[2]]()}\n\n{found[3]}" if found[2] in parts else found[0], page
    )


def main() -> None:
    """Renew the picture and the page."""
    PICTURE.write_text(picture(arrows(imports())), encoding="utf-8")
    fit, command = walk_of_fit(), walk_of_command()
    parts = {
        "layers": table_of_layers,
        "counts": lambda: counts(fit, command),
        "walk": lambda: said_of_walk(fit),
    }
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
