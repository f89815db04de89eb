"""What the source imports is what pyproject.toml asks for, each with the oldest version that works."""

import ast
import sys
from pathlib import Path

import pytest

import latentdag as ld

import floors

SOURCES = sorted(Path(ld.__file__).parent.rglob("*.py"))
PACKAGES = {"sklearn": "scikit-learn", "distributed": "dask"}  # the others are called what is imported


def imported(path):
    """Names of modules in import statements, and in calls of ``optional("module", …)``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "optional"
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.args[0].value


def test_every_import_is_asked_for_and_nothing_else():
    used = {name.split(".")[0] for path in SOURCES for name in imported(path)} - {"latentdag"}
    assert {PACKAGES.get(name, name) for name in used - sys.stdlib_module_names} == set(floors.floors())


def test_a_requirement_without_a_floor_is_refused(tmp_path, monkeypatch):
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\nname = "a"\ndependencies = ["b>=1", "c"]\n[project.optional-dependencies]\nd = ["e[f]>=2.0"]\n'
    )
    monkeypatch.setattr(floors, "PROJECT", project)
    with pytest.raises(ValueError, match=r"a floor, name>=version: c$"):
        floors.floors()
    project.write_text(project.read_text().replace('"c"', '"c>=3"'))
    assert floors.floors() == {"b": "1", "c": "3", "e": "2.0"}
