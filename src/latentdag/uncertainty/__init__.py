"""Say how sure one fit is: whether anything changed, standard errors, tests of edges, predictions, held-out scores.

===================  ==================================================================
``changed``          whether contexts differ from the control, and from each other
``standard_errors``  standard errors and intervals of everything in a fit
``edges``            tests of edges, and the order they support
``strength``         what survives if interventions are weaker than they were taken for
``prediction``       contexts that were never run, with intervals
``held_out``         log-likelihood of held-out contexts
===================  ==================================================================
"""
