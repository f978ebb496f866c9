"""The roster: who takes part in a sum, with which keys, and which broadcasts they work on.

Everybody must have seen the same roster, and have accepted the same signed task, or nothing fits: all keys of a sum are
bound to their hash. A member is as safe as the others' noise and the others' checks, and both follow from the task.
"""

from __future__ import annotations

import struct

from crowdml.core import record
from crowdml.core.errors import MalformedMessage
from crowdml.core.keys import KEY_BYTES, SIGNATURE_BYTES
from crowdml.secure_aggregation.commitments import LINK_BYTES, digest, numbers
from crowdml.secure_aggregation.member_keys import PUBLIC_BYTES, Card
from crowdml.secure_aggregation.sum_terms import SumTerms

CARD_BYTES = KEY_BYTES + PUBLIC_BYTES + SIGNATURE_BYTES
HASH_BYTES = 32
_HEAD = struct.Struct("<QQII")
_BROADCAST = struct.Struct(f"<Q{HASH_BYTES}s")
_MEMBER = struct.Struct(f"<I{PUBLIC_BYTES}s{LINK_BYTES}s{CARD_BYTES}s")


@record
class BroadcastHash:
    """What the server sent to the members that began with one version.

    Attributes:
        version: The version.
        hash: Of all its bytes, and of the signed task that they were sent under.
    """

    version: int
    hash: bytes

    @staticmethod
    def of(version: int, body: bytes, task_hash: str = "") -> BroadcastHash:
        """Hash a broadcast."""
        return BroadcastHash(version=version, hash=digest(b"broadcast", task_hash.encode(), body))


@record
class Roster:
    """Who takes part.

    Attributes:
        version: Version of the task that the sum is for.
        attempt: Number of the attempt at it.
        broadcasts: One for each version that members began with, in ascending order.
        slots: Members' slots, in ascending order.
        fresh: Their fresh keys.
        tips: What they have committed themselves to for the order.
        cards: Their cards.
    """

    version: int
    attempt: int
    broadcasts: tuple[BroadcastHash, ...]
    slots: tuple[int, ...]
    fresh: tuple[bytes, ...]
    tips: tuple[bytes, ...]
    cards: tuple[Card, ...]

    def to_bytes(self) -> bytes:
        """Write the head, then the broadcasts, then the members."""
        head = _HEAD.pack(self.version, self.attempt, len(self.broadcasts), len(self.slots))
        shown = b"".join(_BROADCAST.pack(each.version, each.hash) for each in self.broadcasts)
        cards = map(write_card, self.cards)
        return head + shown + b"".join(map(_MEMBER.pack, self.slots, self.fresh, self.tips, cards))

    @staticmethod
    def of(raw: bytes) -> Roster:
        """Read a roster; nothing of it is checked but its length."""
        _require(len(raw) >= _HEAD.size)
        version, attempt, shown, count = _HEAD.unpack_from(raw)
        begin = _HEAD.size + shown * _BROADCAST.size
        _require(len(raw) == begin + count * _MEMBER.size)
        members = list(_MEMBER.iter_unpack(raw[begin:]))
        return Roster(
            version=version,
            attempt=attempt,
            broadcasts=tuple(
                BroadcastHash(version=seen, hash=found)
                for seen, found in _BROADCAST.iter_unpack(raw[_HEAD.size : begin])
            ),
            slots=tuple(slot for slot, _, _, _ in members),
            fresh=tuple(fresh for _, fresh, _, _ in members),
            tips=tuple(tip for _, _, tip, _ in members),
            cards=tuple(read_card(card) for _, _, _, card in members),
        )

    def only(self, kept: list[int]) -> Roster:
        """Return the roster of those who are left, by their numbers."""
        return Roster(
            version=self.version,
            attempt=self.attempt,
            broadcasts=self.broadcasts,
            slots=tuple(self.slots[at] for at in kept),
            fresh=tuple(self.fresh[at] for at in kept),
            tips=tuple(self.tips[at] for at in kept),
            cards=tuple(self.cards[at] for at in kept),
        )

    def context(self, terms: SumTerms, layer: int) -> bytes:
        """Name the roster that links of a layer are opened for, and the signed task under which."""
        return digest(b"roster", terms.task.encode(), terms.task_hash.encode(), numbers(layer), self.to_bytes())


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
        raise MalformedMessage("the roster does not have the length that its head gives it")
