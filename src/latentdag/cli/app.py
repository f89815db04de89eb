"""The commands. Everything heavy is imported inside them, so that ``--help`` is instant.

Exit codes: 0 done; 1 a defect of latentdag; 2 something the user can fix, said in one line on stderr.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import latentdag

app = typer.Typer(
    help="Causal variables that nobody measured, and the graph between them, learned from experiments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

OutFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Latents = Annotated[int, typer.Option(min=1, help="Number of latents (one context each).")]
Features = Annotated[int, typer.Option(min=1, help="Number of observed features.")]


def user_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input ends with one line on stderr and exit code 2, never a traceback."""

    @wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, OSError, ImportError) as error:
            typer.echo(f"latentdag: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from None

    return guarded


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"latentdag {latentdag.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Learn latent causal models from perturbation experiments."""


@app.command()
@user_errors
def demo(
    out: OutFolder = Path("demo-output"),
    seed: Seed = 0,
    samples: Annotated[int, typer.Option(min=20, help="Samples per context.")] = 2_500,
) -> None:
    """Simulate a screen, recover its hidden causal variables, compare with the truth."""
    from latentdag.cli.demo import run_demo

    run_demo(out, seed, samples)


@app.command()
@user_errors
def simulate(
    out: OutFolder = Path("simulated"),
    latents: Latents = 5,
    features: Features = 10,
    density: Annotated[float, typer.Option(min=0, max=1, help="Probability of each edge.")] = 0.75,
    convention: Annotated[str, typer.Option(help="'figures' or 'text': how the paper's numbers are read.")] = "figures",
    samples: Annotated[int, typer.Option(min=2, help="Samples per context.")] = 2_500,
    noise: Annotated[str, typer.Option(help="gaussian, laplace, exponential, uniform or student-t.")] = "gaussian",
    seed: Seed = 0,
) -> None:
    """Write a random model and samples from it: samples.csv, moments.npz and truth.npz."""
    from latentdag.cli.files import write_screen
    from latentdag.simulate import random_model

    truth = random_model(latents, features, density, convention, rng=seed)  # type: ignore[arg-type]
    for path in write_screen(out, truth, samples, seed, noise):
        typer.echo(f"wrote {path}")


@app.command()
@user_errors
def fit(
    data: Annotated[Path, typer.Argument(help="csv or tsv with a context column, or moments as .npz.")],
    control: Annotated[str, typer.Option(help="Label of the control; not needed for .npz.")] = "",
    context_column: Annotated[str, typer.Option(help="Column with each row's context.")] = "context",
    method: Annotated[str, typer.Option(help="likelihood, closed-form, projection or exact.")] = "likelihood",
    gamma: Annotated[float, typer.Option(min=0, max=1, help="Rank-one threshold of 'projection'.")] = 0.99,
    truth: Annotated[Path | None, typer.Option(help="A model to compare with, as .npz.")] = None,
    out: OutFolder = Path("fitted"),
) -> None:
    """Recover latents, targets and graph from data; write fit.npz, edges.csv, summary.txt and the graph."""
    from latentdag.cli.files import read_moments, write_fit
    from latentdag.fitting import fit as fit_moments

    moments = read_moments(data, context_column, control)
    found = fit_moments(moments, method, **({"gamma": gamma} if method == "projection" else {}))
    typer.echo(found.summary())
    if truth is not None:
        from latentdag.metrics import compare
        from latentdag.model import LatentModel

        typer.echo("\nagainst the given model\n" + compare(LatentModel.load(truth), found).round(4).to_string())
    for path in write_fit(out, found):
        typer.echo(f"wrote {path}", err=True)
