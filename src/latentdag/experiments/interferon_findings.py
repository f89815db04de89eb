"""What the interferon-γ study found, in sentences whose numbers come from its tables."""

from collections.abc import Mapping

import pandas as pd

from latentdag.experiments.base import Table
from latentdag.experiments.interferon_tables import ALPHA, part
from latentdag.experiments.thp1_cells import CASCADE, CORE


def findings(rows: pd.DataFrame, tables: Mapping[str, Table], main: str) -> list[str]:
    """In the order of trust."""
    frames = {title: pd.DataFrame(table) for title, table in tables.items()}
    return [
        *_membership(frames, main),
        *_same(frames, main),
        _guides(frames["Shifts of single guides"], main),
        *_order(frames["Cascade and IRF1: which comes first"], main),
        *_graph(frames, rows),
        *_prediction(frames, main),
    ]


def _membership(frames: Mapping[str, pd.DataFrame], main: str) -> list[str]:
    table = frames["Does each context fit the model"].set_index("context")
    named = {v: list(table.index[table["verdict"] == v]) for v in ("does not fit", "fits", "no change seen")}
    said = (
        f"Of {len(table)} contexts ({main} genes), {len(named['no change seen'])} cannot be told from the control in "
        f"their covariance. More than one target can do: {_list(named['does not fit'], table)}. Within what one target "
        f"can do: {_list(named['fits'], table)}. In brackets: the share of the change that two directions hold."
    )
    by = frames["The core contexts in every gene set"]
    cascade = by[by["context"].isin(CASCADE)].groupby("genes", sort=False)["share in two directions"].mean()
    shares = ", ".join(f"{value:.0%} ({genes})" for genes, value in cascade.items())
    size = frames["Size of the tests on shuffled labels"].mean(numeric_only=True)
    return [
        said,
        f"How far off depends on the genes. Mean share of the four contexts of the cascade: {shares}.",
        f"On shuffled labels “nothing changes” is rejected at 5 % in {size['“nothing changes” rejected, robust']:.0%} "
        f"by the robust test and in {size['the same, Gaussian']:.0%} by the Gaussian one; “two directions” in "
        f"{size['“two directions” rejected']:.0%}.",
    ]


def _list(names: list[str], table: pd.DataFrame) -> str:
    if not names:
        return "none"
    return ", ".join(f"{name} ({table.loc[name, 'share in two directions']:.0%})" for name in names)


def _same(frames: Mapping[str, pd.DataFrame], main: str) -> list[str]:
    pairs, said = frames["Which contexts hit the same latent"], []
    for genes, here in pairs.groupby("genes", sort=False):
        inside = here["context"].isin(CASCADE) & here["other"].isin(CASCADE)
        irf1 = (here["context"].isin(CASCADE) & (here["other"] == "IRF1")) | (
            here["other"].isin(CASCADE) & (here["context"] == "IRF1")
        )
        said.append(
            f"{genes} genes: within {', '.join(CASCADE)} cosines are at least {here.loc[inside, 'cosine'].min():.2f} "
            f"(lowest bootstrap bound {here.loc[inside, 'cosine, low'].min():.2f}), and one exact target is rejected "
            f"for {int((here.loc[inside, 'Holm'] <= ALPHA).sum())} of {int(inside.sum())} pairs (least p = "
            f"{here.loc[inside, 'p, one target'].min():.2g}, not counting that there are {len(here)} pairs). To IRF1 "
            f"they are {here.loc[irf1, 'cosine'].min():.2f} to {here.loc[irf1, 'cosine'].max():.2f} (highest bound "
            f"{here.loc[irf1, 'cosine, high'].max():.2f}), rejected for {int((here.loc[irf1, 'Holm'] <= ALPHA).sum())} "
            f"of {int(irf1.sum())}."
        )
    by = frames["Groups in every gene set"]
    together = by["groups"].map(lambda text: text.split("; ")[0])
    exact = int((together == ", ".join(CASCADE)).sum())
    others = [f"{row['genes']} ({row['groups']})" for _, row in by[together != ", ".join(CASCADE)].iterrows()]
    said.append(
        f"The cascade is one group of its own in {exact} of {len(by)} gene sets"
        + (f"; otherwise: {'; '.join(others)}." if others else ".")
    )
    return said


def _guides(table: pd.DataFrame, main: str) -> str:
    here = table[table["genes"] == main].set_index("pairs")["median cosine of shifts"]
    return (
        f"Shifts of the mean, guide by guide ({main} genes), median cosine: "
        + "; ".join(f"{kind} {value:.2f}" for kind, value in here.items())
        + "."
    )


def _order(table: pd.DataFrame, main: str) -> list[str]:
    cells = table[table["kind"] == "all cells"]
    first = {name: list(cells.loc[cells[name] > 0, "genes"]) for name in ("cascade first", "IRF1 first", "no edge")}
    said = [
        "Cascade and IRF1 as two latents, all cells: the cascade comes first in "
        f"{len(first['cascade first'])} of {len(cells)} gene sets, IRF1 in {len(first['IRF1 first'])} "
        f"({', '.join(first['IRF1 first']) or 'none'}), and there is no edge in {len(first['no edge'])}. Known biology "
        "has the cascade first."
    ]
    nulls = table[table["kind"].str.contains("shuffled")]
    for genes, here in nulls.groupby("genes", sort=False):
        boot = table[(table["genes"] == genes) & (table["kind"] == "bootstrap")].iloc[0]
        null = "; ".join(
            f"{row['kind']}: IRF1 first {row['IRF1 first']:.0%}, cascade first {row['cascade first']:.0%}"
            for _, row in here.iterrows()
        )
        worst, seen = here["IRF1 first"].max(), boot["IRF1 first"]
        reading = (
            f"Labels without meaning put IRF1 first in up to {worst:.0%} of fits: that order says nothing about IRF1."
            if worst >= seen / 2
            else "Shuffled labels do that less often; but a graph needs contexts that fit the model."
        )
        said.append(
            f"{genes} genes, {int(boot['fits'])} bootstrap draws: IRF1 first in {boot['IRF1 first']:.0%}, cascade "
            f"first in {boot['cascade first']:.0%}, no edge in {boot['no edge']:.0%}. {null}. {reading}"
        )
    return said


def _graph(frames: Mapping[str, pd.DataFrame], rows: pd.DataFrame) -> list[str]:
    table, found = frames["Graph of four latents"], part(rows, "graph")
    edges = table[table["edge in the fit"]]
    listed = "; ".join(
        f"{row['source']} → {row['target']} ({row['edge, share of draws']:.0%} of draws)" for _, row in edges.iterrows()
    )
    p = float(found.loc[found["what"] == "omnibus", "p_omnibus"].iloc[0])
    said = f"Four latents (cascade, IRF1, SMAD4, UBE2L6): edges {listed or 'none'}. "
    said += (
        f"The omnibus test rejects the model (p = {p:.2g}), so this graph describes an approximation, and its errors "
        "assume what was refused."
        if p <= ALPHA
        else f"The omnibus test does not reject the model (p = {p:.2g})."
    )
    fit = frames["Does each context fit the model"].set_index("context")["verdict"]
    for name in (c for c in CORE if c not in CASCADE and fit[c] == "no change seen"):
        here = int(((edges["source"] == name) | (edges["target"] == name)).sum())
        said += f" {here} of its {len(edges)} edges are at {name}, whose covariance shows no change."
    loaded = frames["Which genes load on each latent"]
    strong = loaded[loaded["z"].abs() >= 3]
    genes = "; ".join(
        f"{latent}: " + ", ".join(f"{r['gene']} ({r['effect']:+.2f})" for _, r in here.head(5).iterrows())
        for latent, here in strong.groupby("latent", sort=False)
    )
    return [
        said,
        "Strongest genes of each latent (total effect of one deviation in the gene's deviations, at least three "
        f"bootstrap errors from zero; positive falls with the knock-out): {genes}.",
    ]


def _prediction(frames: Mapping[str, pd.DataFrame], main: str) -> list[str]:
    table, said = frames["Held-out cells"], []
    table = table[table["context"].isin(CORE) & (table["form"] == "downstream")]
    for (genes, by), here in table.groupby(["genes", "held out"], sort=False):
        weights = here["cells"] / here["cells"].sum()
        mean = {word: float(weights @ here[word]) for word in ("over control", "over additive", "over own law")}
        beats = {word: _clear(here, word) for word in mean}
        said.append(
            f"{by[0].upper()}{by[1:]} held out, {genes} genes: the fit gains {mean['over control']:.2f} nats per cell "
            f"over the control and {mean['over additive']:.2f} over the additive reference, and "
            f"{_signed(mean['over own law'])} each context's own mean and covariance from training. By more than two "
            f"standard errors it beats the additive reference in {beats['over additive']} of {len(here)} contexts and "
            f"the own law in {beats['over own law']}."
        )
    unseen = frames["A knock-out that the fit did not see"]
    ends = {word: f"{unseen[word].min():.2f} to {unseen[word].max():.2f}" for word in unseen.columns if "over" in word}
    said.append(
        "A knock-out of the cascade that the fit did not see, predicted as one of the other three: "
        f"{ends['over control']} nats per cell over the control, {ends['over that shift alone']} over the other's "
        f"shift alone, {ends['over that law']} over the other's own mean and covariance."
    )
    return said


def _clear(here: pd.DataFrame, word: str) -> int:
    return int((here[word] > 2 * here[f"{word}, s.e."]).sum())


def _signed(value: float) -> str:
    if abs(value) < 0.005:
        return "is level with"
    return f"gains {value:.2f} over" if value > 0 else f"loses {-value:.2f} to"
