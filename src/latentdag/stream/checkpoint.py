"""Work in progress on disk: the sums so far, and what they are sums of."""

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

from latentdag.errors import SourceChangedWarning
from latentdag.storage import load_arrays, save_arrays
from latentdag.stream.accumulate import Accumulator

_KIND = "MomentsInProgress"

#: Share of the time that may go into writing.
_SHARE = 0.1

#: What says which data these are, and not in which state.
NAMES = ("file", "folder", "layer")


class ProgressFile:
    """One file that holds an accumulator and how many blocks are in it.

    The sums are kept to the last bit and blocks always come in the same order, so a run that was killed and goes on
    gives exactly what it would have given.

    Parameters
    ----------
    path : file
    source : mapping of text to text
        What tells the data from what they were before, by names that a user understands.
    options : mapping of text to text
        Everything else that the sums depend on.
    every : seconds between two writings, at least; more where writing itself takes long
    """

    def __init__(
        self, path: str | os.PathLike[str], source: Mapping[str, str], options: Mapping[str, str], every: float
    ):
        self.path, self.source, self.options, self.every = Path(path), dict(source), dict(options), every
        if self.path.is_dir():
            raise ValueError(f"the checkpoint {self.path} is a folder: name a file")
        self.written = time.monotonic()
        self.took = 0.0

    def restore(self, sums: Accumulator) -> int:
        """Fill in what an earlier run left; the number of blocks that are done.

        Sums of data that changed since are worth nothing: the work begins anew, with a warning. Sums of other data or
        with other options may be wanted still, so they are not overwritten.

        Raises
        ------
        ValueError
            If the file belongs to other data or other options.
        """
        if not self.path.exists():
            return 0
        arrays, meta = load_arrays(self.path, _KIND)
        source, options = meta.get("source", {}), meta.get("options", {})
        changed = different(source, self.source)
        if any(name in NAMES for name in changed) or (not changed and different(options, self.options)):
            there, now = {**source, **options}, {**self.source, **self.options}
            first, *more = different(there, now)
            raise ValueError(
                f"the checkpoint {self.path} belongs to other work: {', '.join([first, *more])} changed (first "
                f"{there.get(first)!r} there, {now.get(first)!r} now). Name another file, or delete this one to begin "
                "anew"
            )
        if changed:
            said = f"the data changed since the checkpoint {self.path} was written ({', '.join(changed)}): begins anew"
            warnings.warn(said, SourceChangedWarning, stacklevel=2)
            return 0
        for name in Accumulator.STATE:
            setattr(sums, name, arrays[name])
        return int(meta["blocks"])

    def due(self) -> bool:
        return time.monotonic() - self.written >= max(self.every, self.took / _SHARE)

    def write(self, sums: Accumulator, blocks: int) -> None:
        began = time.monotonic()
        meta = {"source": self.source, "options": self.options, "blocks": blocks}
        save_arrays(self.path, _KIND, {name: getattr(sums, name) for name in Accumulator.STATE}, meta)
        self.written = time.monotonic()
        self.took = self.written - began


def different(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Names of what is not the same in both."""
    return [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
