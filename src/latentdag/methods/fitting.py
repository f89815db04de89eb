"""``fit``: the one door to the methods."""

from typing import Any

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.errors import clear_numerics
from latentdag.methods import fit_closed_form, fit_exact, fit_likelihood, fit_projection
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel

__all__ = ["METHODS", "Fit", "check_design", "fit"]

#: Largest over smallest deviation of the features: beyond, numbers in their units do not stand beside each other. Where
#: they have fewer dimensions than they are, the unmixing is a pseudo-inverse and loses digits with the square of it: at
#: 1e7 a covariance is off by 2e-6 of itself at most (40 random models), at 1e10 by all of itself.
UNITS, UNITS_IN_A_PLANE = 1e12, 1e7

METHODS = {
    "closed-form": fit_closed_form,
    "projection": fit_projection,
    "exact": fit_exact,
}


@clear_numerics
def fit(
    m: Moments,
    method: str = "likelihood",
    *,
    start: LatentModel | None = None,
    n_jobs: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Fit:
    """Recover the latent causal model from moments.

    Parameters
    ----------
    m : Moments
    method : str
        ``"likelihood"``: maximum likelihood with a search for order and graph.
        ``"closed-form"``: each context's latent from its own pair of covariances; no search.
        ``"projection"``: the paper's finite-sample Algorithms 4–6.
        ``"exact"``: Algorithms 1–3 on moments that are exact.
    start : LatentModel, optional
        One more start for the search of ``"likelihood"``.
    n_jobs : int, optional
        Processes for that search, as in joblib; the answer does not depend on it.
    progress : bool, optional
        A bar on stderr once the search takes more than a few seconds; by default only where that is a terminal.
    **options
        Of the method: see :class:`latentdag.Options`. The fit keeps them, defaults included, as ``fit.options``.

    Returns
    -------
    Fit

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(rng=5)
    >>> m = simulate.sample_moments(truth, 2_500, rng=0)
    >>> found = fit(m)
    >>> set(found.graph.edges) == set(truth.graph.edges)
    True
    """
    chosen = Options.named(method, options)
    check_design(m)
    if m.range.shape[1] < m.n_features:
        _check_units(m, UNITS_IN_A_PLANE)
    # steps of a search that leave the numbers are turned down like any that lead nowhere; the model must be finite
    with np.errstate(all="ignore"):
        if method == "likelihood":
            return fit_likelihood(m, chosen, start=start, n_jobs=n_jobs, progress=progress)
        if start is not None:
            raise TypeError(f"method {method!r} searches nothing, so it takes no start")
        return METHODS[method](m, chosen)


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
    _check_units(m, UNITS)


def _check_units(m: Moments, most: float) -> None:
    """Refuse features in units so different that numbers in them cannot stand beside each other."""
    deviation = np.sqrt(np.diagonal(m.covariances, axis1=1, axis2=2).max(axis=0))
    small, large = int(np.argmin(deviation)), int(np.argmax(deviation))
    if deviation[large] > most * deviation[small]:
        raise ValueError(
            f"features {m.feature_names[small]!r} and {m.feature_names[large]!r} have deviations of "
            f"{deviation[small]:.3g} and {deviation[large]:.3g}: give them units in which they are alike, for example "
            "divide each feature by its deviation in the control"
        )
