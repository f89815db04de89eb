"""A page that quotes a number which its source no longer has is a warning, and so stops ``make docs``."""

import quoted
from sphinx.application import Sphinx
from sphinx.util import logging


def check(app: Sphinx) -> None:
    for page in filter(quoted.stale, quoted.pages()):
        logging.getLogger(__name__).warning("%s quotes old numbers: make numbers", page.relative_to(quoted.ROOT))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", check)
    return {"parallel_read_safe": True}
