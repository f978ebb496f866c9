"""Masks: pseudo-random words that are added to vectors and cancel, or are taken off again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.protocol.sums.packing import word_type
from crowdml.protocol.sums.secrets import Stream, derive
from crowdml.protocol.sums.terms import SumTerms

Total = npt.NDArray[Any]


def own_mask_key(secret: bytes, context: bytes) -> bytes:
    """Derive the key of a member's own mask from the secret that it has shared."""
    return derive(secret, b"own mask\0" + context)


class Masks:
    """Adds masks to a total and takes them off: as many pseudo-random words as a vector has integers.

    Args:
        terms: What is summed.
    """

    def __init__(self, terms: SumTerms) -> None:
        """Keep one buffer for all masks: fresh memory for each would cost as much as the cipher."""
        self.word = word_type(terms.bits)
        self._stream = Stream(terms.size * self.word.itemsize)

    def words(self, key: bytes) -> Total:
        """Return the mask of a key; it is overwritten by the next one."""
        return np.frombuffer(self._stream.of(key), self.word.newbyteorder("<"))

    def add(self, total: Total, key: bytes) -> None:
        """Add a mask."""
        np.add(total, self.words(key), out=total)

    def subtract(self, total: Total, key: bytes) -> None:
        """Take a mask off."""
        np.subtract(total, self.words(key), out=total)
