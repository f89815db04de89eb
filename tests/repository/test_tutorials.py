"""Tutorials on real data: committed as they ran, without errors or traces of a machine, and they still run."""

import json
import os
import re
import subprocess
import sys

import pytest

from latentdag.datasets import chamber, containers, cytometry, luad, thp1

from paths import DOCS, SHARED

NOTEBOOKS = sorted((DOCS / "tutorials").glob("*.ipynb"))
NEEDS = {
    "light_tunnel": [chamber.SOURCE],
    "interferon": [thp1.SOURCE],
    "workflow": [thp1.SOURCE, luad.SOURCE],
    "sachs": [cytometry.SOURCE],
}

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def code_cells(path):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@every
def test_committed_as_it_ran(path):
    cells = code_cells(path)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs, "run it: make tutorials"
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), (
        "run from the top: make tutorials"
    )
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"], "warnings belong to no tutorial"


@every
def test_names_no_machine(path):
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.:/])/(?:home|root|tmp|work|Users|mnt|opt)/\S*", text)


@pytest.mark.slow
@every
def test_still_runs(path):
    pytest.importorskip("nbclient", reason="tutorials run with the packages of the group 'docs'")
    assert path.stem in NEEDS, "say in this file which data it needs"
    for source in NEEDS[path.stem]:
        if not any((SHARED / folder).is_dir() for folder in source.folders):
            pytest.skip(
                f"no {source.name} beside the repository; set {containers.ENVIRONMENT} to the folder that has it"
            )
    code = "import sys, pathlib, execute; execute.execute(pathlib.Path(sys.argv[1]))"
    place = {containers.ENVIRONMENT: str(SHARED), "PYTHONPATH": str(DOCS / "_ext")}
    done = subprocess.run(
        [sys.executable, "-c", code, path], env={**os.environ, **place}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
