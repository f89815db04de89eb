"""Two things that napoleon reads otherwise than our docstrings mean them."""

import re
from typing import Any

from sphinx.application import Sphinx

SEVERAL = re.compile(r"^:(ivar|vartype) (\w+(?:, \w+)+):")


def keep_sentence(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """It takes what stands before a colon in a property's first line for its type: let that be an empty comment."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def keep_names(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """It takes the first of several attributes on one line for the type of the others."""
    lines[:] = [SEVERAL.sub(lambda found: f":{found[1]} {found[2].replace(', ', ',')}:", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", keep_sentence, priority=1)  # napoleon has 500
    app.connect("autodoc-process-docstring", keep_names, priority=900)
    return {"parallel_read_safe": True}
