"""A progress bar on stderr, for work that takes more than a few seconds.

It appears only once the work has taken ``AFTER`` seconds, only where stderr is a terminal (or where the user asks for
it), and leaves nothing behind: stdout stays clean, and quick calls stay silent.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

#: Seconds of work before the bar shows.
AFTER = 2.0

#: Seconds between two drawings.
EVERY = 0.1

WIDTH = 24


class Progress:
    """A bar over ``total`` steps; use as a context manager.

    Parameters
    ----------
    label : str
        What is being done.
    total : int
        Number of steps.
    show : bool, optional
        True or False to force it; by default it shows where stderr is a terminal.
    """

    def __init__(
        self,
        label: str,
        total: int,
        show: bool | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.label, self.total, self.done, self.stage = label, total, 0, ""
        self.stream = stream or sys.stderr
        self.show = self.stream.isatty() if show is None else show
        self.clock, self.began = clock, clock()
        self.drawn: float | None = None

    def advance(self, steps: int = 1) -> None:
        """Advance the bar by ``steps`` steps."""
        self.done = min(self.done + steps, self.total)
        self._draw()

    def say(self, stage: str, steps: int = 0) -> None:
        """Show what is being done now, beside the bar, after so many more steps."""
        self.stage = stage
        self.advance(steps)

    def line(self) -> str:
        """Return the bar as text."""
        share = self.done / self.total if self.total else 1.0
        full = int(WIDTH * share)
        text = f"{self.label} [{'█' * full}{'·' * (WIDTH - full)}] {self.done}/{self.total}"
        if self.done and self.done < self.total:
            left = (self.clock() - self.began) * (1 - share) / share
            text += f", {_duration(left)} left"
        return f"{text}, {self.stage}" if self.stage else text

    def _draw(self) -> None:
        now = self.clock()
        if not self.show or now - self.began < AFTER or (self.drawn is not None and now - self.drawn < EVERY):
            return
        self.drawn = now
        self.stream.write(f"\r\x1b[K{self.line()}")
        self.stream.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.drawn is not None:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
