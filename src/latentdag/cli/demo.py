"""The demo: a simulated screen, recovered and compared with what made it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from latentdag import pl
from latentdag.cli.files import SCREEN, write_figure, write_screen
from latentdag.cli.place import reserved
from latentdag.cli.results import FIGURES, FILES, TABLES, file_names, write_result
from latentdag.methods.fitting import fit
from latentdag.methods.result import Fit
from latentdag.model import metrics
from latentdag.model.model import LatentModel
from latentdag.model.simulate import random_model
from latentdag.report import Results


def run_demo(folder: Path, seed: int, samples: int) -> None:
    """Simulate, fit, compare, write everything, and print two tables."""
    console, progress = Console(), Console(stderr=True)
    names = [*SCREEN, "graphs.png", *(f"result/{name}" for name in file_names(FILES, TABLES, FIGURES))]
    with reserved(folder, "demo", names, SCREEN) as place, place.replaced() as new:
        with progress.status("simulating a screen …"):
            truth = random_model(rng=seed)
            m = write_screen(new, truth, samples, seed, "gaussian")
        with progress.status("recovering the hidden variables …"):
            found = fit(m)
        with progress.status("writing the report …"):
            results = Results(found, m, seed=seed)
            write_figure(new / "graphs", _draw(truth, results), ["png"])
            write_result(new / "result", results, place.times())
    console.print(
        f"[bold]A simulated screen[/bold]: {m.n_features} features measured on {m.counts.sum():,} cells, one control "
        f"and {m.n_contexts} perturbations.\nBehind the features are {truth.n_latents} hidden causal variables that "
        "nobody measured; each perturbation hits one of them.\n"
    )
    console.print(_latent_table(truth, found))
    console.print(_score_table(truth, found))
    console.print(
        f"\nOpen [bold]{folder / 'result' / 'report.html'}[/bold] in a browser: what was checked, the graph, numbers."
        f"\nOpen [bold]{folder / 'graphs.png'}[/bold] for the true and the estimated latent graph side by side."
    )
    progress.print(f"Everything written to {folder}/: {', '.join([*SCREEN, 'graphs.png', 'result'])}")


def _latent_table(truth: LatentModel, found: Fit) -> Table:
    """Return one line per hidden variable: how well it was recovered, and its true and estimated causes."""
    columns = ("hit by", "correlation with truth", "true causes", "estimated causes")
    table = Table(*columns, title="Hidden variables, causes first", title_justify="left")
    pairs = metrics.paired_latents(truth, found)
    back = {theirs: ours for ours, theirs in pairs.items()}
    correlation = metrics.latent_correlations(truth, found)
    for name in found.order:
        ours = back[name]
        table.add_row(
            name,
            f"{correlation[ours]:.4f}",
            ", ".join(sorted(truth.graph.predecessors(ours))) or "none",
            ", ".join(sorted(back[p] for p in found.graph.predecessors(name))) or "none",
        )
    return table


def _score_table(truth: LatentModel, found: Fit) -> Table:
    """Return how far the fit is from the truth, by the numbers of :func:`latentdag.metrics.compare`."""
    scores = metrics.compare(truth, found)
    true_edges, edges = truth.graph.number_of_edges(), found.graph.number_of_edges()
    table = Table(title="Against the truth", title_justify="left", show_header=False)
    table.add_row("every cause placed before its effects", "yes" if scores["order correct"] else "no")
    table.add_row("perturbations assigned to the right variable", f"{scores['targets correct']:.0%}")
    table.add_row("map from features to variables, mean angle to truth", f"{scores['mean angle (°)']:.2f}°")
    table.add_row("edges that differ from the true graph", f"{scores['SHD']:.0f} (true {true_edges}, found {edges})")
    table.add_row("relative error of predicted covariances", f"{_covariance_error(truth, found):.2%}")
    return table


def _covariance_error(truth: LatentModel, found: Fit) -> float:
    """Return the median over contexts of the relative Frobenius distance between true and fitted covariance."""
    apart = [
        np.linalg.norm(found.model.covariance(c) - truth.covariance(c)) / np.linalg.norm(truth.covariance(c))
        for c in truth.contexts
    ]
    return float(np.median(apart))


def _signs_like(truth: LatentModel, found: Fit) -> Fit:
    """Return the fit with the signs of the true latents: the sign is a convention, and colours should compare."""
    theirs = {name: found.model.latents.index(other) for name, other in metrics.paired_latents(truth, found).items()}
    sign = np.ones(truth.n_latents)
    for i, name in enumerate(truth.latents):
        sign[theirs[name]] = np.sign(truth.unmixing[i] @ truth.covariance() @ found.model.unmixing[theirs[name]])
    return replace(found, model=found.model.rescaled(sign))


def _draw(truth: LatentModel, results: Results) -> Any:
    """Draw the true and the estimated graph side by side, latents in the same places."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 5.5))
    pl.latent_graph(truth, axes[0], title="True latent graph")
    found, title = _signs_like(truth, results.fit), f"Estimated (method {results.fit.method})"
    pl.latent_graph(found, axes[1], like=truth, title=title, table=results.edges)
    return figure
