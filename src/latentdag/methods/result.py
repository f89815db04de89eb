"""``Fit``: what every method returns, and the doors to its uncertainty, predictions and files."""

import html
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.core.linalg import scale_free_rank
from latentdag.data import labels as lb
from latentdag.data.schema import FieldError, Layout, finite
from latentdag.data.store import load_arrays, naming_file, save_arrays
from latentdag.data.stream import Samples
from latentdag.errors import clear_numerics
from latentdag.methods.options import Options
from latentdag.methods.verdict import Verdict, verdict_of
from latentdag.model.model import FILE as MODEL_FILE
from latentdag.model.model import LatentModel, Scaling
from latentdag.model.posets import closure_graph
from latentdag.uncertainty.edges import edge_table, supported_order
from latentdag.uncertainty.prediction import Prediction, predict
from latentdag.uncertainty.standard_errors import Uncertainty
from latentdag.uncertainty.strength import Sensitivity, responses_of, sensitivity, strength_ratios

if TYPE_CHECKING:
    from latentdag.data.basis import Basis
    from latentdag.data.moments import Moments


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted latent model, with its order, graph and how it was found.

    Attributes
    ----------
    model : LatentModel
        Rows in the paper's order (sources last) and scaling.
    options : Options
        What the fit was told, defaults included: a read-only mapping.
    order : tuple of latent names
        Sources first.
    graph : DiGraph
        Edges from cause to effect with attribute "weight". A latent that only idle contexts target has none, unless
        they were given (``graph=``, ``required=``).
    counts : tuple of int
        Samples of each context, in the order of ``model.contexts``.
    loglik, bic : float
        Gaussian log-likelihood and Bayesian information criterion; ``nan`` where the model has fewer dimensions than
        the data, so that it has no density there.
    converged : bool
    details : mapping
        How the search went, by name: what is there depends on the method.
    idle : tuple
        Those in which nothing changed, or that cannot be told apart from the others (:func:`latentdag.changed`). They
        take part in the fit, since a real but weak effect left out would bias the rest; what they say is not believed.
    fitted_graph : DiGraph
        All edges of the model, those of idle latents included.
    """

    model: LatentModel
    order: tuple[str, ...]
    graph: nx.DiGraph
    loglik: float
    counts: tuple[int, ...]
    converged: bool = True
    options: Options = field(default_factory=Options)
    details: Mapping[str, Any] = field(default_factory=dict)
    idle: tuple[Hashable, ...] = ()
    fitted_graph: nx.DiGraph = None

    def __post_init__(self) -> None:
        full = self.graph if self.fitted_graph is None else self.fitted_graph
        given = {*(self.options.graph or ()), *(self.options.required or ())}
        quiet = set(self.idle_latents)
        hidden = [edge for edge in full.edges if not quiet.isdisjoint(edge) and edge not in given]
        graph = full.copy()
        graph.remove_edges_from(hidden)
        object.__setattr__(self, "fitted_graph", full)
        object.__setattr__(self, "graph", graph)

    @property
    def idle_latents(self) -> tuple[str, ...]:
        """The latents that only idle contexts target."""
        changed = {name for c, v in self.model.interventions.items() if c not in self.idle for name in v.targets}
        hit = {name for v in self.model.interventions.values() for name in v.targets}
        return tuple(name for name in self.order if name in hit - changed)

    @cached_property
    def twins(self) -> dict[tuple[str, ...], bool]:
        """Groups of latents that the very same contexts hit, and whether their rows can be told apart all the same.

        They can if several perfect interventions hit both; the direction of an edge between them never can.
        """
        groups: dict[tuple[Hashable, ...], list[str]] = {}
        for name in self.order:
            contexts = tuple(c for c, v in self.model.interventions.items() if name in v.targets)
            if contexts:
                groups.setdefault(contexts, []).append(name)
        perfect = {c for c, v in self.model.interventions.items() if v.kind == "perfect"}
        return {
            tuple(names): len(contexts) > 1 and perfect.issuperset(contexts)
            for contexts, names in groups.items()
            if len(names) > 1
        }

    @property
    def verdict(self) -> Verdict:
        """What to know before believing the fit: ``str(fit.verdict)`` is one line, ``.reasons`` one sentence each."""
        return verdict_of(self)

    @property
    def noise_variance(self) -> np.ndarray | None:
        """Noise variance of every feature (p,); None where features are taken as exact. Not that of the latents."""
        return self.model.feature_noise

    @property
    def noise_options(self) -> dict[str, Any]:
        """What was decided about noise, as options: a refit to the same data need not decide again."""
        if self.model.feature_noise is None:
            return {"noise": "none"}
        noise = "features" if self.options.noise in ("auto", "none") else self.options.noise
        return {"noise": noise, "n_latents": self.details["n_factors"]}

    @property
    def settled_options(self) -> dict[str, Any]:
        """What was decided about noise and learned about targets, as options of refits to data like these."""
        learned = "target_probability" in self.details
        return self.noise_options | ({"targets": self.targets} if learned else {})

    @property
    def orientation(self) -> dict[str, str]:
        """What each latent's sign means, by latent.

        "perturbation": it grows where its own perturbation moves it. "feature": no perturbation shifts its mean for
        certain, so it grows with the feature that weighs most in its row of H, as in the paper.
        """
        return dict(self.details.get("orientation", {}))

    @property
    def grows_with(self) -> dict[str, str]:
        """The same in words, by latent: "its perturbation", or that feature, "all else equal".

        What weighs most in the score of a latent may well correlate with it the other way.
        """
        names, largest = self.model.feature_names, np.abs(self.model.unmixing).argmax(axis=1)
        told = self.orientation
        return {
            name: "its perturbation" if told.get(name) == "perturbation" else f"{names[j]}, all else equal"
            for name, j in zip(self.model.latents, largest, strict=True)
        }

    @property
    def method(self) -> str:
        return self.options.method

    @property
    def latents(self) -> tuple[str, ...]:
        return tuple(self.model.latents)

    @property
    def targets(self) -> dict[Hashable, Any]:
        """Latent name of each context; a tuple of names where there are several."""
        return self.model.targets

    @property
    def target_probabilities(self) -> pd.DataFrame:
        """How probable it is that a context (row) hits a latent (column); of learned targets.

        All target sets that were fitted, and those one move away, were weighed; others are not among them.
        """
        table = pd.DataFrame(0.0, index=lb.as_index(list(self.model.interventions)), columns=list(self.order))
        return self._filled(table, "target_probability", table.columns)

    @property
    def shared_targets(self) -> pd.DataFrame:
        """How probable it is that two contexts have a target in common, (K, K); of learned targets."""
        contexts = lb.as_index(list(self.model.interventions))
        table = self._filled(
            pd.DataFrame(0.0, index=contexts, columns=contexts.rename(None)), "shared_probability", contexts
        )
        own = np.diag([float(bool(v.targets)) for v in self.model.interventions.values()])
        return table + table.T + own

    def _filled(self, table: pd.DataFrame, name: str, columns: Any) -> pd.DataFrame:
        """Return a table by context with the probabilities of this name in it."""
        if name not in self.details:
            raise ValueError("the targets of this fit were given, not learned: fit with targets='learn'")
        row = {text: k for k, text in enumerate(lb.text_names(list(table.index)))}
        column = row if name == "shared_probability" else {text: i for i, text in enumerate(columns)}
        for a, b, p in self.details[name]:
            table.iat[row[a], column[b]] = p
        return table

    @cached_property
    def closure(self) -> nx.DiGraph:
        """Which latent is an ancestor of which."""
        return closure_graph(self.graph)

    @property
    def n_samples(self) -> int:
        return sum(self.counts)

    @property
    def n_parameters(self) -> int:
        """Free parameters of the second moments: the latent space is d-dimensional, rows are free up to scale.

        Latents that nobody intervened on are free up to rotation, and all of them may act on every other. Dimensions
        beside the latents depend on them, and have a covariance of their own; features may have noise.
        """
        d, hit = self.model.n_latents, {name for v in self.model.interventions.values() for name in v.targets}
        edges = sum(source in hit for source, _ in self.fitted_graph.edges)
        rest = d - len(hit)
        edges += rest * len(hit) - rest * (rest - 1) // 2
        interventions = sum(len(value.targets) for value in self.model.interventions.values())
        p, r, noise = self.model.n_features, d, 0
        if self.model.feature_noise is not None:
            r = self.details["n_factors"]
            noise = p + r * (p - r)  # and the span of all factors
        elif self.model.residual is not None:
            r = scale_free_rank(self.model.in_dimensions().covariance())
        beside = 2 * d * (r - d) + (r - d) * (r - d + 1) // 2
        return d**2 + edges + interventions + beside + noise

    @property
    def bic(self) -> float:
        return float(-2 * self.loglik + np.log(self.n_samples) * self.n_parameters)

    @cached_property
    def _gaussian_uncertainty(self) -> Uncertainty:
        return Uncertainty(self)

    @clear_numerics
    def uncertainty(self, data: Samples | None = None) -> Uncertainty:
        """Return how well the parameters are known, from which every table below is made.

        Parameters
        ----------
        data : (X, contexts), optional
            The samples behind the moments. With them errors hold for any noise (the sandwich); without, for Gaussian
            noise, and no second pass is needed. The Gaussian answer is computed once and kept.
        """
        return self._gaussian_uncertainty if data is None else Uncertainty(self, data)

    @clear_numerics
    def edges(self, level: float | None = None, data: Samples | None = None) -> pd.DataFrame:
        """Return one row per edge of the graph, with its probability and a Wald test of each.

        Parameters
        ----------
        level : float, optional
            Adds ``lower`` and ``upper`` of the weight at this confidence.
        data : (X, contexts), optional
            As for :meth:`uncertainty`.

        Returns
        -------
        DataFrame
            source, target, weight, std_error, z, p_value, q_value, probability, standardized_weight (between latents of
            unit variance). ``probability`` is that the edge is in the graph, with order and search included: all graphs
            that came near the best were weighed, by the likelihood of Gaussian samples. ``z`` tests the standardized
            weight given the graph, and so is the same for any invertible map of the features; the weight over its error
            is not. Its q-value is Benjamini and Hochberg's over *all* pairs forward in the order, those without an edge
            at p = 1: the search looked at every one of them, and kept what looked best. ``p_value`` and ``q_value`` are
            those of the test, or one minus the probability where that is larger. Methods other than maximum likelihood
            have neither standard errors nor probabilities; ``.attrs["note"]`` says so.
        """
        return edge_table(self, self.uncertainty(data), level)

    @clear_numerics
    def standard_errors(self, scaling: Scaling = "paper", data: Samples | None = None) -> pd.DataFrame:
        """Return every number of the model with its standard error.

        Parameters
        ----------
        scaling : "paper", "unit-variance" or "unit-norm"
            Of the rows of H. In the paper's scaling the column of each row's largest entry is held fixed.
        data : (X, contexts), optional
            As for :meth:`uncertainty`.

        Returns
        -------
        DataFrame
            quantity, row, column, estimate, std_error. Quantities are "unmixing" (H), "structural" (B_0), "weight" and
            "total_effect" (of column on row), "noise_variance", and per context (row) and target (column) "scale" (λ)
            and "shift". The error is infinite where the data do not determine the number.
        """
        return self.uncertainty(data).table(scaling)

    @clear_numerics
    def confidence_intervals(
        self, level: float = 0.95, data: Samples | None = None, scaling: Scaling = "paper"
    ) -> pd.DataFrame:
        """:meth:`standard_errors` with the columns ``lower`` and ``upper``, for each number on its own."""
        return self.uncertainty(data).intervals(level, scaling)

    @clear_numerics
    def partial_order(self, level: float = 0.95) -> nx.DiGraph:
        """Return which latent certainly comes before which.

        All relations of the result hold *together* with probability ``level``, order and search included. Two latents
        without an edge either way are not told apart by these data. Soft interventions leave edges open, but not the
        relation: there each is tested by itself (:meth:`relations`), with Holm's correction.
        """
        return supported_order(self, level)

    @clear_numerics
    def sensitivity(self, strengths: Any = (0.5, 1.0), level: float = 0.95) -> Sensitivity:
        """Return how the edges depend on the strengths of the interventions.

        A strength is by how much an intervention weakens the parents of its target: 1 cuts them off. It cannot be told
        from moments, and weights depend on it. What does not: order and causes, with the signs of total effects, edges
        with nothing between their ends, and predictions of the same perturbations combined.

        Parameters
        ----------
        strengths : (low, high), or a mapping of context to that
            Every latent's strength may be anywhere in between, each for itself; contexts that a mapping leaves out
            have strength 1. What the fit was told (``strength=``) holds.
        level : float
            Of the bands and tests.

        Returns
        -------
        Sensitivity
            With ``.table``, one row per edge, and per cause that is no edge: weight, low and high (over all strengths,
            errors included), breakdown (the strength down to which it is an edge) and one of four readings: "direct at
            every strength", "direct down to strength s", "cause at every strength" (but not settled whether direct),
            "not settled". All given the order. :func:`latentdag.pl.sensitivity` draws it.
        """
        return sensitivity(self, strengths, level)

    @clear_numerics
    def relations(self) -> pd.DataFrame:
        """Test of every pair in the order whether the first is a cause of the second, directly or through others.

        The test holds for interventions of any strength, and for soft ones: what a context shows of total effects on
        its target is zero unless they are. It takes the order as given.

        Returns
        -------
        DataFrame
            source, target, z, p_value (doubled, since the search chose the direction) and q_value (Benjamini and
            Hochberg's over both directions of all pairs).
        """
        return responses_of(self).relations()

    @clear_numerics
    def strength_ratios(self) -> pd.DataFrame:
        """Estimate how strong contexts on one target are relative to each other, and test that this explains them.

        Returns
        -------
        DataFrame
            One row per context and target that another context hits, too: target, context, reference (the context that
            the ratio is to), ratio, std_error, and a χ² test, for the target, that its contexts weaken all causes in
            proportion: statistic, dof, p_value. The level of strengths is not identified; see docs/strength.md.
        """
        return strength_ratios(self)

    def predict(
        self,
        changes: Any,
        level: float = 0.95,
        *,
        kind: str = "perfect",
        data: Samples | None = None,
        as_anndata: bool = False,
    ) -> "Prediction | Any":
        """Predict mean and covariance of the features in a context that was never run, with intervals.

        ``fit.predict(["A", "B"])`` is the double perturbation of two single ones; see
        :func:`latentdag.uncertainty.prediction.predict`. With ``as_anndata`` the
        :class:`~latentdag.uncertainty.prediction.Prediction` comes as an AnnData: its mean is the one row, with layers
        "std_error", "lower" and "upper", and ``varp["covariance"]``.
        """
        found = predict(self, changes, level, kind=kind, data=data)
        return found.to_anndata() if as_anndata else found

    def score(self, m: "Moments", m_train: "Moments | None" = None, **options: Any) -> pd.DataFrame:
        """Return the log-likelihood per sample of held-out contexts, against three references.

        ``fit.score(held_out, combinations={"A+B": ("A", "B")})`` asks how well a double perturbation is predicted from
        single ones; see :func:`latentdag.score`.
        """
        from latentdag.uncertainty.held_out import score

        return score(self, m, m_train, **options)

    def seen_by(self, m: "Moments") -> "Fit":
        """Return the same fit with its model in the coordinates of moments; see :meth:`LatentModel.seen_by`.

        Raises
        ------
        ValueError
            If the moments are of other features.
        """
        model = self.model.seen_by(m)
        if tuple(model.feature_names) != tuple(m.feature_names):
            raise ValueError(
                f"the fit has other features than the moments, or another order ({lb.listed(model.feature_names, 3)} "
                f"and {lb.listed(m.feature_names, 3)}): they must be the same"
            )
        return self if m.basis is None else replace(self, model=model)

    def in_features(self, basis: "Basis") -> "Fit":
        """Return a fit to dimensions as one of the features behind them, in the paper's scaling there."""
        model = self.model.in_features(basis).rescaled("paper")
        graph = named_graph(model, self.fitted_graph.edges)
        loglik = self.loglik + self.n_samples * basis.log_volume
        return replace(self, model=model, graph=graph, fitted_graph=None, loglik=loglik)

    def latent_table(self, n_features: int = 3) -> pd.DataFrame:
        """Return one row per latent, sources first: contexts, what it grows with, parents, strongest features."""
        model, scaled, rows = self.model, self.model.rescaled("unit-variance"), []
        for name, correlation in zip(model.latents, model.correlations.T, strict=True):
            parents = sorted(self.graph.predecessors(name), key=lambda p: -abs(weight_of(scaled, name, p)))
            effects = [f"{parent} ({weight_of(scaled, name, parent):+.2f})" for parent in parents]
            strongest = [f"{model.feature_names[j]} ({correlation[j]:+.2f})" for j in model.strongest(name, n_features)]
            rows.append(
                {
                    "latent": name,
                    "contexts": ", ".join(str(c) for c, v in model.interventions.items() if name in v.targets),
                    "grows with": self.grows_with[name],
                    "parents (effect in s.d.)": ", ".join(effects),
                    "strongest features (correlation)": ", ".join(strongest),
                }
            )
        return pd.DataFrame(rows).set_index("latent").loc[list(self.order)].reset_index()

    def summary(self, n_features: int = 3) -> str:
        """Return a table for people, one line per latent, and below it the verdict."""
        options = ", ".join(f"{key}={value}" for key, value in self.options.told.items())
        head = (
            f"latentdag fit, method {self.method}{f' ({options})' if options else ''}\n"
            f"{self.model.n_latents} latents, {self.model.n_features} features, {len(self.model.contexts)} contexts, "
            f"{self.n_samples} samples, {self.graph.number_of_edges()} edges\n"
        )
        if np.isfinite(self.loglik):
            head += f"log-likelihood {self.loglik:.2f}, BIC {self.bic:.2f}\n"
        table = self.latent_table(n_features).to_string(index=False, justify="left")
        return f"{head}{table}\n\n{self.verdict}"

    def _repr_html_(self) -> str:
        table = self.latent_table().to_html(index=False, border=0)
        return f"<p>{html.escape(repr(self))}</p>{table}<p><b>{html.escape(str(self.verdict))}</b></p>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        save_arrays(path, FILE, *self.to_parts())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Fit":
        """Read what :meth:`save` wrote; raises :class:`~latentdag.errors.FileError` for a damaged file."""
        arrays, meta = load_arrays(path, FILE)
        with naming_file(path, "model"):
            return cls.from_parts(arrays, meta)

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON-able rest, for files."""
        arrays, meta = self.model.to_parts()
        return arrays, {
            "model": meta,
            "options": self.options.to_json(),
            "order": list(self.order),
            "graph": [[u, v, w] for u, v, w in self.fitted_graph.edges(data="weight")],
            "loglik": self.loglik,
            "counts": list(self.counts),
            "converged": self.converged,
            "details": dict(self.details),
            "idle": [lb.to_json(context) for context in self.idle],
        }

    @classmethod
    def from_parts(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> "Fit":
        """Make a fit of what :meth:`to_parts` returned; ``FILE`` describes its arrays and fields."""
        model = LatentModel.from_parts(arrays, meta["model"])
        _check_order(model, meta["order"])
        graph: nx.DiGraph = nx.DiGraph()
        graph.add_nodes_from(meta["order"])
        for source, target, weight in meta["graph"]:
            if not {source, target} <= set(model.latents) or weight != weight_of(model, target, source):
                raise FieldError("graph", f"the edge {source!r} → {target!r} of weight {weight} is not in the model")
            graph.add_edge(source, target, weight=weight)
        if graph.number_of_edges() < len(meta["graph"]):
            raise FieldError("graph", "has an edge twice")
        if len(meta["counts"]) != len(model.contexts) or min(meta["counts"]) < 1:
            raise FieldError("counts", "must be one positive number per context of the model")
        idle = tuple(lb.from_json(context) for context in meta.get("idle", ()))
        if not set(idle) <= set(model.interventions):
            raise FieldError("idle", f"must be contexts with an intervention: {list(model.interventions)}")
        return cls(
            model,
            tuple(meta["order"]),
            graph,
            float(meta["loglik"]),
            tuple(meta["counts"]),
            meta["converged"],
            _options(meta),
            meta["details"],
            idle,
        )

    def __getstate__(self) -> dict[str, Any]:
        # what is quick to compute again and slow to send to another process stays here
        left_out = ("_gaussian_uncertainty", "closure")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __repr__(self) -> str:
        return f"Fit({self.method}: {' → '.join(self.order)}, {self.graph.number_of_edges()} edges)"


def _options(meta: Mapping[str, Any]) -> Options:
    """Read the options of a file; the first files had the method beside them, and forgot kinds that were mixed."""
    found = dict(meta["options"])
    if "method" not in found:
        found["method"] = meta.get("method", "likelihood")
        if found.get("intervention") == "mixed":
            found.pop("intervention")
    try:
        return Options.from_json(found)
    except (ValueError, TypeError) as error:
        raise FieldError("options", str(error)) from None


def _check_order(model: LatentModel, order: list[str]) -> None:
    if sorted(order) != sorted(model.latents):
        raise FieldError("order", f"must list each latent of the model once: {list(model.latents)}")
    rows = [model.latents.index(name) for name in order]
    if np.triu(model.weights[np.ix_(rows, rows)]).any():
        raise FieldError("order", "a latent acts on one that comes before it, or on itself")


def weight_of(model: LatentModel, target: str, source: str) -> float:
    """Return the effect of one latent on another."""
    return float(model.weights[model.latents.index(target), model.latents.index(source)])


def named_graph(model: LatentModel, edges: Any) -> nx.DiGraph:
    """Return the graph of edges (source, target) with their weights in the model, over all its latents."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(reversed(model.latents))
    row = {name: i for i, name in enumerate(model.latents)}
    weights = model.weights.tolist()
    named = ((source, target, weights[row[target]][row[source]]) for source, target in edges)
    graph.add_edges_from((source, target, {"weight": weight}) for source, target, weight in named if weight != 0)
    return graph


FILE = Layout(
    "Fit",
    {
        "model": MODEL_FILE.fields,
        "method?": str,
        "options": {str: object},
        "order": [str],
        "graph": [(str, str, finite)],
        "loglik": float,
        "counts": [int],
        "converged": bool,
        "idle?": [lb.from_json],
        "details": {
            "gain?": float, "n_starts?": int, "n_agreed?": int, "penalty?": float, "shrinkage?": {str: float},
            "runner_up?": {"order": [str], "gap": float}, "ambiguous?": {str: [object]},
            "probability?": [(str, str, finite)], "relations?": [(str, str, finite)], "explored?": bool,
            "ancestors?": [(str, str, finite)], "responses?": [(str, str, str, finite)],
            "orientation?": {str: str}, "refusal?": {"p_value": float, "gaussian": bool, "size": str},
            "n_factors?": int, "noise_bic?": {str: float}, "noise_at_floor?": [str], "noise_endless?": int,
            "noise_unbounded?": bool,
            "target_probability?": [(str, str, finite)], "shared_probability?": [(str, str, finite)],
            "target_rivals?": [(finite, {str: [str]})], "targets_explored?": bool, "targets_hint?": [str],
            "changed?": {str: {"p_holm?": float, "p_apart_holm?": float, "reason": str}}, str: object,
        },
    },
    MODEL_FILE.arrays,
    {letter: f"model.{place}" for letter, place in MODEL_FILE.sizes.items()},
)  # fmt: skip
