"""The methods behind :func:`latentdag.fit`, one per file."""

from latentdag.methods.closed_form import fit_closed_form
from latentdag.methods.exact import fit_exact
from latentdag.methods.likelihood import fit_likelihood
from latentdag.methods.projection import fit_projection

__all__ = ["fit_closed_form", "fit_exact", "fit_likelihood", "fit_projection"]
