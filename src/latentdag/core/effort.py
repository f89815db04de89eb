"""How hard the search tries: every constant of the estimator that trades time for thoroughness, in one place.

They do not change *what* is asked: of all graphs that come near, the one with most evidence
(:mod:`latentdag.core.evidence`). They say how many orders, edges and steps are looked at, and when something is too far
behind to be looked at again. Differences of
log-likelihoods are in nats: a nat is the odds of e to 1, and noise alone moves a likelihood ratio with one degree of
freedom by half a nat on average.
"""

# maximising the likelihood for one graph

#: Nats that a further Newton step may still promise when a fit counts as finished. Standard errors see far less.
GAIN_TOLERANCE = 1e-5

#: The same while orders are compared, which differ by tenths of nats at the least; and while edges and reversals are.
GAIN_OF_ORDERS, GAIN_OF_EDGES, GAIN_OF_SEEDS, GAIN_OF_REVERSALS = 1e-3, 0.02, 0.1, 0.3

#: Nats by which a maximum may be missed and still be called one: no order, edge or standard error depends on them.
CONVERGED = 1e-3

#: Nats that a move must gain to be made; half the smallest difference that a fit of that tolerance can show.
GAIN_OF_A_MOVE = 1e-3

#: Latents up to which Newton's system is solved as a matrix; beyond, conjugate gradients are cheaper. The steps agree.
DENSE_UP_TO = 10

#: Share of the nats that may be left when a fit counts as finished, below which a Newton step is not solved further.
UNSOLVED = 0.02

#: Steps that the fallback optimiser remembers: with forty it needs half the evaluations that it needs with ten.
MEMORY = 40

# orders

#: Latents up to which every insertion of one latent into the order is refitted. The d² fits of d-fold cost pay there;
#: beyond, single edges are turned round instead, most promising first.
INSERT_UP_TO = 8

#: Nats behind the best at which a fit that is under way is given up.
NEAR = 10.0

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

#: Times that rows are kicked out of a full order's maximum before a test refuses it, and how far, in units of their
#: own length. With shorter kicks they come back to where they were, with longer ones the climb starts from nothing.
KICKS, KICK = 20, 1.0

# edges

#: Latents up to which the gain of an edge is computed with all rows of H adapting: the price grows as d⁶. Beyond, and
#: with soft interventions (where rows can take over edges within the ancestor relation), only the child's row adapts.
ALL_ADAPT_UP_TO = 50

#: Where only one row adapts, gains can be far off: present edges are tried without if their log odds are below the
#: first number times the penalty, absent ones with if theirs are above minus the second. Both are 0 where all adapt.
TRY_IF_ONE_ADAPTS = (4.0, 0.6)

# graphs that the data leave open

#: Graphs that are weighed: at most this many, or the second number over the number of latents if that is less, but no
#: fewer than the third. With the first, probabilities cost about as much as the search; weighing one costs d⁶.
GRAPHS, GRAPHS_BY_SIZE, FEWEST_GRAPHS = 60, 1200, 10

#: Walks and exchanges of rows that kick the best graph, where there are too many latents to refit every move: of either
#: this many over the number of latents, or the second number over its cube if that is less (beyond 20). A random pair
#: out of d²/2 is ever less likely to be the one, at a price of d²: at 83 latents 62 % of a fit went to kicks in vain.
SEARCH_KICKS, KICKS_BY_SIZE = 1600, 640_000

#: Refits of exact features that one under noise costs, about: so many times fewer kicks are tried there.
NOISY_COSTS = 20

#: Orders that the search fitted and that are weighed, at most this share of those graphs; the rest is for turning.
SEEDS = 0.5

#: Nats behind the best up to which the edges of a graph are turned round: what lies further hardly counts.
TURN_WITHIN = 5.0

#: Nats that turning an edge round may promise to lose before pruning and refitting, and still be tried.
LOSE_AT_MOST = 25.0

#: Edges are refitted without in the most probable graphs that together have this probability, unless dropping one
#: promises to cost more nats than the second number: refits cost .3 to 1 of what is promised (5 to 95 % of 216 edges).
REFIT_WITHIN, SURE = 0.8, 60.0

#: Graphs that are drawn to see who comes before whom, or fewer where so many numbers would have to be drawn.
DRAWS, DRAWN_NUMBERS = 4000, 30_000_000

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

# targets that nobody told

#: Sweeps over all planes of noise rows, rounds of choosing targets and rows in turn, and steps of rows in each, until
#: they gain fewer nats than the last number.
SPREAD_SWEEPS, ALTERNATIONS, TARGET_STEPS, TARGET_TOLERANCE = 25, 8, 40, 0.01

#: Pairs of context and target that are left out for once, the weakest.
MENDED = 12

#: Random noise rows to start from: so many over the dimensions, and at least the second. Where no context hits a
#: latent alone few of them arrive: then rows of the best ends, so many, are partly drawn anew until rounds in a row
#: gain nothing.
SPREAD, FEWEST_SPREAD, REDRAWN, REDRAWS = 240, 8, 12, 4

#: Target sets found without an order that are fitted as graphs, at most; kicks of the best of them, at most.
ENDS, KICKS_OF_TARGETS = 4, 3

#: Nats that a move of targets must promise to be made unseen, and may promise to lose and still be tried; and refits.
SURELY, DOUBTFUL, MOVES = 3.0, 20.0, 60

#: Turned rows from which targets are chosen anew, the most promising.
TURNED = 12
