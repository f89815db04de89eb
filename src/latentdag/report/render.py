"""From the dict to a page: self-contained, and inert whatever the labels in the data are.

Text goes into the page through jinja2's escaping, data through JSON in which no character can end a script element.
On top of that the page carries a content-security policy that names the one script and the one style sheet by their
hash and forbids every load: a label that slipped through would still not run.
"""

import base64
import hashlib
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from latentdag.data.store import write_atomically
from latentdag.methods.result import Fit
from latentdag.report.content import collect
from latentdag.report.markdown import to_markdown
from latentdag.report.show import show

#: Characters that end a script element, open a comment in one, or end a line in old JavaScript.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

MARKS = {"good": "✓", "note": "i", "warn": "!", "bad": "✕", "open": "?"}
WORDS = {
    "good": "fine",
    "note": "worth knowing",
    "warn": "with care",
    "bad": "against the model",
    "open": "not checked",
}


def write(fit: Fit, path: str | os.PathLike[str], moments: Any = None, **options: Any) -> Path:
    """Write a report of a fit: a page to open in any browser, or its content as JSON or markdown.

    Parameters
    ----------
    fit : Fit
    path : path
        Ending in ``.html``, ``.json`` or ``.md``. Written whole or not at all.
    moments : Moments, optional
        What was fitted; without them the first page can check less.
    **options
        title, tests, bootstrap, data, level, n_features, seed, created: see :func:`latentdag.report.collect`.
    """
    path = Path(path)
    makers = {".html": to_html, ".htm": to_html, ".json": to_json, ".md": to_markdown}
    if path.suffix.lower() not in makers:
        raise ValueError(f"{path}: a report ends in .html, .json or .md, not in {path.suffix!r}")
    text = makers[path.suffix.lower()](collect(fit, moments, **options))
    # a lone surrogate in a title has no UTF-8; as a character reference it cannot stop the report
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "xmlcharrefreplace")))
    return path


def to_json(report: dict[str, Any]) -> str:
    """The dict of :func:`latentdag.report.collect` as JSON text, plain ASCII."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def to_html(report: dict[str, Any]) -> str:
    """The dict of :func:`latentdag.report.collect` as one page that loads nothing."""
    try:
        import jinja2
    except ImportError:
        raise ImportError("HTML reports need jinja2: pip install 'latentdag[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    style, script = _read("style.css"), _read("script.js")
    return environment.get_template("page.html").render(
        r=report,
        marks=MARKS,
        words=WORDS,
        most=max((abs(edge["standardized_weight"]) for edge in report["edges"]), default=0.0),
        has_q=any(edge["q_value"] is not None for edge in report["edges"]),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=embedded_json(report),
    )


def embedded_json(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return "".join(UNSAFE.get(c, c) for c in text)


def _read(name: str) -> str:
    return (files("latentdag.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
