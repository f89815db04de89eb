"""Matrices as heat maps: what latents do to features, how stable the order is, and which contexts share a target."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from latentdag.inference.shared_targets import TargetGroups
from latentdag.inference.stability import Bootstrap
from latentdag.methods.result import Fit
from latentdag.optional import optional
from latentdag.pl.canvas import LINE, NEGATIVE, POSITIVE, axes, drawn, name_ticks, name_width

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

    Both deviations are those in the control. Strongest are the features of largest absolute correlation with the latent
    in the control, as everywhere. Latents are listed sources first; features beside the latent they go with. Blue is
    up, orange down, as in all figures.

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
    model, fit = drawn(source, key)
    latents = list(model.latents if fit is None else fit.order)
    effects = _effects(model)[:, [model.latents.index(name) for name in latents]]
    unknown = [name for name in features or () if name not in model.feature_names]
    if unknown:
        raise ValueError(f"no feature {unknown[0]!r}; the model has {list(model.feature_names[:5])}, …")
    if features is not None:
        columns = [model.feature_names.index(name) for name in features]
    else:
        related = model.correlations[:, [model.latents.index(name) for name in latents]]
        columns = _strongest(related, top if top is not None else min(8, max(1, SHOWN // model.n_latents)))
    shown, values = [model.feature_names[j] for j in columns], effects[columns].T
    width, height = LINE * len(shown) + name_width(latents, 8) + 1.5, LINE * len(latents) + name_width(shown, 8) + 0.9
    ax = axes(ax, max(4.5, width), max(2.8, height))
    limit = max(float(np.quantile(np.abs(values), 0.995)), 1e-12)
    signs = optional("matplotlib.colors", "plot", "a figure").LinearSegmentedColormap.from_list
    colours = signs("signs", [NEGATIVE, "white", POSITIVE])  # as in the graph: blue raises, orange lowers
    look = {"cmap": colours, "vmin": -limit, "vmax": limit, "aspect": "auto"}
    bar = "effect of 1 s.d. of the latent\n(s.d. of the feature)"
    _heat(ax, values, latents, shown, bar, {"pad": 0.015, "aspect": 25}, **look)
    said = "feature" if features is not None else "features of largest correlation\nwith a latent in the control"
    ax.set(xlabel=said, ylabel="latent" if fit is None else "latent, sources first", title=title or "")
    return ax


def _heat(
    ax: "Axes", values: Any, rows: Sequence[Any], columns: Sequence[Any], label: str, bar: dict[str, Any], **look: Any
) -> Any:
    """Draw a matrix as squares with names on both sides, and a bar that says what the colours mean."""
    image = ax.imshow(values, interpolation="nearest", **{"vmin": 0, "vmax": 1, "cmap": "Blues", **look})
    name_ticks(ax, [str(name) for name in columns], along="x")
    name_ticks(ax, [str(name) for name in rows], along="y")
    ax.figure.colorbar(image, ax=ax, label=label, **bar)
    return image


def _effects(model: Any) -> np.ndarray:
    """Return the mixing (p, d) between latents and features of unit variance in the control."""
    deviation = np.sqrt(np.diagonal(model.covariance()))
    return np.asarray(model.rescaled("unit-variance").mixing / np.where(deviation > 0, deviation, 1.0)[:, None])


def _strongest(correlations: np.ndarray, top: int) -> list[int]:
    """Return the ``top`` strongest features of every latent, each listed with the latent it goes with most."""
    size = np.abs(correlations)
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
    bar = {"shrink": 0.7, "pad": 0.02, "aspect": 25}
    _heat(ax, share, names, names, f"fraction of {bootstrap.n_replicates} replicates", bar)
    for i, j in np.argwhere(bootstrap.fit_closure.T):
        _frame(ax, j - 0.46, i - 0.46, 0.92, 0.8)
    if d <= WRITTEN:
        for i, j in np.argwhere(share > 0):
            colour = "white" if share[i, j] > 0.6 else "black"
            ax.text(j, i, f"{share[i, j]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    ax.set(xlabel="… of this latent", ylabel="ancestor …")
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
    tree = _tree(groups.linkage)
    order = tree["leaves"]
    cosines, p = groups.cosines.to_numpy()[np.ix_(order, order)], groups.p_values.to_numpy()[np.ix_(order, order)]
    shown = [groups.contexts[k] for k in order]
    _heat(ax, cosines, shown, shown, "cosine of noise rows", {"shrink": 0.6})
    for i, j in zip(*np.nonzero(p <= groups.alpha), strict=True):
        ax.plot(j, i, "o", markersize=2, color="white" if cosines[i, j] > 0.5 else NEGATIVE)
    for group in groups.groups:
        start = min(shown.index(context) for context in group) - 0.5
        _frame(ax, start, start, len(group), 1.5)
    if K > 1:
        top = ax.inset_axes((0.0, 1.02, 1.0, 0.3))
        _dendrogram(top, [(across, height) for height, across in _branches(tree)])
        top.axhline(1 - groups.threshold, color=NEGATIVE, linestyle="--", linewidth=1)
        top.set(xlim=(-0.5, K - 0.5), ylim=(0, None), xticks=[])
        top.set_ylabel("1 − cosine", fontsize=8)
        top.spines["bottom"].set_visible(False)
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
    apart = squareform(1 - np.minimum(shared + np.eye(K), 1.0), checks=False)
    tree = _tree(hierarchy.linkage(apart, method="average") if K > 1 else apart)
    shown = p.iloc[tree["leaves"]]
    bar = {"shrink": 0.6, "pad": 0.14}
    _heat(ax, shown, shown.index, p.columns, "probability that the context hits the latent", bar, aspect="auto")
    for row, context in enumerate(shown.index):
        for latent in fit.model.interventions[context].targets:
            _frame(ax, list(p.columns).index(latent) - 0.5, row - 0.5, 1.0, 1.0)
    ax.yaxis.tick_right()
    if K > 1:
        side, branches = ax.inset_axes((-0.3, 0.0, 0.28, 1.0)), _branches(tree)
        _dendrogram(side, branches)
        highest = max(max(height) for height, _ in branches)
        side.set(xlim=(1.02 * max(1.0, highest), 0), ylim=(K - 0.5, -0.5), yticks=[])
        side.set_xlabel("1 − P(share a target)", fontsize=8)
        side.spines["left"].set_visible(False)
    return ax


def _tree(linkage: Any) -> Any:
    """Return where the branches of a tree of contexts are drawn; a single context has none."""
    return hierarchy.dendrogram(linkage, no_plot=True) if len(linkage) else {"leaves": [0], "icoord": [], "dcoord": []}


def _branches(tree: Any) -> list[tuple[list[float], np.ndarray]]:
    """Return the heights of each branch, and its places along the rows of the matrix."""
    # scipy puts leaf i at 5 + 10 i
    return [(height, (np.array(along) - 5) / 10) for along, height in zip(tree["icoord"], tree["dcoord"], strict=True)]


def _dendrogram(beside: "Axes", branches: Any) -> None:
    for x, y in branches:
        beside.plot(x, y, color=POSITIVE, linewidth=1)
    beside.spines[["top", "right"]].set_visible(False)


def _frame(ax: "Axes", x: float, y: float, side: float, width: float) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), side, side, fill=False, edgecolor=NEGATIVE, linewidth=width))
