"""How values and labels read as text."""

import re
import tomllib
from importlib.resources import files
from typing import Any


def read_file(name: str) -> str:
    """Return the text of a file that stands beside the modules, such as ``report/page.html``."""
    return (files("latentdag") / name).read_text(encoding="utf-8")


#: What every report says in the same words: verdicts, methods, whom to cite, columns of tables.
WORDS: dict[str, Any] = tomllib.loads(read_file("report/words.toml"))


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
