"""Messages of a masked sum, and their bytes.

    device → server                      server → device
    hello      fresh key, card           introduction   roster, cards of the neighbours
    shares     sealed, per neighbour     mail           what neighbours have sealed for this member
    masked     the vector, masked        survivors      whose vectors have arrived
    consent    a tag per neighbour       consents       what neighbours say of the survivors
    reveal     one share per neighbour

Neighbours have an order that everybody works out from the roster, so a list over neighbours names nobody. Lengths
follow from terms and roster; a message of another length is refused before anything of it is looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage
from crowdml.protocol.keys import KEY_BYTES, SIGNATURE_BYTES
from crowdml.protocol.sums.secrets import PUBLIC_BYTES, TAG_BYTES, Card, digest
from crowdml.protocol.sums.shamir import SHARE_BYTES

CARD_BYTES = KEY_BYTES + PUBLIC_BYTES + SIGNATURE_BYTES
HELLO_BYTES = PUBLIC_BYTES + CARD_BYTES
SEALED_BYTES = 2 * SHARE_BYTES + 16
COMMITMENT_BYTES = 32
_HEAD = struct.Struct("<QQI")
_MEMBER = struct.Struct(f"<I{PUBLIC_BYTES}s")

Items = tuple[bytes | None, ...]
"""One entry per neighbour, in their order; None for a neighbour that has none."""

Flags = npt.NDArray[np.bool_]


@record
class Hello:
    """A member's fresh key and its card."""

    fresh: bytes
    card: Card

    def to_bytes(self) -> bytes:
        """Write."""
        return self.fresh + write_card(self.card)

    @staticmethod
    def of(raw: bytes) -> Hello:
        """Read."""
        _require(len(raw) == HELLO_BYTES)
        return Hello(fresh=raw[:PUBLIC_BYTES], card=read_card(raw[PUBLIC_BYTES:]))


@record
class Roster:
    """Who takes part: slots in ascending order, and their fresh keys."""

    version: int
    attempt: int
    slots: tuple[int, ...]
    fresh: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Write."""
        head = _HEAD.pack(self.version, self.attempt, len(self.slots))
        return head + b"".join(map(_MEMBER.pack, self.slots, self.fresh))

    def context(self, task: str) -> bytes:
        """Name this attempt: every key of it is bound to this."""
        return digest(b"roster", task.encode(), self.to_bytes())


@record
class Introduction:
    """The roster, and the cards of a member's neighbours."""

    roster: Roster
    cards: tuple[Card, ...]

    def to_bytes(self) -> bytes:
        """Write."""
        return self.roster.to_bytes() + b"".join(map(write_card, self.cards))

    @staticmethod
    def of(raw: bytes) -> Introduction:
        """Read."""
        _require(len(raw) >= _HEAD.size)
        version, attempt, count = _HEAD.unpack_from(raw)
        begin = _HEAD.size + count * _MEMBER.size
        _require(len(raw) >= begin and (len(raw) - begin) % CARD_BYTES == 0)
        members = list(_MEMBER.iter_unpack(raw[_HEAD.size : begin]))
        roster = Roster(
            version=version,
            attempt=attempt,
            slots=tuple(slot for slot, _ in members),
            fresh=tuple(fresh for _, fresh in members),
        )
        cards = [read_card(raw[at : at + CARD_BYTES]) for at in range(begin, len(raw), CARD_BYTES)]
        return Introduction(roster=roster, cards=tuple(cards))


@record
class Shares:
    """A commitment to the own mask, and a pair of sealed shares for each neighbour."""

    commitment: bytes
    sealed: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Write."""
        return self.commitment + b"".join(self.sealed)

    @staticmethod
    def of(raw: bytes, neighbours: int) -> Shares:
        """Read."""
        _require(len(raw) == COMMITMENT_BYTES + neighbours * SEALED_BYTES)
        parts = [raw[at : at + SEALED_BYTES] for at in range(COMMITMENT_BYTES, len(raw), SEALED_BYTES)]
        return Shares(commitment=raw[:COMMITMENT_BYTES], sealed=tuple(parts))


def write_items(items: Sequence[bytes | None]) -> bytes:
    """Write one entry per neighbour: a byte each that says whether there is one, then those there are.

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


def read_mail(raw: bytes, neighbours: int) -> Items:
    """Read what neighbours have sealed."""
    return read_items(raw, neighbours, SEALED_BYTES)


def read_tags(raw: bytes, neighbours: int) -> Items:
    """Read tags over survivors."""
    return read_items(raw, neighbours, TAG_BYTES)


def read_shares(raw: bytes, neighbours: int) -> Items:
    """Read shares, one per neighbour at most."""
    return read_items(raw, neighbours, SHARE_BYTES)


def write_flags(flags: Flags) -> bytes:
    """Write who has survived: a bit per member, in the roster's order."""
    return np.packbits(flags, bitorder="little").tobytes()


def read_flags(raw: bytes, members: int) -> Flags:
    """Read who has survived."""
    _require(len(raw) == -(-members // 8))
    flags = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little").astype(bool)
    _require(not flags[members:].any())
    return flags[:members]


def write_card(card: Card) -> bytes:
    """Write a card."""
    return card.identity + card.lasting + card.signature


def read_card(raw: bytes) -> Card:
    """Read a card; the signature is not checked yet."""
    _require(len(raw) == CARD_BYTES)
    return Card(
        identity=raw[:KEY_BYTES],
        lasting=raw[KEY_BYTES : KEY_BYTES + PUBLIC_BYTES],
        signature=raw[KEY_BYTES + PUBLIC_BYTES :],
    )


def _require(right: bool) -> None:
    if not right:
        raise MalformedMessage("the message does not have the length that terms and roster give it")
