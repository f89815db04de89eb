"""Tables of the interferon-γ study, from its rows alone, and what they say."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.multiplicity import holm
from latentdag.experiments import Table
from studies.interferon.fits import NOISY
from studies.interferon.screen import CASCADE, CORE

ALPHA = 0.05
RELATIONS = ("cascade first", "IRF1 first", "no edge", "no fit")


def all_tables(rows: pd.DataFrame, main: str) -> dict[str, Table]:
    """Return all tables by title."""
    made: dict[str, Any] = {
        "Does each context fit the model": fit_of_contexts(part(rows, "membership", main)),
        "The core contexts in every gene set": fit_by_genes(part(rows, "membership")),
        "Size of the tests on shuffled labels": sizes(part(rows, "spectrum")),
        "Which contexts hit the same latent": pairs(rows, main),
        "Groups in every gene set": groups(part(rows, "pair")),
        "Shifts of single guides": guides(part(rows, "guides")),
        "Cascade and IRF1: which comes first": order(part(rows, "order")),
        "Graph of four latents": graph(part(rows, "graph")),
        "Which genes load on each latent": loadings(part(rows, "graph")),
        "Held-out cells": held_out(part(rows, "score")),
        "A knock-out that the fit did not see": unseen(part(rows, "unseen")),
    }
    return {title: pd.DataFrame(table).to_dict("records") for title, table in made.items()}


def part(rows: pd.DataFrame, name: str, genes: str | None = None) -> pd.DataFrame:
    """Return the rows of one part, without columns that it does not have."""
    found = rows[(rows["part"] == name) & ((rows["genes"] == genes) if genes is not None else True)]
    return found.dropna(axis=1, how="all")


def fit_of_contexts(found: pd.DataFrame) -> pd.DataFrame:
    """Sort contexts by how much they change. A context fits if two directions are not ruled out, by Holm over all."""
    found = found.assign(holm=holm(found["p_robust"].to_numpy()), seen=holm(found["p_change"].to_numpy()) <= ALPHA)
    found = found.sort_values("nats_change", ascending=False)
    share = found["share"].where(found["seen"])
    verdict = np.where(~found["seen"], "no change seen", np.where(found["holm"] <= ALPHA, "does not fit", "fits"))
    return pd.DataFrame({
        "context": found["context"], "cells": found["n"].astype(int), "p, nothing changes": found["p_change"],
        "p, two directions (Gaussian)": found["p_gaussian"], "p, two directions (robust)": found["p_robust"],
        "Holm": found["holm"], "verdict": verdict, "share in two directions": share,
        "nats per cell beyond": found["nats_beyond"], "ρ₂": found["rho"],
    })  # fmt: skip


def fit_by_genes(found: pd.DataFrame) -> pd.DataFrame:
    found = found[found["context"].isin(CORE)]
    share = found["share"].where(found["p_change"] <= ALPHA)
    columns = {"p, nothing changes": found["p_change"], "p, two directions (robust)": found["p_robust"]}
    made = pd.DataFrame({"genes": found["genes"], "context": found["context"], **columns})
    return made.assign(**{"share in two directions": share})


def sizes(found: pd.DataFrame) -> pd.DataFrame:
    made = found.groupby("context", sort=False).first().reset_index()
    outside = found.assign(up=found["value"] > found["high"], down=found["value"] < found["low"])
    counts = outside.groupby("context", sort=False)[["up", "down"]].sum().reset_index()
    return pd.DataFrame({
        "context": made["context"], "eigenvalues above the band": counts["up"].astype(int),
        "below": counts["down"].astype(int), "band from": made["low"], "to": made["high"],
        "“nothing changes” rejected, robust": made["size_change"],
        "the same, Gaussian": made["size_change_gaussian"], "“two directions” rejected": made["size_two"],
    })  # fmt: skip


def pairs(rows: pd.DataFrame, main: str) -> Table:
    """List every pair in the main gene set and without targeted genes, cosines with 95 % bootstrap intervals."""
    made = []
    drawn = part(rows, "pair draw")
    for genes in drawn["genes"].unique():
        found = part(rows, "pair", genes)
        found = found.assign(holm=holm(found["p_robust"].to_numpy())).sort_values("cosine", ascending=False)
        for _, row in found.iterrows():
            draws = drawn[
                (drawn["genes"] == genes) & (drawn["context"] == row["context"]) & (drawn["other"] == row["other"])
            ]
            line = {"genes": genes, "context": row["context"], "other": row["other"]}
            for name, word in (("cosine", "cosine"), ("shift_cosine", "cosine of shifts")):
                low, high = np.quantile(draws[name].astype(float), [0.025, 0.975], method="weibull")
                line |= {word: row[name], f"{word}, low": low, f"{word}, high": high}
            line |= {"p, one target": row["p_robust"], "Holm": row["holm"], "nats per cell beyond": row["nats_beyond"]}
            line["in one group (share of draws)"] = draws["together"].astype(float).mean()
            made.append(line)
    return made


def groups(found: pd.DataFrame) -> Table:
    """Compare the cascade with the rest in every gene set, and list the groups at the default threshold."""
    made = []
    for genes, here in found.groupby("genes", sort=False):
        inside = here["context"].isin(CASCADE) & here["other"].isin(CASCADE)
        across = here["context"].isin(CASCADE) ^ here["other"].isin(CASCADE)
        p = holm(here["p_robust"].to_numpy())
        made.append(
            {
                "genes": genes,
                "least cosine within the cascade": here.loc[inside, "cosine"].min(),
                "largest cosine to others": here.loc[across, "cosine"].max(),
                "least p within, Holm": p[inside].min(),
                "largest p to others, Holm": p[across].max(),
                "groups": _groups(here),
            }
        )
    return made


def _groups(here: pd.DataFrame) -> str:
    home = {c: c for c in CORE}
    for _, row in here[here["together"].astype(bool)].iterrows():
        first = home[row["context"]]
        home = {c: first if g == home[row["other"]] else g for c, g in home.items()}
    return "; ".join(", ".join(c for c in CORE if home[c] == g) for g in dict.fromkeys(home.values()))


def guides(found: pd.DataFrame) -> Table:
    inside = found["context"].isin(CASCADE) & found["other"].isin(CASCADE)
    same = found["context"] == found["other"]
    kinds = {
        "two guides of one gene of the cascade": inside & same, "guides of two genes of the cascade": inside & ~same,
        "two guides of IRF1": same & ~inside, "a guide of the cascade, one of IRF1": ~inside & ~same,
    }  # fmt: skip
    made = []
    for genes in found["genes"].unique():
        for kind, mask in kinds.items():
            values = found.loc[mask & (found["genes"] == genes), "shift_cosine"]
            if len(values):
                ends = {"median cosine of shifts": values.median(), "least": values.min(), "largest": values.max()}
                made.append({"genes": genes, "pairs": kind, "number": len(values), **ends})
    return made


def order(found: pd.DataFrame) -> Table:
    made = []
    for (genes, kind), here in found.groupby(["genes", "kind"], sort=False):
        share = {name: float((here["relation"] == name).mean()) for name in RELATIONS}
        weight = here.loc[here["relation"].str.endswith("first"), "weight"].median()
        made.append({"genes": genes, "kind": kind, "fits": len(here), **share, "size of the effect, median": weight})
    return made


def graph(found: pd.DataFrame) -> pd.DataFrame:
    """List every ancestor relation: its edge in the fit, and how often it comes back."""
    edges = found[found["what"] == "edge"]
    draws = found.loc[found["draw"] >= 0, "draw"].nunique()
    made = []
    for (a, b), here in edges.groupby(["source", "target"], sort=False):
        fit, drawn = here[here["draw"] < 0], here[here["draw"] >= 0]
        made.append(
            {
                "source": a,
                "target": b,
                "edge in the fit": bool(fit["edge"].any()),
                "weight": fit["weight"].max() if len(fit) else np.nan,
                "edge, share of draws": float(drawn["edge"].astype(bool).sum() / draws),
                "ancestor, share of draws": len(drawn) / draws,
            }
        )
    return pd.DataFrame(made).sort_values("ancestor, share of draws", ascending=False)


def loadings(found: pd.DataFrame) -> pd.DataFrame:
    """List effects of the fit, with their standard deviation over draws."""
    effects = found[found["what"] == "loading"]
    fit = effects[effects["draw"] < 0].set_index(["latent", "gene"])["effect"]
    error = effects[effects["draw"] >= 0].groupby(["latent", "gene"])["effect"].std()
    made = pd.DataFrame({"effect": fit, "error": error.reindex(fit.index)}).reset_index()
    made["z"] = made["effect"] / made["error"]
    made["size"] = made["effect"].abs()
    return made.sort_values(["latent", "size"], ascending=[True, False]).drop(columns="size")


def held_out(found: pd.DataFrame) -> Table:
    """Return gains in nats per held-out cell, with standard errors over folds or replicates."""
    found = found.assign(by=np.where(found["held_out"].str.startswith("fold"), "a fold", "a replicate"))
    made = []
    for (genes, form, by, context), here in found.groupby(["genes", "form", "by", "context"], sort=False):
        line = {"genes": genes, "form": form, "held out": by, "context": context, "cells": int(here["n"].sum())}
        for other, word in (("control", "over control"), ("additive", "over additive"), ("own", "over own law")):
            gain = here["model"] - here[other]
            line |= {word: gain.mean(), f"{word}, s.e.": gain.std(ddof=1) / np.sqrt(len(gain))}
        made.append(line)
    return made


def unseen(found: pd.DataFrame) -> pd.DataFrame:
    """Return gains for a context of the cascade that is predicted as another of them."""
    made = found[["context", "other", "n"]].rename(columns={"other": "predicted as", "n": "cells"})
    made["cells"] = made["cells"].astype(int)
    for other, word in (("control", "over control"), ("additive", "over that shift alone"), ("own", "over that law")):
        made[word] = found["model"] - found[other]
    return made


def findings(tables: Mapping[str, Table], main: str, p_omnibus: float) -> list[str]:
    """Return what a reader should take home, in the order of trust.

    ``p_omnibus`` is the p-value of the omnibus test of four latents. docs/tutorials/interferon.ipynb explains it all.
    """
    frames = {title: pd.DataFrame(table) for title, table in tables.items()}
    return [
        _membership(frames["Does each context fit the model"].set_index("context"), main),
        *_same(frames["Which contexts hit the same latent"]),
        *_order(frames["Cascade and IRF1: which comes first"]),
        f"Four latents (cascade, IRF1, SMAD4, UBE2L6): the omnibus test gives p = {p_omnibus:.2g}. "
        + ("The graph describes an approximation." if p_omnibus <= ALPHA else "It does not reject the model."),
        *_prediction(frames["Held-out cells"]),
    ]


def _membership(table: pd.DataFrame, main: str) -> str:
    share = table["share in two directions"]
    named = {v: list(table.index[table["verdict"] == v]) for v in ("does not fit", "fits", "no change seen")}
    listed = {v: ", ".join(f"{name} ({share[name]:.0%})" for name in named[v]) or "none" for v in list(named)[:2]}
    return (
        f"Of {len(table)} contexts ({main} genes), {len(named['no change seen'])} cannot be told from the control in "
        f"their covariance. More than one target can do: {listed['does not fit']}. Within what one target "
        f"can do: {listed['fits']}. In brackets: the share of the change that two directions hold."
    )


def _same(pairs: pd.DataFrame) -> list[str]:
    said = []
    cascade = [pairs[name].isin(CASCADE) for name in ("context", "other")]
    irf1 = (cascade[0] & (pairs["other"] == "IRF1")) | (cascade[1] & (pairs["context"] == "IRF1"))
    for genes in pairs["genes"].unique():
        inside, to = (pairs[mask & (pairs["genes"] == genes)] for mask in (cascade[0] & cascade[1], irf1))
        said.append(
            f"{genes} genes: within {', '.join(CASCADE)} cosines are at least {inside['cosine'].min():.2f} "
            f"(lowest bootstrap bound {inside['cosine, low'].min():.2f}), and one exact target is rejected for "
            f"{int((inside['Holm'] <= ALPHA).sum())} of {len(inside)} pairs. To IRF1 they are "
            f"{to['cosine'].min():.2f} to {to['cosine'].max():.2f} (highest bound {to['cosine, high'].max():.2f}), "
            f"rejected for {int((to['Holm'] <= ALPHA).sum())} of {len(to)}."
        )
    return said


def _order(table: pd.DataFrame) -> list[str]:
    noisy = table["kind"].str.startswith(NOISY)
    plain, with_noise = table[~noisy], table[noisy].assign(kind=table["kind"].str.removeprefix(NOISY))
    said = [*_order_found(plain, ""), *_order_found(with_noise, ", allowing for noise in every gene")]
    rule = "The order says something about IRF1 only where it is much rarer with shuffled labels."
    return [*said, f"Known biology has the cascade first. {rule}"]


def _order_found(table: pd.DataFrame, noise: str) -> list[str]:
    """Return what fits with one kind of noise say about the order."""
    cells = table[table["kind"] == "all cells"]
    first = {name: list(cells.loc[cells[name] > 0, "genes"]) for name in RELATIONS}
    failed = f", and no fit in {len(first['no fit'])}" if first["no fit"] else ""
    said = [
        f"Cascade and IRF1 as two latents{noise}, all cells: the cascade comes first in "
        f"{len(first['cascade first'])} of {len(cells)} gene sets, IRF1 in {len(first['IRF1 first'])} "
        f"({', '.join(first['IRF1 first']) or 'none'}), and there is no edge in {len(first['no edge'])}{failed}."
    ]
    for genes, here in table[table["kind"].str.contains("shuffled")].groupby("genes", sort=False):
        boot = table[(table["genes"] == genes) & (table["kind"] == "bootstrap")].iloc[0]
        said.append(
            f"{genes} genes{noise}: IRF1 comes first in {boot['IRF1 first']:.0%} of {int(boot['fits'])} bootstrap "
            f"draws, and in up to {here['IRF1 first'].max():.0%} of fits with shuffled labels."
        )
    return said


def _prediction(table: pd.DataFrame) -> list[str]:
    said = []
    table = table[table["context"].isin(CORE) & (table["form"] == "downstream")]
    for (genes, by), here in table.groupby(["genes", "held out"], sort=False):
        weights = here["cells"] / here["cells"].sum()
        mean = {word: float(weights @ here[word]) for word in ("over control", "over additive", "over own law")}
        said.append(
            f"{by[0].upper()}{by[1:]} held out, {genes} genes: the fit gains {mean['over control']:.2f} nats per cell "
            f"over the control, {mean['over additive']:.2f} over the additive reference, and "
            f"{round(mean['over own law'], 2) + 0.0:.2f} over each context's own mean and covariance from training."
        )
    return said
