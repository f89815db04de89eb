"""Tables of the light tunnel and what they say."""

import pandas as pd

from latentdag.experiments import Column, Outcome, Settings, Table, failures, table_by
from studies.decompositions import NAMES
from studies.light_tunnel.machine import COLOURS, MAIN, TWINS
from studies.means import mean_of, mean_or_none

OTHERS = ("projection", "projection, about the control", *NAMES)
GOOD = 0.98  #: cosine of a row that counts as recovered
KEY = ("part", "set", "share of rows")
FACTS = {
    "twin noise": "correlation of the noises of ir_1 and vis_1",
    "sensor noise": "largest correlation between noises of ir_1, ir_2 and current",
    "bend": "largest shift of a sensor's noise when a colour is bright, in its standard deviations",
    "LED in the control": "effect of LED l_21 on ir_2 in the control, as a share of red's",
    "LED in its context": "the same in the context that makes the LED bright",
}


def median(values: pd.Series) -> float | None:
    """Return the median of known values, or None where there are none."""
    known = values.dropna().astype(float)
    return float(known.median()) if len(known) else None


#: Columns of the table of rows and order, from the rows of one method.
ACCURACY: dict[str, Column] = {
    "draws": len,
    "worst row, median": lambda rows: median(rows["cosine"]),
    "worst row, worst": lambda rows: float(rows["cosine"].min()),
    "all rows, mean": mean_of("mean_cosine"),
    f"all rows ≥ {GOOD}": lambda rows: float((rows["cosine"] >= GOOD).mean()),
    "correlation of latents": mean_of("correlation"),
    "colours before sensors": mean_of("colours_first"),
    "failed": failures,
}

#: Columns of the table of edges, from the rows with one state of knowledge.
EDGES: dict[str, Column] = {
    "draws": len,
    "colour → sensor found": mean_of("colour_edges"),
    "exactly these": mean_of("edges_exact"),
    "ancestors exact": mean_of("ancestors_exact"),
    "false, per pair of colours": lambda rows: mean_or_none(rows["false_between_colours"] / len(COLOURS)),
    "false between sensors, per draw": mean_of("false_between_sensors"),
    "LED → sensor found, per draw": mean_of("led_edges"),
    "false with LEDs, per draw": mean_of("false_with_leds"),
    "error of effects, control": lambda rows: median(rows["weight_error_control"]),
    "error of effects, all contexts": lambda rows: median(rows["weight_error_all"]),
    "95 % intervals that hold, control": lambda rows: float(rows["covered_control"].sum() / rows["intervals"].sum()),
    "95 % intervals that hold, all contexts": lambda rows: float(rows["covered_all"].sum() / rows["intervals"].sum()),
}


def summarize(rows: pd.DataFrame, settings: Settings) -> Outcome:
    known = rows[rows["part"] == "facts"].set_index("fact")["value"]
    facts = [{"what": what, "value": float(known[name])} for name, what in FACTS.items()]
    runs = rows[rows["part"] != "facts"]
    named = runs.rename(columns={"share": "share of rows", "knowledge": "known"})
    accuracy = table_by(named[named["method"] != "edges"], [*KEY, "method"], ACCURACY)
    edges = table_by(named[named["method"] == "edges"], [*KEY, "known"], EDGES)
    said = [behind_maps(runs), *on_other_rows(accuracy), *on_edges(edges), on_tests(runs)]
    return Outcome(said, {"Rows and order": accuracy, "Edges": edges, "The machine itself": facts})


def behind_maps(runs: pd.DataFrame) -> str:
    maps = runs[(runs["part"] == "maps") & (runs["method"] == "likelihood")]
    features = " and ".join(f"{int(p)}" for p in sorted(maps["features"].unique()))
    return (
        f"One data set of {MAIN} behind {len(maps)} random maps to {features} features, contexts taken as soft: every "
        f"row of structural() @ unmixing @ G has a cosine of at least {maps['cosine'].min():.4f} with the equation of "
        f"ordinary regression, the same behind every map to {maps['cosine'].max() - maps['cosine'].min():.0e}, and "
        f"every colour comes before every sensor in {mean_or_none(maps['colours_first']):.0%}."
    )


def on_other_rows(accuracy: Table) -> list[str]:
    said = []
    lines = pd.DataFrame(accuracy).query("part == 'rows'")
    for (name, share), here in lines.groupby(["set", "share of rows"], sort=False):
        ours = here[here["method"] == "likelihood"].iloc[0]
        others = here[here["method"].isin(OTHERS)]
        best = others.loc[others["worst row, median"].fillna(0.0).idxmax()]
        said.append(
            f"{name[0].upper()}{name[1:]}, {share:.0%} of the rows, {ours['draws']} draws: the cosine of the worst row "
            f"is {ours['worst row, median']:.3f} in the median and {ours['worst row, worst']:.3f} at worst, and "
            f"colours come before sensors in {ours['colours before sensors']:.0%}. The best of the others, "
            f"{best['method']}, has {best['worst row, median']:.3f} and {best['worst row, worst']:.3f}."
        )
    return said


def on_edges(edges: Table) -> list[str]:
    return [
        f"Edges of {line['set']}, {line['share of rows']:.0%} of the rows, knowing {line['known']}: which sensors "
        f"are downstream of which colours is exact in {line['ancestors exact']:.0%}, and the edges from colours to "
        f"sensors in {line['exactly these']:.0%}."
        for line in edges
        if line["part"] == "rows" and line["set"] != TWINS
    ]


def on_tests(runs: pd.DataFrame) -> str:
    shares = runs.dropna(subset=["refused"]).astype({"refused": float}).groupby("share")["refused"].mean()
    said = ", ".join(f"{value:.0%} of the draws with {share:.0%} of the rows" for share, value in shares.items())
    return f"The membership test, told to expect any noise, says that the linear model is not exact: it refuses {said}."
