"""Hold the source to the plan of the house: layers, front doors, no cycles, and rooms that list their modules.

The table of layers is in docs/architecture.py, which also draws the picture of the rooms.
"""

import sys

import pytest

import latentdag as ld
from loading import load

from paths import DOCS

house = load(DOCS / "architecture.py")
MODULES = house.modules()
IMPORTS = house.imports()
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py" and name != "latentdag")


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


@pytest.mark.parametrize("name", ld.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert getattr(ld, name).__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ld.nonsense
