"""The scikit-learn face: a transformer from features to latents, whose ``y`` is the context of each row.

Nothing is computed here. Rows become :class:`~latentdag.Moments`, moments a :class:`~latentdag.Fit`; the estimator adds
what pipelines, grids and notebooks expect. Dask arrays and AnnData go round scikit-learn's validation, which would load
the first and refuse the second.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_array, check_is_fitted, column_or_1d, validate_data

from latentdag.core.exact import TOLERANCE
from latentdag.data import labels as lb
from latentdag.data.moments import Moments, moments
from latentdag.data.sources.annotated import obs_column
from latentdag.data.stream import Samples, pieces
from latentdag.methods.fitting import fit
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.tl import latent_scores
from latentdag.uncertainty.held_out import score


@dataclass(eq=False, repr=False)  # scikit-learn compares, shows and clones by get_params
class LatentDAG(TransformerMixin, BaseEstimator):
    """Learn latent causal variables from samples of several contexts.

    Parameters
    ----------
    method : "likelihood", "closed-form", "projection" or "exact"
        As for :func:`latentdag.fit`. Options that a method has no use for (``penalty`` and ``n_jobs`` outside
        "likelihood", ``gamma`` outside "projection", …) are not used, so that a grid can run over methods; but
        ``targets``, ``intervention``, ``strength``, ``unintervened``, ``noise``, ``n_latents``, ``graph``, ``order``,
        ``forbidden`` and ``required`` change what is asked, and a method that cannot honour them says so.
    control : label
        The unperturbed context, as it occurs in ``y``. It is never guessed.
    targets : mapping of context to latent name, or names, optional
    intervention : "perfect", "soft" or "do", or a mapping of context to kind
    strength : mapping of context to number, or to a pair (low, high), optional
        How strong partial interventions are known to be.
    means : bool
        Use differences between the contexts' means.
    graph : DiGraph over latent names, or its (source, target) pairs, optional
        Fit this graph, search nothing.
    order : latent names, sources first, optional
        Search edges only.
    forbidden, required : (source, target) pairs of latent names, optional
    penalty : "bic", "aic" or float
        Log-likelihood that an edge must be worth.
    shrinkage : bool
        Move covariances of contexts with few samples towards the pooled one.
    unintervened : "downstream" or "upstream"
        What latents that no context targets may be.
    noise : "auto", "features" or "none", or a mapping of feature to noise variance
        Whether every feature is measured with noise of its own.
    n_latents : int, optional
        Of noisy features: how many latents there are, background included.
    gamma : float
        Of the projection method.
    tol : float
        Of the exact method.
    robust : bool
        Outlying rows weigh less in :meth:`fit`; see :meth:`latentdag.Moments.from_samples`. :meth:`score` counts all.
    n_jobs : int, optional
        Processes for one fit; the answer does not depend on it.

    Attributes
    ----------
    fit_ : Fit
        Everything: ``fit_.edges()``, ``fit_.summary()``, ``fit_.predict(["A", "B"])``, ``fit_.save(path)``.
    verdict_ : Verdict
        What to know before believing the fit: ``fit_.verdict``.
    model_ : LatentModel
    latents_ : list of str
        Names of the columns that :meth:`transform` makes, after the contexts that target them.
    order_ : list of str
        The latents, sources first.
    graph_ : DiGraph
    contexts_ : list of labels
        The control first.
    n_features_in_ : int
    feature_names_in_ : (p,) array of str
        Where the features had names.

    Notes
    -----
    In a cross-validation every context must be in every fold: ``cv=StratifiedKFold(5, shuffle=True, random_state=0)``.
    A plain ``cv=5`` does not stratify, since this is no classifier.

    Examples
    --------
    >>> from latentdag import simulate
    >>> X, y = simulate.sample(simulate.random_model(rng=5), 500, rng=0)
    >>> model = LatentDAG(control="control").fit(X, y)
    >>> model.order_
    ['c4', 'c1', 'c5', 'c3', 'c2']
    >>> model.transform(X).shape
    (3000, 5)
    """

    method: str = "likelihood"
    _: KW_ONLY
    control: Hashable | None = None
    targets: Mapping[Hashable, Any] | None = None
    intervention: str | Mapping[Hashable, str] = "perfect"
    strength: Mapping[Hashable, Any] | None = None
    means: bool = True
    graph: Any = None
    order: Sequence[str] | None = None
    forbidden: Iterable[tuple[str, str]] | None = None
    required: Iterable[tuple[str, str]] | None = None
    penalty: str | float = "bic"
    shrinkage: bool = True
    unintervened: str = "downstream"
    noise: str | Mapping[str, float] = "auto"
    n_latents: int | None = None
    gamma: float = 0.99
    tol: float = TOLERANCE
    robust: bool = False
    n_jobs: int | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    # ---- fitting ----------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> "LatentDAG":
        """Fit samples.

        Parameters
        ----------
        X : (n, p) ndarray, scipy sparse, pandas, polars or pyarrow table, dask array, or AnnData
        y : (n,) labels
            The context of each row; for AnnData also the name of a column of ``obs``.
        """
        X, contexts = self._samples(X, y, reset=True)
        m = self._moments(X, contexts, reset=True)
        return self._keep(m, None if _is_from(X, "dask") else pieces(X, contexts))  # not computed twice

    def fit_moments(self, m: Moments) -> "LatentDAG":
        """Fit moments, for data that were streamed, merged or never left the hospital."""
        if not isinstance(m, Moments):
            raise TypeError(f"fit_moments takes Moments, got {type(m).__name__}: samples go to fit(X, y)")
        if self.control is not None and lb.as_label(self.control) != m.control:
            raise ValueError(
                f"the moments have the control {m.control!r}, the estimator control={self.control!r}: leave "
                f"that out, or build the moments with it; the contexts are {lb.count_table(m.contexts, m.counts)}"
            )
        names = m.source_features
        numbered = names == tuple(f"x{j}" for j in range(len(names)))
        features = np.empty((0, len(names))) if numbered else pd.DataFrame(columns=list(names))
        validate_data(self, features, skip_check_array=True)
        return self._keep(m)

    def _keep(self, m: Moments, data: Samples | None = None) -> "LatentDAG":
        told = {name: value for name, value in vars(self).items() if name in Options.__dataclass_fields__}
        self.fit_: Fit = fit(m, **Options.among(told.pop("method"), told), n_jobs=self.n_jobs, data=data)
        self.verdict_ = self.fit_.verdict
        self.model_ = self.fit_.model
        self.latents_ = list(self.fit_.latents)
        self.order_ = list(self.fit_.order)
        self.graph_ = self.fit_.graph
        self.contexts_ = list(m.contexts)
        return self

    # ---- using ------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Return the latents (n, d) of features (n, p), columns as in ``latents_``; a dask array gives a dask array."""
        check_is_fitted(self)
        if _is_from(X, "anndata"):
            return latent_scores(X, self.model_)
        X = self._checked(X, reset=False)
        if _is_from(X, "dask"):
            K, c = self.model_.latent_map
            return X @ K.T + c
        return self.model_.transform(X)

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """Return the features (n, p) that these latents (n, d) give; everything else in the features is at its mean."""
        check_is_fitted(self)
        Z = check_array(Z, dtype=_FLOATS, input_name="Z")
        if Z.shape[1] != len(self.latents_):
            raise ValueError(f"Z has {Z.shape[1]} columns, but there are {len(self.latents_)} latents")
        return np.asarray(self.model_.inverse_transform(Z))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the Gaussian log-likelihood per sample, each under the fitted law of its context.

        See :func:`latentdag.uncertainty.held_out.score` for references that tell how good it is.

        Raises
        ------
        ValueError
            For contexts that the fit does not know, and samples to which it gives no density.
        """
        check_is_fitted(self)
        m = self._moments(*self._samples(X, y, reset=False), reset=False)
        table = score(self.fit_, m)
        return float(np.average(table["model"], weights=table["n"]))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the latents, after the contexts that target them."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)  # they play no part, but a wrong list is a mistake
        return np.array(self.latents_, dtype=object)

    # ---- samples in -------------------------------------------------------------------------------------------

    def _samples(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Return rows as scikit-learn validates them, or AnnData with the features of the fit; and their contexts."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: y is the context of each row"
            )
        if not _is_from(X, "anndata"):
            # Moments look for values that are not finite themselves, and say in which context and feature they are
            X = self._checked(X, reset=reset, ensure_all_finite=False, ensure_min_samples=2 if reset else 1)
        elif reset:
            validate_data(self, pd.DataFrame(columns=X.var_names.astype(str)), skip_check_array=True)
        else:
            X = X[:, list(self.model_.feature_names)]
        return X, obs_column(X, y) if isinstance(y, str) and _is_from(X, "anndata") else _as_labels(y)

    def _moments(self, X: Any, contexts: Any, *, reset: bool) -> Moments:
        control = self._control(contexts, X.shape[0], reset)
        names = None if _is_from(X, "anndata") else getattr(self, "feature_names_in_", None)
        try:
            return moments(X, contexts, control, feature_names=names, robust=self.robust and reset)
        except ValueError as error:
            if "not finite" in str(error):
                raise ValueError(f"Input X contains NaN or infinity. {error}") from None
            raise

    def _control(self, contexts: Any, n_rows: int, reset: bool) -> Hashable | None:
        """Return the control's label in these rows; None where rows to be scored have no control."""
        codes, present = lb.factorize(contexts, n_rows)
        listed = f"the labels present are {lb.count_table(present, np.bincount(codes, minlength=len(present)))}"
        control = lb.as_label(self.control) if reset else self.model_.control
        if control is None:
            raise ValueError(f"{type(self).__name__} needs control=…, the unperturbed context; {listed}")
        unknown = [] if reset else [label for label in present if label not in self.contexts_]
        if unknown:
            raise ValueError(
                f"the fit knows no context {unknown[0]!r} ({listed}); in a cross-validation every context must be in "
                "every fold: cv=StratifiedKFold(5, shuffle=True, random_state=0)"
            )
        return control if reset or control in present else None

    def _checked(self, X: Any, *, reset: bool, **checks: Any) -> Any:
        """Return X as scikit-learn validates it; of dask data, as an array that stays lazy, only names and width."""
        if not _is_from(X, "dask"):
            return validate_data(self, X, accept_sparse="csr", dtype=_FLOATS, reset=reset, **checks)
        is_table = hasattr(X, "to_dask_array")
        validate_data(self, X._meta if is_table else X, skip_check_array=True, reset=reset)
        return X.to_dask_array(lengths=True) if is_table else X


_FLOATS = [np.float64, np.float32]


def _is_from(X: Any, package: str) -> bool:
    """Return True if X is an object of this package, without importing the package."""
    return type(X).__module__.split(".")[0] == package


def _as_labels(y: Any) -> Any:
    """Return labels in memory: they are few bytes, wherever the rows are."""
    if _is_from(y, "dask"):
        y = y.compute()
    if hasattr(y, "to_pylist"):  # pyarrow's scalars are neither equal to nor sortable with what they hold
        y = y.to_pylist()
    if not hasattr(y, "__len__") and hasattr(y, "__array__"):
        y = np.asarray(y)
    return column_or_1d(y, warn=True) if getattr(y, "ndim", 1) > 1 else y
