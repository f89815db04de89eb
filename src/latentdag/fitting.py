"""One door to the methods, and what every method returns."""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag import labels as lb
from latentdag.core import projection
from latentdag.core.linalg import RANK_TOLERANCE, inverse, range_basis, symmetrize
from latentdag.identification import identify, model_of_rows, order_graph
from latentdag.model import LatentModel
from latentdag.moments import Moments
from latentdag.posets import closure_graph
from latentdag.scoring import log_likelihood
from latentdag.storage import load_arrays, save_arrays


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted latent model, with its order, graph and how it was found.

    Attributes
    ----------
    model : LatentModel
        Rows in the paper's order (sources last) and scaling.
    method : str
    options : mapping
        The options of the method, defaults included.
    order : tuple of latent names
        Sources first.
    closure : DiGraph
        Which latent is an ancestor of which.
    graph : DiGraph
        Edges from cause to effect with attribute "weight".
    loglik, bic : float
        Gaussian log-likelihood and Bayesian information criterion; ``nan`` where the model has fewer dimensions than
        the data, so that it has no density there.
    converged : bool
    """

    model: LatentModel
    method: str
    order: tuple[str, ...]
    closure: nx.DiGraph
    graph: nx.DiGraph
    loglik: float
    n_samples: int
    converged: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def latents(self) -> tuple[str, ...]:
        return tuple(self.model.latents)

    @property
    def targets(self) -> dict[Hashable, Any]:
        """Latent name of each context; a tuple of names where there are several."""
        return self.model.targets

    @property
    def n_parameters(self) -> int:
        """Free parameters of the second moments: the latent space is d-dimensional, rows are free up to scale."""
        return self.model.n_latents**2 + self.graph.number_of_edges() + len(self.model.interventions)

    @property
    def bic(self) -> float:
        return float(-2 * self.loglik + np.log(self.n_samples) * self.n_parameters)

    def edges(self) -> pd.DataFrame:
        """One row per edge of the graph: source, target, weight, and the weight between latents of unit variance."""
        sd = dict(zip(self.latents, np.sqrt(np.diagonal(self.model.law().latent_covariance)), strict=True))
        rows = [
            (source, target, weight, weight * sd[source] / sd[target])
            for source, target, weight in self.graph.edges(data="weight")
        ]
        table = pd.DataFrame(rows, columns=["source", "target", "weight", "standardized_weight"])
        position = {name: i for i, name in enumerate(self.order)}
        return table.sort_values(["source", "target"], key=lambda column: column.map(position), ignore_index=True)

    def summary(self, n_features: int = 3) -> str:
        """A table for people: each latent, sources first, with its contexts, parents and strongest features."""
        model, scaled = self.model, self.model.rescaled("unit-variance")
        rows = []
        for name in self.order:
            i = model.latents.index(name)
            parents = sorted(self.graph.predecessors(name), key=lambda p: -abs(_weight(scaled, name, p)))
            # loadings: covariance of each feature with the latent, in units of the latent's deviation
            loading = scaled.covariance() @ scaled.unmixing[i]
            top = np.argsort(-np.abs(loading), kind="stable")[:n_features]
            rows.append(
                {
                    "latent": name,
                    "contexts": ", ".join(str(c) for c, v in model.interventions.items() if name in v.targets),
                    "parents (effect in s.d.)": ", ".join(f"{p} ({_weight(scaled, name, p):+.2f})" for p in parents),
                    "strongest features": ", ".join(f"{model.feature_names[j]} ({loading[j]:+.2g})" for j in top),
                }
            )
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        head = (
            f"latentdag fit, method {self.method}{f' ({options})' if options else ''}\n"
            f"{model.n_latents} latents, {model.n_features} features, {len(model.contexts)} contexts, "
            f"{self.n_samples} samples, {self.graph.number_of_edges()} edges\n"
        )
        if np.isfinite(self.loglik):
            head += f"log-likelihood {self.loglik:.2f}, BIC {self.bic:.2f}\n"
        return head + pd.DataFrame(rows).to_string(index=False, justify="left")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        arrays, meta = self.model.to_parts()
        save_arrays(
            path,
            "Fit",
            arrays,
            {
                "model": meta,
                "method": self.method,
                "options": dict(self.options),
                "order": list(self.order),
                "closure": [list(edge) for edge in self.closure.edges],
                "graph": [[u, v, w] for u, v, w in self.graph.edges(data="weight")],
                "loglik": self.loglik,
                "n_samples": self.n_samples,
                "converged": self.converged,
            },
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Fit":
        """Read what :meth:`save` wrote."""
        arrays, meta = load_arrays(path, "Fit")
        try:
            closure: nx.DiGraph = nx.DiGraph()
            graph: nx.DiGraph = nx.DiGraph()
            for made in (closure, graph):
                made.add_nodes_from(meta["order"])
            closure.add_edges_from(meta["closure"])
            graph.add_weighted_edges_from(meta["graph"])
            return cls(
                LatentModel.from_parts(arrays, meta["model"]),
                meta["method"],
                tuple(meta["order"]),
                closure,
                graph,
                float(meta["loglik"]),
                int(meta["n_samples"]),
                bool(meta["converged"]),
                meta["options"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is a damaged Fit file ({type(error).__name__}: {error})") from None

    def __repr__(self) -> str:
        return f"Fit({self.method}: {' → '.join(self.order)}, {self.graph.number_of_edges()} edges)"


def fit(m: Moments, method: str = "projection", **options: Any) -> Fit:
    """Recover the latent causal model from moments.

    Parameters
    ----------
    m : Moments
    method : str
        ``"projection"``: the paper's finite-sample Algorithms 4–6, option ``gamma`` (0.99).
        ``"exact"``: Algorithms 1–3 on moments that are exact, option ``tol``.
    **options
        Options of the method.

    Returns
    -------
    Fit

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(n_latents=3, n_features=6, rng=5)
    >>> m = simulate.sample_moments(truth, 10**6, rng=0)
    >>> found = fit(m, method="projection", gamma=0.99)
    >>> found.targets == truth.targets
    True
    """
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}; got {method!r}")
    check_design(m)
    try:
        return _METHODS[method](m, **options)
    except TypeError as error:
        if "keyword argument" in str(error) and f"_fit_{method.replace('-', '_')}()" in str(error):
            raise TypeError(f"method {method!r} has no such option: {error}") from None
        raise


def check_design(m: Moments) -> None:
    """What every method needs: a named control, another context, features that vary."""
    if not isinstance(m, Moments):
        raise TypeError(
            f"fit takes Moments, got {type(m).__name__}: build them with Moments.from_samples(X, contexts, …)"
        )
    if m.control is None:
        raise ValueError(
            "these moments name no control context; the contexts are "
            f"{lb.count_table(m.contexts, m.counts)}: name one, or find it with latentdag.observational_contexts"
        )
    if len(m.contexts) < 2:
        raise ValueError(
            f"only the context {m.control!r} is present: at least one context with an intervention is needed"
        )
    variances = np.diagonal(m.covariances, axis1=1, axis2=2)
    constant = [name for name, v in zip(m.feature_names, variances.T, strict=True) if not v.any()]
    if constant:
        listed = ", ".join(map(repr, constant[:5])) + (", …" if len(constant) > 5 else "")
        raise ValueError(f"{len(constant)} features are constant in every context: drop {listed}")


def _fit_projection(m: Moments, gamma: float = 0.99) -> Fit:
    """Algorithms 4–6 on the sample precision matrices, in the range of the data."""
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma is a fraction of spectral energy between 0 and 1, got {gamma}")
    U = range_basis(m.pooled_covariance())
    _check_counts(m, U.shape[1])
    with lb.naming_contexts(m.contexts):
        Theta = np.array([inverse(symmetrize(U.T @ S @ U), k) for k, S in enumerate(m.covariances)])
        found = projection.iterative_difference_projection(Theta, gamma)
    model = model_of_rows(found.U @ U.T, found.B_0, found.contexts, m.contexts, m.feature_names, m.means)
    return _finish(m, model, "projection", order_graph(model.latents, found.order), {"gamma": gamma})


def _fit_exact(m: Moments, tol: float | None = None) -> Fit:
    """Algorithms 1–3; the moments are taken to be exact."""
    model = identify(m) if tol is None else identify(m, tol=tol)
    return _finish(m, model, "exact", closure_graph(model.graph), {})


_METHODS = {"projection": _fit_projection, "exact": _fit_exact}


def _finish(m: Moments, model: LatentModel, method: str, closure: nx.DiGraph, options: Mapping[str, Any]) -> Fit:
    """A Fit whose graph has the edges that the closure allows."""
    graph: nx.DiGraph = nx.DiGraph()
    order = tuple(reversed(model.latents))
    graph.add_nodes_from(order)
    for source, target in closure.edges:
        weight = _weight(model, target, source)
        if weight != 0:
            graph.add_edge(source, target, weight=weight)
    return Fit(model, method, order, closure, graph, log_likelihood(model, m), int(m.counts.sum()), options=options)


def _weight(model: LatentModel, target: str, source: str) -> float:
    return float(model.weights[model.latents.index(target), model.latents.index(source)])


def _check_counts(m: Moments, rank: int) -> None:
    """Every context needs its own invertible covariance, and every context its own latent."""
    for label, n in zip(m.contexts, m.counts, strict=True):
        if n <= rank:
            raise ValueError(
                f"context {label!r} has {n} samples for {rank} feature dimensions: its covariance has no inverse. Use "
                f"more samples, fewer features (fewer than {n - 1}), or drop the context"
            )
    if m.n_contexts > rank:
        raise ValueError(
            f"{m.n_contexts} contexts with an intervention, but the data have only {rank} dimensions (eigenvalues of "
            f"the correlation matrix above {RANK_TOLERANCE:g} of the largest): at most {rank} distinct latents fit. "
            "Contexts that hit the same latent must be grouped: see latentdag.same_target_groups"
        )
