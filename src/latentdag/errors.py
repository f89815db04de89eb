"""Errors and warnings by name, so that users can catch the one they mean."""

from latentdag.core.errors import ContextError, NotInModelError

__all__ = ["ContextError", "LatentDAGWarning", "NotInModelError"]


class LatentDAGWarning(UserWarning):
    """Base of all warnings of this package."""
