"""A fitted model against the saturated one: does any model of this kind explain all contexts at once (MATH.md 3.7)?

Rank two is what one context must fulfil by itself. Together they must do more: noise rows orthonormal, every noise left
alone elsewhere, an acyclic graph. The likelihood ratio of the best model of that kind against free means and
covariances tests all of it at once.

Which model: the full order, where every earlier latent may be a parent. A graph whose edges were chosen on the same
data would fit better or worse than its number of edges says; a full order has none to choose.

*Degrees of freedom.* At known H every mechanism is a regression, with one weight per parent, a variance and, where
means are used, an intercept. H adds its ``d r`` entries, less one scale per row; with more dimensions than latents the
others add a regression on the latents. A latent with soft interventions only can be mixed with any of its predecessors
without a trace, and latents that nobody targets with each other, so such directions are not counted. Contexts with
several targets can hide more, and there the rank of the tangent map at random parameters counts.

*Few samples.* At known H all determinants are those of Wishart matrices, whose logarithms have known means; how much
the mean of the statistic exceeds its degrees of freedom there corrects it (Bartlett).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentdag.core.likelihood import Design, Mechanism
from latentdag.core.linalg import Array, IntArray
from latentdag.core.ranks import mean_log_det

#: Up to this many latents the tangent map of a design with several targets per context is counted.
COUNT_UP_TO = 20


@dataclass(frozen=True)
class Goodness:
    """Twice the log-likelihood ratio, corrected for few samples; its degrees of freedom; the ratio itself, in nats."""

    statistic: float
    dof: int
    nats: float


def goodness(design: Design, value: float, parents: Sequence[IntArray], order: Sequence[int]) -> Goodness:
    """The saturated model against the maximum ``value`` of a full order.

    Parameters
    ----------
    design : Design
        Without shrinkage.
    value : float
        ℓ(H) at its maximum, as from :func:`latentdag.core.optimize.maximize`.
    parents, order : of the full order
    """
    r = design.S.shape[1]
    mechanisms = design.mechanisms(parents)
    free = design.n @ np.linalg.slogdet(design.S)[1]
    fitted = design.N * np.linalg.slogdet(design.S_bar)[1] - 2 * value
    own_mean = int(design.means is not None)
    saturated = len(design.n) * (r * (r + 1) // 2 + own_mean * r)
    at_known_H = _regressions(design, mechanisms)
    hidden = _hidden(design, mechanisms, order)
    excess = _known_mean(design, mechanisms) / max(saturated - at_known_H, 1)
    dof = saturated - at_known_H - (design.d * (r - 1) - hidden)
    return Goodness(float(fitted - free) / max(excess, 1.0), dof, 0.5 * float(fitted - free))


def _regressions(design: Design, mechanisms: Sequence[Mechanism]) -> int:
    """Parameters at known H: of every mechanism, and of the other dimensions given the latents."""
    own_mean = int(design.means is not None)
    q = int(design.S.shape[1]) - design.d
    rest = q * design.d + q * (q + 1) // 2 + own_mean * q
    return rest + sum(len(a.parents) + 1 + own_mean for a in mechanisms)


def _known_mean(design: Design, mechanisms: Sequence[Mechanism]) -> float:
    """Mean of the statistic at known H."""
    r, own_mean = design.S.shape[1], int(design.means is not None)

    def term(weight: float, lost: int, q: int) -> float:
        nu = weight - lost - own_mean
        return weight * float(mean_log_det(nu, q) + q * np.log(nu / weight))

    fitted = sum(term(a.w, len(a.parents), 1) for a in mechanisms) + term(design.N, design.d, r - design.d)
    return fitted - sum(term(float(n), 0, r) for n in design.n)


def _hidden(design: Design, mechanisms: Sequence[Mechanism], order: Sequence[int]) -> int:
    """Directions of H that leave no trace."""
    d = design.d
    if max(len(hit) for hit in design.hits) > 1 and d <= COUNT_UP_TO:
        rng = np.random.default_rng(0)
        rows = np.zeros((len(mechanisms), d))
        for q, a in enumerate(mechanisms):
            rows[q, a.parents] = rng.uniform(0.3, 1.0, len(a.parents)) * rng.choice([-1.0, 1.0], len(a.parents))
            rows[q, a.latent] = rng.uniform(0.5, 2.0)
        means = None if design.means is None else rng.standard_normal(len(mechanisms))
        identified = np.linalg.matrix_rank(
            tangent(np.ones(len(design.n)), design.hits, mechanisms, rows, means), tol=1e-7
        )
        at_known_H = sum(len(a.parents) + 1 + (means is not None) for a in mechanisms)
        return int(at_known_H + d * (d - 1) - identified)
    perfect = {a.latent for a in mechanisms[d:] if not design.soft[a.context]}
    untouched = set(range(d)) - {a.latent for a in mechanisms[d:]}
    mixed = sum(t for t, i in enumerate(order) if i not in perfect)
    return mixed + sum(j in untouched for t, i in enumerate(order) if i in untouched for j in order[t + 1 :])


def tangent(
    n: Array, hits: Sequence[Sequence[int]], mechanisms: Sequence[Mechanism], rows: Array, intercepts: Array | None
) -> Array:
    """How moments in noise coordinates move with the parameters, contexts stacked, each weighted by √n_k.

    Parameters
    ----------
    n : (K+1,)
    hits : latents that each context targets
    mechanisms, rows : structural rows (len(mechanisms), d), noise variance one
    intercepts : (len(mechanisms),) means of the noises in units of their deviation, or None without means

    Returns
    -------
    (K+1) · (d(d+1)/2 [+ d]) by d² + number of parameters of the mechanisms
    """
    d = rows.shape[1]
    i_up, j_up = np.triu_indices(d)
    weight = np.where(i_up == j_up, np.sqrt(0.5), 1.0)
    columns = [(q, int(j)) for q, a in enumerate(mechanisms) for j in (a.latent, *a.parents)]
    blocks = []
    for n_k, used in zip(n, mechanisms_of_contexts(hits, mechanisms, d), strict=True):
        B = rows[used]
        B_inv = np.asarray(np.linalg.inv(B), dtype=np.float64)
        place = {q: i for i, q in enumerate(used)}
        z = B_inv @ intercepts[used] if intercepts is not None else np.zeros(d)
        # dF F⁻¹ of the noise rows F = B H: for dH = E H, one entry of E at a time, then for each structural entry
        Omega = np.zeros((d * d + len(columns), d, d))
        Omega[: d * d] = np.einsum("ia,bj->abij", B, B_inv).reshape(d * d, d, d)
        shift = np.zeros((len(Omega), d))
        shift[: d * d] = -np.einsum("ia,b->abi", B, z).reshape(d * d, d)
        for c, (q, j) in enumerate(columns, start=d * d):
            if q in place:
                Omega[c, place[q]] = B_inv[j]
                shift[c, place[q]] = -z[j]
        moved = ((Omega + Omega.swapaxes(1, 2))[:, i_up, j_up] * weight).T
        if intercepts is not None:
            own = np.zeros((d, len(mechanisms)))
            own[np.arange(d), used] = 1.0
            moved = np.block([[moved, np.zeros((len(moved), len(mechanisms)))], [shift.T, own]])
        blocks.append(np.sqrt(n_k) * moved)
    return np.vstack(blocks)


def mechanisms_of_contexts(hits: Sequence[Sequence[int]], mechanisms: Sequence[Mechanism], d: int) -> list[list[int]]:
    """For every context the mechanism of each latent there."""
    at = {(a.context, a.latent): q for q, a in enumerate(mechanisms)}
    return [[at[k if i in hit else 0, i] for i in range(d)] for k, hit in enumerate(hits)]
