"""Work in progress on disk: the sums so far, and what they are sums of."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from latentdag.storage import load_arrays, save_arrays
from latentdag.stream.accumulate import Accumulator

_KIND = "MomentsInProgress"

#: Share of the time that may go into writing.
_SHARE = 0.1


class ProgressFile:
    """One file that holds an accumulator and how many blocks are in it.

    The sums are kept to the last bit and blocks always come in the same order, so a run that was killed and goes on
    gives exactly what it would have given.

    Parameters
    ----------
    path : file
    identity : mapping of text to text
        Everything that the sums depend on, by a name that a user understands.
    every : seconds between two writings, at least; more where writing itself takes long
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, str], every: float):
        self.path, self.identity, self.every = Path(path), dict(identity), every
        if self.path.is_dir():
            raise ValueError(f"the checkpoint {self.path} is a folder: name a file")
        self.written = time.monotonic()
        self.took = 0.0

    def restore(self, sums: Accumulator) -> int:
        """Fill in what an earlier run left; the number of blocks that are done.

        Raises
        ------
        ValueError
            If the file belongs to other data or other options.
        """
        if not self.path.exists():
            return 0
        arrays, meta = load_arrays(self.path, _KIND)
        found = meta.get("identity", {})
        changed = [name for name in {**found, **self.identity} if found.get(name) != self.identity.get(name)]
        if changed:
            raise ValueError(
                f"the checkpoint {self.path} belongs to other work: {', '.join(changed)} changed (first "
                f"{found.get(changed[0])!r} there, {self.identity.get(changed[0])!r} now). Name another file, or "
                "delete this one to begin anew"
            )
        for name in Accumulator.STATE:
            setattr(sums, name, arrays[name])
        return int(meta["blocks"])

    def due(self) -> bool:
        return time.monotonic() - self.written >= max(self.every, self.took / _SHARE)

    def write(self, sums: Accumulator, blocks: int) -> None:
        began = time.monotonic()
        meta = {"identity": self.identity, "blocks": blocks}
        save_arrays(self.path, _KIND, {name: getattr(sums, name) for name in Accumulator.STATE}, meta)
        self.written = time.monotonic()
        self.took = self.written - began
