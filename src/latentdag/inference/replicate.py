"""One replicate of a fit, in the names, order and units of the original."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx
import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from latentdag.data.moments import Moments
from latentdag.inference.checkpoint import Piece
from latentdag.inference.resampling import canonical_factor
from latentdag.methods.fitting import fit as fit_moments
from latentdag.methods.options import Options
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel
from latentdag.model.posets import order_matrix


@dataclass(frozen=True)
class Reference:
    """The original fit, as far as replicates are compared with it.

    Attributes
    ----------
    latents, contexts : names of the latents, sources first, and the contexts that target each
    model : LatentModel
        Rows in the order of ``latents``.
    pivots : (d,) int
        The feature whose entry is set to one in each row of H.
    factor : (p, r)
        Factor of the control's covariance: ``H factor`` are the rows in whitened coordinates.
    closure : (d, d) bool
    edges : (d, d) bool
    options : Options
        Of the replicates' fits.
    """

    latents: tuple[str, ...]
    contexts: tuple[str, ...]
    model: LatentModel
    pivots: np.ndarray
    factor: np.ndarray
    closure: np.ndarray
    edges: np.ndarray
    options: Options

    @classmethod
    def of(cls, fit: Fit, m: Moments, options: Options) -> "Reference":
        if tuple(fit.model.feature_names) != m.feature_names:
            raise ValueError("the fit and the moments have different features, or the same in another order")
        if set(fit.model.contexts) != set(m.contexts):
            odd = sorted(map(repr, set(fit.model.contexts) ^ set(m.contexts)))
            raise ValueError(f"the fit and the moments have different contexts: {', '.join(odd[:5])}")
        model = fit.model.reordered(fit.order)
        contexts = [
            ", ".join(str(c) for c, value in model.interventions.items() if name in value.targets)
            for name in model.latents
        ]
        return cls(
            tuple(model.latents),
            tuple(contexts),
            model,
            np.argmax(np.abs(model.unmixing), axis=1),
            canonical_factor(m.covariances[0]),
            *_relations(fit, model.latents),
            options,
        )

    @property
    def start(self) -> LatentModel | None:
        """Where the search of a replicate may begin, besides its own starts."""
        return self.model if self.options.method == "likelihood" else None

    def cosines(self, model: LatentModel) -> np.ndarray:
        """Cosine of every row of a model with every row of the original, in whitened coordinates, (d, d)."""
        rows, own = (H @ self.factor for H in (model.unmixing, self.model.unmixing))
        return (rows / np.linalg.norm(rows, axis=1)[:, None]) @ (own / np.linalg.norm(own, axis=1)[:, None]).T

    def in_its_units(self, model: LatentModel, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the edges with rows of H scaled as in the original, and between latents of unit variance."""
        pivot = model.unmixing[np.arange(len(self.pivots)), self.pivots]
        if not pivot.all():
            lost = int(np.argmin(np.abs(pivot)))
            feature = self.model.feature_names[self.pivots[lost]]
            raise ValueError(f"latent {self.latents[lost]!r} does not use feature {feature!r} any more")
        # a latent of unit variance still has a sign: the one that agrees with the original
        sign = np.where(np.diagonal(self.cosines(model)) < 0, -1.0, 1.0)
        unit = np.sqrt(np.diagonal(model.law().latent_covariance)) * sign
        # A → D^{-1} A D when latents are divided by D
        scaled = [np.where(edges, model.weights * D / D[:, None], 0.0) for D in (pivot, unit)]
        return scaled[0], scaled[1]


def refit(m: Moments, reference: Reference) -> Piece:
    """One replicate: what its fit has in common with the original, or why there is no fit."""
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        try:
            piece = compare(fit_moments(m, **reference.options, start=reference.start, progress=False), reference)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            return {}, {"failure": f"{type(error).__name__}: {error}", "warnings": []}
    names = sorted({warning.category.__name__ for warning in caught})
    return piece, {"failure": None, "warnings": names}


def compare(fit: Fit, reference: Reference) -> dict[str, np.ndarray]:
    """Weights, ancestors and directions of a fit in the names, order and units of the reference."""
    model = fit.model.reordered(reference.latents)
    closure, edges = _relations(fit, reference.latents)
    weights, standardized = reference.in_its_units(model, edges)
    return {
        "weights": weights,
        "standardized": standardized,
        "closures": closure,
        "cosines": np.abs(reference.cosines(model)),
        "loglik": np.array(fit.loglik),
        "converged": np.array(fit.converged),
    }


def _relations(fit: Fit, latents: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ancestors and parents, [i, j]: j of i."""
    names = list(latents)
    closure: nx.DiGraph = nx.DiGraph()
    closure.add_nodes_from(names)
    closure.add_edges_from(fit.closure.edges)
    edges = np.zeros((len(names), len(names)), dtype=bool)
    for cause, effect in fit.graph.edges:
        edges[names.index(effect), names.index(cause)] = True
    return order_matrix(closure), edges
