"""The report as markdown, for notebooks, issues and pull requests."""

import re
from typing import Any

from latentdag.report.show import show

#: Rows of a table beyond which markdown is not read.
MOST_ROWS = 200


def to_markdown(report: dict[str, Any]) -> str:
    """The dict of :func:`latentdag.report.collect` as markdown; labels cannot break out of their cells."""
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
    """Text that markdown and the HTML inside it show as it is.

    >>> escape("a|b <script> *x*")
    'a\\\\|b &lt;script&gt; \\\\*x\\\\*'
    """
    text = " ".join(str(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#~$])", r"\\\1", text)
