"""Progress where nobody watches a bar: a log gets a line now and then, and not more."""

from __future__ import annotations

import pytest

from crowdml.cli import output


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_long_run_says_now_and_then_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with output.Progress("digits", clock=clock) as progress:
        for step in range(1, 101):
            clock.now = step
            progress.update(step / 100, 1 / step)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [" 30%  digits: error 0.033", " 60%  digits: error 0.017", " 90%  digits: error 0.011"]


def test_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with output.Progress("digits", clock=Clock()) as progress:
        progress.update(0.5, 0.2)
        progress.update(1.0, 0.1)
    assert capsys.readouterr().err == ""


def test_nothing_new_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with output.Progress("digits", clock=clock) as progress:
        for now in (40, 80, 120):
            clock.now = now
            progress.update(0.5, float("nan"))
    assert capsys.readouterr().err == " 50%  digits\n"


def test_parts_have_a_line_each_and_one_for_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with output.Progress("cells", lines=True, clock=Clock()) as progress:
        for name, share in (("one", 0.0), ("one", 0.05), ("one", 0.1), ("two", 0.1)):
            progress.named(name, share, float("nan"))
    assert capsys.readouterr().err.splitlines() == ["  0%  one", " 10%  one", " 10%  two"]


def test_who_reads_results_from_standard_output_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with output.Progress("digits", quiet=True, clock=clock) as progress:
        clock.now = 100
        progress.update(0.5, 0.2)
    assert capsys.readouterr().err == ""
