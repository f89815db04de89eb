"""What all figures share: matplotlib on demand, colours, readable names, and where a fit may be hiding."""

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.optional import optional
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


def axes(ax: "Axes | None", width: float, height: float, layout: Any = "constrained") -> "Axes":
    """Return the axes given, or new ones in a figure of this size in inches, laid out so that no name is cut off."""
    if ax is not None:
        return ax
    plt = optional("matplotlib.pyplot", "plot", "a figure")
    return plt.subplots(figsize=(min(width, LARGEST), min(height, LARGEST)), layout=layout)[1]


def save(figure: Any, file: Any, kind: str) -> None:
    """Write a figure as png or svg, without wide margins and with the same bytes every time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "latentdag"}):
        figure.savefig(
            file, format=kind, dpi=150, bbox_inches="tight", metadata={"Date": None} if kind == "svg" else None
        )


def drawn(source: Any, key: str) -> tuple[LatentModel, Fit | None]:
    """Return the model, and the fit if there is one, in what a user has: itself, a fitted estimator, or AnnData."""
    found = fit_of(source, key) if hasattr(source, "uns") else getattr(source, "fit_", source)
    if isinstance(found, Fit):
        return found.model, found
    if isinstance(found, LatentModel):
        return found, None
    raise TypeError(
        f"nothing to draw in {type(source).__name__}: pass a Fit, a LatentModel, a fitted LatentDAG, or the "
        "AnnData that latentdag.tl.latentdag wrote to"
    )


def short(name: Any, longest: int = LONGEST_NAME) -> str:
    """Return a name that fits; the end is cut, where the names of different things differ least often."""
    text = " ".join(str(name).split())
    if text_width(text) <= longest:
        return text
    while text_width(text) >= longest:
        text = text[:-1]
    return text + "…"


def text_width(text: str) -> int:
    """Return the width of a text in characters: wide ones of East Asian scripts count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def name_width(names: Sequence[str], size: float) -> float:
    """Return the width of the longest of these names at a font size, in inches."""
    return INCHES_PER_CHARACTER * size * max((text_width(name) for name in names), default=0)


def name_ticks(ax: "Axes", names: Sequence[str], *, along: str, longest: int = LONGEST_NAME) -> None:
    """Set one tick per name, in letters so small that none overlap; upright along x where they would side by side."""
    box = ax.get_window_extent()
    inches = (box.width if along == "x" else box.height) / ax.figure.dpi
    size = max(min(8.0, 60.0 * inches / max(len(names), 1)), 2.0)
    shown = [short(name, longest) for name in names]
    upright = along == "x" and name_width(shown, size) + 0.08 >= inches / max(len(names), 1)
    set_ticks = ax.set_xticks if along == "x" else ax.set_yticks
    # a "$" in a name is no formula
    set_ticks(range(len(names)), shown, fontsize=size, rotation=90 if upright else 0, parse_math=False)


def arrow(cause: str, effect: str) -> str:
    """Return the name of an edge."""
    return f"{short(cause)} → {short(effect)}"


def labelled(ax: "Axes", across: str = "", up: str = "", title: str | None = None) -> None:
    """Say what is along the axes and above them, and leave the sides of the frame without numbers away."""
    ax.set_xlabel(across, fontsize=9)
    ax.set_ylabel(up, fontsize=9)
    ax.set_title(title or "", fontsize=10, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)


def legend_beside(ax: "Axes") -> None:
    """Draw the legend of lines to the right of a figure, where it covers nothing."""
    made = ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    for text in made.get_texts():
        text.set_parse_math(False)


def rows(ax: "Axes | None", names: Sequence[str], origin: float, room: float) -> "Axes":
    """Return axes with one row per name, from top to bottom, and a line at the place across where nothing happens.

    ``room`` is what stands beside the names, in inches.
    """
    ax = axes(ax, room + name_width(names, 8), 1.2 + LINE * max(len(names), 3))
    name_ticks(ax, names, along="y", longest=2 * LONGEST_NAME + 3)
    ax.axvline(origin, color="#999999", linewidth=0.8, zorder=0)
    ax.set_ylim(max(len(names), 1) - 0.5, -0.5)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax
