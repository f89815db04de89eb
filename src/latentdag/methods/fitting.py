"""``fit``: the one door to the methods."""

from collections.abc import Sequence
from dataclasses import replace
from inspect import getdoc
from typing import Any

import numpy as np

from latentdag.data import labels as lb
from latentdag.data.checks import UNITS_IN_A_PLANE, check_design, check_units
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples, context_blocks
from latentdag.errors import clear_numerics
from latentdag.methods import fit_closed_form, fit_exact, fit_likelihood, fit_projection
from latentdag.methods.options import Options
from latentdag.methods.orientation import oriented
from latentdag.methods.reduction import reduction_of
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.uncertainty.changed import changed, idle_contexts

__all__ = ["METHODS", "Fit", "check_design", "fit"]

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
    data: Samples | None = None,
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
    data : (X, contexts), or a list of such pairs, optional
        The samples behind ``m``. The fit rests on moments alone; with the samples, contexts in which nothing changed
        (``fit.idle``) are found without taking the samples for Gaussian: see :func:`latentdag.changed`.
    **options
        Of the method, as :class:`latentdag.Options` takes them. The fit keeps them, defaults included, as
        ``fit.options``:

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
    check_design(m)  # first: whoever passes X and y should read of moments, and not of methods
    chosen = Options.named(method, options)
    if m.range.shape[1] < m.n_features:
        check_units(m, UNITS_IN_A_PLANE)
    # steps of a search that leave the numbers are turned down like any that lead nowhere; the model must be finite
    with np.errstate(all="ignore"):
        if method == "likelihood":
            asked: dict[str, Any] = {"start": start, "n_jobs": n_jobs, "progress": progress, "data": data}
            found = _fit_likelihood(m, chosen, asked)
            if chosen.noise == "auto" and m.noise is None and _has_background(found):
                exact = fit_likelihood(m, replace(chosen, noise="none"), **asked)
                found = found if found.bic < exact.bic else _taken_for_exact(exact, found)
        elif start is not None:
            raise TypeError(f"method {method!r} searches nothing, so it takes no start")
        else:
            found = METHODS[method](m, chosen)
    found = found if method == "exact" else with_idle(found, m, data)
    found = found if m.basis is None or found.model.basis is not None else found.in_features(m.basis)
    return oriented(found)


def _with_options(text: str) -> str:
    """Return the docstring of a function with all options of the methods, as :class:`Options` describes them."""
    described = (getdoc(Options) or "").partition("\ntargets : ")[2].partition("\n\nExamples")[0]
    return text.replace("\n\nReturns\n", f"\ntargets : {described}\n\nReturns\n", 1)


fit.__doc__ = _with_options(getdoc(fit) or "")


def _fit_likelihood(m: Moments, options: Options, asked: dict[str, Any]) -> Fit:
    """Fit by likelihood; to exact features, where noise was only looked for and leads to no model at all.

    Far from the model it can: factors grow without bound. What is wrong with the data is wrong for exact features, too.
    """
    try:
        return fit_likelihood(m, options, **asked)
    except (np.linalg.LinAlgError, ValueError):
        if options.noise != "auto" or m.noise is not None:
            raise
        exact = fit_likelihood(m, replace(options, noise="none"), **asked)
        return replace(exact, options=options, details={**exact.details, "noise_unbounded": True})


def _has_background(fit: Fit) -> bool:
    """Return whether noise of features came with factors that no context targets.

    BIC let their covariances differ between contexts, and the model does not: it may explain much less.
    """
    return bool(fit.model.feature_noise is not None and fit.details["n_factors"] > fit.model.n_latents)


def _taken_for_exact(exact: Fit, noisy: Fit) -> Fit:
    """Return the fit to exact features, which has the better BIC, with what was asked for."""
    told = {"noise_bic": {"noise": noisy.bic, "exact": exact.bic}}
    return replace(exact, options=noisy.options, details={**exact.details, **told})


def with_idle(found: Fit, m: Moments, data: Samples | None = None) -> Fit:
    """Return a fit that knows which contexts are idle, by what its method uses of the moments.

    The method "exact" takes moments as exact, whatever their counts, so it has nothing to test.
    """
    if found.model.feature_noise is not None:  # what noise of many features hides shows in the latents
        H = found.model.seen_by(m).unmixing
        m, data = _mixtures(H, found.latents, m.with_shared_noise(), data)
    table = changed(m, data, targets=found.targets, means=found.options.get("means", False))
    told = table[["p_holm", "p_apart_holm", "reason"]].astype(object)
    tested = dict(zip(lb.text_names(m.contexts[1:]), told.where(table.notna(), None).to_dict("records"), strict=True))
    idle = {*idle_contexts(table), *(c for c, names in found.targets.items() if not names)}
    return replace(found, idle=tuple(c for c in m.contexts if c in idle), details={**found.details, "changed": tested})


def in_factors(
    m: Moments,
    data: Samples | None = None,
    noise: Any = "none",
    n_latents: int | None = None,
    at_least: int | None = None,
) -> tuple[Moments, Samples | None]:
    """Return moments, and samples, of the factors that noisy features share; as they are where features are exact.

    The factors hold all that the features say about latents, in fewer dimensions, so tests on them see more. Noise that
    differs between contexts by counting is made the same in all. There are at least as many factors as contexts, each
    with a latent of its own, unless it is said that fewer may do.
    """
    shared = m.with_shared_noise()
    d = (m.n_contexts if at_least is None else at_least) if n_latents is None else n_latents
    if noise == "none" and (m.noise is None or m.n_features <= d):
        return shared, data
    reduction, _ = reduction_of(m, m.counts.astype(float), d, Options(noise=noise, n_latents=n_latents))
    if reduction is None:
        return shared, data
    return _mixtures(reduction.W, [f"factor {i + 1}" for i in range(reduction.r)], shared, data)


def _mixtures(W: np.ndarray, names: Sequence[str], m: Moments, data: Samples | None) -> tuple[Moments, Samples | None]:
    """Return moments, and samples, of the named mixtures ``W x`` of features."""
    labels: dict[str, Any] = {"contexts": m.contexts, "control": m.control, "feature_names": names}
    mixed = Moments.from_covariances(W @ m.covariances @ W.T, m.counts, means=m.means @ W.T, **labels)
    if data is None:
        return mixed, None
    blocks = context_blocks(data, m.contexts, len(m.source_features), m.basis)
    return mixed, [(X @ W.T, [m.contexts[k]] * len(X)) for k, X in blocks]
