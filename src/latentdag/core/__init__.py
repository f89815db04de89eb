"""Arrays in, arrays out: the paper's algorithms and the estimator, in the paper's symbols.

Nothing here knows what a file, a label or a cell is. Contexts are positions, the control is position 0, and latents are
rows. Only numpy and scipy are imported.

Linear algebra and the paper's algorithms:

==================  =================================================================================
``context_error``   the error that names a context by its position
``linalg``          ranks, ranges, factors and scalings that do not depend on units
``porq``            the partial-order RQ decomposition (Definition 1, Algorithm "Partial Order RQ")
``exact``           Algorithms 1–3: identification from exact precision matrices
``projection``      Algorithms 4–6: the paper's finite-sample method
``pairs``           the rows (u, m) of one context's target from a pair of covariances, up to one bit
``order_free``      the likelihood of noise rows for any targets, without an order
``shared_targets``  noise rows of contexts when it is unknown which of them share a target
==================  =================================================================================

The likelihood and its maximum:

==================  =================================================================================
``likelihood``      the profile likelihood as a function of H alone, and its gradient
``jacobian``        how moments move with the parameters; the Fisher information follows
``newton``          Newton steps with the Fisher information, as a matrix or as an operator
``optimize``        the maximum of the likelihood in H for a given graph
``factors``         the noise of single features, and what latents share, told apart
``noisy``           the maximum of the likelihood where latents are seen through noise
==================  =================================================================================

The search:

==================  =================================================================================
``effort``          the constants that trade time for accuracy, each with its unit and reason
``orders``          full orders of latents, and moves between them
``full_orders``     the full order that fits best, for tests that ask whether any does
``graphs``          which edges of an order to keep, and H refitted for them
``edge_profile``    what is known about the weights of edges once all else adapts
``edge_estimates``  the weight of every present and absent edge, and what it gains, without refits
``evidence``        evidence for a graph, and the odds of each of its edges
``posterior``       the graphs that the data leave open; how probable edges and relations are
``responses``       what contexts show of total effects, whatever the strength of interventions
``search``          the search for order and graph, from starts to the answer
``target_sets``     which contexts hit the same latent, several, or none, before any order is known
``target_search``   target sets, latents, order and graph together
==================  =================================================================================

How sure a fit is:

==================  =================================================================================
``covariance``      covariance of the parameters: inverse information, or sandwich from scores
``quantities``      what users ask about as functions of the parameters, with gradients
``small_samples``   what few samples do to intervals: largest entries are too large, and errors have errors
``prediction``      mean and covariance in a context that was never run, with gradients
``planning``        how errors depend on the cells of each context, and where cells are best spent
==================  =================================================================================

Tests:

==================  =================================================================================
``ranks``           rank tests: how many directions differ between two contexts, or between all
``two_samples``     whether two samples have one law, by means and covariances
``fourth_moments``  fourth moments, for tests that hold for any noise
``goodness``        the test of a model against free means and covariances, for any noise
``multiplicity``    p-values adjusted for many tests: Holm, Benjamini–Hochberg
==================  =================================================================================
"""
