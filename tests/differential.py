"""Run rows through many doors and compare what comes back with exact arithmetic."""

import shutil
import signal
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import latentdag as ld
from latentdag.errors import LatentDAGWarning

from doors import ALWAYS, OTHERS, SLOW, Refused, opened
from random_rows import random_case

#: Largest error of means and covariances, in standard deviations.
TOLERANCE = 1e-9

#: Largest relative error of deviations along the axes of the fine scale.
FINE_TOLERANCE = 1e-4

#: Seconds after which a case hangs.
PATIENCE = 60

OURS = str(Path(ld.__file__).parent)


class Hang(BaseException):
    pass


@contextmanager
def patience(seconds=PATIENCE):
    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(run, check):
    """How a call ended: accepted, refused, disagreement, raw error, foreign warning or hang; and what was said."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with patience():
                found = run()
        except (ValueError, TypeError, OSError) as error:
            ended = ("refused" if _clear(error) else "raw error"), f"{type(error).__name__}: {error}"
        except Hang:
            ended = "hang", ""
        except Exception as error:
            ended = "raw error", f"{type(error).__name__}: {error}"
        else:
            ended = "accepted", ""
    foreign = [w for w in heard if not issubclass(w.category, LatentDAGWarning)]
    if foreign:
        return "foreign warning", f"{foreign[0].category.__name__}: {foreign[0].message}"
    wrong = check(*found) if ended[0] == "accepted" else None
    return ("disagreement", wrong) if wrong else ended


def _clear(error):
    """Whether an error is one sentence that latentdag itself says."""
    if isinstance(error, Refused):
        return True
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    said = str(error)
    return trace.tb_frame.f_code.co_filename.startswith(OURS) and len(said) > 20 and "\n" not in said


def wrong_numbers(case, found, labels):
    """What is wrong with moments, or None."""
    if case.refused:
        return "accepted what has no right answer"
    if case.truth is None:
        return None
    counts, means, covariances, deviations = case.truth
    order = [found.index(label) for label in labels]
    if found.counts[order].tolist() != counts.tolist():
        return f"counts {found.counts[order].tolist()}, not {counts.tolist()}"
    allowed = TOLERANCE * deviations + 4 * np.spacing(np.abs(means))
    gap = np.abs(found.means[order] - means)
    if not (gap <= allowed).all():
        return f"means wrong by {(gap / np.where(deviations > 0, deviations, 1)).max():.2g} deviations"
    room = deviations[:, :, None] * deviations[:, None, :]
    gap = np.abs(found.covariances[order] - covariances)
    if not (gap <= TOLERANCE * room).all():
        return f"covariances wrong by {(gap / np.where(room > 0, room, 1)).max():.2g} of their deviations"
    return _wrong_fine(case, found, order)


def _wrong_fine(case, found, order):
    if found.fine is None or case.covariates is not None:
        return None
    for k, i in enumerate(order):
        rows = case.values[case.codes == k]
        rows = rows - rows[0]  # exact, where the mean dwarfs the deviations
        Y = (rows - rows.mean(axis=0)) @ found.fine.axes.T
        if len(Y) > 1:
            exact = Y.std(axis=0, ddof=1)
            made = np.sqrt(np.maximum(np.diagonal(found.fine.covariances[i]), 0))
            gap = np.abs(made - exact)
            if not (gap <= FINE_TOLERANCE * exact + 1e-12 * exact.max()).all():
                return f"fine scale wrong by {(gap / exact.max()).max():.2g} of the largest"
    return None


def one_case(seed, number, folder, doors):
    """Outcomes of one random case through all quick doors and some others: the case, and (door, outcome, words)."""
    rng = np.random.default_rng([seed, number])
    case = random_case(rng)
    weights = np.array([0.2 if name in SLOW else 1.0 for name in OTHERS])
    some = rng.choice(list(OTHERS), size=doors, replace=False, p=weights / weights.sum()).tolist()
    chosen = {**ALWAYS, **{name: OTHERS[name] for name in some}}
    made = []
    for name, door in chosen.items():
        place = folder / "case"
        place.mkdir()
        run = opened(door, case, place)
        if run is not None:
            made.append((name, *outcome(run, lambda found, labels: wrong_numbers(case, found, labels))))
        shutil.rmtree(place)
    return case, made


def many_cases(seed, numbers, folder, doors=4):
    """Of each case: (kind, how it ended) of every call, and what went wrong as (number, kind, door, end, words)."""
    for number in numbers:
        case, made = one_case(seed, number, folder, doors)
        made = [
            (door, "disagreement" if how == "refused" and case.refused is False else how, said)
            for door, how, said in made
        ]
        if {"accepted", "refused"} <= {how for _, how, _ in made}:
            made.append(("some doors", "disagreement", "some accept it and some refuse it"))
        what = f"{case.kind} {case.flaw}".strip()
        bad = [(number, what, door, how, said[:300]) for door, how, said in made if how not in ("accepted", "refused")]
        yield [(case.kind, how) for how in ("cases", *(how for _, how, _ in made))], bad


def together(results):
    """Counts of (kind, how it ended), and all that went wrong."""
    counts, complaints = Counter(), []
    for ends, bad in results:
        counts.update(map(tuple, ends))
        complaints += bad
    return counts, complaints
