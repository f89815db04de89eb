"""Files: one zip of plain arrays and one JSON text per object. No pickle; written whole or not at all."""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

#: Raised when a later version cannot be read by this one.
FORMAT_VERSION = 1


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Write a temporary file beside ``path`` and move it there, so that readers never see half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes private files; a result is as readable as any other
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_arrays(
    path: str | os.PathLike[str], kind: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> None:
    """Save named arrays and a JSON-able mapping as one ``.npz`` file."""
    text = json.dumps({"kind": kind, "version": FORMAT_VERSION, **meta})
    write_atomically(path, lambda file: _write_arrays(file, {"meta": np.array(text), **arrays}))


def _write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write what ``np.savez`` writes, byte for byte, but never a pickle: NumPy before 2.2 has no such switch."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, values, allow_pickle=False)


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
