"""How the numbers were made: methods in words, whom to cite, versions, options, and a hash of the data."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from latentdag import __version__
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.inference.resampling import digest
from latentdag.methods.result import Fit
from latentdag.report.evidence import Evidence
from latentdag.report.text import WORDS


def methods_text(
    fit: Fit, evidence: Evidence, level: float, robust: bool, bootstrapped: dict[str, Any] | None
) -> list[str]:
    """Return the methods section of a report, one string per paragraph."""
    words = WORDS["methods"]
    how = words["how"].get(fit.method, f"The model was fitted with method {fit.method}.")
    how = how.format(penalty=float(fit.details.get("penalty", np.nan)), gamma=fit.options.gamma)
    if "intervention" in fit.options:
        kind = fit.options.intervention
        how += words["kind" if isinstance(kind, str) else "kinds"].format(kind=kind)
    if "means" in fit.options:
        how += words["means" if fit.options["means"] else "no_means"]
    text = [words["model"], how]
    if "changed" in fit.details:
        text.append(words["changed"])
    if fit.method == "likelihood":
        noise = "" if robust else "if the noise is Gaussian, and "
        text.append(words["errors"].format(level=100 * level, robust=noise))
    if evidence.ranks:
        text.append(words["rank"].format(note=next(iter(evidence.ranks.values())).attrs.get("note", "")))
    if bootstrapped:
        text.append(words["bootstrap"].format(**bootstrapped))
    return [*text, words["units"]]


def citation() -> dict[str, Any]:
    """Return what to cite: the paper, and this software."""
    return {**WORDS["citation"], "software": f"latentdag {__version__}"}


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
    """Return the SHA-256 of labels, names, counts, means, covariances and noise; it is the same on any machine."""
    names = [[repr(lb.as_label(c)) for c in m.contexts], repr(m.control), list(m.feature_names)]
    known = () if m.noise is None else (m.noise.astype("<f8"),)
    return digest(repr(names), m.counts.astype("<i8"), m.means.astype("<f8"), m.covariances.astype("<f8"), *known)
