"""What loaders return: a screen (samples with contexts), or a cohort (patients with survival)."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.data.moments import Moments
from latentdag.data.sources.opening import positions
from latentdag.optional import optional

if TYPE_CHECKING:
    from anndata import AnnData  # type: ignore[import-untyped]


@dataclass(frozen=True, eq=False)
class Screen:
    """Samples measured in several contexts.

    Attributes
    ----------
    name : str
    X : (n, p) ndarray or csr
    contexts : (n,) labels
    control : label or None
        The context in which nothing was perturbed.
    feature_names : tuple of str
    obs : DataFrame (n rows)
        What else is known of each sample.
    extra : mapping
        What else is known of the data set, by name.
    """

    name: str
    X: Any
    contexts: np.ndarray
    control: Hashable | None
    feature_names: tuple[str, ...]
    obs: pd.DataFrame
    extra: Mapping[str, Any] = field(default_factory=dict)

    def select(self, rows: Any = None, features: Any = None) -> "Screen":
        """Return only these rows (mask or positions) and these features (names)."""
        rows = np.arange(len(self.contexts)) if rows is None else np.asarray(rows)
        X, names = self.X[rows], self.feature_names
        chosen = positions(features, names, self.name)
        if chosen is not None:
            X, names = X[:, chosen], tuple(names[j] for j in chosen)
        obs = self.obs.iloc[np.flatnonzero(rows) if rows.dtype == bool else rows].reset_index(drop=True)
        return Screen(self.name, X, self.contexts[rows], self.control, names, obs, self.extra)

    def moments(self, adjust: Any = None, robust: bool = False) -> Moments:
        """Return the moments per context; ``adjust`` names columns of ``obs`` to regress out, or is a table.

        ``robust`` is as for :meth:`latentdag.Moments.from_samples`.
        """
        if adjust is not None and not isinstance(adjust, pd.DataFrame | np.ndarray):
            adjust = self.obs[[adjust] if isinstance(adjust, str) else list(adjust)]
        return Moments.from_samples(self.X, self.contexts, self.control, self.feature_names, adjust, robust)

    def to_anndata(self, context_key: str = "context") -> "AnnData":
        """Return AnnData with the contexts in ``obs[context_key]``."""
        anndata = optional("anndata", "anndata", f"{self.name} as AnnData")
        obs = self.obs.assign(**{context_key: [str(label) for label in self.contexts]})
        obs.index = obs.index.astype(str)
        return anndata.AnnData(self.X, obs=obs, var=pd.DataFrame(index=pd.Index(self.feature_names, dtype=str)))

    def __repr__(self) -> str:
        n, p = self.X.shape
        return (
            f"Screen({self.name}: {n} samples, {p} features, {len(set(self.contexts.tolist()))} contexts, "
            f"control {self.control!r})"
        )


@dataclass(frozen=True, eq=False)
class Cohort:
    """Patients with expression and survival.

    Attributes
    ----------
    name : str
    expression : DataFrame
        Patients × genes, on the logarithmic scale.
    survival : DataFrame
        ``time`` (any unit, positive) and ``event`` (1 died, 0 lost from sight alive), the same patients in the same
        order.
    """

    name: str
    expression: pd.DataFrame
    survival: pd.DataFrame

    def __post_init__(self) -> None:
        if not self.expression.index.equals(self.survival.index):
            raise ValueError("expression and survival must have the same patients in the same order: join them first")
        missing = [name for name in ("time", "event") if name not in self.survival]
        if missing:
            raise ValueError(f"survival must have the columns 'time' and 'event'; {missing[0]!r} is missing")

    def __repr__(self) -> str:
        n, p = self.expression.shape
        return f"Cohort({self.name}: {n} patients, {p} genes, {int(self.survival['event'].sum())} events)"
