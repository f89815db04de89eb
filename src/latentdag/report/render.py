"""From the dict to a page: self-contained, and inert whatever the labels in the data are.

Text goes into the page through jinja2's escaping, data through JSON in which no character can end a script element.
On top of that the page carries a content-security policy that names the one script and the one style sheet by their
hash and forbids every load: a label that slipped through would still not run.
"""

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from latentdag.data.store import write_atomically
from latentdag.methods.result import Fit
from latentdag.optional import optional
from latentdag.report.results import Results
from latentdag.report.text import read_file, show, to_markdown

#: Characters that end a script element, open a comment in one, or end a line in old JavaScript.
UNSAFE = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def write(fit: Fit | Results, path: str | os.PathLike[str], moments: Any = None, **options: Any) -> Path:
    """Write a report of a fit: a page to open in any browser, or its content as JSON or markdown.

    Parameters
    ----------
    fit : Fit or Results
        With results, moments and options are those of the results.
    path : path
        Ending in ``.html``, ``.json`` or ``.md``. Written whole or not at all.
    moments : Moments, optional
        What was fitted; without them the first page can check less.
    **options
        title, tests, bootstrap, data, level, n_features, seed, created: see :class:`latentdag.report.Results`.
    """
    path = Path(path)
    makers = {".html": to_html, ".htm": to_html, ".json": to_json, ".md": to_markdown}
    if path.suffix.lower() not in makers:
        raise ValueError(f"{path}: a report ends in .html, .json or .md, not in {path.suffix!r}")
    results = fit if isinstance(fit, Results) else Results(fit, moments, **options)
    text = makers[path.suffix.lower()](results.report)
    # a lone surrogate in a title has no UTF-8; as a character reference it cannot stop the report
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "xmlcharrefreplace")))
    return path


def to_json(report: dict[str, Any]) -> str:
    """Return the dict of :func:`latentdag.report.collect` as JSON text, plain ASCII."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def to_html(report: dict[str, Any]) -> str:
    """Return the dict of :func:`latentdag.report.collect` as one page that loads nothing."""
    style, script = style_sheet(), read_file("script.js")
    return filled(
        read_file("page.html"),
        r=report,
        most=max((abs(edge["standardized_weight"]) for edge in report["edges"]), default=0.0),
        has_q=any(edge["q_value"] is not None for edge in report["edges"]),
        style=style,
        script=script,
        style_hash=inline_hash(style),
        script_hash=inline_hash(script),
        data=json.dumps(report, allow_nan=False, separators=(",", ":")).translate(UNSAFE),
    )


def filled(template: str, **values: Any) -> str:
    """Return a page of HTML: a template of jinja2 with values in it, all of them escaped; ``show`` is a filter."""
    jinja2 = optional("jinja2", "report", "an HTML page")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["show"] = show
    return str(environment.from_string(template).render(**values))


def inline_hash(text: str) -> str:
    """Return the hash by which a content-security policy allows an inline script or style sheet."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def style_sheet() -> str:
    """Return the style sheet of every page that latentdag writes."""
    return read_file("style.css")
