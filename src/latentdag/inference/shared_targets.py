"""Shared targets: which contexts hit the same latent?

There are two questions: whether two contexts have exactly one target, and how alike their targets are.

*Exactly.* Two perfect interventions on one latent differ in a single number, the noise scale they leave, so the
covariances of two such contexts differ by rank one; two soft ones differ by rank two at most. That is tested for
every pair (:mod:`latentdag.core.ranks`), the control left out. With enough cells every exact null is rejected: no
two guides do exactly the same.

*How alike.* A context's noise row m is the direction of X that is its target's own noise. It is estimated from the
context and the control (docs/math.md, section "One context, one pair"), and the other contexts settle what that leaves
open (:mod:`latentdag.core.shared_targets`). In coordinates where the control has unit covariance the rows of different
latents are orthogonal, and those of one latent equal up to sign. So the cosine of two rows goes from 0 to 1 and does
not depend on units, and more cells make it sharper, not smaller.

Contexts are grouped by cosine (average linkage), and the p-values stand beside it: "nearly the same target, cosine .97"
is a finding, not a failure of the test.
"""

import html
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import linalg
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from latentdag.core.ranks import rank_p_value
from latentdag.core.shared_targets import noise_rows
from latentdag.data import labels as lb
from latentdag.data.checks import check_choice, check_design
from latentdag.data.moments import Moments
from latentdag.errors import clear_numerics
from latentdag.inference.ranks import no_inverse, too_few
from latentdag.methods.design import prepare
from latentdag.methods.fitting import in_factors
from latentdag.methods.options import Options
from latentdag.progress import Progress

#: Contexts of different groups are called alike from this cosine on.
ALIKE = 0.7


@dataclass(frozen=True, eq=False)
class TargetGroups:
    """K contexts, grouped by target.

    Attributes
    ----------
    cosines : DataFrame (K, K), context by context
        Cosines of the estimated noise rows, between 0 and 1.
    p_values : DataFrame (K, K), context by context
        Of the test that the two share a target exactly; ``nan`` where a context has too few samples.
    linkage : (K−1, 4)
        As :func:`scipy.cluster.hierarchy.linkage` gives it for the distances ``1 − cosine``.
    groups : tuple of tuples of labels
    rows : (K, p)
        The noise rows, as combinations of features.
    threshold : float
        Groups are cut where contexts are on average less alike than this cosine.
    alpha : float
    note : str
    """

    cosines: pd.DataFrame
    p_values: pd.DataFrame
    linkage: np.ndarray
    groups: tuple[tuple[Hashable, ...], ...]
    rows: np.ndarray
    threshold: float
    alpha: float
    note: str = "p-values assume Gaussian samples; cosines assume nothing beyond the model."

    @property
    def contexts(self) -> tuple[Hashable, ...]:
        return tuple(self.cosines.index)

    def targets(self) -> dict[Hashable, str]:
        """Return the latent's name for each context, for ``latentdag.fit(m, targets=…)``: one latent per group."""
        text = dict(zip(self.contexts, lb.text_names(self.contexts), strict=True))
        return {c: "|".join(text[member] for member in group) for group in self.groups for c in group}

    @property
    def summary(self) -> pd.DataFrame:
        """One row per pair of contexts, most alike first: cosine, p-value, whether in one group, and in words."""
        group_of = {c: g for g, group in enumerate(self.groups) for c in group}
        rows = []
        for (i, a), (j, b) in combinations(enumerate(self.contexts), 2):
            cosine, p, together = self.cosines.iat[i, j], self.p_values.iat[i, j], group_of[a] == group_of[b]
            rows.append((a, b, cosine, p, together, self._in_words(cosine, p, together)))
        table = pd.DataFrame(rows, columns=["context", "other", "cosine", "p_value", "together", "reading"])
        table["context"], table["other"] = (lb.as_index([row[i] for row in rows]) for i in (0, 1))
        return table.sort_values("cosine", ascending=False, kind="stable", ignore_index=True)

    def _in_words(self, cosine: float, p: float, together: bool) -> str:
        if together:
            exact = not p <= self.alpha
            return "the same target" if exact else f"nearly the same target, cosine {cosine:.2f}"
        if cosine >= ALIKE:
            return f"alike, cosine {cosine:.2f}, but not in one group"
        if p > self.alpha:
            return f"different by cosine {cosine:.2f}, though the test cannot rule out one target"
        return "different targets"

    def __repr__(self) -> str:
        listed = "; ".join(", ".join(map(str, group)) for group in self.groups)
        size = f"{len(self.contexts)} contexts, {len(self.groups)} targets at cosine {self.threshold:g}"
        return f"TargetGroups({size}: {listed})"

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(', '.join(map(str, group)))}</li>" for group in self.groups)
        table = self.summary.astype({"context": str, "other": str}).to_html(
            index=False, escape=True, float_format=lambda value: f"{value:.3g}"
        )
        return f"<p><b>{len(self.groups)} targets</b></p><ul>{items}</ul>{table}<p>{html.escape(self.note)}</p>"


@clear_numerics
def target_groups(
    m: Moments,
    threshold: float = 0.8,
    alpha: float = 0.05,
    intervention: str = "perfect",
    means: bool = True,
    noise: Any = "none",
    n_latents: int | None = None,
) -> TargetGroups:
    """Group contexts by their target, if each context has a single one.

    With exact moments :func:`latentdag.same_target_groups` does this by the paper's Proposition 9: two contexts share a
    target iff their precisions differ by rank one.

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts and p features.
    threshold : float
        Average cosine from which contexts form a group.
    alpha : float
        Below this p-value, two contexts of one group have "nearly", not exactly, one target.
    intervention : "perfect" or "soft"
        Whether two contexts on one target may differ by rank one or by rank two.
    means : bool
        Let shifts of the mean show the noise rows, too.
    noise, n_latents
        As for :func:`latentdag.fit`. Contexts are then compared on the factors that noisy features share, and cosines
        are of what lies beneath the noise.

    Returns
    -------
    TargetGroups

    Examples
    --------
    >>> from latentdag import Intervention, LatentModel, simulate
    >>> truth = LatentModel(
    ...     unmixing=[[1, 0.5], [0, 1]], weights=[[0, 1], [0, 0]], noise_variance=[1, 1], latents=["Z1", "Z2"],
    ...     interventions={
    ...         "a": Intervention("Z1", variance=0.2), "b": Intervention("Z2", variance=5),
    ...         "a2": Intervention("Z1", variance=6)},
    ... )
    >>> target_groups(simulate.sample_moments(truth, 2_000, rng=0)).groups
    (('a', 'a2'), ('b',))
    """
    check_design(m)
    if not 0 < threshold < 1:
        raise ValueError(f"threshold is a cosine between 0 and 1, got {threshold}")
    check_choice("intervention", intervention, ("perfect", "soft"))
    contexts = m.contexts[1:]
    factors, _ = in_factors(m, None, noise, n_latents, at_least=1)
    p, apart = _pairwise(factors, rank=1 if intervention == "perfect" else 2)
    chosen = Options(targets=dict.fromkeys(contexts, "any"), means=means, noise=noise, n_latents=n_latents)
    # for whitening alone, which latent is which does not matter
    prepared = prepare(m, chosen)
    M, W = noise_rows(prepared.about_control, prepared.design.n, apart), prepared.W
    cosine = np.clip(np.abs(M @ M.T), 0.0, 1.0)
    np.fill_diagonal(cosine, 1.0)
    tree = np.empty((0, 4))
    labels = np.ones(len(contexts), dtype=int)
    if len(contexts) > 1:
        tree = hierarchy.linkage(squareform(1 - cosine, checks=False), method="average")
        labels = hierarchy.fcluster(tree, 1 - threshold, criterion="distance")
    first = list(dict.fromkeys(labels.tolist()))
    groups = tuple(tuple(c for c, g in zip(contexts, labels, strict=True) if g == label) for label in first)
    index = lb.as_index(contexts)
    frames = [pd.DataFrame(values, index=index, columns=index.rename(None)) for values in (cosine, p)]
    return TargetGroups(frames[0], frames[1], tree, groups, M @ W, threshold, alpha)


def _pairwise(m: Moments, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Test for every pair of contexts that they differ by at most this rank.

    Returns
    -------
    p_values : (K, K), ``nan`` where a context has too few samples
    nats : (K, K) by which the data speak against it
    """
    S, nu = m.whitened.S[1:], m.counts[1:] - 1.0
    K = len(nu)
    p, nats = np.full((K, K), np.nan), np.zeros((K, K))
    # with an inverse first: one covariance of a pair must have it
    tested = sorted((k for k in range(K) if not too_few(m, k + 1)), key=lambda k: bool(no_inverse(m, k + 1)))
    with Progress("pairs of contexts", len(tested)) as bar:
        for t, k in enumerate(tested):
            p[k, k] = 1.0
            for j in tested[:t]:
                if no_inverse(m, j + 1):
                    continue
                ratio = np.maximum(linalg.eigvalsh(S[k], S[j], check_finite=False), np.finfo(float).tiny)
                statistic, dof, p_value = rank_p_value(ratio, nu[j], nu[k], rank)
                p[k, j] = p[j, k] = p_value
                nats[k, j] = nats[j, k] = 0.5 * max(statistic - dof, 0.0)
            bar.advance()
    return p, nats
