"""What the core raises when one context cannot be handled."""

from typing import Any


class ContextError(ValueError):
    """A condition that one context fails.

    The core raises it with the context's position, since it knows no labels; the layer of words re-raises it with the
    label (:func:`latentdag.data.labels.naming_contexts`).

    Attributes
    ----------
    context : int
        Position of the context, the control being 0.
    reason : str
        What fails, in a sentence without a subject.
    """

    def __init__(self, context: int, reason: str):
        super().__init__(f"context {context}: {reason}")
        self.context = context
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:  # so that worker processes can send it back
        return _rebuilt, (type(self), self.context, self.reason, self.args)


class NotInModelError(ContextError):
    """Exact moments that no model of the assumed kind can produce."""


def _rebuilt(kind: type[ContextError], context: int, reason: str, args: tuple[Any, ...]) -> ContextError:
    error = kind(context, reason)
    error.args = args
    return error
