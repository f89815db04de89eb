"""Labels, names and cells of text: told apart through every door, or refused in one sentence."""

import json
import subprocess
import sys
from datetime import date

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from scipy import sparse

import latentdag as ld
from latentdag import stream
from latentdag.cli.files import write_csv
from latentdag.data import labels as lb
from latentdag.data.matrices import looks_like_counts
from latentdag.errors import RawCountsWarning
from latentdag.report.records import context_records
from latentdag.report.results import Results

pytestmark = [
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:zarr"),
]

TRUTH = ld.simulate.random_model(n_latents=2, n_features=3, rng=3)
X, Y = ld.simulate.sample(TRUTH, 300, 0)
REFERENCE = ld.Moments.from_samples(X, Y, control="control")
P_VALUES = ld.rank_test(REFERENCE, data=(X, Y))["robust_p_value"]


def labelled(labels):
    """One label per row of X: the control's, then those of the contexts, in the order of the model."""
    made = np.empty(len(Y), dtype=object)
    for context, label in zip(TRUTH.contexts, labels, strict=True):
        for row in np.flatnonzero(np.array(Y) == context):
            made[row] = label
    return made


KINDS = {
    "text": ("WT", "A", "B"),
    "long text": ("w" * 10_000, "a" * 10_000, "b"),
    "text of numbers": ("0", "1", "1.0"),
    "text and number alike": (1, "1", "'1'"),
    "int": (0, 1, 2),
    "float": (0.0, 0.5, 1.5),
    "int and float": (0, 1, 2.5),
    "bool and text": (True, False, "other"),
    "bool and int": (False, True, 2),
    "numpy": (np.str_("WT"), np.int64(3), np.bool_(True)),
    "tuple": (("WT", 0), ("A", 1), ("B", 2.5)),
    "tuple and its text": ("WT", ("A", 1), "('A', 1)"),
}
UNSAVED = {
    "bytes": (b"WT", b"A", b"B"),
    "frozenset": (frozenset("w"), frozenset("a"), frozenset("b")),
    "date": (date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)),
    "timestamp": tuple(pd.date_range("2024-01-01", periods=3)),
    "datetime64": tuple(np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[ns]")),
}


@pytest.mark.parametrize("kind", [*KINDS, *UNSAVED])
def test_labels_of_any_kind_name_the_same_contexts_everywhere(kind, tmp_path):
    labels = tuple(map(lb.as_label, {**KINDS, **UNSAVED}[kind]))
    rows = labelled(labels)
    m = ld.Moments.from_samples(X, rows, control=labels[0])
    order = [m.index(label) for label in labels]
    assert same_labels([m.contexts[k] for k in order], labels)
    np.testing.assert_array_equal(m.covariances[order], REFERENCE.covariances)

    others = m.contexts[1:]
    ranks, membership, groups = ld.rank_test(m), ld.membership_test(m, (X, rows)), ld.target_groups(m)
    found = ld.fit(m)
    for table in (ranks, membership.summary, groups.cosines, ld.score(found, m).iloc[1:]):
        assert same_labels(table.index, others)
    for label, context in zip(labels[1:], TRUTH.contexts[1:], strict=True):
        assert lb.row_of(membership.summary, label)["p_value"] == P_VALUES[context]
    assert same_labels(sorted(membership.members + membership.drop, key=others.index), others)
    assert same_labels(sorted(sum(groups.groups, ()), key=others.index), others)

    assert same_labels(found.model.contexts, m.contexts)
    assert len(set(found.latents)) == 2
    assert set(found.edges()["source"]) <= set(found.latents)
    assert len(found.details["shrinkage"]) == 3
    off = ld.off_targets(found, m)
    assert same_labels(off.targets, others)
    assert same_labels(off.summary["context"], others)
    assert same_labels(groups.summary[["context", "other"]].to_numpy(dtype=object)[0], others)
    assert all(repr(each) and each._repr_html_() for each in (off, groups, membership))
    records = context_records(Results(found, m, tests=membership))
    assert len({record["context"] for record in records}) == 3
    assert all(record["decision"] and record["shrinkage"] is not None for record in records[1:])

    obs = pd.DataFrame({"guide": rows}, index=[f"c{i}" for i in range(len(X))])
    adata = ad.AnnData(X, obs=obs.infer_objects() if kind in UNSAVED else obs)
    assert same_labels(ld.Moments.from_anndata(adata, "guide", control=labels[0]).contexts, m.contexts)
    ld.LatentDAG(control=labels[0]).fit(X, rows).score(X, rows)

    half = len(X) // 2
    halves = [ld.Moments.from_samples(X[i], rows[i], control=None) for i in (slice(half), slice(half, None))]
    assert set(sum(halves).contexts) == set(m.contexts)
    assert same_labels(m.select(others[:1]).contexts, m.contexts[:2])
    if kind in UNSAVED:
        with pytest.raises(ValueError, match="cannot save the context label"):
            m.save(tmp_path / "m.npz")
    else:
        found.save(tmp_path / "fit.npz")
        m.save(tmp_path / "m.npz")
        assert same_labels(ld.Fit.load(tmp_path / "fit.npz").model.contexts, m.contexts)
        assert same_labels(ld.Moments.load(tmp_path / "m.npz").contexts, m.contexts)
        ld.tl.latentdag(adata, "guide", control=labels[0])
        assert same_labels(ld.tl.fit_of(adata).model.contexts, m.contexts)


def same_labels(found, labels):
    return [(type(lb.as_label(a)), a) for a in found] == [(type(lb.as_label(b)), b) for b in labels]


GAP = r"300 rows have no context label \(the first is row \d+\): drop or label them"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((True, 1, 2), "context labels (True and 1|1 and True) are equal and differ only in type: give all labels one type"),
        ((0, 1, 1.0), "context labels (1 and 1.0|1.0 and 1) are equal"),
        (("a", ("b", 1), ("b", True)), r"context labels \('b', (1|True)\) and \('b', (1|True)\) are equal"),
        ((np.float32(2), np.int8(2), "x"), "context labels (2.0 and 2|2 and 2.0) are equal"),
        (("a", None, "b"), GAP),
        (("a", float("nan"), "b"), GAP),
        (("a", pd.NA, "b"), GAP),
        (("a", np.datetime64("NaT", "ns"), "b"), GAP),
        (("a", ("b", float("nan")), "c"), r"the context label of row \d+ is missing, wholly or in part \(\('b', nan\)\)"),
        (("a", ["b"], "c"), "context labels must be hashable"),
        (("a", {"b": 1}, "c"), "context labels must be hashable"),
        (("a", ("b", ["c"]), "c"), "context labels must be hashable"),
        (("a", "x\0y", "c"), r"the context label of row \d+: 'x.x00y' holds '.x00' at position 1, which files cannot keep"),
        (("a", "caf\udce9", "c"), r"the context label of row \d+: 'caf.udce9' holds '.udce9' at position 3"),
        (("a", ("b", "\0"), "c"), r"the context label of row \d+: '.x00' holds"),
    ],
)  # fmt: skip
def test_labels_that_cannot_name_contexts_are_refused(labels, message):
    rows = labelled(labels)
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_samples(X, rows, control=None)
    with pytest.raises(ValueError, match=message):
        ld.Moments.from_samples(da.from_array(X, chunks=(100, 3)), rows, control=None)
    with pytest.raises(
        ValueError,
        match=message.replace(r"the context label of row \d+", "context label 1").replace(GAP, "label 1 is missing"),
    ):
        ld.Moments.from_covariances(REFERENCE.covariances, 300, contexts=list(labels))


@pytest.mark.parametrize("labels", [(0, 1, 2), (False, True, 2), (("a", 1), ("b", 2), ("c", 3))])
def test_shards_whose_labels_differ_in_type_only_are_not_merged(labels):
    a, b = (ld.Moments.from_samples(X, labelled(each), control=None) for each in (labels, as_floats(labels)))
    with pytest.raises(ValueError, match=r"context labels .* and .* are equal and differ only in type"):
        a + b


def as_floats(labels):
    return tuple((part[0], float(part[1])) if isinstance(part, tuple) else float(part) for part in labels)


def test_the_control_is_the_label_that_is_there():
    m = ld.Moments.from_samples(X, labelled((0.0, 1.0, 2.0)), control=0)
    assert repr(m.control) == "0.0"
    assert repr(m.contexts[0]) == "0.0"
    for control in (pd.NA, np.array(["a", "b"]), float("nan"), "0"):
        with pytest.raises(ValueError, match="is not among the contexts"):
            ld.Moments.from_samples(X, labelled((0.0, 1.0, 2.0)), control=control)


@pytest.mark.parametrize("labels", [(False, True), (0, 1), (0.5, 1.5)])
def test_labels_that_are_no_text_through_every_store(labels, tmp_path):
    rows = np.array(labels)[(np.array(Y) != "control").astype(int)]
    expected = ld.Moments.from_samples(X, rows, control=labels[0])
    obs = pd.DataFrame({"context": rows}, index=[f"c{i}" for i in range(len(X))])
    adata = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=["a", "b", "c"]))
    adata.write_h5ad(tmp_path / "x.h5ad")
    adata.write_zarr(tmp_path / "x.zarr")
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(context=rows)
    table.to_parquet(tmp_path / "x.parquet")
    group = zarr.open_group(str(tmp_path / "y.zarr"), mode="w")
    for name, values in {"X": X, "context": rows}.items():
        group.create_array(name, shape=values.shape, dtype=values.dtype)[...] = values
    sources = [adata, table, pl.from_pandas(table), pa.Table.from_pandas(table)]
    sources += [tmp_path / name for name in ("x.h5ad", "x.zarr", "y.zarr", "x.parquet")]
    for source in sources:
        m = stream.moments(source, "context", control=labels[0])
        assert same_labels(m.contexts, expected.contexts)
        np.testing.assert_array_equal(m.covariances, expected.covariances)
        assert same_labels(ld.membership_test(m, fit=False).summary.index, labels[1:])


def test_categories_that_no_row_has_are_no_contexts():
    labels = pd.Categorical(labelled(("WT", "A", "B")), categories=["A", "never", "B", "WT"])
    assert ld.Moments.from_samples(X, labels, control="WT").contexts == ("WT", "A", "B")
    with pytest.raises(ValueError, match="300 rows have no context label"):
        ld.Moments.from_samples(X, labels.remove_categories("A"), control="WT")


@pytest.mark.parametrize("labels", [(1, "1", "'1'"), ("a", "b"), (1, "1"), ("'1'", 1, "1", '"1"', "x"), (True, "True")])
def test_texts_of_labels_are_distinct(labels):
    assert len(set(lb.text_names(labels))) == len(labels)


# ---- names of columns and features ------------------------------------------------------------------------------

NO_NAME = r"has no name \(.*\): if it holds row names, write the table without them \(to_csv\(index=False\) in pandas"


@pytest.fixture
def table():
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(context=labelled(("WT", "A", "B")))


def read_csv(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return stream.moments(path, options.pop("contexts", "context"), control="WT", **options)


ROWS = "WT,1.5,2\nWT,2,1\nA,0.5,1\nA,1,3\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", ",context,f,g\n" + "".join(f"{i},{row}\n" for i, row in enumerate(ROWS.split())), "x.csv: column 1 " + NO_NAME),
        ("x.csv", "Unnamed: 0,context,f\n0,WT,1\n", "column 1 " + NO_NAME),
        ("x.csv", "context,f,\n" + ROWS, "column 3 " + NO_NAME),
        ("x.csv", "context,f,  \n" + ROWS, "column 3 " + NO_NAME),
        ("x.csv", 'context,f,""\n' + ROWS, "column 3 " + NO_NAME),
        ("x.csv", "context,f,f\n" + ROWS, r"column name 'f' occurs more than once \(columns 2 and 3\): rename or drop one"),
        ("x.csv", '\ufeff"context","f","f"\r\n' + ROWS.replace("\n", "\r\n"), "'f' occurs more than once"),
        ("x.csv", "context,f,context\n" + ROWS, "'context' occurs more than once"),
        ("x.csv", "context;f;g\n" + ROWS.replace(",", ";"), r"should be separated by ',', but its header is 'context;f;g': is it separated by ';'\?"),
        ("x.csv", "context\tf\n", r"is it separated by '\\t'\?"),
        ("x.tsv", "context,f,g\n" + ROWS, r"should be separated by '\\t', .* is it separated by ','\?"),
        ("x.csv", "context,f\n" + ROWS, r"more fields than the header has names \(2\): name every column"),
        ("x.csv", "context,f\0,g\n" + ROWS, "cannot be read as a table: byte 9 is NUL: remove it"),
        ("x.csv", "context,f,g\n" + ROWS.replace("A", "WT\0"), "byte 30 is NUL"),
        ("x.csv", "context,f,g\n" + ROWS.replace("3", "3\0"), "byte 41 is NUL"),
        ("x.csv", ("context,f,g\n" + ROWS).encode("utf-16"), "NUL: remove it; or, if the file is UTF-16, save it as UTF-8|codec can't decode"),
        ("x.csv", ("context,f,g\n" + ROWS).replace("A", "Ä").encode("latin-1"), "cannot be read as a table: 'utf-8' codec can't decode"),
        ("x.csv", "", "cannot be read as a table"),
    ],
)  # fmt: skip
def test_headers_of_text_tables(name, text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_csv(tmp_path / name, text)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.bz2", "x.csv.xz", "x.csv.zip"])
def test_headers_with_marks_quotes_and_line_ends(name, table, tmp_path):
    names = ["context", 'a "quoted", name', "two\nlines", "größe"]
    table = table[["context", "a", "b", "c"]].set_axis(names, axis=1)
    table.to_csv(tmp_path / name, index=False, encoding="utf-8-sig", lineterminator="\r\n")
    m = stream.moments(tmp_path / name, "context", control="WT")
    assert m.feature_names == tuple(names[1:])
    np.testing.assert_array_equal(m.means, ld.Moments.from_samples(X, table["context"], control="WT").means)
    table.to_csv(tmp_path / name)
    with pytest.raises(ValueError, match=NO_NAME):
        stream.moments(tmp_path / name, "context", control="WT")


def test_names_in_every_container(table, tmp_path):
    index = table.reset_index(names="Unnamed: 0")
    for each in (index, pl.from_pandas(index), pa.Table.from_pandas(index), index.rename(columns={"Unnamed: 0": ""})):
        with pytest.raises(ValueError, match="the table: column 1 " + NO_NAME):
            stream.moments(each, "context", control="WT")
    index.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="x.parquet: column 1 " + NO_NAME):
        stream.moments(tmp_path / "x.parquet", "context", control="WT")
    twice = table.set_axis(["a", "a", "c", "context"], axis=1)
    levels = table.set_axis(pd.MultiIndex.from_product([["x"], table.columns]), axis=1)
    gap = table.set_axis(["a", None, "c", "context"], axis=1)
    for each, message in [
        (twice, r"'a' occurs more than once \(columns 1 and 2\)"),
        (levels, "names of several levels"),
        (gap, "column 2 " + NO_NAME),
    ]:
        with pytest.raises(ValueError, match=message):
            ld.Moments.from_samples(each.iloc[:, :3], Y, control="control")
    numbered = ld.Moments.from_samples(pd.DataFrame(X), Y, control="control")
    assert numbered.feature_names == ("0", "1", "2")
    with pytest.raises(ValueError, match="'1' occurs more than once"):
        ld.Moments.from_samples(pd.DataFrame(X, columns=[0, 1, "1"]), Y, control="control")


def test_row_names_of_pandas_are_no_feature(table, tmp_path):
    named = table.set_index(np.arange(len(table)) * 7.0)
    named.to_parquet(tmp_path / "x.parquet")
    for source in (named, pa.Table.from_pandas(named), tmp_path / "x.parquet"):
        assert stream.moments(source, "context", control="WT").feature_names == ("a", "b", "c")
    with pytest.raises(ValueError, match="column 5 " + NO_NAME):
        stream.moments(pa.Table.from_pandas(named).replace_schema_metadata(), "context", control="WT")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "", "c"], "feature 2 " + NO_NAME),
        (["a", None, "c"], "feature 2 " + NO_NAME),
        (["a", "b", "a"], r"feature name 'a' occurs more than once \(features 1 and 3\)"),
        (["a", "b\0", "c"], r"feature 2: 'b.x00' holds '.x00' at position 1"),
        (["a", "b", "\ud800"], r"feature 3: '.ud800' holds"),
    ],
)
def test_names_of_features(names, message):
    for make in (
        lambda: ld.Moments.from_samples(X, Y, control="control", feature_names=names),
        lambda: ld.Moments.from_samples(da.from_array(X), Y, control="control", feature_names=names),
        lambda: ld.Moments.from_covariances(REFERENCE.covariances, 300, feature_names=names),
        lambda: ld.identify(np.linalg.inv(REFERENCE.covariances), feature_names=names),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_genes_with_one_name(tmp_path):
    obs = pd.DataFrame({"context": Y}, index=[f"c{i}" for i in range(len(X))])
    with pytest.warns(UserWarning, match="Variable names are not unique"):
        adata = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=["a", "b", "a"]))
    adata.write_h5ad(tmp_path / "x.h5ad")
    for source in (adata, tmp_path / "x.h5ad"):
        with pytest.raises(ValueError, match=r"feature name 'a' occurs more than once \(features 1 and 3\)"):
            stream.moments(source, "context", control="control")
        with pytest.raises(ValueError, match="has more than one feature 'a': choose by position"):
            stream.moments(source, "context", control="control", features=["a", "b"])
        assert stream.moments(source, "context", control="control", features=[0, 1]).feature_names == ("a", "b")


@pytest.mark.parametrize(
    "adjust", [{"depth\0": np.arange(900)}, pd.DataFrame({"batch": ["x", "y\udcff", "z"] * 300}, dtype=object)]
)
def test_covariates_that_files_cannot_keep(adjust):
    with pytest.raises(ValueError, match=r"covariate: .*, which files cannot keep"):
        ld.Moments.from_samples(X, Y, control="control", adjust=adjust)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("cells.csv", ",context,context\nc0,WT,a\n", r"cells.csv: column name 'context' occurs more than once"),
        ("cells.csv", ",,context\nc0,WT,a\n", r"cells.csv: column 2 has no name"),
        ("cells.csv", ",context\nc0,W\0T\n", "cells.csv cannot be read as a table: byte 13 is NUL"),
        ("features.tsv", 'f\n""\n', "feature 2 has no name"),
        ("features.tsv", "f\nf\n", "feature name 'f' occurs more than once"),
    ],
)
def test_names_beside_a_matrix(file, text, message, tmp_path):
    entries = "".join(f"{j} {i} {i + j / 2}\n" for i in (1, 2, 3) for j in (1, 2))
    files = {
        "matrix.mtx": f"%%MatrixMarket matrix coordinate real general\n2 3 6\n{entries}",
        "barcodes.tsv": "c0\nc1\nc2\n",
        "features.tsv": "f\ng\n",
        "cells.csv": ",context\nc0,WT\nc1,A\nc2,WT\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert stream.moments(tmp_path, "context", control="WT").feature_names == ("f", "g")
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        stream.moments(tmp_path, "context", control="WT")


# ---- raw counts -------------------------------------------------------------------------------------------------


def counts(n=600, p=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.lognormal(0, 0.6, size=(n, 1)) * rng.uniform(0.5, 5, p)).astype(float)


@pytest.mark.filterwarnings("ignore::latentdag.errors.OutlierWarning")
@pytest.mark.parametrize("seed", range(3))
def test_raw_counts_are_warned_of_at_every_door(seed, tmp_path):
    C, y = counts(seed=seed), ["WT"] * 300 + ["A"] * 300
    table = pd.DataFrame(C.astype(int)).rename(columns="g{}".format).assign(context=y)
    table.to_csv(tmp_path / "x.csv", index=False)
    adata = ad.AnnData(sparse.csr_matrix(C), obs=table[["context"]].set_index(table.index.astype(str)))
    for source, labels in [
        (C, y),
        (sparse.csr_matrix(C), y),
        (table, "context"),
        (tmp_path / "x.csv", "context"),
        (adata, "context"),
    ]:
        with pytest.warns(
            RawCountsWarning, match=r"looks like raw counts \(whole numbers from 0 to \d+ .*log1p first"
        ) as raised:
            stream.moments(source, labels, control="WT")
        assert len(raised) == 1
    for lazy in (da.from_array(C, chunks=(250, 2)), da.from_array(C, chunks=(250, 6)).map_blocks(sparse.csr_matrix)):
        with pytest.warns(RawCountsWarning, match="X looks like raw counts"):
            ld.Moments.from_samples(lazy, y, control="WT")
    ld.Moments.from_samples(np.log1p(C / C.sum(axis=1, keepdims=True).clip(1) * 30), y, control="WT")


@pytest.mark.parametrize("seed", range(3))
def test_whole_numbers_that_are_no_counts_are_not_warned_of(seed):
    rng = np.random.default_rng(seed)
    C = counts(seed=seed)
    for values in (
        rng.integers(0, 2, size=(500, 6)), rng.binomial(1, 0.02, size=(500, 6)), rng.binomial(2, 0.1, size=(500, 6)),
        rng.integers(0, 6, size=(500, 6)), rng.integers(0, 256, size=(500, 6)), rng.integers(1, 11, size=(500, 6)),
        np.round(rng.normal(1000, 50, size=(500, 6))), np.round(rng.normal(0, 50, size=(500, 6))),
        np.c_[rng.binomial(1, 0.02, size=(500, 5)), rng.integers(0, 1000, size=500)], C + 0.5, C - 1, np.log1p(C),
        np.zeros((5, 2)), np.zeros((0, 2)), replaced_by(C, np.nan),
    ):  # fmt: skip
        assert not looks_like_counts(values)
        assert not looks_like_counts(sparse.csr_matrix(values))
    assert looks_like_counts(C)
    assert looks_like_counts(sparse.csr_matrix(C))


def replaced_by(values, value):
    values = values.copy()
    values[3, 1] = value
    return values


def test_on_the_command_line_a_warning_is_one_line_and_json_stays_json(tmp_path):
    pd.DataFrame(counts()).rename(columns="g{}".format).assign(context=["WT"] * 300 + ["A"] * 300).to_csv(
        tmp_path / "x.csv", index=False
    )
    asked = ["moments", tmp_path / "x.csv", "--control", "WT", "--out", tmp_path / "m.npz", "--json"]
    done = subprocess.run([sys.executable, "-m", "latentdag.cli", *asked], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["counts"] == {"WT": 300, "A": 300}
    first, second = done.stderr.splitlines()
    assert first.startswith(f"latentdag: warning: {tmp_path / 'x.csv'} looks like raw counts")
    assert second.startswith("wrote ")


# ---- csv for spreadsheets ---------------------------------------------------------------------------------------


def test_cells_that_spreadsheets_would_run_are_made_harmless(tmp_path):
    table = pd.DataFrame({
        "=SUM(A1)": ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "a=b", "", None],
        "number": [-1.5, 2, -3, np.nan, 5, 6, 7, 8, 9],
        "mixed": [-1, "-1", True, ("-", 1), 1.5, "'", "x", None, "-"],
        "-kind": pd.Categorical(["-a", "b", "=c"] * 3),
    })  # fmt: skip
    before = table.copy()
    write_csv(tmp_path / "x.csv", table)
    back = pd.read_csv(tmp_path / "x.csv", keep_default_na=False, dtype=str)
    assert list(back) == ["'=SUM(A1)", "number", "mixed", "'-kind"]
    assert back["'=SUM(A1)"].tolist() == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "a=b", "", ""]
    assert back["number"].tolist()[:4] == ["-1.5", "2.0", "-3.0", ""]
    assert back["mixed"].tolist()[:5] == ["-1", "'-1", "True", "('-', 1)", "1.5"]
    assert back["'-kind"].tolist()[:3] == ["'-a", "b", "'=c"]
    pd.testing.assert_frame_equal(table, before)
    write_csv(tmp_path / "y.csv", table.iloc[:0])
    assert (tmp_path / "y.csv").read_text() == "'=SUM(A1),number,mixed,'-kind\n"
