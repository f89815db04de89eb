"""How hard the search tries: every constant of the estimator that trades time for thoroughness, in one place.

All but one do not change *what* is asked: edges are judged by the penalised likelihood, and orders by their evidence
(:mod:`latentdag.core.evidence`) or, where there are many latents, by the penalised score. The others only say how many
orders, edges and steps are looked at, and when something is too far behind to be looked at again. Differences of
log-likelihoods are in nats: a nat is the odds of e to 1, and noise alone moves a likelihood ratio with one degree of
freedom by half a nat on average.
"""

# maximising the likelihood for one graph

#: Nats that a further Newton step may still promise when a fit counts as finished. Standard errors see far less.
GAIN_TOLERANCE = 1e-5

#: The same while orders are compared, which differ by tenths of nats at the least; and while edges and reversals are.
GAIN_OF_ORDERS, GAIN_OF_EDGES, GAIN_OF_REVERSALS = 1e-3, 0.02, 0.3

#: Nats by which a maximum may be missed and still be called one: no order, edge or standard error depends on them.
CONVERGED = 1e-3

#: Nats that a move must gain to be made; half the smallest difference that a fit of that tolerance can show.
GAIN_OF_A_MOVE = 1e-3

#: Latents up to which Newton's system is solved as a matrix; beyond, conjugate gradients are cheaper. The steps agree.
DENSE_UP_TO = 10

#: Steps that the fallback optimiser remembers: with forty it needs half the evaluations that it needs with ten.
MEMORY = 40

# orders

#: Latents up to which every insertion of one latent into the order is refitted. The d² fits of d-fold cost pay there;
#: beyond, single edges are turned round instead, most promising first.
INSERT_UP_TO = 8

#: Nats behind the best at which a fit that is under way is given up.
NEAR = 10.0

#: Orders that are compared by evidence: at most so many nats behind the best on the way; and at most so many of them,
#: or the second number over the number of latents if that is less.
NEAR_ORDERS, MOST_ORDERS, ORDERS_BY_SIZE = 4.0, 12, 144

#: Latents up to which rivals are compared by evidence; beyond, by the penalised score of their graphs. Evidence takes
#: weights one by one at the full order, and where there are many latents and few edges that is too noisy: with it, at
#: 16 latents of density .2, 33 of 40 orders were right instead of 38 (`benchmarks/sizes.py`, seed 71).
EVIDENCE_UP_TO = 8

#: Nats that a latent may lose on its walk through the order before it gives up: deep valleys lie between good orders.
DEEP = 500.0

#: Nats that a walk must gain: neighbours that have nothing to do with each other swap for next to nothing.
WORTHWHILE = 0.5

#: Nats per pair of latents below which a sweep of walks is not worth another: about a tenth of what noise alone yields.
WORTH_A_SWEEP = 0.05

#: Sweeps over the full order before sparse graphs, which are more accurate, take over: this many over the number of
#: latents, because a sweep costs more the more there are.
SWEEPS = 320

#: Attempts in a row to turn an edge round that may fail: this many over the number of latents, and at least the second.
PATIENCE, LEAST_PATIENCE = 400, 5

# edges

#: Latents up to which the gain of an edge is computed with all rows of H adapting: the price grows as d⁶. Beyond, and
#: with soft interventions (where rows can take over edges within the ancestor relation), only the child's row adapts.
ALL_ADAPT_UP_TO = 50

#: Present edges that gain less than the first many penalties are tried without, absent ones that promise more than the
#: second with. Gains with all rows adapting are within a few per cent of a refit's; with one row they can be far off.
TRY_IF_ALL_ADAPT, TRY_IF_ONE_ADAPTS = (1.3, 0.8), (5.0, 0.4)

#: Nats that adding and dropping single edges may make good between the ends of two starts.
WITHIN_REACH = 30.0

# starts

#: Nats by which parents of a target must explain the contexts better than calling it a source.
PARSIMONY = 3.0

#: Nats that a source may leave unexplained before it is out of the question.
HOPELESS = 50.0

#: Steps towards the maximum of the order-free likelihood. It is flat where latents are (nearly) sources, and further
#: steps follow the noise: stopping early is what regularises it.
ORDER_FREE_STEPS = 20

#: Latents up to which the search also starts from the closed form as it is, without those steps.
RAW_UP_TO = 64
