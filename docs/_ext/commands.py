"""``.. commands::`` lists every command of ``latentdag`` with its options, asked of the program itself."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from latentdag.cli.app import app as program


class Commands(SphinxDirective):
    """A section per command."""

    def run(self) -> list[nodes.Node]:
        group: Any = get_command(program)
        text = "\n".join(section(name, command) for name, command in group.commands.items())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def section(name: str, command: Any) -> str:
    """In reStructuredText: the sentence of the help text, how to call it, a table of options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(["latentdag", name, *(p.name.upper() for p in arguments), "[OPTIONS]"])
    lines = [name, "-" * len(name), "", command.help, "", ".. code-block:: sh", "", f"   {usage}", ""]
    lines += [".. list-table::", "   :widths: 30 50 20", "   :header-rows: 1", "", "   * - option", "     - what it is"]
    lines += ["     - default"]
    for param in [*arguments, *options]:
        words = [param.name.upper()] if param in arguments else [*param.opts, *param.secondary_opts]
        lines += [f"   * - {', '.join(f'``{word}``' for word in words)}", f"     - {param.help or ''}"]
        lines += [f"     - {default(param)}"]
    return "\n".join([*lines, ""])


def default(param: Any) -> str:
    if param.required:
        return "required"
    if param.default is None or param.default == "":
        return ""
    if isinstance(param.default, bool):
        return "yes" if param.default else "no"
    return f"``{param.default}``"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
