"""The paper's experiments, one file each. ``latentdag reproduce NAME`` runs them.

=================  =====================================================================================================
name               question
=================  =====================================================================================================
``synthetic``      how accurate is each method on the paper's synthetic models, and how far from the best possible?
``semisynthetic``  the same for a generative model that was fitted on data
``membership``     can a test tell data of the model from data with two targets per context?
=================  =====================================================================================================

An experiment is a list of independent *cells*. Each cell returns rows of plain values that depend on its own seed only.
So the numbers are the same in any order, in any number of processes, and after any interruption.

Studies of ours, on real data and off the model, are built from the same parts. They are in the folder ``studies`` of
the repository.

Both are made of these parts:

=============  ==========================================================================
``base``       what an experiment is: cells, rows, a summary of tables and figures; its page
``runner``     cells run in parallel, and after a kill
``draw``       figures of experiments
``fits``       one fit and how far it is from the truth
=============  ==========================================================================
"""

from importlib import import_module

from latentdag.experiments.base import Cell, Column, Experiment, Outcome, Row, Settings, Table, table_by
from latentdag.experiments.base import page as page_of  # noqa: F401
from latentdag.experiments.base import summary as summary_of  # noqa: F401
from latentdag.experiments.draw import figure, share_legend, tidy
from latentdag.experiments.fits import attempt, failures
from latentdag.experiments.runner import chunk_folder, run_cells  # noqa: F401

__all__ = [
    "NAMES", "Cell", "Column", "Experiment", "Outcome", "Row", "Settings", "Table", "attempt", "failures", "figure",
    "load", "share_legend", "table_by", "tidy",
]  # fmt: skip

#: In the order in which ``latentdag reproduce all`` runs them.
NAMES = ("synthetic", "membership", "semisynthetic")


def load(name: str) -> Experiment:
    """Return an experiment by name.

    Examples
    --------
    >>> load("synthetic").models
    500
    """
    if name not in NAMES:
        raise ValueError(
            f"no experiment {name!r}; there are {', '.join(NAMES)}; `python -m studies` in a clone of the repository "
            "runs the others"
        )
    found: Experiment = import_module(f"latentdag.experiments.{name}").EXPERIMENT
    return found
