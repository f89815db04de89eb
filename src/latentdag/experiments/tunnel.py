"""The light tunnel as a problem with a known answer.

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
        """(d, d): row i is 1 at i and minus the coefficients of its known parents, by least squares in the control."""
        return np.array([self.equation(name) for name in self.latents])

    def equation(self, latent: str, contexts: Iterable[str] = (CONTROL,)) -> np.ndarray:
        """What least squares on the known parents gives in these contexts, taken together with one intercept."""
        Z = np.vstack([self.Z[context] for context in contexts])
        Z = Z - Z.mean(axis=0)
        i, parents = self.latents.index(latent), self.parents(latent)
        row = np.eye(len(self.latents))[i]
        row[parents] = -np.linalg.lstsq(Z[:, parents], Z[:, i], rcond=None)[0]
        return row

    def edges(self) -> set[tuple[str, str]]:
        return set(self.graph.subgraph(self.latents).edges)

    def draw(self, n_features: int, share: float, rng: np.random.Generator) -> Draw:
        """A random share of each context's rows, none of them twice, behind a random Gaussian map.

        None twice, unlike a bootstrap: the rows are then a sample of the machine, and tests on them have the size that
        they have on any sample, while rows that repeat look like more than they are.
        """
        kept = {name: Z[rng.permutation(len(Z))[: round(share * len(Z))]] for name, Z in self.Z.items()}
        G = rng.normal(size=(n_features, len(self.latents)))
        contexts = np.repeat(np.array(list(kept)), [len(Z) for Z in kept.values()])
        return Draw(np.vstack(list(kept.values())) @ G.T, contexts, G)


def read(latents: tuple[str, ...]) -> Tunnel:
    """These columns with the contexts that target one of them, and the control."""
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
