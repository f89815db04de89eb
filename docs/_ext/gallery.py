"""The gallery: a page per experiment, made of what a run of it wrote, and one that shows them all.

Runs of full size are committed in docs/experiments. For an experiment that has none, a quick one is run here, and its
page says so. Studies (the folder studies) are shown where a run is committed: some take long, and some need data.
"""

import json
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

from latentdag import experiments
from latentdag.cli.reproduce import chosen, reproduce

FIGURE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")

QUICK = """:::{attention}
This is a *quick* run, made while the site was built: few models, a small grid. It shows that everything runs, and what
the page looks like. Its numbers are not results.
:::
"""

ABOUT = """# Experiments

Every figure and number here was written by `latentdag reproduce NAME`, or by `python -m studies NAME` for our
studies. The pages are made of these files. To run one yourself, at full size or small:

```sh
latentdag reproduce synthetic --out runs
latentdag reproduce synthetic --quick --out runs
```
"""


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", make)
    return {"parallel_read_safe": True}


def make(app: Sphinx) -> None:
    """Write docs/gallery anew; only what changed, so that a second build is quick."""
    docs = Path(app.srcdir)
    studies = sorted({path.parent.name for path in docs.glob("experiments/*/summary.json")} - set(experiments.NAMES))
    runs = {name: find_run(docs, name) for name in (*experiments.NAMES, *studies)}
    for old in (docs / "gallery").glob("*/"):
        if old.name not in runs:
            shutil.rmtree(old)
    for name, run in runs.items():
        write_page(docs / "gallery" / name, run)
    write_if_new(docs / "gallery" / "index.md", overview(runs))


def find_run(docs: Path, name: str) -> Path:
    """The folder of a run: the committed one, else a quick one, made now if it was not made before."""
    committed, quick = docs / "experiments" / name, docs / "_build" / "experiments" / name
    if (committed / "summary.json").is_file():
        return committed
    if not (quick / "README.md").is_file():  # it is written last
        logging.getLogger(__name__).info("running %s, quick", name)
        reproduce(chosen(name), quick.parent, quick=True, progress=False)
    return quick


def write_page(folder: Path, run: Path) -> None:
    """The page that the run wrote, its figures and its summary."""
    folder.mkdir(parents=True, exist_ok=True)
    title, body = (run / "README.md").read_text(encoding="utf-8").split("\n", 1)
    notice = QUICK if summary(run)["quick"] else ""
    end = "All tables in one file: {download}`summary.json`. The site leaves out `runs.parquet`.\n"
    write_if_new(folder / "index.md", "\n".join([title, "", notice, body, end]))
    for file in [run / "summary.json", *run.glob("*.svg"), *run.glob("*.png")]:
        shutil.copy2(file, folder)


def overview(runs: dict[str, Path]) -> str:
    """All experiments as cards: the first figure, the title, the first finding."""
    cards = [card(name, run) for name, run in runs.items()]
    pages = "\n".join(f"{name}/index" for name in runs)
    grid = "\n".join([":::::{grid} 1 1 2 2", ":gutter: 3", "", *cards, ":::::"])
    return f"{ABOUT}\n{grid}\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def card(name: str, run: Path) -> str:
    page = (run / "README.md").read_text(encoding="utf-8")
    said = summary(run)
    figure = FIGURE.search(page)[1]
    size = "quick run, not a result" if said["quick"] else f"`{command(page)}`"
    return f"""::::{{grid-item-card}} {page.splitlines()[0].removeprefix("# ")}
:link: {name}/index
:link-type: doc
:img-top: {name}/{figure}

{said["findings"][0]}

:::{{card-footer}}
{size}
:::
::::
"""


def command(page: str) -> str:
    """The command of a page, without its options."""
    return re.search(r"^    (\S.*?) --", page, re.MULTILINE)[1]


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def write_if_new(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
