"""The house plan holds: the core knows nothing of the layers above it, and the public names are where API.md says."""

import ast
from pathlib import Path

import pytest

import latentdag as ld

SOURCE = Path(ld.__file__).parent


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", sorted((SOURCE / "core").glob("*.py")), ids=lambda p: p.stem)
def test_the_core_imports_only_arrays_and_itself(path):
    allowed = ("numpy", "scipy", "dataclasses", "typing", "collections", "functools", "itertools", "latentdag.core")
    assert [name for name in imports(path) if not name.startswith(allowed)] == []


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_pickle_and_no_adapter_below_the_adapters(path):
    names = list(imports(path))
    assert not any(name.split(".")[0] in ("pickle", "joblib", "dill", "cloudpickle") for name in names)
    if "cli" not in path.parts:
        assert not any(name.startswith("latentdag.cli") for name in names)


@pytest.mark.parametrize("name", ld.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert getattr(ld, name).__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ld.nonsense
