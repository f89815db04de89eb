"""Sphinx settings. ``make docs`` builds the site into docs/_build/html; warnings are errors there."""

import sys
from pathlib import Path

import latentdag

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "_ext")]

project = "latentdag"
author = "The latentdag developers"
copyright = author
version = release = latentdag.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "breaks",  # these are ours, in _ext
    "commands",
    "docstrings",
    "formulas",
    "gallery",
    "quotations",
]
exclude_patterns = ["_build", "_ext", "experiments", "**.ipynb_checkpoints"]

# Tutorials in markdown run while the site is built. Those on real data are committed as they ran (make tutorials).
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_excludepatterns = ["*.ipynb"]
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autosummary_generate = False  # tables that link to hand-made pages, not a page per name
autodoc_typehints = "none"  # docstrings say types in words
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
maximum_signature_line_length = 100
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "latentdag"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False


def setup(app):
    app.connect("source-read", close_fences)


def close_fences(app, name, source):
    """A doctest needs an empty line before the fence that ends it, and a reader does not."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")
