"""Matrices as heat maps: what latents do to features, how stable the order is, and which contexts share a target."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from latentdag.inference.shared_targets import TargetGroups
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit
from latentdag.pl.canvas import LINE, NEGATIVE, POSITIVE, axes, fit_in, name_ticks, name_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Features shown, about, where the user does not say how many.
SHOWN = 90

#: Latents up to which fractions are written into the squares.
WRITTEN = 12


def mixing(
    source: Any,
    ax: "Axes | None" = None,
    *,
    key: str = "latentdag",
    top: int | None = None,
    features: Any = None,
    title: str | None = None,
) -> "Axes":
    """Draw what one standard deviation of each latent does to its strongest features, in their standard deviations.

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
    """Return the mixing (p, d) between latents and features of unit variance in the control."""
    deviation = np.sqrt(np.diagonal(model.covariance()))
    return np.asarray(model.rescaled("unit-variance").mixing / np.where(deviation > 0, deviation, 1.0)[:, None])


def _strongest(effects: np.ndarray, top: int) -> list[int]:
    """Return the ``top`` strongest features of every latent, each listed with the latent that moves it most."""
    size = np.abs(effects)
    kept = np.unique(np.argsort(-size, axis=0, kind="stable")[:top])
    home = np.argmax(size[kept], axis=1)
    return [int(kept[i]) for i in np.lexsort((-size[kept, home], home))]


def order_stability(bootstrap: Bootstrap, ax: "Axes | None" = None, *, title: str | None = None) -> "Axes":
    """Draw the fraction of replicates in which the row's latent is an ancestor of the column's.

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
        _frame(ax, j - 0.46, i - 0.46, 0.92, 0.8)
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


def target_groups(groups: TargetGroups, ax: "Axes | None" = None) -> "Axes":
    """Draw the cosines between the contexts' noise rows as a matrix, ordered by the dendrogram drawn above it.

    Pairs that the exact test rejects carry a dot: "nearly the same target" is a dark square with a dot. The dashed line
    is where groups are cut, and boxes show them.

    Parameters
    ----------
    groups : TargetGroups
    ax : matplotlib axes, optional

    Returns
    -------
    Axes of the matrix; the dendrogram's are ``ax.child_axes[0]``.
    """
    K = len(groups.contexts)
    side = min(max(3.5, 0.35 * K + 2.0), 20.0)
    ax = axes(ax, side, side * 1.2, "compressed")
    tree: Any = hierarchy.dendrogram(groups.linkage, no_plot=True) if K > 1 else {"leaves": [0]}
    order = tree["leaves"]
    cosines, p = groups.cosines.to_numpy()[np.ix_(order, order)], groups.p_values.to_numpy()[np.ix_(order, order)]
    image = ax.imshow(cosines, vmin=0, vmax=1, cmap="Blues", aspect="equal")
    for i, j in zip(*np.nonzero(p <= groups.alpha), strict=True):
        ax.plot(j, i, "o", markersize=2, color="white" if cosines[i, j] > 0.5 else NEGATIVE)
    shown = [groups.contexts[k] for k in order]
    for along in ("x", "y"):
        name_ticks(ax, [str(context) for context in shown], along=along)
    for group in groups.groups:
        start = min(shown.index(context) for context in group) - 0.5
        _frame(ax, start, start, len(group), 1.5)
    if K > 1:
        _dendrogram(ax, groups, tree, K)
    ax.figure.colorbar(image, ax=ax, label="cosine of noise rows", shrink=0.6)
    ax.set_xlabel(f"dot: one exact target rejected at {groups.alpha:g}")
    return ax


def targets(fit: Fit, ax: "Axes | None" = None) -> "Axes":
    """Draw how probable it is that each context hits each latent, for a fit that learned its targets.

    Contexts that share targets stand together, as the dendrogram beside them says; boxes are the targets of the fit.

    Parameters
    ----------
    fit : Fit with ``targets="learn"``
    ax : matplotlib axes, optional

    Returns
    -------
    Axes of the matrix (K, d); the dendrogram's are ``ax.child_axes[0]``.
    """
    p, shared = fit.target_probabilities, fit.shared_targets.to_numpy()
    K, d = p.shape
    ax = axes(ax, min(3.5 + 0.45 * d, 20.0), min(1.8 + 0.28 * K, 24.0))
    apart = 1 - np.minimum(shared + np.eye(K), 1.0)
    tree: Any = {"leaves": [0]}
    if K > 1:
        joined = hierarchy.linkage(squareform(apart, checks=False), method="average")
        tree = hierarchy.dendrogram(joined, no_plot=True)
    shown = p.iloc[tree["leaves"]]
    image = ax.imshow(shown, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for row, context in enumerate(shown.index):
        for latent in fit.model.interventions[context].targets:
            _frame(ax, list(p.columns).index(latent) - 0.5, row - 0.5, 1.0, 1.0)
    name_ticks(ax, [str(latent) for latent in p.columns], along="x")
    name_ticks(ax, [str(context) for context in shown.index], along="y")
    ax.yaxis.tick_right()
    if K > 1:
        side = ax.inset_axes((-0.3, 0.0, 0.28, 1.0))
        for x, y in zip(tree["icoord"], tree["dcoord"], strict=True):
            side.plot(y, (np.array(x) - 5) / 10, color=POSITIVE, linewidth=1)
        side.set_xlim(max(1.0, *map(max, tree["dcoord"])) * 1.02, 0)
        side.set_ylim(K - 0.5, -0.5)
        side.set_yticks([])
        side.set_xlabel("1 − P(share a target)", fontsize=8)
        side.spines[["top", "right", "left"]].set_visible(False)
    ax.figure.colorbar(image, ax=ax, label="probability that the context hits the latent", shrink=0.6, pad=0.14)
    return ax


def _dendrogram(ax: "Axes", groups: TargetGroups, tree: dict[str, Any], K: int) -> None:
    top = ax.inset_axes((0.0, 1.02, 1.0, 0.3))
    for x, y in zip(tree["icoord"], tree["dcoord"], strict=True):
        # scipy puts leaf i at 5 + 10 i
        top.plot((np.array(x) - 5) / 10, y, color=POSITIVE, linewidth=1)
    top.axhline(1 - groups.threshold, color=NEGATIVE, linestyle="--", linewidth=1)
    top.set_xlim(-0.5, K - 0.5)
    top.set_ylim(0, None)
    top.set_xticks([])
    top.set_ylabel("1 − cosine", fontsize=8)
    top.spines[["top", "right", "bottom"]].set_visible(False)


def _frame(ax: "Axes", x: float, y: float, side: float, width: float) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), side, side, fill=False, edgecolor=NEGATIVE, linewidth=width))
