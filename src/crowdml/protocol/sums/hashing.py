"""Hashes and tags: what members compare, commit themselves to, and vouch for."""

from __future__ import annotations

import hashlib
import hmac
import struct

TAG_BYTES = 16
MARK_BYTES = 16
_COUNTED = [struct.Struct(f"<{count}Q") for count in range(4)]


def digest(*parts: bytes) -> bytes:
    """Hash parts so that no two lists of parts look alike."""
    return hashlib.sha256(
        b"crowdml sums 2\0" + b"".join([len(part).to_bytes(8, "little") + part for part in parts])
    ).digest()


def tag(key: bytes, sender: int, receiver: int, content: bytes) -> bytes:
    """Return a short tag that proves to the receiver who sent a content."""
    return hmac.digest(key, numbers(sender, receiver) + content, "sha256")[:TAG_BYTES]


def mark(context: bytes, dealer: int, holder: int, kind: int, share: bytes) -> bytes:
    """Return the public mark of a share: whoever deals or reveals another one is found out.

    It hides the share, which has 270 random bits, and to find another share with the same mark takes 2^128 tries.
    """
    return hashlib.sha256(b"crowdml share\0" + context + numbers(dealer, holder, kind) + share).digest()[:MARK_BYTES]


def numbers(*given: int) -> bytes:
    """Write up to three numbers, eight bytes each."""
    return _COUNTED[len(given)].pack(*given)
