"""How the numbers were made: methods in words, whom to cite, versions, options, and a hash of the data."""

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from latentdag import __version__
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.methods.result import Fit
from latentdag.report.evidence import Evidence

PAPER = {
    "authors": "Chandler Squires, Anna Seigal, Salil Bhate, Caroline Uhler",
    "title": "Linear Causal Disentanglement via Interventions",
    "venue": "Proceedings of the 40th International Conference on Machine Learning (ICML)",
    "year": 2023,
    "preprint": "arXiv:2211.16467",
}

BIBTEX = """@inproceedings{squires2023linear,
  title     = {Linear Causal Disentanglement via Interventions},
  author    = {Squires, Chandler and Seigal, Anna and Bhate, Salil and Uhler, Caroline},
  booktitle = {Proceedings of the 40th International Conference on Machine Learning},
  year      = {2023},
  note      = {arXiv:2211.16467}
}"""

MODEL = (
    "The features X are a linear mixture of latent variables Z that nobody measured. The latents follow linear "
    "structural equations along an acyclic graph, and every context but the control perturbs them: each latent is "
    "named after the contexts that hit it (Squires et al., 2023). An edge means a direct effect between latents."
)

HOW = {
    "likelihood": (
        "The model was fitted by maximum likelihood to the mean and covariance of every context, with a search over "
        "causal orders and graphs. An edge stays if it is worth more than {penalty:.3g} nats of log-likelihood."
    ),
    "closed-form": (
        "Each latent was computed in closed form from the covariances of its own context and the control; an edge "
        "stays if it is worth more than {penalty:.3g} nats of log-likelihood. Nothing was optimised, so there are no "
        "standard errors."
    ),
    "projection": (
        "The model was fitted with the paper's Algorithms 4–6 (iterative difference projection) on the sample "
        "precision matrices, γ = {gamma:g}. There are no standard errors."
    ),
    "exact": "The model was computed with the paper's Algorithms 1–3, which take the moments as exact.",
}

ERRORS = (
    "Intervals hold {level:g} % of the time {robust}for the graph as it stands, each edge by itself; nothing in them "
    "knows that the graph was chosen from the same data. q-values are Benjamini and Hochberg's over all pairs of "
    "latents forward in the order, with p = 1 for pairs without an edge."
)

RANK = (
    "The rank tests are likelihood-ratio tests on the generalised eigenvalues of each context's covariance and the "
    "control's: a perturbation of a single latent changes at most two directions, of a source only one. {note}"
)

UNITS = (
    "Standardised effects are between latents of unit variance in the control: a change of the cause by one standard "
    "deviation moves the effect by so many of its own. The sign and unit of a latent are conventions (the largest "
    "entry of its row in the unmixing matrix is +1), so the sign of a single edge is one as well; what a perturbation "
    "does to a feature is not."
)


def methods_text(
    fit: Fit, evidence: Evidence, level: float, robust: bool, bootstrapped: dict[str, Any] | None
) -> list[str]:
    """Return the methods section of a report, one string per paragraph."""
    values = {"penalty": float(fit.details.get("penalty", np.nan)), "gamma": fit.options.gamma}
    how = HOW.get(fit.method, f"The model was fitted with method {fit.method}.").format(**values)
    if "intervention" in fit.options:
        kind = fit.options.intervention
        how += (
            f" Interventions were taken as {kind}." if isinstance(kind, str) else " Interventions are of several kinds."
        )
    if "means" in fit.options:
        how += " Shifts of the mean were used." if fit.options["means"] else " Means were left free."
    text = [MODEL, how]
    if fit.method == "likelihood":
        text.append(ERRORS.format(level=100 * level, robust="" if robust else "if the noise is Gaussian, and "))
    if evidence.ranks:
        text.append(RANK.format(note=next(iter(evidence.ranks.values())).attrs.get("note", "")))
    if bootstrapped:
        text.append(
            f"The bootstrap ({bootstrapped['kind']}, {bootstrapped['n_replicates']} replicates, seed "
            f"{bootstrapped['seed']}) repeats the whole procedure, the search for a graph included."
        )
    return [*text, UNITS]


def citation() -> dict[str, Any]:
    """Return what to cite: the paper, and this software."""
    return {**PAPER, "bibtex": BIBTEX, "software": f"latentdag {__version__}"}


def versions() -> dict[str, str]:
    """Return the versions of Python and of every package that computes."""
    found = {"latentdag": __version__, "Python": platform.python_version()}
    for name in ("numpy", "scipy", "pandas", "networkx", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # running from a bundle without metadata
            found[name] = "unknown"
    return found


def moments_hash(m: Moments) -> str:
    """Return the SHA-256 of labels, names, counts, means and covariances; it is the same on any machine."""
    names = [[repr(lb.as_label(c)) for c in m.contexts], repr(m.control), list(m.feature_names)]
    found = hashlib.sha256(repr(names).encode("utf-8", "backslashreplace"))
    found.update(np.ascontiguousarray(m.counts, dtype="<i8").tobytes())
    for array in (m.means, m.covariances):
        found.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return found.hexdigest()
