"""Fifty courses of a whole crowd, and that a seed is a course: the same one whenever it is gone through."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.system.planted import PLANTED, Planted, seeds_until_caught
from tests.system.world import run_seed

SEEDS, PIECES = 50, 5


@pytest.mark.parametrize("piece", range(PIECES))
def test_nothing_is_lost_charged_twice_taken_back_or_stuck(piece: int) -> None:
    reports = [run_seed(seed) for seed in range(piece, SEEDS, PIECES)]
    wrong = {report.seed: report.violations for report in reports if report.violations}
    assert not wrong, f"python -m tests.system.run --seed {next(iter(wrong))}: {wrong}"
    assert {report.kind for report in reports} == {"arrival", "rounds", "sums"}
    assert sum(report.receipts for report in reports) > 100 and sum(report.strikes for report in reports) > 20


def test_a_seed_goes_through_the_same_course_in_another_process() -> None:
    """In one with other hashes of names: whatever followed from an order of names would differ."""
    program = "from tests.system.world import run_seed; print(*(run_seed(seed).digest for seed in (0, 1, 2)))"
    asked = os.environ | {"PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, check=True)
    assert other.stdout.split() == [run_seed(seed).digest for seed in (0, 1, 2)]


@pytest.mark.live
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: str(bug.name))
def test_a_planted_bug_is_caught(bug: Planted) -> None:
    assert seeds_until_caught(bug) is not None, f"{bug.name} survives"
