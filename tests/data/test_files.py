"""Files: nothing of the user's is touched, no moment without a result, and one clear sentence where writing fails."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import latentdag as ld
from latentdag.cli import results
from latentdag.cli.app import app
from latentdag.cli.place import LIST, WORK, check_settled, read_list, reserved
from latentdag.cli.results import FIGURES, FILES, TABLES, file_names
from latentdag.data import accumulate, prepare, stream
from latentdag.data.store import hold, write_atomically

run = CliRunner().invoke


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Samples of a small screen."""
    folder = tmp_path_factory.mktemp("screen")
    small = ["--latents", "2", "--features", "3", "--samples", "200", "--seed", "3"]
    assert run(app, ["simulate", "--out", str(folder), *small]).exit_code == 0
    return folder / "samples.csv"


@pytest.fixture
def few(monkeypatch):
    """Results with one figure that costs nothing, and no page."""
    monkeypatch.setattr(results, "write_figures", lambda folder, *_: results.write_text(folder / "edges.svg", "<svg/>"))
    monkeypatch.setattr(results, "write_report", lambda *_: None)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_times(files):
    parameters = json.loads(files["parameters.json"])
    return {**files, "parameters.json": {k: v for k, v in parameters.items() if k not in ("finished", "seconds")}}


def fit(table, out, *more):
    return run(app, ["fit", str(table), "--control", "control", "--method", "closed-form", "--out", str(out), *more])


def one_line(done, *said):
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1, done.stderr
    for text in said:
        assert text in done.stderr


# ---- what is the user's ---------------------------------------------------------------------------------------------


def test_only_what_an_earlier_run_wrote_is_replaced_or_removed(table, tmp_path):
    out = tmp_path / "out"
    assert fit(table, out, "--bootstrap", "2").exit_code == 0
    assert set(read_list(out)["fit"]) <= set(file_names(FILES, TABLES, FIGURES))
    assert (out / "bootstrap.npz").exists()
    for name in ("my_notes.txt", "figures/for-the-talk.png"):
        (out / name).write_text("mine")
    assert fit(table, out).exit_code == 0
    assert not (out / "bootstrap.npz").exists()
    assert not (out / "tables/stability.csv").exists()
    alone = tmp_path / "alone"
    assert fit(table, alone).exit_code == 0
    found = contents(out)
    assert {found.pop("my_notes.txt"), found.pop("figures/for-the-talk.png")} == {b"mine"}
    assert without_times(found) == without_times(contents(alone))


def test_results_can_go_where_the_data_are(table, tmp_path, monkeypatch, few):
    monkeypatch.chdir(tmp_path)
    Path("cells.csv").write_bytes(table.read_bytes())
    for _ in range(2):
        assert fit("cells.csv", ".").exit_code == 0
    assert Path("cells.csv").read_bytes() == table.read_bytes()
    assert ld.Fit.load("fit.npz").method == "closed-form"
    assert not Path(WORK).exists()


def test_a_file_of_ours_by_name_only_stops_the_run_before_the_work(table, tmp_path, few):
    for name in ("report.html", "tables", "figures/edges.svg"):
        mine = tmp_path / name.replace("/", "-") / name
        mine.parent.mkdir(parents=True)
        mine.write_text("mine")
        out = tmp_path / name.replace("/", "-")
        one_line(fit("nowhere.csv", out), str(mine), "would be lost")
        assert contents(out) == {name: b"mine"}
    # nor are the samples of one command swept away as old files of another
    assert run(app, ["simulate", "--out", str(tmp_path / "s"), "--samples", "20"]).exit_code == 0
    (tmp_path / "s/moments.npz").unlink()
    assert fit(table, tmp_path / "s").exit_code == 0
    assert (tmp_path / "s/samples.csv").exists()


def test_results_of_earlier_versions_are_known_by_their_files(table, tmp_path, few):
    assert fit(table, tmp_path, "--bootstrap", "2").exit_code == 0
    (tmp_path / LIST).unlink()
    (tmp_path / "my_notes.txt").write_text("mine")
    assert fit(table, tmp_path).exit_code == 0
    assert not (tmp_path / "bootstrap.npz").exists()
    assert (tmp_path / "my_notes.txt").read_text() == "mine"


def test_a_list_cannot_name_files_outside_its_folder(table, tmp_path, few):
    (tmp_path / "out").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out" / LIST).write_text(json.dumps({"fit": ["../mine", str(tmp_path / "mine")]}))
    assert fit(table, tmp_path / "out").exit_code == 0
    assert (tmp_path / "mine").read_text() == "mine"
    (tmp_path / "out" / LIST).write_text("{")
    one_line(fit(table, tmp_path / "out"), f"{LIST} is damaged")


# ---- where it cannot be written -------------------------------------------------------------------------------------


def test_links_stay_links(table, tmp_path, few):
    (tmp_path / "far").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "far")
    (tmp_path / "file.npz").symlink_to(tmp_path / "far/m.npz")
    assert fit(table, tmp_path / "folder").exit_code == 0
    moments = ["moments", str(table), "--control", "control", "--out", str(tmp_path / "file.npz")]
    assert run(app, moments).exit_code == 0
    assert (tmp_path / "folder").is_symlink()
    assert (tmp_path / "file.npz").is_symlink()
    assert ld.Moments.load(tmp_path / "far/m.npz") is not None
    assert (tmp_path / "far/fit.npz").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "file.npz", "folder"]


@pytest.mark.parametrize("command", ["fit", "moments", "simulate", "demo", "reproduce"])
def test_a_place_that_cannot_be_written_is_named_before_the_work(command, tmp_path):
    (tmp_path / "file").write_text("mine")
    arguments = {"fit": ["nowhere.csv"], "moments": ["nowhere.csv"], "reproduce": ["synthetic"]}.get(command, [])
    suffix = "m.npz" if command == "moments" else "out"
    one_line(run(app, [command, *arguments, "--out", str(tmp_path / "file" / suffix)]), "cannot write", "file")
    if command == "moments":
        (tmp_path / "m.npz").mkdir()
        one_line(run(app, [command, *arguments, "--out", str(tmp_path / "m.npz")]), "is a folder: name a file")
    elif command != "reproduce":
        one_line(run(app, [command, *arguments, "--out", str(tmp_path / "file")]), "is a file, not a folder")
    assert (tmp_path / "file").read_text() == "mine"


def test_the_folder_of_the_data_is_no_folder_for_results(tmp_path):
    (tmp_path / "matrix.mtx").write_text("")
    one_line(fit(tmp_path, tmp_path), "holds the data")


def test_a_place_where_another_run_works_is_left_to_it(table, tmp_path, few):
    with reserved(tmp_path / "out", "fit"):
        one_line(fit(table, tmp_path / "out"), "another run is writing", str(tmp_path / "out"))
    assert fit(table, tmp_path / "out").exit_code == 0
    (tmp_path / "other" / WORK).mkdir(parents=True)
    (tmp_path / "other" / WORK / "thesis.tex").write_text("mine")
    one_line(fit(table, tmp_path / "other"), "was not written by latentdag")
    assert contents(tmp_path / "other") == {f"{WORK}/thesis.tex": b"mine"}


def full_at(number, monkeypatch):
    """The disk is full when the so-many-th file is written."""
    calls = iter(range(10**6))

    def fsync(_):
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("latentdag.data.store.os.fsync", fsync)


@pytest.mark.parametrize("command", ["moments", "fit", "simulate", "reproduce"])
def test_a_full_disk_leaves_the_old_result_and_says_so(command, table, tmp_path, monkeypatch, few):
    out = tmp_path / ("m.npz" if command == "moments" else "out")
    data = [str(table), "--control", "control"]
    arguments = {
        "moments": ["moments", *data], "fit": ["fit", *data, "--method", "closed-form", "--bootstrap", "1"],
        "simulate": ["simulate", "--samples", "20"],
        "reproduce": ["reproduce", "membership", "--quick", "--models", "1"],
    }[command]  # fmt: skip
    assert run(app, [*arguments, "--out", str(out)]).exit_code == 0
    before = contents(tmp_path)
    size = 2 if command == "moments" else len(before)
    for number in (0, int(np.random.default_rng().integers(1, size))):
        with monkeypatch.context() as full:
            full_at(number, full)
            one_line(run(app, [*arguments, "--out", str(out)]), "cannot write", "no space left on device")
        assert contents(tmp_path) == before, number


# ---- kills ----------------------------------------------------------------------------------------------------------

EVERY_KILL = """
import os
import sys
from pathlib import Path

from latentdag.cli.place import check_settled, reserved
from latentdag.data.store import write_atomically

OLD, NEW = {"a": "1", "tables/b": "1", "gone/c": "1"}, {"a": "2", "tables/b": "2", "tables/d": "2"}
USERS = {"notes": "mine", "tables/notes": "mine"}
root = Path(sys.argv[1])
os.fsync = lambda _: None  # for speed: a kill takes nothing that was written to the system

def make(folder, files):
    with reserved(folder, "fit", [*OLD, *NEW]) as place, place.replaced() as new:
        write_atomically(place.unfinished("moments", files) / "piece", lambda file: file.write(b"half"))
        for name, text in files.items():
            write_atomically(new / name, lambda file: file.write(text.encode()))

def found(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*")
            if p.is_file() and ".latentdag" not in str(p.relative_to(folder))}

def killed_at(number, folder):
    child = os.fork()
    if child == 0:
        count = 0
        def kill(event, _):
            nonlocal count
            if event.startswith("os.") or event == "open":
                count += 1
                if count > number:
                    os._exit(9)
        sys.addaudithook(kill)
        make(folder, NEW)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

number, kept = 0, set()
while True:
    folder = root / str(number)
    make(folder, OLD)
    for name, text in USERS.items():
        (folder / name).write_text(text)
    killed = killed_at(number, folder)
    mixed = found(folder) not in ({**OLD, **USERS}, {**NEW, **USERS})
    assert not mixed or (folder / ".latentdag/ready").exists(), number
    check_settled(folder)
    assert found(folder) in ({**OLD, **USERS}, {**NEW, **USERS}), number
    kept.add((mixed, found(folder)["a"]))
    make(folder, NEW)
    assert found(folder) == {**NEW, **USERS}, number
    assert sorted(p.name for p in folder.glob(".*")) == [".latentdag.json"], number
    if not killed:
        break
    number += 1
assert kept == {(False, "1"), (True, "2"), (False, "2")}, kept
print(number)
"""


def test_killed_at_any_file_operation_the_old_or_the_new_result_is_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", EVERY_KILL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


def test_a_complete_result_whose_moves_fail_is_not_thrown_away(tmp_path, monkeypatch):
    def write(text):
        with reserved(tmp_path, "fit") as place, place.replaced() as new:
            for name in ("a", "b"):
                write_atomically(new / name, lambda file: file.write(text))

    write(b"old")
    with monkeypatch.context() as broken:
        broken.setattr("latentdag.cli.place.Path.replace", replace_but(tmp_path / "b"))
        with pytest.raises(OSError, match=r"cannot write .*: input/output error"):
            write(b"new")
    assert (tmp_path / "b").read_bytes() == b"old"
    check_settled(tmp_path)
    assert {(tmp_path / name).read_bytes() for name in ("a", "b")} == {b"new"}


def replace_but(place):
    def replace(path, target):
        if target == place:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.replace(path, target)

    return replace


def test_half_replaced_results_are_not_read_where_they_cannot_be_completed(table, tmp_path, few):
    assert fit(table, tmp_path).exit_code == 0
    (tmp_path / WORK / "ready").mkdir(parents=True)
    with (tmp_path / WORK / "lock").open("w") as file:
        assert hold(file)
        one_line(run(app, ["report", str(tmp_path)]), str(tmp_path), "another run is writing")
    assert run(app, ["report", str(tmp_path)]).exit_code == 0


def test_temporary_files_of_killed_writers_are_cleared_and_those_of_living_ones_are_not(tmp_path):
    names = (".m.npz.aaaaaaaa.latentdag", ".m.npz.bbbbbbbb.latentdag", ".m.npz.x")
    dead, living, others = (tmp_path / name for name in names)
    for path in (dead, living, others):
        path.write_text("half")
        os.utime(path, (time.time() - 60,) * 2)
    with living.open() as file:
        assert hold(file)
        write_atomically(tmp_path / "m.npz", lambda file: file.write(b"whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, others.name, "m.npz"])


class Killed(BaseException):
    """Ends a run as no error does."""


@pytest.mark.filterwarnings("default::latentdag.errors.SourceChangedWarning")
@pytest.mark.parametrize("change", ["nothing", "data", "options"])
def test_unfinished_moments_go_on_only_with_the_same_data_and_options(change, table, tmp_path, monkeypatch):
    data, out = tmp_path / "x.csv", tmp_path / "m.npz"
    data.write_bytes(table.read_bytes())
    command = ["moments", str(data), "--control", "control", "--out", str(out)]
    add, seen = accumulate.Accumulator.add, []

    def counting(self, block, *rest):
        if len(seen) == 3:
            raise Killed
        seen.append(len(block))
        add(self, block, *rest)

    monkeypatch.setattr(prepare, "MAX_ROWS", 100)
    monkeypatch.setitem(stream.moments.__kwdefaults__, "checkpoint_seconds", 0.0)
    monkeypatch.setattr(accumulate.Accumulator, "add", counting)
    monkeypatch.setattr("latentdag.data.passes._SHARE", np.inf)
    with pytest.raises(Killed):
        run(app, command)
    assert (tmp_path / ".m.npz.latentdag").is_dir()
    seen[:] = [0, 0]
    monkeypatch.setattr(accumulate.Accumulator, "add", lambda *a: (seen.append(len(a[1])), add(*a)))
    if change == "data":
        data.write_text("\n".join(data.read_text().splitlines()[:-50]) + "\n")
    if change == "options":
        command[3] = "c1"
    done = run(app, command)
    assert done.exit_code == 0, done.stderr
    assert ("begins anew" in done.stderr) == (change != "nothing")
    assert done.stderr.count("\n") == (1 if change == "nothing" else 2)
    assert sum(seen) == {"nothing": 300, "data": 550, "options": 600}[change]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.npz", "x.csv"]


# ---- streams that end ------------------------------------------------------------------------------------------------

SIMULATE = [sys.executable, "-m", "latentdag.cli", "simulate", "--samples", "20", "--out", "out"]


def test_readers_of_the_output_may_leave(tmp_path):
    with subprocess.Popen(SIMULATE, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")
    assert (tmp_path / "out/truth.npz").is_file()


@pytest.mark.parametrize(("redirected", "code"), [(">&- 2>&-", 0), ("2> /dev/full", 0), ("> /dev/full", 2)])
def test_closed_and_full_streams(redirected, code, tmp_path):
    command = ["sh", "-c", f'"$@" {redirected}', "sh", *SIMULATE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    full = "latentdag: cannot write the standard output: No space left on device\n"
    assert done.stderr == ("" if code == 0 else full)
    assert (tmp_path / "out/truth.npz").is_file()
