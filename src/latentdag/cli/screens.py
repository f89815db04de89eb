"""``latentdag simulate`` and ``latentdag demo``: a screen that was simulated, and what can be recovered of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from latentdag import pl
from latentdag.cli.files import write_csv, write_figure
from latentdag.cli.place import reserved
from latentdag.cli.results import FIGURES, FILES, TABLES, file_names, write_result
from latentdag.data.moments import Moments
from latentdag.methods.fitting import fit
from latentdag.methods.result import Fit
from latentdag.model import metrics
from latentdag.model.model import LatentModel
from latentdag.model.simulate import random_model, sample
from latentdag.report import Results

#: Files of a simulated screen: samples, their moments, and the model they came from.
SCREEN = ("samples.csv", "moments.npz", "truth.npz")


def simulate(
    *, out: Path, latents: int, features: int, density: float, convention: Any, samples: int, noise: str, seed: int
) -> None:
    """Write a random model and samples of it."""
    truth = random_model(latents, features, density, convention, rng=seed)
    with reserved(out, "simulate", SCREEN, SCREEN) as place, place.replaced() as new:
        _write_screen(new, truth, samples, seed, noise)
    for name in SCREEN:
        typer.echo(f"wrote {out / name}")


def _write_screen(folder: Path, truth: LatentModel, n: int, seed: int, noise: str = "gaussian") -> Moments:
    """Write samples of every context as csv, their moments, and the model they came from; return the moments."""
    X, contexts = sample(truth, n, [seed, 1], noise)
    table = pd.DataFrame(X, columns=list(truth.feature_names))
    table.insert(0, "context", contexts)
    m = Moments.from_samples(X, contexts, control=truth.control, feature_names=truth.feature_names)
    write_csv(folder / SCREEN[0], table)
    m.save(folder / SCREEN[1])
    truth.save(folder / SCREEN[2])
    return m


def demo(*, out: Path, seed: int, samples: int) -> None:
    """Simulate, fit, compare, write everything, and print two tables."""
    console, progress = Console(), Console(stderr=True)
    names = [*SCREEN, "graphs.png", *(f"result/{name}" for name in file_names(FILES, TABLES, FIGURES))]
    with reserved(out, "demo", names, SCREEN) as place, place.replaced() as new:
        with progress.status("simulating a screen …"):
            truth = random_model(rng=seed)
            m = _write_screen(new, truth, samples, seed)
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
    _print_comparison(console, truth, found)
    console.print(
        f"\nOpen [bold]{out / 'result' / 'report.html'}[/bold] in a browser: what was checked, the graph, numbers."
        f"\nOpen [bold]{out / 'graphs.png'}[/bold] for the true and the estimated latent graph side by side."
    )
    progress.print(f"Everything written to {out}/: {', '.join([*SCREEN, 'graphs.png', 'result'])}")


def _print_comparison(console: Console, truth: LatentModel, found: Fit) -> None:
    """Print how well each hidden variable was recovered, and how far the fit is from the truth in all."""
    columns = ("hit by", "correlation with truth", "true causes", "estimated causes")
    latents = Table(*columns, title="Hidden variables, causes first", title_justify="left")
    back = {theirs: ours for ours, theirs in metrics.paired_latents(truth, found).items()}
    correlation = metrics.latent_correlations(truth, found)
    for name in found.order:
        true = sorted(truth.graph.predecessors(back[name]))
        causes = sorted(back[cause] for cause in found.graph.predecessors(name))
        latents.add_row(name, f"{correlation[back[name]]:.4f}", ", ".join(true) or "none", ", ".join(causes) or "none")
    scores, edges = metrics.compare(truth, found), (truth.graph.number_of_edges(), found.graph.number_of_edges())
    laws = ((truth.covariance(context), found.model.covariance(context)) for context in truth.contexts)
    apart = np.median([np.linalg.norm(theirs - ours) / np.linalg.norm(ours) for ours, theirs in laws])
    total = Table(title="Against the truth", title_justify="left", show_header=False)
    total.add_row("every cause placed before its effects", "yes" if scores["order correct"] else "no")
    total.add_row("perturbations assigned to the right variable", f"{scores['targets correct']:.0%}")
    total.add_row("map from features to variables, mean angle to truth", f"{scores['mean angle (°)']:.2f}°")
    total.add_row("edges that differ from the true graph", f"{scores['SHD']:.0f} (true {edges[0]}, found {edges[1]})")
    total.add_row("relative error of predicted covariances", f"{apart:.2%}")
    console.print(latents, total, sep="\n")


def _draw(truth: LatentModel, results: Results) -> Any:
    """Draw the true and the estimated graph side by side, latents in the same places and with the same signs."""
    import matplotlib.pyplot as plt

    found, pairs = results.fit.model, metrics.paired_latents(truth, results.fit)
    paired = found.unmixing[[found.latents.index(pairs[name]) for name in truth.latents]]
    agrees = dict(zip(pairs.values(), np.sum(truth.unmixing @ truth.covariance() * paired, axis=1), strict=True))
    signs = np.sign([agrees[name] for name in found.latents])  # the sign is a convention, and colours should compare
    figure, axes = plt.subplots(1, 2, figsize=(9, 5.5))
    pl.latent_graph(truth, axes[0], title="True latent graph")
    title = f"Estimated (method {results.fit.method})"
    same = replace(results.fit, model=found.rescaled(signs), details={})  # signs are those of the truth here
    pl.latent_graph(same, axes[1], like=truth, title=title, table=results.edges)
    return figure
