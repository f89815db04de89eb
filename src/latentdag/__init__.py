"""latentdag: causal variables that nobody measured, and the graph between them, learned from experiments."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported on first use, so that `latentdag --help` and `import latentdag` are instant.
_HOME = {
    "Moments": "moments",
    "Options": "options",
    "LatentModel": "model",
    "Intervention": "interventions",
    "partial_order_rq": "identification",
    "identify": "identification",
    "identify_partial_order": "identification",
    "equivalent_models": "equivalence",
    "reduced_model": "equivalence",
    "Fit": "result",
    "fit": "fitting",
    "latent_dimension": "reduction",
    "same_target_groups": "reduction",
    "observational_contexts": "reduction",
    "reduce_contexts": "reduction",
    "match_to_order": "matching",
    "rank_test": "inference.rank",
    "latent_dimension_test": "inference.dimension",
    "membership_test": "inference.membership",
    "omnibus_test": "inference.goodness",
    "target_groups": "inference.grouping",
    "observational_context_test": "inference.control",
    "find_targets": "inference.targets",
    "off_targets": "inference.targets",
    "bootstrap": "inference.bootstrap",
    "block_moments": "inference.resampling",
    "Bootstrap": "inference.stability",
    "score": "inference.score",
    "LatentDAG": "estimator",
}
_MODULES = (
    "counterexamples", "datasets", "errors", "inference", "methods", "metrics", "pl", "posets", "report", "simulate",
    "stream", "survival", "tl", "workflow",
)  # fmt: skip

__all__ = [*_HOME, *_MODULES, "__version__"]

if TYPE_CHECKING:
    from latentdag import (
        counterexamples,
        datasets,
        errors,
        inference,
        methods,
        metrics,
        pl,
        posets,
        report,
        simulate,
        stream,
        survival,
        tl,
        workflow,
    )
    from latentdag.equivalence import equivalent_models, reduced_model
    from latentdag.estimator import LatentDAG
    from latentdag.fitting import fit
    from latentdag.identification import identify, identify_partial_order, partial_order_rq
    from latentdag.inference.bootstrap import bootstrap
    from latentdag.inference.control import observational_context_test
    from latentdag.inference.dimension import latent_dimension_test
    from latentdag.inference.goodness import omnibus_test
    from latentdag.inference.grouping import target_groups
    from latentdag.inference.membership import membership_test
    from latentdag.inference.rank import rank_test
    from latentdag.inference.resampling import block_moments
    from latentdag.inference.score import score
    from latentdag.inference.stability import Bootstrap
    from latentdag.inference.targets import find_targets, off_targets
    from latentdag.interventions import Intervention
    from latentdag.matching import match_to_order
    from latentdag.model import LatentModel
    from latentdag.moments import Moments
    from latentdag.options import Options
    from latentdag.reduction import latent_dimension, observational_contexts, reduce_contexts, same_target_groups
    from latentdag.result import Fit


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"latentdag.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"latentdag.{name}")
    raise AttributeError(f"module 'latentdag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
