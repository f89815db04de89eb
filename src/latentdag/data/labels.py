"""Labels of contexts, which may be anything hashable, and names of features: what is allowed, and in which order."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.context_error import ContextError
from latentdag.data.schema import DEEPEST, NO_TEXT, proper_text, shown


class _NotGiven:
    def __repr__(self) -> str:
        return "<required>"


#: Default of ``control=``: it must be given, and ``None`` already means "not known".
REQUIRED: Any = _NotGiven()

#: What pandas calls a column that has no name, or that holds row names.
_UNNAMED = re.compile(r"\s*|Unnamed: \d+(_level_\d+)?|__index_level_\d+__")


def as_label(label: Any) -> Hashable:
    """Return a context label as Python has it: numpy scalars as Python scalars, tuples part by part, the rest as is."""
    if isinstance(label, np.datetime64):
        return pd.Timestamp(label)  # Python's own dates have no nanoseconds, and numpy gives a bare number instead
    if isinstance(label, np.timedelta64):
        return pd.Timedelta(label)
    if isinstance(label, np.generic):
        return label.item()
    if isinstance(label, tuple):
        return tuple(as_label(part) for part in label)
    return label


def canonical_order(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return labels sorted by kind, then value: the same whatever order the rows or files came in."""
    return sorted(labels, key=_sort_key)


def _sort_key(label: Hashable) -> tuple[str, Any]:
    if isinstance(label, bool | int | float):
        return ("", label)
    if isinstance(label, str):
        return ("str", label)
    return (type(label).__name__, repr(label))


def check_text(label: Any, where: str) -> None:
    """Complain about text, also within a tuple, that files cannot keep."""
    for part in label if isinstance(label, tuple) else ():
        check_text(part, where)
    found = NO_TEXT.search(label) if isinstance(label, str) else None
    if found:
        raise ValueError(
            f"{where}: {label!r} holds {found.group()!r} at position {found.start()}, which files cannot keep: remove "
            "it, or read the data with the right encoding"
        )


def check_names(names: Sequence[Any], what: str) -> None:
    """Complain about names of columns or features that are empty, occur twice, or that files cannot keep."""
    first: dict[str, int] = {}
    for j, name in enumerate(names, start=1):
        text = "" if not isinstance(name, str | tuple) and pd.isna(name) else str(name)
        if _UNNAMED.fullmatch(text):
            raise ValueError(
                f"{what} {j} has no name ({text!r}): if it holds row names, write the table without them "
                "(to_csv(index=False) in pandas, row.names=FALSE in R), else name it"
            )
        check_text(text, f"{what} {j}")
        if first.setdefault(text, j) != j:
            raise ValueError(
                f"{what} name {text!r} occurs more than once ({what}s {first[text]} and {j}): rename or drop one"
            )


def named_features(names: Iterable[str] | None, p: int) -> tuple[str, ...]:
    """Return one distinct name per feature (p,): those given, else ``x0, x1, …``."""
    given = tuple(names) if names is not None else tuple(f"x{j}" for j in range(p))
    if len(given) != p:
        raise ValueError(f"{p} features but {len(given)} feature names")
    check_names(given, "feature")
    return tuple(map(str, given))


def check_labels(labels: Sequence[Any]) -> None:
    """Complain about labels of contexts that are missing, unhashable, not to be kept in files, or not told apart."""
    for k, label in enumerate(labels):
        _check_label(label, f"context label {k}")
    told_apart(labels)


def _check_label(label: Any, where: str) -> None:
    if _has_gap(label):
        raise ValueError(f"{where} is missing, wholly or in part ({label!r}): drop what has no label, or label it")
    check_text(label, where)


def _has_gap(label: Any) -> bool:
    if isinstance(label, tuple):
        return any(map(_has_gap, label))
    return label is None or label is pd.NA or label is pd.NaT or (isinstance(label, float) and label != label)


def told_apart(labels: Iterable[Any]) -> None:
    """Complain about labels that only their types tell apart.

    Python takes ``True``, ``1`` and ``1.0`` for one key of a dictionary, so they would be one context here and three
    there.
    """
    first: dict[Hashable, Any] = {}
    for label in labels:
        try:
            other = first.setdefault(label, label)
        except TypeError as error:
            raise ValueError(f"context labels must be hashable (strings, numbers, tuples, …): {error}") from None
        if _kind(other) != _kind(label):
            raise ValueError(
                f"context labels {other!r} and {label!r} are equal and differ only in type: give all labels one type, "
                "for instance text"
            )


def _kind(label: Any) -> Any:
    """Return the type of a label, or the types of a tuple's parts: what equality overlooks."""
    return tuple(map(_kind, label)) if isinstance(label, tuple) else type(label)


def check_control(control: Any, present: Sequence[Hashable], counts: Any) -> Hashable | None:
    """Return the control as one of the labels present, or ``None`` if the user says that it is not among them."""
    if control is REQUIRED:
        raise ValueError(
            f"name the control context with control=…; the labels present are {count_table(present, counts)}"
        )
    control = as_label(control)
    if control is None:
        return None
    try:
        return present[present.index(control)]  # as it is among the labels: 1 finds 1.0
    except (ValueError, TypeError):  # an array, or what is neither equal nor unequal to anything
        raise ValueError(
            f"control {control!r} is not among the contexts; the labels present are {count_table(present, counts)}"
        ) from None


def is_single(contexts: Any) -> bool:
    """Return True if this is one value, such as the name of a column, and not one label per row."""
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
    labels[:] = [as_label(label) for label in contexts]
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
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    for at, label in zip(first, found, strict=True):
        _check_label(label, f"the context label of row {at}")
    types = set(map(type, labels))
    if len(types) > 1 or tuple in types:
        told_apart(label for _, label in dict.fromkeys(zip(map(_kind, labels), labels, strict=True)))
    present = canonical_order(found)
    position = {label: i for i, label in enumerate(present)}
    return np.array([position[label] for label in found], dtype=np.intp)[codes], present


def count_table(labels: Sequence[Hashable], counts: Iterable[float], limit: int = 20) -> str:
    """Return labels with their counts, ``'WT' (1200), 'A' (80)``: for error messages."""
    listed = [f"{label!r} ({count:g})" for label, count in zip(labels, counts, strict=True)]
    more = f", … and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def counted(labels: Iterable[Any]) -> dict[Hashable, int]:
    """Return how many rows have each label, the most frequent first; rows without a label do not count."""
    return dict(Counter(map(as_label, pd.Series(labels, dtype=object).dropna())).most_common())


def named_targets(labels: Iterable[Any], names: Iterable[Any], control: Any, where: str, row: str) -> dict[Any, str]:
    """Return the target of each context but the control, from a name for every row.

    Parameters
    ----------
    labels, names : (n,) context and target of each row
    control : label
    where, row : what messages call the column, and a row

    Raises
    ------
    ValueError
        Naming a context with a row without a target, or with two targets.
    """
    found: dict[Any, str] = {}
    pairs = dict.fromkeys(zip(map(as_label, labels), names, strict=True))
    for context, name in pairs:
        if context == control:
            continue
        if not isinstance(name, str):
            raise ValueError(f"{where} must name a target for every {row} of {context!r}, got {name!r}")
        if found.setdefault(context, name) != name:
            raise ValueError(
                f"{row}s of {context!r} have two targets in {where}, {found[context]!r} and {name!r}: a "
                "perturbation that hits several takes targets={context: (name, name), …}"
            )
    return found


def listed(names: Iterable[Any], limit: int = 12) -> str:
    """Return the first names in quotes, ``'a', 'b', …``, or ``none``: for error messages."""
    texts = [repr(as_label(name)) for name in names]
    return ", ".join(texts[:limit]) + (", …" if len(texts) > limit else "") if texts else "none"


def text_names(labels: Sequence[Hashable]) -> list[str]:
    """Return one distinct string per label: its text, or its repr where two texts collide (1 and "1")."""
    texts = [str(label) for label in labels]
    occurs = Counter(texts)
    told = [text if occurs[text] == 1 else repr(label) for text, label in zip(texts, labels, strict=True)]
    return told if len(set(told)) == len(told) else [repr(label) for label in labels]


def as_index(labels: Sequence[Hashable]) -> pd.Index:
    """Return labels as the index of a table, unchanged: pandas would make levels of tuples and floats of 1 and 2.5."""
    mixed = len({type(label) for label in labels}) > 1
    return pd.Index(labels, dtype=object if mixed else None, name="context", tupleize_cols=False)


def row_of(table: pd.DataFrame, label: Hashable) -> pd.Series:
    """Return the row of a context; ``loc`` would take ``True`` for a mask and a tuple for two axes."""
    return table.iloc[list(table.index).index(label)]


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
    """Return a label as JSON has it; a tuple becomes a mapping that says so.

    Raises
    ------
    ValueError
        For labels that are neither text, number, boolean nor a tuple of these, and for those that no file can hold.
    """
    if isinstance(label, tuple):
        value: Any = {"tuple": [to_json(part) for part in label]}
    elif isinstance(label, str | bool | int | float):
        value = label
    else:
        raise ValueError(
            f"cannot save the context label {label!r} of type {type(label).__name__}: relabel it with a string, a "
            "number or a tuple of these"
        )
    from_json(value)
    return value


def from_json(value: Any, deepest: int = DEEPEST) -> Hashable:
    """Return the label that :func:`to_json` wrote.

    Raises
    ------
    ValueError
        If it is no label: a list, another mapping than that of a tuple, nan, text with NUL or half characters.
    """
    if isinstance(value, dict) and list(value) == ["tuple"] and isinstance(value["tuple"], list) and deepest:
        return tuple(from_json(part, deepest - 1) for part in value["tuple"])
    if isinstance(value, str):
        return proper_text(value)
    if isinstance(value, bool | int | float) and value == value:  # nan is equal to nothing, not even itself
        return value
    raise ValueError(f"a context label is text, a number or a tuple of these, not {shown(value)}: relabel it")
