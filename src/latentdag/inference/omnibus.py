"""The omnibus test of a fit: is there any model of its kind that explains all contexts at once?

The rank test asks one context at a time. What the model says beyond it concerns all contexts together: noise rows are
orthonormal, every noise is left alone elsewhere, and the graph has no cycle. The likelihood ratio of the fit's order
against free means and covariances tests all of it (:mod:`latentdag.core.goodness`).
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import stats

from latentdag.core.fourth_moments import CrossCovariance, moment_matched_p_value, weighted_products
from latentdag.core.goodness import MOMENTS_UP_TO, Noises, goodness, matched_traces, noises
from latentdag.core.optimize import maximize
from latentdag.core.orders import full_parents
from latentdag.data.moments import Moments
from latentdag.data.second_pass import Samples, deviations
from latentdag.errors import LatentDAGWarning, clear_numerics
from latentdag.inference.ranks import no_inverse
from latentdag.methods.design import Prepared, prepare
from latentdag.methods.fitting import check_design
from latentdag.methods.options import Options
from latentdag.methods.result import Fit


@dataclass(frozen=True)
class Omnibus:
    """Likelihood ratio of the full order of a fit against free means and covariances.

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
    """

    statistic: float = float("nan")
    dof: float = float("nan")
    p_value: float = float("nan")
    loglik: float = float("nan")
    reason: str = ""
    robust: bool = False

    def __str__(self) -> str:
        if self.reason:
            return f"no omnibus test: {self.reason}"
        return f"omnibus χ² = {self.statistic:.1f} on {self.dof:.4g} degrees of freedom, p = {self.p_value:.3g}"


@clear_numerics
def omnibus_test(fit: Fit, m: Moments, data: Samples | None = None) -> Omnibus:
    """Test a fit against the saturated model.

    The paper's appendix G leaves such a test to future work.

    Parameters
    ----------
    fit : Fit
        Its order, targets and kinds of interventions are tested; every earlier latent may be a parent, so that the
        choice of edges plays no part.
    m : Moments
        The data it was fitted to, K + 1 contexts and p features. Contexts that the fit does not know are left out.
    data : (X, contexts), or a list of such pairs, optional
        The samples (n, p) behind ``m`` and the context of each row: then the test holds for any law of the noises.
        Without, they are taken as Gaussian.

    Returns
    -------
    Omnibus

    Notes
    -----
    The test takes the order of the fit as given. With an order that is not the best one the p-value is too small.

    Examples
    --------
    >>> import latentdag as ld
    >>> m = ld.simulate.sample_moments(ld.simulate.random_model(n_latents=3, n_features=4, rng=1), 2_000, rng=1)
    >>> print(omnibus_test(ld.fit(m), m))
    omnibus χ² = 11.6 on 15 degrees of freedom, p = 0.707
    """
    check_design(m)
    missing = [c for c in fit.model.contexts if c not in m.contexts]
    if missing:
        raise ValueError(f"the fit has a context {missing[0]!r} that the moments lack: pass the data it was fitted to")
    m = m.select(fit.model.interventions)
    kinds = {c: _kind(fit, [change.kind for change in v.changes.values()]) for c, v in fit.model.interventions.items()}
    if "do" in kinds.values():
        return Omnibus(reason="a latent that is set to a value has no density")
    means = fit.options.means
    alone = next((k for k in range(len(m.contexts)) if no_inverse(m, k) or m.counts[k] < 3), None)
    if alone is not None:
        return Omnibus(reason=f"context {m.contexts[alone]!r}: {no_inverse(m, alone) or 'it has two samples'}")
    up = fit.options.unintervened
    chosen = Options(targets=fit.targets, intervention=kinds, means=means, shrinkage=False, unintervened=up)
    prepared = prepare(m, chosen)
    design = prepared.design
    order = tuple(prepared.latents.index(name) for name in fit.order)
    H = fit.model.reordered(prepared.latents).unmixing @ np.linalg.pinv(prepared.W)
    parents = full_parents(order)
    best = maximize(design, H, parents)
    if best is None:
        return Omnibus(reason="the full order has no finite likelihood: the covariances are too near singular")
    if not best.converged:
        warnings.warn(f"omnibus test: {best.gain:.3g} nats short of the maximum", LatentDAGWarning, stacklevel=2)
    found = goodness(design, best.value, parents, order)
    if found.dof <= 0:
        return Omnibus(reason="a model of this kind fits any moments of so few contexts")
    statistic, dof, p_value = found.statistic, float(found.dof), float(stats.chi2.sf(found.statistic, found.dof))
    if data is not None:
        model = noises(design, best, parents)
        if len(design.n) * model.n_moments > MOMENTS_UP_TO:
            return Omnibus(reason="too many moments for the test without Gaussian samples; data=None assumes them")
        Gamma = _error_covariances(m, prepared, model, data)
        statistic, dof, p_value = moment_matched_p_value(statistic, *matched_traces(model, Gamma))
    return Omnibus(statistic, dof, p_value, -found.nats, robust=data is not None)


def _error_covariances(m: Moments, prepared: Prepared, model: Noises, data: Samples) -> np.ndarray:
    """Return the covariance of the errors in the moments of every context, from a second pass over the samples."""
    means = model.point.tau is not None
    sums = [CrossCovariance(model.n_moments, model.n_moments) for _ in m.contexts]
    for k, block in deviations(data, m):
        shift = m.means[k] - m.means[0] if means else 0.0
        for eps, products in weighted_products((block + shift) @ (model.F[k] @ prepared.W).T - model.nu[k]):
            errors = np.hstack([products, eps]) if means else products
            sums[k].add(errors, errors)
    return np.array([each.value() for each in sums])


def _kind(fit: Fit, kinds: list[str]) -> str:
    """Return the kind of one context's intervention.

    A soft intervention on what turned out to be a source is stored as perfect; the options know better.
    """
    if "do" in kinds:
        return "do"
    return "soft" if "soft" in kinds or fit.options.intervention == "soft" else "perfect"
