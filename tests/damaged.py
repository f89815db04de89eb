"""Damaged files through the command line and the stream: a clear refusal, or the numbers that other readers see."""

import shutil
import warnings

import anndata as ad
import numpy as np
import pandas as pd
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli.app import app

from differential import outcome, wrong_numbers
from doors import Refused
from formats import Data, read_matrix, written
from fuzzing import arguments, damaged_copy
from random_rows import Case

#: Formats with labels of their own, which the command line reads; and those that need labels from elsewhere.
NAMED = ("csv", "tsv.gz", "parquet", "h5ad", "h5ad-csr", "zarr", "mtx", "npz")
BARE = ("npy", "zarr-array")


def valid_files(folder):
    """The same small screen in every format, and its moments; by kind."""
    truth = ld.simulate.random_model(2, 3, rng=0)
    X, contexts = ld.simulate.sample(truth, 30, rng=0)
    labels = np.array(contexts)
    obs = pd.DataFrame({"context": labels}, index=[f"cell{i}" for i in range(len(labels))])
    data = Data(X, labels, list(truth.feature_names), obs)
    paths = {}
    for kind in (*NAMED, *BARE):
        (folder / kind).mkdir()
        if kind == "npz":
            paths[kind] = folder / "npz" / "m.npz"
            ld.Moments.from_samples(X, labels, control="control").save(paths[kind])
        elif kind == "h5ad-csr":
            paths[kind] = folder / kind / "x.h5ad"
            compressed = data.adata
            compressed.X = compressed.layers.pop("compressed")
            compressed.write_h5ad(paths[kind])
        else:
            paths[kind] = written(data, kind, folder / kind)[0]
    return paths, labels


def command(given):
    """Run a command; the path of its moments, or None for other commands."""
    done = CliRunner().invoke(app, given)
    if done.exit_code in (0, 3):
        return (given[given.index("--out") + 1],) if given[0] == "moments" else (None,)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    clear = done.stderr.startswith("Usage:") or (len(lines) == 1 and lines[0].startswith("latentdag: "))
    if done.exit_code != 2 or not clear:
        raise RuntimeError(f"exit code {done.exit_code}: {done.stderr[-200:]} {done.exception!r}")
    raise Refused(lines[-1])


def seen_by_others(path, column):
    """The rows of a damaged file as another reader sees them: (values, labels); None where it cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if path.suffix in (".h5ad", ".zarr"):
                adata = ad.read_h5ad(path) if path.suffix == ".h5ad" else ad.read_zarr(path)
                X = adata.X.toarray() if hasattr(adata.X, "toarray") else adata.X
                return np.asarray(X, dtype=float), adata.obs[column].astype(str).tolist()
            if path.is_dir():
                X = read_matrix(path / "matrix.mtx").toarray().T
                cells = (path / "barcodes.tsv").read_text().split("\n")[:-1]
                labels = pd.read_csv(path / "cells.csv", index_col=0, dtype=str, keep_default_na=False)[column]
                return X, labels.loc[cells].tolist()
            if path.suffix == ".parquet":
                table = pd.read_parquet(path)
            else:
                options = {"keep_default_na": False, "float_precision": "round_trip", "dtype": {column: str}}
                table = pd.read_csv(path, sep="," if ".csv" in path.suffixes else "\t", **options)
            return table.drop(columns=column).to_numpy(dtype=float), table[column].astype(str).tolist()
        except Exception:
            return None


def other_numbers(found, path, column):
    """What is wrong with moments of a damaged file, or None."""
    seen = None if found is None or path.suffix == ".npz" else seen_by_others(path, column)
    if seen is None:
        return None
    values, labels = seen
    codes, present = pd.factorize(np.array(labels, dtype=object))
    case = Case("damaged", values, values, codes, list(present), labels, [], 1)
    texts = [str(label) for label in found.contexts]
    if not np.isfinite(values).all() or sorted(texts) != sorted(present):
        return f"other rows or labels: {texts[:4]}, not {sorted(present)[:4]}"
    named = ld.Moments(tuple(texts), None, found.counts, found.means, found.covariances, found.feature_names)
    return wrong_numbers(case, named, list(present))


def one_file(seed, number, folder, valid):
    """Kind, outcome and words of one damaged file."""
    rng = np.random.default_rng([seed, number])
    paths, labels = valid
    kind = list(paths)[number % len(paths)]
    place = folder / "case"
    place.mkdir()
    damaged = damaged_copy(paths[kind], place, rng)
    if kind in BARE:
        ended = outcome(lambda: (ld.stream.moments(damaged, labels, "control", block_rows=20),), lambda found: None)
        said = ended[1]
    else:
        given = arguments(damaged, place, rng)
        column = given[given.index("--context-column") + 1] if "--context-column" in given else "context"
        plain = "--layer" not in given and "--adjust" not in given

        def check(made):
            found = ld.Moments.load(made) if made and plain else None
            return other_numbers(found, damaged, column)

        ended = outcome(lambda: command(given), check)
        said = f"{ended[1]} ({' '.join(given)})"
    shutil.rmtree(place)
    return kind, ended[0], said


def many_files(seed, numbers, folder):
    """As :func:`differential.many_cases`, of damaged files."""
    (folder / "valid").mkdir()
    valid = valid_files(folder / "valid")
    for number in numbers:
        kind, how, said = one_file(seed, number, folder, valid)
        bad = [(number, kind, "damaged", how, said[:400])] if how not in ("accepted", "refused") else []
        yield [(kind, "cases"), (kind, how)], bad
