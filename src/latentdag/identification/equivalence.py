"""What is identified where some latents were never intervened on (docs/math.md, section "Latents that nobody targets").

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

from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from latentdag.core.linalg import Array, unit_diagonal
from latentdag.core.pairs import other_solution
from latentdag.errors import clear_numerics
from latentdag.model.intervention import Change, Intervention
from latentdag.model.model import LatentModel

#: Relative size below which a weight or a difference between two laws counts as zero.
TOLERANCE = 1e-8


@clear_numerics
def reduced_model(model: LatentModel) -> LatentModel:
    """Return the identified form of a model: the latents that no context targets become sources.

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

    Examples
    --------
    In 3 → 2 → 1 without a context for the middle latent, latent 2 becomes a source and 3 acts on 1 directly.

    >>> import numpy as np
    >>> contexts = {"a": Intervention("Z1", variance=2.0), "c": Intervention("Z3", variance=2.0)}
    >>> model = LatentModel(np.eye(3), np.eye(3, k=1), [1, 1, 1], contexts)
    >>> sorted(reduced_model(model).graph.edges)
    [('Z2', 'Z1'), ('Z3', 'Z1')]
    """
    _check_perfect(model)
    if not model.untargeted:
        return model
    return _with_sources(model, model.unmixing.copy(), model.structural() @ model.unmixing, model.interventions)


@clear_numerics
def equivalent_models(model: LatentModel, tol: float = TOLERANCE) -> list[LatentModel]:
    """Return all reduced models with the same mean and covariance in every context, the given one first.

    Examples
    --------
    One intervention on the effect of a latent that nobody touched leaves two answers.

    >>> import numpy as np
    >>> model = LatentModel(np.eye(2), [[0, 1.0], [0, 0]], [1, 1], {"k": Intervention("Z1", variance=3.0)})
    >>> len(equivalent_models(model))
    2
    """
    found = [reduced_model(model)]
    targeted = [name for name in model.latents if name not in model.untargeted]
    for known in found:  # grows while it is walked
        for name in targeted:
            other = flipped(known, name)
            if other is None or not same_law(known, other, tol):
                continue
            if not any(_same_rows(other, seen, targeted, tol) for seen in found):
                found.append(other)
    return found


def flipped(model: LatentModel, name: str) -> LatentModel | None:
    """Return the reduced model with the other solution for one targeted latent; None where there is none.

    Its covariances are those of the model if the latent has no targeted ancestor and one noise variance in all contexts
    that target it.
    """
    _check_perfect(model)
    changes = [value.changes[name] for value in model.interventions.values() if name in value.changes]
    if not model.untargeted or not changes or any(change.kind != "perfect" for change in changes):
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
    unit = {name: Change("perfect", 1.0)}
    made = {
        context: Intervention.of_changes(value.changes | unit) if name in value.changes else value
        for context, value in model.interventions.items()
    }
    return _with_sources(model, H, M, made)


def same_law(a: LatentModel, b: LatentModel, tol: float = TOLERANCE) -> bool:
    """Return True if two models have the same mean and covariance of the features in every context of the first."""
    return all(law_gap(a, b, context) <= tol for context in a.contexts)


def law_gap(a: LatentModel, b: LatentModel, context: Hashable) -> float:
    """Return the largest difference between two models' means and covariances in one context.

    Means are measured in standard deviations of the first model, covariances as in :func:`relative_gap`.
    """
    law, other = a.law(context), b.law(context)
    _, deviations = unit_diagonal(law.covariance)
    mean_gap = float(np.abs((law.mean - other.mean) / deviations).max())
    return max(mean_gap, relative_gap(law.covariance, other.covariance))


def relative_gap(S: Array, S_hat: Array) -> float:
    """Return the largest difference between two matrices (p, p), entry [i, j] in units of ``sqrt(S_ii S_jj)``."""
    _, s = unit_diagonal(S)
    return float(np.abs((S - S_hat) / np.outer(s, s)).max())


def _check_perfect(model: LatentModel) -> None:
    """Raise ValueError if a context is a soft intervention."""
    for context, value in model.interventions.items():
        if any(change.kind == "soft" or change.strength != 1 for change in value.changes.values()):
            raise ValueError(
                f"context {context!r} is soft or partial; the reduced form is that of perfect interventions"
            )


def _turn(k: int, m: Array) -> Array:
    """Return the rotation (d, d) in the plane of e_k and the unit vector m that takes one to the other; ±m alike."""
    m = m if m[k] >= 0 else -m
    e = np.eye(len(m))[k]
    away = m - m[k] * e
    sine = np.linalg.norm(away)
    if not sine:
        return np.eye(len(m))
    plane = np.array([e, away / sine])
    return np.asarray(np.eye(len(m)) + plane.T @ (np.array([[m[k], sine], [-sine, m[k]]]) - np.eye(2)) @ plane)


def _with_sources(
    model: LatentModel, H: Array, M: Array, interventions: Mapping[Hashable, Intervention]
) -> LatentModel:
    """Return the model with noise rows M (d, p) in which untargeted latents are their noises, in canonical rotation.

    Rows of H (d, p) are those of the targeted latents; the others are overwritten, in H and in M.
    """
    others = [i for i, name in enumerate(model.latents) if name in model.untargeted]
    targeted = [i for i in range(model.n_latents) if i not in others]
    H[others] = M[others]
    effects = (M @ np.linalg.pinv(H))[np.ix_(targeted, others)]
    turn = np.linalg.svd(effects)[2]
    # signs by what comes out of it: the strongest effect of each source is positive
    turned = effects @ turn.T
    strongest = np.abs(turned).argmax(axis=0) if targeted else []
    sign = np.sign(turned[strongest, np.arange(len(others))]) if targeted else np.ones(len(others))
    H[others] = M[others] = np.where(sign == 0, 1.0, sign)[:, None] * (turn @ M[others])
    B_0 = M @ np.linalg.pinv(H)
    B_0[np.abs(B_0) < TOLERANCE * np.abs(B_0).max(axis=1, keepdims=True)] = 0.0
    B_0 *= np.sign(np.diagonal(B_0))[:, None]
    return LatentModel.from_structural(
        H,
        B_0,
        latents=model.latents,
        interventions=interventions,
        control=model.control,
        feature_names=model.feature_names,
        offset=model.offset,
    )


def _same_rows(a: LatentModel, b: LatentModel, targeted: Iterable[str], tol: float) -> bool:
    """Return True if the targeted latents are the same, up to scale; sources follow from them."""
    rows, S = [a.latents.index(name) for name in targeted], a.covariance()
    X, Y = a.unmixing[rows], b.unmixing[rows]
    xy, xx, yy = (np.einsum("ij,jk,ik->i", U, S, V) for U, V in ((X, Y), (X, X), (Y, Y)))
    return not (1 - xy**2 / (xx * yy) > tol).any()
