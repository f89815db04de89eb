"""How often one latent came before another when the data were drawn again."""

from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.inference.stability import Bootstrap
from latentdag.pl.canvas import LINE, axes, name_ticks, name_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Latents up to which fractions are written into the squares.
WRITTEN = 12


def order_stability(bootstrap: Bootstrap, ax: "Axes | None" = None, *, title: str | None = None) -> "Axes":
    """Fraction of replicates in which the row's latent is an ancestor of the column's.

    Latents are in the fit's order, sources first, so a stable order leaves everything below the diagonal white. Frames
    are the ancestors of the fit itself.

    Parameters
    ----------
    bootstrap : Bootstrap
    ax : matplotlib axes, optional
    title : optional
    """
    share = bootstrap.precedence.to_numpy()
    names, d = list(bootstrap.latents), len(bootstrap.latents)
    side = max(2.4, LINE * 1.15 * d) + name_width(names, 8)
    ax = axes(ax, side + 1.6, side + 0.7)
    image = ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    name_ticks(ax, names, along="x")
    name_ticks(ax, names, along="y")
    for i, j in np.argwhere(bootstrap.fit_closure.T):
        ax.add_patch(_frame(i, j))
    if d <= WRITTEN:
        for i, j in np.argwhere(share > 0):
            colour = "white" if share[i, j] > 0.6 else "black"
            ax.text(j, i, f"{share[i, j]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    ax.set_xlabel("… of this latent")
    ax.set_ylabel("ancestor …")
    ax.figure.colorbar(
        image, ax=ax, label=f"fraction of {bootstrap.n_replicates} replicates", shrink=0.7, pad=0.02, aspect=25
    )
    ax.set_title(title or "frames: ancestors in the fit", fontsize=9)
    return ax


def _frame(i: int, j: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor="#c05621", linewidth=0.8)
