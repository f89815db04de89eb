"""Figures of the interferon-γ study."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.experiments import figure, share_legend, tidy
from studies.interferon import tables as tb
from studies.interferon.screen import CORE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#8a8a8a"
LATENTS = ("cascade", "IRF1", "SMAD4", "UBE2L6")
RELATION_COLOURS = dict(zip(tb.RELATIONS, (BLUE, ORANGE, "#dddddd", "#555555"), strict=True))


def all_figures(rows: pd.DataFrame, main: str) -> "dict[str, Figure]":
    """Draw all figures, in the order of the questions."""
    return {
        "eigenvalues": eigenvalues(tb.part(rows, "spectrum"), main),
        "same-latent": same_latent(rows, main),
        "which-first": which_first(pd.DataFrame(tb.order(tb.part(rows, "order")))),
        "graph": graph(tb.part(rows, "graph"), main),
        "loadings": loadings(pd.DataFrame(tb.loadings(tb.part(rows, "graph"))), main),
        "held-out": held_out(pd.DataFrame(tb.held_out(tb.part(rows, "score")))),
    }


def eigenvalues(found: pd.DataFrame, main: str) -> "Figure":
    """Draw generalised eigenvalues against the control, with the band that shuffled labels leave."""
    made = figure(8.0, 4.0)
    ax = made.subplots()
    for k, context in enumerate(CORE):
        here = found[found["context"] == context]
        low, high = here["low"].iloc[0], here["high"].iloc[0]
        ax.fill_between([k - 0.4, k + 0.4], low, high, color="#e4e4e4", lw=0)
        values = here["value"].to_numpy()
        inside = (values >= low) & (values <= high)
        # the two largest changes are what one target may do
        for mask, colour, size in ((inside, GREY, 8), (values > high, BLUE, 26), (values < low, ORANGE, 26)):
            ax.scatter(np.full(mask.sum(), k), values[mask], s=size, color=colour, lw=0, zorder=3)
        up, down = int((values > high).sum()), int((values < low).sum())
        above: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        ax.annotate(f"{up} up\n{down} down", (k, values.max()), **above)
    ax.axhline(1, color=GREY, lw=0.8)
    ax.set_yscale("log")
    ax.set_ylim(None, found["value"].max() * 1.7)
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10) if found["value"].min() / 1.5 < t < found["value"].max() * 1.7]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_xticks(range(len(CORE)), CORE)
    ax.set(ylabel="variance, knock-out over control")
    ax.set_title(
        f"Generalised eigenvalues, {main} genes. Grey band: 95 % of shuffled labels. One target: 1 up, 1 down at most"
    )
    tidy(ax)
    ax.grid(False, axis="x")
    return made


def same_latent(rows: pd.DataFrame, main: str) -> "Figure":
    """Draw cosines of noise rows below the diagonal, of shifts above it; rejected pairs carry a cross."""
    pairs = pd.DataFrame(tb.pairs(rows, main))
    sets = list(pairs["genes"].unique())
    made = figure(5.4 * len(sets) + 0.6, 5.2)
    axes = made.subplots(1, len(sets), squeeze=False)[0]
    place = {c: i for i, c in enumerate(CORE)}
    for ax, genes in zip(axes, sets, strict=True):
        values = np.full((len(CORE), len(CORE)), np.nan)
        for _, row in pairs[pairs["genes"] == genes].iterrows():
            i, j = sorted((place[row["context"]], place[row["other"]]))
            values[j, i], values[i, j] = row["cosine"], abs(row["cosine of shifts"])
            ink = ["white" if v > 0.6 else "black" for v in (values[j, i], values[i, j])]
            ax.text(i, j, f"{row['cosine']:.2f}", ha="center", va="center", color=ink[0], fontsize=8)
            ax.text(j, i, f"{row['cosine of shifts']:.2f}", ha="center", va="center", color=ink[1], fontsize=8)
            if row["Holm"] <= tb.ALPHA:
                ax.text(i, j + 0.33, "×", ha="center", va="center", color=ink[0], fontsize=9)
        image = ax.imshow(values, vmin=0, vmax=1, cmap="Blues")
        ax.set_xticks(range(len(CORE)), CORE, rotation=45, ha="right")
        ax.set_yticks(range(len(CORE)), CORE)
        ax.set_title(f"{genes} genes", fontsize=10)
    made.colorbar(image, ax=list(axes), label="cosine", shrink=0.7)
    made.suptitle(
        "How alike two knock-outs are. Below the diagonal: noise rows (×: one exact target rejected). Above: shifts of "
        "the mean",
        fontsize=10,
    )
    return made


def which_first(table: pd.DataFrame) -> "Figure":
    """Draw shares of fits with either order, by gene set and by how the cells were drawn."""
    shown = table[table["fits"] > 1]
    single = table[(table["fits"] == 1)]
    keys = list(shown[["genes", "kind"]].itertuples(index=False, name=None))
    made = figure(8.5, 0.34 * len(keys) + 1.8)
    ax = made.subplots()
    left = np.zeros(len(keys))
    for name, colour in RELATION_COLOURS.items():
        values = shown[name].to_numpy(dtype=float)
        ax.barh(range(len(keys)), values, left=left, color=colour, label=name, height=0.7)
        left += values
    for y, (genes, kind) in enumerate(keys):
        if kind == "bootstrap":
            here = single[(single["genes"] == genes) & (single["kind"] == "all cells")]
            relation = next(name for name in tb.RELATIONS if here[name].iloc[0] > 0)
            ax.text(1.01, y, f"all cells: {relation}", va="center", fontsize=8)
    ax.set_yticks(range(len(keys)), [f"{genes}: {kind}" for genes, kind in keys], fontsize=8)
    ax.invert_yaxis()
    ax.set(xlabel="share of fits", xlim=(0, 1))
    ax.set_title("The cascade and IRF1 as two latents: which comes first (known biology: the cascade)")
    tidy(ax)
    share_legend(made, [ax])
    return made


def graph(found: pd.DataFrame, main: str) -> "Figure":
    """Draw the graph of four latents; arrows are as wide as the share of draws that have them, solid in the fit."""
    table, rejected = pd.DataFrame(tb.graph(found)), bool((found["p_omnibus"].dropna() <= tb.ALPHA).any())
    made = figure(6.2, 4.4)
    ax = made.subplots()
    at = dict(zip(LATENTS, ((0.0, 1.0), (1.6, 1.0), (1.6, 0.0), (0.0, 0.0)), strict=True))
    for _, row in table.iterrows():
        share = row["edge, share of draws"]
        if share >= 0.1 or row["edge in the fit"]:
            _arrow(ax, np.array(at[row["source"]]), np.array(at[row["target"]]), share, bool(row["edge in the fit"]))
    for name, (x, y) in at.items():
        box: dict[str, Any] = {"boxstyle": "round,pad=0.5", "fc": "#edf2f7", "ec": "#4a5568"}
        ax.text(x, y, name, ha="center", va="center", bbox=box, fontsize=10, zorder=5)
    ax.set(xlim=(-0.3, 1.9), ylim=(-0.25, 1.25), aspect="equal")
    ax.axis("off")
    ax.set_title(
        f"Four latents, {main} genes. Numbers: share of bootstrap draws with the edge.\nSolid: in the fit; dashed: in "
        "a tenth of the draws at least" + (". The model is rejected: an approximation" if rejected else ""),
        fontsize=10,
    )
    return made


def _arrow(ax: "Axes", start: np.ndarray, end: np.ndarray, share: float, solid: bool) -> None:
    """Draw a bent arrow, so that an edge and its reverse stay apart, with its share nearer to its start."""
    bend, at, colour = 0.12, 0.38, BLUE if solid else "#777777"
    style: dict[str, Any] = {
        "arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "lw": 0.6 + 3 * share, "shrinkA": 24,
        "shrinkB": 24, "color": colour, "ls": "-" if solid else (0, (4, 2.5)),
    }  # fmt: skip
    ax.annotate("", xy=tuple(end), xytext=tuple(start), arrowprops=style)
    d = end - start
    control = (start + end) / 2 + bend * np.array([d[1], -d[0]])
    x, y = (1 - at) ** 2 * start + 2 * at * (1 - at) * control + at**2 * end
    paper = {"fc": "white", "ec": "none", "pad": 1.2}
    ax.text(x, y, f"{share:.0%}", fontsize=8, ha="center", va="center", color=colour, bbox=paper, zorder=4)


def loadings(table: pd.DataFrame, main: str) -> "Figure":
    """Draw effects of each latent on each gene; those within two bootstrap errors of zero are struck."""
    effect = table.pivot(index="latent", columns="gene", values="effect").reindex(LATENTS)
    z = table.pivot(index="latent", columns="gene", values="z").reindex(LATENTS)[effect.columns]
    home = effect.abs().to_numpy().argmax(axis=0)
    order = np.lexsort((-effect.abs().to_numpy().max(axis=0), home))
    effect, z = effect.iloc[:, order], z.iloc[:, order]
    made = figure(0.42 * effect.shape[1] + 2.6, 3.2)
    ax = made.subplots()
    limit = float(effect.abs().max().max())
    image = ax.imshow(effect, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    for i, j in np.argwhere(~(z.abs().to_numpy() >= 2)):
        ax.plot([j - 0.5, j + 0.5], [i + 0.5, i - 0.5], color="#bbbbbb", lw=0.8)
    ax.set_xticks(range(effect.shape[1]), effect.columns, rotation=90, fontsize=8)
    ax.set_yticks(range(len(LATENTS)), LATENTS)
    made.colorbar(image, ax=ax, label="effect (s.d.)", pad=0.01)
    ax.set_title(
        f"What one deviation of each latent does to {main} genes.\nRed falls with the knock-out; struck: within two "
        "bootstrap errors of zero",
        fontsize=9,
    )
    return made


def held_out(table: pd.DataFrame) -> "Figure":
    """Draw gains of the fit over each reference, per context, with standard errors."""
    table = table[table["context"].isin(CORE)]
    keys = list(table[["genes", "form"]].drop_duplicates().itertuples(index=False, name=None))
    made = figure(9.5, 2.5 * len(keys) + 0.9)
    axes = made.subplots(len(keys), 2, squeeze=False, sharex=True)
    words = (("over control", GREY), ("over additive", BLUE), ("over own law", ORANGE))
    for line, (genes, form) in zip(axes, keys, strict=True):
        for ax, by in zip(line, ("a fold", "a replicate"), strict=True):
            here = table[(table["genes"] == genes) & (table["form"] == form) & (table["held out"] == by)]
            here = here.set_index("context").reindex(CORE)
            for shift, (word, colour) in zip((-0.27, 0.0, 0.27), words, strict=True):
                style: dict[str, Any] = {"color": colour, "label": word, "capsize": 2, "error_kw": {"lw": 0.8}}
                ax.bar(np.arange(len(CORE)) + shift, here[word], 0.25, yerr=2 * here[f"{word}, s.e."], **style)
            ax.axhline(0, color="black", lw=0.8)
            # most gains are a fraction of a nat, those over the control many
            ax.set_yscale("symlog", linthresh=0.1, linscale=0.6)
            ax.set_yticks([-1, -0.1, 0, 0.1, 1, 10], ["−1", "−0.1", "0", "0.1", "1", "10"])
            ax.minorticks_off()
            ax.set_xticks(range(len(CORE)), CORE, rotation=30, ha="right", fontsize=8)
            ax.set_title(f"{genes} genes, others {form}; {by} held out")
            tidy(ax)
        line[0].set_ylabel("nats per cell\n(linear within ±0.1)", fontsize=8)
    share_legend(made, list(axes.ravel()))
    made.suptitle("Gain of the fit on held-out cells over three references, ± 2 standard errors", fontsize=11)
    return made
