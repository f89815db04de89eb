"""Moments that nobody would wish for, through every public function: an answer, or an error of ours that says why."""

import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import latentdag as ld
from latentdag.errors import LatentDAGWarning

SOURCE = str(Path(ld.__file__).parent)
COUNTS = [1, 2, 3, 4, 5, 8, 20, 100, 1000, 10**6, 10**9, 10**14]


def moments(rng):
    """Moments of a random model or of none, damaged, in any units, with odd counts and labels."""
    truth = ld.simulate.random_model(int(rng.integers(1, 5)), int(rng.integers(5, 8)), rng=rng)
    m = ld.simulate.sample_moments(truth, 300, rng=rng) if rng.random() < 0.7 else truth.moments(1000)
    S, means = m.covariances.copy(), m.means + rng.normal(size=m.means.shape) * 10.0 ** rng.uniform(-3, 10)
    for _ in range(int(rng.integers(0, 4))):
        damage(S, means, rng)
    units = 10.0 ** rng.uniform(-3, 3, S.shape[1]) * 10.0 ** rng.choice([0, 0, -55, 55])
    labels = [list(m.contexts), list(range(len(S))), [False, True, "x", ("a", 1), 2.5][: len(S)]][int(rng.integers(3))]
    counts = rng.choice(COUNTS, size=len(S)).tolist()
    return ld.Moments.from_covariances(S * np.outer(units, units), counts, labels, labels[0], means * units)


def damage(S, means, rng):
    kind, k, j = rng.integers(7), int(rng.integers(len(S))), int(rng.integers(S.shape[1]))
    i = (j + 1) % S.shape[1]
    if kind == 0:
        S[k], means[k] = S[0], means[0]
    elif kind == 1:  # a feature that is constant in one context
        S[k, j], S[k, :, j] = 0, 0
    elif kind == 2:  # a mixture that is
        v = S[k] @ rng.normal(size=S.shape[1])
        S[k] -= np.outer(v, v) / max(v @ np.linalg.pinv(S[k]) @ v, 1e-300)
    elif kind == 3:
        S[k] *= 10.0 ** rng.uniform(-12, 12)
    elif kind == 4:  # the same feature twice
        S[:, j], means[:, j] = S[:, i], means[:, i]
        S[:, :, j] = S[:, :, i]
    elif kind == 5:
        S[k] = np.diag(np.diagonal(S[k]))
    else:
        S[k] = 0


def uses(m, rng):
    """What a user may ask, as name and call."""
    fits = []
    told = [{}, {"intervention": "soft"}, {"intervention": "do"}, {"means": False}, {"shrinkage": False}]
    told += [{"unintervened": "upstream"}, {"targets": dict.fromkeys(m.contexts[1:], "one")}]
    for options in ({"method": method} for method in ("closed-form", "projection", "exact")):
        yield "fit", lambda options=options: fits.append(ld.fit(m, **options))
    yield "fit", lambda: fits.append(ld.fit(m, **told[int(rng.integers(len(told)))]))
    for name in [
        "rank_test",
        "latent_dimension_test",
        "membership_test",
        "target_groups",
        "observational_context_test",
        "identify",
        "latent_dimension",
        "observational_contexts",
        "reduce_contexts",
        "same_target_groups",
    ]:
        yield name, lambda name=name: getattr(ld, name)(m)
    for fit in fits:
        yield "edges", lambda fit=fit: fit.edges(level=0.9)
        yield "intervals", lambda fit=fit: fit.confidence_intervals()
        yield "order", lambda fit=fit: fit.partial_order()
        yield "summary", lambda fit=fit: fit.summary()
        yield "predict", lambda fit=fit: fit.predict([m.contexts[1]])
        yield "score", lambda fit=fit: fit.score(m)
        yield "omnibus_test", lambda fit=fit: ld.omnibus_test(fit, m)
        yield "off_targets", lambda fit=fit: ld.off_targets(fit, m)
        yield "bootstrap", lambda fit=fit: ld.bootstrap(m, 2, fit=fit)


def ours(error):
    """Whether a line of latentdag said what is wrong, in its own words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    known = isinstance(error, ValueError | TypeError) and not isinstance(error, np.linalg.LinAlgError)
    return known and last.filename.startswith(SOURCE)


@pytest.mark.parametrize("seed", range(12))
def test_an_answer_or_an_error_of_ours(seed):
    rng = np.random.default_rng([20261118, seed])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", LatentDAGWarning)
        try:
            m = moments(rng)
        except ValueError as error:
            assert ours(error), error  # noqa: PT017
            return
        for name, ask in uses(m, rng):
            try:
                ask()
            except Exception as error:
                assert ours(error), (name, *traceback.format_exception(*sys.exc_info())[-3:])  # noqa: PT017
