"""What a context does to the latents it targets, and the names that latents get from it.

A :class:`Change` says what happens to one latent; an :class:`Intervention` is one change for each of its targets. Three
kinds exist: *perfect* cuts the latent off from its parents (Assumption 2), *soft* gives its parents other weights
(Assumption 1(b)), *do* sets it to a value and leaves no noise. A perfect one may have a *strength* below one: then it
is partial, and leaves the parents ``1 − strength`` of their weights.

A latent has no name of its own, so :func:`latent_names` calls it after the contexts that target it.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from latentdag.data.labels import text_names
from latentdag.data.schema import finite

KINDS = ("perfect", "soft", "do")


@dataclass(frozen=True)
class Change:
    """What happens to one latent in a context.

    Attributes
    ----------
    kind : "perfect", "soft" or "do"
        Perfect: cut off from its parents. Soft: its parents act with other weights. Do: set to a value.
    variance : float or None
        New noise variance; ``None`` leaves it, zero for "do".
    shift : float
        Added to the mean of its noise; for "do", the value it is set to (measured from the control's mean).
    weights : mapping or None
        For "soft": the parents' new weights by name, all others being zero; ``None`` leaves them.
    strength : float
        For "perfect": by how much it weakens the parents; 1 cuts them off.
    """

    kind: str = "perfect"
    variance: float | None = None
    shift: float = 0.0
    weights: Mapping[str, float] | None = None
    strength: float = 1.0


class Intervention:
    """An intervention on one or several latents, or on none: a context in which nothing changes.

    Parameters
    ----------
    targets : latent name or names
    kind : "perfect", "soft" or "do"
    variance : number or one per target, optional
        New noise variance; left out, it stays what it is in the control.
    shift : number or one per target
        Added to the mean of the target's noise.
    value : number or one per target, optional
        For "do": what the target is set to, measured from its mean in the control.
    weights : mapping, optional
        For "soft": ``{parent: weight}`` for a single target, ``{target: {parent: weight}}`` for several.
    strength : number or one per target
        For "perfect": a partial intervention leaves the parents ``1 − strength`` of their weights.

    Examples
    --------
    >>> Intervention("A", variance=4.0)
    Intervention('A', 'perfect', variance=4)
    >>> Intervention("A", variance=4.0, strength=0.7)
    Intervention('A', 'perfect', variance=4, strength=0.7)
    >>> Intervention(["A", "B"], "do", value=[1.0, 0.0]).targets
    ('A', 'B')
    """

    __slots__ = ("changes",)
    changes: dict[str, Change]

    def __init__(
        self,
        targets: str | Iterable[str],
        kind: str = "perfect",
        variance: Any = None,
        *,
        shift: Any = 0.0,
        value: Any = None,
        weights: Mapping[str, Any] | None = None,
        strength: Any = 1.0,
    ):
        names = (targets,) if isinstance(targets, str) else tuple(targets)
        if len(set(names)) < len(names):
            raise ValueError(f"the targets of an intervention must be distinct, got {list(names)}")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if weights is not None and kind != "soft":
            raise ValueError(f"only a soft intervention has weights, this one is {kind!r}")
        if value is not None and kind != "do":
            raise ValueError(f"only a do-intervention has a value, this one is {kind!r}: shift its mean instead")
        if kind == "do":
            if variance is not None:
                raise ValueError("a do-intervention leaves no noise: it has a value, not a variance")
            variance, shift = 0.0, shift if value is None else value
        by_target = weights if weights is not None and len(names) > 1 else dict.fromkeys(names, weights)
        given = (variance, "variance"), (shift, "shift"), (strength, "strength")
        by_name = zip(names, *(_each(value, names, what) for value, what in given), strict=True)
        self.changes = {name: Change(kind, v, s, _numbers(by_target.get(name)), by) for name, v, s, by in by_name}
        for name, change in self.changes.items():
            _check_change(change, f"the intervention on {name!r}")

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of all targets."""
        return tuple(self.changes)

    @property
    def target(self) -> str:
        """The target of a single-node intervention, the paper's i_k."""
        if len(self.changes) > 1:
            raise ValueError(f"this intervention has {len(self.changes)} targets: {list(self.targets)}")
        return self.targets[0]

    @property
    def kind(self) -> str:
        """The common kind of all targets, or "mixed"."""
        kinds = {change.kind for change in self.changes.values()} or {"perfect"}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def scale(self) -> float:
        """λ_k = Ω^{-1/2} of a single-node intervention that sets a noise variance."""
        variance = self.changes[self.target].variance
        if not variance:
            raise ValueError("no new noise variance is set")
        return float(variance**-0.5)

    def only(self, target: str) -> "Intervention":
        """Return what it does to one of its targets; an unknown name stands for its single target."""
        known = target if target in self.changes else self.target
        return Intervention.of_changes({target: self.changes[known]})

    def rescaled(self, scale: Mapping[str, float]) -> "Intervention":
        """Return the same intervention with every latent measured in units of ``scale``."""
        made = {}
        for name, change in self.changes.items():
            own = float(scale[name])
            variance = None if change.variance is None else change.variance / own**2
            weights = change.weights and {p: w * float(scale[p]) / own for p, w in change.weights.items()}
            made[name] = replace(change, variance=variance, shift=change.shift / own, weights=weights)
        return Intervention.of_changes(made)

    def renamed(self, names: Mapping[str, str]) -> "Intervention":
        """Return the same intervention with latents called by other names; names left out stay."""
        made = {}
        for name, change in self.changes.items():
            weights = change.weights and {names.get(p, p): w for p, w in change.weights.items()}
            made[names.get(name, name)] = replace(change, weights=weights)
        return Intervention.of_changes(made)

    @classmethod
    def combine(cls, parts: Iterable["Intervention"]) -> "Intervention":
        """Return the intervention that does all of these at once; of two on one latent, the later counts."""
        return cls.of_changes({name: change for part in parts for name, change in part.changes.items()})

    @classmethod
    def of_changes(cls, changes: dict[str, Change]) -> "Intervention":
        """Return the intervention that makes these changes, unchecked."""
        made = cls.__new__(cls)
        made.changes = changes
        return made

    def to_json(self) -> dict[str, Any]:
        """Return plain mappings of the kind ``JSON``."""
        return {name: asdict(change) for name, change in self.changes.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Mapping[str, Any]]) -> "Intervention":
        """Return the intervention that :meth:`to_json` wrote, from values of the kind ``JSON``."""
        return cls.of_changes({name: Change(**change) for name, change in value.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervention) and self.changes == other.changes

    def __hash__(self) -> int:
        return hash(self.targets)

    def __repr__(self) -> str:
        listed = ", ".join(map(repr, self.targets))
        parts = [listed if len(self.changes) == 1 else f"({listed})", repr(self.kind)]
        if len(self.changes) == 1:
            (change,) = self.changes.values()
            parts += [f"variance={change.variance:g}"] if change.variance is not None and change.kind != "do" else []
            parts += [f"{'value' if change.kind == 'do' else 'shift'}={change.shift:g}"] if change.shift else []
            parts += [f"weights={dict(change.weights)}"] if change.weights is not None else []
            parts += [f"strength={change.strength:g}"] if change.strength != 1 else []
        return f"Intervention({', '.join(parts)})"


#: An intervention in a file, see :mod:`latentdag.data.schema`.
JSON = {str: {"kind": str, "variance?": finite, "shift": finite, "weights?": {str: finite}, "strength?": finite}}


def check_intervention(intervention: Intervention, latents: Sequence[str], context: Hashable) -> None:
    """Check that every name it uses is a latent of the model, and that a model can have its numbers."""
    for name, change in intervention.changes.items():
        _check_change(change, f"context {context!r}, latent {name!r}")
        for used in (name, *(change.weights or {})):
            if used not in latents:
                raise ValueError(f"context {context!r} names the latent {used!r}; the model has {list(latents)}")
        if name in (change.weights or {}):
            raise ValueError(f"context {context!r}: latent {name!r} cannot act on itself")


def _check_change(change: Change, where: str) -> None:
    """Check kind and numbers of one change; ``where`` begins the message."""
    if change.kind not in KINDS:
        raise ValueError(f"{where}: kind must be one of {', '.join(KINDS)}, got {change.kind!r}")
    if change.weights is not None and change.kind != "soft":
        raise ValueError(f"{where}: only a soft intervention has weights, this one is {change.kind!r}")
    check_strength(change.strength, f"{where}: its strength")
    if change.strength != 1 and change.kind != "perfect":
        raise ValueError(f"{where}: only a perfect intervention has a strength, this one is {change.kind!r}")
    fixed = change.kind == "do"
    if change.variance is not None and not (change.variance == 0 if fixed else 0 < change.variance < math.inf):
        wanted = "zero for 'do'" if fixed else "positive and finite"
        raise ValueError(f"{where}: the new noise variance must be {wanted}, got {change.variance}")
    for what, number in (("shift", change.shift), *(change.weights or {}).items()):
        if not math.isfinite(number):
            raise ValueError(f"{where}: {what} must be finite, got {number}")


def check_strength(strength: Any, what: str) -> None:
    """Check that a strength lies above 0, which changes nothing, and at 1 at most, which cuts all parents off."""
    if not (isinstance(strength, int | float) and 0 < strength <= 1):
        raise ValueError(f"{what} must be a number above 0 and at most 1, which cuts all parents off; got {strength!r}")


def _each(value: Any, names: Sequence[str], what: str) -> list[Any]:
    """Return one number (or None) per target, from one for all or a sequence."""
    if value is None or isinstance(value, int | float) or getattr(value, "ndim", 1) == 0:
        return [None if value is None else float(value)] * len(names)
    if not isinstance(value, Iterable):
        raise ValueError(f"{what} must be a number or one per target, got {value!r}")
    values = [float(v) for v in value]
    if len(values) != len(names):
        raise ValueError(f"{len(names)} targets but {len(values)} values of {what}")
    return values


def _numbers(weights: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Return weights with plain names and numbers."""
    return None if weights is None else {str(parent): float(w) for parent, w in weights.items()}


def latent_names(n_latents: int, targets: Mapping[Hashable, Sequence[int]]) -> list[str]:
    """Return a name for each latent: the contexts that target it alone, else all that target it.

    Parameters
    ----------
    n_latents : int
    targets : mapping of context label to the rows it targets

    Examples
    --------
    >>> latent_names(4, {"A": [0], "B": [2], "B2": [2], "A+C": [0, 1]})
    ['A', 'A+C', 'B|B2', 'latent 4']
    """
    texts = dict(zip(targets, text_names(list(targets)), strict=True))
    names: list[str] = []
    for i in range(n_latents):
        hits = [context for context, rows in targets.items() if i in rows]
        alone = [context for context in hits if len(targets[context]) == 1]
        name = "|".join(texts[context] for context in alone or hits) or f"latent {i + 1}"
        # several latents hit by the very same contexts need a number to tell them apart
        names.append(name if name not in names else f"{name} #{sum(n.split(' #')[0] == name for n in names) + 1}")
    return names
