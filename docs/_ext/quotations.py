"""A page that quotes a number which its source does not have is a warning, and so stops ``make docs``."""

import quoted
from sphinx.application import Sphinx
from sphinx.util import logging


def check(app: Sphinx) -> None:
    for complaint in quoted.complaints():
        logging.getLogger(__name__).warning("%s", complaint)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", check)
    return {"parallel_read_safe": True}
