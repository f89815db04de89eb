"""A small language that says what a file of each kind holds, and one check of it for writers and readers.

Fields of the JSON text are described by their types::

    str, bool, int, float       one such value; whole numbers are floats too, text has no NUL and no half characters
    object                      any JSON
    [kind]                      a list of that kind, of any length
    (kind, kind)                a list of just these
    {str: kind}                 a mapping from any text to that kind
    {"name": kind, "more?": …}  a mapping that has these names; one that ends in "?" may be missing or null
    a function                  called with the value; raises ValueError if it is not right

Arrays by a letter for their type (f: float64, i: int64, b: bool) and one letter for each dimension: ``"f kpp"`` is a
stack of k matrices p × p. Equal letters are equal sizes, across all arrays of a file.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from operator import getitem
from typing import Any

import numpy as np

#: Deepest nesting of JSON that is read: no options of ours are nested deeper.
DEEPEST = 40

_TYPES = {"f": np.dtype("float64"), "i": np.dtype("int64"), "b": np.dtype("bool")}
_NO_BRACKETS = re.compile(r'(?s)"(?:[^"\\]|\\.?)*+(?:"|\Z)|[^][{}"]+')  # a text that never ends goes to the end

#: Characters that files and terminals cannot keep: NUL, and halves of surrogate pairs.
NO_TEXT = re.compile("[\0\ud800-\udfff]")
_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "a mapping"}


class FieldError(ValueError):
    """A field is not what it must be. Code that knows the path turns it into a ``FileError``."""

    def __init__(self, name: str, reason: str):
        self.name, self.reason = name if len(name) < 120 else f"{name[:120]}…", reason
        super().__init__(f"{self.name}: {reason}")


@dataclass(frozen=True)
class Layout:
    """The fields and arrays that a file of one kind holds.

    Attributes
    ----------
    kind : str
    fields : mapping
        Of the JSON text.
    arrays : mapping of name to type and dimensions
        One whose name ends in "?" may be missing.
    sizes : mapping of letter to field
        Dimensions that are the length of a list; dots lead into mappings.
    """

    kind: str
    fields: Mapping[str, Any]
    arrays: Mapping[str, str]
    sizes: Mapping[str, str] = field(default_factory=dict)

    def check(self, meta: Any, found: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> None:
        """Check fields, and types and shapes of arrays: nothing but their headers is needed."""
        check_field(meta, self.fields)
        known = {name.removesuffix("?") for name in self.arrays}
        for name in found:
            if name not in known:  # a misspelt optional array must not be taken for a missing one
                raise FieldError("file", f"has an array {shown(name)}, which a {self.kind} file does not")
        sizes = {letter: len(reduce(getitem, place.split("."), meta)) for letter, place in self.sizes.items()}
        for name, form in self.arrays.items():
            if name.removesuffix("?") in found:
                _check_array(name.removesuffix("?"), form, *found[name.removesuffix("?")], sizes)
            elif not name.endswith("?"):
                raise FieldError(name, "is missing")


def headers(arrays: Mapping[str, Any]) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Return the type and shape of each array."""
    return {name: (array.dtype, array.shape) for name, array in ((n, np.asarray(a)) for n, a in arrays.items())}


def _check_array(name: str, form: str, dtype: np.dtype, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    wanted, _, letters = form.partition(" ")
    if dtype.newbyteorder("=") != _TYPES[wanted]:
        raise FieldError(name, f"holds {dtype}, not {_TYPES[wanted]}")
    if len(shape) != len(letters):
        raise FieldError(name, f"has {len(shape)} dimensions, not {len(letters)}")
    for letter, size in zip(letters, shape, strict=True):
        if sizes.setdefault(letter, size) != size:
            expected = ", ".join(str(sizes.get(each, "any")) for each in letters)
            raise FieldError(name, f"has shape {shape}, where the rest of the file asks for ({expected})")


def parse_json(text: str) -> Any:
    """Return parsed JSON; refuse a name that occurs twice in a mapping, and deep nesting.

    Raises
    ------
    FieldError
    """
    brackets = _NO_BRACKETS.sub("", text)
    if max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0) > DEEPEST:
        raise FieldError("JSON", f"is nested more than {DEEPEST} deep")
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except ValueError as error:
        raise FieldError("JSON", f"is no JSON ({error})") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one mapping")
    return found


def check_field(value: Any, kind: Any, name: str = "") -> None:
    """Check a parsed JSON value against its description; see the head of this file.

    Raises
    ------
    FieldError
        Naming the innermost field that is wrong.
    """
    if isinstance(kind, list | tuple):
        _check_list(value, kind, name)
    elif isinstance(kind, Mapping):
        _check_mapping(value, kind, name)
    elif kind is object:
        inner: Any = {dict: {str: object}, list: [object], str: str}.get(type(value))  # type: ignore[call-overload]
        if inner is not None:
            check_field(value, inner, name)
    elif isinstance(kind, type):
        _expect(_is(value, kind), value, kind, name)
        if kind is str:
            check_field(value, proper_text, name)
    else:
        try:
            kind(value)
        except ValueError as error:
            raise FieldError(name, str(error)) from None


def _check_list(value: Any, kind: Any, name: str) -> None:
    if not isinstance(value, list):
        raise FieldError(name or "JSON", f"must be a list, not {shown(value)}")
    if isinstance(kind, tuple) and len(value) != len(kind):
        raise FieldError(name, f"must have {len(kind)} parts, not {len(value)}")
    parts = kind if isinstance(kind, tuple) else kind * len(value)
    for i, (part, each) in enumerate(zip(value, parts, strict=True)):
        check_field(part, each, f"{name}[{i}]")


def _check_mapping(value: Any, kind: Mapping[Any, Any], name: str) -> None:
    _expect(isinstance(value, dict), value, dict, name)
    dot = f"{name}." if name else ""
    for key, each in kind.items():
        if key is str:
            for text, part in value.items():
                check_field(text, str, name)
                check_field(part, each, f"{dot}{text}")
        elif not key.endswith("?") or value.get(key[:-1]) is not None:
            if key.removesuffix("?") not in value:
                raise FieldError(f"{dot}{key}", "is missing")
            check_field(value[key.removesuffix("?")], each, dot + key.removesuffix("?"))


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, int) and kind in (int, float):
        return abs(value) < 2**63
    return isinstance(value, kind)


def whole(value: Any) -> None:
    """Complain about anything but a whole number, of any size, as a kind of field."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {shown(value)}")


def finite(value: Any) -> None:
    """Complain about anything but a finite number, as a kind of field."""
    if not _is(value, float) or not math.isfinite(value):
        raise ValueError(f"must be a finite number, not {shown(value)}")


def proper_text(text: str) -> str:
    """Return text that files, terminals and other programs can hold.

    Raises
    ------
    ValueError
        If it has a NUL character, or half of a character that UTF-16 writes as two.
    """
    if NO_TEXT.search(text):
        raise ValueError(f"{shown(text)} has a character that is no text: rename it")
    return text


def _expect(right: bool, value: Any, kind: type, name: str) -> None:
    if not right:
        raise FieldError(name or "JSON", f"must be {_WORDS[kind]}, not {shown(value)}")


def shown(value: Any) -> str:
    """Return enough of a value to recognise it in a message; never all of a long one."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return "a whole number beyond 64 bits"
    return ascii(value) if not isinstance(value, str) or len(value) < 60 else f"{value[:60]!a}…"
