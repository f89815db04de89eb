"""The control: test which context it is, where nobody wrote it down.

With exact moments the set of admissible controls follows from equations (:func:`latentdag.observational_contexts`). On
samples, the model is fitted with every context in turn as its control, and each of these models is tested against free
moments (:mod:`latentdag.inference.omnibus`). The true control is rejected with probability alpha, so the contexts that
are not rejected form a confidence set. The models have equally many parameters, so the gap between their
log-likelihoods says how strongly the data prefer one to another: three nats are odds of twenty to one.

With a single target, control and context can be swapped without a trace, so both pass. With at least two distinct
targets and enough samples, only the true control passes.
"""

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from latentdag.data import labels as lb
from latentdag.data.checks import check_probability
from latentdag.data.moments import Moments
from latentdag.data.stream import Samples
from latentdag.errors import LatentDAGWarning, clear_numerics
from latentdag.inference.omnibus import omnibus_test
from latentdag.inference.shared_targets import target_groups
from latentdag.methods.fitting import fit
from latentdag.uncertainty.changed import NOTE


@clear_numerics
def observational_context_test(
    m: Moments,
    data: Samples | None = None,
    alpha: float = 0.05,
    candidates: Iterable[Hashable] | None = None,
    group: bool | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Test for every context whether it can be the control.

    The paper's Proposition 10 answers this for exact moments (:func:`latentdag.observational_contexts`).

    Parameters
    ----------
    m : Moments
        Of K + 1 contexts and p features. A control named in it is a candidate like any other.
    data : (X, contexts), or a list of such pairs, optional
        The samples (n, p) behind ``m`` and the context of each row: then the tests hold without Gaussian samples.
    alpha : float
        Probability of rejecting the true control.
    candidates : labels, optional
        All contexts unless given.
    group : bool, optional
        Group contexts by target first (:func:`latentdag.target_groups`), for each candidate anew. By default only where
        there are more contexts than dimensions; elsewhere every context is taken to have a target of its own.
    **options
        Of :func:`latentdag.fit`, such as ``means`` or ``intervention``.

    Returns
    -------
    DataFrame indexed by candidate, best first
        ``loglik`` relative to free moments; ``gap`` to the best, in nats; ``statistic``, ``dof`` and ``p_value`` of the
        model with this control; ``plausible``, whether it is not rejected at alpha; ``reason``, where there is no test.
        ``.attrs["plausible"]`` holds the plausible contexts, best first: more than one where the data cannot tell them
        apart, none where no model of this kind fits.

    Examples
    --------
    >>> from latentdag import simulate
    >>> m = simulate.sample_moments(simulate.random_model(n_latents=3, n_features=3, rng=2), 5_000, rng=0)
    >>> observational_context_test(m).attrs["plausible"]
    ('control',)
    """
    check_probability("alpha", alpha)
    if len(m.contexts) < 2:
        raise ValueError(f"only the context {m.contexts[0]!r} is present: at least two are needed")
    asked = list(m.contexts) if candidates is None else list(candidates)
    for label in asked:
        m.index(label)
    group = len(m.contexts) - 1 > len(m.whitened.W) if group is None else group
    rows = [_one(m, label, data, group, options) for label in asked]
    table = pd.DataFrame(rows, index=lb.as_index(asked)).sort_values("loglik", ascending=False, kind="stable")
    table.insert(1, "gap", table["loglik"].max() - table["loglik"])
    table.insert(5, "plausible", table["p_value"] > alpha)
    table.attrs["plausible"] = tuple(table.index[table["plausible"]])
    table.attrs["note"] = NOTE[data is not None]
    return table


def _one(m: Moments, control: Hashable, data: Samples | None, group: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Fit and test with one context as the control; return the row of the table."""
    others = [label for label in m.contexts if label != control]
    turned = replace(replace(m, control=None).select([control, *others]), control=control)
    row = {"loglik": np.nan, "statistic": np.nan, "dof": np.nan, "p_value": np.nan}
    try:
        with warnings.catch_warnings():
            # with the wrong control the search has nothing to converge to
            warnings.simplefilter("ignore", LatentDAGWarning)
            if group:
                noise = {name: options[name] for name in ("noise", "n_latents") if name in options}
                options = options | {"targets": target_groups(turned, **noise).targets()}
            tested = omnibus_test(fit(turned, **options), turned, data)
    except ValueError as error:
        return row | {"reason": str(error)}
    return {name: getattr(tested, name) for name in row} | {"reason": tested.reason}
