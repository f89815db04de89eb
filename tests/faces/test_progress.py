import io

import pytest

from latentdag.progress import AFTER, Progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def run(show, seconds_per_step, steps=4):
    stream, clock = io.StringIO(), Clock()
    with Progress("working", steps, show=show, stream=stream, clock=clock) as bar:
        for _ in range(steps):
            clock.now += seconds_per_step
            bar.advance()
    return stream.getvalue()


def test_quick_work_is_silent():
    assert run(True, AFTER / 10) == ""


@pytest.mark.parametrize("show", [False, None])
def test_no_bar_where_nobody_looks(show):
    assert run(show, 10 * AFTER) == ""


def test_slow_work_shows_a_bar_and_clears_it():
    text = run(True, 60.0)
    assert "working" in text
    assert "1/4, 3:00 left" in text
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_the_bar_is_cleared_after_an_error():
    stream, clock = io.StringIO(), Clock()
    with pytest.raises(RuntimeError), Progress("working", 2, show=True, stream=stream, clock=clock) as bar:  # noqa: PT012
        clock.now = 3600.0
        bar.advance()
        raise RuntimeError
    assert "1:00:00 left" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_stage_is_named():
    clock = Clock()
    bar = Progress("fit", 3, show=True, stream=io.StringIO(), clock=clock)
    bar.say("edges")
    assert bar.line().endswith("edges")
