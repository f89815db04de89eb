"""latentdag: causal variables that nobody measured, and the graph between them, learned from experiments."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. Names are imported on first use, so that `latentdag --help` and `import latentdag` are
# instant; this table is the one place that knows the rooms.
_HOME = {
    "Moments": "data.moments",
    "Options": "methods.options",
    "LatentModel": "model.model",
    "Intervention": "model.intervention",
    "match_to_order": "model.matching",
    "partial_order_rq": "identification.identify",
    "identify": "identification.identify",
    "identify_partial_order": "identification.identify",
    "equivalent_models": "identification.equivalence",
    "reduced_model": "identification.equivalence",
    "latent_dimension": "identification.reduce",
    "same_target_groups": "identification.reduce",
    "observational_contexts": "identification.reduce",
    "reduce_contexts": "identification.reduce",
    "score": "uncertainty.held_out",
    "changed": "uncertainty.changed",
    "Fit": "methods.result",
    "fit": "methods.fitting",
    "rank_test": "inference.ranks",
    "latent_dimension_test": "inference.dimension",
    "membership_test": "inference.membership",
    "omnibus_test": "inference.omnibus",
    "target_groups": "inference.shared_targets",
    "observational_context_test": "inference.control",
    "find_targets": "inference.targets",
    "off_targets": "inference.targets",
    "permutation_test": "inference.permutation",
    "bootstrap": "inference.bootstrap",
    "block_moments": "inference.resampling",
    "Bootstrap": "inference.stability",
    "LatentDAG": "estimator",
}
_MODULES = {
    "counterexamples": "identification.counterexamples",
    "datasets": "datasets",
    "design": "design",
    "errors": "errors",
    "inference": "inference",
    "methods": "methods",
    "metrics": "model.metrics",
    "pl": "pl",
    "posets": "model.posets",
    "report": "report",
    "simulate": "model.simulate",
    "stream": "data.stream",
    "survival": "workflow.survival",
    "tl": "tl",
    "workflow": "workflow",
}

__all__ = [*_HOME, *_MODULES, "__version__"]

if TYPE_CHECKING:
    from latentdag import datasets, design, errors, inference, methods, pl, report, tl, workflow
    from latentdag.data import stream
    from latentdag.data.moments import Moments
    from latentdag.estimator import LatentDAG
    from latentdag.identification import counterexamples
    from latentdag.identification.equivalence import equivalent_models, reduced_model
    from latentdag.identification.identify import identify, identify_partial_order, partial_order_rq
    from latentdag.identification.reduce import (
        latent_dimension,
        observational_contexts,
        reduce_contexts,
        same_target_groups,
    )
    from latentdag.inference.bootstrap import bootstrap
    from latentdag.inference.control import observational_context_test
    from latentdag.inference.dimension import latent_dimension_test
    from latentdag.inference.membership import membership_test
    from latentdag.inference.omnibus import omnibus_test
    from latentdag.inference.permutation import permutation_test
    from latentdag.inference.ranks import rank_test
    from latentdag.inference.resampling import block_moments
    from latentdag.inference.shared_targets import target_groups
    from latentdag.inference.stability import Bootstrap
    from latentdag.inference.targets import find_targets, off_targets
    from latentdag.methods.fitting import fit
    from latentdag.methods.options import Options
    from latentdag.methods.result import Fit
    from latentdag.model import metrics, posets, simulate
    from latentdag.model.intervention import Intervention
    from latentdag.model.matching import match_to_order
    from latentdag.model.model import LatentModel
    from latentdag.uncertainty.changed import changed
    from latentdag.uncertainty.held_out import score
    from latentdag.workflow import survival


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"latentdag.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"latentdag.{_MODULES[name]}")
    raise AttributeError(f"module 'latentdag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
