from __future__ import annotations

from tests.secure_aggregation.courses import run


def test_random_courses_with_losses_and_restarts_are_exact_or_given_up() -> None:
    ends = run(60, 7, most=16)
    assert min(ends["exact"], ends["exact after a restart"], ends["given up"]) >= 5
