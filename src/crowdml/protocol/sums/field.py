"""Arithmetic modulo the prime 2³¹ - 1, for whole arrays: products of two elements fit into 64 bits.

A secret of 32 bytes becomes nine elements of 30 bits each, so every element of the field that a secret uses is below
the prime, and a share is nine elements too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

PRIME = (1 << 31) - 1
SECRET_BYTES = 32
LIMB_BITS = 30
LIMBS = -(-8 * SECRET_BYTES // LIMB_BITS)
"""Elements of a secret."""

Elements: TypeAlias = npt.NDArray[np.uint64]
Entropy = Callable[[int], bytes]
"""`entropy(count)`: so many random bytes."""

_P = np.uint64(PRIME)
_MASK = (1 << LIMB_BITS) - 1


def multiply(a: Any, b: Any) -> Elements:
    """Multiply elements.

    >>> int(multiply(np.uint64(PRIME - 1), np.uint64(PRIME - 1)))
    1
    """
    return np.asarray(np.multiply(a, b, dtype=np.uint64) % _P)


def subtract(a: Any, b: Any) -> Elements:
    """Subtract elements."""
    return np.asarray((np.asarray(a, np.uint64) + (_P - np.asarray(b, np.uint64))) % _P)


def invert(a: Elements) -> Elements:
    """Return what multiplies with an element to 1: a^(p-2). Zero has no inverse and stays zero."""
    found, power, exponent = np.ones_like(a), a, PRIME - 2
    while exponent:
        if exponent & 1:
            found = multiply(found, power)
        power = multiply(power, power)
        exponent >>= 1
    return found


def draw(entropy: Entropy, count: int) -> Elements:
    """Draw elements that are uniform on 0, …, p - 1: 31 bits each, the one value too many drawn again."""
    drawn = np.frombuffer(entropy(4 * count), "<u4").astype(np.uint64) & _P
    while len(again := np.flatnonzero(drawn == _P)):
        drawn[again] = np.frombuffer(entropy(4 * len(again)), "<u4").astype(np.uint64) & _P
    return drawn


def to_limbs(secret: bytes) -> Elements:
    """Cut a secret into elements, the least significant first."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    value = int.from_bytes(secret, "little")
    return np.array([value >> LIMB_BITS * at & _MASK for at in range(LIMBS)], np.uint64)


def from_limbs(limbs: Elements) -> bytes | None:
    """Put a secret together again; None where the elements are those of no secret.

    >>> from_limbs(to_limbs(bytes(range(32)))) == bytes(range(32))
    True
    """
    value = sum(int(limb) << LIMB_BITS * at for at, limb in enumerate(limbs))
    if int(limbs.max()) > _MASK or value >> 8 * SECRET_BYTES:
        return None
    return value.to_bytes(SECRET_BYTES, "little")
