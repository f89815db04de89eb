"""Score how well a model predicts contexts that it was not fitted to: log-likelihood per sample, and errors of means.

A number of nats means little by itself, so every held-out context is scored under five Gaussian laws:

* ``model``: the law of the fitted model, for a new combination with the interventions of its parts applied together;
* ``saturated``: the context's own mean and covariance, which no prediction can beat;
* ``control``: as if nothing had been done;
* ``additive``: the control's covariance, its mean moved by the sum of the shifts that each part causes alone (a context
  of the fit has one part, itself). This is what a biologist uses to tell whether two perturbations interact;
* ``additive_pooled``: the same mean, with the average covariance of all contexts.

Means are also scored by themselves, over features: the root of the mean square by which they are missed, and Pearson's
correlation of predicted and measured shifts from the control. ``rmse_ceiling`` is what a perfect prediction would be
off by, because the measured mean of n samples is.

All are densities on the space that the model gives the features: all of it, or the range of the mixing where the
features have fewer dimensions. Expectations over the samples need their mean and covariance only, so held-out data are
:class:`Moments` too.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentdag.core.context_error import ContextError
from latentdag.core.linalg import is_definite, range_basis, symmetrize, upper_factor
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.errors import clear_numerics
from latentdag.model.distribution import Law
from latentdag.model.intervention import Intervention
from latentdag.model.model import LatentModel
from latentdag.uncertainty.prediction import combined

if TYPE_CHECKING:
    from latentdag.methods.result import Fit

#: Share of a feature's deviation that may lie outside the model's space; data in single precision leave about 1e-7.
OUTSIDE = 1e-5

REFERENCES = ["control", "additive", "additive_pooled"]
MEANS = ["rmse", "rmse_control", "rmse_additive", "rmse_ceiling", "pearson", "pearson_additive"]
COLUMNS = ["n", "model", "saturated", *REFERENCES, "gain_over_control", "gain_over_additive", *MEANS]


@clear_numerics
def score(
    fit: "Fit | LatentModel",
    m: Moments,
    m_train: Moments | None = None,
    combinations: Mapping[Hashable, Any] | None = None,
    means: bool | None = None,
) -> pd.DataFrame:
    """Score held-out contexts under a model and its references.

    Parameters
    ----------
    fit : Fit or LatentModel
    m : Moments
        Held-out samples: of contexts of the fit, of new combinations of them, or both. Features by the same names.
    m_train : Moments, optional
        What the references are made of: the control's mean and covariance and the shifts of the single contexts. By
        default the model's own laws of those contexts.
    combinations : mapping of context to contexts of the fit, or to an :class:`Intervention`, optional
        What was done in each context that the model does not know: ``{"A+B": ("A", "B")}`` applies the fitted
        interventions of A and B together. With an :class:`Intervention` there are no single shifts to add up, so
        ``additive`` is ``nan``.
    means : bool, optional
        Score means and covariances, or (False) covariances only, every law being given the held-out mean. By default
        as the fit was made.

    Returns
    -------
    DataFrame
        One row per context: ``n``; log-likelihood per sample under ``model``, ``saturated``, ``control``,
        ``additive``, ``additive_pooled``; ``gain_over_control``, ``gain_over_additive`` of the model; errors of means,
        ``rmse``, ``rmse_control``, ``rmse_additive``, ``rmse_ceiling``, ``pearson``, ``pearson_additive``, ``nan``
        where means are not scored. ``attrs["total"]`` has averages over all samples of all contexts but the control.
        ``saturated`` is infinite with too few samples for a density, and ``model`` is ``nan`` where a do-intervention
        leaves none.

    Examples
    --------
    >>> from latentdag import LatentModel
    >>> model = LatentModel(
    ...     [[1.0, 0.0], [0.0, 1.0]], [[0, 0.8], [0, 0]], [1, 1], latents=["A", "B"],
    ...     interventions={"A": Intervention("A", variance=0.5, shift=1.0), "B": Intervention("B", shift=2.0)},
    ... )
    >>> both = model.intervene({"A": None, "B": None})
    >>> m = Moments.from_covariances([both.covariance], 1000, ["A+B"], means=[both.mean])
    >>> table = score(model, m, combinations={"A+B": ("A", "B")})
    >>> bool(table.loc["A+B", "gain_over_additive"] > 0.5)  # B no longer acts on A, so the shifts do not add up
    True
    """
    model = (fit if isinstance(fit, LatentModel) else fit.model).seen_by(m)
    if means is None:
        means = True if isinstance(fit, LatentModel) else fit.options.means
    m = same_features(m, model.feature_names, "held-out moments")
    if m_train is not None:
        m_train = same_features(m_train, model.feature_names, "m_train")
        if model.control not in m_train.contexts:
            raise ValueError(
                f"m_train has no context {model.control!r}, the model's control: it has {m_train.contexts}"
            )
    control_mean, control = _reference(model, m_train, model.control)
    pooled = m_train.pooled_covariance() if m_train else np.mean([model.covariance(c) for c in model.contexts], axis=0)
    U = range_basis(model.covariance())
    plan = {context: _parts(model, context, combinations or {}) for context in m.contexts}
    rows = {}
    for k, context in enumerate(m.contexts):
        intervention, parts = plan[context]
        _check_space(m, k, U, model)
        law = Law(model, intervention)
        added = None if parts is None else [_reference(model, m_train, part)[0] - control_mean for part in parts]
        laws = {
            "model": (law.mean, law.covariance) if (law.noise_variance > 0).all() else None,
            "control": (control_mean, control),
            "additive": None if added is None else (sum(added, control_mean), control),
            "additive_pooled": None if added is None else (sum(added, control_mean), pooled),
        }
        shifts = {"": law.mean - model.mean(), "_control": np.zeros(len(law.mean))}
        shifts |= {} if added is None else {"_additive": sum(added, np.zeros(len(law.mean)))}
        rows[context] = _log_densities(m, k, U, means, laws) | _errors_of_means(m, k, control_mean, means, shifts)
    return _table(rows, model.control)


def _table(rows: Mapping[Hashable, Mapping[str, float]], control: Hashable) -> pd.DataFrame:
    """Return the scores of all contexts as a table, with gains and totals."""
    table = pd.DataFrame(list(rows.values()), index=lb.as_index(list(rows)))
    table["gain_over_control"] = table["model"] - table["control"]
    table["gain_over_additive"] = table["model"] - table["additive"]
    counted = np.array([context != control for context in rows])
    counted = counted if counted.any() else ~counted
    n = table["n"].to_numpy()[counted]
    total = {name: float(n @ table[name].to_numpy()[counted] / n.sum()) for name in COLUMNS[1:]}
    table.attrs["total"] = {"n": int(n.sum()), **total}
    return table[COLUMNS]


def _log_densities(
    m: Moments, k: int, U: np.ndarray, means: bool, laws: Mapping[str, tuple[np.ndarray, np.ndarray] | None]
) -> dict[str, float]:
    """Return the number of samples in context k, and their mean log-density under several Gaussian laws.

    Parameters
    ----------
    U : (p, r)
        Basis of the space in which densities are taken.
    means : bool
        False takes every law about the samples' own mean.
    laws : mapping of name to mean (p,) and covariance (p, p) of the features; None for a law without density

    Returns
    -------
    dict
        By name, and "saturated" for the law that fits these samples best: infinite where they do not fill the space.
    """
    n, r = int(m.counts[k]), U.shape[1]
    S = symmetrize(U.T @ m.covariances[k] @ U) * ((n - 1) / n if means else 1.0)
    found = {"n": n, "saturated": np.inf, **dict.fromkeys(laws, np.nan)}
    if n > r and is_definite(S):
        found["saturated"] = float(-0.5 * (r * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + r))
    for name, (mean, covariance) in ((name, law) for name, law in laws.items() if law is not None):
        try:
            F = upper_factor(symmetrize(U.T @ covariance @ U), context=0)
        except ContextError:
            raise ValueError(
                f"context {m.contexts[k]!r}: the law it is compared with has no density in the {r} dimensions of the "
                "model; if that is the control of m_train, it has too few samples: leave m_train out"
            ) from None
        away = U.T @ (m.means[k] - mean) if means else np.zeros(r)
        squares = np.linalg.solve(F.T, np.linalg.solve(F.T, S + np.outer(away, away)).T)
        found[name] = float(-0.5 * (r * np.log(2 * np.pi) + 2 * np.log(np.diagonal(F)).sum() + np.trace(squares)))
    return found


def _errors_of_means(
    m: Moments, k: int, control: np.ndarray, means: bool, shifts: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Return by how much shifts (p,) from the control's mean miss those of context k, under several predictions."""
    if not means:
        return dict.fromkeys(MEANS, np.nan)
    measured, n = m.means[k] - control, m.counts[k]
    found = dict.fromkeys(MEANS, np.nan)
    found["rmse_ceiling"] = float(np.sqrt(np.mean(np.diagonal(m.covariances[k])) / n))
    for name, shift in shifts.items():
        found[f"rmse{name}"] = float(np.sqrt(np.mean((measured - shift) ** 2)))
        if np.std(shift) > 0 and np.std(measured) > 0:
            found[f"pearson{name}"] = float(np.corrcoef(measured, shift)[0, 1])
    return found


def _reference(model: LatentModel, train: Moments | None, context: Hashable) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of a context that references are made of: from training moments, or the model."""
    if train is None:
        law = model.law(context)
        return law.mean, law.covariance
    if context not in train.contexts:
        raise ValueError(
            f"m_train has no context {context!r}, whose shift the additive reference needs: pass moments with all "
            "single contexts, or leave m_train out"
        )
    k = train.index(context)
    return train.means[k], train.covariances[k]


def _parts(
    model: LatentModel, context: Hashable, combinations: Mapping[Hashable, Any]
) -> tuple[Intervention | None, tuple[Hashable, ...] | None]:
    """Return what was done in a context, and the contexts whose shifts the additive reference adds, where known."""
    done = combinations.get(context)
    if isinstance(done, Intervention):
        return done, None
    if done is None:
        if context == model.control:
            return None, ()
        if context in model.interventions:
            return model.interventions[context], (context,)
        known = list(model.interventions)
        raise ValueError(
            f"the model knows no context {context!r}; it has {known}. If it is a combination of these, say so: "
            f"combinations={{{context!r}: {tuple(known[:2])!r}}}"
        )
    parts = (done,) if isinstance(done, str) or not isinstance(done, Sequence) else tuple(done)
    try:
        return combined(model, parts), parts
    except ValueError as error:
        raise ValueError(f"{context!r} combines {parts!r}: {error}") from None


def same_features(m: Moments, names: Sequence[str], what: str) -> Moments:
    """Return the moments with features in the order of the model's."""
    if tuple(m.feature_names) == tuple(names):
        return m
    missing = [name for name in names if name not in m.feature_names]
    extra = [name for name in m.feature_names if name not in names]
    if missing or extra:
        raise ValueError(
            f"the {what} and the model have different features: "
            + (f"{len(missing)} missing, first {missing[0]!r}" if missing else f"{len(extra)} more, first {extra[0]!r}")
        )
    at = [m.feature_names.index(name) for name in names]
    return Moments(m.contexts, m.control, m.counts, m.means[:, at], m.covariances[:, at][:, :, at], tuple(names))


def _check_space(m: Moments, k: int, U: np.ndarray, model: LatentModel) -> None:
    """Raise an error for samples outside the model's space, where they have no density."""
    if U.shape[0] == U.shape[1]:
        return
    outside = np.eye(len(U)) - U @ U.T
    size = np.sqrt(np.diagonal(m.covariances[k]) + np.diagonal(model.covariance()))
    spread = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", outside, m.covariances[k], outside), 0.0))
    offset = np.abs(outside @ (m.means[k] - model.offset))
    share = np.maximum(spread, offset) / np.where(size > 0, size, 1.0)
    if share.max() > OUTSIDE:
        j = int(np.argmax(share))
        raise ValueError(
            f"context {m.contexts[k]!r}: {share[j]:.2g} of the deviation of feature {m.feature_names[j]!r} lies "
            f"outside the {U.shape[1]} dimensions that the model gives its {len(U)} features, so it has no density "
            f"there. Fit features that all contexts share, for example principal components, or fit with these data"
        )
