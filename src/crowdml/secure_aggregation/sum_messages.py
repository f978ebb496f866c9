"""Messages of a sum, and their bytes; `stages` says which belongs to which stage.

Neighbours have an order that everybody works out from the links, so a list over neighbours names nobody. Lengths follow
from terms and roster; a message of another length is refused before anything of it is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage
from crowdml.secure_aggregation.commitments import LINK_BYTES, MARK_BYTES, TAG_BYTES
from crowdml.secure_aggregation.member_keys import PUBLIC_BYTES, Card
from crowdml.secure_aggregation.roster import CARD_BYTES, HASH_BYTES, read_card, write_card
from crowdml.secure_aggregation.shamir import SHARE_BYTES

HELLO_BYTES = PUBLIC_BYTES + LINK_BYTES + HASH_BYTES + CARD_BYTES
SEALED_BYTES = 2 * SHARE_BYTES + 16
PARCEL_BYTES = SEALED_BYTES + 2 * MARK_BYTES
COMMITMENT_BYTES = 32

Items = tuple[bytes | None, ...]
"""One entry per neighbour or member, in their order; None where there is none."""

Flags = npt.NDArray[np.bool_]


@record
class Hello:
    """A member's fresh key, the tip of its chain, the hash of the broadcast that it worked on, and its card."""

    fresh: bytes
    tip: bytes
    broadcast: bytes
    card: Card

    def to_bytes(self) -> bytes:
        """Write the parts one after the other."""
        return self.fresh + self.tip + self.broadcast + write_card(self.card)

    @staticmethod
    def of(raw: bytes) -> Hello:
        """Take the parts out of a message of the right length."""
        _require(len(raw) == HELLO_BYTES)
        tip, broadcast = PUBLIC_BYTES, PUBLIC_BYTES + LINK_BYTES
        card = broadcast + HASH_BYTES
        return Hello(fresh=raw[:tip], tip=raw[tip:broadcast], broadcast=raw[broadcast:card], card=read_card(raw[card:]))


@record
class Shares:
    """A commitment to the own mask, and a parcel for each neighbour: two sealed shares, and a public mark of each."""

    commitment: bytes
    parcels: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Write the parts one after the other."""
        return self.commitment + b"".join(self.parcels)

    @staticmethod
    def of(raw: bytes, neighbours: int) -> Shares:
        """Take the parts out of a message of the right length."""
        _require(len(raw) == COMMITMENT_BYTES + neighbours * PARCEL_BYTES)
        parts = [raw[at : at + PARCEL_BYTES] for at in range(COMMITMENT_BYTES, len(raw), PARCEL_BYTES)]
        return Shares(commitment=raw[:COMMITMENT_BYTES], parcels=tuple(parts))


@record
class Mail:
    """Who has shared, and what neighbours have sent: a parcel for each, None from those who have not shared."""

    sharers: Flags
    parcels: Items

    def to_bytes(self) -> bytes:
        """Write the parts one after the other."""
        return write_flags(self.sharers) + write_items(self.parcels)

    @staticmethod
    def of(raw: bytes, members: int, neighbours: int) -> Mail:
        """Take the parts out of a message of the right length."""
        size = flag_bytes(members)
        return Mail(sharers=read_flags(raw[:size], members), parcels=read_items(raw[size:], neighbours, PARCEL_BYTES))


@record
class Survivors:
    """Whose vectors have arrived, and the tags by which surviving neighbours say who has shared."""

    flags: Flags
    tags: Items

    def to_bytes(self) -> bytes:
        """Write the parts one after the other."""
        return write_flags(self.flags) + write_items(self.tags)

    @staticmethod
    def of(raw: bytes, members: int, neighbours: int) -> Survivors:
        """Take the parts out of a message of the right length."""
        size = flag_bytes(members)
        return Survivors(flags=read_flags(raw[:size], members), tags=read_items(raw[size:], neighbours, TAG_BYTES))


@record
class Consents:
    """Who has consented to the survivors, and each one's tag for the member that reads this."""

    flags: Flags
    tags: bytes

    def to_bytes(self) -> bytes:
        """Write the parts one after the other."""
        return write_flags(self.flags) + self.tags

    @staticmethod
    def of(raw: bytes, members: int) -> Consents:
        """Take the parts out of a message of the right length."""
        size = flag_bytes(members)
        flags = read_flags(raw[:size], members)
        _require(len(raw) == size + int(flags.sum()) * TAG_BYTES)
        return Consents(flags=flags, tags=raw[size:])


def write_items(items: Sequence[bytes | None]) -> bytes:
    """Write one entry for each: a byte that says whether there is one, then those there are.

    >>> read_items(write_items([b"ab", None, b"cd"]), 3, 2)
    (b'ab', None, b'cd')
    """
    return bytes(item is not None for item in items) + b"".join(item for item in items if item is not None)


def read_items(raw: bytes, count: int, size: int) -> Items:
    """Read what `write_items` wrote."""
    flags = raw[:count]
    _require(len(flags) == count and max(flags, default=0) <= 1 and len(raw) == count + sum(flags) * size)
    parts = iter(range(count, len(raw), size))
    return tuple(raw[(at := next(parts)) : at + size] if flag else None for flag in flags)


def read_links(raw: bytes, members: int) -> Items:
    """Read everybody's links."""
    return read_items(raw, members, LINK_BYTES)


def read_shares(raw: bytes, neighbours: int) -> Items:
    """Read shares, one per neighbour at most."""
    return read_items(raw, neighbours, SHARE_BYTES)


def cut_tags(raw: bytes) -> list[bytes]:
    """Cut a list of tags into its entries."""
    _require(len(raw) % TAG_BYTES == 0)
    return [raw[at : at + TAG_BYTES] for at in range(0, len(raw), TAG_BYTES)]


def flag_bytes(members: int) -> int:
    """Return the bytes of one bit per member."""
    return -(-members // 8)


def write_flags(flags: Flags) -> bytes:
    """Write a bit per member, in the roster's order."""
    return np.packbits(flags, bitorder="little").tobytes()


def read_flags(raw: bytes, members: int) -> Flags:
    """Read a bit per member."""
    _require(len(raw) == flag_bytes(members))
    flags = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little").astype(bool)
    _require(not flags[members:].any())
    return flags[:members]


def _require(right: bool) -> None:
    if not right:
        raise MalformedMessage("the message does not have the length that terms and roster give it")
