"""Noise that many devices share: calibrated for the survivors, and never for more than are certain."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from crowdml.privacy import Plan
from crowdml.privacy.accounting import Terms
from crowdml.privacy.calibration.least_noise import Wanted, calibrate_shared
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import GridMechanism, Stability, make_fine_grid, make_grid, sample_sensitivity
from crowdml.privacy.noise.laws import LAWS, SUM_LAWS
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed

GRID = make_grid(2, 640, 1.0, "release")
WANTED = Wanted(epsilon=1.0, delta=1e-5, uses=10)


def shared(law: str, survivors: int = 60) -> Shared:
    return Shared(law=SUM_LAWS[law], survivors=survivors)


@pytest.mark.parametrize("law", SUM_LAWS)
@pytest.mark.parametrize("uses", [1, 40])
def test_the_share_is_the_least_that_keeps_the_promise(law: str, uses: int) -> None:
    mechanism, _, limit = calibrate_shared(shared(law), GRID, None, replace(WANTED, uses=uses))
    assert limit.covers(mechanism.event.times(uses))
    less = GridMechanism(grid=GRID, law=mechanism.law, scale=mechanism.scale - 1 / 16, shared=mechanism.shared)
    assert not limit.covers(less.event.times(uses))


@pytest.mark.parametrize("law", SUM_LAWS)
def test_it_is_the_noise_of_the_mechanism_for_sums(law: str) -> None:
    mechanism = calibrate_shared(shared(law), GRID, None, WANTED)[0]
    variance = Fraction(mechanism.scale) ** 2
    assert mechanism.event == SUM_LAWS[law].event(4 * GRID.limit, GRID.size, variance, 60)


def test_fewer_survivors_need_more_noise_each() -> None:
    """The sum needs the same: a hundredth of the survivors, ten times the deviation."""
    many, few = (
        calibrate_shared(shared("discrete-gaussian", count), GRID, None, WANTED)[0].scale for count in (900, 9)
    )
    assert few == pytest.approx(10 * many, rel=0.01)


def test_a_share_is_never_too_small_for_the_law_of_the_sum() -> None:
    wanted = Wanted(epsilon=100.0, delta=1e-5, uses=1)
    assert calibrate_shared(shared("discrete-gaussian", 10**6), GRID, None, wanted)[0].scale == 2.0


def test_stable_steps_need_less_for_a_sample() -> None:
    grid, stable = make_fine_grid(640, 1.0), Stability(moved=0.01, rounding=1e-9, row=1.0, part=10, steps=5)
    least = calibrate_shared(shared("skellam"), grid, stable, replace(WANTED, unit="sample"))[0]
    whole = calibrate_shared(shared("skellam"), grid, stable, WANTED)[0]
    assert least.scale < whole.scale / 10
    assert least.event_of_sample.rho < least.event.rho


@pytest.mark.parametrize("moved", [0.01, 0.0005])
def test_a_sample_is_charged_for_all_that_it_moves_in_a_sum(moved: float) -> None:
    """The square of what it moves, and at most the fraction of it is left out: integers have whole squares."""
    grid, stable = make_fine_grid(640, 1.0), Stability(moved=moved, rounding=1e-9, row=1.0, part=10, steps=5)
    gaussian = shared("discrete-gaussian")
    found = GridMechanism(grid=grid, law=LAWS[gaussian.law.name], scale=8.0, stable=stable, shared=gaussian)
    levels = moved * grid.levels + math.sqrt(640)
    assert found.event_of_sample.rho >= (levels**2 - 1) / (2 * 60 * 8.0**2)
    assert found.event_of_sample.rho == gaussian.event(math.floor(sample_sensitivity(grid, stable) ** 2), 640, 8.0).rho


@pytest.mark.parametrize("law", SUM_LAWS)
@pytest.mark.parametrize("rows", [1, 7])
def test_counts_are_charged_for_all_that_rows_can_change(law: str, rows: int) -> None:
    """One error more for each, and another label: all at once, among eleven counts."""
    changed = rows * np.array([1, 1, -1] + [0] * 8)
    counts = CountNoise(errors=8.0, spread=8.0, law=LAWS[law], classes=10, shared=shared(law))
    assert counts.event(rows) == shared(law).event(int(changed @ changed), len(changed), 8.0)


def test_owners_have_one_epsilon_together() -> None:
    mechanism, _, limit = calibrate_shared(shared("skellam"), GRID, None, WANTED)
    terms = Terms(mode="sound", unit="device", delta=1e-5, uses=10, filter=limit, owner_range=(1.0, 1.0))
    plan = Plan(terms=terms, sanitisers=(OnGrid(mechanism=mechanism, one_epsilon=True),))
    assert plan.for_owner(1.0) == plan


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
    from crowdml.device.entropy_coins import DeviceCoins

    for drawn in (
        DeviceCoins().skellam("change", 5.0, (100_000,)),
        HashCoins(trial_seed(6, 0), np.uint32(3), NUMPY).skellam("change", 5.0, (100_000,)),
    ):
        assert abs(drawn.mean()) < 6 * 5 / np.sqrt(100_000)
        assert abs(drawn.var() - 25) < 6 * 25 * np.sqrt((2 + 1 / 25) / 100_000)
