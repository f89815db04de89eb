"""The light tunnel of the Causal Chambers: real physics with a known causal graph.

Gamella, Peters, Bühlmann, *Causal chambers as a real-world physical testbed for AI methodology* (Nature Machine
Intelligence, 2025), data set ``lt_interventions_standard_v1``, CC BY 4.0. A light source with three colours shines
through two polarisers on sensors; every actuator is drawn at random, and each experiment changes one of them.

What to know before a fit. The colours' contexts move the mean and keep the variance, so second moments about the
control's mean see them and covariances hardly do. The contexts ``t_*`` and ``v_c`` change a sensor's gain, which is a
soft intervention. ``ir_i`` and ``vis_i`` share noise that nobody measured (residual correlation .75): use one of each
pair. Values are quantised and roughly uniform, not Gaussian; effects of the LEDs ``l_ij`` on the sensors are tiny.
"""

import os
import re
from collections.abc import Iterable

import networkx as nx
import numpy as np
import pandas as pd

from latentdag.datasets.containers import FACTS, Screen, Source, locate

SOURCE = Source.of("light_tunnel")

#: Ten experiments with one target each.
EXPERIMENTS = (
    "red_strong", "green_strong", "blue_strong", "t_ir_1_strong", "t_ir_2_strong", "v_c_strong", "l_11_mid", "l_12_mid",
    "l_21_mid", "l_22_mid",
)  # fmt: skip

#: Columns about the measurement rather than of it.
_BOOKKEEPING = ("timestamp", "config", "counter", "flag", "intervention", "camera")


def light_tunnel(
    root: str | os.PathLike[str] | None = None,
    experiments: Iterable[str] = EXPERIMENTS,
    columns: Iterable[str] | None = None,
) -> Screen:
    """Read measurements of the light tunnel, the control first.

    Parameters
    ----------
    root : folder, optional
        With the csv files in a sub-folder ``light_tunnel``.
    experiments : names
        Without ``uniform_``, as in ``"red_strong"``; they are the contexts' labels. The control is "reference".
    columns : names, optional
        By default all that were measured or set.

    Returns
    -------
    Screen
        ``extra["graph"]`` is the known graph (networkx.DiGraph), ``extra["targets"]`` the variable that each experiment
        changes.
    """
    names = ["reference", *experiments]
    paths = locate(SOURCE, [f"uniform_{name}.csv" for name in names], root=root)
    tables = [pd.read_csv(paths[f"uniform_{name}.csv"]) for name in names]
    kept = list(columns) if columns is not None else [c for c in tables[0] if c not in _BOOKKEEPING]
    missing = [c for c in kept if c not in tables[0]]
    if missing:
        raise ValueError(f"the light tunnel has no columns {missing}; it has {list(tables[0].columns)}")
    together = pd.concat(tables, ignore_index=True)
    labels = np.repeat(np.array(names), [len(table) for table in tables])
    targets = {name: re.sub(r"_(weak|mid|strong)$", "", name) for name in names[1:]}
    known = {"graph": known_graph(), "targets": targets}
    obs = together[[c for c in _BOOKKEEPING if c in together]]
    return Screen("light_tunnel", together[kept].to_numpy(dtype=float), labels, "reference", tuple(kept), obs, known)


def known_graph() -> nx.DiGraph:
    """Return the causal graph of the light tunnel in its standard configuration.

    >>> sorted(known_graph().predecessors("current"))
    ['blue', 'green', 'osr_c', 'red', 'v_c']
    """
    return nx.DiGraph({cause: list(effects) for cause, effects in FACTS["light_tunnel"]["graph"].items()})
