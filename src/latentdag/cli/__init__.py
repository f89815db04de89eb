"""The command line: thin commands over the library."""

import sys
import warnings
from typing import Any


def main() -> None:
    """Entry point of the ``latentdag`` command."""
    try:
        from latentdag.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("latentdag: the command line needs two more packages: pip install 'latentdag[cli]'")
    warnings.formatwarning = _one_line
    app()


def _one_line(message: Any, *_: Any, **__: Any) -> str:
    """A warning as people want to read it: no file, no line of code."""
    return f"latentdag: warning: {' '.join(str(message).split())}\n"
