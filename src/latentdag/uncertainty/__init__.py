"""Say how sure one fit is: standard errors, tests of edges, predictions, scores on held-out data.

===================  ====================================================
``standard_errors``  standard errors and intervals of everything in a fit
``edges``            tests of edges, and the order they support
``prediction``       contexts that were never run, with intervals
``held_out``         log-likelihood of held-out contexts
===================  ====================================================
"""
