"""Coins of a device: exact, fresh, and never continuous."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from crowdml.device import DeviceCoins
from crowdml.privacy.noise.rounded import rounded_gaussian
from crowdml.privacy.noise.samplers import GivenWords, discrete_gaussian, discrete_laplace

GIVEN = np.random.default_rng(5).integers(0, 1 << 63, 4000, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def test_noise_is_what_the_exact_samplers_draw_from_the_same_words() -> None:
    drawn = DeviceCoins(GivenWords(GIVEN)).discrete_laplace("any", 3.0625, (5, 4))
    assert drawn.dtype == np.int32
    np.testing.assert_array_equal(drawn.ravel(), discrete_laplace(GivenWords(GIVEN), Fraction(49, 16), 20))
    drawn = DeviceCoins(GivenWords(GIVEN)).rounded_gaussian("any", 7.5, (20,))
    np.testing.assert_array_equal(drawn, rounded_gaussian(GivenWords(GIVEN), Fraction(15, 2), 20))
    drawn = DeviceCoins(GivenWords(GIVEN)).discrete_gaussian("any", 7.5, (20,))
    np.testing.assert_array_equal(drawn, discrete_gaussian(GivenWords(GIVEN), Fraction(225, 4), 20))


def test_no_two_askers_get_the_same() -> None:
    """False alarm: two equal arrays of 64 uniform numbers of 24 bits, never."""
    coins = DeviceCoins()
    first, again, other = coins.uniform("s", (64,)), coins.uniform("s", (64,)), coins.retry(1).uniform("s", (64,))
    assert not (first == again).all() and not (first == other).all()
    assert first.dtype == np.float32 and (first > 0).all() and (first < 1).all()


def test_there_is_no_continuous_noise() -> None:
    for draw in (DeviceCoins().laplace, DeviceCoins().gaussian):
        with pytest.raises(TypeError, match="never draws continuous"):
            draw("s", (3,))


def test_draws_beyond_32_bits_wrap() -> None:
    drawn = DeviceCoins().discrete_gaussian("s", float(1 << 40), (100,))
    assert drawn.dtype == np.int32 and len(np.unique(drawn)) > 90
