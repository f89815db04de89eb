"""Test the script that draws the house, and that the page it makes is up to date."""

import re

import pytest

import latentdag as ld
from loading import load

from paths import DOCS

house = load(DOCS / "architecture.py")


def test_the_table_of_layers_points_down():
    rooms = house.drawn_order()
    assert set(rooms) == set(house.LAYERS)
    for room, layer in house.LAYERS.items():
        assert all(rooms.index(room) < rooms.index(other) for other in layer.may), room


def test_the_page_shows_the_table_of_layers():
    page = house.PAGE.read_text(encoding="utf-8")
    assert house.renewed(page, {"layers": house.table_of_layers}) == page, "python docs/architecture.py"


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        ("from latentdag.b.c import f", ["latentdag.b.c"]),
        ("from latentdag.b import c", ["latentdag.b.c"]),
        ("from latentdag.b import f", ["latentdag.b"]),
        ("from latentdag import fit", ["latentdag." + ld._HOME["fit"]]),
        ("def f():\n    import latentdag.b.c", ["latentdag.b.c"]),
        ("import latentdag as ld\nld.simulate", ["latentdag." + ld._MODULES["simulate"]]),
        ("from .b.c import f", ["latentdag.b.c"]),
        ("if TYPE_CHECKING:\n    from latentdag.b.c import f\nelse:\n    from latentdag.b import f", ["latentdag.b"]),
        ("import numpy\nfrom scipy import linalg", []),
    ],
)
def test_imports_are_found_wherever_they_stand(tmp_path, code, reached):
    source = tmp_path / "latentdag"
    (source / "b").mkdir(parents=True)
    for file, text in {"__init__.py": "", "a.py": code, "b/__init__.py": "", "b/c.py": ""}.items():
        (source / file).write_text(text)
    assert [each.imported for each in house.imports(source)] == reached


@pytest.mark.parametrize(
    ("importer", "imported", "said"),
    [
        ("core.a", "errors", "core may import nothing of latentdag"),
        ("errors", "core.linalg", "base may import latentdag.core.context_error only"),
        ("model.a", "methods.b", "model may import base, core, data"),
        ("cli.app", "report.parts", "from another face import what its front door exports"),
        ("report.a", "cli", "report may import"),
        ("kitchen.a", "core.linalg", "does not say who may import the room 'kitchen'"),
    ],
)
def test_what_the_table_forbids_is_said(importer, imported, said):
    found = house.complaints([house.Import(f"latentdag.{importer}", f"latentdag.{imported}", 1)])
    assert len(found) == 1
    assert said in found[0]


def test_cycles_are_found_round_corners():
    links = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
    assert house.cycles([house.Import(*link, 1) for link in links]) == [["a", "b", "c"]]


def test_the_picture_shows_the_rooms_and_arrows_of_the_source():
    rooms, arrows = house.drawn(house.PICTURE.read_text(encoding="utf-8"))
    assert rooms == set(house.LAYERS)
    assert arrows == set(house.arrows(house.imports())), "python docs/architecture.py"


def test_the_walk_on_the_page_names_files_that_exist():
    files = re.findall(r"^\| `([\w/]+\.py)` \|", house.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(files) > 5
    assert [file for file in files if not (house.SOURCE / file).is_file()] == [], "python docs/architecture.py"
