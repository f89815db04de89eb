"""Answers about exact moments: what is identified, and what no amount of data can tell.

``identify``         partial-order RQ, Algorithm 2 and Algorithms 1–3 on exact precision matrices
``reduce``           latent dimension, contexts with one target, the observational context
``equivalence``      all models with the same moments where some latents were never intervened on
``counterexamples``  the paper's counterexamples, each as two models with the same moments
``liu``              the condition of Liu et al. (2022), to which the paper compares its own
"""
