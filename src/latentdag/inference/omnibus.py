"""The omnibus test of a fit: is there any model of its kind that explains all contexts at once?

The rank test asks one context at a time. What the model says beyond it concerns all contexts together: noise rows are
orthonormal, every noise is left alone elsewhere, and the graph has no cycle. The likelihood ratio of the best
order against free means and covariances tests all of it (:mod:`latentdag.core.goodness`).

*Which contexts account for a refusal?* A context is *left out* with what it says about means and covariances, while its
target stays a latent that may cause others. To drop it altogether would put its latent among those that cause nothing,
and refuse the others for that. What leaving a context out gains is the part of the misfit that goes with it, beyond
what noise and the degrees of freedom explain. Far from the model every context can look wrong by itself. So contexts
are *culprits* only if without them, three at most, the others do fit one model, or nine tenths of the misfit is gone;
or if each takes more than half of what is left with it.
"""

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from latentdag.core.goodness import Goodness
from latentdag.data.checks import check_design
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples
from latentdag.errors import LatentDAGWarning, clear_numerics
from latentdag.inference.ranks import no_inverse
from latentdag.methods.design import edge_rules, prepare
from latentdag.methods.joint import Joint, Omnibus, joint_model, omnibus_of
from latentdag.methods.options import Options
from latentdag.methods.result import Fit

#: A p-value above which nobody refuses a model, so that no better order is looked for.
CLEAR = 0.05

#: Nats by which the maximum may be missed without a word: noise moves the statistic by far more.
SHORT = 0.1

#: Contexts that are left out together at most.
AT_MOST = 3


@clear_numerics
def omnibus_test(fit: Fit, m: Moments, data: Samples | None = None) -> Omnibus:
    """Test a fit against the saturated model.

    The paper's appendix G leaves such a test to future work.

    Parameters
    ----------
    fit : Fit
        Its targets and kinds of interventions are tested; every earlier latent may be a parent, so that the choice of
        edges plays no part. The order is the fit's or, unless it was given, a better one near it.
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
    Before it refuses, the test looks for a better order, and that can take as long as a fit.

    Examples
    --------
    >>> import latentdag as ld
    >>> m = ld.simulate.sample_moments(ld.simulate.random_model(n_latents=3, n_features=4, rng=1), 2_000, rng=1)
    >>> print(omnibus_test(ld.fit(m), m))
    omnibus χ² = 11.5 on 15 degrees of freedom, p = 0.714
    """
    joint = joint_fit(fit, m)
    return Omnibus(reason=joint) if isinstance(joint, str) else omnibus_of(joint, data)


def joint_fit(fit: Fit, m: Moments) -> Joint | str:
    """Return one model for all contexts of a fit, or why there is no test of it."""
    check_design(m)
    if not isinstance(fit, Fit):
        raise TypeError(f"fit must be what latentdag.fit returns, got {type(fit).__name__}")
    fit = fit.seen_by(m)
    missing = [c for c in fit.model.contexts if c not in m.contexts]
    if missing:
        raise ValueError(f"the fit has a context {missing[0]!r} that the moments lack: pass the data it was fitted to")
    m = m.select(fit.model.interventions)
    kinds = {c: _kind(fit, [change.kind for change in v.changes.values()]) for c, v in fit.model.interventions.items()}
    if "do" in kinds.values():
        return "a latent that is set to a value has no density"
    if too_small := no_covariance(m):
        return too_small
    told = fit.options
    kept = {"means": told.means, "unintervened": told.unintervened, "shrinkage": False, **fit.noise_options}
    chosen = Options(targets=fit.targets, intervention=kinds, strength=told.strength, **kept)
    prepared = prepare(m, chosen)
    order = tuple(prepared.latents.index(name) for name in fit.order)
    H = fit.model.reordered(prepared.latents).unmixing @ np.linalg.pinv(prepared.W)
    given = told.graph is not None or told.order is not None
    permit = edge_rules(prepared, 0.0, required=told.required).permit
    looked = (lambda other: other == order) if given else permit
    joint = joint_model(m, prepared, H, order, looked, lambda found: found.p_value > CLEAR)
    if joint is None:
        return "the full order has no finite likelihood: the covariances are too near singular"
    if joint.best.optimum.gain > SHORT:
        short = f"omnibus test: {joint.best.optimum.gain:.3g} nats short of the maximum"
        warnings.warn(short, LatentDAGWarning, stacklevel=3)
    return joint if joint.found.dof > 0 else "a model of this kind fits any moments of so few contexts"


def no_covariance(m: Moments) -> str:
    """Return which context has too few samples for a covariance of its own, and why; empty if all have enough."""
    alone = next((k for k in range(len(m.contexts)) if no_inverse(m, k) or m.counts[k] < 3), None)
    return "" if alone is None else f"context {m.contexts[alone]!r}: {no_inverse(m, alone) or 'it has two samples'}"


def _kind(fit: Fit, kinds: list[str]) -> str:
    """Return the kind of one context's intervention.

    A soft intervention on what turned out to be a source is stored as perfect; the options know better.
    """
    if "do" in kinds:
        return "do"
    return "soft" if "soft" in kinds or fit.options.intervention == "soft" else "perfect"


@dataclass(frozen=True)
class LeftOut:
    """What leaving contexts out does.

    Attributes
    ----------
    gain : mapping of context to float
        The share of the misfit that goes when this context alone is left out.
    culprits : contexts to leave out, the worst first; none if no few account for the misfit
    p_value : float
        Of the omnibus test of the others, without the culprits; nan without culprits.
    """

    gain: Mapping[Hashable, float] = field(default_factory=dict)
    culprits: tuple[Hashable, ...] = ()
    p_value: float = float("nan")


def leave_out(joint: Joint, omnibus: Omnibus, alpha: float) -> LeftOut:
    """Leave contexts of a refused model out, one after another, until the others fit.

    Parameters
    ----------
    joint : Joint
    omnibus : Omnibus
        Of the same model. Where it holds without Gaussian samples, its scale is used for the others as well.
    alpha : float
        The others fit if their p-value exceeds this.
    """
    # mean and variance of a statistic relative to those of Gaussian samples
    unit, share = omnibus.statistic / joint.found.statistic, omnibus.dof / joint.found.dof

    def p_value(found: Goodness) -> float:
        return float(stats.chi2.sf(unit * found.statistic, share * found.dof)) if found.dof > 0 else 1.0

    def excess(found: Goodness) -> float:
        return found.statistic - found.dof * share / unit

    left, whole, labels = joint, excess(joint.found), list(joint.m.contexts)
    gain: dict[Hashable, float] = {}
    out: tuple[Hashable, ...] = ()
    sure = LeftOut()
    for more in range(min(AT_MOST, len(labels) // 2), 0, -1):
        tried = {label: left.without(k) for k, label in enumerate(labels) if k}
        gain = gain or {label: 1 - excess(each.found) / max(whole, 1e-300) for label, each in tried.items()}
        label, before = min(tried, key=lambda c: excess(tried[c].found)), excess(left.found)
        left = tried[label]
        after, fits = excess(left.found), p_value(left.found) > alpha
        if not fits and after > (1 - 1 / more) * before:
            break  # so few contexts cannot account for it all
        if not fits and after < before / 2:  # refusing is worth a second look
            left = left.searched(lambda found: p_value(found) > alpha)
            after, fits = excess(left.found), p_value(left.found) > alpha
        labels.remove(label)
        out = (*out, label)
        if fits or after < whole / 10:
            return LeftOut(gain, out, p_value(left.found))
        if len(sure.culprits) == len(out) - 1 and after < before / 2:
            sure = LeftOut({}, out, p_value(left.found))
    return replace(sure, gain=gain)
