"""Kills and full disks: is the old result or the new one there at every moment, and are the bytes those of a quiet run?

For each command, first a quiet run into an empty place, to compare with. Then twenty runs over an older result, each
killed (SIGKILL) at a moment drawn uniformly from the time that its work takes, each going on from what the last one
left; after every kill the place must hold the old result, the new one, or a complete new one that is being moved into
place. At last a run to the end, whose files must be those of the quiet run byte for byte, beside a file of the user's
and nothing else. Only "finished" and "seconds" in a fit's parameters.json may differ.

Then a disk (a small tmpfs, so this part needs root) that has room for the old result and for a share of the new
result: with too little the run must end with one line and exit code 2, and the old result must be the same byte for
byte; with enough for checkpoints too, the new one must.

    .venv/bin/python benchmarks/kill.py [--kills 20] [--seed 0] [--folder /tmp]
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import anndata as ad
import pandas as pd
import pyarrow.parquet  # noqa: F401

import latentdag as ld
import latentdag.cli.reproduce
import latentdag.cli.results
from latentdag import pl, report  # noqa: F401
from latentdag.cli.app import app
from latentdag.data import passes as checkpoint
from latentdag.data import prepare, stream
from latentdag.experiments import synthetic  # noqa: F401

NOTE = "my_notes.txt"

#: Room on the disk beyond the old result, as a share of what the new run writes.
SHARES = (0.0, 0.05, 0.3, 0.6, 0.9, 5.0)


def write_data(folder, seed):
    """The same cells as csv, h5ad and zarr."""
    X, contexts = ld.simulate.sample(ld.simulate.random_model(4, 12, rng=seed), 6_000, rng=seed)
    names = [f"g{j}" for j in range(X.shape[1])]
    pd.DataFrame(X, columns=names).assign(context=contexts).to_csv(folder / "x.csv", index=False)
    obs = pd.DataFrame({"context": contexts}, index=[f"c{i}" for i in range(len(X))])
    adata = ad.AnnData(X, obs=obs, var=pd.DataFrame(index=names))
    adata.write_h5ad(folder / "x.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_zarr(folder / "x.zarr", chunks=(500, 12))


def commands(data):
    """Arguments by name: those to be tested, and what makes an older result in the same place."""
    made = {}
    for kind in ("csv", "h5ad", "zarr"):
        moments = ["moments", str(data / f"x.{kind}")]
        made[f"moments ({kind})"] = ([*moments, "--control", "control"], [*moments, "--control", "c1"], "m.npz")
    fit = ["fit", str(data / "x.csv"), "--control", "control", "--bootstrap", "20"]
    made["fit --bootstrap"] = ([*fit, "--seed", "1"], [*fit, "--seed", "2", "--method", "closed-form"], "out")
    quick = ["reproduce", "synthetic", "--quick", "--models"]
    made["reproduce"] = ([*quick, "2"], [*quick, "1"], "out")
    return made


class Child:
    """A process that does something and ends; forked, so that a run takes no time to import what it needs."""

    def __init__(self, do):
        reader, writer = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(writer, 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            do()
            sys.stderr.flush()
            os._exit(0)
        os.close(writer)
        self.said, self.code = os.fdopen(reader), None

    def ended(self):
        if self.code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if process else None
        return self.code is not None

    def wait(self):
        """The exit code, and what was said on stderr."""
        said = self.said.read()
        self.said.close()
        while not self.ended():
            time.sleep(0.001)
        return self.code, said


def start(arguments, out):
    """The command, with checkpoints after every few hundred rows, so that a kill has something to interrupt."""

    def run():
        stream.moments.__kwdefaults__["checkpoint_seconds"] = 0.0
        prepare.MAX_ROWS, checkpoint._SHARE = 400, 1.0
        try:
            app([*arguments, "--out", str(out)])
        except SystemExit as error:
            sys.stderr.flush()
            os._exit(error.code or 0)

    return Child(run)


def finished(arguments, out):
    return start(arguments, out).wait()


def at_work(place):
    return any(place.rglob("*.latentdag/lock")) or any(place.rglob(".latentdag/lock"))


def contents(place):
    """Every file by name, less what is unfinished, the user's note and the times in parameters.json."""
    files = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        if path.is_file() and ".latentdag/" not in name and not name.endswith((".latentdag", NOTE)):
            files[name] = path.read_bytes()
    for name in [name for name in files if name.endswith("parameters.json")]:
        said = json.loads(files[name])
        files[name] = {key: value for key, value in said.items() if key not in ("finished", "seconds")}
    return files


def until_at_work(run, place):
    while not run.ended() and not at_work(place):
        time.sleep(0.001)


def timed(arguments, place, out):
    """A quiet run; the seconds from when it has reserved its place to its end."""
    run = start(arguments, place / out)
    until_at_work(run, place)
    began = time.monotonic()
    code, said = run.wait()
    if code:
        raise SystemExit(f"{arguments}: {said}")
    return time.monotonic() - began


def killed(arguments, place, out, wait):
    """Kill a run ``wait`` seconds into its work; returns None, or the seconds that it took if it was done before."""
    run = start(arguments, place / out)
    until_at_work(run, place)
    began = time.monotonic()
    while not run.ended() and time.monotonic() - began < wait:
        time.sleep(0.001)
    took = time.monotonic() - began
    if not run.ended():
        os.kill(run.process, signal.SIGKILL)
    code, said = run.wait()
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"{arguments}: {said}")
    return took if code == 0 else None


def kills(name, spec, folder, n, rng):
    """One line of the table: what was there after each kill, and at the end."""
    arguments, older, out = spec
    quiet, place, aside = folder / "quiet", folder / "killed", folder / "aside"
    for each in (quiet, place):
        each.mkdir(parents=True)
    seconds = timed(arguments, quiet, out)
    finished(older, place / out)
    note = (place if out.endswith(".npz") else place / out) / NOTE
    note.write_text("mine")
    shutil.copytree(place, aside)
    new, old = contents(quiet), contents(aside)
    seen = dict.fromkeys(("killed", "old", "new", "moving", "neither"), 0)
    while seen["killed"] < n:
        took = killed(arguments, place, out, rng.uniform(0, seconds))
        if took is not None:  # done first, so the machine is faster now; from the old result once more
            seconds = took
            shutil.rmtree(place)
            shutil.copytree(aside, place)
            continue
        seen["killed"] += 1
        found = contents(place)
        moving = any(place.rglob("ready"))
        seen["old" if found == old else "new" if found == new else "moving" if moving else "neither"] += 1
    code, _ = finished(arguments, place / out)
    left = [path for path in place.rglob("*") if path.name.endswith(".latentdag")]
    same = code == 0 and contents(place) == new
    return [name, f"{seconds:.1f}", *seen.values(), "same" if same else "DIFFERENT",
            "kept" if note.read_text() == "mine" else "LOST", len(left)]  # fmt: skip


def size(place):
    return sum(path.stat().st_blocks * 512 for path in place.rglob("*"))


def mounted(place, size):
    place.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size // 1024}k", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def full(name, spec, folder, share):
    """One line of the table: what a run says on a disk with too little room, and what it leaves."""
    arguments, _, out = spec
    old, new, disk = folder / "aside", folder / "quiet", folder / "disk"
    if not mounted(disk, size(old) + 2**14 + int(share * size(new))):
        raise SystemExit("no tmpfs can be mounted here")
    try:
        shutil.copytree(old, disk, dirs_exist_ok=True)
        before = contents(disk)
        if share == 0:
            fill(disk / "filler")
        code, said = finished(arguments, disk / out)
        found = contents(disk)
        left = [path for path in disk.rglob("*") if path.name.endswith(".latentdag")]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    found.pop("filler", None)
    there = "old" if found == before else "new" if found == contents(new) else "NEITHER"
    return [name, f"{share:.0%}", code, there, len(left), said.replace(str(disk), "…").strip() if code else ""]


def fill(path):
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 4096)
        except OSError:
            return


def table(rows, header):
    rows = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{v:<{w}}" for v, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        Child(lambda: write_data(folder, options.seed)).wait()  # what zarr does with threads survives no fork
        chosen = {name: spec for name, spec in commands(folder).items() if options.only in name}
        places = {name: folder / str(i) for i, name in enumerate(chosen)}
        rows = [kills(name, spec, places[name], options.kills, rng) for name, spec in chosen.items()]
        header = ["command", "seconds", "kills", "old", "new", "moving", "neither", "in the end", "note", "left over"]
        print(f"Kills at random moments, seed {options.seed}: what was there after each, and in the end\n")
        print(table(rows, header), flush=True)
        lines = [full(name, spec, places[name], share) for name, spec in chosen.items() for share in SHARES]
        print("\nA disk with room for a share of the result: exit code, which result is there, and what the run said\n")
        print(table(lines, ["command", "room", "code", "result", "left over", "said"]))


if __name__ == "__main__":
    main()
