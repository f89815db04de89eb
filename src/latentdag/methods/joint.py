"""One model for all contexts of a fit, each latent with every earlier one as a parent: does it explain them?

Every fit asks, so that its verdict can say that the data refuse the model. :func:`latentdag.omnibus_test` asks again,
of any fit (:mod:`latentdag.core.goodness`).
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from latentdag.core.fourth_moments import CrossCovariance, moment_matched_p_value, weighted_products
from latentdag.core.full_orders import FullOrder, Permit, best_full_order
from latentdag.core.goodness import MOMENTS_UP_TO, Goodness, Noises, goodness, matched_traces, misfit, noises, release
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array
from latentdag.core.orders import Order, full_parents
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples, deviations
from latentdag.methods.design import Prepared


@dataclass(frozen=True)
class Omnibus:
    """Likelihood ratio of the best full order near that of a fit against free means and covariances.

    Attributes
    ----------
    statistic, dof, p_value : float
        ``nan`` where there is no test.
    loglik : float
        Of the full order, relative to the saturated model.
    reason : str
        Why there is no test.
    robust : bool
        Whether it holds without Gaussian samples.
    misfit : mapping of context to float
        How far the model is off in each context, the control first, beyond what noise explains: the root mean square of
        its noises' correlations, of their means in standard deviations, and of their variances in units of √2.
    unexplained : float
        The share that the model leaves unexplained of all that contexts change, beyond noise.
    """

    statistic: float = float("nan")
    dof: float = float("nan")
    p_value: float = float("nan")
    loglik: float = float("nan")
    reason: str = ""
    robust: bool = False
    misfit: Mapping[Hashable, float] = field(default_factory=dict)
    unexplained: float = float("nan")

    def __str__(self) -> str:
        if self.reason:
            return f"no omnibus test: {self.reason}"
        return f"omnibus χ² = {self.statistic:.1f} on {self.dof:.4g} degrees of freedom, p = {self.p_value:.3g}"

    @property
    def size(self) -> str:
        """How far off the model is, in one sentence; empty where there is no test."""
        if not self.misfit:
            return ""
        worst = max(self.misfit, key=lambda c: self.misfit[c])
        if not self.unexplained:
            return "The model leaves nothing unexplained but noise."
        return (
            f"The model leaves {100 * self.unexplained:.2g} % of what contexts change unexplained; the largest misfit, "
            f"in {worst!s}, is {100 * self.misfit[worst]:.2g} % of a standard deviation (root mean square over means, "
            "variances and correlations of noises)."
        )


@dataclass(frozen=True)
class Joint:
    """One model for all contexts of a fit, each latent with every earlier one as a parent.

    Attributes
    ----------
    m : Moments
        Of the fit's contexts.
    prepared : Prepared
        Without shrinkage.
    design : Design
        That of ``prepared``, or what is left of it.
    best : FullOrder
    permit : tells which orders the fit allows
    """

    m: Moments
    prepared: Prepared
    design: Design
    best: FullOrder
    permit: Permit

    @cached_property
    def found(self) -> Goodness:
        """How well the best order explains the design."""
        return goodness(self.design, self.best)

    def without(self, k: int) -> "Joint":
        """Return the same without what context k of the design says; the search looks only near the order."""
        return replace(self, design=release(self.design, k)).searched(lambda found: True)

    def searched(self, enough: Callable[[Goodness], bool]) -> "Joint":
        """Return the same with the best order that is found near this one, until one is good enough."""
        best, design = self.best, self.design
        found = best_full_order(
            design, best.optimum.H, best.order, self.permit, lambda full: enough(goodness(design, full))
        )
        return self if found is None else replace(self, best=found)


def joint_model(
    m: Moments, prepared: Prepared, H: Array, order: Order, permit: Permit, enough: Callable[[Goodness], bool]
) -> Joint | None:
    """Return the best model for all contexts that is found from rows H (d, r) in this order; None if it has none."""
    design = prepared.design
    best = best_full_order(design, H, order, permit, lambda full: enough(goodness(design, full)))
    return None if best is None else Joint(m, prepared, design, best, permit)


def omnibus_of(joint: Joint, data: Samples | None) -> Omnibus:
    """Test a joint model against the saturated one."""
    design, found = joint.design, joint.found
    statistic, dof, p_value, scale = found.statistic, float(found.dof), found.p_value, 1.0
    if data is not None:
        model = noises(design, joint.best.optimum, full_parents(joint.best.order))
        if len(design.n) * model.n_moments > MOMENTS_UP_TO:
            return Omnibus(reason="too many moments for the test without Gaussian samples; data=None assumes them")
        traces = matched_traces(model, _error_covariances(joint.m, joint.prepared, model, data))
        scale = traces[0] / found.dof
        statistic, dof, p_value = moment_matched_p_value(statistic, *traces)
    off, unexplained = misfit(design, joint.best, found, scale)
    by_context = dict(zip(joint.m.contexts, off.tolist(), strict=True))
    return Omnibus(statistic, dof, p_value, -found.nats, "", data is not None, by_context, unexplained)


def _error_covariances(m: Moments, prepared: Prepared, model: Noises, data: Samples) -> np.ndarray:
    """Return the covariance of the errors in the moments of every context, from a second pass over the samples."""
    means = model.point.tau is not None
    sums = [CrossCovariance(model.n_moments, model.n_moments) for _ in m.contexts]
    for k, block in deviations(data, m):
        for eps, products in weighted_products(block @ (model.F[k] @ prepared.W).T + model.b[k]):
            errors = np.hstack([products, eps]) if means else products
            sums[k].add(errors, errors)
    return np.array([each.value() for each in sums])
