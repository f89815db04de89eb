"""Numbers in prose, quoted from what benchmarks and experiments wrote. ``make numbers`` fills them in.

A page says where a number comes from in a comment that no reader sees, and what stands after it is filled in::

    <!-- from benchmarks/results/accuracy.txt: {figures 2500 likelihood ?} -->0.995<!-- end -->

The comment is a template. Each pair of braces holds an address in the file, and after a colon a format as in Python. A
template of several lines is a table, and is filled in below the comment.

*In a text file* an address is the beginning of a line, word by word: ``?`` is the word wanted, ``*`` is any word, and
``...`` wants the rest of the line.
With ``Heading / words`` only lines below one that starts with the heading are looked at, until the next empty line.

*In a JSON file* it is a path, ``tables / All methods / method=likelihood n=2500 / H median``: a step is a key, a
position in a list, or what a row has to have.

An address that fits nothing, or two things, is an error: a number never comes from the wrong line.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUOTE = re.compile(r"(<!-- from (\S+):\s(.*?)-->)(.*?)(<!-- end -->)", re.DOTALL)
FIELD = re.compile(r"\{(.*?)(?: :(\S+))?\}", re.DOTALL)


def pages() -> list[Path]:
    """Those that may quote: the README and what is written by hand in docs."""
    made = {"_build", "experiments", "gallery"}
    found = [page for page in (ROOT / "docs").rglob("*.md") if not made & set(page.relative_to(ROOT).parts)]
    return [ROOT / "README.md", *sorted(found)]


def filled(text: str, root: Path = ROOT) -> str:
    """A page with every quotation as its source has it now."""

    def fill(quote: re.Match[str]) -> str:
        comment, file, template, _, end = quote.groups()
        if not (root / file).is_file():
            raise LookupError(f"{file} is not there")
        source = (root / file).read_text(encoding="utf-8")
        look_up = in_json if file.endswith(".json") else in_text

        def value(field: re.Match[str]) -> str:
            try:
                found = look_up(source, field[1].strip())
            except LookupError as error:
                raise LookupError(f"{file}: {error}") from None
            return format(float(found), field[2]) if field[2] else str(found)

        said = FIELD.sub(value, template).strip()
        return f"{comment}\n\n{said}\n\n{end}" if "\n" in template else f"{comment}{said}{end}"

    return QUOTE.sub(fill, text)


def in_text(source: str, address: str) -> str:
    """The word at an address of a text file.

    Examples
    --------
    >>> table = "Speed\\nours 1.5 s\\ntheirs 30 s\\n\\nMemory\\nours 2 MB"
    >>> in_text(table, "theirs ?"), in_text(table, "Speed / ours ?"), in_text(table, "Memory / ours * ?")
    ('30', '1.5', 'MB')
    >>> in_text(table, "Speed / ours ...")
    '1.5 s'
    >>> in_text(table, "ours ?")
    Traceback (most recent call last):
        ...
    LookupError: 2 lines begin with 'ours ?'
    """
    *heading, row = address.split(" / ")
    wanted, found = row.split(), []
    for line in below(source, heading[0]) if heading else source.splitlines():
        words = line.split(maxsplit=len(wanted) - 1 if wanted[-1] == "..." else -1)
        pairs = zip(wanted, words, strict=False)
        if len(words) >= len(wanted) and all(want in ("?", "*", "...", word) for want, word in pairs):
            found.append(words[wanted.index("?") if "?" in wanted else -1])
    if len(found) != 1:
        raise LookupError(f"{len(found)} lines begin with {address!r}")
    return found[0]


def below(source: str, heading: str) -> Iterator[str]:
    """Lines from the one that starts with the heading to the next empty one."""
    lines = iter(source.splitlines())
    for line in lines:
        if line.startswith(heading):
            yield line
            break
    for line in lines:
        if not line.strip():
            return
        yield line


def in_json(source: str, address: str) -> Any:
    """The value at an address of a JSON file.

    Examples
    --------
    >>> in_json('{"rows": [{"n": 10, "x": 0.5}, {"n": 20, "x": 0.7}]}', "rows / n=20 / x")
    0.7
    """
    here: Any = json.loads(source)
    for step in address.split(" / "):
        if isinstance(here, dict):
            if step not in here:
                raise LookupError(f"no {step!r} at {address!r}; there are {', '.join(here)}")
            here = here[step]
        elif step.isdecimal():
            here = here[int(step)]
        else:
            wanted = dict(pair.split("=", 1) for pair in re.findall(r"\S+=\S+", step))
            rows = [row for row in here if all(str(row.get(key)) == value for key, value in wanted.items())]
            if len(rows) != 1:
                raise LookupError(f"{len(rows)} rows have {step!r}")
            here = rows[0]
    return here


def complaints() -> Iterator[str]:
    """What is wrong with the pages as they are, one line each."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            if filled(text) != text:
                yield f"{page.relative_to(ROOT)} quotes old numbers: make numbers"
        except LookupError as error:
            yield f"{page.relative_to(ROOT)} quotes what cannot be found: {error}"


def main() -> str | None:
    """Fill in every page that can be filled in; says what is left to do."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        with contextlib.suppress(LookupError):
            if (new := filled(text)) != text:
                page.write_text(new, encoding="utf-8")
                sys.stderr.write(f"numbers: {page.relative_to(ROOT)}\n")
    return "\n".join(complaints()) or None


if __name__ == "__main__":
    sys.exit(main())
