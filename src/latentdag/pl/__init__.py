"""Figures. Every function takes ``ax=None``, draws on it and returns it; matplotlib is imported when one is drawn."""

from latentdag.pl.eigenvalues import spectra
from latentdag.pl.forest import edges
from latentdag.pl.graph import latent_graph
from latentdag.pl.groups import target_groups
from latentdag.pl.held_out import predicted, scores
from latentdag.pl.loadings import mixing
from latentdag.pl.precedence import order_stability

__all__ = [
    "edges",
    "latent_graph",
    "mixing",
    "order_stability",
    "predicted",
    "scores",
    "spectra",
    "target_groups",
]
