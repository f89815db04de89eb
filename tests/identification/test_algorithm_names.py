"""A reader with the paper in hand finds each algorithm by its name and number, and each name once."""

import ast
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import latentdag as ld

SOURCE = Path(ld.__file__).parent

ALGORITHMS = [
    (1, "core.exact", "id_ancestors"),
    (2, "core.exact", "id_partial_order"),
    (3, "core.exact", "iterative_difference_projection"),
    (4, "core.projection", "identify_partial_order_finite_sample"),
    (5, "core.projection", "identify_ancestors_finite_sample"),
    (6, "core.projection", "iterative_difference_projection_finite_sample"),
]


@pytest.mark.parametrize(("number", "module", "name"), ALGORITHMS)
def test_each_algorithm_is_a_function_that_says_its_number(number, module, name):
    home = import_module(f"latentdag.{module}")
    assert f"Algorithm {number}" in getattr(home, name).__doc__
    assert f":func:`{name}`" in home.__doc__


def test_no_name_stands_for_two_things():
    rooms = (path for room in ("core", "model", "identification") for path in (SOURCE / room).rglob("*.py"))
    defined = Counter(
        node.name
        for path in rooms
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    )
    # the one that users call checks what it is given and passes it on to the core's
    assert {name for name, times in defined.items() if times > 1} <= {"partial_order_rq"}
