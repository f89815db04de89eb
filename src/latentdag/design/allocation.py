"""Which context gets how many cells of a budget."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentdag.core.planning import Screen, power, rounded, share_out
from latentdag.data import labels as lb
from latentdag.data.checks import check_choice, whole_number
from latentdag.design.assumed import FEWEST_CELLS, Assumed
from latentdag.errors import clear_numerics
from latentdag.methods.result import Fit
from latentdag.model.model import LatentModel

#: What an allocation makes as good as it can.
CRITERIA = ("maxmin", "A")

#: Least part of an equal share that the control keeps, and every other context: tests of the model need them, which the
#: information about edges does not see.
CONTROL_KEEPS, OTHERS_KEEP = 0.5, 0.2


@clear_numerics
def allocate(
    fit_or_model: Fit | LatentModel,
    budget: int,
    *,
    criterion: str = "maxmin",
    floor: "int | Mapping[Any, int] | None" = None,
    alpha: float = 0.05,
) -> pd.Series:
    """Return how many cells of a budget each context gets.

    Parameters
    ----------
    fit_or_model : Fit or LatentModel
        What is taken for true; a pilot's weights are shrunk as for ``power``.
    budget : int
        Cells in all contexts together, the control included.
    criterion : "maxmin" or "A"
        Make the power of the weakest edge as large as possible, or the sum of the variances as small. Both are for a
        known graph.
    floor : int, or mapping of context to cells, optional
        Fewest cells of a context. By default half an equal share for the control and a fifth for others:
        contexts leave each other's mechanisms alone, so edges need nearly no control, but tests of rank and of
        off-targets compare with it.
    alpha : float
        Level at which ``.attrs`` states power.

    Returns
    -------
    Series
        Whole numbers by context that sum to the budget, ready for ``power``. ``.attrs`` has ``least_power`` and
        ``least_power_equal``, those of the weakest edge in a known graph with this allocation and with an equal one,
        ``saved``, the share of cells that an equal allocation would need more, and ``note``.

    Examples
    --------
    >>> from latentdag import simulate
    >>> truth = simulate.random_model(3, 6, density=1, convention="text", rng=3)
    >>> allocate(truth, 1_000).to_dict()
    {'control': 261, 'c1': 245, 'c2': 115, 'c3': 379}
    """
    assumed = Assumed.of(fit_or_model)
    check_choice("criterion", criterion, CRITERIA)
    budget = whole_number("budget", budget, 1)
    contexts = assumed.fit.model.contexts
    floors = np.array(list(_floors(assumed, budget, floor).values()), dtype=float)
    if floors.sum() > budget:
        raise ValueError(
            f"a budget of {budget} cells is below the floors of {len(contexts)} contexts, {floors.sum():.0f} together: "
            "raise the budget, lower floor=, or plan fewer contexts"
        )
    w, known, screen = assumed.shrunk[0], assumed.known, assumed.screen
    if not known.any():
        raise ValueError(assumed.note)
    w, telling = w[known], Screen(screen.point, screen.gradients[known])
    n = share_out(telling, np.abs(w), float(budget), floors, criterion == "maxmin")
    found = pd.Series(rounded(n, budget), index=lb.as_index(contexts), name="cells")
    v, v_equal = (telling.variances(np.asarray(each, dtype=float)) for each in (found, [budget / len(n)] * len(n)))
    ratio = [(each / w**2).max() if criterion == "maxmin" else each.sum() for each in (v, v_equal)]
    least = [float(power(w, each, alpha).min()) for each in (v, v_equal)]
    found.attrs = {
        "least_power": least[0], "least_power_equal": least[1], "saved": float(1 - ratio[0] / ratio[1]),
        "note": assumed.note,
    }  # fmt: skip
    return found


def _floors(assumed: Assumed, budget: int, floor: Any) -> dict[Any, int]:
    """Return the fewest cells of each context."""
    contexts = assumed.fit.model.contexts
    keeps = [CONTROL_KEEPS] + [OTHERS_KEEP] * (len(contexts) - 1)
    usual = {c: max(int(keep * budget / len(contexts)), FEWEST_CELLS) for c, keep in zip(contexts, keeps, strict=True)}
    if floor is None or hasattr(floor, "keys"):
        return assumed.counts({**usual, **dict(floor or {})})
    return assumed.counts(floor)
