"""Long names in tables may break after a dot, an underscore or a double colon, and nowhere else."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

NAME = re.compile(r"[\w.:]{16,}")
PLACES = re.compile(r"(?<=[._])(?=\w)|(?<=::)")


class Breaks(SphinxPostTransform):
    """Puts ``<wbr>`` there, which is not part of the text and so is not copied with it."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for table in self.document.findall(nodes.table):
            for text in [t for code in table.findall(nodes.literal) for t in code.findall(nodes.Text)]:
                if not NAME.fullmatch(text.astext()):  # formulas stay whole
                    continue
                first, *rest = PLACES.split(text.astext())
                new: list[nodes.Node] = [nodes.Text(first)]
                for part in rest:
                    new += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]
                text.parent.replace(text, new)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Breaks)
    return {"parallel_read_safe": True}
