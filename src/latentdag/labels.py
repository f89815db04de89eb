"""Context labels: any hashable thing a user calls a context, in one canonical order, and to JSON and back."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.errors import ContextError


def plain(label: Any) -> Hashable:
    """A numpy scalar as its Python twin, tuples element by element, anything else as it is."""
    if isinstance(label, np.generic):
        return label.item()
    if isinstance(label, tuple):
        return tuple(plain(part) for part in label)
    return label


def canonical_order(labels: Iterable[Hashable]) -> list[Hashable]:
    """Labels sorted by kind, then value: the same whatever order the rows or files came in."""
    return sorted(labels, key=_sort_key)


def _sort_key(label: Hashable) -> tuple[str, Any]:
    if isinstance(label, bool | int | float):
        return ("", label)
    if isinstance(label, str):
        return ("str", label)
    return (type(label).__name__, repr(label))


def is_single(contexts: Any) -> bool:
    """Whether this is one value, such as the name of a column, and not one label per row."""
    return isinstance(contexts, str | bytes) or not hasattr(contexts, "__len__") or getattr(contexts, "ndim", 1) == 0


def factorize(contexts: Any, n_rows: int) -> tuple[np.ndarray, list[Hashable]]:
    """Code the context of each row as a position in the canonical order of the labels that occur.

    Raises
    ------
    ValueError
        If there is not one label per row, or labels are missing or unhashable.
    """
    if is_single(contexts):
        raise ValueError(f"contexts must hold one label per row of X, got the single value {contexts!r}")
    labels: Any = np.empty(len(contexts), dtype=object)
    labels[:] = [plain(label) for label in contexts]
    if len(labels) != n_rows:
        raise ValueError(f"X has {n_rows} rows but contexts has {len(labels)} labels: one per row is needed")
    try:
        codes, found = pd.factorize(labels)
    except TypeError as error:
        raise ValueError(f"context labels must be hashable (strings, numbers, tuples, …): {error}") from None
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise ValueError(
            f"{int((codes < 0).sum())} rows have no context label (the first is row {row}): drop or label them"
        )
    present = canonical_order(found)
    position = {label: i for i, label in enumerate(present)}
    return np.array([position[label] for label in found], dtype=np.intp)[codes], present


def refuse_broken_text(what: str, names: Iterable[Hashable]) -> None:
    """Raise ValueError for text with a lone surrogate: it has no UTF-8, so neither files nor pandas 3 can hold it."""
    for name in names:
        if isinstance(name, str) and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise ValueError(f"{what} {name!r} is not valid Unicode text (it holds half of a character): rename it")


def count_table(labels: Sequence[Hashable], counts: Iterable[float], limit: int = 20) -> str:
    """``'WT' (1200), 'A' (80)``: for error messages."""
    listed = [f"{label!r} ({count:g})" for label, count in zip(labels, counts, strict=True)]
    more = f", … and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def text_names(labels: Sequence[Hashable]) -> list[str]:
    """One distinct string per label: its text, or its repr where two texts collide (1 and "1")."""
    texts = [str(label) for label in labels]
    occurs = Counter(texts)
    return [text if occurs[text] == 1 else repr(label) for text, label in zip(texts, labels, strict=True)]


@contextmanager
def naming_contexts(labels: Sequence[Hashable]) -> Iterator[None]:
    """Re-raise the core's complaints about "context 3" with the label that the user knows."""
    try:
        yield
    except ContextError as error:
        named = type(error)(error.context, error.reason)
        named.args = (f"context {labels[error.context]!r}: {error.reason}",)
        raise named from None


def to_json(label: Hashable) -> Any:
    """A label as JSON, with its type where JSON has none.

    Raises
    ------
    ValueError
        For labels that are neither text, number, boolean nor a tuple of these.
    """
    if isinstance(label, tuple):
        return {"tuple": [to_json(part) for part in label]}
    if isinstance(label, str | bool | int | float):
        return label
    raise ValueError(
        f"cannot save the context label {label!r} of type {type(label).__name__}: relabel it with a string, a number "
        "or a tuple of these"
    )


def from_json(value: Any) -> Hashable:
    """The inverse of :func:`to_json`."""
    if isinstance(value, dict):
        return tuple(from_json(part) for part in value["tuple"])
    return value
