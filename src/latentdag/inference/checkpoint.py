"""Long work that survives an interruption: finished pieces in a folder, each written whole or not at all."""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latentdag.data.schema import FieldError, Layout
from latentdag.data.store import load_arrays, naming_file, read_json, save_arrays, write_atomically
from latentdag.errors import DamagedCheckpointWarning, FileError
from latentdag.inference.stability import check_replicates

Piece = tuple[dict[str, np.ndarray], dict[str, Any]]

#: A replicate that was fitted has all arrays, one that failed has none.
_FILE = Layout(
    "Piece",
    {"failure?": str, "warnings": [str]},
    {
        "weights?": "f dd", "standardized?": "f dd", "closures?": "b dd", "cosines?": "f dd", "loglik?": "f",
        "converged?": "b",
    },
)  # fmt: skip


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
            found = read_json(record, {str: str})
        except FileError as error:
            raise FileError(record, error.field, f"{error.reason}, or name another folder") from None
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
            try:
                return load(path)
            except FileError as error:
                warn_damaged(error)
        made = make()
        made.save(path)
        return made

    def read(self, number: int, d: int) -> Piece | None:
        """A finished piece of d latents, or None where there is none that can be read."""
        path = self.path(number)
        if not path.exists():
            return None
        try:
            arrays, meta = load_arrays(path, _FILE)
            with naming_file(path, "piece"):
                _check_piece(arrays, meta.setdefault("failure", None), d)
            return arrays, meta
        except FileError as error:
            warn_damaged(error)
            return None

    def write(self, number: int, piece: Piece) -> None:
        save_arrays(self.path(number), _FILE, *piece)


def warn_damaged(error: FileError) -> None:
    """Say that a checkpoint is thrown away."""
    warnings.warn(f"{error}; what it held is computed again", DamagedCheckpointWarning, stacklevel=4)


def _check_piece(arrays: dict[str, np.ndarray], failure: str | None, d: int) -> None:
    if len(arrays) != (0 if failure is not None else len(_FILE.arrays)):
        raise FieldError("failure", "a replicate has either all arrays or a failure")
    if arrays and arrays["weights"].shape != (d, d):
        raise FieldError("weights", f"has shape {arrays['weights'].shape}, but there are {d} latents")
    if arrays:
        names = ("weights", "standardized", "closures", "cosines")
        check_replicates(*(arrays[name][None] for name in names))
