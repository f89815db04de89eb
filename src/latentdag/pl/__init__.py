"""Figures. Every function takes ``ax=None``, draws on it and returns it; matplotlib is imported when one is drawn.

===============  ====================================================
``canvas``       what all figures share
``eigenvalues``  generalised eigenvalues of each context
``graph``        the latent graph
``heatmaps``     matrices as heat maps: mixing, order, groups
``intervals``    edges, predictions, scores and power with their intervals
``layout``       where to draw the latents of a graph
===============  ====================================================
"""

from latentdag.pl.canvas import NEUTRAL, labelled, save, short, text_width  # noqa: F401
from latentdag.pl.eigenvalues import spectra
from latentdag.pl.graph import latent_graph
from latentdag.pl.heatmaps import mixing, order_stability, target_groups, targets
from latentdag.pl.intervals import edges, forest, power_curve, predicted, scores, sensitivity  # noqa: F401
from latentdag.pl.layout import Point, layered  # noqa: F401

#: The figures. The other names above are what figures outside this package share with them.
__all__ = [
    "edges", "latent_graph", "mixing", "order_stability", "power_curve", "predicted", "scores", "sensitivity",
    "spectra", "target_groups", "targets",
]  # fmt: skip
