"""The tests behind a report's first page: what the moments say about the model, before any edge is believed."""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.linalg import RANK_TOLERANCE, unit_diagonal
from latentdag.data import labels as lb
from latentdag.data.moments import Moments
from latentdag.data.second_pass import Samples
from latentdag.inference.membership import FIT_UP_TO, MembershipTest, membership_test
from latentdag.inference.ranks import p_value_column, rank_test
from latentdag.methods.result import Fit

#: A p-value at or below this speaks against a hypothesis.
ALPHA = 0.05

#: Contexts times features cubed up to which ranks below those of the hypothesis are tested as well: half a minute each.
TEST_UP_TO = 1e10

NO_MOMENTS = "Not checked: no moments were given (pass moments=…)."
NOT_ASKED = "Not checked: tests were turned off (tests=False)."


@dataclass(frozen=True)
class Evidence:
    """What the tests found.

    Attributes
    ----------
    ranks : mapping of rank to the table of :func:`latentdag.inference.ranks.rank_test`
        Of rank 0, 1, and 2 per target; only the last where there are very many features.
    allowed : mapping of context to the rank that its targets can change
    membership : MembershipTest or None
    condition, dimensions : of the correlations of all contexts together, in the directions along which data vary
    warnings : what the tests warned of
    why_not : str
        Why nothing was tested.
    """

    ranks: dict[int, pd.DataFrame] = field(default_factory=dict)
    allowed: dict[Hashable, int] = field(default_factory=dict)
    membership: MembershipTest | None = None
    condition: float = float("nan")
    dimensions: int = 0
    warnings: tuple[str, ...] = ()
    why_not: str = ""

    def p_value(self, context: Hashable, rank: int) -> float:
        """Return the p-value of "at most ``rank`` directions change in this context"; nan if it was not tested."""
        table = self.ranks.get(rank)
        if table is None or context not in table.index:
            return float("nan")
        return float(lb.row_of(table, context)[p_value_column(table)])

    def directions(self, context: Hashable) -> str:
        """Return in how many directions a context differs from the control, as far as the tests tell."""
        tested = [rank for rank in sorted(self.ranks) if np.isfinite(self.p_value(context, rank))]
        for rank in tested:
            if self.p_value(context, rank) > ALPHA:
                return str(rank) if 0 in tested else f"at most {rank}"
        return f"more than {tested[-1]}" if tested else ""


def gather(fit: Fit, m: Moments | None, tests: bool | MembershipTest | None, data: Samples | None) -> Evidence:
    """Run the tests, or say why not.

    Parameters
    ----------
    fit : Fit
    m : Moments or None
    tests : bool, MembershipTest or None
        None runs them where there are moments. A test that was made before is taken as it is.
    data : (X, contexts), optional
        Makes the tests hold without Gaussian samples.
    """
    given = tests if isinstance(tests, MembershipTest) else None
    if m is None:
        if tests is True:
            raise ValueError("tests=True needs the moments that were fitted: pass moments=…")
        return Evidence(membership=given, why_not=NO_MOMENTS)
    check_same(fit, m)
    condition, dimensions = conditioning(m)
    if tests is False:
        return Evidence(condition=condition, dimensions=dimensions, why_not=NOT_ASKED)
    allowed: dict[Hashable, int] = {c: 2 * len(v.targets) for c, v in fit.model.interventions.items()}
    allowed |= {c: 2 for c in m.contexts[1:] if c not in allowed}  # left out of the fit, perhaps because of this test
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        membership = given
        if given is None and set(allowed.values()) == {2}:
            joint = 2 <= fit.model.n_latents <= FIT_UP_TO  # one latent fits any moments; many take long
            membership = membership_test(m, data, ALPHA, fit=fit if joint else False)
        ranks = _rank_tests(m, set(allowed.values()), membership, given is None, data)
    texts = tuple(dict.fromkeys(str(w.message) for w in raised))
    return Evidence(ranks, allowed, membership, condition, dimensions, texts)


def _rank_tests(
    m: Moments, allowed: set[int], membership: MembershipTest | None, made_here: bool, data: Samples | None
) -> dict[int, pd.DataFrame]:
    """Test each rank once: a membership test of these moments has tested rank two."""
    every = m.n_contexts * m.n_features**3 <= TEST_UP_TO
    tested = {} if membership is None or (every and not made_here) else {2: membership.summary}
    wanted = {0, 1} | allowed if every else set(tested) or allowed
    return {rank: tested[rank] if rank in tested else rank_test(m, rank, data) for rank in sorted(wanted)}


def check_same(fit: Fit, m: Moments) -> None:
    """Refuse moments that are not those of the fit; contexts that the fit left out may be there as well."""
    if not isinstance(m, Moments):
        raise TypeError(f"moments must be Moments, got {type(m).__name__}")
    if tuple(m.feature_names) != tuple(fit.model.feature_names):
        raise ValueError("these are not the moments of this fit: the features differ")
    for context, count in zip(fit.model.contexts, fit.counts, strict=True):
        if context not in m.contexts:
            raise ValueError(f"these are not the moments of this fit: they have no context {context!r}")
        found = int(m.counts[m.index(context)])
        if found != count:
            raise ValueError(
                f"these are not the moments of this fit: context {context!r} has {found} samples, the fit saw {count}"
            )


def conditioning(m: Moments) -> tuple[float, int]:
    """Return the condition number of the pooled correlations within their range, and the dimension of that range."""
    w: Any = np.linalg.eigvalsh(unit_diagonal(m.pooled_covariance())[0])
    kept = w[w > RANK_TOLERANCE * w[-1]]
    return float(kept[-1] / kept[0]), len(kept)
