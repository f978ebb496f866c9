"""Masked vectors: the pseudo-random words that hide them, which cancel or are taken off again; and their bytes.

Packed, integers modulo 2^m take m bits each, not a whole word. The format: values stand in as many rows as a word has
bits (32 up to m = 32, else 64), one after the other, the last ones padded by zeros. All rows are equally long, and
column by column the values form m words: value r of a column takes the bits from r·m on, the least significant first.
Words are little-endian, first words first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import MalformedMessage
from crowdml.secure_aggregation.member_keys import Stream, derive

Words = npt.NDArray[Any]
LARGEST_BITS = 62


def word_type(bits: int) -> np.dtype[Any]:
    """Return the type in which values modulo 2^bits are worked with; sums wrap in it, which changes nothing mod 2^bits.

    >>> word_type(26)
    dtype('uint32')
    """
    if not 1 <= bits <= LARGEST_BITS:
        raise ValueError(f"a modulus has from 1 to {LARGEST_BITS} bits, not {bits}")
    return np.dtype(np.uint32 if bits <= 32 else np.uint64)


def packed_size(size: int, bits: int) -> int:
    """Return the bytes that so many values take."""
    word = word_type(bits)
    return -(-size // (8 * word.itemsize)) * bits * word.itemsize


def pack(values: Words, bits: int) -> bytes:
    """Write values, whose bits beyond the modulus are dropped.

    >>> unpack(pack(np.array([5, 6, 7], np.uint32), 3), 3, 3).tolist()
    [5, 6, 7]
    """
    word = word_type(bits)
    lanes = 8 * word.itemsize
    columns = -(-len(values) // lanes)
    rows = np.zeros((lanes, columns), word)
    rows.reshape(-1)[: len(values)] = values & word.type((1 << bits) - 1)
    packed = np.zeros((bits, columns), word)
    for row in range(lanes):
        at, shift = divmod(row * bits, lanes)
        packed[at] |= rows[row] << word.type(shift)
        if shift + bits > lanes:
            packed[at + 1] |= rows[row] >> word.type(lanes - shift)
    return packed.astype(word.newbyteorder("<"), copy=False).tobytes()


def unpack(body: bytes, size: int, bits: int) -> Words:
    """Read values; a body of another length, or with bits set where there are no values, is refused."""
    word = word_type(bits)
    if len(body) != packed_size(size, bits):
        raise MalformedMessage(f"{len(body)} bytes, where {size} values of {bits} bits take {packed_size(size, bits)}")
    lanes = 8 * word.itemsize
    packed = np.frombuffer(body, word.newbyteorder("<")).reshape(bits, -1)
    rows = np.empty((lanes, packed.shape[1]), word)
    for row in range(lanes):
        at, shift = divmod(row * bits, lanes)
        np.right_shift(packed[at], word.type(shift), out=rows[row])
        if shift + bits > lanes:
            rows[row] |= packed[at + 1] << word.type(lanes - shift)
    rows &= word.type((1 << bits) - 1)
    values = rows.reshape(-1)
    if values[size:].any():
        raise MalformedMessage("there are bits beyond the last value")
    return values[:size]


def centred(total: Words, bits: int) -> npt.NDArray[np.int64]:
    """Take an unmasked sum modulo 2^bits, between -2^(bits-1) and 2^(bits-1).

    >>> centred(np.array([1, 7, 12], np.uint32), 3).tolist()
    [1, -1, -4]
    """
    modulus = 1 << bits
    found: npt.NDArray[np.int64] = (total & total.dtype.type(modulus - 1)).astype(np.int64)
    found[found >= modulus >> 1] -= modulus
    return found


def own_mask_key(secret: bytes, context: bytes) -> bytes:
    """Derive the key of a member's own mask from the secret that it has shared."""
    return derive(secret, b"own mask\0" + context)


class Masks:
    """Adds masks to a total and takes them off: as many pseudo-random words as a vector has integers.

    Args:
        size: Integers in a vector.
        bits: They are summed modulo 2^bits.
    """

    def __init__(self, size: int, bits: int) -> None:
        self.word = word_type(bits)
        # One buffer for all masks: fresh memory for each would cost as much as the cipher.
        self._stream = Stream(size * self.word.itemsize)

    def words(self, key: bytes) -> Words:
        """Return the mask of a key; it is overwritten by the next one."""
        return np.frombuffer(self._stream.of(key), self.word.newbyteorder("<"))

    def add(self, total: Words, key: bytes) -> None:
        """Add a mask."""
        np.add(total, self.words(key), out=total)

    def subtract(self, total: Words, key: bytes) -> None:
        """Take a mask off."""
        np.subtract(total, self.words(key), out=total)
