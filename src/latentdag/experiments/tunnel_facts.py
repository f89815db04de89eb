"""Why a linear model cannot be all of the light tunnel: four numbers of the machine itself, nothing hidden."""

import numpy as np

from latentdag.experiments.base import Row
from latentdag.experiments.tunnel import COLOURS, CONTROL, SENSORS, Tunnel, read


def facts() -> list[Row]:
    """Plain regressions with the latents in sight."""
    pair = read((*COLOURS, "ir_1", "vis_1"))
    sensors = read((*COLOURS, *SENSORS))
    leds = read((*COLOURS, "ir_2", "l_21", "l_22"))
    noise = {name: Z @ sensors.equations.T for name, Z in sensors.Z.items()}
    together = np.corrcoef(noise[CONTROL][:, len(COLOURS) :].T)
    # of a sensor's noise in a colour's context, in its own standard deviations: zero for a straight line
    bends = [noise[name].mean(axis=0)[len(COLOURS) :] / noise[CONTROL].std(axis=0)[len(COLOURS) :] for name in COLOURS]
    return [
        {"fact": "twin noise", "value": float(np.corrcoef((pair.Z[CONTROL] @ pair.equations.T)[:, 3:].T)[0, 1])},
        {"fact": "sensor noise", "value": float(np.abs(together - np.eye(len(SENSORS))).max())},
        {"fact": "bend", "value": float(np.abs(bends).max())},
        {"fact": "LED in the control", "value": slope(leds, CONTROL)},
        {"fact": "LED in its context", "value": slope(leds, "l_21")},
    ]


def slope(tunnel: Tunnel, context: str) -> float:
    """Effect of LED l_21 on ir_2, as a share of red's in the control."""
    row, red = tunnel.equation("ir_2", [context]), tunnel.equation("ir_2")[tunnel.latents.index("red")]
    return float(row[tunnel.latents.index("l_21")] / red)
