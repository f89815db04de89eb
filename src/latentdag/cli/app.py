"""The commands and their options; what they do is in the modules that they name, under the names of the options.

Those are imported when a command runs, so that ``--help`` is instant.

Exit codes: 0 done; 1 a defect of latentdag; 2 something the user can fix, said in one line on stderr; 3 (``test`` only)
done, and the data speak against the model. Results go to stdout, progress and the names of files to stderr.
"""

import os
import warnings
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

import latentdag

app = typer.Typer(
    help="Causal variables that nobody measured, and the graph between them, learned from experiments.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

OutFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Latents = Annotated[int, typer.Option(min=1, help="Number of latents (one context each).")]
Features = Annotated[int, typer.Option(min=1, help="Number of observed features.")]
Data = Annotated[
    Path,
    typer.Argument(help="csv, tsv, parquet, h5ad, zarr or a folder with matrix.mtx; or moments as .npz."),
]
Control = Annotated[str, typer.Option(help="Label of the control; not needed for .npz.")]
ContextColumn = Annotated[str, typer.Option(help="Column (of .obs) with each row's context.")]
Layer = Annotated[str | None, typer.Option(help="Layer of an AnnData store instead of X.")]
Adjust = Annotated[str, typer.Option(help="Columns to regress out within contexts, separated by commas.")]
Robust = Annotated[bool, typer.Option("--robust", help="Outlying rows weigh less.")]
Counts = Annotated[bool, typer.Option("--counts", help="The values are counts; the noise of counting is known.")]
Depth = Annotated[str, typer.Option(help="Column with the depth of counts; by default the rows' sums.")]
Chosen = Annotated[str, typer.Option("--features", help="Only these features, separated by commas.")]
Drop = Annotated[str, typer.Option(help="Leave these features out.")]
TopVariable = Annotated[int, typer.Option(min=0, help="Only so many features: the most variable within contexts.")]
Contexts = Annotated[str, typer.Option(help="Only these contexts, separated by commas, and the control.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Progress = Annotated[bool | None, typer.Option(help="Show progress on stderr; by default in a terminal.")]


def reading(
    data: Data,
    control: Control = "",
    context_column: ContextColumn = "context",
    layer: Layer = None,
    adjust: Adjust = "",
    robust: Robust = False,
    counts: Counts = False,
    depth: Depth = "",
    features: Chosen = "",
    drop: Drop = "",
    top_variable: TopVariable = 0,
    contexts: Contexts = "",
) -> None:
    """Declare how data are read: options that several commands share."""


def command(work: str, name: str | None = None, *, reads: bool = False) -> Callable[[Callable[..., None]], Any]:
    """Make a command of a declaration: its options go to the function of this module (``module:function``).

    Bad input ends with one line on stderr and exit code 2, never a traceback; our warnings are one line too.

    Parameters
    ----------
    work : where the function is
    name : of the command, where it is not that of the declaration
    reads : whether the options of :func:`reading` come before its own
    """
    module, function = work.split(":")

    def registered(declared: Callable[..., None]) -> Any:
        @wraps(declared)
        def guarded(**given: Any) -> None:
            try:
                with warnings.catch_warnings():
                    warnings.showwarning = partial(_one_line, warnings.showwarning)
                    getattr(import_module(f"latentdag.cli.{module}"), function)(**given)
            except (ValueError, OSError, ImportError, MemoryError) as error:
                typer.echo(f"latentdag: {' '.join(str(error).split()) or type(error).__name__}", err=True)
                raise typer.Exit(2) from None

        declarations = [reading, declared] if reads else [declared]
        options = [option for each in declarations for option in signature(each).parameters.values()]
        guarded.__annotations__ = {option.name: option.annotation for option in options}
        vars(guarded)["__signature__"] = Signature(options)
        return app.command(name)(guarded)

    return registered


def _one_line(usual: Callable[..., None], message: Warning | str, category: type[Warning], *rest: Any) -> None:
    from latentdag.errors import LatentDAGWarning

    if issubclass(category, LatentDAGWarning):
        typer.echo(f"latentdag: warning: {' '.join(str(message).split())}", err=True)
    else:
        usual(message, category, *rest)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"latentdag {latentdag.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Learn latent causal models from perturbation experiments."""
    os.environ["MPLBACKEND"] = "Agg"  # figures go to files: no command opens a window


@command("screens:demo")
def demo(
    out: OutFolder = Path("demo-output"),
    seed: Seed = 0,
    samples: Annotated[int, typer.Option(min=20, help="Samples per context.")] = 2_500,
) -> None:
    """Simulate a screen, recover its hidden causal variables, compare with the truth."""


@command("screens:simulate")
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


@command("fitting:moments", reads=True)
def moments(
    scale: Annotated[str, typer.Option(help="Of counts: rates (linear), or their logarithms (log).")] = "linear",
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the moments.")] = Path("moments.npz"),
    progress: Progress = None,
    as_json: Json = False,
) -> None:
    """Compute count, mean and covariance of every context, in one pass over data of any size; goes on after a kill."""


@command("fitting:fit", reads=True)
def fit(
    method: Annotated[str, typer.Option(help="likelihood, closed-form, projection or exact.")] = "likelihood",
    intervention: Annotated[str, typer.Option(help="perfect, soft or do.")] = "perfect",
    strength: Annotated[
        list[str] | None, typer.Option(help="CONTEXT=NUMBER or CONTEXT=LOW:HIGH, a partial one; repeatable.")
    ] = None,
    means: Annotated[bool, typer.Option(help="Use shifts of the means.")] = True,
    penalty: Annotated[str, typer.Option(help="Price of an edge: bic, aic or nats.")] = "bic",
    unintervened: Annotated[str, typer.Option(help="Other latents: downstream or upstream.")] = "downstream",
    noise: Annotated[str, typer.Option(help="Noise of single features: auto, features or none.")] = "auto",
    targets: Annotated[str, typer.Option(help="'learn', a csv of contexts and latents, or a column of targets.")] = "",
    required: Annotated[str, typer.Option(help="Edges between latents, CAUSE:EFFECT, separated by commas.")] = "",
    forbidden: Annotated[str, typer.Option(help="Edges that cannot be, CAUSE:EFFECT, separated by commas.")] = "",
    n_latents: Annotated[int, typer.Option(min=0, help="Latents of noisy features, background included.")] = 0,
    gamma: Annotated[float, typer.Option(min=0, max=1, help="Rank-one threshold of 'projection'.")] = 0.99,
    bootstrap: Annotated[int, typer.Option(min=0, help="Bootstrap replicates.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    seed: Seed = 0,
    truth: Annotated[Path | None, typer.Option(help="A model to compare with, as .npz.")] = None,
    out: OutFolder = Path("fitted"),
    progress: Progress = None,
    as_json: Json = False,
) -> None:
    """Recover latents, targets and graph from data; write a folder of results with a report."""


@command("fitting:check", "test", reads=True)
def check(
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Level of the tests.")] = 0.05,
    progress: Progress = None,
    as_json: Json = False,
) -> None:
    """Test whether these data fit the model. Exit code 3 if they speak against it."""


@command("fitting:report")
def report(
    result: Annotated[Path, typer.Argument(help="Folder written by 'latentdag fit'.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help=".html, .md or .json file.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Of the intervals.")] = 0.95,
) -> None:
    """Write the report of a fit again: as html, markdown or JSON, with a title, at another level."""


@command("fitting:design")
def design(
    source: Annotated[Path, typer.Argument(help="Folder written by 'latentdag fit', or a fit or model as .npz.")],
    power: Annotated[int | None, typer.Option(help="Power with so many cells in every context.")] = None,
    needed: Annotated[float | None, typer.Option(help="Cells that each edge needs for this power.")] = None,
    budget: Annotated[int | None, typer.Option(help="Share out so many cells.")] = None,
    next_: Annotated[
        str | None, typer.Option("--next", help="Rank new contexts: for edges, weakest, order or ambiguity.")
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Level at which an edge is called.")] = 0.05,
    searched: Annotated[bool, typer.Option(help="Whether the graph has to be searched, too.")] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the table.")] = Path("design.csv"),
    as_json: Json = False,
) -> None:
    """Plan a screen from a pilot or a model: power, cells needed, how to share them out, which context next."""


@command("reproduce:run")
def reproduce(
    name: Annotated[str, typer.Argument(help="synthetic, membership, semisynthetic, or all of them: all.")],
    out: OutFolder = Path("reproduced"),
    models: Annotated[int | None, typer.Option(min=1, help="Random models per setting.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid, to see that it runs.")] = False,
    fit: Annotated[Path | None, typer.Option(help="For 'semisynthetic': a fit.npz to generate data from.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler instead of processes.")] = None,
    seed: Seed = 0,
    progress: Progress = None,
) -> None:
    """Run the paper's experiments and ours: figures, every run, a summary and a page each; goes on after a kill."""


@command("workflow:workflow")
def workflow(
    screen: Annotated[str, typer.Argument(help="An .h5ad file, or the data set papalexi_thp1 or kras.")],
    cohort: Annotated[str, typer.Option(help="Table of expression, or the data set tcga_luad.")] = "tcga_luad",
    survival: Annotated[Path | None, typer.Option(help="Table of survival of a cohort of yours.")] = None,
    time_column: Annotated[str, typer.Option(help="Its column of times.")] = "",
    event_column: Annotated[str, typer.Option(help="Its column of events (1 died).")] = "",
    control: Control = "",
    context_column: Annotated[str, typer.Option(help="Column of .obs with each cell's context.")] = "",
    layer: Layer = None,
    genes: Annotated[str, typer.Option(help="File that lists a gene set; by default all genes.")] = "",
    n_genes: Annotated[int, typer.Option(min=2, help="The most variable of them.")] = 30,
    contexts: Annotated[str, typer.Option(help="Contexts, separated by commas; by default all.")] = "",
    min_cells: Annotated[int, typer.Option(min=3, help="Contexts with fewer cells are left out.")] = 200,
    adjust: Adjust = "",
    robust: Robust = False,
    noise: Annotated[str, typer.Option(help="Noise of single genes: auto, features or none.")] = "auto",
    members_only: Annotated[bool, typer.Option(help="Fit only contexts that pass the test.")] = False,
    scaling: Annotated[str, typer.Option(help="Genes of the cohort: control or none.")] = "control",
    alpha: Annotated[float, typer.Option(min=0, max=1, help="False-discovery rate.")] = 0.1,
    random: Annotated[int, typer.Option(min=0, help="Random mixtures to compare with.")] = 200,
    root: Annotated[Path | None, typer.Option(help="Folder with data sets.")] = None,
    seed: Seed = 0,
    out: OutFolder = Path("workflow"),
    progress: Progress = None,
    as_json: Json = False,
) -> None:
    """Run the paper's workflow: screen to latents, latents to patients' survival, with the genes as baseline."""
