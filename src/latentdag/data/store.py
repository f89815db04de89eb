"""Files without pickle: one zip of plain arrays and one JSON text per object, written whole or not at all.

Readers trust nothing: the text is read and checked first, then the headers of the arrays, and only then the arrays
themselves. Members are never compressed, so a file takes no more memory than it has bytes.
"""

import glob
import json
import math
import os
import re
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import numpy as np

from latentdag.data.schema import FieldError, Layout, check_field, headers, parse_json, shown
from latentdag.errors import FileError

#: Version of the files. It grows when files change so that older versions of latentdag cannot read them.
FORMAT_VERSION = 1

#: Largest JSON text of a file in bytes, at four bytes per character: names for 800,000 features of 20 letters.
LARGEST_TEXT = 2**26

#: Errors that reading a damaged zip file may raise.
_UNREADABLE = (OSError, EOFError, ValueError, TypeError, KeyError, RuntimeError, ArithmeticError,
               struct.error, zipfile.BadZipFile)  # fmt: skip

_MEND = "the file is damaged: make it again"

#: The header that numpy writes for arrays of the few types that are used here.
_HEADER = re.compile(
    r"\{'descr': '([<>|](?:f8|i8|b1|U\d{1,9}))', 'fortran_order': (?:True|False), 'shape': \(([\d, ]*)\), \} *\n"
)

#: How names of temporary files end.
UNFINISHED = ".latentdag"


class WriteError(OSError):
    """An output cannot be written; the message names it, and ``reason`` says why."""

    reason = ""


def packaged(name: str) -> str:
    """Return the text of a file that stands beside the modules, such as ``report/page.html``."""
    return (files("latentdag") / name).read_text(encoding="utf-8")


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
    """Lock an open file: return True if it is ours now, False if it is another's, None if nobody can tell.

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
    """Remove temporary files that killed runs left beside a target."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.????????{UNFINISHED}"):
        with suppress(OSError), left.open("rb") as file:
            # a file this young may be one that its process has just made and not marked yet
            if time.time() - left.stat().st_mtime > 1 and hold(file):
                left.unlink()


def save_arrays(
    path: str | os.PathLike[str], layout: Layout, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> None:
    """Save named arrays and a JSON-able mapping as one ``.npz`` file.

    Raises
    ------
    ValueError
        If it could not be loaded again.
    """
    text = json.dumps({"kind": layout.kind, "version": FORMAT_VERSION, **meta})
    if 4 * len(text) > LARGEST_TEXT:
        raise ValueError(f"cannot save {path}: its names and settings take {len(text)} characters; shorten the names")
    layout.check(parse_json(text), headers(arrays))
    # what was checked holds no objects, so that nothing is pickled; NumPy before 2.2 has no switch for it
    whole: dict[str, Any] = {"meta": np.array(text), **arrays}
    write_atomically(path, lambda file: np.savez(file, **whole))


def load_arrays(path: str | os.PathLike[str], layout: Layout) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Load what :func:`save_arrays` wrote.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, PermissionError
        If there is no such file, or it may not be read.
    FileError
        If it is damaged, was not written by latentdag, or holds another kind of object.
    """
    path = Path(path)
    with naming_file(path), _opened(path) as file, zipfile.ZipFile(file) as archive:
        members = _members(archive, path.stat().st_size)
        if "meta" not in members:
            raise FieldError("file", "is not a latentdag file: it has no member meta.npy")
        meta = _meta(path, layout, archive, members.pop("meta"))
        layout.check(meta, {name: _header(archive, member, name) for name, member in members.items()})
        return {name: _array(archive, member) for name, member in members.items()}, meta


def read_json(path: str | os.PathLike[str], kind: Any) -> Any:
    """Read a JSON file whose content is of a kind (see :mod:`latentdag.data.schema`); raises as :func:`load_arrays`."""
    path = Path(path)
    with naming_file(path), _opened(path) as file:
        if path.stat().st_size > LARGEST_TEXT:
            raise FieldError("file", f"has more than {LARGEST_TEXT} bytes, which no such file has")
        found = parse_json(file.read().decode("utf-8"))
        check_field(found, kind)
        return found


def to_plain(value: Any) -> Any:
    """Return a value as JSON can hold it: mappings with text keys, lists, text, numbers, booleans and ``None``.

    Numpy arrays and scalars become lists and Python numbers, at any depth. Numbers that are not finite become ``None``,
    because JSON has no word for them. Anything else, such as a date, becomes its text.

    Examples
    --------
    >>> to_plain({"n": np.int64(3), 2: np.array([0.5, np.nan]), "pair": ("WT", True)})
    {'n': 3, '2': [0.5, None], 'pair': ['WT', True]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        dates = value.dtype.kind in "mM"  # tolist makes bare numbers of nanoseconds
        return to_plain((value.astype(str) if dates else value).tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


@contextmanager
def naming_file(path: str | os.PathLike[str], field: str = "file") -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one :class:`~latentdag.errors.FileError`."""
    try:
        yield
    except (FileError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except FieldError as error:
        raise FileError(path, error.name, f"{error.reason}; {_MEND}") from None
    except _UNREADABLE as error:
        text = " ".join(str(error).split())[:300]
        said = f"is not a latentdag file, or is damaged ({type(error).__name__}: {text})" if field == "file" else text
        raise FileError(path, field, f"{said}; {_MEND}") from None


def different(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return the names of what is not the same in both."""
    return [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]


def check_same_work(path: Path, there: Mapping[str, str], now: Mapping[str, str], advice: str) -> None:
    """Complain if what a checkpoint was written for is not what is being done now."""
    changed = different(there, now)
    if changed:
        raise ValueError(
            f"the checkpoint {path} belongs to other work: {', '.join(changed)} changed (first "
            f"{there.get(changed[0])!r} there, {now.get(changed[0])!r} now). {advice}"
        )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read; say in one sentence why it cannot be opened."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        file = path.open("rb")
    except PermissionError:
        raise PermissionError(f"{path} may not be read: ask for the permission to") from None
    with file:
        yield file


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive by name; refuse those that claim more bytes than there are on disk."""
    listed = archive.infolist()
    members = {member.filename.removesuffix(".npy"): member for member in listed}
    if len(members) < len(listed):
        raise FieldError("file", "has two members of one name")
    for name, member in members.items():
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise FieldError(
                "file", f"has a compressed member {name[:60]!a}: numpy.savez writes what is not compressed"
            )
    if sum(member.file_size for member in listed) > size:
        raise FieldError("file", "claims to hold more than it has bytes")
    return members


def _meta(path: Path, layout: Layout, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> dict[str, Any]:
    """Return the JSON of a file; refuse another kind, or a version that is not known."""
    dtype, shape = _header(archive, member, "meta")
    if dtype.kind != "U" or shape or dtype.itemsize > LARGEST_TEXT:
        raise FieldError("meta", f"must be one text of {LARGEST_TEXT} bytes at most")
    meta = parse_json(str(_array(archive, member)))
    check_field(meta, {"kind": str, "version": int})
    if meta["kind"] != layout.kind:
        reason = f"holds {shown(meta['kind'])}, not {layout.kind!r}: load it with the class that saved it"
        raise FileError(path, "kind", reason)
    if meta["version"] > FORMAT_VERSION:
        reason = f"was written by a newer latentdag (format {meta['version']}): upgrade to read it"
        raise FileError(path, "version", reason)
    if meta["version"] < 1:
        raise FieldError("version", f"must be 1 or more, not {meta['version']}")
    return dict(meta)


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> tuple[np.dtype, tuple[int, ...]]:
    """Return type and shape of an array; refuse a member that is not exactly as long as they say."""
    with archive.open(member) as file:
        start = file.read(10)  # magic, version 1.0, length of the header
        length = int.from_bytes(start[8:], "little")
        found = _HEADER.fullmatch(file.read(length).decode("latin-1"))
    if not start.startswith(b"\x93NUMPY\x01\x00") or found is None:
        raise FieldError(name or "file", "is no plain array of float64, int64 or bool numbers")
    dtype, shape = np.dtype(found[1]), tuple(int(size) for size in found[2].split(",") if size.strip())
    if 10 + length + math.prod(shape) * dtype.itemsize != member.file_size:
        raise FieldError(name or "file", f"has {member.file_size} bytes, which do not make an array {shape} of {dtype}")
    return dtype, shape


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
