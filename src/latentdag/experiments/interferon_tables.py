"""Tables of the interferon-γ study, from its rows alone."""

from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.multiplicity import holm
from latentdag.experiments.base import Table
from latentdag.experiments.thp1_cells import CASCADE, CORE

ALPHA = 0.05
RELATIONS = ("cascade first", "IRF1 first", "no edge")


def tables(rows: pd.DataFrame, main: str) -> dict[str, Table]:
    """All tables by title."""
    return {
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


def part(rows: pd.DataFrame, name: str, genes: str | None = None) -> pd.DataFrame:
    """Rows of one part, without columns that it does not have."""
    found = rows[(rows["part"] == name) & ((rows["genes"] == genes) if genes is not None else True)]
    return found.dropna(axis=1, how="all")


def records(table: pd.DataFrame) -> Table:
    """Plain values; what is not a number becomes None."""
    return [
        {str(k): _plain(v) for k, v in row.items()} for row in table.reset_index(drop=True).to_dict(orient="records")
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(value)
    return int(value) if isinstance(value, np.integer) else value


def fit_of_contexts(found: pd.DataFrame) -> Table:
    """Contexts by how much they change; a context is kept if two directions are not ruled out, by Holm over all."""
    found = found.assign(holm=holm(found["p_robust"].to_numpy()), seen=holm(found["p_change"].to_numpy()) <= ALPHA)
    found = found.sort_values("nats_change", ascending=False)
    share = found["share"].where(found["seen"])
    verdict = np.where(~found["seen"], "no change seen", np.where(found["holm"] <= ALPHA, "does not fit", "fits"))
    return records(
        pd.DataFrame(
            {
                "context": found["context"], "cells": found["n"].astype(int), "p, nothing changes": found["p_change"],
                "p, two directions (Gaussian)": found["p_gaussian"], "p, two directions (robust)": found["p_robust"],
                "Holm": found["holm"], "verdict": verdict, "share in two directions": share,
                "nats per cell beyond": found["nats_beyond"], "ρ₂": found["rho"],
            }
        )
    )  # fmt: skip


def fit_by_genes(found: pd.DataFrame) -> Table:
    found = found[found["context"].isin(CORE)]
    share = found["share"].where(found["p_change"] <= ALPHA)
    columns = {"p, nothing changes": found["p_change"], "p, two directions (robust)": found["p_robust"]}
    made = pd.DataFrame({"genes": found["genes"], "context": found["context"], **columns})
    return records(made.assign(**{"share in two directions": share}))


def sizes(found: pd.DataFrame) -> Table:
    made = found.groupby("context", sort=False).first().reset_index()
    outside = found.assign(up=found["value"] > found["high"], down=found["value"] < found["low"])
    counts = outside.groupby("context", sort=False)[["up", "down"]].sum().reset_index()
    return records(
        pd.DataFrame(
            {
                "context": made["context"], "eigenvalues above the band": counts["up"].astype(int),
                "below": counts["down"].astype(int), "band from": made["low"], "to": made["high"],
                "“nothing changes” rejected, robust": made["size_change"],
                "the same, Gaussian": made["size_change_gaussian"], "“two directions” rejected": made["size_two"],
            }
        )
    )  # fmt: skip


def pairs(rows: pd.DataFrame, main: str) -> Table:
    """Every pair in the main gene set and without targeted genes, cosines with 95 % bootstrap intervals."""
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
    return records(pd.DataFrame(made))


def groups(found: pd.DataFrame) -> Table:
    """Per gene set: the cascade against the rest, and the groups at the default threshold."""
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
    return records(pd.DataFrame(made))


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
    return records(pd.DataFrame(made))


def order(found: pd.DataFrame) -> Table:
    made = []
    for (genes, kind), here in found.groupby(["genes", "kind"], sort=False):
        share = {name: float((here["relation"] == name).mean()) for name in RELATIONS}
        weight = here.loc[here["relation"] != "no edge", "weight"].median()
        made.append({"genes": genes, "kind": kind, "fits": len(here), **share, "size of the effect, median": weight})
    return records(pd.DataFrame(made))


def graph(found: pd.DataFrame) -> Table:
    """Every ancestor relation: its edge in the fit, and how often it comes back."""
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
    return records(pd.DataFrame(made).sort_values("ancestor, share of draws", ascending=False))


def loadings(found: pd.DataFrame) -> Table:
    """Effects of the fit, with the standard deviation over draws."""
    effects = found[found["what"] == "loading"]
    fit = effects[effects["draw"] < 0].set_index(["latent", "gene"])["effect"]
    error = effects[effects["draw"] >= 0].groupby(["latent", "gene"])["effect"].std()
    made = pd.DataFrame({"effect": fit, "error": error.reindex(fit.index)}).reset_index()
    made["z"] = made["effect"] / made["error"]
    made["size"] = made["effect"].abs()
    return records(made.sort_values(["latent", "size"], ascending=[True, False]).drop(columns="size"))


def held_out(found: pd.DataFrame) -> Table:
    """Gains in nats per held-out cell, with standard errors over folds or replicates."""
    found = found.assign(by=np.where(found["held_out"].str.startswith("fold"), "a fold", "a replicate"))
    made = []
    for (genes, form, by, context), here in found.groupby(["genes", "form", "by", "context"], sort=False):
        line = {"genes": genes, "form": form, "held out": by, "context": context, "cells": int(here["n"].sum())}
        for other, word in (("control", "over control"), ("additive", "over additive"), ("own", "over own law")):
            gain = here["model"] - here[other]
            line |= {word: gain.mean(), f"{word}, s.e.": gain.std(ddof=1) / np.sqrt(len(gain))}
        made.append(line)
    return records(pd.DataFrame(made))


def unseen(found: pd.DataFrame) -> Table:
    """A context of the cascade, predicted as another of them."""
    made = found[["context", "other", "n"]].rename(columns={"other": "predicted as", "n": "cells"})
    made["cells"] = made["cells"].astype(int)
    for other, word in (("control", "over control"), ("additive", "over that shift alone"), ("own", "over that law")):
        made[word] = found["model"] - found[other]
    return records(made)
