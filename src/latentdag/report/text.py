"""How values and labels read as text, and the report as markdown, for notebooks, issues and pull requests."""

import re
import tomllib
from importlib.resources import files
from typing import Any

#: Rows of a table beyond which markdown is not read.
MOST_ROWS = 200


def read_file(name: str) -> str:
    """Return the text of a file that stands beside this module."""
    return (files("latentdag.report") / name).read_text(encoding="utf-8")


#: What every report says in the same words: verdicts, methods, whom to cite, columns of tables.
WORDS: dict[str, Any] = tomllib.loads(read_file("words.toml"))


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


def to_markdown(report: dict[str, Any]) -> str:
    """Return the dict of :func:`latentdag.report.collect` as markdown; labels cannot break out of their cells."""
    head = report["headline"]
    lines = [
        f"# {escape(report['title'])}",
        "",
        f"{head['latents']} latents, {head['features']} features, {head['contexts']} contexts, "
        f"{head['samples']:,} samples, {head['edges']} edges; method {escape(head['method'])}.",
        "",
        f"**{escape(report['verdict']['text'])}**",
        "",
        "## What was checked first",
        "",
        *(f"- **{escape(c['name'])}** ({c['status']}): {escape(c['text'])}" for c in report["checks"]),
    ]
    for table in report["tables"]:
        lines += ["", f"## {escape(table['title'])}", "", *_table(table, report[table["id"]])]
    cite, made = report["citation"], report["provenance"]
    lines += ["", "## Methods", ""]
    lines += [part for text in report["methods"] for part in (escape(text), "")]
    lines += [
        f"Cite: {cite['authors']} ({cite['year']}). *{cite['title']}*. {cite['venue']}. {cite['preprint']}. "
        f"Software: {cite['software']}.",
        "",
        f"- options: {escape(', '.join(f'{k}={v}' for k, v in made['options'].items() if v is not None))}",
        f"- seed: {escape(show(made['seed']))}",
        f"- moments, SHA-256: {show(made['moments_sha256'])}",
        f"- versions: {', '.join(f'{name} {number}' for name, number in made['versions'].items())}",
    ]
    return "\n".join(lines) + "\n"


def _table(table: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    columns = table["columns"]
    lines = [
        "| " + " | ".join(c["label"] for c in columns) + " |",
        "|" + "|".join(" --- " if c["kind"] in ("text", "word", "list", "yes") else " ---: " for c in columns) + "|",
    ]
    for record in records[:MOST_ROWS]:
        lines.append("| " + " | ".join(escape(show(record.get(c["key"]), c["kind"])) for c in columns) + " |")
    if len(records) > MOST_ROWS:
        lines += ["", f"… and {len(records) - MOST_ROWS} more rows."]
    return lines


def escape(text: str) -> str:
    """Return text that markdown, and the HTML inside it, show as it is.

    >>> escape("a|b <script> *x*")
    'a\\\\|b &lt;script&gt; \\\\*x\\\\*'
    """
    text = " ".join(str(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#~$])", r"\\\1", text)
