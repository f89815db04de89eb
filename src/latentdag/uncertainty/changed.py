"""Did anything change? Every context against the control, and against the other contexts.

A model can be fitted to contexts in which nothing happened: it then explains noise, and its edges mean nothing. So two
questions come before any edge. Does the context differ from the control at all, in mean or covariance? And does it
differ from the other perturbed contexts together? Labels that were shuffled among perturbed samples pass the first
question, since all of them differ from the control, and fail the second. A context that fails either is *idle*.

docs/math.md, section "Tests of change", has the formulas; :mod:`latentdag.core.two_samples` the arithmetic.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.fourth_moments import ProductCovariance, moment_matched_p_value
from latentdag.core.multiplicity import holm
from latentdag.core.two_samples import MOST, TwoSamples, difference, likelihood_ratio, put_together
from latentdag.data import labels as lb
from latentdag.data.checks import check_design
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples, deviations
from latentdag.errors import clear_numerics

#: A context with a larger p-value, after Holm's correction, is idle.
ALPHA = 0.05

#: Rows of a side that tell the law of a row; those between are passed over. Fewer than FEW tell too little alone.
ENOUGH, FEW = 2000, 20

UNCHANGED, ALIKE = "nothing changed", "not told apart from the other contexts"

NOTE = {
    False: "p-values assume Gaussian samples: heavier tails make them too small. data=(X, contexts) corrects for that",
    True: "p-values are corrected by the fourth moments of the samples",
}


@dataclass(frozen=True)
class _Side:
    """Some contexts as one sample: their positions, count, mean (r,) and covariance (r, r), divisor n − 1."""

    contexts: list[int]
    n: int
    mean: np.ndarray
    S: np.ndarray


@clear_numerics
def changed(
    m: Moments,
    data: Samples | None = None,
    *,
    targets: Mapping[Hashable, Any] | None = None,
    means: bool = True,
) -> pd.DataFrame:
    """Test for every context whether anything changed, in mean or covariance.

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts.
    data : (X, contexts), or a list of such pairs, optional
        The samples (n, p) behind ``m`` and the context of each row. With them the tests hold for any law with eight
        moments; without, for Gaussian samples.
    targets : mapping of context to latent name, or names, optional
        As for :func:`latentdag.fit`: contexts with the same targets need not differ from each other.
    means : bool
        False compares covariances only, as if every context had a free mean. So do moments without means.

    Returns
    -------
    DataFrame of K rows, indexed by context
        ``statistic``, ``dof``, ``p_value`` and, corrected for K tests, ``p_holm``: against the control.
        ``apart_statistic``, ``apart_dof``, ``p_apart``, ``p_apart_holm``: against all other contexts with an
        intervention together; ``nan`` where there are none. ``idle``: whether either corrected p-value is above .05,
        and ``reason``, which. What the p-values assume stands in ``.attrs["note"]``.

    Notes
    -----
    A context with fewer samples than twice the dimensions is tested in the leading principal components of what it is
    compared with, half as many as it has samples. The p-values stay valid; small changes elsewhere are not seen.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(900, 4))
    >>> X[600:, 0] *= 2
    >>> m = Moments.from_samples(X, ["control"] * 300 + ["idle"] * 300 + ["real"] * 300, control="control")
    >>> changed(m)["reason"].to_dict()
    {'idle': 'nothing changed', 'real': ''}
    """
    check_design(m)
    m = m.with_shared_noise()
    free = not (means and m.has_means)
    W, mu, S = _coordinates(m, free)
    hits = [frozenset([c]) if targets is None else _names(targets, c) for c in m.contexts[1:]]
    sides = [_side([k], m.counts, mu, S, free) for k in range(len(m.contexts))]
    others = {hit: [k for k, other in enumerate(hits, start=1) if other != hit] for hit in hits}
    pools = {hit: _side(at, m.counts, mu, S, free) if at else None for hit, at in others.items()}
    pairs: list[tuple[_Side | None, _Side]] = [(sides[0], side) for side in sides[1:]]
    pairs += [(pools[hit], side) for hit, side in zip(hits, sides[1:], strict=True)]
    found = np.full((len(pairs), 3), np.nan)
    twos = {
        i: (a, b, put_together(np.array([a.n, b.n]), np.array([a.mean, b.mean]), np.array([a.S, b.S]), free))
        for i, (a, b) in enumerate(pairs)
        if a is not None and min(a.n, b.n) > 1
    }
    for i, tested in _gaussian(twos) if data is None else _robust(twos, m, data, W, mu):
        found[i] = tested
    return _table(m, found[: len(hits)], found[len(hits) :], data is not None)


def idle_contexts(table: pd.DataFrame) -> tuple[Hashable, ...]:
    """Return the contexts that :func:`changed` calls idle."""
    return tuple(table.index[table["idle"]])


def _coordinates(m: Moments, free: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coordinates W (r, p) in which all samples together are white, means (K+1, r) and covariances (K+1, r, r).

    "Together" is about their common mean, unless means are free. Principal components in coordinates that knew which
    sample is of which context would be chosen by what is tested.
    """
    W, S, _ = m.whitened
    mu = (m.means - m.means[0]) @ W.T
    if free:
        return W, mu, S
    every = _side(range(len(mu)), m.counts, mu, S, free)
    V = np.linalg.inv(np.linalg.cholesky(every.S))
    return V @ W, mu @ V.T, V @ S @ V.T


def _names(targets: Mapping[Hashable, Any], context: Hashable) -> frozenset[Hashable]:
    """Return the latents that a context targets."""
    if context not in targets:
        raise ValueError(f"targets must name every context but the control: missing {context!r}")
    named = targets[context]
    return frozenset([named] if isinstance(named, str) else named)


def _side(at: Sequence[int], counts: np.ndarray, mu: np.ndarray, S: np.ndarray, free: bool) -> _Side:
    """Return some contexts as one sample; with free means, about each own mean."""
    at = list(at)
    n, nu = counts[at].astype(float), counts[at] - 1.0
    mean = n @ mu[at] / n.sum()
    away = np.sqrt(n)[:, None] * (mu[at] - mean) * (not free)
    rows = nu.sum() + 1 if free else n.sum()
    scatter = np.tensordot(nu, S[at], axes=1) + away.T @ away
    return _Side(at, int(min(rows, MOST)), mean, scatter / max(rows - 1, 1))


Pairs = Mapping[int, tuple[_Side, _Side, TwoSamples]]


def _gaussian(pairs: Pairs) -> Iterator[tuple[int, tuple[float, float, float]]]:
    """Yield the likelihood-ratio tests."""
    for i, (_, _, two) in pairs.items():
        yield i, likelihood_ratio(two)


def _robust(
    pairs: Pairs, m: Moments, data: Samples, W: np.ndarray, mu: np.ndarray
) -> Iterator[tuple[int, tuple[float, float, float]]]:
    """Yield the moment-matched tests, after one pass over the samples.

    Few rows that look calm by chance would make a small change look large: there the rows of both sides tell the law
    as well, and the larger p-value counts.
    """
    steps = {i: [-(-side.n // ENOUGH) for side in pair[:2]] for i, pair in pairs.items()}
    sums: dict[int, list[ProductCovariance]] = {}
    for i, (a, b, two) in pairs.items():
        used = [int(np.sum(-(-m.counts[s.contexts] // step))) for s, step in zip((a, b), steps[i], strict=True)]
        sums[i] = [
            ProductCovariance((a.n, b.n), two.S.shape[1], (used[0], used[1]), means=not two.free_means, one_law=one_law)
            for one_law in ([False, True] if min(a.n, b.n) < FEW else [False])
        ]
    seen = np.zeros(len(m.contexts), dtype=int)
    for k, block in deviations(data, m):
        Y = block @ W.T
        for i, (a, b, two) in pairs.items():
            for number, (side, step) in enumerate(zip((a, b), steps[i], strict=True)):
                if k in side.contexts:
                    shift = 0.0 if two.free_means else mu[k] - side.mean
                    rows = (Y[-seen[k] % step :: step] + shift) @ two.V
                    for summed in sums[i]:
                        summed.add(number, rows)
        seen[k] += len(block)
    for i, each in sums.items():
        tests = [moment_matched_p_value(difference(pairs[i][2]), *summed.traces()) for summed in each]
        yield i, max(tests, key=lambda tested: tested[2])


def _table(m: Moments, against_control: np.ndarray, apart: np.ndarray, robust: bool) -> pd.DataFrame:
    """Return the table of :func:`changed`."""
    table = pd.DataFrame(against_control, lb.as_index(m.contexts[1:]), ["statistic", "dof", "p_value"])
    table["p_holm"] = holm(table["p_value"].to_numpy())
    table[["apart_statistic", "apart_dof", "p_apart"]] = apart
    table["p_apart_holm"] = holm(table["p_apart"].to_numpy())
    unchanged = ~(table["p_holm"] <= ALPHA)
    table["idle"] = unchanged | (table["p_apart_holm"] > ALPHA)
    table["reason"] = np.where(unchanged, UNCHANGED, np.where(table["idle"], ALIKE, ""))
    table.attrs["note"] = NOTE[robust]
    return table
