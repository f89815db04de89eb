"""Work in progress on disk: the sums so far, and what they are sums of."""

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latentdag.errors import DamagedCheckpointWarning, FileError
from latentdag.schema import FieldError, Layout
from latentdag.storage import load_arrays, naming_file, save_arrays
from latentdag.stream.accumulate import Accumulator

_FILE = Layout(
    "MomentsInProgress",
    {"identity": {str: str}, "blocks": int},
    {"counts": "i k", "settled": "i k", "pilots": "f kp", "totals": "f kp", "scatters": "f kpp", "axes": "f ap"},
)

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

    def restore(self, sums: Accumulator, block_rows: int) -> int:
        """Fill in what an earlier run left; the number of blocks that are done.

        A damaged file is put aside and the work begun anew: it may be another file that was named by mistake.

        Raises
        ------
        ValueError
            If the file belongs to other data or other options, or is of another kind.
        """
        if not self.path.exists():
            return 0
        try:
            arrays, meta = self._read(sums, block_rows)
        except FileError as error:
            if error.field in ("kind", "version"):
                raise
            aside = self.path.with_name(f"{self.path.name}.damaged")
            self.path.replace(aside)
            said = f"{error}. It is now called {aside.name}, and the work begins anew"
            warnings.warn(said, DamagedCheckpointWarning, stacklevel=4)
            return 0
        for name in Accumulator.STATE:
            setattr(sums, name, np.ascontiguousarray(arrays[name]))
        return int(meta["blocks"])

    def _read(self, sums: Accumulator, block_rows: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and fields of the file, if they belong to this work."""
        arrays, meta = load_arrays(self.path, _FILE)
        found = meta["identity"]
        changed = [name for name in {**found, **self.identity} if found.get(name) != self.identity.get(name)]
        if changed:
            raise ValueError(
                f"the checkpoint {self.path} belongs to other work: {', '.join(changed)} changed (first "
                f"{found.get(changed[0])!r} there, {self.identity.get(changed[0])!r} now). Name another file, or "
                "delete this one to begin anew"
            )
        with naming_file(self.path, "sums"):
            for name, value in arrays.items():
                if value.shape != getattr(sums, name).shape or not np.isfinite(value).all():
                    raise FieldError(name, f"must be finite and of shape {getattr(sums, name).shape}")
            if min(arrays["counts"].min(), arrays["settled"].min()) < 0:
                raise FieldError("counts", "must not be negative")
            if meta["blocks"] != -(-int(arrays["counts"].sum()) // block_rows):
                raise FieldError("blocks", f"{meta['blocks']} blocks of {block_rows} rows are not what was counted")
        return arrays, meta

    def due(self) -> bool:
        return time.monotonic() - self.written >= max(self.every, self.took / _SHARE)

    def write(self, sums: Accumulator, blocks: int) -> None:
        began = time.monotonic()
        meta = {"identity": self.identity, "blocks": blocks}
        save_arrays(self.path, _FILE, {name: getattr(sums, name) for name in Accumulator.STATE}, meta)
        self.written = time.monotonic()
        self.took = self.written - began
