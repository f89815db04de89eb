"""The page of the workflow: one HTML file that loads nothing, or markdown."""

import base64
import hashlib
import html
import io
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentdag.data.store import write_atomically
from latentdag.report.about import citation, versions
from latentdag.report.markdown import escape
from latentdag.report.show import show
from latentdag.workflow.content import content
from latentdag.workflow.figures import hazard_forest, survival_graph

if TYPE_CHECKING:
    from latentdag.workflow.steps import Workflow


def figures(found: "Workflow") -> dict[str, Any]:
    """The page's figures by name."""
    return {
        "latent-graph-survival": survival_graph(found).figure,
        "hazard-latents": hazard_forest(found.latents, title="per latent").figure,
        "hazard-genes": hazard_forest(found.genes, title="per gene").figure,
    }


_CAPTIONS = {
    "latent-graph-survival": "Latents, causes above effects, with the contexts that hit them in boxes. An edge is as "
    "wide as its effect in standard deviations; blue raises, orange lowers, dashed is not significant (q > 0.05).",
    "hazard-latents": "Hazard ratio of one standard deviation of each latent, one regression each.",
    "hazard-genes": "The same for the genes of the model, each by itself.",
}


#: What stands above everything where the membership test says no.
REFUSED = "These data do not fit the model. What follows is a description at best, and no evidence of mechanism."


def to_markdown(found: "Workflow", report_link: str | None = None) -> str:
    """The page as markdown, without figures."""
    page = content(found, report_link)
    warning = [f"**{REFUSED}**", ""] if page["refused"] else []
    lines = [f"# {escape(page['title'])}", "", *warning, *(f"- {escape(text)}" for text in page["sentences"])]
    if report_link:
        lines += ["", f"The fit itself: [{escape(report_link)}]({report_link})."]
    lines += ["", "## Before you trust it", "", *(f"- {escape(text)}" for text in page["care"])]
    lines += ["", "## What went in", "", *(f"- {escape(text)}" for text in page["chosen"])]
    for title, columns, records in page["tables"].values():
        lines += ["", f"## {escape(title)}", "", "| " + " | ".join(label for _, label, _ in columns) + " |"]
        lines.append("|" + " --- |" * len(columns))
        lines += [
            "| " + " | ".join(escape(show(record.get(key), kind)) for key, _, kind in columns) + " |"
            for record in records
        ]
    lines += ["", "## Methods", "", *(part for text in page["methods"] for part in (escape(text), ""))]
    return "\n".join(lines)


def to_html(found: "Workflow", report_link: str | None = None) -> str:
    """The page as HTML: one file, no script, nothing to load."""
    page = content(found, report_link)
    style = (files("latentdag.report") / "style.css").read_text(encoding="utf-8") + _STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    drawn = {name: _image(figure, _CAPTIONS[name]) for name, figure in figures(found).items()}
    tables = {name: _table(name, *table) for name, table in page["tables"].items()}
    link = ""
    if report_link:
        link = f'<p>Checks, graph and all numbers of the fit: <a href="{_e(report_link)}">{_e(report_link)}</a>.</p>'
    warning = f'<p class="verdict bad">{_e(REFUSED)}</p>' if page["refused"] else ""
    cite = citation()
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><title>{_e(page["title"])}</title><style>{style}</style></head>
<body><header class="top"><p class="brand">latentdag workflow</p><h1>{_e(page["title"])}</h1>
{warning}{_list(page["sentences"], "findings")}{link}
<nav aria-label="Sections"><a href="#care">Before you trust it</a> <a href="#graph">Graph</a>
<a href="#survival">Survival</a> <a href="#genes">Genes</a> <a href="#contexts">Contexts</a>
<a href="#methods">Methods</a></nav>
</header><main>
<section id="care"><h2>Before you trust it</h2>{_list(page["care"])}</section>
<section id="graph"><h2>Latent graph and contexts</h2>{drawn["latent-graph-survival"]}{tables["edges"]}</section>
<section id="survival"><h2>Survival per latent</h2>{drawn["hazard-latents"]}{tables["latents"]}</section>
<section id="genes"><h2>Survival per gene, the baseline</h2>{drawn["hazard-genes"]}{tables["genes"]}</section>
<section id="contexts"><h2>Contexts, cells and genes that went in</h2>
{_list(page["chosen"])}{tables["contexts"]}</section>
<section id="methods"><h2>Methods</h2>{"".join(f"<p>{_e(text)}</p>" for text in page["methods"])}
<p>Please cite {_e(cite["authors"])} ({cite["year"]}). <cite>{_e(cite["title"])}</cite>. {_e(cite["venue"])}.
Software: {_e(", ".join(f"{name} {number}" for name, number in versions().items()))}.</p></section>
</main></body></html>
"""


_STYLE = """
.findings { max-width: 90ch; } .findings li { margin: .25rem 0; }
#care li { max-width: 90ch; }
figure { margin: 1rem 0; } figure img { max-width: 100%; background: #ffffff; border-radius: 8px; }
figcaption { color: var(--quiet); font-size: .9rem; max-width: 80ch; }
.tablebox h3 { margin-top: 1rem; } .tablebox .scroll thead th { padding: .4rem .75rem; overflow-wrap: normal; }
td.text { white-space: normal; }
tr.marked td { font-weight: 600; } tr.marked td:first-child { color: var(--bad); }
"""


def write(found: "Workflow", path: str | os.PathLike[str], report_link: str | None = None) -> Path:
    """Write the page as ``.html`` or ``.md``, whole or not at all."""
    path = Path(path)
    makers = {".html": to_html, ".md": to_markdown}
    if path.suffix not in makers:
        raise ValueError(f"{path}: the page ends in .html or .md, not in {path.suffix!r}")
    text = makers[path.suffix](found, report_link)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "xmlcharrefreplace")))
    return path


def _e(text: Any) -> str:
    return html.escape(str(text))


def _list(texts: list[str], kind: str = "") -> str:
    items = "".join(f"<li>{_e(text)}</li>" for text in texts)
    return f'<ul class="{kind}">{items}</ul>' if kind else f"<ul>{items}</ul>"


def _table(name: str, title: str, columns: list[tuple[str, str, str]], records: list[dict[str, Any]]) -> str:
    if not records:
        return f"<p>{_e(title)}: none.</p>"
    head = "".join(f'<th scope="col" class="{kind}">{_e(label)}</th>' for _, label, kind in columns)
    body = "".join(
        f'<tr class="{"marked" if record.get("significant") else ""}">'
        + "".join(f'<td class="{kind}">{_e(show(record.get(key), kind))}</td>' for key, _, kind in columns)
        + "</tr>"
        for record in records
    )
    return (
        f'<section class="tablebox"><h3 id="table-{name}">{_e(title)} <span class="quiet">({len(records)})</span></h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="table-{name}"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div></section>"
    )


def _image(figure: Any, caption: str) -> str:
    import matplotlib
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "latentdag"}):  # the same bytes every time
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure><img alt="{_e(caption)}" src="data:image/svg+xml;base64,{data}"><figcaption>{_e(caption)}'
        "</figcaption></figure>"
    )
