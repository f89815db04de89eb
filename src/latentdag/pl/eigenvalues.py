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

from latentdag.data.moments import Moments
from latentdag.pl.canvas import LINE, NEGATIVE, NEUTRAL, POSITIVE, axes, labelled, name_ticks, name_width

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
    (K, r), names = values.shape, [str(context) for context in m.contexts[1:]]
    bands = np.array([null_band(r, int(m.counts[0]) - 1, int(n) - 1, level) for n in m.counts[1:]])
    ax = axes(ax, max(4.5, LINE * K + 1.4), 3.4 + name_width(names, 8))
    # a zero has no logarithm
    floor = 0.5 * min(values[values > 0].min(), bands[:, 0][bands[:, 0] > 0].min(initial=np.inf))
    low, high = np.maximum(bands.T, floor)
    ax.bar(range(K), high - low, 0.9, low, color="#e4e4e4", zorder=0)
    at, shown = np.broadcast_to(np.arange(K)[:, None], values.shape), np.maximum(values, floor)
    above, below = values > bands[:, 1:], values < bands[:, :1]
    for chosen, colour, size in ((~above & ~below, NEUTRAL, 5), (above, POSITIVE, 18), (below, NEGATIVE, 18)):
        ax.scatter(at[chosen], shown[chosen], s=size, color=colour, linewidths=0, zorder=2)
    ax.axhline(1.0, color="#999999", linewidth=0.6, zorder=1)
    ax.set(yscale="log", xlim=(-0.7, K - 0.3))
    name_ticks(ax, names, along="x")
    said = title or f"grey: {100 * level:g} % of contexts like the control\n({r} dimensions)"
    labelled(ax, "context", "generalised eigenvalues\nagainst the control", said)
    ax.yaxis.set_major_formatter("{x:g}")
    bottom, top = ax.get_ylim()
    between = "25" if top < 1000 * bottom else ""  # 0.2, 0.5, 2, 5 … where a few decades leave room
    ax.yaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in between else "")
    return ax


def eigenvalues(m: Moments) -> np.ndarray:
    """Return the generalised eigenvalues (K, r) of each context's covariance against the control's.

    They are computed within the r dimensions in which the data vary.
    """
    if m.control is None or len(m.contexts) < 2:
        raise ValueError("spectra compare contexts with a control: these moments need one of each")
    S = m.whitened.S
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
