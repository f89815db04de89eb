"""What contexts show of total effects, whatever their strength (docs/math.md, Partial interventions).

With ``m_i`` the control's noise rows, a context that acts on latent i has a noise row ``u``, and what it shows is

    u / c_i = m_i + Σ_j R_ij m_j,        c = u M^{-1}.

For any change of the weights of i, ``R_ij ≠ 0`` only if j comes before i. For an intervention of strength s_i it is the
total effect, less what is left of it: ``R = I + S (T − I)`` with T the total effects and S the strengths. Within a full
order every such R is possible and the likelihood is the same for all strengths. So R is fitted once, and

    A(S) = I − (I + S^{-1} (R − I))^{-1}

are the weights that each strength would mean.
"""

from dataclasses import replace

import numpy as np

from latentdag.core.effort import GAIN_OF_ORDERS
from latentdag.core.graphs import FittedGraph
from latentdag.core.jacobian import Point
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array, BoolArray
from latentdag.core.optimize import maximize
from latentdag.core.orders import full_parents


def fit_responses(design: Design, graph: FittedGraph) -> Array | None:
    """Fit R (q, d), one row per intervened mechanism, in the full order of a graph; None if it has no likelihood.

    Units are those in which the graph's noises have variance one, and signs are theirs.
    """
    free = replace(design, soft=(False, *(True,) * (len(design.n) - 1)))
    full = maximize(free, graph.optimum.H, full_parents(graph.order), GAIN_OF_ORDERS)
    if full is None:
        return None
    d, target = design.d, [i for hit in design.hits for i in hit]
    noises = [fitted.rows[:d] @ fitted.H for fitted in (full, graph.optimum)]
    sign = np.sign(np.einsum("ij,ij->i", noises[0] @ design.S_bar, noises[1]))
    R = full.rows[d:] @ np.linalg.inv(full.rows[:d])
    return np.asarray(sign[target, None] * R / R[np.arange(len(R)), target, None] * sign)


def response_point(point: Point, before: BoolArray) -> Point:
    """Return a model in its control's noises as latents, where rows of contexts are free along all that comes before.

    Parameters
    ----------
    point : Point
    before : (d, d), ``[i, j]`` iff j comes before i in the order
    """
    d, own = point.d, np.eye(point.d, dtype=bool)
    free = np.vstack([np.zeros((d, d), dtype=bool), (before | own)[point.target]])
    noise = None if point.noise is None else point.noise.seen_by(point.B)
    rows = np.vstack([np.eye(d), point.b @ point.B_inv])
    return replace(point, rows=rows, free=free, noise=noise, tied=None, strength_sd=None)


def weight_at(R: Array, V: Array, strength: Array) -> tuple[Array, Array]:
    """Return the weight (m,) of the first on the last of t latents in order, at m strengths, and its standard error.

    Parameters
    ----------
    R : (t, t) unit lower triangular
    V : (t (t − 1) / 2,) * 2, covariance of its entries below the diagonal, row by row
    strength : (m, t)
    """
    t = len(R)
    a, b = np.tril_indices(t, -1)
    inverse = np.linalg.inv(np.eye(t) + (R - np.eye(t)) / strength[:, :, None])
    gradient = inverse[:, -1, a] / strength[:, a] * inverse[:, b, 0]
    error = np.sqrt(np.maximum(np.einsum("mi,ij,mj->m", gradient, V, gradient), 0.0))
    return np.asarray(-inverse[:, -1, 0], dtype=np.float64), np.asarray(error, dtype=np.float64)
