"""Optional packages: one message for every extra, with the command that installs it."""

from importlib import import_module
from typing import Any


def optional(module: str, extra: str, what: str) -> Any:
    """Import and return an optional package; if it is missing, say which extra installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs {module}: pip install 'latentdag[{extra}]' ({error})") from None
