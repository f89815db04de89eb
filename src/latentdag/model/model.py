"""The paper's model in words (Assumptions 1 and 2), its exact law in every context, and contexts never seen.

In context k the latents follow a linear structural equation model and the features mix them::

    Z = A_k Z + shift_k + Ω_k^{1/2} ε,    Cov(ε) = I,    X = offset + G Z.

Latents are measured from their mean in the control, so ``offset`` is the mean of X there and shifts are zero there.
An intervention replaces, for each of its targets, the row of ``A_0``, the noise variance and the shift. What follows
from these equations in one context is in :mod:`latentdag.model.distribution`.
"""

import html
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.core.linalg import full_row_rank, max_entry_scale, right_inverse
from latentdag.data import labels as lb
from latentdag.data.basis import Basis, layout
from latentdag.data.moments import Moments
from latentdag.data.schema import Layout
from latentdag.data.store import load_arrays, naming_file, save_arrays
from latentdag.model.distribution import Law
from latentdag.model.intervention import JSON, Change, Intervention, check_intervention

Scaling = Literal["paper", "unit-variance", "unit-norm"]

#: What a model's file holds, and the shapes of its arrays; see :mod:`latentdag.data.schema`.
FILE = Layout(
    "LatentModel",
    {"latents": [str], "control": lb.from_json, "feature_names": [str], "interventions": [(lb.from_json, JSON)]},
    {
        "unmixing": "f dp", "weights": "f dd", "noise_variance": "f d", "offset": "f p", "loadings?": "f pd",
        "residual?": "f pp", "feature_noise?": "f p", **layout("r", "p"),
    },
    {"d": "latents", "p": "feature_names"},
)  # fmt: skip
_OF_BASIS = layout("r", "p")
_SHAPES = {
    name.removesuffix("?"): form.removeprefix("f ") for name, form in FILE.arrays.items() if name not in _OF_BASIS
}


@dataclass(frozen=True, eq=False)
class LatentModel:
    """A linear latent causal model: unmixing, latent structural equations, interventions.

    Parameters
    ----------
    unmixing : (d, p)
        H, of full row rank; ``Z = H (X − offset)``.
    weights : (d, d)
        A_0; ``[i, j]`` is the effect of latent j on latent i in the control.
    noise_variance : (d,)
        The diagonal of Ω_0.
    interventions : mapping of context to :class:`Intervention`
    latents : names of the rows, optional
        By default a latent is named after the contexts that target it.
    control : label of the control context
    feature_names : optional
    offset : (p,), optional
        The mean of the features in the control.
    loadings : (p, d), optional
        G, where it is not ``H†``: any matrix with ``H G = I``.
    residual : (p, p), optional
        Covariance of what the latents leave of the features, uncorrelated with them and the same in every context;
        there is none in the paper's model.
    feature_noise : (p,), optional
        The part of the diagonal of the residual that is noise of single features. Latents are then not a function of
        the features, and ``H`` their best unbiased estimate.
    basis : Basis, optional
        The dimensions of the features that the model was found in, where it was not in the features themselves.

    Examples
    --------
    The paper's motivating example: 2 → 1, and one context that changes the noise of latent 2.

    >>> import numpy as np
    >>> model = LatentModel(
    ...     unmixing=np.linalg.inv([[-2.0, 2.0], [2.0, -1.0]]),
    ...     weights=[[0, -1], [0, 0]],
    ...     noise_variance=[1, 1],
    ...     latents=["Z1", "Z2"],
    ...     interventions={"k": Intervention("Z2", variance=0.25)},
    ... )
    >>> model.covariance("k").round(6)
    array([[ 8.  , -7.  ],
           [-7.  ,  6.25]])
    """

    unmixing: np.ndarray
    weights: np.ndarray
    noise_variance: np.ndarray
    interventions: Mapping[Any, Intervention] = field(default_factory=dict)
    latents: Sequence[str] = ()
    control: Hashable = "control"
    feature_names: Sequence[str] = ()
    offset: np.ndarray = None  # type: ignore[assignment]  # zeros, once the number of features is known
    loadings: np.ndarray | None = None
    residual: np.ndarray | None = None
    feature_noise: np.ndarray | None = None
    basis: Basis | None = None

    def __post_init__(self) -> None:
        H = np.atleast_2d(np.array(self.unmixing, dtype=float))
        d, p = H.shape
        sizes = {"d": d, "p": p}
        given = {name: getattr(self, name) for name in _SHAPES}
        given |= {"unmixing": H, "offset": np.zeros(p) if self.offset is None else self.offset}
        for name, array in given.items():
            if array is None:
                continue
            value = np.array(array, dtype=float)
            shape = tuple(sizes[letter] for letter in _SHAPES[name])
            if value.shape != shape:
                raise ValueError(f"{name} must have shape {shape} to match the unmixing {H.shape}, got {value.shape}")
            if not np.isfinite(value).all():
                raise ValueError(f"{name} holds values that are not finite")
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        if not (self.noise_variance > 0).all():
            raise ValueError(f"noise variances must be positive, got {self.noise_variance.tolist()}")
        if np.diagonal(self.weights).any():
            raise ValueError("a latent cannot act on itself: the diagonal of the weights must be zero")
        if not full_row_rank(H):
            raise ValueError(
                f"the unmixing {H.shape} must have full row rank: no more latents than features, none twice"
            )
        names = tuple(self.latents) or tuple(f"Z{i + 1}" for i in range(d))
        if len(names) != d or len(set(names)) < d:
            raise ValueError(f"{d} distinct latent names are needed, got {list(names)}")
        features = lb.named_features(tuple(self.feature_names) or None, p)
        interventions = {lb.as_label(context): value for context, value in self.interventions.items()}
        if self.control in interventions:
            raise ValueError(f"the control {self.control!r} cannot have an intervention")
        for context, intervention in interventions.items():
            check_intervention(intervention, names, context)
        object.__setattr__(self, "latents", names)
        object.__setattr__(self, "feature_names", features)
        object.__setattr__(self, "interventions", interventions)

    @property
    def n_latents(self) -> int:
        """Number of latents, d."""
        return len(self.unmixing)

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return self.unmixing.shape[1]

    @property
    def contexts(self) -> tuple[Hashable, ...]:
        """The control, then every context with an intervention."""
        return (self.control, *self.interventions)

    @property
    def targets(self) -> dict[Hashable, Any]:
        """Name of the latent that each context targets; a tuple of names where there are several."""
        return {
            context: value.targets[0] if len(value.targets) == 1 else value.targets
            for context, value in self.interventions.items()
        }

    @property
    def untargeted(self) -> tuple[str, ...]:
        """Latents that no context targets, in the model's order."""
        targeted = {name for value in self.interventions.values() for name in value.targets}
        return tuple(name for name in self.latents if name not in targeted)

    @cached_property
    def mixing(self) -> np.ndarray:
        """G, (p, d): the loadings if given, else H†."""
        return right_inverse(self.unmixing) if self.loadings is None else self.loadings

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Latent graph: an edge from cause to effect for every nonzero weight."""
        graph: nx.DiGraph = nx.DiGraph()
        graph.add_nodes_from(self.latents)
        for i, j in np.argwhere(self.weights != 0):
            graph.add_edge(self.latents[j], self.latents[i], weight=float(self.weights[i, j]))
        return graph

    def index(self, latent: str) -> int:
        """Return the row of a latent."""
        if latent not in self.latents:
            raise ValueError(f"no latent {latent!r}; the model has {list(self.latents)}")
        return self.latents.index(latent)

    def law(self, context: Hashable | None = None) -> Law:
        """Return the exact distribution of latents and features in one context; ``None`` is the control."""
        if context is None or context == self.control:
            return Law(self, None)
        if context not in self.interventions:
            raise ValueError(f"no context {context!r}; the model has {list(self.contexts)}")
        return Law(self, self.interventions[context])

    def structural(self, context: Hashable | None = None) -> np.ndarray:
        """Return the structural matrix B_k = Ω_k^{-1/2} (I − A_k), (d, d)."""
        return self.law(context).structural

    def precision(self, context: Hashable | None = None) -> np.ndarray:
        """Return the precision matrix of the features, Θ_k = Σ_k† = Hᵀ B_kᵀ B_k H, (p, p)."""
        return self.law(context).precision

    def covariance(self, context: Hashable | None = None) -> np.ndarray:
        """Return the covariance of the features, Σ_k, (p, p)."""
        return self.law(context).covariance

    def mean(self, context: Hashable | None = None) -> np.ndarray:
        """Return the mean of the features, (p,)."""
        return self.law(context).mean

    def moments(self, counts: Any = 10**6) -> Moments:
        """Return the exact population moments of every context, as if from infinitely many samples.

        ``counts`` only sets the sample sizes that the :class:`Moments` claims.
        """
        laws = [self.law(context) for context in self.contexts]
        return self.labelled([law.mean for law in laws], [law.covariance for law in laws], counts)

    def labelled(self, means: Any, covariances: Any, counts: Any) -> Moments:
        """Return means (K+1, p) and covariances (K+1, p, p) as moments of the model's contexts and features."""
        return Moments.from_covariances(covariances, counts, self.contexts, self.control, means, self.feature_names)

    def sample(self, n: int, context: Hashable | None = None, rng: Any = None, noise: str = "gaussian") -> np.ndarray:
        """Draw n feature vectors (n, p); ``noise`` is one of :data:`latentdag.model.distribution.NOISES`."""
        return self.law(context).sample(n, rng, noise)

    def intervene(self, changes: Any, kind: str = "perfect") -> Law:
        """Return the distribution in a context that was never run: any set of latents, any kinds.

        Parameters
        ----------
        changes : mapping of latent name to what happens to it, or an :class:`Intervention`
            ``None`` (or ``...``) repeats what the model's own context does to that latent; a number is the value it is
            set to (``kind="do"``) or its new noise variance (otherwise); a mapping gives ``kind``, ``variance``,
            ``shift``, ``value``, ``weights`` by name, what is left out staying as it is in the control.
        kind : "perfect", "soft" or "do"
            For the latents whose change does not name one.

        Returns
        -------
        Law
            With ``mean``, ``covariance``, ``sample`` and the rest.

        Examples
        --------
        >>> from latentdag import simulate
        >>> model = simulate.random_model(rng=0)
        >>> both = model.intervene({"c1": None, "c2": {"kind": "do", "value": 1.5}})
        >>> both.covariance.shape
        (10, 10)
        """
        if isinstance(changes, Intervention):
            check_intervention(changes, self.latents, "new")
            return Law(self, changes)
        if not isinstance(changes, Mapping) or not changes:
            raise ValueError("say what to intervene on: a mapping from latent names to changes")
        return Law(self, Intervention.combine([self._change(name, value, kind) for name, value in changes.items()]))

    def _change(self, latent: str, change: Any, kind: str) -> Intervention:
        """Return the intervention on one latent that :meth:`intervene` was told in words."""
        self.index(latent)  # refuses a name that is none of the model's
        if change is None or change is ...:
            known = [(c, v) for c, v in self.interventions.items() if latent in v.targets]
            alone = [pair for pair in known if len(pair[1].targets) == 1] or known
            if len(alone) != 1:
                raise ValueError(
                    f"{len(alone)} contexts of the model target {latent!r} ({[c for c, _ in alone]}): say which change "
                    "is meant, for example model.interventions[context]"
                )
            return alone[0][1].only(latent)
        if isinstance(change, Intervention):
            return change.only(latent)
        if isinstance(change, Mapping):
            return Intervention(latent, **{"kind": kind, **change})
        return Intervention(latent, kind="do", value=change) if kind == "do" else Intervention(latent, kind, change)

    @cached_property
    def _posterior(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return K (d, p), c (d,) and standard errors (d,): latents have the posterior mean ``K x + c``.

        A row may be of any context, each as probable as the others.
        """
        if self.feature_noise is None:
            return self.unmixing, -self.unmixing @ self.offset, np.zeros(self.n_latents)
        laws = [self.law(context) for context in self.contexts]
        means = np.array([law.latent_mean for law in laws])
        mean = means.mean(axis=0)
        C = np.mean([law.latent_covariance for law in laws], axis=0) + np.cov(means.T, ddof=0)
        K = np.linalg.solve(self.mixing @ C @ self.mixing.T + self.residual, self.mixing @ C).T
        error = np.sqrt(np.maximum(np.diagonal(C - K @ self.mixing @ C), 0.0))
        return K, mean - K @ (self.offset + self.mixing @ mean), error

    @property
    def latent_map(self) -> tuple[np.ndarray, np.ndarray]:
        """K (d, p) and c (d,) of :meth:`transform`: latents of features x are ``K x + c``."""
        return self._posterior[:2]

    @property
    def latent_std_error(self) -> np.ndarray:
        """Standard error (d,) of every latent of :meth:`transform`; zero where features are exact."""
        return self._posterior[2]

    def transform(self, X: Any) -> Any:
        """Return the latents (n, d) of features (n, p); a DataFrame gives a DataFrame.

        Where features are noisy, a latent is estimated by its posterior mean, which lies nearer to the mean of all than
        the latent itself; ``latent_std_error`` says how far off it is. Every context is as probable as the others.
        """
        frame = X if isinstance(X, pd.DataFrame) else None
        if frame is not None:
            missing = [name for name in self.feature_names if name not in frame.columns]
            if missing:
                raise ValueError(f"{len(missing)} features are missing, first {missing[0]!r}")
            X = frame[list(self.feature_names)].to_numpy(dtype=float)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, the model {self.n_features}")
        K, c = self.latent_map
        Z = np.asarray(X @ K.T) + c
        return Z if frame is None else pd.DataFrame(Z, index=frame.index, columns=list(self.latents))

    def inverse_transform(self, Z: Any) -> Any:
        """Return the features (n, p) of latents (n, d); a DataFrame gives a DataFrame."""
        frame = Z if isinstance(Z, pd.DataFrame) else None
        if frame is not None:
            Z = frame[list(self.latents)].to_numpy(dtype=float)
        X = np.asarray(Z) @ self.mixing.T + self.offset
        return X if frame is None else pd.DataFrame(X, index=frame.index, columns=list(self.feature_names))

    def rescaled(self, scaling: Scaling | np.ndarray = "paper") -> "LatentModel":
        """Return the same model with latents in other units.

        Parameters
        ----------
        scaling : "paper", "unit-variance", "unit-norm" or (d,) array
            Largest entry of each row of H is +1, leftmost on ties (Assumption 1(c)); unit variance of every latent in
            the control; unit norm of every row of H; or the numbers to divide the latents by.
        """
        if not isinstance(scaling, str):
            scale = np.asarray(scaling, dtype=float)
        elif scaling == "paper":
            scale = max_entry_scale(self.unmixing)
        elif scaling == "unit-variance":
            scale = np.sqrt(np.diagonal(self.law().latent_covariance))
        elif scaling == "unit-norm":
            scale = np.linalg.norm(self.unmixing, axis=1)
        else:
            raise ValueError(f"scaling must be 'paper', 'unit-variance', 'unit-norm' or an array, got {scaling!r}")
        by_name = dict(zip(self.latents, scale, strict=True))
        H = self.unmixing / scale[:, None]
        if isinstance(scaling, str) and scaling == "paper":
            H[np.isclose(H, 1.0, rtol=0, atol=1e-15)] = 1.0
        return replace(
            self,
            unmixing=H,
            weights=self.weights * scale / scale[:, None],
            noise_variance=self.noise_variance / scale**2,
            loadings=None if self.loadings is None else self.loadings * scale,
            interventions={context: value.rescaled(by_name) for context, value in self.interventions.items()},
        )

    def reordered(self, latents: Iterable[str]) -> "LatentModel":
        """Return the same model with its latents in another order (Proposition 2, if the order is in S(G))."""
        names = tuple(latents)
        if sorted(names) != sorted(self.latents):
            raise ValueError(f"reordering needs each latent once: {list(self.latents)}, got {list(names)}")
        rows = [self.latents.index(name) for name in names]
        return replace(
            self,
            unmixing=self.unmixing[rows],
            weights=self.weights[np.ix_(rows, rows)],
            noise_variance=self.noise_variance[rows],
            loadings=None if self.loadings is None else self.loadings[:, rows],
            latents=names,
        )

    def in_features(self, basis: Basis) -> "LatentModel":
        """Return a model of dimensions as one of the features behind them.

        What the dimensions leave of a feature has its variance; what it shares with other features is not known.
        """
        residual = np.diag(basis.rest) if basis.rest.any() or self.residual is not None else None
        if self.residual is not None:
            residual += basis.back @ self.residual @ basis.back.T
        return replace(
            self,
            unmixing=self.unmixing @ basis.W,
            offset=basis.center + basis.back @ self.offset,
            loadings=None if residual is None else basis.back @ self.mixing,
            residual=residual,
            feature_names=basis.feature_names,
            basis=basis,
        )

    def in_dimensions(self) -> "LatentModel":
        """Return the model of the dimensions that it was found in; itself, if those are its features."""
        basis, residual, noise = self.basis, self.residual, self.feature_noise
        if basis is None:
            return self
        if residual is not None:
            # of exact features, what dimensions leave has no part in them
            left = 0.0 if basis.psi is not None else (basis.W * basis.rest) @ basis.W.T
            residual = basis.W @ residual @ basis.W.T - left
        return replace(
            self,
            unmixing=self.unmixing @ basis.back,
            offset=basis.W @ (self.offset - basis.center),
            loadings=None if self.loadings is None else basis.W @ self.loadings,
            residual=residual if noise is not None or len(basis.W) > self.n_latents else None,
            feature_noise=None if noise is None else np.square(basis.W) @ noise,
            feature_names=basis.names,
            basis=None,
        )

    @property
    def covariance_with_latents(self) -> np.ndarray:
        """Covariances (p, d) of features with latents in the control; of noisy ones, with the latents' estimates."""
        made = self.mixing @ self.law().latent_covariance
        return made if self.feature_noise is None else made + np.asarray(self.residual) @ self.unmixing.T

    @property
    def correlations(self) -> np.ndarray:
        """Correlations (p, d) of features with latents in the control: the strongest features of a latent are these."""
        deviations = np.sqrt(np.clip(np.diagonal(self.covariance()), 0.0, None))[:, None]
        scaled = self.covariance_with_latents / np.sqrt(np.diagonal(self.law().latent_covariance))
        return np.divide(scaled, deviations, out=np.zeros_like(scaled), where=deviations > 0)

    def strongest(self, latent: str, n: int) -> list[int]:
        """Return the positions of the ``n`` strongest features of a latent: of largest absolute correlation with it."""
        return np.argsort(-np.abs(self.correlations[:, self.index(latent)]), kind="stable")[:n].tolist()

    def seen_by(self, m: Moments) -> "LatentModel":
        """Return the model in the coordinates of moments of its features, or of its dimensions."""
        return self if m.basis is None else self.in_dimensions()

    def renamed(self, names: Mapping[str, str]) -> "LatentModel":
        """Return the same model with latents called by other names; names left out stay."""
        new = list(self.latents)
        for old, name in names.items():
            new[self.index(old)] = name
        return replace(
            self,
            latents=tuple(new),
            interventions={context: value.renamed(names) for context, value in self.interventions.items()},
        )

    @classmethod
    def from_structural(
        cls,
        unmixing: Any,
        B_0: Any,
        B: Mapping[Hashable, Any] | None = None,
        latents: Sequence[str] = (),
        **other: Any,
    ) -> "LatentModel":
        """Build a model from the paper's matrices: H, B_0 and one B_k per context.

        Rows in which B_k differs from B_0 are the targets; a row with nothing off the diagonal is a perfect
        intervention, any other a soft one. Diagonals must be positive.
        """
        B_0 = np.asarray(B_0, dtype=float)
        names = tuple(latents) or tuple(f"Z{i + 1}" for i in range(len(B_0)))
        A_0, Omega_0 = _equations(B_0, "B_0")
        interventions: dict[Hashable, Intervention] = dict(other.pop("interventions", {}))
        for context, matrix in (B or {}).items():
            A, Omega = _equations(np.asarray(matrix, dtype=float), f"the structural matrix of context {context!r}")
            size = np.abs(B_0).max(axis=1, keepdims=True)
            changed = np.flatnonzero((np.abs(np.asarray(matrix) - B_0) > 1e-12 * size).any(axis=1))
            if not len(changed):
                raise ValueError(f"context {context!r} changes no structural equation")
            changes = {}
            for i in changed:
                parents = {names[j]: float(A[i, j]) for j in np.flatnonzero(A[i])}
                kind = "soft" if parents else "perfect"
                changes[names[i]] = Change(kind, float(Omega[i]), weights=parents or None)
            interventions[context] = Intervention.of_changes(changes)
        return cls(unmixing, A_0, Omega_0, interventions, latents=names, **other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file of plain arrays, atomically."""
        save_arrays(path, FILE, *self.to_parts())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LatentModel":
        """Read what :meth:`save` wrote; raises :class:`~latentdag.errors.FileError` for a damaged file."""
        arrays, meta = load_arrays(path, FILE)
        with naming_file(path, "model"):
            return cls.from_parts(arrays, meta)

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return what :data:`FILE` describes: arrays by name, and the rest as JSON."""
        arrays = {name: getattr(self, name) for name in _SHAPES if getattr(self, name) is not None}
        arrays |= {} if self.basis is None else self.basis.arrays()
        meta = {
            "latents": list(self.latents),
            "control": lb.to_json(self.control),
            "feature_names": list(self.feature_names),
            "interventions": [[lb.to_json(context), value.to_json()] for context, value in self.interventions.items()],
        }
        return arrays, meta

    @classmethod
    def from_parts(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> "LatentModel":
        """Return the model that :meth:`to_parts` took apart, from arrays and fields as ``FILE`` describes them."""
        interventions = {lb.from_json(c): Intervention.from_json(value) for c, value in meta["interventions"]}
        if len(interventions) < len(meta["interventions"]) or not meta["latents"]:
            raise ValueError("there must be a latent at least, and one intervention per context")
        return cls(
            **{name: arrays[name] for name in _SHAPES if name in arrays},
            interventions=interventions,
            latents=tuple(meta["latents"]),
            control=lb.from_json(meta["control"]),
            feature_names=tuple(meta["feature_names"]),
            basis=Basis.of(arrays, meta["feature_names"] if "basis_W" in arrays else None),
        )

    def __repr__(self) -> str:
        return (
            f"LatentModel({self.n_latents} latents, {self.n_features} features, "
            f"{np.count_nonzero(self.weights)} edges, {len(self.interventions)} interventions)"
        )

    def _repr_html_(self) -> str:
        effects = [f"effect of {name}" for name in self.latents]
        table = pd.DataFrame(self.weights, pd.Index(self.latents, name="on"), effects).replace(0.0, np.nan)
        shown = table.to_html(border=0, na_rep="", float_format="{:.3g}".format, max_rows=20, max_cols=20)
        return f"<p>{html.escape(repr(self))}</p>{shown}"


def _equations(B: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return A (d, d) and the diagonal of Ω (d,) of a structural matrix."""
    diagonal = np.diagonal(B)
    if not (diagonal > 0).all():
        raise ValueError(f"{name} must have a positive diagonal, got {diagonal.tolist()}")
    A = np.eye(len(B)) - B / diagonal[:, None]
    np.fill_diagonal(A, 0.0)
    return A + 0.0, 1.0 / diagonal**2
