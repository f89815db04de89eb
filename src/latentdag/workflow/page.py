"""The page of the workflow: what it says, as one HTML file that loads nothing, or as markdown; and its figures.

``content`` collects sentences, warnings and tables as plain types, from which the templates ``page.html`` and
``page.md`` are filled. Words that do not depend on the data are in ``page.json``, with the columns of the tables: each
has a key, a title and a kind. A content-security policy forbids scripts and loads: no label of the data can run.

The figures are the latent graph with its contexts and survival, and hazard ratios with intervals.
"""

import base64
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.data.store import to_plain
from latentdag.pl import NEUTRAL, forest, labelled, latent_graph, save, short
from latentdag.report import citation, filled, latent_records, show, versions, write_page
from latentdag.workflow.steps import WORDS, Workflow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Genes named for each latent: those that correlate most with it among the control cells.
N_GENES = 4


def write(found: Workflow, path: str | os.PathLike[str], report_link: str | None = None) -> Path:
    """Write the page as ``.html`` or ``.md``, whole or not at all."""
    return write_page(
        path, {".html": lambda: to_html(found, report_link), ".md": lambda: to_markdown(found, report_link)}
    )


def to_html(found: Workflow, report_link: str | None = None) -> str:
    """Return the page as HTML: one file, no script, nothing to load."""
    drawn = {name: _image(figure) for name, figure in figures(found).items()}
    page = content(found, report_link)
    return filled("workflow/page.html", page=page, drawn=drawn, cite=citation(), versions=versions())


def to_markdown(found: Workflow, report_link: str | None = None) -> str:
    """Return the page as markdown, without figures."""
    return filled("workflow/page.md", page=content(found, report_link))


def figures(found: Workflow) -> dict[str, Any]:
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


def content(found: Workflow, report_link: str | None = None) -> dict[str, Any]:
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
    records = {
        "contexts": contexts.to_dict("records"),
        "edges": _rows(found.edges),
        "latents": [{**row, "genes": _said_of_genes(top[str(row["score"])])} for row in _rows(found.latents)],
        "genes": _rows(found.genes.sort_values("p_value", kind="stable")),
    }
    said = {
        "scaled": WORDS["scaling"][found.scaling],
        "adjusted": f" beside {', '.join(found.covariates)}" if found.covariates else "",
        "n_random": len(found.random),
    }
    made = {
        "title": f"{found.screen}: latents and survival in {found.cohort}",
        "sentences": found.sentences(),
        "refused": "" if found.membership.in_model else WORDS["refused"],
        "care": WORDS["care"],
        "report": report_link,
        "chosen": [
            f"{m.n_features} genes, the most variable of those allowed: {', '.join(m.feature_names)}.",
            *found.choice.notes,
            *([f"Contexts left out for too few cells: {left_out}."] if left_out else []),
        ],
        "tables": {name: (*WORDS["tables"][name], rows) for name, rows in records.items()},
        "methods": [text.format(**said) for text in WORDS["methods"]],
    }
    return to_plain(made)


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return table.reset_index().to_dict("records")


def _said_of_genes(features: list[dict[str, Any]]) -> str:
    return ", ".join(f"{each['feature']} {show(float(each['correlation']), 'number')}" for each in features)


#: The paper marks latents that go with survival in red.
RED, PALE_RED = "#b42318", "#fbdcd8"

#: Hazard ratios that may have a tick.
TICKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5, 3.3, 5.0)


def survival_graph(found: Workflow, ax: "Axes | None" = None, *, min_weight: float = 0.0) -> "Axes":
    """Draw the latent graph with a box for each context; latents that go with survival are red.

    Parameters
    ----------
    found : Workflow
    ax : matplotlib axes, optional
    min_weight : float
        Leave out edges with a smaller effect, between latents of unit variance (the paper: 0.2).
    """
    marked = found.significant
    word = "red: associated with survival" if marked else "no latent is associated with survival"
    title = f"{word} in {found.cohort}\n(false-discovery rate {found.alpha:g})"
    ax = latent_graph(found.fit, ax, min_weight=min_weight, title=title)
    ax.title.set_fontsize(9)
    nodes = {short(name) for name in marked}
    for text in ax.texts:
        if text.get_text() in nodes:
            box: Any = text.get_bbox_patch()
            box.set(facecolor=PALE_RED, edgecolor=RED, linewidth=1.8)
    return ax


def hazard_forest(
    table: pd.DataFrame, ax: "Axes | None" = None, *, n: int | None = 40, title: str | None = None
) -> "Axes":  # fmt: skip
    """Draw hazard ratios per standard deviation with their intervals, the smallest p-value on top.

    Filled and red where the false-discovery rate is below the table's alpha.

    Parameters
    ----------
    table : DataFrame of :func:`latentdag.workflow.survival.cox_table`
    ax : matplotlib axes, optional
    n : int or None
        At most so many rows; None draws all.
    title : optional
    """
    tested = table[table["p_value"].notna()].sort_values("p_value", kind="stable")
    marked, alpha, level = tested["significant"], table.attrs.get("alpha", 0.1), table.attrs.get("level", 0.95)
    rows = tested.assign(
        name=[short(name) for name in tested.index], sure=marked, colour=np.where(marked, RED, NEUTRAL)
    )
    words = f"hazard ratio per s.d., {100 * level:g} % interval\nred: false-discovery rate below {alpha:g}"
    ax = forest(ax, rows.iloc[:n], "hazard_ratio", 1.0)
    cut = f"the {n} smallest p-values of {len(rows)}" if len(rows.iloc[:n]) < len(rows) else None
    labelled(ax, words, title="\n".join(text for text in (title, cut) if text))
    _ratio_axis(ax, rows.iloc[:n])
    return ax


def _ratio_axis(ax: "Axes", shown: pd.DataFrame) -> None:
    """Set a logarithmic axis with 1 in its middle, so that risk and protection look alike."""
    ends = np.abs(np.log(shown[["lower", "upper"]].to_numpy(dtype=float)))
    reach = 1.08 * float(np.nanmax(ends, initial=0.15))
    ax.set_xscale("log")
    ax.set_xlim(np.exp(-reach), np.exp(reach))
    marks = [tick for tick in TICKS if abs(np.log(tick)) <= reach]
    while len(marks) > 9:
        centre = marks.index(1.0)
        marks = [tick for i, tick in enumerate(marks) if (i - centre) % 2 == 0]
    ax.set_xticks(marks, [f"{tick:g}" for tick in marks], fontsize=8)
    ax.minorticks_off()
