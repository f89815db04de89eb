"""Set formulas on the page of mathematics: ``B_k^{-1}`` in its text gets a subscript and a superscript.

The page is written in Unicode, so that it reads well as plain text, too, and the site needs no script from elsewhere.
Indented blocks become displayed formulas; code, in single or triple backticks, stays as it is.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

PAGE = "math"
SCRIPT = re.compile(r"([_^])(\{(?:[^{}]|\{[^{}]*\})*\}|[0-9]+|[A-Za-z]+|\S)")


def scripts(text: str) -> list[nodes.Node]:
    """Return text with its subscripts and superscripts as nodes.

    Examples
    --------
    >>> [node.astext() for node in scripts("R_{i,pa} + B_k^{-1}")]
    ['R', 'i,pa', ' + B', 'k', '-1']
    """
    made: list[nodes.Node] = []
    end = 0
    for found in SCRIPT.finditer(text):
        made += [nodes.Text(text[end : found.start()])] if found.start() > end else []
        kind = nodes.subscript if found[1] == "_" else nodes.superscript
        made.append(kind("", "", *scripts(found[2][1:-1] if found[2].startswith("{") else found[2])))
        end = found.end()
    return made + ([nodes.Text(text[end:])] if end < len(text) else [])


def set_formulas(app: Sphinx, tree: nodes.document, docname: str) -> None:
    if docname != PAGE:
        return
    for block in list(tree.findall(nodes.literal_block)):
        if block.get("language", "none") in ("none", "default"):
            wide = [re.sub(" {3,}", "\N{EM SPACE}" * 2, line) for line in block.astext().strip().split("\n")]
            lines = [nodes.line("", "", *scripts(line)) for line in wide]
            block.replace_self(nodes.line_block("", *lines, classes=["formula"]))
    for text in list(tree.findall(nodes.Text)):
        inside = text.parent
        if isinstance(inside, nodes.paragraph | nodes.emphasis | nodes.strong) and SCRIPT.search(text):
            inside.replace(text, scripts(str(text)))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", set_formulas)
    return {"parallel_read_safe": True}
