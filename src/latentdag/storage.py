"""Files: one zip of plain arrays and one JSON text per object. No pickle; written whole or not at all."""

import glob
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

#: Raised when a later version cannot be read by this one.
FORMAT_VERSION = 1

#: How names of temporary files end.
UNFINISHED = ".latentdag"


class WriteError(OSError):
    """An output cannot be written; the message names it, and ``reason`` says why."""

    reason = ""


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system raises into one sentence that names the output: the data being read are not to blame."""
    try:
        yield
    except OSError as error:
        reason = error.reason if isinstance(error, WriteError) else error.strerror or str(error)
        made = WriteError(f"cannot write {path}: {reason[:1].lower()}{reason[1:]}")
        made.reason = reason
        raise made from None


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Write a temporary file beside ``path`` and move it there, so that readers never see half a file.

    A link stays a link: what it points to is replaced. Files that killed runs left behind are cleared.

    Raises
    ------
    WriteError
        If it cannot be written; what was there before is untouched.
    """
    target = Path(os.path.realpath(path))
    with writing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_unfinished(target)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=UNFINISHED)
        try:
            with open(temporary, "rb") as held:
                if hold(held) is None:
                    held.close()  # where there are no marks, files that are open may not be moved either
                with os.fdopen(handle, "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                umask = os.umask(0)
                os.umask(umask)
                os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes private files; a result is as readable as any other
                os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def hold(file: IO[Any]) -> bool | None:
    """Mark an open file as this process's: True if it is ours now, False if it is another's, None if nobody can tell.

    The system forgets the mark when the file is closed or the process ends, however it ends.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # a system, or a file system, without such marks
        return None
    return True


def _clear_unfinished(target: Path) -> None:
    for left in target.parent.glob(f".{glob.escape(target.name)}.????????{UNFINISHED}"):
        with suppress(OSError), left.open("rb") as file:
            # a file this young may be one that its process has just made and not marked yet
            if time.time() - left.stat().st_mtime > 1 and hold(file):
                left.unlink()


def save_arrays(
    path: str | os.PathLike[str], kind: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> None:
    """Save named arrays and a JSON-able mapping as one ``.npz`` file."""
    text = json.dumps({"kind": kind, "version": FORMAT_VERSION, **meta})
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, meta=np.array(text), **arrays))


def load_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Load what :func:`save_arrays` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, was not written by latentdag, or holds another kind of object.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(str(arrays.pop("meta")))
        found, version = meta["kind"], meta["version"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a latentdag file, or is damaged ({type(error).__name__}: {error})") from None
    if found != kind:
        raise ValueError(f"{path} holds {found!r}, not {kind!r}: load it with the class that saved it")
    if version > FORMAT_VERSION:
        raise ValueError(f"{path} was written by a newer latentdag (format {version}); upgrade to read it")
    return arrays, meta
