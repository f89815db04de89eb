"""The paper's counterexamples, each as two models that no amount of data can tell apart.

Data fix the precision matrices ``Θ_k = Hᵀ B_kᵀ B_k H``, and through them at best the factors ``B_k H``. Take other
latents ``Ẑ = T Z``: with ``Ĥ = T H`` and ``B̂_k = B_k T^{-1}`` every ``B̂_k Ĥ = B_k H``, so the noises, and hence the
whole law of X, are the same in every context. The new latents are a rival explanation whenever all the ``B̂_k`` are
structural matrices of a DAG and each differs from ``B̂_0`` in one row. What the paper assumes is what rules rivals out:

===============================  =========================================  ============================================
what is missing                  example                                    what it costs
===============================  =========================================  ============================================
any intervention                 :func:`observational_only`                 everything: independent latents always fit
an intervention on one latent    :func:`motivating_example`,                its row of H, and all its ancestors
                                 :func:`missing_intervention`
the same, where it is a source   :func:`missing_source`                     one bit of H; not the graph
interventions on two neighbours  :func:`covered_edge`,                      which of the two causes the other, even if
                                 :func:`fully_observed`                     H is known
perfect interventions            :func:`soft_parameters`,                   rows of H up to their ancestors' rows, and
                                 :func:`soft_graph`                         which edges of the closure are direct
a soft change of all weights     :func:`nongeneric_soft`,                   the parents whose weight stays, and with
                                 :func:`soft_theorem_gap`                   them the partial order
a known control                  :func:`star_tie`,                          the rule of the appendix ties or errs;
                                 :func:`deviation_cancellation`             the control itself is still identified
===============================  =========================================  ============================================

Only :func:`missing_source` and :func:`covered_edge` are of another kind: there ``B̂_k Ĥ`` and ``B_k H`` differ by a
rotation of the noise, so the two models share all second moments, and the whole law when the noise is Gaussian.

Contexts are numbered as in the paper, with 0 for the control. The last part is the condition of Liu et al. (2022), to
which the paper compares its own: :func:`liu_matrix`, :func:`liu_condition`, :func:`liu_possible`.

==================  =============================================================
``counterexample``  two models that no amount of data can tell apart
``control``         models on which the paper's rule for the control ties or errs
``liu``             the condition of Liu et al. (2022)
``missing``         interventions that are missing
``soft``            what soft interventions leave open
==================  =============================================================
"""

from latentdag.identification.counterexamples.control import (
    DeviationTie,
    deviation_cancellation,
    deviation_scores,
    star_tie,
)
from latentdag.identification.counterexamples.counterexample import Counterexample
from latentdag.identification.counterexamples.liu import liu_condition, liu_matrix, liu_possible, liu_rank
from latentdag.identification.counterexamples.missing import (
    covered_edge,
    fully_observed,
    missing_intervention,
    missing_source,
    motivating_example,
    observational_only,
)
from latentdag.identification.counterexamples.soft import nongeneric_soft, soft_graph, soft_parameters, soft_theorem_gap

__all__ = [
    "Counterexample",
    "DeviationTie",
    "covered_edge",
    "deviation_cancellation",
    "deviation_scores",
    "fully_observed",
    "liu_condition",
    "liu_matrix",
    "liu_possible",
    "liu_rank",
    "missing_intervention",
    "missing_source",
    "motivating_example",
    "nongeneric_soft",
    "observational_only",
    "soft_graph",
    "soft_parameters",
    "soft_theorem_gap",
    "star_tie",
]
