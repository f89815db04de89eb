"""Where a run writes: no file of the user is touched, and the old result stays until the new one is complete.

Everything unfinished is in one hidden folder: inside a folder for results (``OUT/.latentdag``), beside a single file
(``.NAME.latentdag``). That is the same file system also where OUT is a link, a mount point or the folder one stands in.
A run marks this folder as its own, and the system drops the mark however the run ends. Whoever can mark it finds only
what a killed run left: progress to go on from, and files to clear.

A result is first written there, in ``new``. Renaming that to ``ready`` makes it count; then its files move to their
places one by one, last the list of them by command, ``OUT/.latentdag.json``, by which the next run tells our files from
the user's. If the moves are cut short, the next run or the next reader completes them: at every moment the old result
or the new one is there in full, and a folder with ``ready`` in it is never read as it is.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any

import typer

from latentdag import __version__
from latentdag.data.store import WriteError, hold, write_atomically, writing

WORK, LIST = ".latentdag", ".latentdag.json"

#: Seconds of work after which an error leaves the progress made so far for the next try.
WORTH_KEEPING = 30.0


@dataclass(frozen=True)
class Place:
    """A file or folder for results, reserved for one run.

    Attributes
    ----------
    out : as the user named it
    root : the folder that the result is written to
    work : the hidden folder for what is unfinished
    command : whose result it is; those of several commands can share a folder
    began : when the run began
    """

    out: Path
    root: Path
    work: Path
    command: str
    began: datetime

    def times(self) -> dict[str, Any]:
        """Return when the work was done, and how many seconds it took."""
        now = datetime.now(UTC)
        return {"finished": now.isoformat(timespec="seconds"), "seconds": round((now - self.began).total_seconds(), 1)}

    def unfinished(self, kind: str, about: Any) -> Path:
        """Return where progress of some kind of work is kept; progress of other work is dropped, with a message."""
        text = json.dumps([__version__, about], sort_keys=True, default=str).encode("utf-8", "backslashreplace")
        return self.only(self.work / f"{kind}-{hashlib.sha256(text).hexdigest()[:12]}")

    def only(self, mine: Path) -> Path:
        """Drop progress of the same kind as ``mine`` but of other work."""
        others = [path for path in self.work.glob(f"{mine.name.rpartition('-')[0]}-*") if path != mine]
        if others:
            typer.echo(f"latentdag: what was unfinished of {self.out} had other data or options: begins anew", err=True)
        _remove(others)
        return mine

    @contextmanager
    def replaced(self) -> Iterator[Path]:
        """Give an empty folder; at the end its files replace those of the last run, but not after an error."""
        new = self.work / "new"
        with writing(self.out):
            new.mkdir()
            yield new
            names = sorted(path.relative_to(new).as_posix() for path in new.rglob("*") if path.is_file())
            self.check_free(names)
            write_list(new, {**read_list(self.root), self.command: names})
            new.replace(self.work / "ready")
            self.settle()

    def check_free(self, names: Sequence[str]) -> None:
        """Refuse to overwrite files other than those of the last run."""
        ours = read_list(self.root).get(self.command, [])
        for name in names:
            path = self.out / name
            in_the_way = [parent for parent in path.parents if parent.is_file()]
            if path.is_dir() or (os.path.lexists(path) and name not in ours):
                in_the_way.append(path)
            if in_the_way:
                raise ValueError(
                    f"{in_the_way[0]} is not from an earlier 'latentdag {self.command}' and would be lost: move it, or "
                    "choose another folder with --out"
                )

    def settle(self) -> None:
        """Move the files of a complete result to their places, also those that a killed run did not get to."""
        ready = self.work / "ready"
        if (ready / LIST).is_file():
            for path in sorted(path for path in ready.rglob("*") if path.is_file() and path != ready / LIST):
                place = self.root / path.relative_to(ready)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
            for name in set(chain(*read_list(self.root).values())) - set(chain(*read_list(ready).values())):
                (self.root / name).unlink(missing_ok=True)
                with suppress(OSError):
                    (self.root / name).parent.rmdir()
            (ready / LIST).replace(self.root / LIST)
        _remove([ready, self.work / "new"])

    def adopt(self, names: Sequence[str], marks: Sequence[str]) -> None:
        """List the files of a result that an earlier version wrote, without a list."""
        if marks and not (self.root / LIST).exists() and all((self.root / name).is_file() for name in marks):
            write_list(self.root, {self.command: [name for name in names if (self.root / name).is_file()]})


@contextmanager
def reserved(
    out: Path, command: str, names: Sequence[str] = (), marks: Sequence[str] = (), *, file: bool = False
) -> Iterator[Place]:
    """Reserve a folder (or a file) for the result of one run, and say what is wrong with it before the work.

    Parameters
    ----------
    out : as the user named it
    command : whose result it is
    names : files that the run may write into the folder
    marks : those of them that show that an earlier version, which kept no list, wrote the folder

    Raises
    ------
    ValueError, OSError
        If it cannot be written, another run is writing it, or a file of the user would be lost.
    """
    real = Path(os.path.realpath(out))
    if file and real.is_dir():
        raise ValueError(f"{out} is a folder: name a file with --out")
    if not file and real.exists() and not real.is_dir():
        raise ValueError(f"{out} is a file, not a folder for results: choose another with --out")
    root = real.parent if file else real
    work = root / f".{real.name}{WORK}" if file else root / WORK
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    place, keep = Place(out, root, work, command, datetime.now(UTC)), False
    try:
        with writing(out):
            mark = _marked(place)
        with mark:
            try:
                with writing(out):
                    place.settle()
                    place.adopt(names, marks)
                place.check_free(names)
                try:
                    yield place
                except WriteError:
                    with writing(out):  # what the user asked for, not the checkpoint that there was no room for
                        raise
            except BaseException as error:
                # only a kill leaves unfinished work behind, or an error after long work that a second try can build on
                keep = not isinstance(error, Exception) or place.times()["seconds"] > WORTH_KEEPING
                raise
            finally:
                if not keep and not (work / "ready").exists():  # a complete result is not thrown away
                    _remove([*(path for path in work.iterdir() if path.name != "lock"), work])  # the lock goes last
    finally:
        for folder in missing:
            with suppress(OSError):  # results are in it
                folder.rmdir()


def check_settled(folder: Path) -> None:
    """Complete a replacement that was cut short, so that nobody reads files of two runs as one result."""
    if (folder / WORK / "ready").exists():
        try:
            with reserved(folder, "report"):
                pass
        except OSError as error:
            raise ValueError(f"{folder} was interrupted while being replaced; run again ({error})") from None


def read_list(folder: Path) -> dict[str, list[str]]:
    """Return the files that each command wrote into a folder; names that lead out of the folder are left out."""
    path = folder / LIST
    if not path.exists():
        return {}
    try:
        said = {command: [Path(name) for name in names] for command, names in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}): choose another folder with --out") from None
    return {
        command: [name.as_posix() for name in names if not name.is_absolute() and ".." not in name.parts]
        for command, names in said.items()
    }


def write_list(folder: Path, files: dict[str, list[str]]) -> None:
    """Write the list of the files in a folder, by command."""
    text = json.dumps(files, indent=1) + "\n"
    write_atomically(folder / LIST, lambda file: file.write(text.encode()))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _marked(place: Place) -> IO[bytes]:
    """Make the hidden folder and return its mark, open and held. Writing the mark also shows that there is space."""
    work = place.work
    if work.is_dir() and not (work / "lock").exists() and any(work.iterdir()):
        raise ValueError(f"{work} was not written by latentdag: move it, or choose another place with --out")
    while True:
        work.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # a run that ended just now took the folder away: make it again
            mark = (work / "lock").open("wb", buffering=0)
            if hold(mark) is False:
                mark.close()
                raise ValueError(f"another run is writing {place.out}: wait for it, or choose another place with --out")
            if os.fstat(mark.fileno()).st_nlink:
                break
            mark.close()
    try:
        mark.write(f"{os.getpid()}\n".encode())
    except OSError:
        mark.close()
        if len(list(work.iterdir())) == 1:
            _remove([work])
        raise
    return mark
