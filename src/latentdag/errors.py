"""Errors and warnings by name, so that users can catch the one they mean."""

from latentdag.core.errors import ContextError, NotInModelError

__all__ = [
    "ContextError",
    "FewSamplesWarning",
    "LatentDAGWarning",
    "NotConvergedWarning",
    "NotInModelError",
    "SourceChangedWarning",
]


class LatentDAGWarning(UserWarning):
    """Base of all warnings of this package."""


class NotConvergedWarning(LatentDAGWarning):
    """The likelihood could still grow when the optimiser stopped."""


class FewSamplesWarning(LatentDAGWarning):
    """A context's covariance was mostly replaced by the pooled one, so its own data say little."""


class SourceChangedWarning(LatentDAGWarning):
    """The data changed since a checkpoint was written, so the work begins anew."""
