"""The error of the recent check-ins: its window, the noise behind it, and how often its band holds the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crowdml.device import DeviceCoins
from crowdml.privacy import Plan
from crowdml.privacy.noise.counts import laplace_variance
from crowdml.task import parse
from crowdml.task.recent_error import (
    BEGINNING,
    LEAST_CHECK_INS,
    Totals,
    band,
    count_noise_variance,
    recent_error,
)

ROOT = Path(__file__).parents[2]
TASK = """
crowdml = 1
name = "walk"
[data]
features = 3
labels = ["standing", "walking"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 10
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 8.0
delta = 1e-6
max-uses = 10
statistics-epsilon = 1.0
"""


def plan_of(text: str = TASK, *changes: str) -> Plan:
    task = parse(text, "walk.toml", changes)
    return task.calibrated


def course(errors: list[float], rows: int = 10) -> list[Totals]:
    """One check-in and one version after another, each with this share of errors."""
    sums = np.cumsum(np.round(np.array(errors) * rows)).astype(int).tolist()
    return [Totals(version=n, check_ins=n, counted=n * rows, errors=made) for n, made in enumerate(sums, start=1)]


def test_the_window_forgets_the_first_bad_models() -> None:
    *marks, now = course([0.9] * 50 + [0.1] * 50)
    assert now.errors / now.counted == pytest.approx(0.5)
    found = recent_error(marks, now, 0.0)
    assert found is not None and found.estimate == pytest.approx(0.1)
    assert (found.check_ins, found.rows, found.from_version, found.to_version) == (20, 200, 80, 100)
    assert found.low < 0.1 < found.high < 0.2


@pytest.mark.parametrize(("check_ins", "window"), [(1, 1), (20, 20), (30, 20), (100, 20), (101, 21), (1000, 200)])
def test_the_window_is_the_last_fifth_and_at_least_twenty_check_ins(check_ins: int, window: int) -> None:
    *marks, now = course([0.3] * check_ins)
    found = recent_error(marks, now, 0.0)
    assert found is not None and found.check_ins == window == max(min(LEAST_CHECK_INS, check_ins), -(-check_ins // 5))


def test_a_window_begins_at_a_moment_that_was_kept() -> None:
    """Where few moments are kept the window is longer, never shorter; without any it is the whole course."""
    *marks, now = course([0.5] * 1000)
    found = recent_error(marks[::300], now, 0.0)
    assert found is not None and found.from_version == 601 and found.check_ins == 399
    whole = recent_error([], now, 0.0)
    assert whole is not None and whole.from_version == BEGINNING.version and whole.check_ins == 1000


def test_nothing_counted_is_no_error_at_all() -> None:
    assert recent_error([], BEGINNING, 1.0) is None


@pytest.mark.parametrize("wrong", [0.02, 0.2, 0.5])
@pytest.mark.parametrize(
    ("check_ins", "rows", "scale"), [(20, 400, 0.0), (20, 400, 2.0), (20, 1200, 22.0), (40, 40, 1.0)]
)
def test_the_band_holds_the_true_rate_in_95_of_100_courses(
    wrong: float, check_ins: int, rows: int, scale: float
) -> None:
    draws, trials = np.random.default_rng(7), 4000
    errors = draws.binomial(rows, wrong, trials).astype(float)
    if scale:
        ratio = np.exp(-1 / scale)
        noise = draws.geometric(1 - ratio, (2, trials, check_ins)).sum(axis=2)
        errors += noise[0] - noise[1]
    variance = check_ins * laplace_variance(scale) if scale else 0.0
    bands = np.array([band(found / rows, rows, variance) for found in errors])
    held = np.mean((bands[:, 0] <= wrong) & (wrong <= bands[:, 1]))
    # Wilson's interval is off by up to two points where few errors are expected; 0.3 points are three deviations.
    assert 0.93 <= held <= 0.985, held


def test_the_band_stays_within_zero_and_one_and_outlives_noise() -> None:
    for estimate in (-3.0, -0.1, 0.0, 1.0, 4.0):
        low, high = band(estimate, 100, 400.0)
        assert 0.0 <= low <= high <= 1.0
    assert band(0.3, 100, 0.0)[1] - band(0.3, 100, 0.0)[0] < band(0.3, 100, 900.0)[1] - band(0.3, 100, 900.0)[0]


def test_the_variance_is_that_of_what_devices_draw() -> None:
    plan = plan_of()
    assert plan.last.counts is not None
    drawn = DeviceCoins().discrete_laplace("counts/errors", plan.last.counts.errors, (20_000,))
    assert np.var(drawn) == pytest.approx(count_noise_variance(plan), rel=0.1)
    assert count_noise_variance(plan_of(TASK, "privacy.statistics-epsilon=0.0")) == 0.0


def test_where_owners_choose_the_largest_noise_counts() -> None:
    usual, free = count_noise_variance(plan_of()), count_noise_variance(plan_of(TASK, "privacy.owner-range=[2.0, 8.0]"))
    assert free == pytest.approx(16 * usual, rel=0.01)


def test_in_a_masked_sum_each_check_in_brings_one_share() -> None:
    text = (ROOT / "examples" / "secagg-digits.toml").read_text()
    plan = plan_of(text, "algorithm.statistics=true", "privacy.statistics-epsilon=0.2")
    assert plan.last.counts is not None
    drawn = DeviceCoins().discrete_gaussian("counts/errors", plan.last.counts.errors, (20_000,))
    assert np.var(drawn) == pytest.approx(count_noise_variance(plan), rel=0.1)
