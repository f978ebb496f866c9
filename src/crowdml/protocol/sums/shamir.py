"""Shamir's secret sharing: any `threshold` of the shares give the secrets back, fewer say nothing about them.

A secret is the value at 0 of a random polynomial of degree `threshold - 1`; a share is its value at the holder's point.
Each element of a secret has a polynomial of its own, and all of them are worked out together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crowdml.protocol.sums.field import LIMBS, PRIME, Elements, Entropy, draw, from_limbs, invert, multiply, subtract
from crowdml.protocol.sums.field import to_limbs as to_limbs

SHARE_BYTES = 4 * LIMBS


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
    own = np.stack([to_limbs(secret) for secret in secrets])
    coefficients = draw(entropy, (threshold - 1) * own.size).reshape(threshold - 1, *own.shape)
    at = np.asarray(points, np.uint64)[:, None, None]
    values = np.zeros((len(points), *own.shape), np.uint64)
    for coefficient in (*coefficients, own):
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
