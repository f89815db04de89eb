"""Hold the source to the plan of the house: layers, front doors, no cycles, and rooms that list their modules.

The table of layers is in docs/architecture.py, which also draws the picture of the rooms.
"""

import ast
import importlib
import re
import sys

import pytest

import latentdag as ld
from loading import load

from paths import DOCS

house = load(DOCS / "architecture.py")
MODULES = house.modules()
IMPORTS = house.imports()
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py" and name != "latentdag")


def test_every_import_is_allowed_by_the_table_of_layers():
    assert house.complaints(IMPORTS) == []


def test_no_modules_import_each_other():
    assert house.cycles(IMPORTS) == []


def test_every_room_is_in_the_table_of_layers():
    assert {house.room_of(name) for name in MODULES} == set(house.LAYERS)


def test_the_root_keeps_only_what_all_use():
    assert len(list(house.SOURCE.glob("*.py"))) <= 8


@pytest.mark.parametrize("name", sorted(name for name in MODULES if name.startswith("latentdag.core")))
def test_the_core_imports_only_arrays_and_itself(name):
    assert house.outside(MODULES[name]) - sys.stdlib_module_names <= {"numpy", "scipy"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_pickle(name):
    assert not house.outside(MODULES[name]) & {"pickle", "joblib", "dill", "cloudpickle"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_lists_its_modules(package):
    """A newcomer reads the docstring of a room's ``__init__`` to find the module to open."""
    folder = MODULES[package].parent
    doc = ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8"))) or ""
    inside = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    named = set(re.findall(r"``(\w+)``", doc)) | set(re.findall(rf"{re.escape(package)}\.(\w+)`", doc))
    missing = sorted(inside - {"__init__", "__main__"} - named)
    lines = "".join(f"\n    ``{module}``  what it is for" for module in missing)
    assert not missing, f"the table in the docstring of {MODULES[package]} lacks{lines}"
    listed = set(re.findall(r"^``(\w+)``  ", doc, re.MULTILINE))
    gone = sorted(listed - inside - set(dir(importlib.import_module(package))))
    assert not gone, f"the table in the docstring of {MODULES[package]} lists what is not there: {', '.join(gone)}"


@pytest.mark.parametrize("name", ld.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert getattr(ld, name).__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ld.nonsense
