"""The methods behind :func:`latentdag.fit`.

================  ==================================================================================
``fitting``       ``fit``, the one door: checks the moments and calls a method
``learn``         ``Learn``: targets that nobody told
``options``       ``Options``: everything that a fit can be told, for every door
``design``        from moments to the arrays of the core: whitening, shrinkage, who targets what
``reduction``     from noisy features to the few numbers per sample that latents are seen in
``likelihood``    maximum likelihood with a search for order and graph, the default
``starts``        where that search starts
``rivals``        second solutions for latents whose causes nobody intervened on
``closed_form``   every latent from its own context and the control, no search
``paper``         the paper's Algorithms 1–3 (exact) and 4–6 (projection)
``assembly``      from the core's optimum back to the user's features, names and units
``joint``         one model for all contexts: do the data refuse it?
``result``        ``Fit``, what every method returns
``orientation``   which way a latent grows
``verdict``       what to know before believing it
================  ==================================================================================
"""

from latentdag.methods.closed_form import fit_closed_form
from latentdag.methods.likelihood import fit_likelihood
from latentdag.methods.paper import fit_exact, fit_projection

__all__ = ["fit_closed_form", "fit_exact", "fit_likelihood", "fit_projection"]
