"""What all figures share: matplotlib on demand, colours, readable names, and where a fit may be hiding."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.tl import fit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODE, NODE_EDGE, BOX = "#cfe3f7", "#2b6cb0", "#f4f4f4"
POSITIVE, NEGATIVE, NEUTRAL = "#2b6cb0", "#c05621", "#8a8a8a"

#: Inches that one character takes at one point of font size, on average and with some room.
INCHES_PER_CHARACTER = 0.0088

#: Inches of one line of names along an axis, and the largest side of a figure that is made here.
LINE, LARGEST = 0.17, 40.0

#: Characters of a name that are shown.
LONGEST_NAME = 24


def pyplot() -> Any:
    """Import matplotlib, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'latentdag[plot]'") from None
    return plt


def axes(ax: "Axes | None", width: float, height: float, layout: str = "constrained") -> "Axes":
    """Return the axes given, or new ones in a figure of this size in inches, laid out so that no name is cut off."""
    plt = pyplot()
    if ax is not None:
        return ax
    return plt.subplots(figsize=(min(width, LARGEST), min(height, LARGEST)), layout=layout)[1]


def fit_in(source: Any, key: str) -> Fit | LatentModel:
    """Return the fit or model in what a user has at hand: itself, a fitted estimator, or AnnData."""
    if isinstance(source, Fit | LatentModel):
        return source
    if hasattr(source, "uns"):
        return fit_of(source, key)
    if isinstance(getattr(source, "fit_", None), Fit):
        return source.fit_
    raise TypeError(
        f"nothing to draw in {type(source).__name__}: pass a Fit, a LatentModel, a fitted LatentDAG, or the "
        "AnnData that latentdag.tl.latentdag wrote to"
    )


def short(name: Any, longest: int = LONGEST_NAME) -> str:
    """Return a name that fits; the end is cut, where the names of different things differ least often."""
    text = " ".join(str(name).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def name_width(names: Sequence[str], size: float) -> float:
    """Return the width of the longest of these names at a font size, in inches."""
    return INCHES_PER_CHARACTER * size * max((len(name) for name in names), default=0)


def fitting_size(ax: "Axes", n: int, *, along: str, largest: float = 8.0) -> float:
    """Return the font size at which n names do not overlap along the axes' "x" or "y"."""
    box = ax.get_window_extent()
    inches = (box.width if along == "x" else box.height) / ax.figure.dpi
    return max(min(largest, 60.0 * inches / max(n, 1)), 2.0)


def name_ticks(ax: "Axes", names: Sequence[str], *, along: str, largest: float = 8.0) -> None:
    """Set one tick per name, upright along x where names would not fit side by side."""
    size = fitting_size(ax, len(names), along=along, largest=largest)
    shown = [short(name) for name in names]
    if along == "y":
        ax.set_yticks(range(len(names)), shown, fontsize=size, parse_math=False)  # a "$" in a name is no formula
        return
    box = ax.get_window_extent()
    fits = name_width(shown, size) + 0.08 < box.width / ax.figure.dpi / max(len(names), 1)
    ax.set_xticks(range(len(names)), shown, fontsize=size, rotation=0 if fits else 90, parse_math=False)
