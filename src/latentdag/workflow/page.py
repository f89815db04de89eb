"""The page of the workflow: what it says, as one HTML file that loads nothing, or as markdown.

``content`` collects sentences, warnings and tables as plain types, from which the templates ``page.html`` and
``page.md`` are filled. Words that do not depend on the data are in ``page.json``, with the columns of the tables: each
has a key, a title and a kind. A content-security policy forbids scripts and loads: no label of the data can run.
"""

import base64
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentdag.data.store import to_plain, write_atomically
from latentdag.pl import save
from latentdag.report import citation, filled, latent_records, read_file, show, versions
from latentdag.workflow.figures import hazard_forest, survival_graph

if TYPE_CHECKING:
    from latentdag.workflow.steps import Workflow

#: Genes named for each latent: those that correlate most with it among the control cells.
N_GENES = 4


def write(found: "Workflow", path: str | os.PathLike[str], report_link: str | None = None) -> Path:
    """Write the page as ``.html`` or ``.md``, whole or not at all."""
    path = Path(path)
    makers = {".html": to_html, ".md": to_markdown}
    if path.suffix not in makers:
        raise ValueError(f"{path}: the page ends in .html or .md, not in {path.suffix!r}")
    text = makers[path.suffix](found, report_link)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "xmlcharrefreplace")))
    return path


def to_html(found: "Workflow", report_link: str | None = None) -> str:
    """Return the page as HTML: one file, no script, nothing to load."""
    drawn = {name: _image(figure) for name, figure in figures(found).items()}
    page = content(found, report_link)
    return filled("workflow/page.html", page=page, drawn=drawn, cite=citation(), versions=versions())


def to_markdown(found: "Workflow", report_link: str | None = None) -> str:
    """Return the page as markdown, without figures."""
    return filled("workflow/page.md", page=content(found, report_link))


def figures(found: "Workflow") -> dict[str, Any]:
    """Draw the page's figures, by name."""
    return {
        "latent-graph-survival": survival_graph(found).figure,
        "hazard-latents": hazard_forest(found.latents, title="per latent").figure,
        "hazard-genes": hazard_forest(found.genes, title="per gene").figure,
    }


def _image(figure: Any) -> str:
    """Return a figure as the address of an embedded SVG image; closes the figure."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    save(figure, buffer, "svg")
    plt.close(figure)
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def content(found: "Workflow", report_link: str | None = None) -> dict[str, Any]:
    """Return everything the page says, as plain types."""
    m, fit = found.moments, found.fit
    contexts = found.membership.summary.loc[list(m.contexts[1:]), ["p_value", "holm", "decision"]].assign(
        context=m.contexts[1:],
        cells=m.counts[1:],
        latent=[fit.targets[c] for c in m.contexts[1:]],
        unchanged=found.unchanged,
    )
    top = {z["latent"]: z["features"] for z in latent_records(fit, [], N_GENES)}
    left_out = ", ".join(f"{c} ({n})" for c, n in found.choice.left_out.items())
    words = json.loads(read_file("workflow/page.json"))
    records = {
        "contexts": contexts.to_dict("records"),
        "edges": _rows(found.edges),
        "latents": [{**row, "genes": _said_of_genes(top[str(row["score"])])} for row in _rows(found.latents)],
        "genes": _rows(found.genes.sort_values("p_value", kind="stable")),
    }
    said = {
        "scaled": words["scaling"][found.scaling],
        "adjusted": f" beside {', '.join(found.covariates)}" if found.covariates else "",
        "n_random": len(found.random),
    }
    made = {
        "title": f"{found.screen}: latents and survival in {found.cohort}",
        "sentences": found.sentences(),
        "refused": "" if found.membership.in_model else words["refused"],
        "care": words["care"],
        "report": report_link,
        "chosen": [
            f"{m.n_features} genes, the most variable of those allowed: {', '.join(m.feature_names)}.",
            *found.choice.notes,
            *([f"Contexts left out for too few cells: {left_out}."] if left_out else []),
        ],
        "tables": {name: (*words["tables"][name], rows) for name, rows in records.items()},
        "methods": [text.format(**said) for text in words["methods"]],
    }
    return to_plain(made)


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return table.reset_index().to_dict("records")


def _said_of_genes(features: list[dict[str, Any]]) -> str:
    return ", ".join(f"{each['feature']} {show(float(each['correlation']), 'number')}" for each in features)
