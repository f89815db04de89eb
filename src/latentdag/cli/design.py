"""``latentdag design``: one question about a screen to come, its answer as a table."""

from pathlib import Path
from typing import Any

import pandas as pd

from latentdag import design
from latentdag.cli.files import write_csv
from latentdag.cli.results import read_result
from latentdag.data.store import to_plain
from latentdag.errors import FileError
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel

#: What of a plan's ``attrs`` is printed beside the table.
TOLD = ("p_order", "p_graph", "least_power", "least_power_equal", "saved", "counts", "note")


def run_design(path: Path, out: Path, asked: dict[str, Any], **options: Any) -> tuple[str, dict[str, Any]]:
    """Answer the one question that is asked, write the table, and return it for people and for programs."""
    questions = {name: value for name, value in asked.items() if value is not None}
    if len(questions) != 1:
        raise ValueError("ask one question: --power CELLS, --needed POWER, --budget CELLS or --next edges")
    source, ((name, value),) = read_source(path), questions.items()
    if name == "power":
        table = design.power(source, value, **options)
    elif name == "needed":
        table = design.samples_needed(source, value, **options)
    elif name == "budget":
        counts = design.allocate(source, value, alpha=options["alpha"])
        table = pd.DataFrame({"context": counts.index, "cells": counts.to_numpy()})
        table.attrs = counts.attrs
    else:
        table = design.next_context(source, for_=value)
        table["targets"] = [" + ".join(targets) for targets in table["targets"]]
    write_csv(out, table)
    told = {name: table.attrs[name] for name in TOLD if table.attrs.get(name)}
    lines = [f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}" for name, value in told.items()]
    text = "\n".join([table.round(3).to_string(index=False), *lines])
    return text, to_plain({"table": table.to_dict("records"), **told})


def read_source(path: Path) -> Fit | LatentModel:
    """Return the fit in a folder that ``latentdag fit`` wrote, or the fit or model in a file."""
    if path.suffix != ".npz":
        return read_result(path)[0]
    try:
        return Fit.load(path)
    except FileError:
        return LatentModel.load(path)
