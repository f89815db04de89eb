"""Generalised eigenvalues of each context against the control, with the band in which they stay if nothing changed.

A perfect intervention on one latent changes the covariance by rank two at most: one eigenvalue above the band and one
below it, or a single one for a source. More outside the band mean more than one target, or a law that is not Gaussian.

The band comes from Johnstone's approximation to the largest eigenvalue of one Wishart matrix against another (Ann.
Statist. 2008): on the logarithmic scale it follows the Tracy–Widom law up to shift and scale, accurately even for a
few dimensions. The smallest is the largest with the two matrices swapped.
"""

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from latentdag.core.linalg import symmetrize
from latentdag.data.moments import Moments
from latentdag.pl.canvas import LINE, NEGATIVE, NEUTRAL, POSITIVE, axes, name_ticks, name_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Quantiles of the Tracy–Widom law of order one (Bejan's tables), by probability.
TRACY_WIDOM = {0.95: 0.9793, 0.975: 1.4538, 0.99: 2.0234, 0.995: 2.4224}


def spectra(m: Moments, ax: "Axes | None" = None, *, level: float = 0.95, title: str | None = None) -> "Axes":
    """Draw the generalised eigenvalues of every context's covariance against the control's.

    Eigenvalues above the band are blue, below it orange. The band holds all eigenvalues of a context that is like the
    control with probability ``level``; with Gaussian samples.

    Parameters
    ----------
    m : Moments
        With a control of more samples than dimensions.
    ax : matplotlib axes, optional
    level : 0.9, 0.95, 0.98 or 0.99
    title : optional
    """
    values = eigenvalues(m)
    contexts, r = m.contexts[1:], values.shape[1]
    bands = np.array([null_band(r, int(m.counts[0]) - 1, int(n) - 1, level) for n in m.counts[1:]])
    names = [str(context) for context in contexts]
    ax = axes(ax, max(4.5, LINE * max(len(names), 1) + 1.4), 3.4 + name_width(names, 8))
    positive = values[values > 0]
    floor = 0.5 * min(positive.min(), bands[:, 0][bands[:, 0] > 0].min(initial=np.inf))
    for k, (low, high) in enumerate(bands):
        ax.fill_between([k - 0.45, k + 0.45], max(low, floor), high, color="#e4e4e4", linewidth=0, zorder=0)
        found = values[k]
        for chosen, colour, size in (
            ((found >= low) & (found <= high), NEUTRAL, 5),
            (found > high, POSITIVE, 18),
            (found < low, NEGATIVE, 18),
        ):
            shown = np.maximum(found[chosen], floor)  # a zero has no logarithm
            ax.scatter(np.full(len(shown), k), shown, s=size, color=colour, linewidths=0, zorder=2)
    ax.axhline(1.0, color="#999999", linewidth=0.6, zorder=1)
    ax.set_yscale("log")
    ax.set_xlim(-0.7, len(names) - 0.3)
    name_ticks(ax, names, along="x")
    ax.set_xlabel("context")
    ax.set_ylabel("generalised eigenvalues\nagainst the control")
    ax.yaxis.set_major_formatter("{x:g}")
    low, high = ax.get_ylim()
    between = "25" if high < 1000 * low else ""  # 0.2, 0.5, 2, 5 … where a few decades leave room
    ax.yaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in between else "")
    ax.set_title(title or f"grey: {100 * level:g} % of contexts like the control\n({r} dimensions)", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def eigenvalues(m: Moments) -> np.ndarray:
    """Return the generalised eigenvalues (K, r) of each context's covariance against the control's.

    They are computed within the r dimensions in which the data vary.
    """
    if m.control is None or len(m.contexts) < 2:
        raise ValueError("spectra compare contexts with a control: these moments need one of each")
    U = m.range
    S = symmetrize(U.T @ m.covariances @ U)
    if m.counts[0] <= S.shape[1]:
        raise ValueError(
            f"the control {m.control!r} has {m.counts[0]} samples in {S.shape[1]} dimensions, too few for spectra "
            "against it: use fewer features, for example principal components"
        )
    return np.array([np.maximum(linalg.eigh(S_k, S[0], eigvals_only=True), 0.0) for S_k in S[1:]])


def null_band(r: int, nu_0: int, nu_k: int, level: float = 0.95) -> tuple[float, float]:
    """Return the bounds of all r eigenvalues of two sample covariances of the same law, by degrees of freedom."""
    tail = round(1 - (1 - level) / 2, 6)
    if tail not in TRACY_WIDOM:
        raise ValueError(f"level must be one of {[round(2 * t - 1, 6) for t in TRACY_WIDOM]}, got {level}")
    high = _largest(r, nu_0, nu_k, TRACY_WIDOM[tail])
    return (1 / _largest(r, nu_k, nu_0, TRACY_WIDOM[tail]) if nu_k > r else 0.0), high


def _largest(r: int, below: int, above: int, s: float) -> float:
    """Return a quantile of the largest eigenvalue of one covariance (``above`` degrees of freedom) against another."""
    N = below + above - 1
    gamma = 2 * np.arcsin(np.sqrt((min(r, above) - 0.5) / N))
    phi = 2 * np.arcsin(np.sqrt((max(r, above) - 0.5) / N))
    shift = 2 * np.log(np.tan((phi + gamma) / 2))
    scale = (16 / (N**2 * np.sin(phi + gamma) ** 2 * np.sin(phi) * np.sin(gamma))) ** (1 / 3)
    return float(below / above * np.exp(shift + scale * s))
