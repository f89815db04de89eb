"""Refuse moments that no method can use: without a control, without a second context, or in units too far apart."""

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.moments import Moments

#: Largest over smallest deviation of the features: beyond, numbers in their units do not stand beside each other. Where
#: they have fewer dimensions than they are, the unmixing is a pseudo-inverse and loses digits with the square of it: at
#: 1e7 a covariance is off by 2e-6 of itself at most (40 random models), at 1e10 by all of itself.
UNITS, UNITS_IN_A_PLANE = 1e12, 1e7


def check_design(m: Moments) -> None:
    """Refuse moments without what every method needs: a named control, another context, features that vary."""
    if not isinstance(m, Moments):
        raise TypeError(
            f"fit takes Moments, got {type(m).__name__}: build them with Moments.from_samples(X, contexts, …)"
        )
    if m.control is None:
        raise ValueError(
            "these moments name no control context; the contexts are "
            f"{lb.count_table(m.contexts, m.counts)}: name one, or find it with latentdag.observational_contexts"
        )
    if len(m.contexts) < 2:
        raise ValueError(
            f"only the context {m.control!r} is present: at least one context with an intervention is needed"
        )
    variances = np.diagonal(m.covariances, axis1=1, axis2=2)
    constant = [name for name, v in zip(m.feature_names, variances.T, strict=True) if not v.any()]
    if constant:
        listed = ", ".join(map(repr, constant[:5])) + (", …" if len(constant) > 5 else "")
        raise ValueError(f"{len(constant)} features are constant in every context: drop {listed}")
    check_units(m, UNITS)


def check_units(m: Moments, most: float) -> None:
    """Refuse features in units so different that numbers in them cannot stand beside each other."""
    deviation = np.sqrt(np.diagonal(m.covariances, axis1=1, axis2=2).max(axis=0))
    small, large = int(np.argmin(deviation)), int(np.argmax(deviation))
    if deviation[large] > most * deviation[small]:
        raise ValueError(
            f"features {m.feature_names[small]!r} and {m.feature_names[large]!r} have deviations of "
            f"{deviation[small]:.3g} and {deviation[large]:.3g}: give them units in which they are alike, for example "
            "divide each feature by its deviation in the control"
        )
