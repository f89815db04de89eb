"""Questions to a data set, answered with p-values and replicates.

================== ==========================================================================================
``ranks``          In how many directions does a context differ from the control, or do all contexts together?
``membership``     Has every context one target, and does one model explain them all?
``omnibus``        Is there any model of a fit's kind that explains all contexts? If not, which contexts account for it?
``shared_targets`` Which contexts hit the same latent?
``control``        Which context is the control, where nobody wrote it down?
``targets``        Which latents does a context act on, in or out of the fit?
``permutation``    How many edges do shuffled labels give?
``bootstrap``      How much of a fit comes back when the data are drawn again?
``resampling``     Draw moments again, from a law or from blocks of the samples.
``replicates``     Refit drawn moments, compare with the original, keep the result in a folder.
``stability``      Tables of what came back.
================== ==========================================================================================

Tests take moments alone and assume Gaussian samples. With ``data=(X, contexts)`` they walk over the samples once more,
and fourth moments make them hold for other laws (:mod:`latentdag.core.fourth_moments`).
"""
