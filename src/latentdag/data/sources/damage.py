"""Damaged files end in one clear sentence, whatever the library that reads them raises.

Decompressors, HDF5, zarr and parquet each have errors of their own, other ones in every version, down to ``KeyError``
and ``RuntimeError``. An error that comes out of their code while a file is read is the file's; one that comes out of
ours is a defect, and stays what it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).parent.parent)


@contextmanager
def reading(source: Any) -> Iterator[None]:
    """Turn what other libraries raise while reading a file into a ``ValueError`` that names it."""
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        if _in_our_code(error):
            raise
        raise _named(source, error) from None


def _named(source: Any, error: BaseException) -> ValueError:
    text = " ".join(str(error).split())
    text = text if len(text) <= 200 else f"{text[:200]}…"
    return ValueError(f"{source} is damaged, or not what its name says ({type(error).__name__}: {text})")


def _in_our_code(error: BaseException) -> bool:
    """Whether the error was raised by a line of latentdag, and not in a library that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS)
