"""The figure of contexts by target: a dendrogram over the matrix of cosines."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster import hierarchy

from latentdag.inference.shared_targets import TargetGroups

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def target_groups(groups: TargetGroups, ax: "Axes | None" = None) -> "Axes":
    """Cosines between the contexts' noise rows as a matrix, ordered by the dendrogram drawn above it.

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
    plt = _pyplot()
    K = len(groups.contexts)
    if ax is None:
        side = min(max(3.5, 0.35 * K + 2.0), 20.0)
        _, ax = plt.subplots(figsize=(side, side * 1.2), layout="compressed")
    tree: Any = hierarchy.dendrogram(groups.linkage, no_plot=True) if K > 1 else {"leaves": [0]}
    order = tree["leaves"]
    cosines, p = groups.cosines.to_numpy()[np.ix_(order, order)], groups.p_values.to_numpy()[np.ix_(order, order)]
    image = ax.imshow(cosines, vmin=0, vmax=1, cmap="Blues", aspect="equal")
    for i, j in zip(*np.nonzero(p <= groups.alpha), strict=True):
        ax.plot(j, i, "o", markersize=2, color="white" if cosines[i, j] > 0.5 else "#c05621")
    names = [str(groups.contexts[k]) for k in order]
    ax.set_xticks(range(K), names, rotation=90, fontsize=8)
    ax.set_yticks(range(K), names, fontsize=8)
    _boxes(ax, groups, [groups.contexts[k] for k in order])
    if K > 1:
        _dendrogram(ax, groups, tree, K)
    ax.figure.colorbar(image, ax=ax, label="cosine of noise rows", shrink=0.6)
    ax.set_xlabel(f"dot: one exact target rejected at {groups.alpha:g}")
    return ax


def _dendrogram(ax: "Axes", groups: TargetGroups, tree: dict[str, Any], K: int) -> None:
    top = ax.inset_axes((0.0, 1.02, 1.0, 0.3))
    for x, y in zip(tree["icoord"], tree["dcoord"], strict=True):
        # scipy puts leaf i at 5 + 10 i
        top.plot((np.array(x) - 5) / 10, y, color="#2b6cb0", linewidth=1)
    top.axhline(1 - groups.threshold, color="#c05621", linestyle="--", linewidth=1)
    top.set_xlim(-0.5, K - 0.5)
    top.set_ylim(0, None)
    top.set_xticks([])
    top.set_ylabel("1 − cosine", fontsize=8)
    for side in ("top", "right", "bottom"):
        top.spines[side].set_visible(False)


def _boxes(ax: "Axes", groups: TargetGroups, shown: list[Any]) -> None:
    from matplotlib.patches import Rectangle

    for group in groups.groups:
        places = sorted(shown.index(c) for c in group)
        ax.add_patch(
            Rectangle((places[0] - 0.5, places[0] - 0.5), len(places), len(places), fill=False, color="#c05621", lw=1.5)
        )


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'latentdag[plot]'") from None
    return plt
