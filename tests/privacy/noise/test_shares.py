"""Laws for masked sums: their cost against divergences worked out in full, calibration, honest survivors."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from crowdml.core import BadInput
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy import Event
from crowdml.privacy.calibration.least_noise import Wanted, calibrate_shared
from crowdml.privacy.noise.grid import GridMechanism, make_grid
from crowdml.privacy.noise.laws import LAWS, SUM_LAWS
from crowdml.privacy.noise.shares import DISCRETE_GAUSSIAN_SHARES, Shared, honest_survivors, sum_gap

EVERY = pytest.mark.parametrize("name", list(SUM_LAWS))
REACH = np.arange(-4000, 4001)


def log_pmf(name: str, variance: Fraction, survivors: int) -> Any:
    """Return the logarithm of the law of a sum of shares, over `REACH`."""
    if name == "skellam":
        with np.errstate(divide="ignore"):
            return np.log(special.ive(np.abs(REACH), float(variance * survivors)))
    one = np.exp(-(REACH.astype(float) ** 2) / (2 * float(variance)))
    one /= one.sum()
    total = one
    for _ in range(survivors - 1):
        total = np.convolve(total, one, mode="same")
    with np.errstate(divide="ignore"):
        return np.log(total)


def divergence(logs: Any, shift: int, alpha: float) -> float:
    """Return the Rényi divergence of order α between a law and itself, shifted; tails below 1e-280 are left out."""
    there, here = logs[shift:], logs[: len(logs) - shift]
    both = (there > -640) & (here > -640)
    return float(special.logsumexp(alpha * there[both] + (1 - alpha) * here[both]) / (alpha - 1))


@EVERY
@pytest.mark.parametrize("variance", [Fraction(4), Fraction(9), Fraction(50)])
@pytest.mark.parametrize("survivors", [1, 3, 10])
def test_the_cost_is_never_below_the_true_divergence(name: str, variance: Fraction, survivors: int) -> None:
    """Rényi divergences add up over coordinates, so a vector of shifts is as good as its numbers one by one."""
    law, logs = SUM_LAWS[name], log_pmf(name, variance, survivors)
    for shifts in ([1], [3], [2, 1, 1], [5, 4], [1] * 12):
        squared = sum(shift**2 for shift in shifts)
        event = law.event(squared, len(shifts), variance, survivors)
        for alpha in (2, 3, 5, 9):
            true = sum(divergence(logs, shift, alpha) for shift in shifts)
            assert true <= event.rho * alpha * (1 + 1e-10)  # what the judge loses to rounding
            # And close to it, where there is enough noise.
            if variance * survivors > 100:
                assert event.rho * alpha < 1.15 * true


def test_a_cost_without_the_correction_of_skellam_would_be_too_small() -> None:
    """Near order 1 Skellam noise is worse than Gaussian noise of its variance: ρ = Δ²/(2v) alone is disproved."""
    logs = log_pmf("skellam", Fraction(1), 1)
    assert divergence(logs, 1, 1.01) > 1.04 * 1.01 / 2
    assert SUM_LAWS["skellam"].event(1, 1, Fraction(1), 1).rho > 1.04 / 2


def test_coarse_discrete_gaussians_do_not_add_up_to_one() -> None:
    """Below a deviation of 2 the gap opens, and it shows; so it is refused."""
    assert sum_gap(4.0, 1000) == pytest.approx(7e-17, rel=0.1)
    assert sum_gap(0.25, 3) > 0.05
    grid = make_grid(2, 4, 1.0, "release")
    shared = Shared(law=SUM_LAWS["discrete-gaussian"], survivors=3)
    with pytest.raises(ValueError, match="a variance of 4"):
        GridMechanism(grid=grid, law=LAWS["discrete-gaussian"], scale=31 / 16, shared=shared)


@EVERY
@settings(deadline=None, max_examples=40)
@given(
    epsilon=st.floats(0.05, 50.0),
    delta=st.floats(-10, -3).map(lambda power: 10.0**power),
    uses=st.integers(1, 300),
    survivors=st.integers(1, 5000),
    size=st.integers(1, 200_000),
)
def test_calibrated_sums_keep_the_promise_and_waste_little(
    name: str, epsilon: float, delta: float, uses: int, survivors: int, size: int
) -> None:
    grid = make_grid(2, size, 1.0, "release")
    shared, wanted = Shared(law=SUM_LAWS[name], survivors=survivors), Wanted(epsilon=epsilon, delta=delta, uses=uses)
    try:
        made, _, limit = calibrate_shared(shared, grid, None, wanted)
    except BadInput as refused:
        # More noise than devices can draw by this law: the other one, without such a bound, needs nearly as much.
        other = calibrate_shared(replace(shared, law=DISCRETE_GAUSSIAN_SHARES), grid, None, wanted)[0]
        assert "exact sampler" in refused.what and other.scale > 0.9 * shared.law.largest
        return
    assert made.scale <= shared.law.largest
    assert limit.covers(made.event.times(uses))
    if made.scale > shared.least_scale:
        less = replace(made, scale=made.scale - 1 / 16)
        assert not limit.covers(less.event.times(uses))


def test_both_laws_need_nearly_the_same_noise() -> None:
    grid = make_grid(2, 10_000, 1.0, "release")
    wanted = Wanted(epsilon=1.0, delta=1e-5, uses=40)
    gaussian, skellam = (
        calibrate_shared(Shared(law=law, survivors=50), grid, None, wanted)[0] for law in SUM_LAWS.values()
    )
    assert 1 < (skellam.scale / gaussian.scale) ** 2 < 1.001


@EVERY
def test_a_share_has_its_variance(name: str) -> None:
    """False alarm: 200,000 squared draws, ten standard deviations."""
    share = LAWS[name].draw(DeviceCoins(), "share", 21 / 4, (200_000,))
    assert share.shape == (200_000,)
    assert float(np.mean(share.astype(float) ** 2)) == pytest.approx(441 / 16, rel=0.035)


@EVERY
def test_a_bound_in_the_other_norm_is_refused(name: str) -> None:
    shared = Shared(law=SUM_LAWS[name], survivors=2)
    with pytest.raises(ValueError, match="does not fit a grid of order 1"):
        GridMechanism(grid=make_grid(1, 9, 1.0, "release"), law=LAWS[name], scale=3.0, shared=shared)
    with pytest.raises(ValueError, match="need a bound in L2"):
        law = LAWS["discrete-laplace"]
        GridMechanism(grid=make_grid(1, 9, 1.0, "release"), law=law, scale=3.0, shared=shared)
    with pytest.raises(ValueError, match="not an exact scale"):
        GridMechanism(grid=make_grid(2, 9, 1.0, "release"), law=LAWS[name], scale=28 / 9, shared=shared)
    with pytest.raises(ValueError, match="nobody"):
        Shared(law=SUM_LAWS[name], survivors=0)


def test_honest_survivors() -> None:
    assert honest_survivors(80, 100, 0.9) == 70
    assert honest_survivors(80, 100, 0.7) == 50  # decimal fractions are taken as they are written
    assert honest_survivors(80, 101, 0.7) == 49
    with pytest.raises(BadInput, match="nobody's noise"):
        honest_survivors(5, 100, 0.9)


def test_whole_orders_stay_whole_in_a_sum() -> None:
    whole, plain = Event(pure=math.inf, rho=0.3, whole=True), Event(pure=math.inf, rho=0.3)
    assert whole.plus(plain).whole and plain.plus(whole).whole and whole.times(3).whole
    assert not plain.plus(plain).whole and not whole.times(0).whole
    for delta in (1e-3, 1e-9):
        orders = [
            0.3 * alpha + math.log(1 - 1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
            for alpha in range(2, 2000)
        ]
        assert whole.promise(delta).epsilon == pytest.approx(min(orders), rel=1e-12)
        assert plain.promise(delta).epsilon <= whole.promise(delta).epsilon < 1.01 * plain.promise(delta).epsilon
    # A group of two needs orders in between, where only 2ρ is proven.
    assert whole.grouped(2) == Event(pure=math.inf, rho=0.3 * 8) and whole.grouped(1) == whole
