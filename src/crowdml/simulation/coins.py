"""Coins of the simulation: a counter hash, the same in NumPy and in compiled code.

Every draw is a pure function of (seed, check-in, stage, coordinate). So a trial can be resumed, replayed or driven
step by step and meets the same noise, and compiled code needs no generator state. Not for devices: a hash of a
public seed hides nothing.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from crowdml.core import Array, Ops

_GOLDEN = 0x9E3779B9


def _mix(x: Array, xp: Any) -> Array:
    """Scramble 32 bits (the finaliser known as lowbias32): a bijection in which every bit affects every bit."""
    x = (x ^ (x >> xp.uint32(16))) * xp.uint32(0x7FEB352D)
    x = (x ^ (x >> xp.uint32(15))) * xp.uint32(0x846CA68B)
    return x ^ (x >> xp.uint32(16))


class HashCoins:
    """Draws for one check-in of one trial, or for many addresses at once. Implements `Coins`.

    Args:
        seed: Two 32-bit words, shape (2,).
        address: Number of the check-in; may be traced. An array of addresses gives draws for each of them, with the
            shape of the array in front.
        ops: Array operations.
    """

    def __init__(self, seed: Array, address: Array, ops: Ops) -> None:
        """Fold the seed and the address into two keys."""
        xp = self._xp = ops.xp
        number = xp.asarray(address, dtype=xp.uint32)
        self._front = number.shape
        number = number[..., None]
        first = _mix(number + seed[0:1], xp)
        self._keys = _mix(first ^ seed[1:2], xp), _mix(first + xp.uint32(_GOLDEN), xp)

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1)."""
        return self._shaped(self._unit(self._words(stage, math.prod(shape), 0)), shape)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Laplace by inversion: the top bit is the sign, the others make an exponential."""
        xp = self._xp
        words = self._words(stage, math.prod(shape), 0)
        half = (words & xp.uint32(0x7FFFFFFF)).astype(xp.int32).astype(xp.float32)
        size = -xp.log((half + xp.float32(0.5)) * xp.float32(2.0**-31))
        return self._shaped(xp.where(words >> xp.uint32(31) == 0, size, -size), shape)

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Gaussian by Box and Muller's formula, both halves used."""
        xp = self._xp
        size = math.prod(shape)
        pairs = (size + 1) // 2
        radius = xp.sqrt(xp.float32(-2) * xp.log(self._unit(self._words(stage, pairs, 0))))
        angle = self._unit(self._words(stage, pairs, 1)) * xp.float32(2 * math.pi)
        both = xp.concatenate([radius * xp.cos(angle), radius * xp.sin(angle)], axis=-1)
        return self._shaped(both[..., :size], shape)

    def discrete_laplace(self, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
        """Discrete Laplace as the difference of two geometric draws."""
        size = math.prod(shape)
        draws = [self._geometric(self._words(stage, size, half), scale) for half in (0, 1)]
        return self._shaped(draws[0] - draws[1], shape)

    def _shaped(self, draws: Array, shape: tuple[int, ...]) -> Array:
        return draws.reshape(self._front + shape)

    def _geometric(self, words: Array, scale: Array) -> Array:
        xp = self._xp
        return xp.floor(-xp.log(self._unit(words)) * xp.float32(scale)).astype(xp.int32)

    def _unit(self, words: Array) -> Array:
        # 24 bits are what float32 holds exactly below 1; the half keeps 0 and 1 away.
        xp = self._xp
        high = (words >> xp.uint32(8)).astype(xp.int32).astype(xp.float32)
        return (high + xp.float32(0.5)) * xp.float32(2.0**-24)

    def _words(self, stage: str, count: int, half: int) -> Array:
        xp = self._xp
        name = xp.uint32(zlib.crc32(f"{stage}/{half}".encode()))
        counter = xp.arange(count, dtype=xp.uint32) * xp.uint32(_GOLDEN)
        return _mix(_mix(counter + (self._keys[0] ^ name), xp) + self._keys[1], xp)


def trial_seed(seed: int, trial: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the two words that make one trial's coins."""
    return np.random.SeedSequence([seed, trial]).generate_state(2, np.uint32).astype(np.uint32)
