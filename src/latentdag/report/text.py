"""The dict as text: HTML, markdown or JSON, self-contained, and inert whatever the labels in the data are.

Pages are templates of jinja2, which stand beside the modules: ``page.html`` and ``page.md``. All that is filled into
one is escaped, for HTML or for markdown; data go in as JSON in which no character can end a script element. On top of
that a page carries a content-security policy that names the one script and the one style sheet by their hash and
forbids every load: a label that slipped through would still not run.
"""

import base64
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latentdag.data.store import packaged, write_atomically
from latentdag.optional import optional

#: Rows of a table beyond which markdown is not read.
MOST_ROWS = 200


#: What every report says in the same words: verdicts, methods, whom to cite, columns of tables.
WORDS: dict[str, Any] = tomllib.loads(packaged("report/words.toml"))


def show(value: Any, kind: str = "text") -> str:
    """Return a value as text for people, by the kind of its column; the same in HTML and markdown.

    >>> [show(-0.04567, "number"), show(3.2e-9, "p"), show(0.0, "p"), show(12345, "count"), show(0.5, "share")]
    ['−0.0457', '3.2e−09', '< 1e−300', '12,345', '50 %']
    >>> show(None, "p"), show(["a", "b"], "list"), show(True, "yes")
    ('–', 'a, b', 'yes')
    """
    if value is None or value == "" or value == []:
        return "–"
    if kind == "list":
        return ", ".join(map(str, value))
    if kind == "yes":
        return "yes" if value else "no"
    if kind == "count":
        return f"{value:,}"
    if kind == "share":
        return f"{100 * value:.3g} %".replace("-", "−")
    if kind == "p":
        return "< 1e−300" if value == 0 else (f"{value:.3f}" if value >= 0.001 else f"{value:.1e}").replace("-", "−")
    if kind == "number":
        shown = f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:#.3g}" if value else "0"
        return shown.replace("-", "−")
    return str(value)


def escape(text: str) -> str:
    """Return text that markdown, and the HTML inside it, show as it is.

    >>> escape("a|b <script> *x*")
    'a\\\\|b &lt;script&gt; \\\\*x\\\\*'
    """
    text = " ".join(str(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#~$])", r"\\\1", text)


def to_json(report: dict[str, Any]) -> str:
    """Return the dict of :func:`latentdag.report.collect` as JSON text, plain ASCII."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def to_html(report: dict[str, Any]) -> str:
    """Return the dict of :func:`latentdag.report.collect` as one page that loads nothing."""
    return filled("report/page.html", r=report)


def to_markdown(report: dict[str, Any]) -> str:
    """Return the dict of :func:`latentdag.report.collect` as markdown, for notebooks, issues and pull requests."""
    return filled("report/page.md", r=report, most_rows=MOST_ROWS)


def filled(template: str, **values: Any) -> str:
    """Return a page of HTML or markdown: a template of jinja2 with values in it, all of them escaped."""
    jinja2 = optional("jinja2", "report", "a page")
    escaping: dict[str, Any] = {"finalize": escape} if template.endswith(".md") else {"autoescape": True}
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, **escaping
    )
    environment.globals["file"] = packaged
    environment.filters |= {"show": show, "digest": _digest}
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return str(environment.from_string(packaged(template)).render(**values))


def write_page(path: str | os.PathLike[str], makers: Mapping[str, Callable[[], str]]) -> Path:
    """Write a page whole or not at all, as the maker for the ending of its path gives it."""
    path = Path(path)
    make = makers.get({".htm": ".html"}.get(path.suffix.lower(), path.suffix.lower()))
    if make is None:
        *most, last = makers
        raise ValueError(f"{path}: the page ends in {', '.join(most)} or {last}, not in {path.suffix!r}")
    text = make()
    # a lone surrogate in a title has no UTF-8; as a character reference it cannot stop the page
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "xmlcharrefreplace")))
    return path


def _digest(text: str) -> str:
    """Return the hash by which a content-security policy allows an inline script or style sheet."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
