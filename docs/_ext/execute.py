"""Run the tutorials on real data again and keep what they print and draw: ``make tutorials``.

They are committed as they ran, because the site is built where the data are not. Names of notebooks may be given, else
all run. The data are found as :mod:`latentdag.datasets` finds them.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[1] / "tutorials"


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs. It runs in a folder of its own, and the first error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day would change the file every time
    return notebook


if __name__ == "__main__":
    for tutorial in [TUTORIALS / name for name in sys.argv[1:]] or sorted(TUTORIALS.glob("*.ipynb")):
        sys.stderr.write(f"running {tutorial.name}\n")
        nbformat.write(execute(tutorial), tutorial)
