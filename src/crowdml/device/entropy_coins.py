"""Coins of a device: every draw from the operating system's entropy, noise by exact integer samplers.

Continuous noise does not exist here: in floating point it would reveal what it should hide.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from crowdml.core import Array
from crowdml.privacy.noise.poisson import skellam
from crowdml.privacy.noise.rounded import rounded_gaussian
from crowdml.privacy.noise.samplers import OsWords, Words, discrete_gaussian, discrete_laplace


class DeviceCoins:
    """Draws for one check-in. Implements `Coins`.

    Args:
        words: Where entropy comes from; given words are for tests.
    """

    def __init__(self, words: Words | None = None) -> None:
        self._words = words or OsWords()

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1), from the upper 24 bits of a word each: for rounding and choices, not for noise."""
        words = self._words.take(math.prod(shape)) >> np.uint64(40)
        return ((words.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)).reshape(shape)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Refuse: in floating point it would reveal what it should hide."""
        raise TypeError("a device never draws continuous noise")

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw exactly: a float is a rational number, and taken as that."""
        return _wrapped(discrete_laplace(self._words, Fraction(float(scale)), math.prod(shape))).reshape(shape)

    def discrete_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw exactly: the variance is the square of the scale, as a rational number."""
        return _wrapped(discrete_gaussian(self._words, Fraction(float(scale)) ** 2, math.prod(shape))).reshape(shape)

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw exactly: the scale is taken as the rational number that it is."""
        return _wrapped(rounded_gaussian(self._words, Fraction(float(scale)), math.prod(shape))).reshape(shape)

    def skellam(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw exactly: the variance is the square of the scale, as a rational number."""
        return _wrapped(skellam(self._words, Fraction(float(scale)) ** 2, math.prod(shape))).reshape(shape)

    def retry(self, number: Array) -> DeviceCoins:
        """Return the same source: words are never used twice."""
        return self


def _wrapped(draws: Array) -> Array:
    """Bring draws into 32 bits, modulo 2³²: a loss of utility in one of e³⁰ draws, never of privacy."""
    low = np.array(draws % (1 << 32), np.uint32) if draws.dtype == object else draws.astype(np.uint32)
    return low.view(np.int32)
