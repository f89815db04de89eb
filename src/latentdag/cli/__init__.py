"""The command line: thin commands over the library.

=============  ==================================================================
``app``        the commands and their options
``files``      single files that commands write
``fitting``    ``latentdag moments``, ``test``, ``fit``, ``report`` and ``design``
``place``      where a run writes
``reproduce``  ``latentdag reproduce``
``results``    the folder that a fit leaves
``screens``    ``latentdag simulate`` and ``demo``
``source``     data that commands read
``workflow``   ``latentdag workflow``
=============  ==================================================================
"""

import io
import os
import sys
from typing import Any

from latentdag import __version__


def main() -> None:
    """Run the ``latentdag`` command."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _lasting(getattr(sys, name), number))
    try:
        from latentdag.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        asked = sys.argv[1:] == ["--version"]  # the one answer that needs no more than the package itself
        if asked:
            sys.stdout.write(f"latentdag {__version__}\n")
        sys.stderr.write("latentdag: the command line needs two more packages: pip install 'latentdag[cli]'\n")
        sys.exit(0 if asked else 1)
    app()


def _lasting(stream: Any, number: int) -> Any:
    """Return a standard stream that stays usable.

    A stream that was closed from the start leads nowhere. A reader may leave early, as in ``| head``.
    """
    if stream is None:
        return open(os.devnull, "r+")  # takes the number that is free, so that no file of ours can get it
    if number == 0 or stream.isatty():
        return stream
    raw = io.BufferedWriter(_Pipe(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding=stream.encoding, errors=stream.errors, line_buffering=number == 2)


class _Pipe(io.FileIO):
    """Write bytes as long as somebody reads them, then drop them: the work is worth finishing without a reader."""

    lost = False

    def write(self, data: Any) -> int:
        try:
            return len(data) if self.lost else super().write(data) or 0
        except OSError as error:
            self.lost = True  # once is enough: the interpreter tries again at its end
            if isinstance(error, BrokenPipeError) or self.fileno() == 2:
                return len(data)
            raise OSError(f"cannot write the standard output: {error.strerror}") from None
