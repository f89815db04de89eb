"""The full order that fits best, near one that a search has found.

A test of the model against free moments asks whether *any* order explains them (:mod:`latentdag.core.goodness`). A fit
answers another question: it weighs orders by their sparse graphs, so that its own order, with every earlier latent as a
parent, need not be the best; and with many latents and few samples its rows can be a local maximum, a hundred nats
short. Either makes a test refuse data that the model explains. So latents walk to their best places first
(:func:`latentdag.core.orders.climb`). Where the test would still refuse, rows are kicked out of their place and settle
again, and whatever is better stays: refusing is worth a second look.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from latentdag.core.effort import GAIN_OF_ORDERS, KICK, KICKS
from latentdag.core.graphs import perfect_rows
from latentdag.core.likelihood import Design
from latentdag.core.linalg import Array
from latentdag.core.optimize import Optimum, maximize
from latentdag.core.orders import Order, climb, full_parents

Permit = Callable[[Order], bool]


@dataclass(frozen=True)
class FullOrder:
    """Hold a full order and its maximum."""

    order: Order
    optimum: Optimum


def best_full_order(
    design: Design, H: Array, order: Order, permit: Permit, enough: Callable[[FullOrder], bool]
) -> FullOrder | None:
    """Return the best full order that is found from rows H (d, r) in this order; None if they have no likelihood.

    Parameters
    ----------
    permit : tells whether an order may be looked at
    enough : tells whether one is good enough, so that rows need no kick
    """
    best = maximize(design, H, full_parents(order))
    found = None if best is None else settle(design, FullOrder(order, best), best.H, permit)
    rng = np.random.default_rng(0)
    for _ in range(KICKS):
        if found is None or enough(found):
            break
        found = settle(design, found, kicked(design, found, rng), permit)
    return found


def kicked(design: Design, now: FullOrder, rng: np.random.Generator) -> Array:
    """Return the rows, moved at random along the noises in their order, so that features and contexts may permute."""
    rows, noises = now.optimum.H.copy(), now.optimum.rows[: design.d] @ now.optimum.H
    at = list(now.order)
    rows[at] += KICK / np.sqrt(design.d) * rng.standard_normal((design.d, design.d)) @ noises[at]
    return rows


def settle(design: Design, now: FullOrder, H: Array, permit: Permit) -> FullOrder:
    """Let rows H, in the order as it is now, walk to their best places; return the better of there and now."""
    try:
        walked = climb(design, H, now.order, permit)
        rows, least = perfect_rows(design, walked.H, walked.order), now.optimum.value
        there = maximize(design, rows, full_parents(walked.order), GAIN_OF_ORDERS, at_least=least)
    except np.linalg.LinAlgError:  # rows that all but coincide lead nowhere
        return now
    return now if there is None or there.value <= now.optimum.value else FullOrder(walked.order, there)
