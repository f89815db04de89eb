"""From the dict to a page: self-contained, and inert whatever the labels in the data are.

Pages are templates of jinja2, which stand beside the modules: ``page.html`` and ``page.md``. All that is filled into
one is escaped, for HTML or for markdown; data go in as JSON in which no character can end a script element. On top of
that a page carries a content-security policy that names the one script and the one style sheet by their hash and
forbids every load: a label that slipped through would still not run.
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
from latentdag.report.text import escape, read_file, show

#: Rows of a table beyond which markdown is not read.
MOST_ROWS = 200


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
    environment.globals["file"] = read_file
    environment.filters |= {"show": show, "digest": _digest}
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return str(environment.from_string(read_file(template)).render(**values))


def _digest(text: str) -> str:
    """Return the hash by which a content-security policy allows an inline script or style sheet."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
