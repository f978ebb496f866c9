"""Masks: pseudo-random words that are added to vectors and cancel, or are taken off again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdml.protocol.sums.packing import word_type
from crowdml.protocol.sums.secrets import derive, stream
from crowdml.protocol.sums.terms import SumTerms

Mask = npt.NDArray[np.unsignedinteger]


def own_mask_key(secret: bytes, context: bytes) -> bytes:
    """Derive the key of a member's own mask from the secret that it has shared."""
    return derive(secret, b"own mask\0" + context)


def mask_words(key: bytes, terms: SumTerms) -> Mask:
    """Return a mask: as many pseudo-random words as a vector has integers."""
    word = word_type(terms.bits)
    return np.frombuffer(stream(key, terms.size * word.itemsize), word.newbyteorder("<"))
