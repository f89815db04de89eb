"""A file is loaded as it was saved, or refused by a FileError that names it and the field: whatever was done to it."""

import copy
import io
import json
import pickle
import shutil
import time
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import latentdag as ld
from latentdag import stream
from latentdag.data import labels as lb
from latentdag.data.schema import Layout, check_field, parse_json
from latentdag.data.store import LARGEST_TEXT, save_arrays, to_plain
from latentdag.errors import DamagedCheckpointWarning, FileError
from latentdag.experiments.runner import _finished
from latentdag.inference.replicates import Checkpoint
from latentdag.inference.stability import Bootstrap

from damaging import BLOCK, damaged_file, damaged_meta, load_piece, npy, samples, saved
from fuzzing import damage

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = ["WT"] * 60 + ["A"] * 40 + ["B"] * 20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def path(tmp_path):
    """A file of moments."""
    ld.Moments.from_samples(X, Y, control="WT").save(tmp_path / "m.npz")
    return tmp_path / "m.npz"


def contents(path):
    """Arrays and text of a file."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(str(arrays.pop("meta")))


def rewrite(path, arrays, meta):
    np.savez(path, meta=np.array(meta if isinstance(meta, str) else json.dumps(meta)), **arrays)


def refused(path, load, field, message):
    with pytest.raises(FileError, match=message) as caught:
        load(path)
    assert (caught.value.path, caught.value.field) == (str(path), field)
    assert str(caught.value).startswith(str(path))


# ---- what is saved comes back ---------------------------------------------------------------------------------------


KINDS = ["moments", "fine", "model", "likelihood", "closed-form", "projection", "exact", "fewer-latents", "bootstrap"]


@pytest.mark.parametrize("kind", KINDS)
def test_round_trips_are_exact_to_the_bit(files, kind, tmp_path):
    path, load = files[kind]
    load(path).save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["moments", "likelihood", "bootstrap"])
def test_files_of_machines_with_the_other_byte_order(files, kind, tmp_path):
    path, load = files[kind]
    arrays, meta = contents(path)
    rewrite(tmp_path / "other.npz", {name: a.astype(a.dtype.newbyteorder(">")) for name, a in arrays.items()}, meta)
    load(tmp_path / "other.npz").save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_file_errors_travel_between_processes():
    error = FileError("m.npz", "counts", "wrong")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (other.path, other.field, other.reason, str(other)) == (
            "m.npz",
            "counts",
            "wrong",
            "m.npz: counts: wrong",
        )


# ---- what cannot be opened ------------------------------------------------------------------------------------------


def test_missing_folders_and_locked_files(path, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nowhere\.npz"):
        ld.Moments.load(tmp_path / "nowhere.npz")
    with pytest.raises(IsADirectoryError, match="is a folder: name a file in it"):
        ld.Moments.load(tmp_path)
    monkeypatch.setattr("pathlib.Path.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "denied")))
    with pytest.raises(PermissionError, match=r"m\.npz may not be read"):
        ld.Moments.load(path)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 truncated"])
def test_no_archive(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    refused(tmp_path / "bad.npz", ld.Moments.load, "file", r"bad\.npz is not a latentdag file, or is damaged")


def test_a_flipped_bit_in_the_numbers(path):
    raw, at = bytearray(path.read_bytes()), path.read_bytes().index(ld.Moments.load(path).means[1].tobytes())
    raw[at + 3] ^= 1
    path.write_bytes(raw)
    refused(path, ld.Moments.load, "file", "Bad CRC-32")


def test_truncated(path):
    path.write_bytes(path.read_bytes()[:-200])
    refused(path, ld.Moments.load, "file", "damaged")


def test_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "evil.npz", meta=np.array([{"a": 1}], dtype=object))
    refused(tmp_path / "evil.npz", ld.Moments.load, "meta", "no plain array")


def test_another_archive(tmp_path):
    np.savez(tmp_path / "x.npz", X=X)
    refused(tmp_path / "x.npz", ld.Moments.load, "file", r"not a latentdag file: it has no member meta\.npy")


def test_another_kind_and_a_later_version(path):
    refused(path, ld.Fit.load, "kind", "holds 'Moments', not 'Fit': load it with the class that saved it")
    arrays, meta = contents(path)
    rewrite(path, arrays, meta | {"version": 2})
    refused(path, ld.Moments.load, "version", "newer latentdag .format 2.: upgrade to read it")


# ---- memory ---------------------------------------------------------------------------------------------------------


def peak_of(load, path):
    tracemalloc.start()
    try:
        load(path)
    except (FileError, OSError):
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_a_small_file_takes_little_memory_whatever_it_claims(path, tmp_path):
    arrays, meta = contents(path)
    p = 1200
    names = meta | {"feature_names": [f"x{j}" for j in range(p)]}
    large = {"counts": arrays["counts"], "means": np.zeros((3, p)), "covariances": np.zeros((3, p, p), order="C")}
    np.savez_compressed(tmp_path / "bomb.npz", meta=np.array(json.dumps(names)), **large)
    assert (tmp_path / "bomb.npz").stat().st_size < large["covariances"].nbytes / 200
    refused(tmp_path / "bomb.npz", ld.Moments.load, "file", "has a compressed member 'meta': numpy.savez")
    assert peak_of(ld.Moments.load, tmp_path / "bomb.npz") < 10**6


@pytest.mark.parametrize("shape", ["(100000000000000000000,)", "(40000, 40000, 2)", "(3, 3, 4)", "()", "(3, 3, -3)"])
def test_headers_that_lie(path, shape):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    liar = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8 * 27)
    replace_member(path, "covariances.npy", liar)
    refused(path, ld.Moments.load, "covariances", "(do not make|no plain) array")
    assert peak_of(ld.Moments.load, path) < 10**6


def test_members_that_share_their_bytes(path):
    """An archive whose directory lists one long member many times would take many times its size."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", npy(np.zeros(10_000)))
        for i in range(9):
            twin = copy.copy(archive.getinfo("a.npy"))
            twin.filename = f"b{i}.npy"
            archive.filelist.append(twin)
    refused(path, ld.Moments.load, "file", "claims to hold more than it has bytes")


def replace_member(path, name, data):
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in (members | {name: data}).items():
            archive.writestr(each, content)


def test_a_text_that_is_too_long(path, monkeypatch):
    with pytest.raises(ValueError, match="shorten the names"):
        save_arrays(path, Layout("x", {}, {}), {}, {"a": "x" * (LARGEST_TEXT // 4)})
    monkeypatch.setattr("latentdag.data.store.LARGEST_TEXT", 100)
    refused(path, ld.Moments.load, "meta", "one text of 100 bytes at most")


# ---- fields ---------------------------------------------------------------------------------------------------------


NAN, DEEP = float("nan"), json.loads("[" * 300 + "]" * 300)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"contexts": ["WT", "A", "A"]}, "contexts", "'A' occurs more than once"),
        ({"contexts": ["WT", "A"]}, "counts", r"has shape \(3,\), where the rest of the file asks for \(2\)"),
        ({"contexts": ["WT", ["A"], "B"]}, r"contexts[1]", "not a list of 1"),
        ({"contexts": ["WT", {"list": []}, "B"]}, r"contexts[1]", "not a mapping of 1"),
        ({"contexts": ["WT", NAN, "B"]}, r"contexts[1]", "not nan"),
        ({"contexts": ["WT", "A\0", "B"]}, r"contexts[1]", "no text"),
        ({"contexts": ["WT", "\ud800", "B"]}, r"contexts[1]", "no text"),
        ({"contexts": 3}, "contexts", "must be a list, not 3"),
        ({"contexts": DEEP}, "JSON", "nested more than 40 deep"),
        ({"has_control": 1}, "has_control", "must be true or false, not 1"),
        ({"feature_names": ["a", "b"]}, "means", r"has shape \(3, 3\), where .* \(3, 2\)"),
        ({"feature_names": ["a", "b", "a"]}, "feature_names", "'a' occurs more than once"),
        ({"feature_names": ["a", "b", 3]}, "feature_names[2]", "must be text, not 3"),
        ({"feature_names": None}, "feature_names", "must be a list, not None"),
        ({"kind": None}, "kind", "must be text"),
        ({"version": "1"}, "version", "must be a whole number, not '1'"),
        ({"version": 10**400}, "version", "beyond 64 bits"),
        ({"version": 0}, "version", "must be 1 or more"),
    ],
)  # fmt: skip
def test_fields_of_moments(path, change, field, message):
    arrays, meta = contents(path)
    rewrite(path, arrays, meta | change)
    refused(path, ld.Moments.load, field, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * 100_000, "nested more than 40 deep"), ('{"kind": 1, "kind": 2}', "occurs twice"), ("{", "no JSON"), ("[]", "must be a mapping")],
)  # fmt: skip
def test_a_text_that_is_no_mapping(path, text, message):
    rewrite(path, contents(path)[0], text)
    refused(path, ld.Moments.load, "JSON", message)


@pytest.mark.parametrize(
    ("name", "change", "field", "message"),
    [
        ("counts", lambda n: n.astype(float), "counts", "holds float64, not int64"),
        ("counts", lambda n: n * 0, "counts", "context 'WT': the count must be a positive whole number, got 0"),
        ("means", lambda m: m.astype("f4"), "means", "no plain array"),
        ("means", lambda m: m.T[:2], "means", r"has shape \(2, 3\)"),
        ("means", lambda m: m * NAN, "covariances", "the mean of feature 'x0' is nan"),
        ("covariances", lambda S: S + np.triu(S), "covariances", "context 'WT': the covariance is not symmetric"),
        ("covariances", lambda S: S * np.inf, "covariances", "context 'WT': the covariance of 'x0' and 'x0' is inf"),
        ("covariances", lambda S: S[0], "covariances", "has 2 dimensions, not 3"),
        ("more", lambda _: np.zeros(3), "file", "has an array 'more', which a Moments file does not"),
        ("fine_axes", lambda _: np.eye(3), "fine", "both fine_axes and fine_covariances, or neither"),
    ],
)  # fmt: skip
def test_arrays_of_moments(path, name, change, field, message):
    arrays, meta = contents(path)
    rewrite(path, arrays | {name: change(arrays.get(name))}, meta)
    refused(path, ld.Moments.load, field, message)


def test_a_fine_scale_that_is_not_that_of_the_features(files, tmp_path):
    arrays, meta = contents(files["fine"][0])
    swapped = {"covariances": arrays["fine_covariances"], "fine_covariances": arrays["covariances"]}
    rewrite(tmp_path / "m.npz", arrays | swapped, meta)
    refused(tmp_path / "m.npz", ld.Moments.load, "fine", "are not those of the features")
    rewrite(tmp_path / "m.npz", arrays | {"fine_axes": arrays["fine_axes"] + 1}, meta)
    refused(tmp_path / "m.npz", ld.Moments.load, "fine", "not orthogonal")


def with_change(target="c1", **change):
    return [["c1", {target: {"kind": "perfect", "variance": 1.0, "shift": 0.0, "weights": None} | change}]]


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"order": ["c1", "c2"]}, "order", "must list each latent of the model once"),
        ({"order": ["c1", "c1", "c2"]}, "order", "must list each latent of the model once"),
        ({"graph": [["c1", "c9", 1.0]]}, "graph", "'c1' → 'c9' of weight 1.0 is not in the model"),
        ({"graph": [["c1", "c2", NAN]]}, "graph[0][2]", "must be a finite number, not nan"),
        ({"graph": [["c1", "c2"]]}, "graph[0]", "must have 3 parts, not 2"),
        ({"counts": [10, 10]}, "counts", "one positive number per context"),
        ({"counts": [10, 10, 10, 0]}, "counts", "one positive number per context"),
        ({"counts": [10, 10, 10, True]}, "counts[3]", "must be a whole number, not True"),
        ({"loglik": "x"}, "loglik", "must be a number, not 'x'"),
        ({"converged": None}, "converged", "must be true or false, not None"),
        ({"options": []}, "options", "must be a mapping, not a list of 0"),
        ({"options": {"x": DEEP}}, "JSON", "nested more than"),
        ({"details": {"runner_up": {"order": ["c1"]}}}, "details.runner_up.gap", "is missing"),
        ({"details": {"shrinkage": {"c1": "x"}}}, "details.shrinkage.c1", "must be a number"),
        ({"method": {}}, "method", "must be text"),
        ({"model": []}, "model", "must be a mapping"),
        ({("model", "latents"): ["c1", "c1", "c2"]}, "model", "3 distinct latent names are needed"),
        ({("model", "control"): "c1"}, "model", "the control 'c1' cannot have an intervention"),
        ({("model", "interventions"): with_change("c9")}, "model", "names the latent 'c9'"),
        ({("model", "interventions"): with_change(kind="magic")}, "model", "kind must be one of perfect, soft, do, got 'magic'"),
        ({("model", "interventions"): with_change(variance=-1.0)}, "model", "must be positive and finite, got -1.0"),
        ({("model", "interventions"): with_change(kind="do")}, "model", "must be zero for 'do', got 1.0"),
        ({("model", "interventions"): with_change(shift=NAN)}, "model.interventions[0][1].c1.shift", "finite number, not nan"),
        ({("model", "interventions"): with_change(weights={"c2": 1.0})}, "model", "only a soft intervention has weights"),
        ({("model", "interventions"): 2 * with_change()}, "model", "one intervention per context"),
    ],
)  # fmt: skip
def test_fields_of_fits(files, tmp_path, change, field, message):
    arrays, meta = contents(files["likelihood"][0])
    for key, value in change.items():
        if isinstance(key, tuple):
            meta[key[0]][key[1]] = value
        else:
            meta[key] = value
    rewrite(tmp_path / "fit.npz", arrays, meta)
    refused(tmp_path / "fit.npz", ld.Fit.load, field, message)


def test_a_cycle_in_a_fit(files, tmp_path):
    arrays, meta = contents(files["likelihood"][0])
    arrays["weights"] = arrays["weights"] + arrays["weights"].T
    rewrite(tmp_path / "fit.npz", arrays, meta)
    refused(tmp_path / "fit.npz", ld.Fit.load, "order", "a latent acts on one that comes before it")


@pytest.mark.parametrize(
    ("name", "change", "field", "message"),
    [
        ("closures", lambda c: c | c.transpose(0, 2, 1), "closures", "ancestor"),
        ("weights", lambda w: w + 1, "weights", "no ancestor of"),
        ("weights", lambda w: w * NAN, "weights", "not finite"),
        ("cosines", lambda c: c - 2, "cosines", "between 0 and 1"),
        ("replicates", lambda r: r * 0, "replicates", "none twice"),
        ("converged", lambda c: c[1:], "converged", "has shape"),
    ],
)
def test_arrays_of_bootstraps(files, tmp_path, name, change, field, message):
    arrays, meta = contents(files["bootstrap"][0])
    rewrite(tmp_path / "b.npz", arrays | {name: change(arrays[name])}, meta)
    refused(tmp_path / "b.npz", Bootstrap.load, field, message)


# ---- labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["WT", 1, 2.5, False, ("a", (1, 2.5)), (), float("inf"), "é", "𝛼"])
def test_labels_go_to_json_and_back(label):
    back = lb.from_json(json.loads(json.dumps(lb.to_json(label))))
    assert back == label
    assert type(back) is type(label)


@pytest.mark.parametrize(
    "value", [[], ["a"], {}, {"list": []}, {"tuple": "ab"}, {"tuple": [], "x": 1}, {"tuple": [[1]]}, None, NAN, "a\0", "\udfff"]
)  # fmt: skip
def test_what_is_no_label(value):
    with pytest.raises(ValueError, match=r"a context label is|no text"):
        lb.from_json(value)


def test_labels_nested_too_deep():
    deep = "x"
    for _ in range(100):
        deep = {"tuple": [deep]}
    with pytest.raises(ValueError, match="a context label is"):
        lb.from_json(deep)


@pytest.mark.parametrize("label", [object(), None, frozenset([1]), NAN, "a\0b", "\ud800", ("a", NAN)])
def test_labels_that_cannot_be_saved_leave_the_old_file(path, label):
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"label|no text"):
        replace(ld.Moments.from_covariances([np.eye(2)] * 2, 10), contexts=("WT", label)).save(path)
    assert path.read_bytes() == before


def test_names_that_cannot_be_loaded_are_not_saved(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"feature_names\[1\].*no text: rename it"):
        replace(ld.Moments.from_covariances([np.eye(2)], 10), feature_names=("a", "\ud800")).save(path)
    assert path.read_bytes() == before


def test_brackets_in_text_are_not_nesting():
    text = json.dumps({"a": "[" * 100 + '"\\' + "{" * 100, "b": ["\\", "]"]})
    assert json.dumps(parse_json(text)) == text


@pytest.mark.parametrize(
    "text", ['\\"' * 200_000, '"' * 200_000, '"' + "\\" * 200_001, "[]" * 200_000, "[" * 200_000, '"' + "a" * 200_000]
)
def test_long_texts_are_refused_at_once(text):
    began = time.monotonic()
    with pytest.raises(ValueError, match="JSON"):
        parse_json(text)
    assert time.monotonic() - began < 2


def test_kinds_of_fields():
    kind = {"a": [int], "b?": (str, float), "c": {str: bool}}
    check_field(parse_json('{"a": [1, 2], "b": ["x", 1], "c": {"y": true}, "more": null}'), kind)
    check_field({"a": [], "b": None, "c": {}}, kind)
    for wrong, field in (({"a": [True], "c": {}}, r"a\[0\]"), ({"a": [1.0], "c": {}}, r"a\[0\]"), ({"a": []}, "c")):
        with pytest.raises(ValueError, match=f"^{field}: "):
            check_field(wrong, kind)


# ---- folders and checkpoints ----------------------------------------------------------------------------------------


def test_results_that_do_not_belong_together(files, tmp_path):
    folder, load = files["result"]
    shutil.copytree(folder, tmp_path / "r")
    shutil.copy(files["exact"][0], tmp_path / "r" / "fit.npz")
    load(tmp_path / "r")  # the same contexts and features
    shutil.copy(files["fewer-latents"][0], tmp_path / "r" / "fit.npz")
    with pytest.raises(FileError, match=r"moments\.npz: contexts: not those of fit\.npz"):
        load(tmp_path / "r")
    (tmp_path / "r" / "parameters.json").write_text("[]")
    refused_in = tmp_path / "r" / "parameters.json"
    with pytest.raises(FileError, match="must be a mapping, not a list of 0") as caught:
        load(tmp_path / "r")
    assert caught.value.path == str(refused_in)


def test_a_damaged_piece_is_computed_again(files, tmp_path):
    m = ld.Moments.load(files["result"][0] / "moments.npz")
    whole = ld.bootstrap(m, 3, checkpoint=tmp_path / "run", method="closed-form")
    for name in ("piece-000001.npz", "fit.npz"):
        before = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).write_bytes(before[:-50])
        with pytest.warns(DamagedCheckpointWarning, match=rf"{name} is not .*; what it held is computed again"):
            again = ld.bootstrap(m, 3, checkpoint=tmp_path / "run", method="closed-form")
        assert np.array_equal(again.weights, whole.weights)
        assert (tmp_path / "run" / name).read_bytes() == before


def test_a_piece_of_other_latents_is_thrown_away(files, tmp_path):
    store = Checkpoint(tmp_path, {})
    shutil.copy(files["piece"][0], store.path(0))
    with pytest.warns(DamagedCheckpointWarning, match=r"weights: has shape \(3, 3\), but there are 4 latents"):
        assert store.read(0, 4) is None
    assert load_piece(files["piece"][0]) is not None


def test_a_damaged_checkpoint_of_moments_is_put_aside(tmp_path):
    kept = tmp_path / "c.npz"
    whole = stream.moments(*samples(), block_rows=BLOCK, checkpoint=kept)
    raw = kept.read_bytes()
    kept.write_bytes(raw[:-9])
    with pytest.warns(
        DamagedCheckpointWarning, match=r"c\.npz is not .*now called c\.npz\.damaged, and the work begins anew"
    ):
        again = stream.moments(*samples(), block_rows=BLOCK, checkpoint=kept)
    assert np.array_equal(again.covariances, whole.covariances)
    assert kept.read_bytes() == raw
    assert (tmp_path / "c.npz.damaged").read_bytes() == raw[:-9]
    whole.save(kept)
    with pytest.raises(FileError, match="holds 'Moments', not 'MomentsInProgress'"):
        stream.moments(*samples(), block_rows=BLOCK, checkpoint=kept)
    assert np.array_equal(ld.Moments.load(kept).means, whole.means)


def test_sums_of_fewer_blocks_than_the_file_says(tmp_path):
    kept = tmp_path / "c.npz"
    stream.moments(*samples(), block_rows=BLOCK, checkpoint=kept)
    arrays, meta = contents(kept)
    rewrite(kept, arrays, meta | {"blocks": 1})
    with pytest.warns(DamagedCheckpointWarning, match="blocks: 1 blocks of 40 rows are not what was counted"):
        stream.moments(*samples(), block_rows=BLOCK, checkpoint=kept)


def test_a_damaged_fit_in_anndata(files):
    ad = pytest.importorskip("anndata")
    fit = ld.Fit.load(files["likelihood"][0])
    stored = ld.tl.to_uns(fit)
    adata = ad.AnnData(np.zeros((2, 2)), uns={"latentdag": stored})
    assert ld.tl.fit_of(adata).order == fit.order
    for change, message in (({"meta": "{"}, "JSON: is no JSON"), ({"weights": np.zeros(3)}, "weights: has 1 dimensions"),
                            ({"unmixing": np.nan * fit.model.unmixing}, "fit: unmixing holds values that are not")):  # fmt: skip
        adata.uns["latentdag"] = stored | {"fit": stored["fit"] | change}
        with pytest.raises(FileError, match=rf"uns\['latentdag'\]: {message}"):
            ld.tl.fit_of(adata)


def test_a_damaged_chunk_of_an_experiment_is_computed_again(tmp_path):
    path = tmp_path / "chunk-000000.json"
    assert not _finished(path)
    path.write_text('[{"a": NaN}]')
    assert _finished(path)
    for text in ('[{"a": 1}', "{}", "[1]", "[" * 100_000):
        path.write_text(text)
        with pytest.warns(DamagedCheckpointWarning, match=r"chunk-000000\.json.*computed again"):
            assert not _finished(path)


# ---- any damage -----------------------------------------------------------------------------------------------------


def damaged_load(files, kind, rng, place):
    """Load a damaged file: None if it was refused, else True if what came back is sound, or what went wrong."""
    source, load = files[kind]
    target = place / source.name
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
        inside = [path for path in sorted(source.glob("*.*")) if path.suffix in (".npz", ".json")]
        part = inside[int(rng.integers(len(inside)))]
        raw = part.read_bytes()
        (target / part.name).write_bytes(damaged_file(raw, rng) if part.suffix == ".npz" else damaged_text(raw, rng))
    else:
        target.write_bytes(damaged_file(source.read_bytes(), rng))
    size = max(path.stat().st_size for path in ([target] if target.is_file() else target.iterdir()) if path.is_file())
    began = time.monotonic()
    tracemalloc.start()
    try:
        found = load(target)
    except FileError as error:
        named = error.field and str(error).startswith(str(place)) and len(str(error)) < 1500
        if not named:
            raise AssertionError(str(error)) from None
        return None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40 * size + 2**21, (peak, size)
        assert time.monotonic() - began < 5
    return None if found is None else sound(found, load, place)


def damaged_text(raw, rng):
    """A damaged JSON file: the same things happen to it as to the text in an archive."""
    if rng.random() < 0.3:
        return damage(raw, rng)
    return str(np.load(io.BytesIO(damaged_meta(npy(np.array(raw.decode())), rng)))).encode("utf-8", "backslashreplace")


def sound(found, load, place):
    """Whether what was loaded can be saved and comes back the same."""
    if not hasattr(found, "save"):
        return True
    found.save(place / "one.npz")
    load(place / "one.npz").save(place / "two.npz")
    return repr(found) != "" and (place / "one.npz").read_bytes() == (place / "two.npz").read_bytes()


def fuzz(files, numbers, place):
    """Damage files in numbered ways; how many were refused, and how many gave a sound object."""
    outcomes = {"refused": 0, "sound": 0}
    kinds = sorted(files)
    for number in numbers:
        rng = np.random.default_rng([number, 7])
        kind = kinds[number % len(kinds)]
        (place / "damaged").mkdir(exist_ok=True)
        came = damaged_load(files, kind, rng, place / "damaged")
        assert came is None or came is True, (number, kind)
        outcomes["refused" if came is None else "sound"] += 1
        shutil.rmtree(place / "damaged")
    return outcomes


def test_any_damage_is_refused_or_harmless(files):
    place = files["moments"][0].parent
    outcomes = fuzz(files, range(300), place)
    assert outcomes["refused"] > 150
    assert outcomes["sound"] > 5


def test_plain_values_are_what_json_holds():
    found = {"n": np.int64(3), 2: (np.array([[0.5, np.nan]]), np.True_), "none": None}
    dates = {"day": np.datetime64("2026-01-02"), "time": np.array(["2026-01-02T03:04"], "datetime64[ns]")}
    made = to_plain({**found, **dates, "deep": {("a", 1): [float("inf"), "x", np.float32(0.25), 2 + 1j]}})
    assert made == {
        "n": 3, "2": [[[0.5, None]], True], "none": None, "day": "2026-01-02", "time": ["2026-01-02T03:04:00.000000000"],
        "deep": {"('a', 1)": [None, "x", 0.25, "(2+1j)"]},
    }  # fmt: skip
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert type(made["n"]) is int
    assert type(made["2"][1]) is bool
