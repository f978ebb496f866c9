"""Commitments: what members compare, vouch for, and cannot change their mind about. Hashes, tags, marks and chains.

*The order of the circle*: every member has a part in it, and nobody can choose it. With its hello a member commits
itself to a chain of links, each the hash of the one before; the last is the tip. Once the roster stands, with all tips
in it, everybody opens a link. The seed of the circle is the hash of the roster and of *all* links of that layer. So
whoever picks last, the server too, has picked before it could know the seed.

If some do not open their link they leave the roster, and the others open the next one. A server that dislikes a seed
can call somebody silent and try again: as often as a chain has links, and the graph's bounds count on that.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence

from crowdml.secure_aggregation.shamir import SECRET_BYTES, Entropy

TAG_BYTES = 16
MARK_BYTES = 16
LAYERS = 8
"""Links of a chain: tries at most until everybody has opened."""
LINK_BYTES = 32
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


class Chain:
    """A member's chain of links.

    Args:
        entropy: Random bytes.
    """

    def __init__(self, entropy: Entropy) -> None:
        """Draw the end of the chain and hash it up to the tip."""
        links = [entropy(SECRET_BYTES)]
        for _ in range(LAYERS):
            links.append(_hashed(links[-1]))
        self.tip, self._links = links[-1], links[-2::-1]

    def link(self, layer: int) -> bytes:
        """Return the link of a layer, the first being 0."""
        return self._links[layer]


def is_link(link: bytes, layer: int, tip: bytes) -> bool:
    """Tell whether a link is the one that a member had committed itself to.

    >>> import os
    >>> chain = Chain(os.urandom)
    >>> is_link(chain.link(2), 2, chain.tip), is_link(chain.link(1), 2, chain.tip)
    (True, False)
    """
    for _ in range(layer + 1):
        link = _hashed(link)
    return hmac.compare_digest(link, tip)


def seed_of(context: bytes, links: Sequence[bytes]) -> bytes:
    """Return the seed of the circle."""
    return digest(b"circle", context, *links)


def _hashed(link: bytes) -> bytes:
    return digest(b"link", link)
