"""What a fit is told: one object for the library, the estimator, the command line, refits and files."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import networkx as nx
import numpy as np

from latentdag.core.exact import TOLERANCE
from latentdag.data import labels as lb
from latentdag.methods.learn import Learn
from latentdag.model.intervention import KINDS, check_strength

_DESIGN = ("targets", "intervention", "means", "shrinkage", "unintervened")
_NOISE = ("noise", "n_latents")

#: The options that each method takes.
TAKES = {
    "likelihood": (*_DESIGN, "strength", *_NOISE, "graph", "order", "forbidden", "required", "penalty"),
    "closed-form": _DESIGN,
    "projection": ("gamma",),
    "exact": ("tol",),
}

#: Options that change what is asked: a method that cannot honour them must not pass over them.
MEANT = (
    "targets", "intervention", "strength", "unintervened", "noise", "n_latents", "graph", "order", "forbidden",
    "required",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Options(Mapping[str, Any]):
    """Options of a fit, defaults included: a read-only mapping of the method and all that it takes.

    Parameters
    ----------
    method : "likelihood", "closed-form", "projection" or "exact"
    targets : mapping of context to latent name, or names, or "learn", optional
        Which contexts hit the same latent, several, or none, ``()``. By default every context hits a latent of its own.
        "learn", or a :class:`latentdag.Learn` that says what is known: they are learned from the data.
    intervention : "perfect", "soft" or "do", or a mapping of context to kind
        With soft interventions the ancestor relation and the noises ``B_0 H X`` are identified; the rows of H and the
        edges within the ancestor relation are one choice among equivalent ones.
    strength : mapping of context to number, or to a pair (low, high), optional
        How strong partial interventions are known to be: the parents of what a context targets keep ``1 − strength`` of
        their weights, so that 1, the default, cuts them off. A share of cells that escaped is exactly such a strength.
        A pair is an interval: the fit takes its middle, and standard errors allow for the rest. See docs/strength.md.
    means : bool
        Use differences between the contexts' means: an intervention may shift the mean of its target's noise, and all
        other noises keep theirs. False gives every context a free mean, and so does True where all means are the same
        to the last digit, as in moments made of covariances alone.
    shrinkage : bool
        Move covariances of contexts with few samples towards the pooled one.
    unintervened : "downstream" or "upstream"
        Where the data have more dimensions than there are targeted latents, what the others may be. "downstream": they
        depend on the targeted latents or on nothing, never the other way round. "upstream": they may also be causes of
        targeted latents. The model then has one latent per dimension, those that nobody intervened on are sources named
        "other 1", "other 2", …, strongest first, and ``details["ambiguous"]`` names targeted latents of which the
        moments leave two candidates: see :func:`latentdag.equivalent_models`.
    noise : "auto", "features" or "none", or a mapping of feature to noise variance
        Whether every feature is measured with noise of its own. "auto": if that explains the data better (by BIC) than
        exact features do. "features": it is, and how noisy each is is estimated. "none": the features are exact; but
        moments that carry noise, as those of counts do, are fitted with at least that. A mapping says how noisy some
        features are; the others are estimated. Docs/noise.md says where "auto" takes features as exact unasked.
    n_latents : int, optional
        Of noisy features: how many latents there are, background included. By default as many as the data ask for.
    graph : DiGraph over latent names, or its (source, target) pairs, optional
        Fit this graph, search nothing.
    order : latent names, sources first, optional
        Search edges only.
    forbidden, required : (source, target) pairs of latent names, optional
    penalty : "bic", "aic" or float
        Log-likelihood that an edge must be worth: ``log(N)/2``, 1, or the number.
    gamma : float
        Of "projection": share of spectral energy in the first singular value above which a matrix counts as rank one.
    tol : float
        Of "exact": what counts as zero.

    Examples
    --------
    >>> Options(intervention="soft")["intervention"]
    'soft'
    >>> Options("projection")
    Options(method='projection', gamma=0.99)
    >>> Options.from_json(Options(targets={"A": "x", "B": ["x", "y"]}).to_json())["targets"]["B"]
    ('x', 'y')
    """

    method: str = "likelihood"
    targets: Mapping[Hashable, Any] | str | Learn | None = None
    intervention: str | Mapping[Hashable, str] = "perfect"
    strength: Mapping[Hashable, Any] | None = None
    means: bool = True
    shrinkage: bool = True
    unintervened: str = "downstream"
    noise: str | Mapping[str, float] = "auto"
    n_latents: int | None = None
    graph: Any = None
    order: Sequence[str] | None = None
    forbidden: Iterable[tuple[str, str]] | None = None
    required: Iterable[tuple[str, str]] | None = None
    penalty: str | float = "bic"
    gamma: float = 0.99
    tol: float = TOLERANCE

    def __post_init__(self) -> None:
        check_method(self.method)
        for name, make in _MAKE.items():
            object.__setattr__(self, name, make(name, getattr(self, name)))
        for name, value in _values(self).items():
            if name not in TAKES[self.method] and value != _DEFAULTS[name]:
                raise ValueError(f"method {self.method!r} has no option {name}={value!r}: leave it out")

    @classmethod
    def named(cls, method: str, values: Mapping[str, Any]) -> "Options":
        """Make options of a method from their names and values.

        Raises
        ------
        TypeError
            If the method takes no option of that name.
        """
        check_method(method)
        for name in values:
            if name not in TAKES[method]:
                listed = ", ".join(TAKES[method])
                raise TypeError(f"method {method!r} has no such option: {name!r}; it takes {listed}")
        return cls(method, **values)

    @classmethod
    def among(cls, method: str, values: Mapping[str, Any]) -> "Options":
        """Make options of a method from those of all methods, so that a grid can run over methods.

        Raises
        ------
        ValueError
            If it cannot honour one that changes what is asked.
        """
        check_method(method)
        return cls(method, **{name: v for name, v in values.items() if name in TAKES[method] or name in MEANT})

    def __getitem__(self, name: str) -> Any:
        if name != "method" and name not in TAKES[self.method]:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(("method", *TAKES[self.method]))

    def __len__(self) -> int:
        return 1 + len(TAKES[self.method])

    @property
    def told(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {name: value for name, value in self.items() if name != "method" and value != _DEFAULTS[name]}

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={_shown(value)!r}' for name, value in self.items())})"

    def __reduce__(self) -> tuple[Any, ...]:  # to other processes: read-only views do not travel
        return Options, tuple(_shown(getattr(self, field.name)) for field in fields(self))

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON; mappings become lists of pairs, since contexts need not be text."""
        return {name: _to_json(value) for name, value in self.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Options":
        """Return the options that :meth:`to_json` wrote; what is missing takes its default."""
        made = dict(value)
        if isinstance(made.get("targets"), Mapping):
            made["targets"] = Learn.from_json(made["targets"])
        for name in ("targets", "intervention", "strength", "noise"):
            if isinstance(made.get(name), list):
                made[name] = {lb.from_json(label): of for label, of in made[name]}
        return cls(**made)


def check_method(method: str) -> None:
    if method not in TAKES:
        raise ValueError(f"method must be one of {', '.join(map(repr, TAKES))}; got {method!r}")


def _values(options: Options) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in fields(options) if field.name != "method"}


def _to_json(value: Any) -> Any:
    if isinstance(value, Learn):
        return value.to_json()
    if isinstance(value, Mapping):
        return [[lb.to_json(label), _to_json(of)] for label, of in value.items()]
    return [_to_json(part) for part in value] if isinstance(value, tuple) else value


def _shown(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _by_context(value: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    """Return a mapping in one order, whatever the user's, so that the same options read the same."""
    found = {lb.as_label(context): of for context, of in value.items()}
    return {context: found[context] for context in lb.canonical_order(found)}


def _targets(name: str, value: Any) -> Mapping[Hashable, Any] | str | Learn | None:
    if value is None or isinstance(value, Learn) or (isinstance(value, str) and value == "learn"):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(
            f"targets must map contexts to latent names, {{context: name, …}}, or be 'learn', got {value!r}"
        )
    made = {}
    for context, latents in _by_context(value).items():
        names = (latents,) if isinstance(latents, str) else tuple(latents)
        if len(set(names)) < len(names) or not all(isinstance(latent, str) for latent in names):
            raise ValueError(f"every context must target distinct latents, by name; {context!r} has {latents!r}")
        made[context] = names[0] if len(names) == 1 else names
    return MappingProxyType(made)


def _intervention(name: str, value: Any) -> str | Mapping[Hashable, str]:
    kinds: dict[Hashable, Any] = _by_context(value) if isinstance(value, Mapping) else {None: value}
    for context, kind in kinds.items():
        if kind not in KINDS:
            where = "" if context is None else f"context {context!r}: "
            raise ValueError(f"{where}the kind of intervention is one of {', '.join(KINDS)}, got {kind!r}")
    return MappingProxyType(kinds) if isinstance(value, Mapping) else str(value)


def _strength(name: str, value: Any) -> Mapping[Hashable, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"strength must map contexts to numbers, {{context: 0.7, …}}, got {value!r}")
    made: dict[Hashable, Any] = {}
    for context, given in _by_context(value).items():
        ends = [float(end) if _is_number(end) else end for end in np.ravel(np.array(given, dtype=object))]
        for end in ends:
            check_strength(end, f"strength of context {context!r}")
        if len(ends) not in (1, 2) or ends != sorted(ends):
            raise ValueError(f"strength of context {context!r} must be a number or a pair (low, high), got {given!r}")
        made[context] = ends[0] if ends[0] == ends[-1] else tuple(ends)
    return MappingProxyType(made)


def _pairs(name: str, value: Any) -> tuple[tuple[str, str], ...] | None:
    if value is None:
        return None
    pairs = tuple(tuple(pair) for pair in (value.edges if isinstance(value, nx.DiGraph) else value))
    if not all(len(pair) == 2 and all(isinstance(end, str) for end in pair) for pair in pairs):
        raise ValueError(f"{name} must be (source, target) pairs of latent names, got {value!r}")
    return tuple(sorted(set(pairs)))


def _order(name: str, value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        raise ValueError(f"order must be a list of latent names, sources first, got the text {value!r}")
    return None if value is None else tuple(str(latent) for latent in value)


def _flag(name: str, value: Any) -> bool:
    if value not in (True, False):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _unintervened(name: str, value: Any) -> str:
    if value not in ("downstream", "upstream"):
        raise ValueError(f"unintervened must be 'downstream' or 'upstream', got {value!r}")
    return str(value)


def _noise(name: str, value: Any) -> str | Mapping[str, float]:
    if isinstance(value, Mapping):
        for feature, variance in value.items():
            if not (_is_number(variance) and 0 < variance < float("inf")):
                raise ValueError(f"noise of feature {feature!r} must be a positive variance, got {variance!r}")
        return MappingProxyType({str(feature): float(value[feature]) for feature in sorted(value, key=str)})
    if value not in ("none", "features", "auto"):
        raise ValueError(f"noise must be 'none', 'features', 'auto' or {{feature: variance, …}}, got {value!r}")
    return str(value)


def _n_latents(name: str, value: Any) -> int | None:
    if value is None or (_is_number(value) and value == int(value) and value > 0):
        return value if value is None else int(value)
    raise ValueError(f"n_latents is a number of latents, got {value!r}")


def _penalty(name: str, value: Any) -> str | float:
    if value in ("bic", "aic") or (_is_number(value) and 0 <= value < float("inf")):
        return value if isinstance(value, str) else float(value)
    raise ValueError(f"penalty must be 'bic', 'aic' or a number of nats, got {value!r}")


def _gamma(name: str, value: Any) -> float:
    if not (_is_number(value) and 0 <= value <= 1):
        raise ValueError(f"gamma is a fraction of spectral energy between 0 and 1, got {value!r}")
    return float(value)


def _tol(name: str, value: Any) -> float:
    if not (_is_number(value) and 0 < value < 1):
        raise ValueError(f"tol is a relative size between 0 and 1, got {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return not isinstance(value, str | bool) and hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0


_MAKE = {
    "targets": _targets,
    "intervention": _intervention,
    "strength": _strength,
    "means": _flag,
    "shrinkage": _flag,
    "unintervened": _unintervened,
    "noise": _noise,
    "n_latents": _n_latents,
    "graph": _pairs,
    "order": _order,
    "forbidden": _pairs,
    "required": _pairs,
    "penalty": _penalty,
    "gamma": _gamma,
    "tol": _tol,
}

_DEFAULTS = {field.name: field.default for field in fields(Options)}

#: Maximum likelihood, as nobody said otherwise.
DEFAULT = Options()
