"""Checks that counts, means and covariances must pass to become moments, and moments to be fitted.

Messages name the context and the feature.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.core.linalg import symmetrize
from latentdag.data import labels as lb

if TYPE_CHECKING:  # moments are made further up
    from latentdag.data.moments import Moments

#: Smallest and largest standard deviation, and largest mean. Sums of their fourth powers are still float64 numbers.
SMALLEST, LARGEST = 1e-70, 1e70

#: Standard errors by which a variance may fall below the noise that is part of it: chance, over all features.
CHANCE = 5.0


def check_distinct(present: list[Hashable]) -> list[Hashable]:
    """Return labels of contexts; refuse what :func:`latentdag.data.labels.check_labels` refuses, and repeated ones."""
    lb.check_labels(present)
    repeated = [label for label, times in Counter(present).items() if times > 1]
    if repeated:
        raise ValueError(f"context label {repeated[0]!r} occurs more than once: merge its moments with + first")
    return present


def check_sizes(means: np.ndarray, covariances: np.ndarray, contexts: Sequence[Hashable], names: Sequence[str]) -> None:
    """Complain about a feature whose mean or deviation, in any context (K, p), is too large or too small."""
    variances = np.abs(np.diagonal(covariances, axis1=1, axis2=2))  # rounding can leave residuals below zero
    large = ~(variances <= LARGEST**2) | ~(np.abs(means) <= LARGEST)
    small = (variances < SMALLEST**2) & (variances != 0)
    for wrong, what in ((large, "large"), (small, "small")):
        if wrong.any():
            k, j = np.argwhere(wrong)[0]
            raise ValueError(
                f"context {contexts[k]!r}: the values of feature {names[j]!r} are too {what} (mean {means[k, j]:.3g}, "
                f"standard deviation {np.sqrt(variances[k, j]):.3g}; {SMALLEST:g} to {LARGEST:g} can be worked with): "
                "give it other units"
            )


def check_probability(name: str, value: float) -> None:
    """Complain about a level that is not between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is a probability between 0 and 1, got {value}")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Complain about a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a whole number that is large enough."""
    if not (isinstance(value, int | float | np.integer | np.floating) and value % 1 == 0 and value >= least):
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}")
    return int(value)


def check_counts(counts: Any, present: Sequence[Hashable]) -> np.ndarray:
    """Return one positive whole count per context (K+1,); one number stands for all of them."""
    n = np.asarray(counts)
    n = np.full(len(present), n) if n.ndim == 0 else n
    if n.shape != (len(present),):
        raise ValueError(f"counts must be one number or one per context ({len(present)}), got shape {n.shape}")
    for label, count in zip(present, n, strict=True):
        if not (np.isfinite(count) and count >= 1 and count == int(count)):
            raise ValueError(f"context {label!r}: the count must be a positive whole number, got {count}")
    return n.astype(np.int64)


def check_noise(
    noise: Any, covariances: np.ndarray, counts: np.ndarray, contexts: Sequence[Hashable], names: Sequence[str]
) -> np.ndarray:
    """Return variances of measurement noise (K+1, p) that can be part of the covariances.

    Parameters
    ----------
    noise : (K+1, p), or (p,) for the same in all contexts, or a mapping from features that have noise to variances
    covariances : (K+1, p, p)
    counts : (K+1,)
        A sample variance of noise alone is below the noise in half of all samples; its standard error is √(2/n) of it.
    contexts, names : labels of contexts, names of features
    """
    size = (len(contexts), len(names))
    if isinstance(noise, Mapping):
        unknown = [name for name in noise if name not in names]
        if unknown:
            raise ValueError(f"there is no feature {unknown[0]!r} to have noise; features are {lb.listed(names)}")
        noise = [noise.get(name, 0.0) for name in names]
    made = np.array(noise, dtype=float)
    if made.shape not in (size, size[1:]):
        raise ValueError(f"noise must hold one variance per feature, {size[1:]} or {size}, got shape {made.shape}")
    made = np.broadcast_to(made, size).copy()
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    least = (1 - CHANCE * np.sqrt(2 / counts))[:, None] * made
    wrong = np.argwhere(~(np.isfinite(made) & (made >= 0)))
    if len(wrong):
        k, j = wrong[0]
        raise ValueError(f"context {contexts[k]!r}: the noise of feature {names[j]!r} is {made[k, j]}, no variance")
    wrong = np.argwhere(variances < least)
    if len(wrong):
        k, j = wrong[0]
        raise ValueError(
            f"context {contexts[k]!r}: the noise of feature {names[j]!r} is {made[k, j]:.4g}, more than its variance "
            f"{variances[k, j]:.4g}, of which it is a part (features concerned: {len(np.unique(wrong[:, 1]))}): leave "
            "the feature out, or state less noise; of counts, this says that they are no single counts, or that row "
            "totals over few features are a poor depth: say depth=…"
        )
    return made


def check_values(S: np.ndarray, mean: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    """Check that a mean and a covariance are finite, and the covariance symmetric."""
    if not np.isfinite(mean).all():
        j = int(np.argmax(~np.isfinite(mean)))
        raise ValueError(f"context {label!r}: the mean of feature {names[j]!r} is {mean[j]}")
    if not np.isfinite(S).all():
        i, j = np.argwhere(~np.isfinite(S))[0]
        raise ValueError(f"context {label!r}: the covariance of {names[i]!r} and {names[j]!r} is {S[i, j]}")
    check_sizes(mean[None], S[None], [label], names)
    scale = np.sqrt(np.abs(np.diagonal(S)))
    with np.errstate(over="ignore"):
        gap = np.abs(S - S.T)
    if (gap > 1e-8 * np.maximum(np.outer(scale, scale), 1e-300)).any():
        i, j = divmod(int(np.argmax(gap)), len(S))
        raise ValueError(
            f"context {label!r}: the covariance is not symmetric: [{names[i]!r}, {names[j]!r}] is {S[i, j]:.6g} but "
            f"[{names[j]!r}, {names[i]!r}] is {S[j, i]:.6g}"
        )


def check_covariance(S: np.ndarray, mean: np.ndarray, label: Hashable, names: Sequence[str]) -> None:
    """Check a covariance that a user gives: as :func:`check_values`, and positive semi-definite.

    Files are not asked for eigenvalues, which take longer than reading them.
    """
    check_values(S, mean, label, names)
    scale = np.sqrt(np.abs(np.diagonal(S)))
    safe = np.where(scale > 0, scale, 1.0)
    smallest = np.linalg.eigvalsh(symmetrize(S) / np.outer(safe, safe))[0]
    if smallest < -1e-8:
        raise ValueError(
            f"context {label!r}: the covariance is not positive semi-definite (smallest eigenvalue of the "
            f"correlation matrix {smallest:.3g}); was it rounded, or a precision matrix given instead?"
        )


#: Largest over smallest deviation of the features: beyond, numbers in their units do not stand beside each other. Where
#: they have fewer dimensions than they are, the unmixing is a pseudo-inverse and loses digits with the square of it: at
#: 1e7 a covariance is off by 2e-6 of itself at most (40 random models), at 1e10 by all of itself.
UNITS, UNITS_IN_A_PLANE = 1e12, 1e7


def check_design(m: "Moments") -> None:
    """Refuse moments without what every method needs: a named control, another context, features that vary."""
    if not hasattr(m, "covariances"):
        raise TypeError(
            f"fit takes Moments, got {type(m).__name__}: make them with "
            "latentdag.Moments.from_samples(X, contexts, control=…), and fit those"
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
        raise ValueError(f"{len(constant)} features are constant in every context: drop {lb.listed(constant, 5)}")
    check_units(m, UNITS)


def check_units(m: "Moments", most: float) -> None:
    """Refuse features in units so different that numbers in them cannot stand beside each other."""
    deviation = np.sqrt(np.diagonal(m.covariances, axis1=1, axis2=2).max(axis=0))
    small, large = int(np.argmin(deviation)), int(np.argmax(deviation))
    if deviation[large] > most * deviation[small]:
        raise ValueError(
            f"features {m.feature_names[small]!r} and {m.feature_names[large]!r} have deviations of "
            f"{deviation[small]:.3g} and {deviation[large]:.3g}: give them units in which they are alike, for example "
            "divide each feature by its deviation in the control"
        )
