"""Shamir's secret sharing: any `threshold` of the shares give the secrets back, fewer say nothing about them.

A secret is the value at 0 of a random polynomial of degree `threshold - 1`; a share is its value at the holder's point.
Each element of a secret has a polynomial of its own, and all of them are worked out together.

Elements are those of the field modulo the prime 2³¹ - 1, in whole arrays: products of two of them fit into 64 bits. A
secret of 32 bytes becomes nine elements of 30 bits each, all below the prime, and a share is nine elements too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

PRIME = (1 << 31) - 1
SECRET_BYTES = 32
LIMB_BITS = 30
LIMBS = -(-8 * SECRET_BYTES // LIMB_BITS)
"""Elements of a secret."""
SHARE_BYTES = 4 * LIMBS

Elements: TypeAlias = npt.NDArray[np.uint64]
Entropy = Callable[[int], bytes]
"""`entropy(count)`: so many random bytes."""

_P = np.uint64(PRIME)
_MASK = (1 << LIMB_BITS) - 1


def split(secrets: Sequence[bytes], points: Elements, threshold: int, entropy: Entropy) -> Elements:
    """Make shares, shape (points, secrets, limbs).

    Args:
        secrets: 32 bytes each.
        points: Where the holders' shares are taken, each once and none of them zero.
        threshold: Shares that give a secret back.
        entropy: Random bytes.
    """
    _require_points(points)
    if not 1 <= threshold <= len(points):
        raise ValueError(f"a threshold of {threshold} for {len(points)} shares")
    limbs = np.stack([to_limbs(secret) for secret in secrets])
    coefficients = draw(entropy, (threshold - 1) * limbs.size).reshape(threshold - 1, *limbs.shape)
    at = np.asarray(points, np.uint64)[:, None, None]
    values = np.zeros((len(points), *limbs.shape), np.uint64)
    for coefficient in (*coefficients, limbs):
        values = (values * at + coefficient) % np.uint64(PRIME)
    return values


def join(points: Elements, shares: Elements) -> list[bytes | None]:
    """Give many secrets back at once, each from as many shares as its threshold.

    Args:
        points: Shape (secrets, threshold); within a row all differ and none is zero.
        shares: Shape (secrets, threshold, limbs).

    Returns:
        The secrets; None where the shares are not those of any.
    """
    weights = at_zero(points)
    total = np.zeros((len(points), shares.shape[2]), np.uint64)
    for at in range(points.shape[1]):
        total = (total + multiply(weights[:, at, None], shares[:, at])) % np.uint64(PRIME)
    return [from_limbs(limbs) for limbs in total]


def at_zero(points: Elements) -> Elements:
    """Return Lagrange's weights: with them the values at the points add up to the value at 0.

    >>> at_zero(np.array([[1, 2]], np.uint64)).tolist() == [[2, PRIME - 1]]
    True
    """
    above = np.ones_like(points)
    below = np.ones_like(points)
    for at in range(points.shape[1]):
        other = points[:, at, None]
        difference = subtract(other, points)
        difference[:, at] = 1
        factor = np.broadcast_to(other, points.shape).copy()
        factor[:, at] = 1
        above, below = multiply(above, factor), multiply(below, difference)
    return multiply(above, invert(below))


def to_bytes(share: Elements) -> bytes:
    """Write one share."""
    return share.astype("<u4").tobytes()


def are_shares(raw: bytes) -> bool:
    """Tell whether bytes are those of shares, one after the other."""
    return len(raw) % SHARE_BYTES == 0 and bool((np.frombuffer(raw, "<u4") < PRIME).all())


def _require_points(points: Elements) -> None:
    if len(np.unique(points)) != len(points) or not all(0 < int(point) < PRIME for point in points):
        raise ValueError("points must differ, and none may be zero or beyond the field")


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
