"""Plan a screen: how sure its edges will be, how many cells that takes, and which perturbation to run next.

================  ==========================================================================
``assumed``       a fit or a model as what the plan takes for true, and counts of cells
``rivals``        what a search adds: other graphs that samples of this size leave open
``power``         the power of every edge, and the cells that a power needs
``allocation``    which context gets how many cells of a budget
``contexts``      which new context helps most
================  ==========================================================================

All of it is a function of the model and the counts, without data: docs/math.md, section "Planning a screen".
"""

from latentdag.design.allocation import allocate
from latentdag.design.contexts import next_context
from latentdag.design.power import power, power_curve, samples_needed

__all__ = ["allocate", "next_context", "power", "power_curve", "samples_needed"]
