"""What is identified where some latents were never intervened on (MATH.md 3.2, "K < d").

Let T be the targeted latents and R the others. Nothing in the data tells the latents in R from their own noises, or
those noises from any rotation of them. So call the noises themselves the latents: they become sources, and whatever
passed through a latent in R becomes an effect of its targeted ancestors and of those sources. This *reduced model* has
the same law in every context and after every perfect intervention on any of T, seen or not.

One ambiguity is left. In the coordinates of the noises, context k changes the precision by ``c cᵀ − e_k e_kᵀ``, and two
pairs (u, m) have that difference (see :mod:`latentdag.core.pairs`). The second one is ruled out by a targeted ancestor
of k, whose noise it would be correlated with; by a second context on k with another noise variance; and by a shifted
mean. Where none of these exists, and k is not a source, both stay: two models, equal moments. Choosing the second for
one latent can rule it out for another, so the whole set is found by walking from model to model.
"""

from collections.abc import Sequence

import numpy as np

from latentdag.core.linalg import Array
from latentdag.core.pairs import other_solution
from latentdag.errors import clear_numerics
from latentdag.model.intervention import Change, Intervention
from latentdag.model.model import LatentModel

#: Relative size below which a weight or a difference between two laws counts as zero.
TOLERANCE = 1e-8


@clear_numerics
def reduced_model(model: LatentModel) -> LatentModel:
    """The identified form of a model in which some latents were never intervened on: they become sources.

    Parameters
    ----------
    model : LatentModel
        All interventions perfect or do.

    Returns
    -------
    LatentModel
        With the same law in every context. Targeted latents keep their rows and names. The others are uncorrelated
        sources of unit variance, rotated so that the first has the strongest effects on the noises of targeted latents,
        and so on; there are at most as many with any effect as there are targeted latents.
    """
    rest = _never_targeted(model)
    return model if not rest else _with_sources(model, model.structural() @ model.unmixing, rest)


@clear_numerics
def equivalent_models(model: LatentModel, tol: float = TOLERANCE) -> list[LatentModel]:
    """All reduced models with the same mean and covariance in every context, the given one first.

    Examples
    --------
    One intervention on the effect of a latent that nobody touched leaves two answers.

    >>> import numpy as np
    >>> model = LatentModel(np.eye(2), [[0, 1.0], [0, 0]], [1, 1], {"k": Intervention("Z1", variance=3.0)})
    >>> len(equivalent_models(model))
    2
    """
    found = [reduced_model(model)]
    rest = _never_targeted(model)
    if not rest:
        return found
    for known in found:  # grows while it is walked
        for name in (name for name in known.latents if name not in rest):
            other = flipped(known, name)
            if other is None or not same_law(known, other, tol):
                continue
            if not any(_same_rows(other, seen, tol) for seen in found):
                found.append(other)
    return found


def flipped(model: LatentModel, name: str) -> LatentModel | None:
    """The reduced model with the other candidate for one targeted latent; None where there is none.

    Its covariances are those of the model if the latent has no targeted ancestor and one noise variance in all contexts
    that target it.
    """
    rest = _never_targeted(model)
    changes = [value.changes[name] for value in model.interventions.values() if name in value.changes]
    if not rest or not changes or any(change.kind != "perfect" for change in changes):
        return None
    k, B_0 = model.latents.index(name), model.structural()
    M = B_0 @ model.unmixing
    variance = changes[0].variance if changes[0].variance is not None else model.noise_variance[k]
    c = np.linalg.inv(B_0)[k] / np.sqrt(variance)
    pair = other_solution(c, np.eye(len(M))[k])
    if pair is None:
        return None
    u, m = pair
    H = model.unmixing.copy()
    H[k] = u @ M  # of unit variance where it is targeted
    M = _turn(k, m) @ M
    made = {
        context: Intervention.of_changes(value.changes | {name: Change("perfect", 1.0, 0.0)})
        if name in value.changes
        else value
        for context, value in model.interventions.items()
    }
    return _with_sources(model, M, rest, H, made)


def same_law(a: LatentModel, b: LatentModel, tol: float = TOLERANCE) -> bool:
    """Whether two models have the same mean and covariance of the features in every context of the first."""
    for context in a.contexts:
        law, other = a.law(context), b.law(context)
        scale = np.sqrt(np.diagonal(law.covariance))
        scale = np.where(scale > 0, scale, 1.0)
        if np.abs((law.covariance - other.covariance) / np.outer(scale, scale)).max() > tol:
            return False
        if np.abs((law.mean - other.mean) / scale).max() > tol:
            return False
    return True


def _never_targeted(model: LatentModel) -> list[str]:
    hit = {name for value in model.interventions.values() for name in value.targets}
    soft = [c for c, value in model.interventions.items() if "soft" in {x.kind for x in value.changes.values()}]
    if soft:
        raise ValueError(f"context {soft[0]!r} is a soft intervention; the reduced form is that of perfect ones")
    return [name for name in model.latents if name not in hit]


def _turn(k: int, m: Array) -> Array:
    """The rotation in the plane of e_k and m that takes the one to the other; ±m alike."""
    m = m if m[k] >= 0 else -m
    away = m - m[k] * np.eye(len(m))[k]
    sine = np.linalg.norm(away)
    if not sine:
        return np.eye(len(m))
    e, w = np.eye(len(m))[k], away / sine
    plane = np.array([e, w])
    return np.asarray(np.eye(len(m)) + plane.T @ (np.array([[m[k], sine], [-sine, m[k]]]) - np.eye(2)) @ plane)


def _with_sources(
    model: LatentModel,
    M: Array,
    rest: Sequence[str],
    H: Array | None = None,
    interventions: dict[object, Intervention] | None = None,
) -> LatentModel:
    """The model with noise rows M (d, p) in which the latents ``rest`` are their noises, in canonical rotation."""
    others = [model.latents.index(name) for name in rest]
    targeted = [i for i in range(model.n_latents) if i not in others]
    H = model.unmixing.copy() if H is None else H
    H[others] = M[others]
    effects = (M @ np.linalg.pinv(H))[np.ix_(targeted, others)]
    turn = np.linalg.svd(effects)[2]
    # signs by what comes out of it: the strongest effect of each source is positive
    strongest = np.argmax(np.abs(effects @ turn.T), axis=0) if targeted else np.zeros(len(others), dtype=int)
    sign = np.sign((effects @ turn.T)[strongest, np.arange(len(others))]) if targeted else np.ones(len(others))
    H[others] = M[others] = np.where(sign == 0, 1.0, sign)[:, None] * (turn @ M[others])
    B_0 = M @ np.linalg.pinv(H)
    B_0[np.abs(B_0) < TOLERANCE * np.abs(B_0).max(axis=1, keepdims=True)] = 0.0
    B_0 *= np.sign(np.diagonal(B_0))[:, None]
    return LatentModel.from_structural(
        H,
        B_0,
        latents=model.latents,
        interventions=interventions if interventions is not None else dict(model.interventions),
        control=model.control,
        feature_names=model.feature_names,
        offset=model.offset,
    )


def _same_rows(a: LatentModel, b: LatentModel, tol: float) -> bool:
    """Whether the targeted latents are the same, up to scale; sources follow from them."""
    hit = sorted({name for value in a.interventions.values() for name in value.targets})
    covariance = a.covariance()
    for name in hit:
        x, y = a.unmixing[a.latents.index(name)], b.unmixing[b.latents.index(name)]
        cosine = (x @ covariance @ y) ** 2 / ((x @ covariance @ x) * (y @ covariance @ y))
        if 1 - cosine > tol:
            return False
    return True
