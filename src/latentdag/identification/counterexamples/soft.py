"""Soft interventions: what they leave open, and where they are not generic."""

from typing import Any

import numpy as np

from latentdag.identification.counterexamples.counterexample import Counterexample, pair_of, random_upper


def nongeneric_soft() -> Counterexample:
    """Return the pair that a soft intervention leaves if it only changes a variance (appendix B, "Non-generic soft").

    Context 1 doubles the row of latent 1 in ``B_0``: weights stay, the noise shrinks. Assumption 1(b) forbids just
    that for a latent with parents. The second model has no edge, and in it all interventions are perfect.

    What stays identified are the noises: ``B_k H`` is the same. (The last equation of the appendix is about ``Θ_2``; it
    is printed with the index 1.)

    Examples
    --------
    >>> pair = nongeneric_soft()
    >>> pair.first.interventions[1], pair.second.interventions[1]
    (Intervention('Z1', 'soft', variance=0.25, weights={'Z2': -1.0}), Intervention('Z1', 'perfect', variance=0.25))
    """
    return pair_of(
        "non-generic soft",
        "If a soft intervention only rescales the row of its target, the edges into the target are not identified.",
        H=np.eye(2),
        B=[[[1, 1], [0, 1]], [[2, 2], [0, 1]], [[1, 1], [0, 2]]],
        H_hat=[[1.0, 1.0], [0.0, 1.0]],
    )


def soft_parameters(rng: Any = 0, entry: float | None = None) -> Counterexample:
    """Return a pair of H that soft interventions leave open (appendix J, "imperfect interventions", first part).

    The latents are 2 → 1, a soft intervention on 1 and one on 2, ``H = [[1, H_12], [0, 1]]``. Any other value of
    ``H_12`` fits: a multiple of ``Z_2`` moves from ``Z_1`` as the mixing shows it into the weight of 2 → 1.

    The source ``Z_2``, the noises and the partial order stay identified. "Any value" has two exceptions that the paper
    does not mention: at ``H_12 + (B_k)_12 / (B_k)_11`` for k = 0 or 1 the weight vanishes in that context, and with it
    the constant support that Assumption 1(a) asks for.

    Parameters
    ----------
    rng : seed or Generator
        For the parameters, all of which are random.
    entry : float, optional
        ``Ĥ_12`` of the second model; random by default.

    Examples
    --------
    >>> soft_parameters(entry=100.0).second.unmixing
    array([[  1., 100.], [  0.,   1.]])
    """
    rng = np.random.default_rng(rng)
    B = _random_soft_contexts(rng, 2)
    H_12, drawn = rng.uniform(-2.0, 2.0, size=2)
    return pair_of(
        "soft parameters",
        "With soft interventions on both latents of 2 → 1, the entry H_12 can have any value.",
        H=[[1.0, H_12], [0.0, 1.0]],
        B=B,
        H_hat=[[1.0, drawn if entry is None else float(entry)], [0.0, 1.0]],
    )


def soft_graph(rng: Any = 0, entry: float | None = None) -> Counterexample:
    """Return two graphs with one closure that soft interventions leave open (appendix J, second part).

    The first model is 3 → 2 → 1 with 3 → 1, context k a soft intervention on latent k, H unit upper triangular. The
    second lacks 3 → 1. Row 1 of ``B_k H`` takes two values, in the control and in context 1; both must be of the form
    ``(b_1, b_2, 0) Ĥ``, which leaves two linear equations for ``Ĥ_13`` and ``Ĥ_23``, given any ``Ĥ_12``. Their
    determinant ``(B_0)_11 (B_1)_12 − (B_1)_11 (B_0)_12`` vanishes only if the weight of 2 → 1 stays the same.

    Closure, noises and the row of the source stay identified.

    The appendix prints ``B_1`` with a changed second row, as if contexts 1 and 2 both hit latent 2 and none hit 1. Its
    linear system and its ``B̂_1`` belong to a changed first row, which is what is built here.

    Parameters
    ----------
    rng : seed or Generator
        For the parameters, all of which are random.
    entry : float, optional
        ``Ĥ_12`` of the second model; by default that of the first.

    Examples
    --------
    >>> pair = soft_graph()
    >>> sorted(pair.first.graph.edges), sorted(pair.second.graph.edges)
    ([('Z2', 'Z1'), ('Z3', 'Z1'), ('Z3', 'Z2')], [('Z2', 'Z1'), ('Z3', 'Z2')])
    """
    rng = np.random.default_rng(rng)
    B = _random_soft_contexts(rng, 3)
    H = np.eye(3) + np.triu(rng.uniform(-2.0, 2.0, size=(3, 3)), k=1)
    H_hat = H.copy()
    H_hat[0, 1] = H[0, 1] if entry is None else float(entry)
    # row 1 as the control and as context 1 have it, in the latents of the first model
    first_rows = np.array([B[0][0], B[1][0]])
    left = np.column_stack([first_rows[:, 0], first_rows[:, 1] + first_rows[:, 0] * (H[0, 1] - H_hat[0, 1])])
    H_hat[:2, 2] = np.linalg.solve(left, first_rows @ H[:, 2])
    return pair_of(
        "soft graph",
        "With a soft intervention on every latent, 3 → 2 → 1 fits with and without the edge 3 → 1.",
        H=H,
        B=B,
        H_hat=H_hat,
    )


def soft_theorem_gap() -> Counterexample:
    """Return a pair that is generic by the letter of Assumption 1(b), and yet of two partial orders (gap in Theorem 1).

    The first half of Theorem 1 says that d generic interventions, soft ones included, identify the
    closure of the graph; generic means that the target's row of ``B_k`` is no multiple of that of ``B_0``. Here the
    latents are 3 → 1 ← 2, and context 1 changes the weight of 2 but not that of 3: generic in that sense. The second
    model absorbs the constant part into its first latent, ``Ẑ_1 = Z_1 − A_13 Z_3``, and has no edge 3 → 1.

    So the theorem needs every weight of the target to change. In general all constant weights, C, are absorbed at once
    by ``T = I − C``. That leaves ``Â_k = (A_k − C)(I − C)^{-1}``, and what is identified for generic values is the
    closure of this graph. Perfect interventions are safe, since they change every weight, to zero.

    In the proof the lemma on row spans is right. The algorithm tests something else, namely whether projecting out the
    rows found so far leaves one dimension, and ``rowspan(Θ_1 − Θ_0)`` contains ``h_2``: projecting out ``h_2`` is
    enough, before or without 3.

    Examples
    --------
    >>> pair = soft_theorem_gap()
    >>> sorted(pair.first.graph.edges), sorted(pair.second.graph.edges)
    ([('Z2', 'Z1'), ('Z3', 'Z1')], [('Z2', 'Z1')])
    """
    return pair_of(
        "gap of the soft theorem",
        "If a soft intervention on 1 in 3 → 1 ← 2 changes only the weight of 2, the edge 3 → 1 is not identified.",
        H=np.eye(3),
        B=[
            [[1, -1, -1], [0, 1, 0], [0, 0, 1]],
            [[1, -2, -1], [0, 1, 0], [0, 0, 1]],
            [[1, -1, -1], [0, 2, 0], [0, 0, 1]],
            [[1, -1, -1], [0, 1, 0], [0, 0, 2]],
        ],
        H_hat=[[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    )


def _random_soft_contexts(rng: np.random.Generator, d: int) -> list[np.ndarray]:
    """Draw ``[B_0, …, B_d]``: context k redraws row k, each weight with the other sign, so that all of them change."""
    B = [random_upper(rng, d) for _ in range(d + 1)]
    for k in range(1, d + 1):
        row = np.copysign(B[k][k - 1], -B[0][k - 1])
        row[k - 1] = abs(row[k - 1])
        B[k] = B[0].copy()
        B[k][k - 1] = row + 0.0
    return B
