"""Errors and warnings by name, so that users can catch the one they mean."""

from latentdag.core.errors import ContextError, NotInModelError

__all__ = [
    "ContextError",
    "FewSamplesWarning",
    "LatentDAGWarning",
    "NotConvergedWarning",
    "NotInModelError",
    "RawCountsWarning",
]


class LatentDAGWarning(UserWarning):
    """Base of all warnings of this package."""


class NotConvergedWarning(LatentDAGWarning):
    """The likelihood could still grow when the optimiser stopped."""


class FewSamplesWarning(LatentDAGWarning):
    """A context's covariance was mostly replaced by the pooled one, so its own data say little."""


class RawCountsWarning(LatentDAGWarning):
    """The features look like raw counts, whose variance follows their mean: normalise and take logarithms first."""
