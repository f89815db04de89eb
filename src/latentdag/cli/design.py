"""``latentdag design``: one question about a screen to come, its answer as a table."""

from pathlib import Path
from typing import Any

from latentdag import design
from latentdag.cli.files import write_csv
from latentdag.cli.results import read_result
from latentdag.data.store import to_plain
from latentdag.errors import FileError
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel


def run_design(
    path: Path,
    out: Path,
    power: int | None,
    needed: float | None,
    budget: int | None,
    next_: str | None,
    *,
    alpha: float,
    searched: bool,
) -> tuple[str, dict[str, Any]]:
    """Answer the one question that is asked, write the table, and return it for people and for programs."""
    if sum(asked is not None for asked in (power, needed, budget, next_)) != 1:
        raise ValueError("ask one question: --power CELLS, --needed POWER, --budget CELLS or --next edges")
    source = read_source(path)
    if power is not None:
        table = design.power(source, power, alpha, searched=searched)
    elif needed is not None:
        table = design.samples_needed(source, needed, alpha=alpha, searched=searched)
    elif budget is not None:
        counts = design.allocate(source, budget, alpha=alpha)
        table = counts.reset_index()
        table.attrs = counts.attrs
    else:
        table = design.next_context(source, for_=next_ or "edges")
        table["targets"] = [" + ".join(targets) for targets in table["targets"]]
    write_csv(out, table)
    told = {name: value for name, value in table.attrs.items() if name not in ("note", "counts") and value == value}
    lines = [table.round(3).to_string(index=False), *(f"{name} {value:.3g}" for name, value in told.items())]
    if "counts" in table.attrs and needed is not None:
        lines.append("cells per context: " + ", ".join(f"{c} {n}" for c, n in table.attrs["counts"].items()))
    lines += [f"note: {table.attrs['note']}"] if table.attrs["note"] else []
    return "\n".join(lines), to_plain({"table": table.to_dict("records"), **told, "note": table.attrs["note"]})


def read_source(path: Path) -> Fit | LatentModel:
    """Return the fit in a folder that ``latentdag fit`` wrote, or the fit or model in a file."""
    if path.suffix != ".npz":
        return read_result(path)[0]
    try:
        return Fit.load(path)
    except FileError:
        return LatentModel.load(path)
