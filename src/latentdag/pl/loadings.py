"""The mixing as a heat map: which features each latent moves."""

from typing import TYPE_CHECKING, Any

import numpy as np

from latentdag.methods.result import Fit
from latentdag.pl.canvas import LINE, axes, fit_in, name_ticks, name_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Features shown, about, where the user does not say how many.
SHOWN = 90


def mixing(
    source: Any,
    ax: "Axes | None" = None,
    *,
    key: str = "latentdag",
    top: int | None = None,
    features: Any = None,
    title: str | None = None,
) -> "Axes":
    """What one standard deviation of each latent does to its strongest features, in their standard deviations.

    Both deviations are those in the control. Latents are listed sources first; features beside the latent that moves
    them most.

    Parameters
    ----------
    source : Fit, LatentModel, fitted LatentDAG, or AnnData
    ax : matplotlib axes, optional
    key : str
        For AnnData: the ``key_added`` of :func:`latentdag.tl.latentdag`.
    top : int, optional
        Strongest features of each latent; by default as many as make about 90 in all, 8 at most.
    features : names, optional
        These features instead, in this order.
    title : optional
    """
    found = fit_in(source, key)
    model = found.model if isinstance(found, Fit) else found
    effects = _effects(model)
    rows = [model.latents.index(name) for name in (found.order if isinstance(found, Fit) else model.latents)]
    effects = effects[:, rows]
    if features is not None:
        unknown = [name for name in features if name not in model.feature_names]
        if unknown:
            raise ValueError(f"no feature {unknown[0]!r}; the model has {list(model.feature_names[:5])}, …")
        columns = [model.feature_names.index(name) for name in features]
    else:
        columns = _strongest(effects, top if top is not None else min(8, max(1, SHOWN // model.n_latents)))
    latents, shown = [model.latents[i] for i in rows], [model.feature_names[j] for j in columns]
    ax = axes(
        ax,
        max(4.5, LINE * len(shown) + name_width(latents, 8) + 1.5),
        max(2.8, LINE * len(latents) + name_width(shown, 8) + 0.9),
    )
    values = effects[columns].T
    limit = max(float(np.quantile(np.abs(values), 0.995)), 1e-12)
    image = ax.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    name_ticks(ax, shown, along="x")
    name_ticks(ax, latents, along="y")
    ax.set_xlabel("feature")
    ax.set_ylabel("latent, sources first" if isinstance(found, Fit) else "latent")
    ax.figure.colorbar(
        image, ax=ax, label="effect of 1 s.d. of the latent\n(s.d. of the feature)", pad=0.015, aspect=25
    )
    if title:
        ax.set_title(title)
    return ax


def _effects(model: Any) -> np.ndarray:
    """Mixing (p, d) between latents and features of unit variance in the control."""
    deviation = np.sqrt(np.diagonal(model.covariance()))
    return np.asarray(model.rescaled("unit-variance").mixing / np.where(deviation > 0, deviation, 1.0)[:, None])


def _strongest(effects: np.ndarray, top: int) -> list[int]:
    """The ``top`` strongest features of every latent, each listed with the latent that moves it most."""
    size = np.abs(effects)
    kept = np.unique(np.argsort(-size, axis=0, kind="stable")[:top])
    home = np.argmax(size[kept], axis=1)
    return [int(kept[i]) for i in np.lexsort((-size[kept, home], home))]
