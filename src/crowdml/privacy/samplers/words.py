"""Words: 64-bit words of entropy, and uniform integers made from them.

The protocol that every runtime follows (a browser must draw the same numbers from the same words):

- A word is 8 bytes, read as a little-endian unsigned integer. Words are taken one after the other and never reused.
- A sampler draws for many *lanes* at once. In each round the lanes that still need a number are served in lane order.
- A uniform integer below n takes k = ⌈bits(n - 1) / 64⌉ words, at least one, the first the least significant. With
  top = ⌊2^(64k) / n⌋ · n a value of `top` or more is refused, otherwise the result is value mod n. Refused lanes draw
  again together, in lane order, after all others of the round have been served.
- Every further rule stands beside its sampler: `bernoulli`, `discrete_laplace`, `discrete_gaussian`, `poisson`,
  `skellam`, `response`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[Any]
"""int64, or Python integers (dtype object) where those might not fit."""

WORD = 1 << 64
NARROW = 1 << 62
"""Uniform integers below this are held in int64, larger ones as Python integers."""


class Words(Protocol):
    """A source of 64-bit words."""

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next `count` words."""
        ...


class OsWords:
    """Words from the operating system's entropy: the only source for noise that protects anyone."""

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Ask the operating system, in one call."""
        return np.frombuffer(os.urandom(8 * count), "<u8").astype(np.uint64, copy=False)


class GivenWords:
    """Words given in advance, for tests and vectors.

    >>> words = GivenWords([7, 8, 9])
    >>> words.take(2).tolist(), words.taken
    ([7, 8], 2)
    """

    def __init__(self, words: Sequence[int] | npt.NDArray[np.uint64]) -> None:
        """Keep the words."""
        self._words = np.asarray(words, np.uint64)
        self.taken = 0

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next words, or raise `EOFError` where there are not enough."""
        found = self._words[self.taken : self.taken + count]
        if len(found) < count:
            raise EOFError(f"{len(self._words)} words were given, more are needed")
        self.taken += count
        return found


def below(words: Words, limit: int, lanes: int) -> Integers:
    """Draw integers that are uniform on 0, …, limit - 1.

    >>> below(GivenWords([25, 3]), 10, 2).tolist()
    [5, 3]
    """
    if limit < 1:
        raise ValueError(f"no integer is at least 0 and below {limit}")
    if limit > NARROW:
        return _wide(words, limit, lanes)
    top = WORD // limit * limit
    drawn = words.take(lanes)
    if top < WORD:
        refused = np.flatnonzero(drawn >= np.uint64(top))
        if len(refused):
            drawn = drawn.copy()
        while len(refused):
            again = words.take(len(refused))
            drawn[refused] = again
            refused = refused[again >= np.uint64(top)]
    if limit & (limit - 1) == 0:
        return (drawn & np.uint64(limit - 1)).view(np.int64)
    return (drawn % np.uint64(limit)).view(np.int64)


def _wide(words: Words, limit: int, lanes: int) -> Integers:
    """Draw with Python's integers: slow, exact for any limit."""
    each = max(1, -(-(limit - 1).bit_length() // 64))
    top = (1 << 64 * each) // limit * limit
    drawn, waiting = np.zeros(lanes, object), np.arange(lanes)
    while len(waiting):
        taken = words.take(each * len(waiting)).reshape(-1, each).astype(object)
        values = functools.reduce(lambda high, low: (high << 64) | low, reversed(list(taken.T)))
        drawn[waiting] = values % limit
        waiting = waiting[np.asarray(values >= top, bool)]
    return drawn
