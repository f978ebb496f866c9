"""Coins of the simulation: a counter hash, the same in NumPy and in compiled code.

Every draw is a pure function of (seed, address, stage, coordinate), where the address is a check-in or a row. So a
trial can be resumed, replayed or driven step by step and meets the same noise, and compiled code needs no generator
state. Not for devices: a hash of a public seed hides nothing.

Nearly all of the cost of a noise draw is its logarithm. A polynomial on the mantissa halves it, and NumPy and compiled
code then agree to the last bits. Errors are below 3e-7 absolute, far below what noise could show.
"""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any

import numpy as np

from crowdml.core import Array, Ops

_GOLDEN = np.uint32(0x9E3779B9)
_FIRST, _SECOND = np.uint32(0x21F0AAAD), np.uint32(0x735A2D97)

MOST_CONSTANT = 1 << 16
"""Coordinates up to which their numbers are a constant of compiled programs."""


def _mix(h: Array) -> Array:
    """Scramble 32 bits (a finaliser of the lowbias32 family): a bijection in which every bit affects every bit."""
    h = (h ^ (h >> np.uint32(16))) * _FIRST
    h = (h ^ (h >> np.uint32(15))) * _SECOND
    return h ^ (h >> np.uint32(15))


class HashCoins:
    """Draws for one check-in of one trial, or for many addresses at once. Implements `Coins`.

    Args:
        seed: Two 32-bit words, shape (2,).
        address: Number of the check-in; may be traced. An array of addresses gives draws for each of them, with the
            shape of the array in front.
        ops: Array operations.
    """

    def __init__(self, seed: Array, address: Array, ops: Ops) -> None:
        """Take seed and address."""
        self._ops, self._seed = ops, seed
        self._number = ops.xp.asarray(address, dtype=ops.xp.uint32)
        self._front = self._number.shape

    @functools.cached_property
    def _keys(self) -> tuple[Array, Array]:
        """Fold the seed and the address into two independent keys: one alone would repeat within a long run."""
        seed, number = self._seed, self._number[..., None]
        return _mix(seed[0:1] + _GOLDEN) ^ number, _mix(seed[1:2] ^ (number * np.uint32(0x85EBCA6B)))

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1); 24 bits, as many as float32 holds exactly below 1, and a half to keep 0 and 1 away."""
        words = self._words(stage, math.prod(shape), 0) >> np.uint32(8)
        return self._shaped((words.astype(np.int32).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24), shape)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Laplace: the top bit is the sign, the others make an exponential."""
        words = self._words(stage, math.prod(shape), 0)
        size = self._ops.bits(self._exponential(words), np.uint32)
        return self._shaped(self._ops.bits(size ^ (words & np.uint32(0x80000000)), np.float32), shape)

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Gaussian as √(2E) sin(πu) with E exponential: one half of Box and Muller's formula."""
        size = math.prod(shape)
        turn = self._ops.bits(self._words(stage, size, 1), np.int32).astype(np.float32) * np.float32(2.0**-31)
        radius = self._ops.xp.sqrt(np.float32(2) * self._exponential(self._words(stage, size, 0)))
        return self._shaped(radius * _sine_of_quarter_turns(turn), shape)

    def discrete_laplace(self, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
        """Discrete Laplace as the difference of two geometric draws."""
        xp, size = self._ops.xp, math.prod(shape)
        first, second = (
            xp.floor(self._exponential(self._words(stage, size, half)) * xp.float32(scale)).astype(np.int32)
            for half in (0, 1)
        )
        return self._shaped(first - second, shape)

    def discrete_gaussian(self, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
        """Discrete Gaussian as a rounded Gaussian whose variance is less by the 1/12 that rounding adds.

        The total variation distance between the two laws is below 5e-4/σ⁴ for σ ≥ 3: less than 2e-6 at σ = 4, the least
        outside of sums, and 1e-8 from 16 on. At σ = 2, the least share of a masked sum, it is 3.3e-5.
        (Probabilities differ by a 2880th of the density's fourth derivative.) In float32 a draw is off by 5e-7 σ on
        average before it is rounded.
        """
        xp = self._ops.xp
        wide = xp.sqrt(xp.maximum(xp.float32(scale) ** 2 - np.float32(1 / 12), np.float32(0)))
        return xp.floor(self.gaussian(stage, shape) * wide + np.float32(0.5)).astype(np.int32)

    def rounded_gaussian(self, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
        """Rounded Gaussian, as its law is, at any scale: in float32 a draw is off by 5e-7 σ before it is rounded."""
        xp = self._ops.xp
        return xp.floor(self.gaussian(stage, shape) * xp.float32(scale) + np.float32(0.5)).astype(np.int32)

    def skellam(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Skellam by inversion of a table in steps of 2^-32: the law is right but for one draw in 100,000."""
        first, table = _skellam_table(float(scale))
        words = self._words(stage, math.prod(shape), 0)
        found = self._ops.xp.searchsorted(self._ops.xp.asarray(table), words, side="right")
        return self._shaped((found + first).astype(np.int32), shape)

    def retry(self, number: Array) -> HashCoins:
        """Mix the number into both keys."""
        made = object.__new__(HashCoins)
        made._ops, made._front = self._ops, self._front
        more = _mix(self._ops.xp.asarray(number, dtype=self._ops.xp.uint32)[None] * _GOLDEN + np.uint32(1))
        made._keys = self._keys[0] ^ more, self._keys[1] + more
        return made

    def _exponential(self, words: Array) -> Array:
        """Exponential draws from the lower 31 bits; never negative."""
        drawn = _minus_log_of_31_bits((words & np.uint32(0x7FFFFFFF)) | np.uint32(1), self._ops)
        return self._ops.xp.maximum(drawn, np.float32(0))

    def _words(self, stage: str, count: int, half: int) -> Array:
        """One keyed round per coordinate, the second key word injected in its middle."""
        name = np.uint32(zlib.crc32(f"{stage}/{half}".encode()))
        first, second = (_mix(key + name) for key in self._keys)
        # A program would hold a constant as it is: few numbers are sooner read, many sooner counted.
        xp = self._ops.xp if count > MOST_CONSTANT else np
        h = (xp.arange(count, dtype=np.uint32) * _GOLDEN) ^ first
        h = (h ^ (h >> np.uint32(16))) * _FIRST
        h = ((h ^ (h >> np.uint32(15))) + second) * _SECOND
        return h ^ (h >> np.uint32(15))

    def _shaped(self, draws: Array, shape: tuple[int, ...]) -> Array:
        return draws.reshape(self._front + shape)


@functools.lru_cache(maxsize=8)
def _skellam_table(scale: float) -> tuple[int, np.ndarray[Any, np.dtype[np.uint32]]]:
    """Return the first value and ⌊2³² P(X ≤ k)⌋ for it and all values up to the last but one."""
    from scipy.special import ive

    widest = math.ceil(7 * scale + 20)
    values = np.arange(-widest, widest + 1)
    chances = ive(np.abs(values), scale**2)  # exp(-v)·I_|k|(v)
    reached = np.cumsum(chances / chances.sum())[:-1]
    return -widest, np.minimum(np.floor(reached * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _fitted(degree: int, target: Array, nodes: Array, powers: Array) -> tuple[np.float32, ...]:
    """Fit by least squares at Chebyshev nodes, which is close to the best polynomial."""
    solved = np.linalg.lstsq(np.vander(powers, degree + 1, increasing=True), target(nodes), rcond=None)[0]
    return tuple(np.float32(coefficient) for coefficient in solved)


_NODES = (np.cos(np.pi * (np.arange(4001) + 0.5) / 4001) + 1) / 2
_LOG = _fitted(7, lambda x: np.log1p(x) - x * np.log(2), _NODES, _NODES)
_SINE = _fitted(5, lambda x: np.sin(np.pi / 2 * x) / x, _NODES, _NODES**2)


def _evaluate(coefficients: tuple[np.float32, ...], x: Array) -> Array:
    """Evaluate by Estrin's scheme, which has short chains of dependent operations."""
    terms = list(coefficients)
    power = x
    while len(terms) > 1:
        pairs = [terms[i] + terms[i + 1] * power if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
        terms, power = pairs, power * power
    return terms[0]


def _minus_log_of_31_bits(words: Array, ops: Ops) -> Array:
    """Return -log(words / 2³¹) for words from 1 to 2³¹-1: exponent and mantissa of the float, one polynomial."""
    bits = ops.bits(words.astype(np.int32).astype(np.float32), np.int32)
    mantissa = ops.bits((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000), np.float32) - np.float32(1)
    linear = (np.int32(158 << 23) - bits).astype(np.float32) * np.float32(np.log(2) / 2**23)
    return linear - _evaluate(_LOG, mantissa)


def _sine_of_quarter_turns(t: Array) -> Array:
    """Return sin(π t / 2) for t in [-1, 1]."""
    return t * _evaluate(_SINE, t * t)


def trial_seed(seed: int, trial: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the two words that make one trial's coins."""
    return np.random.SeedSequence([seed, trial]).generate_state(2, np.uint32).astype(np.uint32)
