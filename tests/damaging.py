"""Saved files of every kind, and random damage to them: to their bytes, and to what they say."""

import io
import json
import warnings
import zipfile
from pathlib import Path

import numpy as np

import latentdag as ld
from latentdag import simulate, stream
from latentdag.cli.results import read_result
from latentdag.data.accumulate import Accumulator
from latentdag.data.passes import ProgressFile
from latentdag.errors import DamagedCheckpointWarning
from latentdag.inference.replicates import Checkpoint

from fuzzing import damage

CELLS, BLOCK = 90, 40


def fits():
    """One fit of every method."""
    truth = simulate.random_model(n_latents=3, n_features=4, density=1, rng=0)
    m = simulate.sample_moments(truth, 2_000, rng=0)
    yield from ((method, ld.fit(m, method=method)) for method in ("likelihood", "closed-form", "projection"))
    yield "exact", ld.fit(truth.moments(), method="exact")
    yield "fewer-latents", ld.fit(m.select(["c1", "c2"]))  # with loadings and a residual


def fine_moments():
    """Moments of features so collinear that they keep a fine scale."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    X[:, 2] = X[:, 0] + 1e-7 * X[:, 2]
    m = ld.Moments.from_samples(X, [("a", 1)] * 200 + [("a", 2)] * 200, control=("a", 1))
    assert m.fine is not None
    return m


def model():
    """A model with interventions of every kind, and labels of every type."""
    base = simulate.random_model(n_latents=3, n_features=4, density=1, rng=1)
    a, b, c = base.latents
    soft = ld.Intervention(c, "soft", 0.5, shift=0.25, weights={a: 0.1})
    do = ld.Intervention((b, c), "do", value=(1.0, -1.0))
    kinds = {1: ld.Intervention(a, variance=0.3), ("x", (2.5,)): do, False: ld.Intervention(b), "soft": soft}
    return ld.LatentModel(base.unmixing, base.weights, base.noise_variance, kinds, base.latents, control=0.5)


def saved(folder: Path) -> dict[str, tuple[Path, object]]:
    """Files of every kind, with what loads them again: name, (path, load)."""
    made = dict(fits())
    found = {"moments": (simulate.sample_moments(model(), 100, rng=0), ld.Moments.load)}
    found |= {"fine": (fine_moments(), ld.Moments.load), "model": (model(), ld.LatentModel.load)}
    found |= {method: (fit, ld.Fit.load) for method, fit in made.items()}
    m = simulate.sample_moments(simulate.random_model(n_latents=3, n_features=4, density=1, rng=0), 2_000, rng=0)
    boot = ld.bootstrap(m, 4, fit=made["closed-form"], checkpoint=folder / "pieces")
    found["bootstrap"] = (boot, ld.Bootstrap.load)
    files = {}
    for name, (value, load) in found.items():
        value.save(folder / f"{name}.npz")
        files[name] = (folder / f"{name}.npz", load)
    files["result"] = (folder / "result", read_result)
    for name, value in (("fit", made["closed-form"]), ("moments", m), ("bootstrap", boot)):
        value.save(folder / "result" / f"{name}.npz")
    (folder / "result" / "parameters.json").write_text(json.dumps({"seed": 0, "options": {"a": [1.0, None]}}))
    files["piece"] = (folder / "pieces" / "piece-000001.npz", load_piece)
    files["progress"] = (folder / "progress.npz", load_progress)
    stream.moments(*samples(), block_rows=BLOCK, checkpoint=folder / "progress.npz")
    return files


def samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(CELLS, 3)), ["WT"] * 50 + ["A"] * 40, "WT"


def load_piece(path: Path):
    """A finished replicate, or None if it was thrown away with a warning."""
    store = Checkpoint.__new__(Checkpoint)
    store.folder, store.path = path.parent, lambda number: path
    return _without_warning(lambda: store.read(0, 3))


def load_progress(path: Path):
    """The sums of a checkpoint, or None if it was put aside with a warning."""
    sums = Accumulator(("WT", "A"), ("x0", "x1", "x2"), False)
    meta = json.loads(str(np.load(original_of(path))["meta"]))
    try:
        done = _without_warning(lambda: ProgressFile(path, meta["source"], meta["options"], 0.0).restore(sums, BLOCK))
    except ValueError as error:
        if "belongs to other work" not in str(error):
            raise
        return None
    return {name: getattr(sums, name) for name in Accumulator.STATE} if done else None


def original_of(path: Path) -> Path:
    """Damaged copies lie in a folder beside the originals."""
    return path.parent.parent / path.name if path.parent.name == "damaged" else path


def _without_warning(read):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DamagedCheckpointWarning)
        return read()


# ---- damage -------------------------------------------------------------------------------------------------------

NESTED = json.loads("[" * 300 + "]" * 300)
STRANGE = [None, [], {}, [[]], 10**20, 10**400, -1, 0, 1, 2.5, float("nan"), float("inf"), -1e300, "", "x", "c1", "a\0b",
           "\ud800", True, NESTED, {"tuple": 3}, {"tuple": [[1]]}, {"a": 1}, "9" * 200]  # fmt: skip
TYPES = ["<f4", "<i4", "<c16", "|O", "<U5", "|b1", "<i8", "<f8", ">f8", "<M8[s]", "|V8", "<q9"]


def choose(options, rng):
    return options[int(rng.integers(len(options)))]


def damaged_file(raw: bytes, rng) -> bytes:
    """An ``.npz`` file with something wrong, or only just right."""
    if rng.random() < 0.25:
        return damage(raw, rng)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    method, whole, meta = zipfile.ZIP_STORED, {data for _, data in members}, dict(members)["meta.npy"]
    for _ in range(int(rng.integers(1, 3))):
        kind = choose(["meta"] * 6 + ["array"] * 5 + ["members"] * 3 + ["compress"], rng)
        if kind == "compress":
            method = choose([zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2], rng)
        elif kind == "members":
            members = damaged_members(members, rng)
        elif members:
            at = int(rng.integers(len(members)))
            at = next((i for i, (_, data) in enumerate(members) if data == meta), at) if kind == "meta" else at
            name, data = members[at]
            if data in whole:
                change = damaged_meta if kind == "meta" and data == meta else damaged_array
                members[at] = name, change(data, rng)
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of two members of one name
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def damaged_members(members, rng):
    """Members dropped, renamed, swapped, doubled, or one too many."""
    members, kind = list(members), int(rng.integers(5))
    at, other = (int(i) for i in rng.integers(len(members), size=2)) if members else (0, 0)
    if not members or kind == 0:
        return [*members, (choose(["extra.npy", "notes.txt", "fine_axes.npy", "../x.npy", ""], rng), npy(np.zeros(3)))]
    if kind == 1:
        del members[at]
    elif kind == 2:
        members[at] = (members[other][0][:-4] + choose(["", ".npy", "2.npy"], rng), members[at][1])
    elif kind == 3:
        (a, x), (b, y) = members[at], members[other]
        members[at], members[other] = (a, y), (b, x)
    else:
        members.append(members[at])
    return members


def damaged_meta(data: bytes, rng) -> bytes:
    """The JSON text with a value somewhere in it replaced, dropped, doubled or renamed; or no JSON any more."""
    text = str(np.load(io.BytesIO(data)))
    value = json.loads(text)
    if rng.random() < 0.15:
        options = [
            text[:-1],
            "[" * 100_000,
            '{"kind": 1, "kind": 2}',
            "",
            "null",
            "[]",
            text + text,
            "\0" + text,
            text[:40],
        ]
        return npy(np.array(choose(options, rng)))
    places = list(inner(value))
    holder, key = choose(places, rng) if places else ({}, None)
    kind = int(rng.integers(5))
    if key is None or kind <= 2:
        if key is not None:
            holder[key] = choose(STRANGE, rng)
    elif kind == 3:
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[choose(["kind", "x", "version", "model", "c1"], rng)] = holder.pop(key)
    return npy(np.array(json.dumps(value)))


def inner(value):
    """Every place in a JSON value, as what holds it and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from inner(value[key])


def damaged_array(data: bytes, rng) -> bytes:
    """An array of another type, shape or value; or a header that lies."""
    array, kind = np.load(io.BytesIO(data)), int(rng.integers(5))
    if kind == 0:
        shape = choose(
            [(10**20,), (2**31, 2**31), (0,), (), (-1,), (1,) * 40, (2**63, 0), (*array.shape[::-1], 1)], rng
        )
        header = (
            f"{{'descr': '{choose(TYPES, rng)}', 'fortran_order': {choose([True, False], rng)}, 'shape': {shape}, }}"
        )
        header = (
            header
            if rng.random() < 0.8
            else choose(["(" * 5000, "{}", header[:-1], "3L", header.replace(",)", "L,)")], rng)
        )
        return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data[-array.nbytes :]
    if array.dtype.kind == "U" or not array.size:
        return npy(np.array(choose([3.0, "x"], rng)))
    if kind == 1:
        return npy(choose([array.ravel(), array[None], array[None][:0], array.T, np.tile(array, 2)], rng))
    if kind == 2:
        return npy(array.astype(choose(["f4", "i4", "c16", "U5", "?", "i8", ">f8"], rng)))
    changed = np.array(array)
    with np.errstate(all="ignore"):
        at = tuple(int(rng.integers(n)) for n in array.shape)
        value = choose([0, 1, -1, 1e300, -1e300, 1e-320, np.nan, np.inf], rng)
        changed[at] = value if array.dtype.kind == "f" or (np.isfinite(value) and abs(value) < 2) else 0
        if kind == 4:
            changed = (
                changed * np.asarray(choose([0, -1, 1e200], rng), dtype=array.dtype)
                if array.dtype.kind == "f"
                else ~changed
            )
    return npy(changed)


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()
