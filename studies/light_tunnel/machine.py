"""The light tunnel as a problem with a known answer, and what plain regressions say of it.

Some of its columns are taken for *true latents*, one context each, and hidden behind a random dense map. The answer is
known twice over: the makers' causal graph says who acts on whom, and regression of each latent on its known parents,
with the latents in sight, says by how much.

Latents are measured in their standard deviations in the control, so that no cosine below depends on units.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np

from latentdag.datasets import light_tunnel
from latentdag.experiments import Row

COLOURS = ("red", "green", "blue")
SENSORS = ("ir_1", "ir_2", "current")
LEDS = ("l_11", "l_12", "l_21", "l_22")
LAMPS = (*COLOURS, *LEDS)

#: Sets of latents. Nobody intervened on vis_1 in these contexts, and it shares noise with ir_1 that nobody measured.
SETS = {
    "colours and sensors": (*COLOURS, *SENSORS),
    "a sensor and its LEDs": (*COLOURS, "ir_2", "l_21", "l_22"),
    "all ten contexts": (*COLOURS, *SENSORS, *LEDS),
    "shared noise": (*COLOURS, "ir_1", "vis_1"),
}
MAIN, *_, TWINS = SETS
CONTROL = "reference"


@dataclass(frozen=True)
class Draw:
    """Hidden latents: what a method sees, and what it should find.

    Attributes
    ----------
    X : (n, p) ndarray
        Features.
    contexts : (n,) labels
        The name of the latent that each context targets, or the control's.
    G : (p, d) ndarray
        The map from latents, in their standard deviations, to features.
    """

    X: np.ndarray
    contexts: np.ndarray
    G: np.ndarray


@dataclass(frozen=True)
class Tunnel:
    """Measurements of some latents, and the graph between them.

    Attributes
    ----------
    latents : names
    Z : mapping of context to (n, d) ndarray
        The control first; other contexts by the name of the latent that they target. In standard deviations of the
        control, from its mean.
    graph : DiGraph
        The known one.
    """

    latents: tuple[str, ...]
    Z: Mapping[str, np.ndarray]
    graph: nx.DiGraph

    def parents(self, latent: str) -> list[int]:
        return [self.latents.index(name) for name in self.graph.predecessors(latent) if name in self.latents]

    @cached_property
    def equations(self) -> np.ndarray:
        """Equations (d, d) in the control: row i is 1 at i, and minus the coefficient at each of its known parents."""
        return np.array([self.equation(name) for name in self.latents])

    def equation(self, latent: str, contexts: Iterable[str] = (CONTROL,)) -> np.ndarray:
        """Regress a latent on its known parents in these contexts together, with one intercept; shape (d,)."""
        Z = np.vstack([self.Z[context] for context in contexts])
        Z = Z - Z.mean(axis=0)
        i, parents = self.latents.index(latent), self.parents(latent)
        row = np.eye(len(self.latents))[i]
        row[parents] = -np.linalg.lstsq(Z[:, parents], Z[:, i], rcond=None)[0]
        return row

    def edges(self) -> set[tuple[str, str]]:
        return set(self.graph.subgraph(self.latents).edges)

    def draw(self, n_features: int, share: float, rng: np.random.Generator) -> Draw:
        """Hide a random share of each context's rows behind a random Gaussian map.

        No row is taken twice, unlike in a bootstrap. So the rows are a sample of the machine, and tests have the size
        that they have on any sample. Repeated rows would look like more data than there are.
        """
        kept = {name: Z[rng.permutation(len(Z))[: round(share * len(Z))]] for name, Z in self.Z.items()}
        G = rng.normal(size=(n_features, len(self.latents)))
        contexts = np.repeat(np.array(list(kept)), [len(Z) for Z in kept.values()])
        return Draw(np.vstack(list(kept.values())) @ G.T, contexts, G)


def read(latents: tuple[str, ...]) -> Tunnel:
    """Read these columns, in the control and in every context that targets one of them."""
    screen = light_tunnel(columns=latents)
    graph: nx.DiGraph = screen.extra["graph"]
    Z, names = {}, {CONTROL: CONTROL}
    for context, knob in screen.extra["targets"].items():
        effects = list(graph.successors(knob))  # a sensor's knob acts on that sensor only; a lamp is a latent itself
        names[context] = effects[0] if len(effects) == 1 else knob
    control = screen.X[screen.contexts == CONTROL]
    for context, name in names.items():
        if name in (CONTROL, *latents):
            Z[name] = (screen.X[screen.contexts == context] - control.mean(axis=0)) / control.std(axis=0)
    return Tunnel(latents, Z, graph)


def facts() -> list[Row]:
    """Return five numbers that say why no linear model is exact here, from regressions with the latents in sight."""
    twins, sensors, leds = (read(SETS[name]) for name in (TWINS, MAIN, "a sensor and its LEDs"))
    noise = {name: Z @ sensors.equations.T for name, Z in sensors.Z.items()}
    together = np.corrcoef(noise[CONTROL][:, len(COLOURS) :].T)
    # of a sensor's noise in a colour's context, in its own standard deviations: zero for a straight line
    bends = [noise[name].mean(axis=0)[len(COLOURS) :] / noise[CONTROL].std(axis=0)[len(COLOURS) :] for name in COLOURS]
    red = leds.equation("ir_2")[leds.latents.index("red")]
    values = {
        "twin noise": np.corrcoef((twins.Z[CONTROL] @ twins.equations.T)[:, len(COLOURS) :].T)[0, 1],
        "sensor noise": np.abs(together - np.eye(len(SENSORS))).max(),
        "bend": np.abs(bends).max(),
    }
    # effect of LED l_21 on ir_2, as a share of red's in the control
    for name, context in (("LED in the control", CONTROL), ("LED in its context", "l_21")):
        values[name] = leds.equation("ir_2", [context])[leds.latents.index("l_21")] / red
    return [{"fact": name, "value": float(value)} for name, value in values.items()]
