"""Shuffled labels: how many edges does the whole procedure call where there is nothing to find?

No formula knows every way in which real samples differ from the model. Shuffling the contexts of the samples keeps
all of it (tails, batches, the number of contexts and samples) and removes the one thing that edges should rest on.
"""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from latentdag.data import labels as lb
from latentdag.data.checks import check_choice, whole_number
from latentdag.data.moments import moments
from latentdag.data.sources.opening import open_source
from latentdag.data.stream import pieces
from latentdag.errors import LatentDAGWarning, clear_numerics
from latentdag.methods.fitting import fit
from latentdag.progress import Progress


@dataclass(frozen=True)
class PermutationTest:
    """How many edges shuffled labels give.

    Attributes
    ----------
    observed : int
        Edges called with the labels as they are.
    shuffled : tuple of int
        Edges called with each shuffle.
    among : "all" or "perturbed"
    level : float
        Edges are called at ``q_value`` up to this.
    """

    observed: int
    shuffled: tuple[int, ...]
    among: str
    level: float

    @property
    def p_value(self) -> float:
        """Share of the labellings, the true one included, with as many edges as the true one."""
        return (1 + sum(count >= self.observed for count in self.shuffled)) / (1 + len(self.shuffled))

    def __str__(self) -> str:
        some = sum(count > 0 for count in self.shuffled)
        return (
            f"{self.observed} edges at q ≤ {self.level:g}; labels shuffled among {self.among} samples give any edge in "
            f"{some} of {len(self.shuffled)} shuffles ({np.mean(self.shuffled):.2g} edges on average), "
            f"p = {self.p_value:.2g}"
        )


@clear_numerics
def permutation_test(
    source: Any,
    contexts: Any,
    control: Hashable,
    *,
    n: int = 20,
    among: str = "all",
    strata: Any = None,
    level: float = 0.05,
    rng: Any = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
    feature_names: Any = None,
    layer: str | None = None,
    features: Any = None,
    adjust: Any = None,
    **options: Any,
) -> PermutationTest:
    """Shuffle the contexts of the samples, fit, and count the edges that are called.

    Parameters
    ----------
    source, contexts, control, feature_names, layer, features, adjust
        As for :func:`latentdag.stream.moments`: a matrix, a table, AnnData or a file, and the context of each row.
    n : int
        Number of shuffles. Each costs a pass over the samples and a fit, often a slow one, since nothing is identified;
        p-values are at least 1/(n + 1).
    among : "all" or "perturbed"
        "all" shuffles the labels of all samples: nothing differs between contexts. "perturbed" leaves the control's
        alone: contexts differ from the control, but not from each other.
    strata : (rows,) labels, optional
        Batches, donors, …: labels are exchanged only within each.
    level : float
        Edges with a ``q_value`` up to this are called.
    rng : seed or Generator
    n_jobs : int, optional
        Processes, as in joblib; the answer does not depend on it.
    progress : bool, optional
        A bar on stderr; by default only where that is a terminal.
    **options
        Of :func:`latentdag.fit`.

    Returns
    -------
    PermutationTest

    Examples
    --------
    >>> from latentdag import simulate
    >>> X, labels = simulate.sample(simulate.random_model(3, 3, rng=1), 300, rng=0)
    >>> found = permutation_test(X, labels, "control", n=3)
    >>> found.shuffled, found.p_value
    ((0, 0, 0), 0.25)
    """
    check_choice("among", among, ("all", "perturbed"))
    n = whole_number("n, the number of shuffles,", n, 1)
    reading = {"feature_names": feature_names, "layer": layer, "features": features, "adjust": adjust}
    labels, groups = _labels(source, contexts, control, strata, among, reading)
    generator = np.random.default_rng(rng)
    shuffles = (_shuffled(labels, groups, generator) for _ in range(n))
    work = [labels, *shuffles]
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    counts = []
    with Progress("latentdag permutation test", len(work), show=progress) as bar:
        for count in parallel(delayed(_edges)(source, each, control, level, reading, options) for each in work):
            counts.append(count)
            bar.advance()
    return PermutationTest(counts[0], tuple(counts[1:]), among, level)


def _labels(
    source: Any, contexts: Any, control: Hashable, strata: Any, among: str, reading: dict[str, Any]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the label of each row, and the rows that exchange theirs; ``reading`` learns what the features are."""
    reader = open_source(source, contexts, **reading)
    try:
        codes, present = lb.factorize(reader.labels, reader.n_rows)
        if isinstance(contexts, str):  # the column of the labels is no feature, also where others take its place
            reading["features"] = list(reader.feature_names)
    finally:
        reader.close()
    labels = pd.Series(present, dtype=object).to_numpy()[codes]
    moved = np.ones(len(codes), dtype=bool)
    if among == "perturbed":
        moved = codes != list(present).index(lb.check_control(control, present, np.bincount(codes)))
    within = np.zeros(len(codes), dtype=int) if strata is None else lb.factorize(strata, len(codes))[0]
    return labels, [np.flatnonzero(moved & (within == stratum)) for stratum in range(within.max() + 1)]


def _shuffled(labels: np.ndarray, groups: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return the labels, shuffled within each group of rows."""
    made = labels.copy()
    for rows in groups:
        made[rows] = labels[rng.permutation(rows)]
    return made


def _edges(
    source: Any, labels: np.ndarray, control: Hashable, level: float, reading: dict[str, Any], options: dict[str, Any]
) -> int:
    """Return how many edges are called with these labels."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", LatentDAGWarning)  # where nothing is identified, searches seldom converge
        m = moments(source, labels, control, progress=False, **reading)
        found = fit(m, data=pieces(source, labels, **reading), progress=False, **options)
        return int((found.edges()["q_value"] <= level).sum())
