"""Arrays in, arrays out: the paper's algorithms in the paper's symbols.

Nothing here knows what a file, a label or a cell is. Contexts are positions, the control is
position 0, and latents are rows.

================  ==================================================================
``linalg``        scale-free ranks, ranges, whitening, triangular factors, row scaling
``porq``          the partial-order RQ decomposition (Definition 1, Algorithm "Partial Order RQ")
``exact``         Algorithms 1–3: identification from exact precision matrices
``projection``    Algorithms 4–6: the paper's finite-sample method
``pairs``         (u, m) of one context from a pair of covariances, up to one bit
================  ==================================================================
"""
