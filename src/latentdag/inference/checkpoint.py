"""Long work that survives an interruption: finished pieces in a folder, each written whole or not at all."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latentdag.storage import load_arrays, save_arrays, write_atomically

Piece = tuple[dict[str, np.ndarray], dict[str, Any]]


class Checkpoint:
    """A folder of finished pieces of one piece of work.

    The folder remembers what it belongs to (``run.json``). Going on in it with other data, options or seed is refused:
    half of the pieces would answer another question, and those that are there may be wanted still.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    identity : mapping of text to text
        Everything that the pieces depend on, by a name that a user understands.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, str]):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"the checkpoint {self.folder} is a file: name a folder")
        record = self.folder / "run.json"
        if record.exists():
            self._check(record, identity)
            return
        if any(self.folder.glob("piece-*.npz")):
            raise ValueError(f"the checkpoint {self.folder} has pieces but no run.json: name another folder")
        text = json.dumps(dict(identity), indent=1)
        write_atomically(record, lambda file: file.write(text.encode()))

    def _check(self, record: Path, identity: Mapping[str, str]) -> None:
        try:
            found = dict(json.loads(record.read_text()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{record} is damaged ({error}): name another folder") from None
        changed = [name for name in {**found, **identity} if found.get(name) != identity.get(name)]
        if changed:
            raise ValueError(
                f"the checkpoint {self.folder} belongs to other work: {', '.join(changed)} changed (first "
                f"{found.get(changed[0])!r} there, {identity.get(changed[0])!r} now). Name another folder, or go on as "
                "it was begun"
            )

    def path(self, number: int) -> Path:
        return self.folder / f"piece-{number:06d}.npz"

    def once(self, name: str, make: Callable[[], Any], load: Callable[[Path], Any]) -> Any:
        """Something that is made on the first run and read on later ones, by its own ``save`` and ``load``."""
        path = self.folder / name
        if path.exists():
            return load(path)
        made = make()
        made.save(path)
        return made

    def read(self, number: int) -> Piece | None:
        """A finished piece, or None."""
        path = self.path(number)
        return load_arrays(path, "Piece") if path.exists() else None

    def write(self, number: int, piece: Piece) -> None:
        save_arrays(self.path(number), "Piece", *piece)
