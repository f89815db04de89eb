"""Packages that only some formats need."""

from importlib import import_module
from typing import Any


def optional(module: str, extra: str, what: str) -> Any:
    """Import a package that is not always there; a complaint says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs {module}: pip install 'latentdag[{extra}]' ({error})") from None
