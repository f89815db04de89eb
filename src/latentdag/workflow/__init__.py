"""The paper's single-cell workflow: from a perturbation screen to latents, and from latents to patients' survival.

1. Contexts with enough cells, and the most variable genes of a gene set that the second cohort has too.
2. Moments, with depth and whatever else is named regressed out within contexts.
3. Does every context look like one target? The test comes first, and its answer stays on every page.
4. The fit, with fewer contexts than genes, and the latent graph.
5. Latent scores of the patients of a second cohort, by the genes' names.
6. Cox regression of survival on every latent, and on every gene as the baseline; false-discovery rates.

``examples/workflow.py`` does this step by step; ``latentdag workflow`` does it from the command line.

============  =======================================================
``choose``    which cells, contexts and genes take part
``steps``     the whole workflow in one call
``survival``  latent scores of another cohort, and Cox regression on them
``page``      the page as HTML or markdown, and its figures
============  =======================================================
"""

from latentdag.workflow.choose import Choice, choose, screen_of
from latentdag.workflow.page import figures as page_figures
from latentdag.workflow.page import hazard_forest, survival_graph, to_html, to_markdown, write
from latentdag.workflow.steps import Workflow, run
from latentdag.workflow.survival import random_scores, transfer_scores

__all__ = [
    "Choice", "Workflow", "choose", "hazard_forest", "page_figures", "random_scores", "run", "screen_of",
    "survival_graph", "to_html", "to_markdown", "transfer_scores", "write",
]  # fmt: skip
