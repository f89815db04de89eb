"""``latentdag workflow``: read a screen and a cohort, run the workflow, write the fit and what survival says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from latentdag import datasets
from latentdag import workflow as wf
from latentdag.cli.files import tell
from latentdag.cli.results import fit_folder, write_figures, write_result, write_tables
from latentdag.cli.source import listed_names
from latentdag.data.sources.reader import reading
from latentdag.datasets.containers import Cohort, Screen
from latentdag.datasets.variants import names_in
from latentdag.optional import optional
from latentdag.report import Results

#: Columns of a survival table that are looked for, unless others are named.
TIMES, EVENTS = ("time", "OS.time", "_OS"), ("event", "OS", "_OS_IND")

#: Files beside those of the fit.
PAGES = ("workflow.html", "workflow.md")
SURVIVAL_TABLES = ("survival-latents", "survival-genes", "survival-random", "scores", "membership", "genes")
SURVIVAL_FIGURES = ("latent-graph-survival", "hazard-latents", "hazard-genes")

#: Options that say what the data are; ``parameters.json`` has them as "source".
READING = (
    "context_column", "control", "layer", "adjust", "root", "survival", "time_column", "event_column",
)  # fmt: skip


def workflow(
    *, screen: str, cohort: str, out: Path, random: int, seed: int, progress: bool | None, as_json: bool, **options: Any
) -> None:
    """Read a screen and a cohort, run the workflow, and write the folder of the fit with what survival says."""
    source = {name: options.pop(name) for name in READING}
    options["n_random"] = random
    with fit_folder(out, PAGES, SURVIVAL_TABLES, SURVIVAL_FIGURES) as place:
        measured, adjust = read_screen(screen, source)
        patients = read_cohort(cohort, source)
        genes = names_in(Path(options["genes"])) if options["genes"] else None
        chosen = {**options, "genes": genes, "contexts": listed_names(options["contexts"]) or None, "rng": seed}
        found = wf.run(measured, patients, adjust=adjust, progress=progress, **chosen)
        told = {
            "screen": screen,
            "cohort": cohort,
            "options": options,
            "source": {name: str(value) for name, value in source.items() if value},
            **place.times(),
        }
        with place.replaced() as new:
            write_result(new, Results(found.fit, found.moments, seed=seed), told, page=found.results)
            write_tables(new / "tables", found.tables)
            write_figures(new / "figures", wf.page_figures(found).items())
            for name in PAGES:
                wf.write(found, new / name, report_link="report.html")
    tell("\n".join(found.sentences()), _said(found, out), as_json, f"{out}/: start with {out}/workflow.html")


def _said(found: wf.Workflow, out: Path) -> dict[str, Any]:
    """Return what a program is told about a workflow."""
    return {
        "in_model": bool(found.membership.in_model),
        "verdict": found.membership.verdict,
        "unexplained": found.membership.omnibus.unexplained,
        "order": list(found.fit.order),
        "edges": found.edges.to_dict("records"),
        "latents": found.latents.reset_index(names="latent").to_dict("records"),
        "significant_latents": found.significant,
        "significant_genes": [str(g) for g in found.genes.index[found.genes["significant"]]],
        "out": str(out),
    }


# ---- reading --------------------------------------------------------------------------------------------------------


def read_screen(screen: str, source: dict[str, Any]) -> tuple[Screen, list[str]]:
    """Read a screen, by the name of a data set or from an .h5ad file; return it with the covariates to regress out."""
    adjust, root = listed_names(source["adjust"]), source["root"]
    if screen == "papalexi_thp1":
        return datasets.papalexi_thp1(root, strict=True), adjust or ["rep"]
    if screen == "kras":
        return datasets.kras(root), adjust
    path = Path(screen)
    if not path.exists():
        raise FileNotFoundError(f"{screen} is neither a file nor a data set (papalexi_thp1, kras)")
    if not source["control"] or not source["context_column"]:
        raise ValueError("name the column of .obs with each cell's context (--context-column) and the --control in it")
    anndata = optional("anndata", "anndata", f"reading {path}")
    with reading(path):
        adata = anndata.read_h5ad(path)
    made = wf.screen_of(adata, source["context_column"], source["control"], source["layer"])
    return replace(made, name=path.stem), adjust


def read_cohort(cohort: str, source: dict[str, Any]) -> Cohort:
    """Read a cohort, by the name of a data set or from a table of expression and one of survival."""
    if cohort == "tcga_luad":
        return datasets.tcga_luad(source["root"])
    path = Path(cohort)
    if not path.exists():
        raise FileNotFoundError(f"{cohort} is neither a file nor a data set (tcga_luad)")
    if not source["survival"]:
        raise ValueError("name the table of survival with --survival: patients in its first column, time and event")
    survival = _survival(Path(source["survival"]), source["time_column"], source["event_column"])
    expression = _table(path)
    if not len(expression.index.intersection(survival.index)):
        expression = expression.T  # genes in rows
    shared = expression.index.intersection(survival.index)
    if not len(shared):
        raise ValueError(f"{path} and {source['survival']} have no patient in common")
    return Cohort(path.name.split(".")[0], expression.loc[shared].astype(float), survival.loc[shared])


def _survival(path: Path, time: str, event: str) -> pd.DataFrame:
    table = _table(path)
    columns = {}
    for role, named, known in (("time", time, TIMES), ("event", event, EVENTS)):
        found = [name for name in ([named] if named else known) if name in table]
        if not found:
            raise ValueError(
                f"{path} has no column {named or ' or '.join(known)}; name the {role} with --{role}-column"
            )
        columns[role] = pd.to_numeric(table[found[0]], errors="coerce")
    made = pd.DataFrame(columns)
    made = made[made.notna().all(axis=1) & (made["time"] > 0) & ~made.index.duplicated()]
    return made.astype({"event": int})


def _table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with reading(path):
        made = pd.read_csv(path, index_col=0, sep="\t" if ".tsv" in path.suffixes else ",")
    made.index = made.index.astype(str)
    return made
