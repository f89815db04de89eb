"""The paper's experiments and ours, each in one file, run by ``latentdag reproduce NAME``.

===================  ===================================================================================================
name                 question
===================  ===================================================================================================
``synthetic``        how accurate is each method on the paper's synthetic models, and how far from the best possible?
``semisynthetic``    the same for a generative model that was fitted on data
``membership``       can a test tell data of the model from data with two targets per context?
``identifiability``  which models have the same moments, and what is identified all the same?
``scaling``          how do time and memory grow with the number of latents and features?
``robustness``       what happens off the model, and do the tests say so?
``light_tunnel``     a machine whose causes are known, hidden behind random maps: what is recovered? (real data)
``interferon``       single-cell knock-outs of interferon signalling: are unseen perturbations predicted? (real data)
===================  ===================================================================================================

An experiment is a list of independent *cells*; each gives tidy rows of plain values from its own seed, so the same
numbers come out in any order, in any number of processes, and after any interruption. Those on real data find them as
:mod:`latentdag.datasets` does; ``latentdag reproduce all`` leaves out those whose data are not to be had, and says so.
"""

from importlib import import_module

from latentdag.experiments.base import Experiment, Outcome, Settings

__all__ = ["NAMES", "STUDIES", "Experiment", "Outcome", "Settings", "load"]

#: In the order in which ``latentdag reproduce all`` runs them.
NAMES = ("synthetic", "membership", "identifiability", "robustness", "semisynthetic", "scaling")

#: Those on real data; ``all`` runs them last.
STUDIES = ("light_tunnel", "interferon")


def load(name: str) -> Experiment:
    """An experiment by name.

    Examples
    --------
    >>> load("synthetic").models
    500
    """
    if name not in (*NAMES, *STUDIES):
        raise ValueError(f"no experiment {name!r}; there are {', '.join((*NAMES, *STUDIES))}")
    found: Experiment = import_module(f"latentdag.experiments.{name}").EXPERIMENT
    return found
