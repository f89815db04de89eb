"""Stability of a fit: how often each edge, order and target came back in the replicates of a bootstrap."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from latentdag.data.checks import check_probability
from latentdag.data.schema import FieldError, Layout, whole
from latentdag.data.store import load_arrays, naming_file, save_arrays
from latentdag.model.posets import transitive_reduction

#: Quantiles that the tables show.
QUANTILES = (0.025, 0.5, 0.975)

#: The arrays of R replicates, as a file keeps them (see :mod:`latentdag.data.schema`): R is ``r``, and ``d`` latents.
REPLICATES = {
    "weights": "f rdd", "standardized": "f rdd", "closures": "b rdd", "cosines": "f rdd", "loglik": "f r",
    "converged": "b r",
}  # fmt: skip

_FILE = Layout(
    "Bootstrap",
    {
        "latents": [str],
        "contexts": [str],
        "failures": [(int, str)],
        "warnings": {str: int},
        "settings": {"kind": str, "seed": whole, str: object},
    },
    {"fit_weights": "f dd", "fit_standardized": "f dd", "fit_closure": "b dd", "replicates": "i r", **REPLICATES},
    {"d": "latents"},
)


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Replicates of a fit, aligned with it by the names of the latents; what :func:`latentdag.bootstrap` returns.

    There are d latents and R replicates. Latents are listed sources first, as in the fit. Matrices over latents have
    ``[i, j]`` for the effect of latent j on latent i.

    Attributes
    ----------
    latents : (d,) names
    contexts : (d,) text
        The contexts that target each latent.
    fit_weights, fit_standardized : (d, d)
        Weights of the original fit, zero where it has no edge; the second between latents of unit variance.
    fit_closure : (d, d) bool
        ``[i, j]``: j is an ancestor of i in the original fit.
    weights, standardized, closures : (R, d, d)
        The same for the R replicates that were fitted. Row i of H is scaled in all of them by the entry that is
        largest in row i of the original, so that weights do not jump where two entries nearly tie.
    cosines : (R, d, d)
        ``[b, i, j]``: absolute cosine, in coordinates where the control has identity covariance, between row i of
        replicate b and row j of the original. That is the correlation of the two latents in the control.
    replicates : (R,) int
        Numbers of the replicates that were fitted.
    loglik : (R,)
    converged : (R,) bool
    failures : mapping of replicate number to what went wrong
    warnings : mapping of the name of a warning to the number of replicates that gave it
    settings : mapping
        How the replicates were made.

    Examples
    --------
    >>> import latentdag as ld
    >>> truth = ld.simulate.random_model(n_latents=2, n_features=3, density=1, rng=0)
    >>> found = ld.bootstrap(ld.simulate.sample_moments(truth, 2_000, rng=0), 20)
    >>> found
    Bootstrap(parametric: 20 replicates, 2 latents)
    >>> found.precedence
         c1   c2
    c1  0.0  1.0
    c2  0.0  0.0
    >>> found.intervals(0.9).columns.tolist()
    ['source', 'target', 'weight', 'low', 'high']
    """

    latents: tuple[str, ...]
    contexts: tuple[str, ...]
    fit_weights: np.ndarray
    fit_standardized: np.ndarray
    fit_closure: np.ndarray
    weights: np.ndarray
    standardized: np.ndarray
    closures: np.ndarray
    cosines: np.ndarray
    replicates: np.ndarray
    loglik: np.ndarray
    converged: np.ndarray
    failures: Mapping[int, str]
    warnings: Mapping[str, int]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_replicates(self.fit_weights[None], self.fit_standardized[None], self.fit_closure[None])
        check_replicates(self.weights, self.standardized, self.closures, self.cosines)
        numbers = [*self.replicates.tolist(), *self.failures]
        if not len(self.replicates) or len(set(numbers)) < len(numbers) or min(numbers) < 0:
            raise FieldError("replicates", "must be at least one number, none negative, and none twice or failed")
        if len(set(self.latents)) < len(self.latents) or len(self.contexts) != len(self.latents):
            raise FieldError("latents", f"must be distinct, one for each of {len(self.contexts)} texts of contexts")

    @property
    def n_replicates(self) -> int:
        """The number R of replicates that were fitted."""
        return len(self.replicates)

    # ---- tables -------------------------------------------------------------------------------------------------

    @cached_property
    def edges(self) -> pd.DataFrame:
        """Every edge of the fit or of some replicate, how often it is there, and its weight.

        ``mean``, ``std`` and quantiles are over all replicates, with weight zero where the edge is not there.
        """
        i, j = self._pairs()
        drawn = self.weights[:, i, j]
        table = self._ends(i, j)
        table["in_fit"] = self.fit_weights[i, j] != 0
        table["count"] = np.count_nonzero(drawn, axis=0)
        table["frequency"] = table["count"] / self.n_replicates
        table["weight"] = self.fit_weights[i, j]
        table["mean"] = drawn.mean(axis=0)
        table["std"] = drawn.std(axis=0, ddof=1) if self.n_replicates > 1 else np.nan
        table[[f"q{100 * q:g}" for q in QUANTILES]] = _quantile(drawn, QUANTILES)
        return table.sort_values(["in_fit", "frequency"], ascending=False, kind="stable", ignore_index=True)

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of targets and sources of all edges of the fit or of some replicate, by source."""
        ever = (self.fit_weights != 0) | (self.weights != 0).any(axis=0)
        j, i = np.nonzero(ever.T)
        return i, j

    def _ends(self, i: np.ndarray, j: np.ndarray) -> pd.DataFrame:
        """Start a table of edges with the names of their sources and targets."""
        names = np.array(self.latents, dtype=object)
        return pd.DataFrame({"source": names[j], "target": names[i]})

    def intervals(self, level: float = 0.95, standardized: bool = False) -> pd.DataFrame:
        """Return percentile intervals for the weights of the fit's edges.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        standardized : bool
            Weights between latents of unit variance in the control.

        Returns
        -------
        DataFrame
            One row per edge: ``source``, ``target``, ``weight``, ``low``, ``high``.
        """
        check_probability("level", level)
        at, drawn = (self.fit_standardized, self.standardized) if standardized else (self.fit_weights, self.weights)
        i, j = self._pairs()
        kept = at[i, j] != 0
        i, j = i[kept], j[kept]
        table = self._ends(i, j).assign(weight=at[i, j])
        table[["low", "high"]] = _quantile(drawn[:, i, j], [(1 - level) / 2, (1 + level) / 2])
        return table

    @cached_property
    def precedence(self) -> pd.DataFrame:
        """Fraction of replicates in which the row's latent is an ancestor of the column's.

        The entries of a pair and of its mirror image add up to at most one. What is missing is the fraction of
        replicates in which neither is an ancestor of the other.
        """
        share = self.closures.mean(axis=0).T
        return pd.DataFrame(share, index=list(self.latents), columns=list(self.latents))

    @cached_property
    def order(self) -> pd.DataFrame:
        """Every ancestor relation that came up, how often it did, and whether it is the fit's.

        A relation is written by its covering edges: those that follow from no others. Ancestor relations are counted,
        not lists of latents, since latents that are not related have no order.
        """
        counts = Counter(closure.tobytes() for closure in self.closures)
        rows = []
        for key, count in counts.most_common():
            closure = np.frombuffer(key, dtype=bool).reshape(self.fit_closure.shape)
            same = np.array_equal(closure, self.fit_closure)
            rows.append((self._text(closure), count, count / self.n_replicates, same))
        table = pd.DataFrame(rows, columns=["ancestors", "count", "frequency", "as_in_fit"])
        return table.sort_values(["count", "ancestors"], ascending=[False, True], ignore_index=True)

    def _text(self, closure: np.ndarray) -> str:
        cover = [f"{self.latents[j]} → {self.latents[i]}" for j, i in np.argwhere(transitive_reduction(closure).T)]
        return ", ".join(cover) or "(none)"

    @cached_property
    def targets(self) -> pd.DataFrame:
        """How often every latent came back as the same direction in the features.

        ``cosine`` is the mean, ``cosine_low`` the 5 % quantile of the cosine between a latent's row and its own row in
        the fit. ``count`` is the number of replicates in which a latent is matched with itself, when all rows are
        matched with all original rows so that the sum of cosines is largest.
        """
        own = np.zeros(len(self.latents), dtype=int)
        for cosine in self.cosines:
            rows, columns = linear_sum_assignment(-cosine)
            own += rows == columns
        diagonal = np.diagonal(self.cosines, axis1=1, axis2=2)
        return pd.DataFrame(
            {
                "latent": list(self.latents),
                "contexts": list(self.contexts),
                "count": own,
                "frequency": own / self.n_replicates,
                "cosine": diagonal.mean(axis=0),
                "cosine_low": np.quantile(diagonal, 0.05, axis=0),
            }
        )

    @property
    def summary(self) -> pd.DataFrame:
        """How much of the fit came back, in one table."""
        asked, R = self.n_replicates + len(self.failures), self.n_replicates
        same_graph = ((self.weights != 0) == (self.fit_weights != 0)).all(axis=(1, 2))
        same_order = (self.closures == self.fit_closure).all(axis=(1, 2))
        edge_counts = np.count_nonzero(self.weights[:, self.fit_weights != 0], axis=0)
        own_counts = self.targets["count"]
        rows = [
            ("replicates fitted", R, asked),
            ("replicates that converged", int(self.converged.sum()), R),
            ("same ancestor relation", int(same_order.sum()), R),
            ("same graph", int(same_graph.sum()), R),
            ("edges of the fit in 95 % of the replicates", int((edge_counts >= 0.95 * R).sum()), len(edge_counts)),
            ("latents that match themselves in 95 %", int((own_counts >= 0.95 * R).sum()), len(own_counts)),
        ]
        table = pd.DataFrame(rows, columns=["quantity", "count", "of"])
        return table.assign(frequency=table["count"] / table["of"].replace(0, np.nan))

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        kind = self.settings["kind"]
        return f"Bootstrap({kind}: {self.n_replicates} replicates{failed}, {len(self.latents)} latents)"

    def _repr_html_(self) -> str:
        parts = [("Bootstrap", self.summary), ("Edges", self.edges), ("Targets", self.targets), ("Order", self.order)]
        return "".join(
            f"<h4>{title}</h4>{table.to_html(index=False, escape=True, float_format='{:.3g}'.format, max_rows=40)}"
            for title, table in parts
        )

    # ---- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        arrays, meta = ({name: getattr(self, name) for name in names} for names in (_FILE.arrays, _FILE.fields))
        save_arrays(path, _FILE, arrays, meta | {"failures": list(self.failures.items())})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Bootstrap":
        """Read what :meth:`save` wrote; raises :class:`~latentdag.errors.FileError` for a damaged file."""
        arrays, meta = load_arrays(path, _FILE)
        with naming_file(path, "replicates"):
            failures = dict(meta["failures"])
            if len(failures) < len(meta["failures"]):
                raise FieldError("failures", "has a replicate twice")
            fields: dict[str, Any] = {**arrays, **{name: meta[name] for name in _FILE.fields}, "failures": failures}
            return cls(**fields | {name: tuple(meta[name]) for name in ("latents", "contexts")})


def check_replicates(
    weights: np.ndarray, standardized: np.ndarray, closures: np.ndarray, cosines: np.ndarray | None = None
) -> None:
    """Check that matrices (R, d, d) of replicates are finite, closures partial orders, and that edges lie in them.

    Raises
    ------
    FieldError
    """
    values = {"weights": weights, "standardized": standardized, "cosines": closures if cosines is None else cosines}
    for name, value in values.items():
        if not np.isfinite(value).all():
            raise FieldError(name, "holds values that are not finite")
    steps = closures.astype(np.float32)
    if np.diagonal(closures, axis1=1, axis2=2).any() or ((steps @ steps > 0) & ~closures).any():
        raise FieldError("closures", "an ancestor of an ancestor is no ancestor, or a latent is its own")
    if ((weights != 0) | (standardized != 0))[~closures].any():
        raise FieldError("weights", "a latent acts on one that it is no ancestor of")
    if cosines is not None and not ((cosines >= 0) & (cosines < 1 + 1e-6)).all():
        raise FieldError("cosines", "must lie between 0 and 1")


def _quantile(drawn: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Return quantiles (n, len(levels)) of replicates (R, n) beyond which a further one falls with that probability.

    numpy's default lies further in: with 100 replicates its 95 % interval would hold 93 % of new ones.
    """
    return np.quantile(drawn, levels, axis=0, method="weibull").T
