"""Replicates of a fit: fit drawn moments, compare with the original, keep the result in a folder.

Latents are named after the contexts that target them, so a replicate needs no matching with the original: the same
name is the same latent. A weight depends on how the rows of H are scaled, and the paper scales each row by its largest
entry (Assumption 1(c)). Where two entries of a row nearly tie, the largest would be one in this replicate and the other
in the next. So every replicate is scaled by the entries that are largest in the *original* fit.
"""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import networkx as nx
import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from latentdag.data.moments import Moments
from latentdag.data.schema import FieldError, Layout
from latentdag.data.store import check_same_work, load_arrays, naming_file, read_json, save_arrays, write_atomically
from latentdag.errors import DamagedCheckpointWarning, FileError
from latentdag.inference.resampling import canonical_factor
from latentdag.inference.stability import REPLICATES, check_replicates
from latentdag.methods.fitting import fit as fit_moments
from latentdag.methods.fitting import with_idle
from latentdag.methods.likelihood import fit_likelihood
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel

#: The arrays of one replicate, and a mapping with its ``failure`` (text or None) and the names of its ``warnings``.
Piece = tuple[dict[str, np.ndarray], dict[str, Any]]

T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """The original fit, as far as replicates are compared with it.

    Attributes
    ----------
    model : LatentModel
        Its d latents are in the order of the fit, sources first.
    pivots : (d,) int
        The feature by whose entry each row of H is scaled.
    factor : (p, r)
        Factor of the control's covariance: ``H factor`` are the rows in whitened coordinates.
    closure, edges : (d, d) bool
        ``[i, j]``: latent j is an ancestor of latent i; latent j is a parent of latent i.
    options : Options
        With which replicates are fitted.
    """

    model: LatentModel
    pivots: np.ndarray
    factor: np.ndarray
    closure: np.ndarray
    edges: np.ndarray
    options: Options

    @classmethod
    def of(cls, fit: Fit, m: Moments, options: Options) -> "Reference":
        """Make the reference of a fit; ``ValueError`` if the moments have other features or contexts."""
        fit = fit.seen_by(m)
        if set(fit.model.contexts) != set(m.contexts):
            odd = sorted(map(repr, set(fit.model.contexts) ^ set(m.contexts)))
            raise ValueError(f"the fit and the moments have different contexts: {', '.join(odd[:5])}")
        model = fit.model.reordered(fit.order)
        pivots = np.argmax(np.abs(model.unmixing), axis=1)
        return cls(model, pivots, canonical_factor(m.covariances[0]), *_relations(fit, model.latents), options)

    def compare(self, fit: Fit) -> dict[str, np.ndarray]:
        """Return weights, ancestors and directions of a replicate's fit, in names, order and units of the original."""
        model = fit.model.in_dimensions().reordered(self.model.latents)
        closure, edges = _relations(fit, model.latents)
        weights, standardized = self.scaled_weights(model, edges)
        return {
            "weights": weights,
            "standardized": standardized,
            "closures": closure,
            "cosines": np.abs(self._cosines(model)),
            "loglik": np.array(fit.loglik),
            "converged": np.array(fit.converged),
        }

    def scaled_weights(self, model: LatentModel, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights (d, d) of edges in two units.

        Rows of H are scaled as in the original for the first, and so that latents have unit variance for the second.
        """
        pivot = model.unmixing[np.arange(len(self.pivots)), self.pivots]
        if not pivot.all():
            lost = int(np.argmin(np.abs(pivot)))
            feature = self.model.feature_names[self.pivots[lost]]
            raise ValueError(f"latent {self.model.latents[lost]!r} does not use feature {feature!r} any more")
        pivot = pivot / self.model.unmixing[np.arange(len(self.pivots)), self.pivots]
        # a latent of unit variance still has a sign: the one that agrees with the original
        sign = np.where(np.diagonal(self._cosines(model)) < 0, -1.0, 1.0)
        unit = np.sqrt(np.diagonal(model.law().latent_covariance)) * sign
        # A → D^{-1} A D when latents are divided by D
        by_pivot, by_unit = (np.where(edges, model.weights * D / D[:, None], 0.0) for D in (pivot, unit))
        return by_pivot, by_unit

    def _cosines(self, model: LatentModel) -> np.ndarray:
        """Return the cosine (d, d) of every row of a model with every row of the original, in whitened coordinates."""
        rows, own = (H @ self.factor for H in (model.unmixing, self.model.unmixing))
        return (rows / np.linalg.norm(rows, axis=1)[:, None]) @ (own / np.linalg.norm(own, axis=1)[:, None]).T


def _relations(fit: Fit, latents: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return ancestors and parents as matrices (d, d); ``[i, j]``: latent j is one of latent i."""
    names = list(latents)
    closure, edges = (nx.to_numpy_array(graph, names, weight=None).T > 0 for graph in (fit.closure, fit.graph))
    return closure, edges


def refit(m: Moments, reference: Reference) -> Piece:
    """Fit the moments of one replicate and compare with the original; a fit that fails is a result, too.

    The search begins at the original and nowhere else. Data drawn from a model lie near it, so other starts
    hardly ever lead to another graph, at three times the price (`benchmarks/calibration_bootstrap.py` has the price).
    """
    with warnings.catch_warnings(record=True) as caught, _blas().limit(limits=1):
        warnings.simplefilter("always")
        try:
            arrays = reference.compare(_fit(m, reference))
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            return {}, {"failure": f"{type(error).__name__}: {error}", "warnings": []}
    return arrays, {"failure": None, "warnings": sorted({warning.category.__name__ for warning in caught})}


@cache
def _blas() -> ThreadpoolController:
    """Return the BLAS libraries of this process; looking for them takes a tenth of a small replicate."""
    return ThreadpoolController()


def _fit(m: Moments, reference: Reference) -> Fit:
    """Fit as the original was; by maximum likelihood from there on."""
    if reference.options.method != "likelihood":
        return fit_moments(m, **reference.options)
    with np.errstate(all="ignore"):
        found = fit_likelihood(m, reference.options, start=reference.model, only_start=True, progress=False)
    return with_idle(found, m)


# A replicate that was fitted has all arrays, one that failed has none.
_FILE = Layout(
    "Piece",
    {"failure?": str, "warnings": [str]},
    {f"{name}?": form.replace("r", "") for name, form in REPLICATES.items()},
)


class Checkpoint:
    """A folder of finished replicates, so that an interrupted bootstrap can go on.

    Each file is written whole or not at all. The folder remembers what it belongs to (``run.json``). Going on in it
    with other data, options or seed is refused: half of the replicates would answer another question, and those that
    are there may be wanted still.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    identity : mapping of text to text
        Everything that the replicates depend on, by a name that a user understands.
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
        """Refuse a folder that belongs to other work."""
        try:
            found = read_json(record, {str: str})
        except FileError as error:
            raise FileError(record, error.field, f"{error.reason}, or name another folder") from None
        check_same_work(self.folder, found, identity, "Name another folder, or go on as it was begun")

    def path(self, number: int) -> Path:
        """Return the file of one replicate."""
        return self.folder / f"piece-{number:06d}.npz"

    def original(self, make: Callable[[], Fit]) -> Fit:
        """Return the original fit: made on the first run, read on later ones."""
        path = self.folder / "fit.npz"
        found = read_if_whole(lambda: Fit.load(path))
        if found is None:
            found = make()
            found.save(path)
        return found

    def read(self, number: int, d: int) -> Piece | None:
        """Return a finished replicate of d latents, or None if there is none that can be read."""
        return read_if_whole(lambda: _load_piece(self.path(number), d))

    def write(self, number: int, piece: Piece) -> None:
        """Write a finished replicate."""
        save_arrays(self.path(number), _FILE, *piece)


def read_if_whole(load: Callable[[], T]) -> T | None:
    """Return what ``load`` reads from a file; None if there is no file, and with a warning if it is damaged."""
    try:
        return load()
    except FileNotFoundError:
        return None
    except FileError as error:
        warnings.warn(f"{error}; what it held is computed again", DamagedCheckpointWarning, stacklevel=4)
        return None


def _load_piece(path: Path, d: int) -> Piece:
    """Read one replicate and check that it is one of d latents."""
    arrays, meta = load_arrays(path, _FILE)
    failure = meta.setdefault("failure", None)
    with naming_file(path, "piece"):
        if len(arrays) != (0 if failure is not None else len(_FILE.arrays)):
            raise FieldError("failure", "a replicate has either all arrays or a failure")
        if arrays:
            if arrays["weights"].shape != (d, d):
                raise FieldError("weights", f"has shape {arrays['weights'].shape}, but there are {d} latents")
            check_replicates(*(arrays[name][None] for name in ("weights", "standardized", "closures", "cosines")))
    return arrays, meta
