"""How often each sample of a device was used in one task."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record

MOST = 1 << 31
"""Samples are numbers below this: the chain hashes them as 32-bit integers."""


@record
class Numbering:
    """Which sample has which number, as a hash: whoever lost some of it cannot pass for whoever has it all.

    Attributes:
        count: How many samples have a number.
        hash: Over all of them in the order of their numbers, in hexadecimal.
    """

    count: int
    hash: str


class UsesState:
    """Counts by sample. Releases are added as packed numbers and counted when somebody asks: reading many is quick.

    >>> uses = UsesState()
    >>> uses.add(packed(np.array([0, 2])))
    >>> uses.add(packed(np.array([2])))
    >>> uses.most(), uses.of(np.array([0, 7]))
    (2, 1)
    >>> uses.forget()
    >>> uses.of(np.array([7]))
    2

    Attributes:
        floor: Uses that every sample counts with, whatever its number.
    """

    def __init__(self) -> None:
        """Begin with nothing used."""
        self.floor = 0
        self._counts = np.zeros(0, np.int64)
        self._waiting: list[bytes] = []

    def add(self, numbers: bytes) -> None:
        """Add one release."""
        if numbers:
            self._waiting.append(numbers)

    def most(self) -> int:
        """Return the uses of the most used sample."""
        return self.floor + int(self.counts().max(initial=0))

    def of(self, samples: npt.NDArray[Any]) -> int:
        """Return the uses of the most used of these samples."""
        return int(self.each(samples).max(initial=0))

    def each(self, samples: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the uses of each of these samples."""
        counts = self.counts()
        found = np.full(len(samples), self.floor, np.int64)
        known = samples < len(counts)
        found[known] += counts[samples[known]]
        return found

    def forget(self) -> None:
        """Forget which sample has which number: from now on any may be the most used one, and counts as such."""
        self.floor, self._counts = self.most(), np.zeros(0, np.int64)

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the uses of every sample above the floor, by its number; those beyond the end have none."""
        if self._waiting:
            numbers = np.frombuffer(b"".join(self._waiting), "<i4")
            self._waiting.clear()
            if len(numbers) < len(self._counts) // 8 and numbers.max() < len(self._counts):
                np.add.at(self._counts, numbers, 1)
                return self._counts
            more = np.bincount(numbers, minlength=len(self._counts))
            more[: len(self._counts)] += self._counts
            self._counts = more
        return self._counts


def packed(samples: npt.NDArray[Any]) -> bytes:
    """Write numbers of samples as the chain hashes them: little-endian, 32 bits each."""
    return np.asarray(samples).astype("<i4").tobytes()
