"""Every error and warning class of the package, so that users can catch the one they mean."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from numpy.linalg import LinAlgError

from latentdag.core.context_error import ContextError as ContextError
from latentdag.core.context_error import NotInModelError as NotInModelError

P = ParamSpec("P")
T = TypeVar("T")


class NumericalError(ValueError):
    """Double precision is not enough for these numbers."""


class FileError(ValueError):
    """A saved file that cannot be read: damaged, changed by hand, or of another kind.

    Attributes
    ----------
    path : str
    field : str
        Which part of it, such as ``"covariances"`` or ``"model.latents[2]"``; ``"file"`` for the file as a whole.
    reason : str
        What is wrong, and how to mend it.
    """

    def __init__(self, path: object, field: str, reason: str):
        super().__init__(str(path), field, reason)  # the arguments themselves, so that workers can send it back
        self.path, self.field, self.reason = str(path), field, reason

    def __str__(self) -> str:
        return f"{self.path} {self.reason}" if self.field == "file" else f"{self.path}: {self.field}: {self.reason}"


class LatentDAGWarning(UserWarning):
    """Base of all warnings of this package."""


class NotConvergedWarning(LatentDAGWarning):
    """The likelihood could still grow when the optimiser stopped."""


class FewSamplesWarning(LatentDAGWarning):
    """A context's covariance was mostly replaced by the pooled one, so its own data say little."""


class DamagedCheckpointWarning(LatentDAGWarning):
    """Work kept by an earlier run cannot be read, and is done again."""


class SourceChangedWarning(LatentDAGWarning):
    """The data changed since a checkpoint was written, so the work begins anew."""


class LabelWarning(LatentDAGWarning):
    """Some rows were left out of a fit, because they have no label or too few rows share it."""


class VerdictWarning(LatentDAGWarning):
    """Something speaks against a fit: see ``fit.verdict``."""


class EmptyCategoryWarning(LatentDAGWarning):
    """A context is declared among the categories of the labels, but no cell has it."""


class ConfoundedCovariateWarning(LatentDAGWarning):
    """A covariate never varies within a context, so its effect cannot be told from the contexts' own."""


class RawCountsWarning(LatentDAGWarning):
    """The features look like raw counts, whose variance follows their mean: :meth:`latentdag.Moments.from_counts`."""


class LogRatesWarning(LatentDAGWarning):
    """A covariance of log rates, estimated from counts, had negative eigenvalues and was moved to one without."""


class OutlierWarning(LatentDAGWarning):
    """A few rows far from the others carry much of a context's covariance."""


class WeakInterventionWarning(LatentDAGWarning):
    """An intervention is so partial that it says next to nothing about weights."""


def clear_numerics(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a public function so that it raises a clear ``NumericalError`` where numpy raises ``LinAlgError``.

    The last resort: every known way to get there has an error of its own, which names the context.
    """

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except LinAlgError as error:
            raise NumericalError(
                f"{function.__name__.strip('_')}: a matrix is singular to working precision ({error}): drop nearly "
                "duplicate features, and contexts with very few samples or in which a feature is constant"
            ) from None

    return guarded


_CLASSES = {name: value for name, value in globals().items() if isinstance(value, type)}

__all__ = [name for name, value in _CLASSES.items() if issubclass(value, Exception) and value is not LinAlgError]
