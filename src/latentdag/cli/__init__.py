"""The command line: thin commands over the library."""

import sys


def main() -> None:
    """Entry point of the ``latentdag`` command."""
    try:
        from latentdag.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("latentdag: the command line needs two more packages: pip install 'latentdag[cli]'")
    app()
