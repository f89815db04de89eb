"""Predict what the features do in a context that was never run, and say how sure the fit is of it.

A combination of fitted interventions, say a double perturbation from its singles, is a context of the fitted model:
each latent follows the equation of the context that targets it, all others that of the control. Intervals come from the
covariance of the parameters by the delta method, so they are the same every time. They speak of the mean and covariance
of the features, not of single samples, and hold if the model does.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.core.covariance import Gradient
from latentdag.core.prediction import NewRow, Response, named_row
from latentdag.data.stream import Samples
from latentdag.errors import clear_numerics
from latentdag.model.distribution import Law
from latentdag.model.intervention import Change, Intervention
from latentdag.model.model import LatentModel
from latentdag.optional import optional
from latentdag.uncertainty.standard_errors import DO_SHARE, Uncertainty, add_intervals

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

#: Features at a time, so that gradients fit in memory.
STEP = 128

FREE_MEANS = "the fit gives every context a mean of its own (means=False): predicted means have no standard errors"


@dataclass(frozen=True, eq=False)
class Prediction:
    """Hold the predicted law of a context, with intervals.

    Attributes
    ----------
    law : Law
        ``mean``, ``covariance``, ``sample`` and the rest, at the estimate.
    level : float
        Of the intervals.
    """

    law: Law
    level: float
    uncertainty: Uncertainty
    response: Response

    @property
    def mean(self) -> np.ndarray:
        """(p,)"""
        return self.law.mean

    @property
    def covariance(self) -> np.ndarray:
        """(p, p)"""
        return self.law.covariance

    @cached_property
    def mean_std_error(self) -> np.ndarray:
        """(p,); ``nan`` where there is none."""
        if self.uncertainty.point.tau is None:
            return np.full(self.law.model.n_features, np.nan)
        return np.sqrt(self._variances(self.response.mean, np.arange(self.law.model.n_features)))

    @cached_property
    def variance_std_error(self) -> np.ndarray:
        """(p,) of the features' variances."""
        own = np.arange(self.law.model.n_features)
        return self._errors(own, own)

    @cached_property
    def covariance_std_error(self) -> np.ndarray:
        """(p, p); computed when asked for, p²/2 gradients."""
        p = self.law.model.n_features
        a, b = np.tril_indices(p)
        error = np.zeros((p, p))
        error[a, b] = error[b, a] = self._errors(a, b)
        return error

    def _errors(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the standard errors of the covariances of features a and b."""
        rest = self.response.remainder_variance(a, b, float(self.uncertainty.point.n.sum()))
        return np.sqrt(self._variances(self.response.covariance, a, b) + rest)

    def _variances(self, gradients: Callable[..., Gradient], *features: np.ndarray) -> np.ndarray:
        """Return the variances of what has these gradients, some features at a time; ``nan`` away from the maximum."""
        covariance = self.uncertainty.covariance
        if covariance is None:
            return np.full(len(features[0]), np.nan)
        starts = range(0, len(features[0]), STEP)
        return np.concatenate([covariance.variance(gradients(*(f[s : s + STEP] for f in features))) for s in starts])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per feature, first means and then variances: quantity, feature, estimate, std_error, lower, upper."""
        features = list(self.law.model.feature_names)
        table = pd.DataFrame(
            {
                "quantity": ["mean"] * len(features) + ["variance"] * len(features),
                "feature": features * 2,
                "estimate": np.concatenate([self.mean, np.diagonal(self.covariance)]),
                "std_error": np.concatenate([self.mean_std_error, self.variance_std_error]),
            }
        )
        table = add_intervals(table, self.level)
        notes = [self.uncertainty.note, FREE_MEANS if self.uncertainty.point.tau is None else ""]
        table.attrs["note"] = "; ".join(filter(None, notes))
        return table

    def to_anndata(self) -> Any:
        """Return an AnnData with one row, the predicted mean, its error and ends in layers, and the covariance in varp.

        Needs the extra ``anndata``.
        """
        anndata = optional("anndata", "anndata", "an AnnData")
        table, name = self.table[self.table["quantity"] == "mean"], self._name
        found = anndata.AnnData(
            self.mean[None],
            obs=pd.DataFrame(index=pd.Index([name], name="prediction")),
            var=pd.DataFrame(index=pd.Index(list(self.law.model.feature_names))),
            varp={"covariance": self.covariance},
        )
        for column in ("std_error", "lower", "upper"):
            found.layers[column] = table[column].to_numpy()[None]
        return found

    @property
    def _name(self) -> str:
        return ", ".join(() if self.law.intervention is None else self.law.intervention.targets) or "control"

    def __repr__(self) -> str:
        return f"Prediction({self._name}; {self.law.model.n_features} features)"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


@clear_numerics
def predict(
    fit: "Fit", changes: Any, level: float = 0.95, *, kind: str = "perfect", data: Samples | None = None
) -> Prediction:
    """Predict the law of the features under interventions that were never made together, with intervals.

    Parameters
    ----------
    fit : Fit
    changes : list of contexts of the fit, or mapping of latent names
        ``["A", "B"]`` does what contexts A and B do, both at once. A mapping is as for
        :meth:`latentdag.LatentModel.intervene`: ``None`` repeats the fitted change, numbers are taken as given, in the
        units of the model.
    level : float
    kind : "perfect", "soft" or "do"
        For changes of a mapping that do not name one.
    data : (X, contexts), optional
        Samples behind the fit, for intervals that hold for any noise.

    Returns
    -------
    Prediction

    Examples
    --------
    >>> import latentdag as ld
    >>> m = ld.simulate.sample_moments(ld.simulate.random_model(rng=5), 2_500, rng=0)
    >>> both = predict(ld.fit(m), ["c1", "c2"])
    >>> both
    Prediction(c1, c2; 10 features)
    >>> list(both.table.columns)
    ['quantity', 'feature', 'estimate', 'std_error', 'lower', 'upper']
    """
    model = fit.model
    law = Law(model, combined(model, changes)) if _lists_contexts(changes) else model.intervene(changes, kind)
    uncertainty = fit.uncertainty(data)
    W = uncertainty.quantities.W
    if data is not None and len(W):
        raise ValueError(
            f"the features have {len(W)} dimensions beyond the latents; for those, predictions have Gaussian intervals "
            "only: leave out data="
        )
    G, E = model.mixing, np.zeros((model.n_features, 0)) if model.residual is None else model.residual @ W.T
    if model.basis is not None:  # what dimensions leave of a feature is not part of W
        E -= model.basis.rest[:, None] * W.T
    if model.feature_noise is not None:  # background factors included
        G, E = np.split(np.linalg.inv(np.vstack([uncertainty.quantities.H, W])), [uncertainty.point.d], axis=1)
    assert law.intervention is not None
    rows = [_row(uncertainty, law, name, change) for name, change in law.intervention.changes.items()]
    return Prediction(law, level, uncertainty, Response(uncertainty.quantities, G, E, rows))


def _lists_contexts(changes: Any) -> bool:
    """Return True for a list of contexts, False for a mapping of latents."""
    if isinstance(changes, str) or not isinstance(changes, Mapping | Sequence):
        raise ValueError(f"say what to predict: a list of contexts or a mapping of latents, got {changes!r}")
    if not changes:
        raise ValueError("say what to predict: the list of contexts (or the mapping of latents) is empty")
    return not isinstance(changes, Mapping)


def combined(model: LatentModel, contexts: Sequence[Hashable]) -> Intervention:
    """Return what some contexts of a model do, all at once; refuse contexts that act on the same latent."""
    acts: dict[str, Hashable] = {}
    for context in contexts:
        if context not in model.interventions:
            raise ValueError(f"no context {context!r} in the model; it has {list(model.interventions)}")
        for name in model.interventions[context].targets:
            if name in acts:
                raise ValueError(
                    f"contexts {acts[name]!r} and {context!r} both act on {name!r}, so it is open what happens to it: "
                    "leave one out, or say what is meant (a mapping {latent: change}, or an Intervention)"
                )
            acts[name] = context
    return Intervention.combine(model.interventions[context] for context in contexts)


def _row(uncertainty: Uncertainty, law: Law, name: str, change: Change) -> NewRow:
    """Return the row of one intervened latent: an estimate if it repeats a fitted change, else as it is given."""
    model, of = law.model, uncertainty.quantities
    i = model.latents.index(name)
    for mechanism, (context, target) in enumerate(uncertainty.mechanisms, start=of.point.d):
        if target == name and model.interventions[context].changes[name] is change:
            row = of.point.rows[mechanism]
            return NewRow(i, row, change.shift * row[i], mechanism)
    soft = change.kind == "soft"
    weights = None
    if soft and change.weights is not None:  # background factors have none
        weights = np.pad(law.weights[i], (0, of.point.d - model.n_latents))
    variance = change.variance
    if change.kind == "do":
        variance = DO_SHARE * float(model.law().latent_covariance[i, i])
    kept = 1.0 if soft else 1.0 - change.strength
    return named_row(of, i, weights, variance, change.shift, kept)
