"""The order of the circle: every member has a part in it, and nobody can choose it.

With its hello a member commits itself to a chain of links, each the hash of the one before; the last is the tip. Once
the roster stands, with all tips in it, everybody opens a link. The seed of the circle is the hash of the roster and of
*all* links of that layer. So whoever picks last, the server too, has picked before it could know the seed.

If some do not open their link they leave the roster, and the others open the next one. A server that dislikes a seed
can call somebody silent and try again: as often as a chain has links, and the graph's bounds count on that.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from crowdml.protocol.sums.field import SECRET_BYTES, Entropy
from crowdml.protocol.sums.hashing import digest

LAYERS = 8
"""Links of a chain: tries at most until everybody has opened."""
LINK_BYTES = 32


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
