"""Noises by name, each with mean zero and variance one."""

import numpy as np

#: Degrees of freedom of the Student-t noise: heavy tails with a finite fourth moment.
STUDENT_DF = 5

_DRAW = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "laplace": lambda rng, shape: rng.laplace(scale=np.sqrt(0.5), size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1.0,
    "uniform": lambda rng, shape: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=shape),
    "student-t": lambda rng, shape: rng.standard_t(STUDENT_DF, size=shape) * np.sqrt(1 - 2 / STUDENT_DF),
}
NOISES = tuple(_DRAW)


def standard_noise(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Independent draws of "gaussian", "laplace", "exponential", "uniform" or "student-t" noise."""
    if name not in _DRAW:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {name!r}")
    return np.asarray(_DRAW[name](rng, shape))
