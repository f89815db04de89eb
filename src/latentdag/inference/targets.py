"""Targets: test which latents a context acts on.

The context may be one that was not in the fit, whose targets are unknown. Or it was in the fit, and the question is
whether it acts on latents besides those it is supposed to.

Every latent has a joint test of its noise's mean, variance and independence of its parents
(:mod:`latentdag.core.quantities`). The null hypothesis is that the context leaves this latent alone, *whatever it does
to the others*. So the tests of one context find one target, several or none without a search over sets. With enough
cells an exact null hypothesis is always rejected; the effect sizes say whether it matters.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.covariance import Gradient, joint_test
from latentdag.core.fourth_moments import CrossCovariance
from latentdag.core.jacobian import scores
from latentdag.core.multiplicity import benjamini_hochberg
from latentdag.data import labels as lb
from latentdag.data.checks import check_probability
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples, deviations
from latentdag.errors import clear_numerics
from latentdag.methods.result import Fit
from latentdag.uncertainty.standard_errors import BLOCK, Uncertainty


@dataclass(frozen=True, eq=False)
class TargetTest:
    """Tests of every latent in every context that was asked about.

    Attributes
    ----------
    table : DataFrame
        One row per context and latent: ``shift`` of its noise's mean (in standard deviations), ``log_variance_ratio``
        to the control, ``parent_correlation`` of its noise with what its parents contribute, the joint ``statistic``
        with its ``dof``, ``p_value``, ``q_value``, and whether it ``is_target`` at the level asked for.
    alpha : float
    """

    table: pd.DataFrame
    alpha: float

    @property
    def targets(self) -> dict[Hashable, tuple[str, ...]]:
        """The latents that each context was found to act on."""
        found: dict[Hashable, tuple[str, ...]] = {}
        for context, latent, hit in zip(*(self.table[c] for c in ("context", "latent", "is_target")), strict=True):
            found[context] = found.get(context, ()) + (latent,) * bool(hit)
        return found

    @property
    def summary(self) -> pd.DataFrame:
        """One row per context: verdict "none", "one" or "several", targets, and the smallest p-value."""
        smallest = self.table.groupby("context", sort=False)["p_value"].min()
        rows = [
            (context, ("none", "one", "several")[min(len(found), 2)], ", ".join(found), p)
            for (context, found), p in zip(self.targets.items(), smallest, strict=True)
        ]
        table = pd.DataFrame(rows, columns=["context", "verdict", "targets", "smallest_p_value"])
        table["context"] = lb.as_index([row[0] for row in rows])
        return table

    def __repr__(self) -> str:
        return self.summary.to_string(index=False)

    def _repr_html_(self) -> str:
        return str(self.summary.to_html(index=False))


@clear_numerics
def find_targets(
    fit: Fit,
    m: Moments,
    contexts: Sequence[Hashable] | None = None,
    *,
    means: bool | None = None,
    alpha: float = 0.05,
    data: Samples | None = None,
) -> TargetTest:
    """Find the targets of contexts that were not in the fit.

    The paper takes the targets of every context as one unknown latent each; here a context may have none or several.

    Parameters
    ----------
    fit : Fit
        By maximum likelihood, of d latents.
    m : Moments
        Of the same p features; contexts of the fit in it are passed over.
    contexts : labels, optional
        By default every context of ``m`` that the fit does not have.
    means : bool, optional
        Whether a shifted mean counts; by default if the fit used means.
    alpha : float
        False-discovery rate among the latents of one context; the chance of any finding where there is no target.
    data : (X, contexts), optional
        Samples (n, p) of the fit's contexts and of the new ones, and the context of each row: then tests hold for any
        noise.

    Returns
    -------
    TargetTest
        With d rows per new context.

    Examples
    --------
    Leave a context out of the fit of a latent that another context targets, and ask what it does.

    >>> from dataclasses import replace
    >>> import latentdag as ld
    >>> truth = ld.simulate.random_model(rng=5)
    >>> again = replace(truth, interventions={**truth.interventions, "?": ld.Intervention("c2", variance=1.0)})
    >>> m = ld.simulate.sample_moments(again, 2_500, rng=0)
    >>> find_targets(ld.fit(m.select(truth.interventions)), m).targets
    {'?': ('c2',)}
    """
    known = fit.model.contexts
    chosen = [c for c in m.contexts if c not in known] if contexts is None else list(contexts)
    clash = [c for c in chosen if c in known]
    if clash:
        raise ValueError(f"context {clash[0]!r} is part of the fit: use off_targets for it")
    if not chosen:
        raise ValueError(f"every context of these moments is part of the fit already: {list(m.contexts)}")
    return _tested(_checked(fit, m, data), m, chosen, means, alpha, data, by_context=True)


@clear_numerics
def off_targets(
    fit: Fit, m: Moments, *, means: bool | None = None, alpha: float = 0.05, data: Samples | None = None
) -> TargetTest:
    """Test the contexts of a fit for effects on latents that they are supposed to leave alone.

    Parameters
    ----------
    fit : Fit
        By maximum likelihood.
    m : Moments
        Those behind the fit.
    means : bool, optional
        Whether a shifted mean counts; by default if the fit used means.
    alpha : float
        False-discovery rate among all pairs of a context and a latent.
    data : (X, contexts), optional
        The samples (n, p) and the context of each row: then tests hold for any noise.

    Returns
    -------
    TargetTest
        With one row per context and latent that the fit does not have as its target.

    Examples
    --------
    A context of the fit that only does what it should: no latent but its own is a target.

    >>> import latentdag as ld
    >>> m = ld.simulate.sample_moments(ld.simulate.random_model(n_latents=3, n_features=4, rng=1), 2_000, rng=0)
    >>> off_targets(ld.fit(m), m).targets
    {'c1': (), 'c2': (), 'c3': ()}
    """
    uncertainty = _checked(fit, m, data)
    counts = dict(zip(m.contexts, m.counts.tolist(), strict=True))
    for context, count in zip(fit.model.contexts, fit.counts, strict=True):
        if counts.get(context) != count:
            raise ValueError(
                f"context {context!r} has {counts.get(context, 'no')} samples here and {count} in the fit: pass the "
                "moments that were fitted"
            )
    return _tested(uncertainty, m, list(fit.model.interventions), means, alpha, data, by_context=False)


def _checked(fit: Fit, m: Moments, data: Samples | None) -> Uncertainty:
    """Return the uncertainty of a fit; ``ValueError`` if it has none, or if the moments are of other features."""
    fit.seen_by(m)  # refuses other features
    uncertainty = fit.uncertainty(data)
    if uncertainty.covariance is None:
        raise ValueError(f"tests of targets need standard errors: {uncertainty.note}")
    return uncertainty


@dataclass(frozen=True, eq=False)
class _Asked:
    """One context that is tested.

    Attributes
    ----------
    context : label
    n : int
    moments : mean (d,) and covariance (d, d) of the control's noises ``M x`` in the context
    law : the same under the model, if the context was fitted; gradients are taken there
    noise : (d, d) covariance of what noise of the features does to ``M x``
    k : int
        Position of the context in the fit; 0 if it was not fitted.
    claimed : latents that the fit has as its targets
    """

    context: Hashable
    n: int
    moments: tuple[np.ndarray, np.ndarray]
    law: tuple[np.ndarray, np.ndarray]
    noise: np.ndarray
    k: int
    claimed: tuple[str, ...]

    @classmethod
    def of(cls, uncertainty: Uncertainty, m: Moments, counting: np.ndarray, context: Hashable) -> "_Asked":
        quantities, model = uncertainty.quantities, uncertainty.fit.model.seen_by(m)
        M, row = _seen(quantities.M, m), m.index(context)
        N = quantities.N + (M * counting[row] if counting.ndim == 2 else M @ counting[row]) @ M.T
        moments = M @ (m.means[row] - model.offset), M @ m.covariances[row] @ M.T
        if context not in model.interventions:
            return cls(context, int(m.counts[row]), moments, moments, N, 0, ())
        k = list(model.interventions).index(context) + 1
        mean, left = quantities.law_of_context(k)
        return cls(context, int(m.counts[row]), moments, (mean, left + N), N, k, model.interventions[context].targets)


def _counting(fit: Fit, m: Moments) -> np.ndarray:
    """Return by how much noise that is known in contexts (K+1, p) exceeds its mean over those of the fit."""
    if m.noise is None:
        return np.zeros_like(m.means)
    missing = [c for c in fit.model.contexts if c not in m.contexts]
    if missing:
        raise ValueError(
            f"noise is known by context, and context {missing[0]!r} of the fit is not among these moments: "
            "pass moments of all contexts, those of the fit and the new ones"
        )
    fitted = [m.index(c) for c in fit.model.contexts]
    return np.asarray(m.noise - np.average(m.noise[fitted], axis=0, weights=m.counts[fitted]))


def _tested(
    uncertainty: Uncertainty,
    m: Moments,
    contexts: Sequence[Hashable],
    means: bool | None,
    alpha: float,
    data: Samples | None,
    by_context: bool,
) -> TargetTest:
    """Test every latent in these contexts; false discoveries are counted within each context, or among all."""
    check_probability("alpha", alpha)
    counting = _counting(uncertainty.fit, m)
    asked = [_Asked.of(uncertainty, m, counting, context) for context in contexts]
    sampled = {} if data is None else _sampling_covariances(uncertainty, m, asked, data)
    rows = _tests(uncertainty, asked, sampled, means)
    names = ["context", "latent", "shift", "log_variance_ratio", "parent_correlation", "statistic", "dof", "p_value"]
    table = pd.DataFrame(rows, columns=names)
    table["context"] = lb.as_index([row[0] for row in rows])
    families = table.groupby("context", sort=False).indices.values() if by_context else [np.arange(len(table))]
    table["q_value"] = np.nan
    for family in families:
        table.loc[family, "q_value"] = benjamini_hochberg(table["p_value"].to_numpy()[family])
    table["is_target"] = table["q_value"] <= alpha
    return TargetTest(table, alpha)


def _tests(
    uncertainty: Uncertainty,
    asked: Sequence[_Asked],
    sampled: Mapping[Hashable, tuple[np.ndarray, np.ndarray]],
    means: bool | None,
) -> list[tuple[Any, ...]]:
    """Return effect sizes and joint tests by context and latent, as rows of the table.

    Latents are the outer loop, since contexts share a latent's gradients.
    """
    of, covariance, point = uncertainty.quantities, uncertainty.covariance, uncertainty.point
    assert covariance is not None  # checked by the callers
    used_means = point.tau is not None
    by_context: dict[Hashable, list[tuple[Any, ...]]] = {each.context: [] for each in asked}
    for i, latent in enumerate(uncertainty.fit.latents):
        here = [each for each in asked if latent not in each.claimed]
        if not here:
            continue
        gradients = [of.statistics(i, *each.law, each.noise)[1] for each in here]
        g = Gradient(np.vstack([one.inner for one in gradients]))
        estimated, known = covariance.blocks(g, 3), covariance.knows(g).reshape(-1, 3)
        wanted = np.array([used_means if means is None else means and used_means, True, of.edge[i].any()])
        for each, one, from_fit, known_i in zip(here, gradients, estimated, known, strict=True):
            values, _, expected = of.statistics(i, *each.moments, each.noise)
            if each.k and uncertainty.fit.details.get("noise_at_floor"):
                # noise at a bound followed the statistic less than its covariance says; not at all is the careful guess
                V = sampled[each.context][0][i] if sampled else expected / each.n
            elif each.context in sampled:
                own, with_scores = sampled[each.context]
                V = own[i] + from_fit
                if each.k:
                    answer = one.inner @ covariance.inverse.C @ with_scores[:, i]
                    V += answer + answer.T
            else:
                V = expected / (each.n - np.diag([0, 1, 0])) + (-from_fit if each.k else from_fit)
            # the logarithm of a χ² mean is low by 1/dof
            centred, tested = values + np.array([0.0, 1 / (each.n - 1), 0.0]), wanted & known_i
            statistic, dof, p = joint_test(centred[tested], V[np.ix_(tested, tested)])
            shift, log_ratio, correlation = values
            by_context[each.context].append(
                (each.context, latent, shift if used_means else np.nan, log_ratio, correlation, statistic, dof, p)
            )
    return [row for rows in by_context.values() for row in rows]


def _sampling_covariances(
    uncertainty: Uncertainty, m: Moments, asked: Sequence[_Asked], data: Samples
) -> dict[Hashable, tuple[np.ndarray, np.ndarray]]:
    """Return covariances by context, from the samples: of the statistics, and of a sample's scores with them.

    In a context of the fit the second is needed, since for other than Gaussian noise the fit does not follow a
    statistic along its gradient. Elsewhere there are no scores.

    Returns
    -------
    mapping of context to (d, 3, 3) and (P or 0, d, 3)
    """
    d, P = uncertainty.point.d, uncertainty.point.size
    by_row = {m.index(each.context): each for each in asked}
    sums = {row: CrossCovariance(3 * d + (P if each.k else 0), 3 * d) for row, each in by_row.items()}
    for row, X in deviations(data, m, [each.context for each in asked]):
        step = max(1, BLOCK // P)
        for start in range(0, len(X), step):
            psi, *score = _of_samples(uncertainty, by_row[row], m, row, X[start : start + step])
            sums[row].add(np.hstack([psi, *score]), psi)
    found = {}
    for row, summed in sums.items():
        value = summed.value()
        own = np.einsum("iaib->iab", value[: 3 * d].reshape(d, 3, d, 3)) / summed.n
        found[m.contexts[row]] = own, value[3 * d :].reshape(-1, d, 3)
    return found


def _seen(rows: np.ndarray, m: Moments) -> np.ndarray:
    """Return rows of features as rows of the features, or dimensions, of moments."""
    return rows if m.basis is None else rows @ m.basis.back


def _of_samples(uncertainty: Uncertainty, asked: _Asked, m: Moments, row: int, X: np.ndarray) -> list[np.ndarray]:
    """Return what each sample adds to the statistics (n, 3d), and its scores (n, P) if the context was fitted.

    A sample adds to the three statistics of latent i its ``ε_i``, ``ε_i²`` in units of their mean, and the product of
    ε_i with what the parents contribute, in units of both. X (n, p) are deviations from the context's mean.
    """
    of, model = uncertainty.quantities, uncertainty.fit.model.seen_by(m)
    point, A = of.point, asked.moments[1]
    c = of.A @ point.B_inv
    size = np.sqrt(np.diagonal(A) * np.einsum("ij,jk,ik->i", c, A, c))
    weight = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    eps = X @ _seen(of.M, m).T
    psi = np.stack([eps, eps**2 / np.diagonal(A), eps * (eps @ c.T) * weight], axis=2).reshape(len(X), -1)
    if not asked.k:
        return [psi]
    # without common means, scores are measured from the context's own
    x = X if point.tau is None else X + m.means[row] - model.offset
    beside = None if point.noise is None else x @ _seen(of.W, m).T
    return [psi, scores(point, asked.k, x @ _seen(of.H, m).T, beside)[:, : point.size]]
