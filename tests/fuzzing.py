"""Random malformed inputs: valid files of every format, damaged at random, and random options for them."""

import shutil
from pathlib import Path

import numpy as np

#: What a careless hand or a full disk does to a file.
WORDS = [b"", b",", b"\t", b"\n", b"\x00", b"nan", b"NaN", b"inf", b"-", b"1e999", b'"', b"'", b"context", b"\xff\xfe", b"<b>",
         b"9" * 40, b"#", b"PK\x03\x04", b"\x89HDF", b"PAR1", b"{}", b"null", "é".encode("latin-1"), b"%%MatrixMarket"]  # fmt: skip


def damage(data: bytes, rng) -> bytes:
    """A file that is no longer what it was, or only just."""
    raw = bytearray(data)
    if rng.random() < 0.4 and raw:  # one byte only, often still a file
        raw[int(rng.integers(len(raw)))] = int(rng.choice([*b"0123456789", int(rng.integers(256))]))
        return bytes(raw)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(raw) + 1))
        kind = rng.integers(0, 6)
        if kind == 0:
            raw = raw[:at]
        elif kind == 1 and raw:
            for i in rng.integers(0, len(raw), size=int(rng.integers(1, 30))):
                raw[i] = int(rng.integers(0, 256))
        elif kind == 2:
            raw[at:at] = WORDS[int(rng.integers(len(WORDS)))]
        elif kind == 3:
            del raw[at : at + int(rng.integers(1, 200))]
        elif kind == 4:
            raw[at:at] = raw[: int(rng.integers(0, 300))]
        else:
            raw = raw[at:]
    return bytes(raw)


def damaged_copy(source: Path, folder: Path, rng) -> Path:
    """A copy of a file or folder with one or more files damaged, renamed or gone."""
    target = folder / source.name
    if source.is_file():
        target.write_bytes(damage(source.read_bytes(), rng))
        if rng.random() < 0.1:
            target = target.rename(
                target.with_suffix(str(rng.choice([".csv", ".npz", ".h5ad", ".parquet", ".txt", ""])))
            )
        return target
    shutil.copytree(source, target)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    for path in rng.permutation(np.array(files, dtype=object))[: int(rng.integers(1, 4))]:
        if rng.random() < 0.3:
            path.unlink()
        else:
            path.write_bytes(damage(path.read_bytes(), rng))
    return target


def arguments(path: Path, out: Path, rng) -> list[str]:
    """A command for that file, mostly right, sometimes not."""
    command = str(rng.choice(["moments", "test", "fit"], p=[0.7, 0.2, 0.1]))
    given = [command, str(path), "--control", str(rng.choice(["control", "c1", "x", ""], p=[0.85, 0.05, 0.05, 0.05]))]
    if rng.random() < 0.05:
        given += ["--context-column", str(rng.choice(["x0", "context ", "", "ctx", "0"]))]
    if rng.random() < 0.1:
        given += ["--layer", str(rng.choice(["X", "raw", "counts", "../x"]))]
    if rng.random() < 0.1:
        given += ["--adjust", str(rng.choice(["x1", "x0,x1", "depth", ",", "context"]))]
    if command == "fit":
        given += ["--method", str(rng.choice(["closed-form", "closed-form", "projection", "magic"]))]
        if rng.random() < 0.2:
            given += ["--penalty", str(rng.choice(["-1", "nan", "x", "0"]))]
    if command == "moments":
        given += ["--out", str(out / ("m.txt" if rng.random() < 0.03 else "m.npz"))]
    elif command == "fit":
        given += ["--out", str(out / "fitted")]
    return given
