"""Random rows of numbers in contexts, of every type, size, order and sparsity, some of them no numbers at all."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from exact import as_float, exact_moments, exact_residuals, root

#: What is special about a case.
KINDS = ("scales", "means", "drift", "constants", "collinear", "types", "memory", "sparse", "labels", "adjust", "flaws")

#: Standard deviations, and sizes of means, that latentdag takes.
SMALLEST, LARGEST = 1e-70, 1e70

TYPES = ["f8", "f4", "f2", ">f8", ">f4", "g", "i1", "u1", "i2", "u2", ">i2", "i4", "u4", "i8", "u8", ">i8", "?",
         "fractions", "decimals", "objects"]  # fmt: skip
FLAWS = ["nan", "inf", "mask", "complex", "text", "none", "dates", "long", "labels", "shape", "ragged", "huge",
         "tiny", "names"]  # fmt: skip


@dataclass
class Case:
    kind: str
    X: Any  # as an array door gets it
    values: np.ndarray | None  # (n, p) float64; None where X has no numbers to speak of
    codes: np.ndarray
    labels: list[Any]  # one for every code
    row_labels: Any
    names: list[str]
    block_rows: int
    covariates: pd.DataFrame | None = None
    flaw: str = ""

    @property
    def n(self) -> int:
        return len(self.codes)

    @property
    def column_labels(self) -> list[str]:
        return [f"k{k}" for k in range(len(self.labels))]

    @cached_property
    def truth(self):
        """Counts, means (K, p), covariances (K, p, p) and the features' own deviations (K, p); None if nobody can tell."""
        parts = [self.values[self.codes == k] for k in range(len(self.labels))]
        counts = np.array([len(part) for part in parts])
        found = [exact_moments(part) for part in parts]
        deviations = _deviations([S for _, S in found], counts)
        if self.covariates is not None:
            C = _design(self.covariates)
            joint = np.hstack([self.values, C])
            found = [exact_moments(joint[self.codes == k]) for k in range(len(self.labels))]
            residual = exact_residuals([m for m, _ in found], [S for _, S in found], counts, C.shape[1])
            if residual is None or self.n - len(self.labels) <= C.shape[1]:
                return None
            found = list(zip(*residual, strict=True))
            deviations[:] = deviations.max(axis=0)  # coefficients come from all contexts together
        means = np.array([[as_float(m) for m in mean] for mean, _ in found])
        freedom = np.maximum(counts - 1, 1).tolist()
        covariances = np.array(
            [[[as_float(s / free) for s in row] for row in S] for free, (_, S) in zip(freedom, found, strict=True)]
        )
        return counts, means, covariances, deviations

    @cached_property
    def refused(self) -> bool | None:
        """Whether every door must refuse it; None where either is right."""
        if self.flaw or self.values is None:
            return True
        if self.truth is None:
            return None
        _, means, _, deviations = self.truth
        size = np.maximum(np.abs(means), deviations).max()
        least = np.min(deviations[deviations > 0], initial=1.0)
        if size > 1.01 * LARGEST or least < 0.99 * SMALLEST:
            return True
        return None if size > 0.99 * LARGEST or least < 1.01 * SMALLEST else False


def _deviations(scatters, counts):
    return np.array(
        [[root(S[j, j] / max(n - 1, 1)) for j in range(len(S))] for n, S in zip(counts.tolist(), scatters, strict=True)]
    )  # fmt: skip


def _design(table):
    """Covariates as numbers, text as one indicator per level but the first."""
    columns = []
    for column in table:
        values = table[column]
        if pd.api.types.is_numeric_dtype(values) and values.dtype != bool:
            columns.append(values.to_numpy(dtype=float))
        else:
            text = values.astype(str)
            columns += [(text == level).to_numpy(dtype=float) for level in sorted(set(text))[1:]]
    return np.column_stack(columns)


def random_case(rng) -> Case:
    kind = KINDS[int(rng.integers(len(KINDS)))]
    K = int(rng.integers(1, 5))
    n, p = int(rng.choice([K, K + 2, 12, 40, 120, 300], p=[0.05, 0.1, 0.2, 0.35, 0.2, 0.1])), int(rng.integers(1, 7))
    codes = np.concatenate([np.arange(K), rng.choice(K, size=n - K, p=rng.dirichlet(np.ones(K)))])
    codes = np.sort(codes) if rng.random() < 0.3 else rng.permutation(codes)
    values = _noise(rng, n, p)
    labels, row_labels = _labels(rng, codes, K, kind)
    names, block_rows = [f"g{j}" for j in range(p)], int(rng.integers(1, n + 2))
    made = Case(kind, values, values, codes, labels, row_labels, names, block_rows)
    _SPECIAL[kind](made, rng)
    if made.values is made.X and kind != "memory" and rng.random() < 0.3:
        _memory(made, rng)
    return made


def _noise(rng, n, p):
    kind = rng.integers(4)
    if kind == 0:
        return rng.standard_t(1.5, size=(n, p))
    if kind == 1:
        return rng.integers(-3, 4, size=(n, p)).astype(float)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p))


def _scales(case, rng):
    reach = 72 if rng.random() < 0.7 else 150
    case.X = case.values = case.values * 10.0 ** rng.uniform(-reach, reach, size=case.values.shape[1])


def _means(case, rng):
    p, K = case.values.shape[1], len(case.labels)
    far = 10.0 ** rng.uniform(-12, 12, size=p) * rng.choice([-1, 1], size=p) * case.values.std(axis=0)
    apart = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(K, p)) * (rng.random() < 0.5)
    case.X = case.values = (case.values + far + apart[case.codes]) * 10.0 ** rng.uniform(-60, 60, size=p)


def _drift(case, rng):
    along = np.linspace(0, 1, case.n)[:, None] ** rng.choice([1, 8])
    along = along if rng.random() < 0.7 else (along > rng.random()).astype(float)
    size = 10.0 ** rng.uniform(0, 9, size=case.values.shape[1])
    case.X = case.values = case.values + size * along


def _constants(case, rng):
    values = case.values * (rng.random(case.values.shape) < 0.9)
    for k in range(len(case.labels)):
        fixed = rng.random(values.shape[1]) < 0.4
        level = 10.0 ** rng.uniform(-20, 20) * rng.normal(size=values.shape[1])
        values[np.ix_(case.codes == k, fixed)] = level[fixed]
    if rng.random() < 0.4:
        values[:, 0] = rng.choice([0.1, 0.0, 1e8 / 3, -7])
    case.X = case.values = values


def _collinear(case, rng):
    values = case.values
    if values.shape[1] > 1:
        mix = rng.normal(size=values.shape[1] - 1)
        values[:, -1] = values[:, :-1] @ mix + 10.0 ** -rng.uniform(0, 9) * rng.normal(size=case.n)
    units = 10.0 ** rng.uniform(-20, 20, size=values.shape[1]) * (1 if rng.random() < 0.5 else 0) + 1.0
    case.X = case.values = values * units + 10.0 ** rng.uniform(-3, 5)


def _types(case, rng):
    kind = TYPES[int(rng.integers(len(TYPES)))]
    values = case.values
    if kind in ("fractions", "decimals", "objects"):
        as_object = {"fractions": lambda v: Fraction(v), "decimals": lambda v: Decimal(v), "objects": _any_number}[kind]
        case.X = np.array([[as_object(float(v)) for v in row] for row in values], dtype=object).reshape(values.shape)
        case.values = np.array([[float(v) for v in row] for row in case.X]).reshape(values.shape)
        return
    dtype = np.dtype(kind)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = max(info.min, -(2**53)), min(info.max, 2**53)
        typed = rng.integers(low, high, size=values.shape, endpoint=True, dtype=np.int64)
        typed = typed if rng.random() < 0.5 else high - np.abs(typed) % min(high, 100)
    elif dtype.kind == "b":
        typed = values > 0
    else:
        scale = 10.0 ** rng.uniform(*{2: (-3, 3), 4: (-30, 30)}.get(dtype.itemsize, (-60, 60)))
        typed = np.clip(values, -60, 60) * scale + rng.choice([0, 1e3 * scale * (dtype.itemsize > 2)])
    case.X = typed.astype(dtype)
    case.values = case.X.astype(float)


def _any_number(v):
    return {0: v, 1: np.float32(v), 2: round(v), 3: Fraction(round(v), 7)}[hash(v) % 4]


def _memory(case, rng):
    X = case.values
    kind = rng.integers(7)
    if kind == 0:
        case.X = np.asfortranarray(X)
    elif kind == 1:
        wide = np.full((case.n, 2 * X.shape[1]), np.nan)
        wide[:, ::2] = X
        case.X = wide[:, ::2]
    elif kind == 2:
        case.X = np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]
    elif kind == 3:
        case.X = X.copy()
        case.X.flags.writeable = False
    elif kind == 4:
        case.X = X.tolist()
    elif kind == 5:
        case.X = np.ma.masked_array(X, mask=False)
    else:
        case.X = np.memmap(TemporaryFile(), dtype=float, shape=X.shape)  # noqa: SIM115
        case.X[:] = X


def _sparse(case, rng):
    values = np.where(rng.random(case.values.shape) < 10.0 ** rng.uniform(-2, 0), case.values, 0.0)
    if rng.random() < 0.4:  # one feature far from zero in all rows
        values[:, 0] = 10.0 ** rng.uniform(0, 10) + case.values[:, 0]
    case.X = case.values = values
    kind = rng.integers(8)
    made = {0: sparse.csr_matrix, 1: sparse.csc_matrix, 2: sparse.coo_matrix, 3: sparse.csr_array, 4: sparse.csc_array,
            5: sparse.lil_matrix, 6: _untidy, 7: _untidy}[int(kind)]  # fmt: skip
    case.X = made(values)


def _untidy(values):
    """Entries in no order, halves of them twice, zeros written down."""
    rows, columns = np.nonzero(np.ones_like(values))
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    rows, columns = rows[order], columns[order]
    order = np.argsort(np.concatenate([rows, rows]), kind="stable")
    half = values[rows, columns] / 2
    indices = np.concatenate([columns, columns])[order]
    pointers = np.arange(0, len(indices) + 1, 2 * values.shape[1])
    return sparse.csr_matrix((np.concatenate([half, half])[order], indices, pointers), shape=values.shape)


def _labels(rng, codes, K, kind):
    """One label per context, and the labels of the rows in some container."""
    choices = [
        [f"context {k}" for k in range(K)],
        list(range(K)),
        [k + 0.5 for k in range(K)],
        [("a", k) for k in range(K)],
        ["é", "", "NA", "007"][:K],
        [True, False, "x", 7][:K],
        [np.int8(k) for k in range(K)],
        [1, "1", (1,), 2.5][:K],
        [pd.Timestamp(2020, 1, k + 1) for k in range(K)],
        [frozenset({k}) for k in range(K)],
    ]
    labels = choices[int(rng.integers(len(choices)))] if kind == "labels" else choices[int(rng.integers(2))]
    rows = [labels[code] for code in codes]
    simple = all(type(label) is type(labels[0]) and isinstance(label, str | int) for label in labels)
    if simple and rng.random() < 0.5:
        holders = [np.array, pd.Categorical, tuple, lambda v: pd.Series(v, index=range(7, 7 + len(v)))]
        rows = holders[int(rng.integers(4))](rows)
    return labels, rows


def _adjust(case, rng):
    n = case.n
    depth = rng.normal(size=n) * 10.0 ** rng.uniform(-40, 40)
    depth += depth.std() * 10.0 ** rng.uniform(-3, 9) * (rng.random() < 0.6)
    columns = {"depth": depth}
    if rng.random() < 0.6:
        columns["batch"] = np.array(list("xyz"))[rng.integers(3, size=n)]
        if len(set(columns["batch"])) == 1:
            del columns["batch"]
    if rng.random() < 0.3:
        columns["switch"] = rng.random(n) < 0.4
        columns["switch"][0] = not columns["switch"][-1]
    if rng.random() < 0.2:
        columns["level"] = case.codes * 3.0
    case.covariates = pd.DataFrame(columns)
    strength = 10.0 ** rng.uniform(-2, 3)
    values = case.values + strength * (depth / (depth.std() or 1.0))[:, None] * rng.normal(size=case.values.shape[1])
    case.X = case.values = values * 10.0 ** rng.uniform(-30, 30, size=values.shape[1])


def _flaws(case, rng):
    case.flaw = flaw = FLAWS[int(rng.integers(len(FLAWS)))]
    X = case.values.copy()
    i, j = int(rng.integers(case.n)), int(rng.integers(X.shape[1]))
    if flaw in ("nan", "inf"):
        X[i, j] = {"nan": np.nan, "inf": rng.choice([np.inf, -np.inf])}[flaw]
        X = X.astype(rng.choice(["f8", "f4", "f2"])) if rng.random() < 0.5 else X
        X = sparse.csr_matrix(X.astype(float)) if rng.random() < 0.3 else X
    elif flaw == "mask":
        X = np.ma.masked_array(X, mask=np.zeros_like(X, dtype=bool))
        X[i, j] = np.ma.masked
    elif flaw == "complex":
        X = X + 1j * X
        X = sparse.csr_matrix(X) if rng.random() < 0.3 else X
    elif flaw == "text":
        X = X.astype(object if rng.random() < 0.5 else str)
        X[i, j] = "x"
    elif flaw == "none":
        X = X.astype(object)
        X[i, j] = None
    elif flaw == "dates":
        X = rng.integers(10**9, size=X.shape).astype("M8[s]" if rng.random() < 0.5 else "m8[s]")
    elif flaw == "long":
        X = rng.integers(2**60, 2**62, size=X.shape).astype(rng.choice(["i8", "u8"]))
        X = sparse.csr_matrix(X) if rng.random() < 0.2 else X
    elif flaw == "labels":
        rows = list(case.row_labels)
        wrong = int(rng.integers(5))
        if wrong < 3:
            rows[i] = [None, np.nan, pd.NaT][wrong]
        elif wrong == 3:
            rows = rows[:-1]
        else:
            rows[i] = [1]
        case.row_labels = rows
    elif flaw == "shape":
        X = [X[:, 0], X[None], X[:, :0], X[:0], np.float64(3.0)][int(rng.integers(5))]
    elif flaw == "ragged":
        X = X.tolist()
        X[i] = X[i] + [1.0]
        if case.n == 1:
            X = [[1.0], "x"]
    elif flaw == "huge":
        X = X.astype(np.longdouble) * np.longdouble("1e400") if rng.random() < 0.5 else X * 1e305 + 1e300
    elif flaw == "tiny":
        X = _spread(rng, case) * 10.0 ** rng.uniform(-310, -80)
    elif flaw == "names":
        case.names = ["same"] * len(case.names) if len(case.names) > 1 else ["a", "b"]
    case.X, case.values = X, None
    if flaw in ("huge", "tiny") and np.abs(X).max() < 1e308:  # a feature that never varies within a context is right
        case.values, case.flaw = X.astype(float), ""


def _spread(rng, case):
    """Values that differ within a context."""
    return rng.permutation(case.n * case.values.shape[1]).reshape(case.values.shape) + 1.0


_SPECIAL = {
    "scales": _scales,
    "means": _means,
    "drift": _drift,
    "constants": _constants,
    "collinear": _collinear,
    "types": _types,
    "memory": _memory,
    "sparse": _sparse,
    "labels": lambda case, rng: None,
    "adjust": _adjust,
    "flaws": _flaws,
}
