"""Which way a latent grows: moments leave its sign open, and readers need one that means something.

Flipping the sign of a latent flips its loadings and the weights of its edges, and changes no law. In every face of a
fit a latent grows where its own perturbation moves it, if that shifts its mean for certain; then all perturbations that
raise (or all that lower) what they target show edges with the sign of what they do. Else it grows with the feature that
weighs most in its row of H, as in the paper (Assumption 1(c)).
"""

from dataclasses import replace

import numpy as np
from scipy import stats

from latentdag.core.linalg import max_entry_scale
from latentdag.methods.result import Fit, named_graph

#: Probability that any shift passes for certain where no mean is shifted.
DOUBT = 1e-3

#: What a latent's sign means, in words.
PERTURBED = "where its own perturbation moves it"
FEATURE = "with the feature that weighs most in its score, all else equal"


def oriented(fit: Fit) -> Fit:
    """Return the fit with every latent's sign chosen, and by what, in ``details["orientation"]``."""
    model = fit.model
    z = _shifts(fit)
    certain = np.abs(z) > stats.norm.isf(0.5 * DOUBT / max(len(model.interventions), 1))
    sign = np.where(np.where(certain, z, max_entry_scale(model.unmixing)) < 0, -1.0, 1.0)
    told = {name: "perturbation" if sure else "feature" for name, sure in zip(model.latents, certain, strict=True)}
    details = {**fit.details, "orientation": {name: told[name] for name in fit.order}}
    if "responses" in details:
        by_name = dict(zip(model.latents, sign.tolist(), strict=True))
        details["responses"] = [[c, j, i, by_name[j] * by_name[i] * R] for c, j, i, R in details["responses"]]
    model = model.rescaled(sign)
    graph = named_graph(model, fit.fitted_graph.edges)
    return replace(fit, model=model, graph=graph, fitted_graph=None, details=details)


def signs_mean(fit: Fit) -> str:
    """Return one sentence about what the signs of a fit's latents mean, or nothing where nobody chose them."""
    told = list(fit.orientation.values())
    moved = told.count("perturbation")
    if not told:
        return ""
    if moved in (0, len(told)):
        return f"Each latent grows {PERTURBED if moved else FEATURE}."
    return f"{moved} of {len(told)} latents grow {PERTURBED.replace('its', 'their')}, the others {FEATURE}."


def _shifts(fit: Fit) -> np.ndarray:
    """Return z (d,) of the clearest shift of each latent's mean against the control, in a context that targets it.

    Contexts that target it alone have the say, if there are any. Zero where the fit does not use means.
    """
    model, z = fit.model, np.zeros(fit.model.n_latents)
    if not fit.options.get("means", True):
        return z
    laws = [model.law(context) for context in model.contexts]
    means, counts = np.array([law.latent_mean for law in laws]), np.array(fit.counts)
    variance = np.array([np.diagonal(law.latent_covariance) for law in laws])
    if model.feature_noise is not None:  # latents are seen through it
        variance = variance + np.square(model.unmixing) @ model.feature_noise
    error = variance / counts[:, None]
    clear = (means - means[0]) / np.sqrt(error + error[0])
    for i, name in enumerate(model.latents):
        hit = {k: len(v.targets) for k, v in enumerate(model.interventions.values(), start=1) if name in v.targets}
        alone = [k for k, size in hit.items() if size == min(hit.values())]
        if alone:
            z[i] = max(clear[alone, i], key=abs)
    return z
