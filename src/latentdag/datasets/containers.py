"""What loaders share: what they return, and where data lie.

Loaders return a screen (samples with contexts) or a cohort (patients with survival). Files are in a folder of the
user's, or in a cache that is filled from public sources and checked: a download whose hash is known here must have it.
Of the others the SHA-256 is written down beside the file at the first download, so that damage and silent changes are
seen from then on.
"""

import os
import tomllib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.data.moments import Moments
from latentdag.data.sources.opening import positions
from latentdag.data.store import packaged, write_atomically
from latentdag.optional import optional
from latentdag.progress import Progress

if TYPE_CHECKING:
    from anndata import AnnData  # type: ignore[import-untyped]


@dataclass(frozen=True, eq=False)
class Screen:
    """Samples measured in several contexts.

    Attributes
    ----------
    name : str
    X : (n, p) ndarray or csr
    contexts : (n,) labels
    control : label or None
        The context in which nothing was perturbed.
    feature_names : tuple of str
    obs : DataFrame (n rows)
        What else is known of each sample.
    extra : mapping
        What else is known of the data set, by name.
    """

    name: str
    X: Any
    contexts: np.ndarray
    control: Hashable | None
    feature_names: tuple[str, ...]
    obs: pd.DataFrame
    extra: Mapping[str, Any] = field(default_factory=dict)

    def select(self, rows: Any = None, features: Any = None) -> "Screen":
        """Return only these rows (mask or positions) and these features (names)."""
        rows = np.arange(len(self.contexts)) if rows is None else np.asarray(rows)
        X, names = self.X[rows], self.feature_names
        chosen = positions(features, names, self.name)
        if chosen is not None:
            X, names = X[:, chosen], tuple(names[j] for j in chosen)
        obs = self.obs.iloc[np.flatnonzero(rows) if rows.dtype == bool else rows].reset_index(drop=True)
        return Screen(self.name, X, self.contexts[rows], self.control, names, obs, self.extra)

    def moments(self, adjust: Any = None, robust: bool = False) -> Moments:
        """Return the moments per context; ``adjust`` names columns of ``obs`` to regress out, or is a table.

        ``robust`` is as for :meth:`latentdag.Moments.from_samples`.
        """
        if adjust is not None and not isinstance(adjust, pd.DataFrame | np.ndarray):
            adjust = self.obs[[adjust] if isinstance(adjust, str) else list(adjust)]
        return Moments.from_samples(self.X, self.contexts, self.control, self.feature_names, adjust, robust)

    def to_anndata(self, context_key: str = "context") -> "AnnData":
        """Return AnnData with the contexts in ``obs[context_key]``."""
        anndata = optional("anndata", "anndata", f"{self.name} as AnnData")
        obs = self.obs.assign(**{context_key: [str(label) for label in self.contexts]})
        obs.index = obs.index.astype(str)
        return anndata.AnnData(self.X, obs=obs, var=pd.DataFrame(index=pd.Index(self.feature_names, dtype=str)))

    def __repr__(self) -> str:
        n, p = self.X.shape
        return (
            f"Screen({self.name}: {n} samples, {p} features, {len(set(self.contexts.tolist()))} contexts, "
            f"control {self.control!r})"
        )


@dataclass(frozen=True, eq=False)
class Cohort:
    """Patients with expression and survival.

    Attributes
    ----------
    name : str
    expression : DataFrame
        Patients × genes, on the logarithmic scale.
    survival : DataFrame
        ``time`` (any unit, positive) and ``event`` (1 died, 0 lost from sight alive), the same patients in the same
        order.
    """

    name: str
    expression: pd.DataFrame
    survival: pd.DataFrame

    def __post_init__(self) -> None:
        if not self.expression.index.equals(self.survival.index):
            raise ValueError("expression and survival must have the same patients in the same order: join them first")
        missing = [name for name in ("time", "event") if name not in self.survival]
        if missing:
            raise ValueError(f"survival must have the columns 'time' and 'event'; {missing[0]!r} is missing")

    def __repr__(self) -> str:
        n, p = self.expression.shape
        return f"Cohort({self.name}: {n} patients, {p} genes, {int(self.survival['event'].sum())} events)"


#: Names the folder that has one sub-folder per data set.
ENVIRONMENT = "LATENTDAG_DATA"

#: Where each data set is, and fixed facts about it.
FACTS: dict[str, dict[str, Any]] = tomllib.loads(packaged("datasets/sources.toml"))


@dataclass(frozen=True)
class Remote:
    """One file to download.

    Attributes
    ----------
    url : str
    hash : str or None
        As pooch takes it ("md5:…"), or None where it is not known here.
    unpacks : bool
        Whether it is a zip with the files wanted.
    """

    url: str
    hash: str | None = None
    unpacks: bool = False


@dataclass(frozen=True)
class Source:
    """Names, folders and addresses of a data set.

    Attributes
    ----------
    name : str
    folders : names that its sub-folder may have, the first preferred
    page : address for people, with whom to cite
    remotes : mapping of file name to where it is; one archive may stand under its own name for many
    """

    name: str
    folders: tuple[str, ...]
    page: str
    remotes: Mapping[str, Remote] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str) -> "Source":
        """Return the source of a data set, as ``sources.toml`` has it."""
        said = FACTS[name]
        remotes = {file: Remote(**remote) for file, remote in said["files"].items()}
        return cls(name, tuple(said["folders"]), said["page"], remotes)


def locate(source: Source, *layouts: Sequence[str], root: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Return the paths of the files of a data set, by name.

    They are looked for in ``root``, else in ``$LATENTDAG_DATA``, else in the cache, and downloaded where necessary. A
    file is also found with ``.gz`` added or taken away, and in ``root`` itself as well as in its sub-folder.

    Parameters
    ----------
    source : Source
    *layouts : names of files
        Those that belong together. The first layout of which a folder has all files is taken; the last is downloaded.
    root : folder, optional

    Raises
    ------
    FileNotFoundError
        With the places looked at, the address and the layout that is expected.
    """
    given = root if root is not None else os.environ.get(ENVIRONMENT)
    folders = [] if given is None else [*(Path(given, name) for name in source.folders), Path(given)]
    for files in layouts:
        for folder in folders:
            found = [path for file in files if (path := _present(folder, file))]
            if len(found) == len(files):
                return dict(zip(files, found, strict=True))
    if root is not None:  # who names a folder does not want a download instead
        raise _missing(source, layouts[0], folders, "")
    try:
        return _downloaded(source, layouts[-1])
    except (OSError, ValueError, ImportError) as error:
        why = f" Downloading failed: {' '.join(str(error).split())[:200]}."
        raise _missing(source, layouts[-1], folders, why) from None


def _present(folder: Path, file: str) -> Path | None:
    other = file.removesuffix(".gz") if file.endswith(".gz") else f"{file}.gz"
    return next((folder / name for name in (file, other) if (folder / name).is_file()), None)


def _missing(source: Source, files: Sequence[str], looked: Sequence[Path], why: str) -> FileNotFoundError:
    addresses = ", ".join(dict.fromkeys(remote.url for remote in source.remotes.values())) or source.page
    listed = ", ".join(files[:6]) + (f" … ({len(files)} files)" if len(files) > 6 else "")
    places = f" Looked in {', '.join(map(str, looked))}." if looked else ""
    return FileNotFoundError(
        f"the data set {source.name} is not here.{places}{why} Get it from {addresses} (about it: {source.page}), put "
        f"the files into <folder>/{source.folders[0]}/ ({listed}) and pass root=<folder>, or set {ENVIRONMENT}=<folder>"
    )


def _downloaded(source: Source, files: Sequence[str]) -> dict[str, Path]:
    """Download files, or the archives that hold them; returns their paths in the cache."""
    names = [name for name, remote in source.remotes.items() if remote.unpacks] or files
    found = {path.name: path for name in names for path in _fetch(source, name)}
    absent = [file for file in files if file not in found]
    if absent:
        raise ValueError(f"{names[0]} has no {absent[0]}")
    return {file: found[file] for file in files}


def _fetch(source: Source, name: str) -> list[Path]:
    """Download one file unless it is in the cache and intact; unpack it where it is an archive."""
    pooch = optional("pooch", "datasets", f"downloading {source.name}")
    folder = Path(pooch.os_cache("latentdag")) / source.folders[0]
    if name not in source.remotes:
        raise ValueError(f"{name} has no public address of its own")
    remote = source.remotes[name]
    note = folder / f"{name}.sha256"
    known = remote.hash or (note.read_text().strip() if note.is_file() else None)
    with Progress(f"downloading {name} (MB)", 0) as bar:
        options: dict[str, Any] = {"processor": pooch.Unzip(extract_dir=f"{name}.unpacked")} if remote.unpacks else {}
        if remote.url.startswith("http"):
            options["downloader"] = pooch.HTTPDownloader(progressbar=_Megabytes(bar), timeout=30)
        got = pooch.retrieve(remote.url, known_hash=known, fname=name, path=folder, **options)
    if known is None:
        seen = pooch.file_hash(folder / name)
        write_atomically(note, lambda file: file.write(f"{seen}\n".encode()))
    return [Path(path) for path in ([got] if isinstance(got, str) else got)]


class _Megabytes:
    """Show what pooch tells about a download on our bar."""

    def __init__(self, bar: Progress):
        self.bar, self.bytes = bar, 0

    @property
    def total(self) -> int:
        return self.bar.total * 2**20

    @total.setter
    def total(self, size: int) -> None:
        self.bar.total = size // 2**20

    def update(self, size: int) -> None:
        self.bytes += size
        self.bar.advance(self.bytes // 2**20 - self.bar.done)

    def reset(self) -> None:
        """Pooch calls this before it fills the bar once more at the end."""

    def close(self) -> None:
        """The bar closes itself."""
