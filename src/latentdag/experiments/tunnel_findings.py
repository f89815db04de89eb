"""What the light tunnel says, in sentences and tables."""

from typing import Any

import pandas as pd

from latentdag.experiments.base import Outcome, Settings, Table
from latentdag.experiments.decompositions import NAMES
from latentdag.experiments.tunnel import COLOURS, SETS

MAIN, *_, TWINS = SETS
OTHERS = ("projection", "projection, about the control", *NAMES)
GOOD = 0.98  #: cosine of a row that counts as recovered
KEY = ["part", "set", "share"]
FACTS = {
    "twin noise": "correlation of the noises of ir_1 and vis_1",
    "sensor noise": "largest correlation between noises of ir_1, ir_2 and current",
    "bend": "largest shift of a sensor's noise when a colour is bright, in its standard deviations",
    "LED in the control": "effect of LED l_21 on ir_2 in the control, as a share of red's",
    "LED in its context": "the same in the context that makes the LED bright",
}


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    known = rows[rows["part"] == "facts"].set_index("fact")["value"]
    facts = [{"what": what, "value": float(known[name])} for name, what in FACTS.items()]
    runs = rows[rows["part"] != "facts"]
    accuracy = accuracy_table(runs[runs["method"] != "edges"])
    edges = edge_table(runs[runs["method"] == "edges"])
    said = [
        _behind_maps(runs),
        *_on_other_rows(accuracy),
        *_on_edges(edges),
        _on_sensors(known),
        _on_weights(edges, known),
        _on_tests(runs),
        *_on_leds(edges, known),
        *_on_twins(accuracy, runs, known),
    ]
    return Outcome(said, {"Rows and order": accuracy, "Edges": edges, "The machine itself": facts})


def accuracy_table(runs: pd.DataFrame) -> Table:
    table: Table = []
    for (part, name, share, method), group in runs.groupby([*KEY, "method"], sort=False):
        table.append(
            {
                "part": part, "set": name, "share of rows": float(share), "method": method, "draws": len(group),
                "worst row, median": _median(group["cosine"]),
                "worst row, worst": float(group["cosine"].min()),
                "all rows, mean": _mean(group["mean_cosine"]),
                f"all rows ≥ {GOOD}": float((group["cosine"] >= GOOD).mean()),
                "correlation of latents": _mean(group["correlation"]),
                "colours before sensors": _mean(group["colours_first"]),
                "failed": int((group["failure"] != "").sum()),
            }
        )  # fmt: skip
    return table


def edge_table(runs: pd.DataFrame) -> Table:
    table: Table = []
    for (part, name, share, knowledge), group in runs.groupby([*KEY, "knowledge"], sort=False):
        intervals = group["intervals"].sum()
        table.append(
            {
                "part": part, "set": name, "share of rows": float(share), "known": knowledge, "draws": len(group),
                "colour → sensor found": _mean(group["colour_edges"]),
                "exactly these": _mean(group["edges_exact"]),
                "ancestors exact": _mean(group["ancestors_exact"]),
                "false, per pair of colours": _mean(group["false_between_colours"] / len(COLOURS)),
                "false between sensors, per draw": _mean(group["false_between_sensors"]),
                "LED → sensor found, per draw": _mean(group["led_edges"]),
                "false with LEDs, per draw": _mean(group["false_with_leds"]),
                "error of effects, control": _median(group["weight_error_control"]),
                "error of effects, all contexts": _median(group["weight_error_all"]),
                "95 % intervals that hold, control": float(group["covered_control"].sum() / intervals),
                "95 % intervals that hold, all contexts": float(group["covered_all"].sum() / intervals),
            }
        )  # fmt: skip
    return table


def _mean(values: pd.Series) -> float | None:
    known = values.dropna().astype(float)
    return float(known.mean()) if len(known) else None


def _median(values: pd.Series) -> float | None:
    known = values.dropna().astype(float)
    return float(known.median()) if len(known) else None


def _behind_maps(runs: pd.DataFrame) -> str:
    maps = runs[(runs["part"] == "maps") & (runs["method"] == "likelihood")]
    features = " and ".join(f"{int(p)}" for p in sorted(maps["features"].unique()))
    return (
        f"One data set of {MAIN} behind {len(maps)} random maps to {features} features, contexts taken as soft: every "
        f"row of structural() @ unmixing @ G has a cosine of at least {maps['cosine'].min():.4f} with the equation of "
        f"ordinary regression, the same behind every map to {maps['cosine'].max() - maps['cosine'].min():.0e}, and "
        f"every colour comes before every sensor in {_mean(maps['colours_first']):.0%}."
    )


def _on_other_rows(accuracy: Table) -> list[str]:
    said = []
    table = pd.DataFrame(accuracy).query("part == 'rows'")
    for (name, share), lines in table.groupby(["set", "share of rows"], sort=False):
        ours = lines[lines["method"] == "likelihood"].iloc[0]
        others = lines[lines["method"].isin(OTHERS)]
        best = others.loc[others["worst row, median"].fillna(0.0).idxmax()]
        said.append(
            f"{name[0].upper()}{name[1:]}, {share:.0%} of the rows, {ours['draws']} draws: the cosine of the worst row "
            f"is {ours['worst row, median']:.3f} in the median and {ours['worst row, worst']:.3f} at worst, and "
            f"colours come before sensors in {ours['colours before sensors']:.0%}. The best of the others, "
            f"{best['method']}, has {best['worst row, median']:.3f} and {best['worst row, worst']:.3f}."
        )
    return said


def _on_edges(edges: Table) -> list[str]:
    said = []
    for line in edges:
        if line["part"] != "rows" or line["set"] == TWINS:
            continue
        sentence = (
            f"Edges of {line['set']}, {line['share of rows']:.0%} of the rows, knowing {line['known']}: which sensors "
            f"are downstream of which colours is exact in {line['ancestors exact']:.0%}, and the edges from colours to "
            f"sensors in {line['exactly these']:.0%}"
        )
        if line["known"] == edges[0]["known"]:  # whoever knows roles excludes these edges himself
            sentence += (
                f"; false edges on {line['false, per pair of colours']:.1%} of the pairs of colours (nominal: 5 %), "
                f"and {line['false between sensors, per draw']:.2f} between sensors per draw"
            )
        said.append(f"{sentence}.")
    return said


def _on_weights(edges: Table, facts: "pd.Series[Any]") -> str:
    lines = [line for line in edges if line["set"] == MAIN and line["known"] == edges[-1]["known"]]
    covered = ", ".join(
        f"{line['95 % intervals that hold, all contexts']:.0%} and {line['95 % intervals that hold, control']:.0%} "
        f"with {line['share of rows']:.0%} of the rows"
        for line in lines
    )
    return (
        f"With all rows, effects of colours on sensors are within {lines[0]['error of effects, all contexts']:.1%} of "
        f"regression over all contexts (median), and within {lines[0]['error of effects, control']:.1%} of regression "
        f"in the control. The 95 % intervals hold the one and the other in {covered}: they are too narrow for a "
        f"machine that is not linear, where a sensor's noise moves by up to {facts['bend']:.2f} standard deviations "
        "when a colour is bright."
    )


def _on_tests(runs: pd.DataFrame) -> str:
    shares = runs.dropna(subset=["refused"]).astype({"refused": float}).groupby("share")["refused"].mean()
    said = ", ".join(f"{value:.0%} of the draws with {share:.0%} of the rows" for share, value in shares.items())
    return f"The membership test, told to expect any noise, says that the linear model is not exact: it refuses {said}."


def _on_sensors(facts: "pd.Series[Any]") -> str:
    return (
        f"No sensor acts on another, but their noises correlate by up to {facts['sensor noise']:.2f}, and a sensor is "
        "nearly a sum of colours. Unless it is known that sensors only measure, an edge between sensors can stand in "
        "for one from a colour: it is then the ancestors that are right, which is all that soft contexts identify."
    )


def _on_leds(edges: Table, facts: "pd.Series[Any]") -> list[str]:
    lines = [line for line in edges if line["set"] == "a sensor and its LEDs"]
    counts = "; ".join(
        f"knowing {line['known']}, {line['LED → sensor found, per draw']:.2f} of the two edges from LEDs are found per "
        f"draw, and {line['false with LEDs, per draw']:.2f} false ones with LEDs"
        for line in lines
    )
    why = (
        f"LEDs: {counts}. Where l_21 is dim its effect on ir_2 is {facts['LED in the control']:.1%} of red's, and "
        f"where its context makes it bright {facts['LED in its context']:.1%}: no line does both."
    )
    return [why] if lines else []


def _on_twins(accuracy: Table, runs: pd.DataFrame, facts: "pd.Series[Any]") -> list[str]:
    refused = _mean(runs.loc[runs["set"] == TWINS, "refused"])
    return [
        f"Noise shared with a latent that nobody intervened on (vis_1 beside ir_1, correlation "
        f"{facts['twin noise']:.2f}), {line['method']}: the cosine of the worst row is {line['worst row, median']:.2f} "
        f"(median); the membership test refuses {refused:.0%}."
        for line in accuracy
        if line["set"] == TWINS and line["method"].startswith("likelihood")
    ]
