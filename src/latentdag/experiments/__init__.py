"""The paper's experiments and ours, one file each. ``latentdag reproduce NAME`` runs them.

===================  ===================================================================================================
name                 question
===================  ===================================================================================================
``synthetic``        how accurate is each method on the paper's synthetic models, and how far from the best possible?
``semisynthetic``    the same for a generative model that was fitted on data
``membership``       can a test tell data of the model from data with two targets per context?
``identifiability``  which models have the same moments, and what is identified all the same?
``scaling``          how do time and memory grow with the number of latents and features?
``robustness``       what happens off the model, and do the tests say so?
===================  ===================================================================================================

An experiment is a list of independent *cells*. Each cell returns rows of plain values that depend on its own seed only.
So the numbers are the same in any order, in any number of processes, and after any interruption.

Studies of real data are built from the same parts. They are in the folder ``studies`` of the repository.
"""

from importlib import import_module

from latentdag.experiments.base import Cell, Experiment, Outcome, Row, Settings
from latentdag.experiments.draw import figure, share_legend, tidy
from latentdag.experiments.fits import attempt, failures
from latentdag.experiments.page import page as page_of  # noqa: F401
from latentdag.experiments.page import summary as summary_of  # noqa: F401
from latentdag.experiments.runner import chunk_folder, run_cells  # noqa: F401
from latentdag.experiments.tables import Column, Table, mean_of, mean_or_none, table_by

__all__ = [
    "NAMES", "Cell", "Column", "Experiment", "Outcome", "Row", "Settings", "Table", "attempt", "failures", "figure",
    "load", "mean_of", "mean_or_none", "share_legend", "table_by", "tidy",
]  # fmt: skip

#: In the order in which ``latentdag reproduce all`` runs them.
NAMES = ("synthetic", "membership", "identifiability", "robustness", "semisynthetic", "scaling")


def load(name: str) -> Experiment:
    """Return an experiment by name.

    Examples
    --------
    >>> load("synthetic").models
    500
    """
    if name not in NAMES:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(NAMES)}")
    found: Experiment = import_module(f"latentdag.experiments.{name}").EXPERIMENT
    return found
