"""``latentdag design``: one question about a screen to come, its answer as a table."""

from pathlib import Path
from typing import Any

import pandas as pd

from latentdag import design as plans
from latentdag.cli.files import tell, write_csv
from latentdag.cli.results import read_result
from latentdag.errors import FileError
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel

#: What of a plan's ``attrs`` is printed beside the table.
TOLD = ("p_order", "p_graph", "least_power", "least_power_equal", "saved", "counts", "note")


def design(*, source: Path, out: Path, alpha: float, searched: bool, as_json: bool, **asked: Any) -> None:
    """Answer the one question that is asked, write the table, and say it."""
    questions = {name: value for name, value in asked.items() if value is not None}
    if len(questions) != 1:
        raise ValueError("ask one question: --power CELLS, --needed POWER, --budget CELLS or --next edges")
    fit, ((name, value),) = read_source(source), questions.items()
    if name == "power":
        table = plans.power(fit, value, alpha=alpha, searched=searched)
    elif name == "needed":
        table = plans.samples_needed(fit, value, alpha=alpha, searched=searched)
    elif name == "budget":
        counts = plans.allocate(fit, value, alpha=alpha)
        table = pd.DataFrame({"context": counts.index, "cells": counts.to_numpy()})
        table.attrs = counts.attrs
    else:
        table = plans.next_context(fit, for_=value)
        table["targets"] = [" + ".join(targets) for targets in table["targets"]]
    write_csv(out, table)
    told = {name: table.attrs[name] for name in TOLD if table.attrs.get(name)}
    lines = [f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}" for name, value in told.items()]
    text = "\n".join([table.round(3).to_string(index=False), *lines])
    tell(text, {"table": table.to_dict("records"), **told}, as_json, out)


def read_source(path: Path) -> Fit | LatentModel:
    """Return the fit in a folder that ``latentdag fit`` wrote, or the fit or model in a file."""
    if path.suffix != ".npz":
        return read_result(path)[0]
    try:
        return Fit.load(path)
    except FileError:
        return LatentModel.load(path)
