"""Culprits: of a model that is refused, the contexts without which the others fit.

A context is *left out* with what it says about means and covariances, while its target stays a latent that may cause
others. To drop it altogether would put its latent among those that cause nothing, and refuse the others for that. What
leaving a context out gains is the part of the misfit that goes with it, beyond what noise and the degrees of freedom
explain. Far from the model every context can look wrong by itself. So contexts are culprits only if without them, three
at most, the others do fit one model, or nine tenths of the misfit is gone; or if each takes more than half of what is
left with it.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from scipy import stats

from latentdag.core.full_orders import FullOrder, best_full_order
from latentdag.core.goodness import Goodness, release
from latentdag.core.likelihood import Design
from latentdag.inference.omnibus import Joint, Omnibus, goodness_of

#: Contexts that are left out together at most.
AT_MOST = 3


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

    gain: dict[Hashable, float]
    culprits: tuple[Hashable, ...]
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
    unit = omnibus.statistic / joint.found.statistic
    share = omnibus.dof / joint.found.dof

    def p_value(found: Goodness) -> float:
        return float(stats.chi2.sf(unit * found.statistic, share * found.dof)) if found.dof > 0 else 1.0

    def excess(found: Goodness) -> float:
        return found.statistic - found.dof * share / unit

    design, best, found = joint.prepared.design, joint.best, joint.found
    whole, labels = excess(found), list(joint.m.contexts)
    out: list[Hashable] = []
    gain: dict[Hashable, float] = {}
    sure = LeftOut({}, ())
    for more in range(min(AT_MOST, len(labels) // 2), 0, -1):
        tried = {label: _searched(joint, release(design, k), best) for k, label in enumerate(labels) if k}
        left = {label: excess(fewer[2]) for label, fewer in tried.items()}
        gain = gain or {label: 1 - value / max(whole, 1e-300) for label, value in left.items()}
        label, before = min(left, key=lambda c: left[c]), excess(found)
        design, best, found = tried[label]
        if p_value(found) <= alpha and left[label] > (1 - 1 / more) * before:
            break  # so few contexts cannot account for it all
        if left[label] < before / 2 and p_value(found) <= alpha:  # refusing is worth a second look
            design, best, found = _searched(joint, design, best, lambda good: p_value(good) > alpha)
        labels.remove(label)
        out.append(label)
        if p_value(found) > alpha or excess(found) < whole / 10:
            return LeftOut(gain, tuple(out), p_value(found))
        if len(sure.culprits) == len(out) - 1 and excess(found) < before / 2:
            sure = LeftOut({}, tuple(out), p_value(found))
    return replace(sure, gain=gain)


def _searched(
    joint: Joint, design: Design, best: FullOrder, fits: Callable[[Goodness], bool] | None = None
) -> tuple[Design, FullOrder, Goodness]:
    """Return a design, its best order near a given one, and how well it fits.

    The search looks no further than near the given order, or, if it is told what ``fits``, until something does.
    """
    found = best_full_order(
        design, best.optimum.H, best.order, joint.permit, lambda full: fits is None or fits(goodness_of(design, full))
    )
    best = found or best
    return design, best, goodness_of(design, best)
