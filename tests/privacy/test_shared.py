"""Noise that many devices share: calibrated for the survivors, and never for more than are certain."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from crowdml.privacy.calibration import calibrate_shared, for_owner
from crowdml.privacy.grid import make_fine_grid, make_grid
from crowdml.privacy.mechanisms import SUM_LAWS, Shared, SumMechanism, calibrate_sum
from crowdml.privacy.sound import SharedStatistics, Sound, SoundMechanism, Stability, sample_sensitivity
from crowdml.simulation.coins import HashCoins, trial_seed

GRID = make_grid(2, 640, 1.0, "release")


def shared(law: str, survivors: int = 60) -> Shared:
    return Shared(law=SUM_LAWS[law], survivors=survivors)


@pytest.mark.parametrize("law", SUM_LAWS)
@pytest.mark.parametrize("uses", [1, 40])
def test_the_share_is_the_least_that_keeps_the_promise(law: str, uses: int) -> None:
    mechanism, limit = calibrate_shared(shared(law), GRID, 1.0, 1e-5, uses, None, "device")
    assert limit.covers(mechanism.event.times(uses))
    less = SoundMechanism(grid=GRID, law=mechanism.law, scale=mechanism.scale - 1 / 16, shared=mechanism.shared)
    assert not limit.covers(less.event.times(uses))


@pytest.mark.parametrize("law", SUM_LAWS)
def test_it_is_the_noise_of_the_mechanism_for_sums(law: str) -> None:
    mechanism, _ = calibrate_shared(shared(law), GRID, 1.0, 1e-5, 10, None, "device")
    other, _ = calibrate_sum(SUM_LAWS[law], GRID, 1.0, 1e-5, 10, 60)
    assert float(other.variance) <= mechanism.scale**2 <= float(other.variance) * 1.01
    whole = round(mechanism.scale)
    same = SumMechanism(grid=GRID, law=SUM_LAWS[law], variance=Fraction(whole) ** 2, survivors=60)
    assert (
        same.event == SoundMechanism(grid=GRID, law=SUM_LAWS[law].noise, scale=float(whole), shared=shared(law)).event
    )


def test_fewer_survivors_need_more_noise_each() -> None:
    """The sum needs the same: a hundredth of the survivors, ten times the deviation."""
    many, few = (
        calibrate_shared(shared("discrete-gaussian", count), GRID, 1.0, 1e-5, 10, None, "device")[0].scale
        for count in (900, 9)
    )
    assert few == pytest.approx(10 * many, rel=0.01)


def test_a_share_is_never_too_small_for_the_law_of_the_sum() -> None:
    mechanism, _ = calibrate_shared(shared("discrete-gaussian", 10**6), GRID, 100.0, 1e-5, 1, None, "device")
    assert mechanism.scale == 2.0


def test_stable_steps_need_less_for_a_sample() -> None:
    grid, stable = make_fine_grid(640, 1.0), Stability(moved=0.01, rounding=1e-9, row=1.0, part=10, steps=5)
    least, _ = calibrate_shared(shared("skellam"), grid, 1.0, 1e-5, 10, stable, "sample")
    whole, _ = calibrate_shared(shared("skellam"), grid, 1.0, 1e-5, 10, stable, "device")
    assert least.scale < whole.scale / 10
    assert least.event_of_sample.rho < least.event.rho


@pytest.mark.parametrize("moved", [0.01, 0.0005])
def test_a_sample_is_charged_for_all_that_it_moves_in_a_sum(moved: float) -> None:
    """The square of what it moves, and at most the fraction of it is left out: integers have whole squares."""
    grid, stable = make_fine_grid(640, 1.0), Stability(moved=moved, rounding=1e-9, row=1.0, part=10, steps=5)
    gaussian = shared("discrete-gaussian")
    found = SoundMechanism(grid=grid, law=gaussian.law.noise, scale=8.0, stable=stable, shared=gaussian)
    levels = moved * grid.levels + math.sqrt(640)
    assert found.event_of_sample.rho >= (levels**2 - 1) / (2 * 60 * 8.0**2)
    assert found.event_of_sample.rho == gaussian.event(math.floor(sample_sensitivity(grid, stable) ** 2), 640, 8.0).rho


@pytest.mark.parametrize("law", SUM_LAWS)
@pytest.mark.parametrize("rows", [1, 7])
def test_counts_are_charged_for_all_that_rows_can_change(law: str, rows: int) -> None:
    """One error more for each, and another label: all at once, among eleven counts."""
    changed = rows * np.array([1, 1, -1] + [0] * 8)
    counts = SharedStatistics(scale=8.0, classes=10, rows=rows, shared=shared(law))
    assert counts.event == counts.event_of(rows) == shared(law).event(int(changed @ changed), len(changed), 8.0)


def test_owners_have_one_epsilon_together() -> None:
    mechanism, limit = calibrate_shared(shared("skellam"), GRID, 1.0, 1e-5, 10, None, "device")
    sound = Sound(
        update=mechanism, statistics=None, filter=limit, unit="device", uses=10, sends="change", owner_range=(1.0, 1.0)
    )
    assert for_owner(sound, 1.0) is sound


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
def test_simulated_skellam_noise_has_the_law_of_a_device(scale: float) -> None:
    """Chi-squared against the law itself, on 200,000 draws with a fixed seed: a false alarm in 1e-6."""
    from scipy.stats import chi2, skellam

    from crowdml.core import NUMPY

    drawn = HashCoins(trial_seed(5, 0), np.uint32(3), NUMPY).skellam("change", scale, (200_000,))
    reach = int(2.5 * scale + 1)
    inner = np.arange(-reach, reach)
    law = skellam(scale**2 / 2, scale**2 / 2)
    chances = np.concatenate([[law.cdf(-reach - 1)], law.pmf(inner), [law.sf(reach - 1)]])
    counts = np.bincount(np.clip(drawn, -reach - 1, reach) + reach + 1, minlength=len(chances))
    expected = chances * len(drawn)
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, len(chances) - 1)
    assert drawn.dtype == np.int32


def test_device_and_simulation_draw_the_same_skellam_law() -> None:
    """Means and variances of 100,000 draws: each within 6 standard errors, a false alarm in 1e-8."""
    from crowdml.core import NUMPY
    from crowdml.device.coins import DeviceCoins

    for drawn in (
        DeviceCoins().skellam("change", 5.0, (100_000,)),
        HashCoins(trial_seed(6, 0), np.uint32(3), NUMPY).skellam("change", 5.0, (100_000,)),
    ):
        assert abs(drawn.mean()) < 6 * 5 / np.sqrt(100_000)
        assert abs(drawn.var() - 25) < 6 * 25 * np.sqrt((2 + 1 / 25) / 100_000)
